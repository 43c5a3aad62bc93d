"""CUDA's driver by NVIDIA's cuda-python (the package cuda-bindings), whose handles are plain numbers with no owner."""

import ctypes
import math
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ars.engine.bindings import Launcher
from ars.errors import DeviceError, one_line

try:
    from cuda.bindings import driver
except ModuleNotFoundError:
    raise
except ImportError as error:  # it is installed, but a library that it needs is not, or another package has its name
    raise DeviceError(f"cuda-python does not load ({one_line(error)}); install cuda-bindings again") from error

__all__ = ["BINDING"]

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
_BLOCKING_SYNC = 1  # CU_EVENT_BLOCKING_SYNC
# The names of cuLaunchKernel's extra arguments: CU_LAUNCH_PARAM_BUFFER_POINTER, _BUFFER_SIZE and _END.
_BUFFER_POINTER, _BUFFER_SIZE, _END = 1, 2, 0
_COMPUTE_CAPABILITY = (
    driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
    driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
)


class _Error(Exception):
    """CUDA's driver refused a call."""


class _OutOfMemory(_Error):
    """There is not enough memory for an allocation."""


def _call(function: Any, *arguments: Any) -> Any:
    """What a function of the driver returns after its status: nothing, one value, or several."""
    try:
        status, *found = function(*arguments)
    except RuntimeError as error:  # cuda-python looks for the driver, and for the function in it, at the first call
        problem, fix = f"the NVIDIA driver is too old for cuda-python ({error})", "install a newer driver"
        if function is driver.cuInit:
            problem, fix = f"no NVIDIA driver is installed ({error})", "install one, or use the device cpu"
        raise DeviceError(f"{problem}; {fix}") from error
    if status:
        text = driver.cuGetErrorString(status)[1]
        kind = _OutOfMemory if status == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY else _Error
        said = text.decode() if text else f"error {int(status)}"
        raise kind(f"{function.__name__} failed: {said}")
    return found[0] if len(found) == 1 else found


class _CudaPython:
    name, error, out_of_memory, has_graphs = "cuda-python", _Error, _OutOfMemory, True

    def find_gpus(self) -> list[tuple[str, tuple[int, int], int]]:
        _call(driver.cuInit, 0)
        found = []
        for number in range(_call(driver.cuDeviceGetCount)):
            gpu = _call(driver.cuDeviceGet, number)
            major, minor = (_call(driver.cuDeviceGetAttribute, one, gpu) for one in _COMPUTE_CAPABILITY)
            name = _call(driver.cuDeviceGetName, 256, gpu).partition(b"\0")[0].decode()
            found.append((name, (major, minor), _call(driver.cuDeviceTotalMem, gpu)))
        return found

    def driver_version(self) -> int:
        return int(_call(driver.cuDriverGetVersion))

    def retain(self, gpu: int) -> tuple[int, Any]:
        return gpu, _call(driver.cuDevicePrimaryCtxRetain, gpu)

    def release(self, context: tuple[int, Any]) -> None:
        _call(driver.cuDevicePrimaryCtxRelease, context[0])

    def push(self, context: tuple[int, Any]) -> None:
        _call(driver.cuCtxPushCurrent, context[1])

    def pop(self) -> None:
        _call(driver.cuCtxPopCurrent)

    def free_bytes(self) -> int:
        return int(_call(driver.cuMemGetInfo)[0])

    def allocate(self, size: int) -> tuple[int, Callable[[], None]]:
        address = int(_call(driver.cuMemAlloc, size))
        return address, lambda: _call(driver.cuMemFree, address)

    def allocate_pinned(self, shape: tuple[int, ...], dtype: DTypeLike) -> tuple[NDArray[Any], Callable[[], None]]:
        size = math.prod(shape) * np.dtype(dtype).itemsize
        address = _call(driver.cuMemHostAlloc, size, 0)
        array = np.frombuffer(memoryview((ctypes.c_char * size).from_address(address)), dtype).reshape(shape)
        return array, lambda: _call(driver.cuMemFreeHost, address)

    def make_stream(self) -> tuple[Any, Callable[[], None]]:
        stream = _call(driver.cuStreamCreate, _NON_BLOCKING)
        return stream, lambda: _call(driver.cuStreamDestroy, stream)

    def handle(self, stream: Any) -> int:
        return int(stream)

    def make_event(self) -> tuple[Any, Callable[[], None]]:
        event = _call(driver.cuEventCreate, _BLOCKING_SYNC)
        return event, lambda: _call(driver.cuEventDestroy, event)

    def record(self, event: Any, stream: Any) -> None:
        _call(driver.cuEventRecord, event, stream)

    def wait(self, event: Any) -> None:
        _call(driver.cuEventSynchronize, event)

    def synchronize(self, stream: Any) -> None:
        _call(driver.cuStreamSynchronize, stream)

    def capture(self, stream: Any, work: Callable[[], None]) -> tuple[Any, Callable[[], None]]:
        # Other threads may allocate meanwhile, and work on streams of their own.
        _call(driver.cuStreamBeginCapture, stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
        try:
            work()
            captured = _call(driver.cuStreamEndCapture, stream)
        except BaseException:
            with suppress(_Error):  # the first error says more
                _call(driver.cuGraphDestroy, _call(driver.cuStreamEndCapture, stream))
            raise
        try:
            graph = _call(driver.cuGraphInstantiate, captured, 0)
        finally:
            with suppress(_Error):  # if it was not instantiated, that error says more
                _call(driver.cuGraphDestroy, captured)
        return graph, lambda: _call(driver.cuGraphExecDestroy, graph)

    def launch_graph(self, graph: Any, stream: Any) -> None:
        _call(driver.cuGraphLaunch, graph, stream)

    def upload(self, address: int, values: NDArray[Any], stream: Any) -> None:
        _call(driver.cuMemcpyHtoDAsync, address, values.ctypes.data, values.nbytes, stream)

    def download(self, values: NDArray[Any], address: int, stream: Any) -> None:
        _call(driver.cuMemcpyDtoHAsync, values.ctypes.data, address, values.nbytes, stream)

    def set_words(self, address: int, value: int, words: int, stream: Any) -> None:
        _call(driver.cuMemsetD32Async, address, value, words, stream)

    def load_module(self, image: bytes) -> tuple[Any, Callable[[], None]]:
        module = _call(driver.cuModuleLoadData, image)
        return module, lambda: _call(driver.cuModuleUnload, module)

    def find_kernel(self, module: Any, name: str, form: str) -> Callable[[], Launcher]:
        function = _call(driver.cuModuleGetFunction, module, name.encode())
        return lambda: _Launcher(function, struct.Struct(form))


class _Launcher:
    """Packs the parameters of each launch into one buffer, which the driver reads before the call returns."""

    def __init__(self, function: Any, form: struct.Struct) -> None:
        self._function, self._form = function, form
        self._buffer, self._size = ctypes.create_string_buffer(form.size), ctypes.c_size_t(form.size)
        named = _BUFFER_POINTER, ctypes.addressof(self._buffer), _BUFFER_SIZE, ctypes.addressof(self._size), _END
        self._extra = (ctypes.c_void_p * len(named))(*named)
        self._address = ctypes.addressof(self._extra)

    def __call__(self, grid: tuple[int, int], threads: int, stream: Any, *parameters: float) -> None:
        self._form.pack_into(self._buffer, 0, *parameters)
        _call(driver.cuLaunchKernel, self._function, *grid, 1, threads, 1, 1, 0, stream, 0, self._address)


BINDING = _CudaPython()
