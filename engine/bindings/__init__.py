"""The two packages that reach CUDA's driver from Python: NVIDIA's cuda-python and pycuda. Each has a file here with the
same few functions, which engine/gpu.py builds on; nothing else calls them."""

import importlib
from collections.abc import Callable
from typing import Any, Protocol

from numpy.typing import DTypeLike, NDArray

from ars.errors import MissingPackage

__all__ = ["Binding", "Launcher", "choose_binding"]

Launcher = Callable[..., None]
"""Launches a kernel: (grid, threads, stream, *parameters)."""


class Binding(Protocol):
    """CUDA's driver. Except for `find_gpus`, `retain`, `release` and `push`, a GPU must be current in the thread.

    A resource comes with the function that ends it. Every failure is an `error`.
    """

    name: str
    error: type[Exception]
    out_of_memory: type[Exception]
    """The kind of error that says that a smaller batch may fit."""
    has_graphs: bool
    """Whether the package has CUDA graphs: `capture` and `launch_graph`."""

    def find_gpus(self) -> list[tuple[str, tuple[int, int], int]]:
        """The model, compute capability and memory of each GPU. This is the first call."""
        ...

    def driver_version(self) -> int: ...

    def retain(self, gpu: int) -> Any:
        """The primary context of a GPU."""
        ...

    def release(self, context: Any) -> None:
        """Give up the primary context. The calling thread need not be the one that retained it."""
        ...

    def push(self, context: Any) -> None: ...
    def pop(self) -> None: ...
    def free_bytes(self) -> int: ...
    def allocate(self, size: int) -> tuple[int, Callable[[], None]]: ...
    def allocate_pinned(self, shape: tuple[int, ...], dtype: DTypeLike) -> tuple[NDArray[Any], Callable[[], None]]: ...
    def make_stream(self) -> tuple[Any, Callable[[], None]]:
        """A stream that does not wait for the work of other libraries on the default stream."""
        ...

    def handle(self, stream: Any) -> int: ...
    def make_event(self) -> tuple[Any, Callable[[], None]]:
        """An event whose waiting thread sleeps."""
        ...

    def record(self, event: Any, stream: Any) -> None: ...
    def wait(self, event: Any) -> None: ...
    def synchronize(self, stream: Any) -> None: ...
    def capture(self, stream: Any, work: Callable[[], None]) -> tuple[Any, Callable[[], None]]:
        """What `work` queues on the stream, as a CUDA graph that can be launched again and again. It does not run yet.
        If `work` fails, or does what cannot be captured, the stream is as it was before."""
        ...

    def launch_graph(self, graph: Any, stream: Any) -> None: ...
    def upload(self, address: int, values: NDArray[Any], stream: Any) -> None: ...
    def download(self, values: NDArray[Any], address: int, stream: Any) -> None: ...
    def set_words(self, address: int, value: int, words: int, stream: Any) -> None: ...
    def load_module(self, image: bytes) -> tuple[Any, Callable[[], None]]: ...
    def find_kernel(self, module: Any, name: str, form: str) -> Callable[[], Launcher]:
        """Makes launchers of a kernel, each for one thread at a time. `form` has the types of its parameters in the
        letters of Python's struct module."""
        ...


def choose_binding() -> Binding:
    """cuda-python if it is installed, and otherwise pycuda. cuda-python is preferred because its objects have no
    destructors: pycuda ends the process if a destructor cannot switch contexts, as on a GPU that was lost."""
    for name in ("cuda_python", "pycuda"):
        try:
            found: Binding = importlib.import_module(f"ars.engine.bindings.{name}").BINDING
            return found
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in ("cuda", "pycuda"):
                raise
    raise MissingPackage("cuda-bindings", "gpu")
