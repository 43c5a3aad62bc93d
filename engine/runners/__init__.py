"""Models from files: what every backend checks, once. A backend only opens the bytes of a file and runs batches."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ars.errors import ArsError, ModelError, RunError, one_line
from ars.manifest import Manifest, Profile

__all__ = ["CpuRunner", "Generator", "GeneratorRunner", "GpuRunner", "Port", "Runner", "is_quantised"]

Floats = NDArray[np.floating]


@dataclass(frozen=True)
class Port:
    """An input or an output of a model. None is a side that may be any, or a shape that is not known."""

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None


class Generator(Protocol):
    """A noise generator, ready to run."""

    sha256: str

    def __call__(self, x: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The mean and the scale of the noise at one input."""
        ...


class _OpenedFile(ABC):
    """A model that was loaded from the very bytes that were hashed, so weights in other files ("external data") do not
    load."""

    name: str
    version: str

    def __init__(self, path: Path, lane_count: int = 1) -> None:
        """`lane_count` is how many threads may run it at the same time and be fast."""
        self.path = path
        if not path.exists():
            raise ModelError(path, "there is no such file", "give the path of a model")
        content = path.read_bytes()
        self.sha256 = hashlib.sha256(content).hexdigest()
        self._quantised = is_quantised(content)
        try:
            self._inputs, self._outputs = self.open(content, lane_count)
        except ArsError:
            raise
        except Exception as error:  # the errors of the libraries have no other class in common
            fix = "check it with onnx.checker, or export it again, with external_data=False"
            raise ModelError(path, f"{self.name} cannot load it ({one_line(error)})", fix) from error

    @abstractmethod
    def open(self, content: bytes, lane_count: int) -> tuple[Sequence[Port], Sequence[Port]]:
        """Get ready to run the model of these bytes; its inputs and its outputs."""


class Runner(_OpenedFile):
    """A classifier from a file: one image input, and logits [n, classes] as its first output."""

    own_manifest: Manifest | None = None
    """What the file says of the model, where it needs no manifest beside it."""
    own_generator: Generator | None = None
    """The noise generator, where the file holds it too."""
    profile: Profile | None = None
    """The batch sizes that it takes; None is any."""

    def __init__(self, path: Path, lane_count: int = 1) -> None:
        super().__init__(path, lane_count)
        if len(self._inputs) != 1:
            names = ", ".join(port.name for port in self._inputs)
            fix = "export a classifier whose only input is the image"
            raise ModelError(path, f"it has {len(self._inputs)} inputs ({names})", fix)
        image, logits = self._inputs[0], self._outputs[0]
        if not logits.dtype.startswith("float"):
            raise ModelError(path, f"its first output is of {logits.dtype}", "it must be logits of batch x classes")
        if image.dtype not in ("float32", "float16"):
            raise ModelError(path, f"its input is of {image.dtype}", "export it with a float32 or float16 input")
        self.image, self.logits = image, logits
        self.precision = "int8" if self._quantised else "fp16" if image.dtype == "float16" else None
        """The precision of its arithmetic, where the file shows it."""
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


class GpuRunner(Runner):
    """A classifier that takes batches of one GPU's memory, where the noise is made, and leaves its logits there."""

    @abstractmethod
    def bind(
        self, stream: int, shape: tuple[int, ...], images: int, logits: int
    ) -> AbstractContextManager[Callable[[], None]]:
        """What queues one batch of that shape, batch axis included, on the stream of that handle: from the address of
        the images to that of the logits.

        For use while the GPU is current. What it takes there ends with it.
        """

    @abstractmethod
    def close(self) -> None:
        """Give back what the model takes on the GPU."""


class CpuRunner(Runner):
    """A classifier that takes batches of the host's memory: a backend runs them."""

    @abstractmethod
    def infer(self, batch: Floats) -> Floats:
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
            logits = self.infer(batch.astype(self.image.dtype, copy=False))
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


class GeneratorRunner(_OpenedFile):
    """A noise generator from a file: x [n, ...] to `mean` and `scale` of the same shape."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        names = {port.name for port in self._outputs}
        types = [port.dtype for port in self._inputs]
        # A library may leave out an input that decides nothing.
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
        except Exception as error:  # as above
            problem = f"it gives no maps for an input of shape {x.shape} ({one_line(error)})"
            raise ModelError(self.path, problem, "use the classifier's own generator") from error
        if not mean.shape == scale.shape == given.shape:
            found = f"its maps have the shapes {mean.shape} and {scale.shape} for inputs of {given.shape}"
            raise ModelError(self.path, found, "mean and scale must have the shape of x, batch axis included")
        return mean[0].astype(np.float32), scale[0].astype(np.float32)


def is_quantised(content: bytes) -> bool:
    """Whether an ONNX file has a node of type QuantizeLinear: the field op_type (4, text) as protobuf writes it."""
    return b"\x22\x0eQuantizeLinear" in content
