"""TensorRT: engines for the GPU model that they were built on."""

import tensorrt

from ars.engine.runners.plans import PlanRunner

__all__ = ["TensorRt"]


class TensorRt(PlanRunner):
    name, version, trt = "tensorrt", tensorrt.__version__, tensorrt
