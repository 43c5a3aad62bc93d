"""GPUs: contexts, streams, memory, and the launches of the project's kernels (engine/native/kernels.cu).

CUDA's driver is called through one of the packages in engine/bindings/, which is chosen when this module is imported.
This has not run on real hardware yet; docs/gpu.md says what has been tested.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from numpy.typing import DTypeLike, NDArray

from ars.engine import _native
from ars.engine.bindings import Launcher, choose_binding
from ars.errors import ArgumentError, DeviceError, OutOfMemory, one_line

__all__ = ["BINDING", "Gpu", "GpuFacts", "Graph", "Launch", "Workspace", "list_gpus"]

T = TypeVar("T")

BINDING = choose_binding()

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
        gpus, version = BINDING.find_gpus(), BINDING.driver_version()
    newest = f"{version // 1000}.{version % 1000 // 10}"
    return [GpuFacts(f"cuda:{number}", *gpu, newest) for number, gpu in enumerate(gpus)]


@contextmanager
def _errors(name: str) -> Iterator[None]:
    """Turns the errors of CUDA into the project's own."""
    try:
        yield
    except BINDING.out_of_memory as error:
        raise OutOfMemory(f"{name} has not enough memory left ({one_line(error)}); use a smaller --batch") from error
    except BINDING.error as error:
        fix = "what is certified is kept: check it with nvidia-smi, and run the same command again"
        raise DeviceError(f"{name} does not work, or was lost ({one_line(error)}); {fix}") from error


class Gpu:
    """One GPU, with its context and the project's kernels.

    The context is the primary one, which TensorRT and ONNX Runtime use too. Any thread may use the GPU inside
    `current`.
    """

    def __init__(self, number: int) -> None:
        self.number, self.name = number, f"cuda:{number}"
        self.has_graphs = BINDING.has_graphs
        gpus = list_gpus()
        if number >= len(gpus):
            has = f"this machine has {', '.join(gpu.name for gpu in gpus) or 'no GPU'}"
            raise ArgumentError("device", self.name, has)
        self.facts = gpus[number]
        self._owned = ExitStack()
        self._kernels: dict[str, Callable[[], Launcher]] = {}
        with _errors(self.name):
            self._context: Any = BINDING.retain(number)
        try:
            with self.current():
                module, unload = _load_kernels(self.facts)
                self._owned.callback(_end, unload)
                self._kernels = {name: BINDING.find_kernel(module, name, form) for name, form in _KERNELS.items()}
        except BaseException:
            self.close()
            raise

    @contextmanager
    def current(self) -> Iterator[None]:
        """Inside this context, the CUDA calls of the current thread go to this GPU."""
        with _errors(self.name):
            BINDING.push(self._context)
            try:
                yield
            except BaseException:
                _end(BINDING.pop)  # the first error says more than this one
                raise
            BINDING.pop()

    def free_bytes(self) -> int:
        with self.current():
            return BINDING.free_bytes()

    @contextmanager
    def memory(self, size: int) -> Iterator[int]:
        """Allocates this many bytes, and gives their address. The GPU must be current."""
        address, free = BINDING.allocate(max(size, 1))
        try:
            yield address
        finally:
            _end(free)

    def launcher(self, kernel: str) -> Launcher:
        """What launches a kernel, for one thread at a time."""
        return self._kernels[kernel]()

    def close(self) -> None:
        """Release the kernels and the context. Everything else in the context must have been released before."""
        with suppress(DeviceError), self.current():
            self._kernels = {}
            self._owned.close()
        _end(lambda: BINDING.release(self._context))


class Launch(NamedTuple):
    """Everything that decides what a kernel does."""

    kernel: str
    grid: tuple[int, int]
    threads: int
    parameters: tuple[float, ...]


@dataclass(frozen=True)
class Graph:
    """Work of a stream that is launched at once. Whoever captured it must close it."""

    handle: Any
    _destroy: Callable[[], None]

    def close(self) -> None:
        _end(self._destroy)


class Workspace:
    """A stream of a GPU, with the memory that its work uses. All of it is released together, and in the right order.

    The GPU must be current when a method is called. Errors while memory is released are ignored: they mean that the GPU
    was lost, and its memory with it.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._owned = ExitStack()
        self._launchers: dict[str, Launcher] = {}
        self.stream: Any = None
        self._mark: Any = None
        with self.filling():
            self.stream = self._own(BINDING.make_stream())
            self._mark = self._own(BINDING.make_event())

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

    def _own(self, resource: tuple[T, Callable[[], None]]) -> T:
        self._owned.callback(_end, resource[1])
        return resource[0]

    @property
    def handle(self) -> int:
        """The stream, as other libraries take it."""
        return BINDING.handle(self.stream)

    def memory(self, size: int) -> int:
        """Allocate this many bytes on the GPU, and return their address."""
        return self.enter(self._gpu.memory(size))

    def pinned(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """An array in page-locked host memory, which the GPU can copy from and to without the CPU."""
        return self._own(BINDING.allocate_pinned(shape, dtype))

    def upload(self, address: int, values: NDArray[Any]) -> None:
        BINDING.upload(address, values, self.stream)

    def download(self, values: NDArray[Any], address: int) -> None:
        BINDING.download(values, address, self.stream)

    def set_words(self, address: int, value: int, words: int) -> None:
        """Set this many words of four bytes to a value."""
        BINDING.set_words(address, value, words, self.stream)

    def launch(self, launch: Launch) -> None:
        if launch.kernel not in self._launchers:
            self._launchers[launch.kernel] = self._gpu.launcher(launch.kernel)
        self._launchers[launch.kernel](launch.grid, launch.threads, self.stream, *launch.parameters)

    def capture(self, work: Callable[[], None]) -> "Graph":
        """What `work` queues, as a CUDA graph. It may not wait, allocate, or copy from memory that is not pinned."""
        return Graph(*BINDING.capture(self.stream, work))

    def launch_graph(self, graph: "Graph") -> None:
        BINDING.launch_graph(graph.handle, self.stream)

    def wait(self) -> None:
        """Sleep until everything that was queued is done."""
        BINDING.record(self._mark, self.stream)
        BINDING.wait(self._mark)

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
        _end(lambda: BINDING.synchronize(self.stream))

    def close(self) -> None:
        with suppress(DeviceError), ExitStack() as after:
            with suppress(DeviceError):
                after.enter_context(self._gpu.current())
            if self.stream is not None:
                self._drain()
            self._launchers = {}
            self.stream = self._mark = None
            self._owned.close()


def _end(resource: Callable[[], None]) -> None:
    """Call what ends a resource. An error means that the GPU was lost, and the resource with it."""
    with suppress(BINDING.error):
        resource()


def _load_kernels(gpu: GpuFacts) -> tuple[Any, Callable[[], None]]:
    """The kernels that were built with the package; or, if those do not fit this GPU, kernels compiled now."""
    folder = Path(_native.__file__).parent / "kernels"
    if (folder / "kernels.fatbin").exists():
        with suppress(BINDING.error):
            return BINDING.load_module((folder / "kernels.fatbin").read_bytes())
    image = _compile_kernels(folder, gpu)
    try:
        return BINDING.load_module(image)
    except BINDING.error as error:
        problem = f"the kernels that nvcc compiled do not load on {gpu.name} ({one_line(error)})"
        fix = f"its driver is for CUDA {gpu.driver}: install a newer driver, or an older CUDA toolkit"
        raise DeviceError(f"{problem}; {fix}") from error


def _compile_kernels(folder: Path, gpu: GpuFacts) -> bytes:
    nvcc, fix = shutil.which("nvcc"), "install a CUDA toolkit that knows this GPU, with nvcc on the PATH"
    if nvcc is None:
        raise DeviceError(f"the kernels cannot be compiled for {gpu.name} (there is no nvcc); {fix}")
    with tempfile.TemporaryDirectory() as made:
        cubin, architecture = Path(made) / "kernels.cubin", "".join(map(str, gpu.compute_capability))
        command = [
            nvcc,
            "-std=c++17",
            "-cubin",
            f"-arch=sm_{architecture}",
            str(folder / "kernels.cu"),
            "-o",
            str(cubin),
        ]
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode:
            raise DeviceError(f"the kernels cannot be compiled for {gpu.name} ({one_line(run.stderr)}); {fix}")
        return cubin.read_bytes()
