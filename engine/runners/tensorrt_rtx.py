"""TensorRT for RTX: engines that can be built without a GPU, and for several GPU models at once. Their kernels are
compiled when they first run on a GPU, and kept in a file beside the engine."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorrt_rtx

from ars.engine.runners.plans import PlanRunner
from ars.errors import ArsError
from ars.output import replacing

if TYPE_CHECKING:
    from ars.engine.gpu import Gpu

__all__ = ["TensorRtRtx"]


class TensorRtRtx(PlanRunner):
    name, version, trt = "tensorrt_rtx", tensorrt_rtx.__version__, tensorrt_rtx

    def __init__(self, path: Path, gpu: "Gpu") -> None:
        self._cache: Any = None
        self._saved = b""
        self._cache_file = path.with_name(f"{path.name}.cache")
        super().__init__(path, gpu)

    def make_context(self, strategy: Any) -> Any:
        """By default, kernels for the shape of a batch are compiled in the background and swapped in when they are
        ready, so that a row's logits might change during a run. Here they are compiled first.

        A graph of TensorRT's own cannot be launched inside of a capture, so it makes one only where the lane cannot.
        """
        trt = self.trt
        config = self._engine.create_runtime_config()
        config.set_execution_context_allocation_strategy(strategy)
        config.dynamic_shapes_kernel_specialization_strategy = trt.DynamicShapesKernelSpecializationStrategy.EAGER
        graphs = trt.CudaGraphStrategy
        config.cuda_graph_strategy = graphs.DISABLED if self.gpu.has_graphs else graphs.WHOLE_GRAPH_CAPTURE
        if self._cache is None:
            self._cache = self._load_cache(config)
        config.set_runtime_cache(self._cache)
        return self._engine.create_execution_context(config)

    def can_capture(self, context: Any, stream: int) -> bool:
        return bool(context.is_stream_capturable(stream))

    def _load_cache(self, config: Any) -> Any:
        """The kernels that were compiled before. TensorRT takes none that another version, GPU or driver compiled; a
        file that belongs to another engine is not even shown to it."""
        cache = config.create_runtime_cache()
        with suppress(OSError):
            found = self._cache_file.read_bytes() if self._cache_file.is_file() else b""
            if found.startswith(self._key) and cache.deserialize(found[len(self._key) :]):
                self._saved = found
        return cache

    @property
    def _key(self) -> bytes:
        """The start of a cache file: the hash of its engine."""
        return bytes.fromhex(self.sha256)

    def close(self) -> None:
        with suppress(ArsError, OSError), self.gpu.current():  # without the file, they are compiled again
            made = None if self._cache is None else self._cache.serialize()
            if made is not None and (content := self._key + bytes(made)) != self._saved:
                with replacing(self._cache_file) as file:
                    file.write_bytes(content)
        self._cache = None
        super().close()
