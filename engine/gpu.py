"""GPUs through pycuda: contexts, streams, memory, and the launches of the project's kernels (engine/native/kernels.cu).

This is the only file that calls pycuda. It has not run on real hardware yet; docs/gpu.md says what has been tested.
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
except ImportError as error:  # pycuda is installed, but the driver's library is not
    raise DeviceError(f"no NVIDIA driver is installed ({error}); install one, or use --device cpu") from error

__all__ = ["Gpu", "GpuFacts", "Workspace", "list_gpus"]

T = TypeVar("T")

# The kernels, and the types of their parameters in the letters of Python's struct module.
_FILL_NOISY, _FILL_LATTICE = "PPiqPPqIQ", "PPiqPPPPfqIQ"
_FORMS = {
    "fill_noisy": _FILL_NOISY,
    "fill_lattice": _FILL_LATTICE,
    "fill_stretched_noisy": _FILL_NOISY,
    "fill_stretched_lattice": _FILL_LATTICE,
    "count_votes": "PiPiqP",
}
_KERNELS = {f"{name}_{dtype}": form for name, form in _FORMS.items() for dtype in ("float32", "float16")}

# CU_STREAM_NON_BLOCKING: the stream does not wait for the work of other libraries on the default stream.
_NON_BLOCKING = 1


@dataclass(frozen=True)
class GpuFacts:
    """The facts about a GPU that users see."""

    name: str
    """The name that `--device` takes."""
    model: str
    compute_capability: tuple[int, int]
    memory: int
    driver: str
    """The newest version of CUDA that the driver supports."""


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
    """Turns the errors of CUDA into the project's own."""
    try:
        yield
    except driver.MemoryError as error:
        raise OutOfMemory(f"{name} has not enough memory left ({one_line(error)}); use a smaller --batch") from error
    except driver.Error as error:
        fix = "what is certified is kept: check it with nvidia-smi, and run the same command again"
        raise DeviceError(f"{name} does not work, or was lost ({one_line(error)}); {fix}") from error


class Gpu:
    """One GPU, with its context and the project's kernels.

    The context is the primary one, which TensorRT and ONNX Runtime use too. Any thread may use the GPU inside
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
        """Inside this context, the CUDA calls of the current thread go to this GPU."""
        with _errors(self.name):
            self._context.push()
            try:
                yield
            except BaseException:
                with suppress(driver.Error):  # the first error says more than this one
                    self._context.pop()
                raise
            self._context.pop()

    def free_bytes(self) -> int:
        with self.current():
            return int(driver.mem_get_info()[0])

    @contextmanager
    def memory(self, size: int) -> Iterator[int]:
        """Allocates this many bytes, and gives their address. The GPU must be current."""
        allocation = driver.mem_alloc(max(size, 1))
        try:
            yield int(allocation)
        finally:
            _give_back(allocation)

    def launch(self, kernel: str, grid: tuple[int, int], threads: int, stream: Any, *parameters: float) -> None:
        self._kernels[kernel].prepared_async_call(grid, (threads, 1, 1), stream, *parameters)

    def close(self) -> None:
        """Release the kernels and the context. Everything else in the context must have been released before."""
        with suppress(DeviceError), self.current():
            self._kernels = {}
            self._module = None
        with suppress(driver.Error):
            self._context.detach()


class Workspace:
    """A stream of a GPU, with the memory that its work uses. All of it is released together, and in the right order.

    The GPU must be current when a method is called. Errors while memory is released are ignored: they mean that the GPU
    was lost, and its memory with it.
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
        """The owner allocates what it needs inside this context. If that fails, everything is released."""
        try:
            with self._gpu.current():
                yield
        except BaseException:
            self.close()
            raise

    def enter(self, resource: AbstractContextManager[T]) -> T:
        """Enter a context that ends when the workspace is closed."""
        return self._owned.enter_context(resource)

    def memory(self, size: int) -> int:
        """Allocate this many bytes on the GPU, and return their address."""
        return self.enter(self._gpu.memory(size))

    def pinned(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """An array in page-locked host memory, which the GPU can copy from and to without the CPU."""
        array: NDArray[Any] = driver.pagelocked_empty(shape, dtype)
        self._owned.callback(_give_back, array.base)
        return array

    def upload(self, address: int, values: NDArray[Any]) -> None:
        driver.memcpy_htod_async(address, values, self.stream)

    def download(self, values: NDArray[Any], address: int) -> None:
        driver.memcpy_dtoh_async(values, address, self.stream)

    def zero(self, address: int, words: int) -> None:
        """Set this many words of four bytes to zero."""
        driver.memset_d32_async(address, 0, words, self.stream)

    def wait(self) -> None:
        """Sleep until everything that was queued is done."""
        self._mark.record(self.stream)
        self._mark.synchronize()

    @contextmanager
    def queueing(self) -> Iterator[None]:
        """A batch is queued and waited for inside this context. If that fails, it first waits for what was queued
        already."""
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
    """The kernels that were built with the package; or, if those do not fit this GPU, kernels compiled now."""
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
