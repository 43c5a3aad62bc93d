"""Models on the simulated GPU: ONNX Runtime computes them on the CPU, from and to the GPU's memory."""

import functools

import numpy as np
import onnxruntime

from simulated_gpu.machine import MACHINE, Stream


@functools.lru_cache(maxsize=8)
def session_of(content: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def type_of(port) -> np.dtype:
    return np.dtype({"tensor(float)": np.float32, "tensor(float16)": np.float16}[port.type])


def queue_model(stream: Stream, content: bytes, shape: tuple[int, ...], images: int, logits: int) -> None:
    """Queue one batch. The addresses are checked now, and again when it runs."""
    session = session_of(content)
    image, output = session.get_inputs()[0], session.get_outputs()[0]
    image_bytes = int(np.prod(shape)) * type_of(image).itemsize
    logit_bytes = shape[0] * output.shape[1] * type_of(output).itemsize

    def buffers() -> tuple[np.ndarray, np.ndarray]:
        return MACHINE.at(stream.gpu, images, image_bytes), MACHINE.at(stream.gpu, logits, logit_bytes)

    def run() -> None:
        source, to = buffers()
        batch = source.view(type_of(image)).reshape(shape)
        made = session.run([output.name], {image.name: batch})[0]
        to[:] = np.frombuffer(np.ascontiguousarray(made).tobytes(), np.uint8)

    buffers()
    stream.add(run)
