"""GPUs through pycuda: contexts, streams, memory, and the launches of the project's kernels (engine/native/kernels.cu).

This is the one file that talks to pycuda. It has not been seen on hardware yet: docs/gpu.md says what has been tested.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from numpy.typing import DTypeLike, NDArray

from ars.engine import _native
from ars.errors import ArgumentError, DeviceError, MissingPackage, OutOfMemory, one_line

try:
    import pycuda.driver as driver
except ModuleNotFoundError as error:
    raise MissingPackage("pycuda", "gpu") from error
except ImportError as error:  # it is there, but the driver's own library is not
    raise DeviceError(f"no NVIDIA driver is installed ({error}); install one, or use --device cpu") from error

__all__ = ["PYCUDA", "Gpu", "GpuFacts", "Workspace", "list_gpus"]

T = TypeVar("T")

# Every name of pycuda that the project uses. tests/simulated_gpu/ stands in for exactly these.
PYCUDA = {
    "pycuda.compiler": ("compile",),
    "pycuda.driver": (
        "CompileError",
        "Context.detach",
        "Context.pop",
        "Context.push",
        "Device",
        "Device.compute_capability",
        "Device.count",
        "Device.name",
        "Device.retain_primary_context",
        "Device.total_memory",
        "DeviceAllocation.__int__",
        "DeviceAllocation.free",
        "Error",
        "Event",
        "Event.record",
        "Event.synchronize",
        "Function.prepare",
        "Function.prepared_async_call",
        "MemoryError",
        "Module.get_function",
        "PagelockedHostAllocation.free",
        "Stream",
        "Stream.handle",
        "Stream.synchronize",
        "event_flags.BLOCKING_SYNC",
        "get_driver_version",
        "init",
        "mem_alloc",
        "mem_get_info",
        "memcpy_dtoh_async",
        "memcpy_htod_async",
        "memset_d32_async",
        "module_from_buffer",
        "pagelocked_empty",
    ),
}

# The kernels and their parameters, in the letters of Python's struct module.
_FILL, _COUNT = "PPiqPPqIQ", "PiPiqP"
_KERNELS = {f"{name}_{dtype}": form for name, form in (("fill_noisy", _FILL), ("count_votes", _COUNT))
            for dtype in ("float32", "float16")}  # fmt: skip

# CU_STREAM_NON_BLOCKING: a stream that does not wait for other libraries' work on the default stream.
_NON_BLOCKING = 1


@dataclass(frozen=True)
class GpuFacts:
    """What a GPU is, for the user."""

    name: str
    """As --device takes it."""
    model: str
    compute_capability: tuple[int, int]
    memory: int
    driver: str
    """The newest CUDA that the driver can run."""


def list_gpus() -> list[GpuFacts]:
    """The GPUs of this machine."""
    with _errors("CUDA"):
        driver.init()
        version = driver.get_driver_version()
        newest = f"{version // 1000}.{version % 1000 // 10}"
        found = [(number, driver.Device(number)) for number in range(driver.Device.count())]
        return [
            GpuFacts(f"cuda:{number}", gpu.name(), tuple(gpu.compute_capability()), gpu.total_memory(), newest)
            for number, gpu in found
        ]


@contextmanager
def _errors(name: str) -> Iterator[None]:
    """CUDA's errors in the project's words."""
    try:
        yield
    except driver.MemoryError as error:
        raise OutOfMemory(f"{name} has not enough memory left ({one_line(error)}); use a smaller --batch") from error
    except driver.Error as error:
        fix = "what is certified is kept: check it with nvidia-smi, and run the same command again"
        raise DeviceError(f"{name} does not work, or was lost ({one_line(error)}); {fix}") from error


class Gpu:
    """One GPU: its context, the kernels, and memory that goes back when its owner ends.

    The context is the primary one, which TensorRT and ONNX Runtime use too. Any thread may use the GPU, inside
    `current`.
    """

    def __init__(self, number: int) -> None:
        self.number, self.name = number, f"cuda:{number}"
        gpus = list_gpus()
        if number >= len(gpus):
            has = f"this machine has {', '.join(gpu.name for gpu in gpus) or 'no GPU'}"
            raise ArgumentError("device", self.name, has)
        self.facts = gpus[number]
        self._module: Any = None
        self._kernels: dict[str, Any] = {}
        with _errors(self.name):
            self._context: Any = driver.Device(number).retain_primary_context()
        try:
            with self.current():
                self._module = module = _load_kernels(self.name)
                self._kernels = {name: module.get_function(name).prepare(form) for name, form in _KERNELS.items()}
        except BaseException:
            self.close()
            raise

    @contextmanager
    def current(self) -> Iterator[None]:
        """Sends this thread's CUDA calls to this GPU."""
        with _errors(self.name):
            self._context.push()
            try:
                yield
            except BaseException:
                with suppress(driver.Error):  # the first error says more
                    self._context.pop()
                raise
            self._context.pop()

    def free_bytes(self) -> int:
        with self.current():
            return int(driver.mem_get_info()[0])

    @contextmanager
    def memory(self, size: int) -> Iterator[int]:
        """So many bytes, while the GPU is current; their address."""
        allocation = driver.mem_alloc(max(size, 1))
        try:
            yield int(allocation)
        finally:
            _give_back(allocation)

    def launch(self, kernel: str, grid: tuple[int, int], threads: int, stream: Any, *parameters: int) -> None:
        self._kernels[kernel].prepared_async_call(grid, (threads, 1, 1), stream, *parameters)

    def close(self) -> None:
        """Let go of the kernels and of the context. What else was taken in it has ended before."""
        with suppress(DeviceError), self.current():
            self._kernels = {}
            self._module = None
        with suppress(driver.Error):
            self._context.detach()


class Workspace:
    """A stream of a GPU, with the memory that its work uses; all of it ends together, and in order.

    Its methods are for use while the GPU is current. A GPU that was lost takes nothing back; there is nothing to save
    then, so errors of giving back are not told.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._owned = ExitStack()
        self.stream: Any = None
        self._mark: Any = None
        with self.filling():
            self.stream = driver.Stream(_NON_BLOCKING)
            self._mark = driver.Event(driver.event_flags.BLOCKING_SYNC)

    @contextmanager
    def filling(self) -> Iterator[None]:
        """While its owner takes what it needs: all or nothing."""
        try:
            with self._gpu.current():
                yield
        except BaseException:
            self.close()
            raise

    def enter(self, resource: AbstractContextManager[T]) -> T:
        """Take something that ends with the workspace."""
        return self._owned.enter_context(resource)

    def memory(self, size: int) -> int:
        """The address of so many bytes on the GPU."""
        return self.enter(self._gpu.memory(size))

    def pinned(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """An array in host memory that the GPU copies from and to by itself."""
        array: NDArray[Any] = driver.pagelocked_empty(shape, dtype)
        self._owned.callback(_give_back, array.base)
        return array

    def upload(self, address: int, values: NDArray[Any]) -> None:
        driver.memcpy_htod_async(address, values, self.stream)

    def download(self, values: NDArray[Any], address: int) -> None:
        driver.memcpy_dtoh_async(values, address, self.stream)

    def zero(self, address: int, words: int) -> None:
        """Clear so many words of four bytes."""
        driver.memset_d32_async(address, 0, words, self.stream)

    def wait(self) -> None:
        """Sleep until all that was queued is done."""
        self._mark.record(self.stream)
        self._mark.synchronize()

    @contextmanager
    def queueing(self) -> Iterator[None]:
        """While a batch is queued and waited for: where that fails, what was queued is done before anything else."""
        with self._gpu.current():
            try:
                yield
            except BaseException:
                self._drain()
                raise

    def _drain(self) -> None:
        with suppress(driver.Error):
            self.stream.synchronize()

    def close(self) -> None:
        if self.stream is None:
            return
        with suppress(DeviceError), ExitStack() as after:
            with suppress(DeviceError):
                after.enter_context(self._gpu.current())
            self._drain()
            self._owned.close()
            self.stream = self._mark = None


def _give_back(allocation: Any) -> None:
    with suppress(driver.Error):
        allocation.free()


def _load_kernels(name: str) -> Any:
    """The kernels as they were built with the package, or compiled now, where that build does not fit this GPU."""
    folder = Path(_native.__file__).parent / "kernels"
    if (folder / "kernels.fatbin").exists():
        with suppress(driver.Error):
            return driver.module_from_buffer((folder / "kernels.fatbin").read_bytes())
    from pycuda.compiler import compile as compile_cuda

    try:
        source, options = (folder / "kernels.cu").read_text(), ["-std=c++17"]
        return driver.module_from_buffer(
            compile_cuda(source, options=options, no_extern_c=True, include_dirs=[str(folder)])
        )
    except (driver.CompileError, OSError) as error:
        fix = "install a CUDA toolkit that knows this GPU, with nvcc on the PATH"
        raise DeviceError(f"the kernels cannot be compiled for {name} ({one_line(error)}); {fix}") from error
