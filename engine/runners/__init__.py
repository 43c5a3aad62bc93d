"""What turns a noisy batch into logits: one file a backend, and the file's name is the backend's name.

A new backend is one file with a ModelRunner in it, and a row of BACKENDS.
"""

import hashlib
import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ars.errors import ArsError, MissingPackage, ModelError, RunError, UnknownName
from ars.manifest import Manifest, manifest_beside

__all__ = [
    "BACKENDS",
    "ENGINE_SUFFIXES",
    "Backend",
    "Generator",
    "Model",
    "ModelRunner",
    "Port",
    "Runner",
    "backend_named",
    "choose_backend",
    "load_generator",
    "load_runner",
    "manifest_of",
    "one_line",
    "read_model",
]

TORCH_SUFFIXES = (".pt", ".pth")
ENGINE_SUFFIXES = (".trt", ".engine", ".plan")


class Runner(Protocol):
    """A classifier, ready to run. `run` may be called from several threads at once."""

    name: str
    version: str
    classes: int

    def run(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        """The logits of each row of the batch."""
        ...


class Generator(Protocol):
    """A noise generator, ready to run."""

    sha256: str

    def __call__(self, x: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The mean and the scale of the noise at one input."""
        ...


@dataclass(frozen=True)
class Port:
    """An input or an output of a model. None is a side that may be any, or a shape that is not known."""

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None


def read_model(path: Path) -> tuple[bytes, str]:
    """The bytes of a model file and their hash. A model is loaded from these very bytes, so weights in other files
    ("external data") do not load."""
    if not path.exists():
        raise ModelError(path, "there is no such file", "give the path of a model")
    content = path.read_bytes()
    return content, hashlib.sha256(content).hexdigest()


def one_line(error: Exception) -> str:
    """A library's message in one line."""
    return " ".join(str(error).split())


class Model(ABC):
    """A classifier from a file: one image input, and logits [n, classes] as its first output.

    A backend opens the file; what is checked is checked here.
    """

    name: str
    version: str
    own_manifest: Manifest | None = None
    """What the file says of the model, where it needs no manifest beside it."""
    own_generator: Generator | None = None
    """The noise generator, where the file holds it too."""

    def __init__(self, path: Path, lanes: int = 1) -> None:
        """`lanes` is how many threads may call `run` at the same time and be fast."""
        self.path = path
        content, self.sha256 = read_model(path)
        self.precision: str | None = "int8" if _is_quantised(content) else None
        """The precision, where it is known: the manifest's word, or int8 for a quantised graph."""
        try:
            inputs, outputs = self.open(content, lanes)
        except ArsError:
            raise
        except Exception as error:  # the errors of the libraries have no other class in common
            fix = "check it with onnx.checker, or export it again, with external_data=False"
            raise ModelError(path, f"{self.name} cannot load it ({one_line(error)})", fix) from error
        if len(inputs) != 1:
            names = ", ".join(port.name for port in inputs)
            fix = "export a classifier whose only input is the image"
            raise ModelError(path, f"it has {len(inputs)} inputs ({names})", fix)
        image, logits = inputs[0], outputs[0]
        if not logits.dtype.startswith("float"):
            raise ModelError(path, f"its first output is of {logits.dtype}", "it must be logits of batch x classes")
        if image.dtype not in ("float32", "float16"):
            raise ModelError(path, f"its input is of {image.dtype}", "export it with a float32 or float16 input")
        self._dtype = np.dtype(image.dtype)
        if image.shape is None or len(image.shape) < 2:
            raise ModelError(path, f"its input has the shape {image.shape}", "export it with a batch axis first")
        self.fixed_batch, *sides = image.shape
        """The only batch size that the model takes, if it was exported with one."""
        self.shape = tuple(sides)
        """The shape of an input; None is a side that may be any."""
        classes = logits.shape[1] if logits.shape is not None and len(logits.shape) == 2 else None
        self.classes = self.count_classes() if classes is None else classes
        if self.classes < 2:
            raise ModelError(path, f"it has {self.classes} class", "a classifier has at least two")

    @abstractmethod
    def open(self, content: bytes, lanes: int) -> tuple[Sequence[Port], Sequence[Port]]:
        """Get ready to run the model of these bytes; its inputs and its outputs."""

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Refuse inputs that the model does not take."""
        same_axes = len(shape) == len(self.shape)
        if not same_axes or any(want not in (None, has) for want, has in zip(self.shape, shape, strict=True)):
            want = " x ".join(str(side or "any") for side in self.shape)
            found = f"it takes inputs of {want}, and the data has {' x '.join(map(str, shape))}"
            raise ModelError(self.path, found, "use --resize and --crop, or other data")

    def count_classes(self) -> int:
        """The classes of a model that does not say them."""
        raise ModelError(self.path, "it does not say its number of classes", "export it with a fixed one")


class ModelRunner(Model):
    """A classifier that takes batches of the host's memory: a backend runs them."""

    @abstractmethod
    def infer(self, batch: NDArray[np.floating]) -> NDArray[np.floating]:
        """The first output for a batch that the model takes, in its type. Many threads may call it at once."""

    def run(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        """The logits of each row. A batch of another size than the model's fixed one is cut and padded with zeros."""
        size = self.fixed_batch or len(batch)
        if len(batch) == size:
            logits = self._infer(batch)
        else:
            padded = np.zeros((-(-len(batch) // size) * size, *batch.shape[1:]), np.float32)
            padded[: len(batch)] = batch
            parts = [self._infer(padded[first : first + size]) for first in range(0, len(padded), size)]
            logits = np.concatenate(parts)[: len(batch)]
        if logits.shape != (len(batch), self.classes):
            found = f"its first output has the shape {logits.shape} for {len(batch)} inputs"
            raise ModelError(self.path, found, f"it must be logits of batch x {self.classes} classes")
        return logits

    def _infer(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        try:
            logits = self.infer(batch.astype(self._dtype, copy=False))
        except ArsError:
            raise
        except Exception as error:  # as above
            failed = f"{self.path}: {self.name} failed on a batch of {len(batch)} ({one_line(error)})"
            raise RunError(f"{failed}; try a smaller --batch, or export the model again") from error
        return np.ascontiguousarray(logits, np.float32)

    def count_classes(self) -> int:
        """The classes of a model that does not say them: it is asked."""
        if None in self.shape:
            problem = "neither its input nor its number of classes has a fixed size"
            raise ModelError(self.path, problem, "export it with both")
        logits = self._infer(np.zeros((self.fixed_batch or 1, *(side or 1 for side in self.shape)), np.float32))
        if logits.ndim != 2:
            found = f"its first output has the shape {logits.shape} for a batch of {len(logits)}"
            raise ModelError(self.path, found, "its first output must be logits of batch x classes")
        return int(logits.shape[1])


@dataclass(frozen=True)
class Backend:
    """A library that runs classifiers: its package, the extra that installs it, and the files that it reads."""

    name: str
    package: str
    extra: str
    suffixes: tuple[str, ...]
    runner: Callable[[], type[ModelRunner]]
    """Imports the library."""

    @property
    def installed(self) -> bool:
        return importlib.util.find_spec(self.package) is not None

    @property
    def missing(self) -> MissingPackage:
        """The error that has the install line."""
        return MissingPackage(self.package, self.extra)


def _onnxruntime() -> type[ModelRunner]:
    from ars.engine.runners.onnxruntime import OnnxRuntime

    return OnnxRuntime


BACKENDS = (Backend("onnxruntime", "onnxruntime", "cpu", (".onnx",), _onnxruntime),)


def backend_named(name: str) -> Backend:
    for backend in BACKENDS:
        if backend.name == name:
            return backend
    raise UnknownName("backend", name, ["auto", *(backend.name for backend in BACKENDS)])


def manifest_of(path: Path) -> Manifest | None:
    """The manifest beside a model file that has one; a model.pt says all of it itself."""
    return None if path.suffix in TORCH_SUFFIXES else manifest_beside(path)


def choose_backend(path: Path, manifest: Manifest | None) -> tuple[str, str]:
    """The fastest backend for this file of those that are installed, and why, for the user."""
    if path.suffix in ENGINE_SUFFIXES:
        raise ModelError(path, "this version of ARS does not run TensorRT engines", "give the ONNX file instead")
    return "onnxruntime", "it runs ONNX files on the processor"


def load_runner(path: Path, backend: str = "auto", lanes: int = 1) -> ModelRunner:
    """The classifier of a file, for so many threads that call it at the same time."""
    chosen = backend_named(choose_backend(path, manifest_of(path))[0] if backend == "auto" else backend)
    return chosen.runner()(path, lanes)


def load_generator(path: Path) -> Generator:
    """The noise generator of an ONNX file. It runs once an input, so any backend is fast enough."""
    from ars.engine.runners.onnxruntime import OnnxGenerator

    return OnnxGenerator(path)


def _is_quantised(content: bytes) -> bool:
    """Whether an ONNX file has a node of type QuantizeLinear: the field op_type (4, text) as protobuf writes it."""
    return b"\x22\x0eQuantizeLinear" in content
