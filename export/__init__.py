"""Export: from a trained model to ONNX and TensorRT files."""
