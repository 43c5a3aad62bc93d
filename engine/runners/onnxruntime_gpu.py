"""ONNX Runtime on a GPU, through I/O binding: it reads the batch where the noise was made, and copies nothing."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnxruntime

from ars.engine.gpu import Gpu
from ars.engine.runners import CpuRunner, GpuRunner, Port
from ars.engine.runners.onnxruntime import OnnxRuntime
from ars.errors import DeviceError, MissingPackage, OutOfMemory, RunError, one_line
from ars.manifest import Profile

__all__ = ["OnnxRuntimeGpu"]

_CUDA = "CUDAExecutionProvider"


class OnnxRuntimeGpu(GpuRunner):
    """A classifier from an ONNX file, on one GPU. Each lane has a session, because a session has one stream."""

    name, version = "onnxruntime-gpu", onnxruntime.__version__

    def __init__(self, path: Path, gpu: Gpu) -> None:
        if _CUDA not in onnxruntime.get_available_providers():
            raise MissingPackage("onnxruntime-gpu", "gpu")
        self._gpu = gpu
        super().__init__(path)
        if self.fixed_batch is not None:
            self.profile = Profile(self.fixed_batch, self.fixed_batch, self.fixed_batch)

    def open(self, content: bytes, lane_count: int) -> tuple[Sequence[Port], Sequence[Port]]:
        self._content = content
        # What the model takes and gives, the processor tells too.
        self._on_host: CpuRunner = OnnxRuntime(self.path)
        return [self._on_host.image], [self._on_host.logits]

    def count_classes(self) -> int:
        return self._on_host.classes

    @contextmanager
    def bind(self, stream: int, shape: tuple[int, ...], images: int, logits: int) -> Iterator[Callable[[], None]]:
        number = self._gpu.number
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        # TF32, on by default, would round the factors of fp32 to 10 bits.
        cuda = {"device_id": str(number), "user_compute_stream": str(stream), "use_tf32": "0"}
        try:
            session = onnxruntime.InferenceSession(self._content, options, providers=[(_CUDA, cuda)])
            binding = session.io_binding()
            places = (
                (self.image, shape, images, binding.bind_input),
                (self.logits, (shape[0], self.classes), logits, binding.bind_output),
            )
            for port, sides, address, bind in places:
                bind(port.name, "cuda", number, np.dtype(port.dtype).type, sides, address)
        except Exception as error:  # onnxruntime's errors have no other class in common
            raise self._failed("cannot load it", error) from error
        if _CUDA not in session.get_providers():  # it goes on without, and says nothing
            fix = "install the CUDA and cuDNN that its version asks for"
            raise DeviceError(f"{self.path}: onnxruntime cannot use {self._gpu.name}; {fix}")
        run_options = onnxruntime.RunOptions()
        run_options.add_run_config_entry("disable_synchronize_execution_providers", "1")  # the lane waits by itself

        def enqueue() -> None:
            try:
                session.run_with_iobinding(binding, run_options)
            except Exception as error:  # as above
                raise self._failed(f"failed on a batch of {shape[0]}", error) from error

        yield enqueue

    def _failed(self, what: str, error: Exception) -> RunError:
        reason = one_line(error)
        kind = OutOfMemory if "memory" in reason.lower() else RunError
        return kind(f"{self.path}: onnxruntime {what} on {self._gpu.name} ({reason}); try a smaller --batch")

    def close(self) -> None:
        return
