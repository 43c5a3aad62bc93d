"""A simulated GPU, for machines that have none.

The project's own files run on it unchanged, and so do the real bindings, cuda-python and pycuda: the simulation begins
where they do, at CUDA's driver (host/libcuda.cpp). TensorRT and onnxruntime-gpu have stand-ins here. The kernels are
kernels.cu compiled as host code, and ONNX Runtime runs the engines.
"""

import importlib
import importlib.util
import os
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager

from simulated_gpu.machine import MACHINE, Machine, driver

# These modules are imported anew, because they keep references to the libraries that they imported.
_PROJECT = (
    "ars.engine.gpu",
    "ars.engine.bindings.cuda_python",
    "ars.engine.bindings.pycuda",
    "ars.engine.devices.cuda",
    "ars.engine.samplers.cuda",
    "ars.engine.lanes.cuda",
    "ars.engine.runners.plans",
    "ars.engine.runners.tensorrt",
    "ars.engine.runners.tensorrt_rtx",
    "ars.engine.runners.onnxruntime_gpu",
)


def has_binding() -> bool:
    """Whether a package is installed that calls CUDA's driver."""
    return any(importlib.util.find_spec(name) for name in ("cuda", "pycuda"))


@contextmanager
def installed(**machine: object) -> Iterator[Machine]:
    """A machine with such GPUs, and with their libraries installed."""
    from simulated_gpu import onnxruntime, tensorrt

    driver()  # before a binding looks for the real one
    # The real tensorrt_rtx may be installed, but it knows nothing of the simulated GPU.
    stand_ins: dict[str, types.ModuleType | None] = {"tensorrt": tensorrt, "tensorrt_rtx": None}
    if os.environ.get("ARS_TEST_BINDING") == "pycuda":  # `make test-gpu-lab` sets it
        stand_ins |= {"cuda": None, "cuda.bindings": None}
        sys.setdlopenflags(os.RTLD_LAZY)  # pycuda links to functions that the simulated driver does not have
    before = {name: sys.modules.pop(name, None) for name in (*_PROJECT, *stand_ins)}
    MACHINE.reset(**machine)
    try:
        sys.modules.update(stand_ins)
        _import_onnxruntime_gpu(onnxruntime)
        yield MACHINE
    finally:
        MACHINE.reset(gpus=0)  # the driver stays loaded, and whoever asks it later is to find no GPU
        for name, module in before.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module


def _import_onnxruntime_gpu(stand_in: types.ModuleType) -> None:
    """Import the runner with the stand-in. Everything else, the stand-in included, uses the real onnxruntime."""
    import onnxruntime

    importlib.import_module("ars.engine.runners.onnxruntime")
    sys.modules["onnxruntime"] = stand_in
    try:
        importlib.import_module("ars.engine.runners.onnxruntime_gpu")
    finally:
        sys.modules["onnxruntime"] = onnxruntime
