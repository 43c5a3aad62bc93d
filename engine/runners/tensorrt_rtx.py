"""TensorRT for RTX: engines that can be built without a GPU, and for several GPU models at once."""

from typing import Any

import tensorrt_rtx

from ars.engine.runners.plans import PlanRunner

__all__ = ["TensorRtRtx"]


class TensorRtRtx(PlanRunner):
    name, version, trt = "tensorrt_rtx", tensorrt_rtx.__version__, tensorrt_rtx

    def make_context(self, strategy: Any) -> Any:
        """By default, kernels for the shape of a batch are compiled in the background and swapped in when they are
        ready, so that a row's logits might change during a run. Here they are compiled first. A batch is then launched
        as one CUDA graph."""
        trt = self.trt
        config = self._engine.create_runtime_config()
        config.set_execution_context_allocation_strategy(strategy)
        config.dynamic_shapes_kernel_specialization_strategy = trt.DynamicShapesKernelSpecializationStrategy.EAGER
        config.cuda_graph_strategy = trt.CudaGraphStrategy.WHOLE_GRAPH_CAPTURE
        return self._engine.create_execution_context(config)
