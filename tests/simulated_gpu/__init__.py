"""A GPU for machines that have none: stand-ins for what the project calls of CUDA, TensorRT and ONNX Runtime's CUDA."""
