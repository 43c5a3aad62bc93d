"""TensorRT for RTX: engines that can be built without a GPU, and for several GPU models at once."""

import tensorrt_rtx

from ars.engine.runners.plans import PlanRunner

__all__ = ["TensorRtRtx"]


class TensorRtRtx(PlanRunner):
    name, version, trt = "tensorrt_rtx", tensorrt_rtx.__version__, tensorrt_rtx
