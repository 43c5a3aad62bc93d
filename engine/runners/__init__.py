"""Runners: models that a backend opened. Each backend has one file here, named after it; engine/backends.py lists them.

This module has what every backend shares. A backend only has to load a model that was read and hashed, and run batches;
the checks of the model, of its shapes and of its outputs are made here, once.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from ars.data import image_channels
from ars.errors import ArsError, ModelError, OutOfMemory, RunError, one_line
from ars.external_data import HashedModel
from ars.manifest import Manifest, Profile

if TYPE_CHECKING:
    from ars.engine.gpu import Gpu

__all__ = [
    "CpuRunner",
    "Floats",
    "Generator",
    "GeneratorRunner",
    "GpuRunner",
    "Port",
    "Runner",
    "gpu_error",
    "is_quantised",
]

Floats = NDArray[np.floating]


@dataclass(frozen=True)
class Port:
    """An input or an output of a model."""

    name: str
    dtype: str
    """As numpy calls it."""
    shape: tuple[int | None, ...] | None
    """None is an axis of any length; without a known number of axes, the whole shape is None."""


_NO_MEMORY = re.compile("out of memory|failed to allocate memory|cudaErrorMemoryAllocation|bad_?alloc", re.IGNORECASE)


def gpu_error(problem: str, reason: str) -> RunError:
    """The error for a library that failed on a GPU. It is OutOfMemory, after which a smaller batch is tried, only if
    an allocation failed: other reasons may speak of memory too."""
    if _NO_MEMORY.search(reason):
        return OutOfMemory(f"{problem} ({reason}); try a smaller --batch")
    return RunError(f"{problem} ({reason}); `ars-engine selftest` checks the GPU and its libraries")


class Generator(Protocol):
    """A noise generator, ready to run."""

    sha256: str

    def __call__(self, x: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The mean and the scale of the noise at one input."""
        ...


class _OpenedFile(ABC):
    """A model that was loaded from the very bytes that were hashed, external data included."""

    name: str
    """The backend's name."""
    version: str
    """The library's version."""
    lane_count = 1
    """The number of threads that may run it at the same time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.load()

    def load(self) -> None:
        """Read and hash the file, and open what was read."""
        path = self.path
        if not path.exists():
            raise ModelError(path, "there is no such file", "give the path of a model")
        model = HashedModel(path)
        self.sha256, self.external = model.hash.sha256, model.hash.external
        self._quantised = is_quantised(model.content)
        try:
            self._inputs, self._outputs = self.open(model)
        except ArsError:
            model.close()
            raise
        except Exception as error:  # the libraries' errors have no other base class in common
            model.close()
            fix = "check it with onnx.checker, or export it again"
            raise ModelError(path, f"{self.name} cannot load it ({one_line(error)})", fix) from error

    @abstractmethod
    def open(self, model: HashedModel) -> tuple[Sequence[Port], Sequence[Port]]:
        """Load the model, and return its inputs and its outputs.

        A library that reads ONNX gets `model.onnx_source()`, and any other library gets `model.content`. Copies of
        external files are removed afterwards, unless the runner keeps `model`.
        """


class Runner(_OpenedFile):
    """A classifier that a backend opened, on the CPU or on a GPU.

    Its model has one input, the images, and its first output is the logits, of shape [batch, classes].
    """

    own_manifest: Manifest | None = None
    """The facts of a manifest, if the model's file holds them itself."""
    own_generator: Generator | None = None
    """The noise generator, if the model's file holds it."""
    profile: Profile | None = None
    """The batch sizes that the model accepts; None if it accepts any."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        if len(self._inputs) != 1:
            names = ", ".join(port.name for port in self._inputs)
            fix = "export a classifier whose only input is the image"
            raise ModelError(path, f"it has {len(self._inputs)} inputs ({names})", fix)
        image, logits = self._inputs[0], self._outputs[0]
        if not logits.dtype.startswith("float"):
            others = ", ".join(port.name for port in self._outputs[1:])
            problem = f"its first output, {logits.name}, is of {logits.dtype}, and the others are {others or 'none'}"
            raise ModelError(path, problem, self._adapt("--logits NAME says which has the logits"))
        if image.dtype not in ("float32", "float16"):
            problem = f"its input is of {image.dtype}"
            raise ModelError(path, problem, self._adapt("it makes a copy that takes pixels from 0 to 1"))
        self.image, self.logits = image, logits
        self.precision = "int8" if self._quantised else "fp16" if image.dtype == "float16" else None
        """The precision of the arithmetic, if the file shows it."""
        if image.shape is None or len(image.shape) < 2:
            raise ModelError(path, f"its input has the shape {image.shape}", "export it with a batch axis first")
        self.fixed_batch, *sides = image.shape
        """The only batch size that the model accepts, if it was exported with a fixed one."""
        self.shape = tuple(sides)
        """The shape of an input; None is an axis of any length."""
        classes = logits.shape[1] if logits.shape is not None and len(logits.shape) == 2 else None
        self.classes = self.count_classes() if classes is None else classes
        if self.classes < 2:
            fix = self._adapt("it makes two classes of a single logit")
            raise ModelError(path, f"it has {self.classes} class", fix)

    def _adapt(self, why: str) -> str:
        """The advice to adapt an ONNX file as it came."""
        if self.path.suffix != ".onnx":
            return "export it again, with a float32 input and logits of batch x classes"
        return f"run `ars-export {self.path} --sigma SIGMA --calibration DATA`: {why}"

    @classmethod
    def convert(cls, onnx: Path, folder: Path, batch: int) -> Path | None:
        """A file that this backend reads, made in the folder from a small ONNX file, for `ars-engine selftest`.

        `batch` is the largest batch that the check runs. A backend that cannot convert ONNX files returns None.
        """
        return None

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Raise a ModelError if the model does not accept inputs of this shape."""
        same_axes = len(shape) == len(self.shape)
        if not same_axes or any(want not in (None, has) for want, has in zip(self.shape, shape, strict=True)):
            want = " x ".join(str(side or "any") for side in self.shape)
            has = " x ".join(map(str, shape)) or "single numbers"
            found = f"it takes inputs of {want}, and the data has {has}"
            raise ModelError(self.path, found, self._fit(shape))

    def _fit(self, shape: tuple[int, ...]) -> str:
        """What to do about inputs of another shape."""
        if len(self.shape) == len(shape) == 3:
            if self.shape[2] in (1, 3) and self.shape[0] not in (1, 3) and shape[0] in (1, 3):
                return self._adapt("the model has its channels last, and it makes a copy that has them first")
            if image_channels(self.shape) == image_channels(shape) is not None:
                return "bring images to that size (image files: --resize and --crop of the commands), or use other data"
            if image_channels(self.shape) is not None:
                return "give images with as many channels, as channels x height x width"
        if self.shape == (1, *shape):
            return "give each image its channel axis, like x[np.newaxis]"
        return "use data of that shape"

    def count_classes(self) -> int:
        """The number of classes, for a model whose output has no fixed shape."""
        raise ModelError(self.path, "it does not say its number of classes", "export it with a fixed one")


class GpuRunner(Runner):
    """A classifier on one GPU. It reads its batch in the GPU's memory, where the noise was made, and leaves its logits
    there."""

    capturable = False
    """Whether a batch that is queued may become part of a CUDA graph of ours, once the first one has run."""

    def __init__(self, path: Path, gpu: "Gpu") -> None:
        self.gpu = gpu
        super().__init__(path)
        if self.profile is None and self.fixed_batch is not None:
            self.profile = Profile(self.fixed_batch, self.fixed_batch, self.fixed_batch)

    @abstractmethod
    def bind(
        self, stream: int, shape: tuple[int, ...], images: int, logits: int
    ) -> AbstractContextManager[Callable[[], None]]:
        """Prepare to run batches of one shape, batch axis included, between two addresses of the GPU's memory.

        The result is a context manager. Inside it, a call of the function that it gives queues one batch on the stream
        with that handle; when it ends, it releases what it took on the GPU. The GPU must be current (`Gpu.current`).
        """

    def close(self) -> None:
        """Release what the runner holds on the GPU."""
        return


class CpuRunner(Runner):
    """A classifier on the CPU."""

    single_row_cost = 1
    """About how many rows of a full batch take the time of a row that is run alone between full batches."""
    advice = "try a smaller batch, or export the model again"
    """What to do if it fails on a batch."""

    def __init__(self, path: Path, lane_count: int = 1) -> None:
        self.lane_count = lane_count
        super().__init__(path)

    @abstractmethod
    def infer(self, batch: Floats) -> Floats:
        """The first output for a batch, in the types of the model. Several threads may call it at once."""

    def run(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        """The logits of each row. If the model has a fixed batch size, the rows are run in batches of that size, the
        last of them padded with zeros."""
        size = self.fixed_batch or len(batch)
        if len(batch) == size:
            logits = self._infer(batch)
        else:
            padded = np.zeros((-(-len(batch) // size) * size, *batch.shape[1:]), np.float32)
            padded[: len(batch)] = batch
            pieces = [self._infer(padded[first : first + size]) for first in range(0, len(padded), size)]
            logits = np.concatenate(pieces)[: len(batch)]
        if logits.shape != (len(batch), self.classes):
            found = f"its first output has the shape {logits.shape} for {len(batch)} inputs"
            raise ModelError(self.path, found, f"it must be logits of batch x {self.classes} classes")
        return logits

    def _infer(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        try:
            logits = self.infer(batch.astype(self.image.dtype, copy=False))
        except ArsError:
            raise
        except Exception as error:  # the libraries' errors have no other base class in common
            shape = " x ".join(map(str, batch.shape))
            failed = f"{self.path}: {self.name} failed on a batch of {shape} ({one_line(error)})"
            raise RunError(f"{failed}; {self.advice}") from error
        return np.ascontiguousarray(logits, np.float32)

    def count_classes(self) -> int:
        """Runs the model once and counts the columns of its output."""
        if None in self.shape:
            problem = "neither its input nor its number of classes has a fixed size"
            raise ModelError(self.path, problem, self._adapt("--shape 3,224,224 fixes its input"))
        logits = self._infer(np.zeros((self.fixed_batch or 1, *(side or 1 for side in self.shape)), np.float32))
        if logits.ndim != 2:
            found = f"its first output has the shape {logits.shape} for a batch of {len(logits)}"
            raise ModelError(self.path, found, self._adapt("--logits NAME says which output has the logits"))
        return int(logits.shape[1])


class GeneratorRunner(_OpenedFile):
    """A noise generator that a backend opened: from x [batch, ...] to `mean` and `scale` of the same shape."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        names = {port.name for port in self._outputs}
        types = [port.dtype for port in self._inputs]
        # A library may remove an input that no output depends on, so a generator without inputs is accepted.
        if types not in ([], ["float32"], ["float16"]) or not {"mean", "scale"} <= names:
            fix = "a noise generator has one float input, and the outputs mean and scale"
            raise ModelError(path, f"it has the outputs {', '.join(sorted(names))}", fix)

    @abstractmethod
    def infer(self, x: Floats) -> tuple[Floats, Floats]:
        """The outputs `mean` and `scale` for a batch of one."""

    def __call__(self, x: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        given = x[np.newaxis].astype(self._inputs[0].dtype if self._inputs else np.float32, copy=False)
        try:
            mean, scale = self.infer(given)
        except Exception as error:  # the libraries' errors have no other base class in common
            problem = f"it gives no maps for an input of shape {x.shape} ({one_line(error)})"
            raise ModelError(self.path, problem, "use the classifier's own generator") from error
        if not mean.shape == scale.shape == given.shape:
            found = f"its maps have the shapes {mean.shape} and {scale.shape} for inputs of {given.shape}"
            raise ModelError(self.path, found, "mean and scale must have the shape of x, batch axis included")
        return mean[0].astype(np.float32), scale[0].astype(np.float32)


def is_quantised(content: bytes) -> bool:
    """Whether an ONNX file has a QuantizeLinear node. The bytes are the node's field op_type (field 4, a string of 14
    characters) as protobuf encodes it."""
    return b"\x22\x0eQuantizeLinear" in content
