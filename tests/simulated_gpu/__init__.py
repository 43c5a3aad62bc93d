"""A simulated GPU, for machines that have none: it implements what the project calls of pycuda, TensorRT and
onnxruntime-gpu.

The project's own files run on it unchanged. Its memory is separate from the host's, its streams do their work only when
somebody waits for them, its kernels are kernels.cu compiled as host code, and ONNX Runtime runs its engines.
"""

import importlib
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager

from simulated_gpu.machine import MACHINE, Machine

# These modules are imported anew, because they keep references to the libraries that they imported.
_PROJECT = (
    "ars.engine.gpu",
    "ars.engine.devices.cuda",
    "ars.engine.samplers.cuda",
    "ars.engine.lanes.cuda",
    "ars.engine.runners.plans",
    "ars.engine.runners.tensorrt",
    "ars.engine.runners.tensorrt_rtx",
    "ars.engine.runners.onnxruntime_gpu",
)


@contextmanager
def installed(**machine: object) -> Iterator[Machine]:
    """A machine with such GPUs, and with their libraries installed."""
    from simulated_gpu import compiler, driver, onnxruntime, tensorrt

    package = types.ModuleType("pycuda")
    package.driver, package.compiler = driver, compiler
    stand_ins = {"pycuda": package, "pycuda.driver": driver, "pycuda.compiler": compiler, "tensorrt": tensorrt}
    stand_ins["tensorrt_rtx"] = None  # the real one may be installed, but it knows nothing of the simulated GPU
    before = {name: sys.modules.pop(name, None) for name in (*_PROJECT, *stand_ins)}
    MACHINE.reset(**machine)
    try:
        sys.modules.update(stand_ins)
        _import_onnxruntime_gpu(onnxruntime)
        yield MACHINE
    finally:
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
