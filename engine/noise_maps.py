"""Where the noise of an input comes from: one sigma, maps from a file, or a noise generator."""

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ars.data.pixels import file_sha256
from ars.errors import ArgumentError, ModelError
from ars.manifest import Manifest
from ars.noise import NoiseKind, scale_map

__all__ = ["Generated", "Isotropic", "Maps", "NoiseMaps", "open_noise"]

Pair = tuple[NDArray[np.float32], NDArray[np.float32]]


class NoiseMaps(Protocol):
    @property
    def kind(self) -> NoiseKind: ...

    @property
    def settings(self) -> dict[str, str | float]:
        """What decides the noise, for the record."""
        ...

    def at(self, input_id: int, x: NDArray[np.float32]) -> Pair:
        """The mean and the scale of the noise at an input, each of the input's shape."""
        ...


@dataclass(frozen=True)
class Isotropic:
    sigma: float
    kind = NoiseKind.ISOTROPIC

    def __post_init__(self) -> None:
        if not 0 < self.sigma < np.inf:
            raise ArgumentError("sigma", self.sigma, "it must be positive and finite")

    @property
    def settings(self) -> dict[str, str | float]:
        return {"sigma": self.sigma}

    def at(self, input_id: int, x: NDArray[np.float32]) -> Pair:
        return np.zeros_like(x), np.full_like(x, self.sigma)


class Maps:
    """Arrays `mean` and `scale` of an .npz file: one map for all inputs, or along a first axis a map for each input."""

    def __init__(self, path: Path, input_axes: int) -> None:
        self._path = path
        try:
            with np.load(path, allow_pickle=False) as arrays:
                self._mean, self._scale = (np.asarray(arrays[name], np.float32) for name in ("mean", "scale"))
        except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise ModelError(path, f"it cannot be read ({error})", "save arrays named mean and scale") from error
        if self._mean.shape != self._scale.shape:
            found = f"mean has the shape {self._mean.shape} and scale {self._scale.shape}"
            raise ModelError(path, found, "they must have the same shape")
        self._scale = scale_map(self._scale)
        self.kind = NoiseKind.INPUT if self._scale.ndim > input_axes else NoiseKind.DATASET
        self.settings: dict[str, str | float] = {"maps": file_sha256(path)}

    def at(self, input_id: int, x: NDArray[np.float32]) -> Pair:
        if self._scale.shape == x.shape:
            return self._mean, self._scale
        if self._scale.shape[1:] == x.shape and input_id < len(self._scale):
            return self._mean[input_id], self._scale[input_id]
        found = f"its maps have the shape {self._scale.shape} for input {input_id} of shape {x.shape}"
        raise ModelError(self._path, found, "give one map of the input's shape, or one for each input")


class Generated:
    """Maps that a noise generator makes for each input (the paper)."""

    def __init__(self, path: Path, kind: NoiseKind) -> None:
        from ars.engine.runners.onnxruntime import OnnxGenerator

        self.kind = kind
        self.settings: dict[str, str | float] = {"generator": file_sha256(path)}
        self._generator = OnnxGenerator(path)

    def at(self, input_id: int, x: NDArray[np.float32]) -> Pair:
        return self._generator(x)


def open_noise(
    manifest: Manifest | None, folder: Path, input_axes: int, sigma: float | None, noise: Path | None
) -> NoiseMaps:
    """The noise that `sigma` or `noise` asks for, or else the one that the model's manifest names."""
    if sigma is not None and noise is not None:
        raise ArgumentError("sigma", sigma, "give either --sigma or --noise")
    if sigma is not None:
        return Isotropic(sigma)
    if noise is not None and not noise.exists():
        raise ModelError(noise, "there is no such file", "give a noise generator (.onnx) or maps (.npz)")
    if noise is not None and noise.suffix == ".npz":
        return Maps(noise, input_axes)
    if noise is not None:
        return Generated(noise, NoiseKind.INPUT)
    generator = manifest.file("noise", folder) if manifest else None
    if manifest and generator:
        return Generated(generator, manifest.noise.kind)
    if manifest and manifest.noise.kind is NoiseKind.ISOTROPIC:
        return Isotropic(manifest.noise.sigma0)
    raise ArgumentError("sigma", None, "the model has no manifest that says its noise: give --sigma or --noise")
