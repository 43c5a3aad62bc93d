"""ONNX Runtime on a GPU. With I/O binding, a session reads each batch where the noise was made and copies nothing."""

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout

import numpy as np
import onnxruntime

from ars.engine.runners import CpuRunner, GpuRunner, Port, gpu_error
from ars.engine.runners.onnxruntime import OnnxRuntime
from ars.errors import DeviceError, ModelError, RunError, one_line
from ars.external_data import HashedModel

__all__ = ["OnnxRuntimeGpu"]

_CUDA = "CUDAExecutionProvider"
if _CUDA not in onnxruntime.get_available_providers():
    # The package onnxruntime installs the same module, without CUDA.
    raise ModuleNotFoundError(f"onnxruntime has no {_CUDA}", name="onnxruntime-gpu")
# CUDA and cuDNN from PyPI are in folders where the loader does not look. What is missing is printed, line by line; a
# session that lacks it says so in one sentence.
with redirect_stdout(io.StringIO()):
    onnxruntime.preload_dlls()


class OnnxRuntimeGpu(GpuRunner):
    """A classifier from an ONNX file, on one GPU. Each lane has a session, because a session has one stream.

    It is not `capturable`: a session may wait for its stream, which ends a capture, and a graph that it captured itself
    cannot be launched inside of another capture (microsoft/onnxruntime, issue 15002 and pull request 32081).
    """

    name, version = "onnxruntime-gpu", onnxruntime.__version__

    def open(self, model: HashedModel) -> tuple[Sequence[Port], Sequence[Port]]:
        self._model = model
        # A session on the CPU knows the model's inputs and outputs without taking memory on the GPU.
        self._on_cpu: CpuRunner = OnnxRuntime(self.path)
        if self._on_cpu.sha256 != model.hash.sha256:
            raise ModelError(self.path, "it changed while it was being read", "start again when it is complete")
        return [self._on_cpu.image], [self._on_cpu.logits]

    def count_classes(self) -> int:
        return self._on_cpu.classes

    @contextmanager
    def bind(self, stream: int, shape: tuple[int, ...], images: int, logits: int) -> Iterator[Callable[[], None]]:
        number = self.gpu.number
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.add_session_config_entry("session.load_model_format", "ONNX")  # as on the CPU
        cuda = {"device_id": str(number), "user_compute_stream": str(stream)}
        if self.image.dtype == "float32":
            # TF32, which is on by default, would round the factors of FP32 products to 10 bits. For an FP16 model the
            # same option would take the convolutions from the tensor cores, which round nothing more than it states.
            cuda["use_tf32"] = "0"
        try:
            session = onnxruntime.InferenceSession(self._model.onnx_source(), options, providers=[(_CUDA, cuda)])
        except Exception as error:  # onnxruntime's errors have no other base class in common
            raise self._failed("cannot load it", error) from error
        if _CUDA not in session.get_providers():  # then it would silently run on the CPU
            fix = "install the CUDA and cuDNN that its version asks for: pip install 'onnxruntime-gpu[cuda,cudnn]'"
            raise DeviceError(f"{self.path}: onnxruntime {self.version} cannot use {self.gpu.name}; {fix}")
        try:
            binding = session.io_binding()
            buffers = (
                (self.image, shape, images, binding.bind_input),
                (self.logits, (shape[0], self.classes), logits, binding.bind_output),
            )
            for port, sides, address, bind in buffers:
                bind(port.name, "cuda", number, np.dtype(port.dtype).type, sides, address)
        except Exception as error:  # onnxruntime's errors have no other base class in common
            raise self._failed("does not take its buffers", error) from error
        run_options = onnxruntime.RunOptions()
        run_options.add_run_config_entry("disable_synchronize_execution_providers", "1")  # the lane waits itself

        def enqueue() -> None:
            try:
                session.run_with_iobinding(binding, run_options)
            except Exception as error:  # onnxruntime's errors have no other base class in common
                raise self._failed(f"failed on a batch of {shape[0]}", error) from error

        yield enqueue

    def _failed(self, what: str, error: Exception) -> RunError:
        return gpu_error(f"{self.path}: onnxruntime {what} on {self.gpu.name}", one_line(error))
