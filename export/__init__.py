"""Export: a trained model to ONNX and TensorRT."""
