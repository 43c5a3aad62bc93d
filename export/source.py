"""What is exported: a model with its noise, and what the user states about a model of their own."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from numpy.typing import NDArray

from ars.data.labels import read_classes
from ars.errors import ArgumentError, ModelError
from ars.export.examples import Examples
from ars.export.graphs import OPSET
from ars.manifest import NoiseSettings
from ars.noise import NoiseKind, family_named, scale_map

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Array", "OwnModel", "Source"]

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Source:
    path: Path
    stem: str
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    noise: NoiseSettings
    classifier: "nn.Module | onnx.ModelProto | Path"
    """A module to convert, a graph to write, or an ONNX file that is taken as it is."""
    generator: "nn.Module | onnx.ModelProto | Path"
    """The same, for the noise."""
    run: Callable[[Array], Array]
    """Computes the logits of the original model, with which every exported file is compared."""
    precision: str = "fp32"
    opset: int = OPSET
    examples: Examples | None = None
    training: dict[str, Any] = field(default_factory=dict)
    """How it was trained, if known."""
    trained: bool = False
    """Whether the path is a model.pt."""
    changes: tuple[str, ...] = ()
    """What is different in the exported file, for an ONNX file that had to be adapted."""

    @property
    def reference(self) -> str:
        """What the exported files are compared with."""
        return self.path.name if isinstance(self.classifier, Path | onnx.ModelProto) else "torch"


@dataclass(frozen=True)
class OwnModel:
    """What the user states about a model that is not from ars-train; None where nothing was stated."""

    arch: str | None = None
    weights: Path | None = None
    shape: tuple[int, ...] | None = None
    classes: tuple[str, ...] | None = None
    pixel_mean: tuple[float, ...] | None = None
    pixel_deviation: tuple[float, ...] | None = None
    logits: str | None = None
    sigma: float | None = None
    family: str | None = None

    def __post_init__(self) -> None:
        if self.classes is not None and len(self.classes) == 1 and Path(self.classes[0]).is_file():
            object.__setattr__(self, "classes", tuple(read_classes(Path(self.classes[0]))))

    def refuse(self, path: Path, *names: str) -> None:
        """Reject options that the model file makes redundant."""
        for name in names:
            if getattr(self, name) is not None:
                option = f"--{name.replace('_', '-')}"
                raise ModelError(
                    path, f"{option} does not apply, because the file itself determines it", f"omit {option}"
                )

    def noise(self) -> NoiseSettings:
        if self.sigma is None:
            raise ArgumentError("sigma", None, "a model of your own needs --sigma, the scale of its noise")
        try:
            scale_map(self.sigma)
        except ArgumentError:
            raise ArgumentError("sigma", self.sigma, "it must be positive and finite") from None
        return NoiseSettings(family_named(self.family or "gaussian").name, NoiseKind.ISOTROPIC, self.sigma)

    def normalisation(self, channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The mean and the deviation of each channel, as the model expects them to be normalised."""
        mean, deviation = self.pixel_mean or (0.0,) * channels, self.pixel_deviation or (1.0,) * channels
        for name, values in (("pixel-mean", mean), ("pixel-deviation", deviation)):
            if len(values) != channels:
                raise ArgumentError(
                    name, ",".join(map(str, values)), f"give one number for each of the {channels} channels"
                )
        if not all(map(math.isfinite, mean)):
            raise ArgumentError("pixel-mean", ",".join(map(str, mean)), "each must be finite")
        if not all(0 < value < math.inf for value in deviation):
            raise ArgumentError("pixel-deviation", ",".join(map(str, deviation)), "each must be positive and finite")
        return mean, deviation

    def pixels(self, shape: tuple[int, ...]) -> tuple[Array, Array] | tuple[None, None]:
        """The same as arrays that fit inputs of this shape; None if nothing was stated."""
        if self.pixel_mean is None and self.pixel_deviation is None:
            return None, None
        sides = (-1, *(1,) * (len(shape) - 1))
        mean, deviation = (np.array(part, np.float32).reshape(sides) for part in self.normalisation(shape[0]))
        return mean, deviation

    def names(self, path: Path, classes: int) -> tuple[str, ...]:
        """The names of the model's classes; a single number in --classes gives their count."""
        count = classes if self.classes is None else self.count(self.classes)
        if count != classes:
            raise ModelError(path, f"it has {classes} classes, but --classes names {count}", "name each class")
        if self.classes is None or len(self.classes) < count:
            return tuple(map(str, range(count)))
        return self.classes

    @staticmethod
    def count(classes: tuple[str, ...]) -> int:
        """The number of classes; a single number in --classes gives it directly."""
        if len(classes) > 1 or not classes[0].isdecimal():
            return len(classes)
        if len(classes[0]) > 6:
            raise ArgumentError("classes", classes[0], "that is too many")
        return int(classes[0])
