"""CUDA's driver by pycuda. docs/gpu.md says where pycuda can end the process: its destructors abort if they fail."""

import ctypes
from collections.abc import Callable
from typing import Any

from numpy.typing import DTypeLike, NDArray

from ars.engine.bindings import Launcher
from ars.errors import DeviceError

try:
    import pycuda.driver as driver
except ModuleNotFoundError:
    raise
except ImportError as error:  # pycuda is installed, but a library that it needs is not
    if "libcuda.so" in str(error):
        problem, fix = "no NVIDIA driver is installed", "install one, or use the device cpu"
    elif "undefined symbol" in str(error):
        problem, fix = (
            "the NVIDIA driver is older than the CUDA toolkit that pycuda was built with",
            "update the driver",
        )
    else:
        problem, fix = "pycuda does not load", "install that library, or `pip install cuda-bindings` in its place"
    raise DeviceError(f"{problem} ({error}); {fix}") from error

__all__ = ["BINDING"]

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING


def _nothing() -> None:
    """pycuda ends streams, events and modules when their last reference goes."""


class _PyCuda:
    name, error, out_of_memory, has_graphs = "pycuda", driver.Error, driver.MemoryError, False

    def find_gpus(self) -> list[tuple[str, tuple[int, int], int]]:
        driver.init()
        found = map(driver.Device, range(driver.Device.count()))
        return [(gpu.name(), tuple(gpu.compute_capability()), gpu.total_memory()) for gpu in found]

    def driver_version(self) -> int:
        return int(driver.get_driver_version())

    def retain(self, gpu: int) -> Any:
        return driver.Device(gpu).retain_primary_context()

    def release(self, context: Any) -> None:
        # pycuda releases a context only in the thread that retained it, or where it is current; and it leaves it on the
        # driver's stack, where it would be the thread's current context for every other library.
        context.push()
        context.detach()
        ctypes.CDLL("libcuda.so.1").cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))

    def push(self, context: Any) -> None:
        context.push()

    def pop(self) -> None:
        driver.Context.pop()

    def free_bytes(self) -> int:
        return int(driver.mem_get_info()[0])

    def allocate(self, size: int) -> tuple[int, Callable[[], None]]:
        allocation = driver.mem_alloc(size)
        return int(allocation), allocation.free

    def allocate_pinned(self, shape: tuple[int, ...], dtype: DTypeLike) -> tuple[NDArray[Any], Callable[[], None]]:
        array = driver.pagelocked_empty(shape, dtype)
        return array, array.base.free

    def make_stream(self) -> tuple[Any, Callable[[], None]]:
        return driver.Stream(_NON_BLOCKING), _nothing

    def handle(self, stream: Any) -> int:
        return int(stream.handle)

    def make_event(self) -> tuple[Any, Callable[[], None]]:
        return driver.Event(driver.event_flags.BLOCKING_SYNC), _nothing

    def record(self, event: Any, stream: Any) -> None:
        event.record(stream)

    def wait(self, event: Any) -> None:
        event.synchronize()

    def synchronize(self, stream: Any) -> None:
        stream.synchronize()

    def capture(self, stream: Any, work: Callable[[], None]) -> tuple[Any, Callable[[], None]]:
        raise NotImplementedError("pycuda has no CUDA graphs")

    def launch_graph(self, graph: Any, stream: Any) -> None:
        raise NotImplementedError("pycuda has no CUDA graphs")

    def upload(self, address: int, values: NDArray[Any], stream: Any) -> None:
        driver.memcpy_htod_async(address, values, stream)

    def download(self, values: NDArray[Any], address: int, stream: Any) -> None:
        driver.memcpy_dtoh_async(values, address, stream)

    def set_words(self, address: int, value: int, words: int, stream: Any) -> None:
        driver.memset_d32_async(address, value, words, stream)

    def load_module(self, image: bytes) -> tuple[Any, Callable[[], None]]:
        return driver.module_from_buffer(image), _nothing

    def find_kernel(self, module: Any, name: str, form: str) -> Callable[[], Launcher]:
        call = module.get_function(name).prepare(form).prepared_async_call

        def launch(grid: tuple[int, int], threads: int, stream: Any, *parameters: float) -> None:
            call(grid, (threads, 1, 1), stream, *parameters)

        return lambda: launch


BINDING = _PyCuda()
