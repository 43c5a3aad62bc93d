"""Where the noise of an input comes from: one sigma, maps from a file, or a noise generator."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ars.checks import float32_array, real_number
from ars.data.arrays import Npz
from ars.data.pixels import file_sha256
from ars.engine.backends import load_generator
from ars.engine.requests import name_input
from ars.engine.runners import Generator, Runner
from ars.errors import ArgumentError, ModelError
from ars.manifest import Manifest
from ars.noise import NoiseKind, scale_map

__all__ = ["Constant", "Generated", "Isotropic", "Maps", "NoiseMaps", "NoiseSource", "open_generator", "open_noise"]

Pair = tuple[NDArray[np.float32], NDArray[np.float32]]


@dataclass(frozen=True, kw_only=True)
class NoiseSource:
    """What the noise maps of a run are made from, for the record: one of these."""

    sigma: float | None = None
    maps: str | None = None
    """The SHA-256 of a file of maps."""
    generator: str | None = None
    """The SHA-256 of a noise generator."""
    constant_maps: str | None = None
    """The SHA-256 of the maps of a generator that makes the same maps for all inputs."""

    @property
    def file(self) -> str | None:
        """The SHA-256 of the file that the maps come from, if they come from one."""
        return self.maps or self.generator


class NoiseMaps(Protocol):
    @property
    def kind(self) -> NoiseKind: ...

    @property
    def source(self) -> NoiseSource: ...

    @property
    def scale_hint(self) -> float | None:
        """The smallest scale, if it is known before the first input: the step of a lattice follows from it."""
        ...

    def at(self, input_id: int, x: NDArray[np.float32]) -> Pair:
        """The mean and the scale of the noise at an input, each of the input's shape."""
        ...


@dataclass(frozen=True)
class Isotropic:
    sigma: float
    kind = NoiseKind.ISOTROPIC

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "sigma", real_number("sigma", self.sigma, ""))
            scale_map(self.sigma)
        except ArgumentError:
            raise ArgumentError("sigma", self.sigma, "it must be positive and finite") from None

    @property
    def source(self) -> NoiseSource:
        return NoiseSource(sigma=self.sigma)

    @property
    def scale_hint(self) -> float:
        return self.sigma

    def at(self, input_id: int, x: NDArray[np.float32]) -> Pair:
        return np.zeros_like(x), np.full_like(x, self.sigma)


class Maps:
    """Arrays `mean` and `scale` of an .npz file: one map for all inputs, or along a first axis a map for each input."""

    def __init__(self, path: Path, input_axes: int) -> None:
        self._path = path
        arrays = Npz(path, ModelError)
        headers = arrays.headers
        if not {"mean", "scale"} <= headers.keys():
            raise ModelError(path, f"it has the arrays {', '.join(headers)}", "it must have mean and scale")
        if headers["mean"].shape != headers["scale"].shape:
            found = f"mean has the shape {headers['mean'].shape} and scale {headers['scale'].shape}"
            raise ModelError(path, found, "they must have the same shape")
        self._mean, self._scale = _checked(path, arrays.read("mean"), arrays.read("scale"))
        self.kind = NoiseKind.INPUT if self._scale.ndim > input_axes else NoiseKind.DATASET
        self.source = NoiseSource(maps=file_sha256(path))
        self.scale_hint = float(self._scale.min())

    def at(self, input_id: int, x: NDArray[np.float32]) -> Pair:
        if self._scale.shape == x.shape:
            return self._mean, self._scale
        if self._scale.shape[1:] == x.shape and input_id < len(self._scale):
            return self._mean[input_id], self._scale[input_id]
        found = f"its maps have the shape {self._scale.shape} for {name_input(input_id)} of shape {x.shape}"
        raise ModelError(self._path, found, "give one map of the input's shape, or one for each input")


class Generated:
    """Maps that a noise generator makes for each input (the paper)."""

    kind = NoiseKind.INPUT

    def __init__(self, path: Path, generator: Generator, sigma0: float | None) -> None:
        self._path, self._generator = path, generator
        self.source = NoiseSource(generator=generator.sha256)
        self.scale_hint = sigma0

    def at(self, input_id: int, x: NDArray[np.float32]) -> Pair:
        return _checked(f"{self._path}, at {name_input(input_id)}", *self._generator(x))


class Constant:
    """Maps that a noise generator makes for the whole data set. The scope of the guarantee depends on their being the
    same at every real input, which no number of inputs can show. So the generator is asked once, at the zero input,
    and never again."""

    def __init__(self, path: Path, generator: Generator, kind: NoiseKind, shape: tuple[int, ...]) -> None:
        self._path, self.kind = path, kind
        self._mean, self._scale = _checked(path, *generator(np.zeros(shape, np.float32)))
        maps = hashlib.sha256(self._mean.tobytes() + self._scale.tobytes()).hexdigest()
        self.source = NoiseSource(generator=generator.sha256, constant_maps=maps)
        self.scale_hint = float(self._scale.min())

    def at(self, input_id: int, x: NDArray[np.float32]) -> Pair:
        if x.shape != self._scale.shape:
            found = f"its maps have the shape {self._scale.shape}, and {name_input(input_id)} has {x.shape}"
            raise ModelError(self._path, found, "use the data that the model was made for")
        return self._mean, self._scale


def open_generator(
    path: Path, generator: Generator, kind: NoiseKind, shape: tuple[int, ...], sigma0: float | None = None
) -> NoiseMaps:
    """The maps of a generator of that kind, for inputs of that shape."""
    return Generated(path, generator, sigma0) if kind is NoiseKind.INPUT else Constant(path, generator, kind, shape)


def _checked(path: Path | str, mean: NDArray[np.generic], scale: NDArray[np.generic]) -> Pair:
    """The maps in float32, or a refusal that names their file."""
    try:
        pair = float32_array("mean", mean), scale_map(scale)
    except ArgumentError as error:
        raise ModelError(path, f"its {error.argument} has the value {error.value}", "every scale is positive") from None
    if not np.isfinite(pair[0]).all():
        raise ModelError(path, "its mean has a value that is not finite", "every value must be finite")
    return pair


def open_noise(manifest: Manifest | None, runner: Runner, sigma: float | None, noise: Path | None) -> NoiseMaps:
    """The noise that `sigma` or `noise` asks for, or else the model's own, from its manifest or its file."""
    if sigma is not None and noise is not None:
        raise ArgumentError("sigma", sigma, "give either sigma or noise")
    if sigma is not None:
        return Isotropic(sigma)
    if noise is not None and not noise.exists():
        raise ModelError(noise, "there is no such file", "give a noise generator (.onnx) or maps (.npz)")
    if noise is not None and noise.suffix == ".npz":
        return Maps(noise, len(runner.shape))
    if noise is not None:
        return Generated(noise, load_generator(noise), None)
    stated = manifest.noise if manifest else None
    if manifest and stated and runner.own_generator:
        return open_generator(runner.path, runner.own_generator, stated.kind, manifest.shape, stated.sigma0)
    generator = manifest.file("noise", runner.path.parent) if manifest else None
    if manifest and stated and generator:
        return open_generator(generator, load_generator(generator), stated.kind, manifest.shape, stated.sigma0)
    if stated and stated.kind is NoiseKind.ISOTROPIC:
        return Isotropic(stated.sigma0)
    fix = "the model has no manifest that says its noise: give sigma or noise (--sigma or --noise)"
    raise ArgumentError("sigma", None, fix)
