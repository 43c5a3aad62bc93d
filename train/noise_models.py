"""The modules that give the noise, x -> (mean, scale), one for each kind of noise in ars.noise."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ars.checks import whole_number
from ars.errors import ArgumentError
from ars.noise import NoiseKind

__all__ = [
    "PAPERS_SIZE",
    "Attenuation",
    "DatasetNoise",
    "GeneratorSize",
    "IsotropicNoise",
    "NoiseGenerator",
    "NoiseShape",
    "make_noise",
]


SMALLEST, LARGEST = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max


@dataclass(frozen=True)
class NoiseShape:
    """The bounds of learned maps: |mean| <= mean_max, and scale between floor and ceiling times sigma0."""

    sigma0: float
    mean_max: float = 1.0
    floor: float = 0.9
    ceiling: float = 4.0

    def __post_init__(self) -> None:
        for name, value in (("sigma", self.sigma0), ("mean-max", self.mean_max), ("scale-floor", self.floor)):
            if not SMALLEST <= value <= LARGEST:
                raise ArgumentError(name, value, "it must be positive and finite, as a float32")
        if not self.floor <= 1:
            raise ArgumentError("scale-floor", self.floor, "it must be at most 1, so that the scale can reach sigma")
        if not 1 < self.ceiling <= LARGEST / self.sigma0:
            raise ArgumentError("scale-ceiling", self.ceiling, "it must exceed 1, and times sigma be a finite float32")

    def mean(self, raw: Tensor) -> Tensor:
        """A scaled sigmoid that is 0 at 0."""
        return self.mean_max * (2 * torch.sigmoid(raw) - 1)

    def scale(self, raw: Tensor) -> Tensor:
        """A scaled sigmoid that is near its lower bound at 0: noise starts small, and grows where it does no harm."""
        span = (self.ceiling - self.floor) * self.sigma0
        return self.floor * self.sigma0 + span * torch.sigmoid(raw - 3.0)

    @property
    def raw_sigma0(self) -> float:
        """The raw value at which `scale` is sigma0, where maps start: pixels with little gradient stay there."""
        # A sigmoid never reaches its bounds. So if the floor is 1, which makes sigma0 the lower bound, maps start just
        # above sigma0.
        share = max((1 - self.floor) / (self.ceiling - self.floor), 1e-4)
        return 3.0 + math.log(share / (1 - share))


@dataclass(frozen=True)
class GeneratorSize:
    """The size of a noise generator; the default is the paper's."""

    layers: int = 4
    """The convolutions of the dense block. The maps are one convolution further from the image."""
    growth: int = 16
    """The channels that each of them adds."""
    stride: int = 1
    """The generator works at this fraction of the image's resolution."""

    def __post_init__(self) -> None:
        for name, value, most in (
            ("layers", self.layers, 64),
            ("growth", self.growth, 1024),
            ("stride", self.stride, 16),
        ):
            whole_number(f"generator-{name}", value, 1, most, f"it must be from 1 to {most}")


PAPERS_SIZE = GeneratorSize()


class IsotropicNoise(nn.Module):
    """Zero mean and one scale (Cohen et al., 2019)."""

    def __init__(self, sigma0: float) -> None:
        super().__init__()
        self.sigma0 = sigma0

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(x), torch.full_like(x, self.sigma0)


class DatasetNoise(nn.Module):
    """One learned mean map and one learned scale map for all inputs."""

    def __init__(self, shape: Sequence[int], bounds: NoiseShape) -> None:
        super().__init__()
        self.bounds = bounds
        self.raw_mean = nn.Parameter(torch.zeros(*shape))
        self.raw_scale = nn.Parameter(torch.full(tuple(shape), bounds.raw_sigma0))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, scale = self.bounds.mean(self.raw_mean), self.bounds.scale(self.raw_scale)
        return mean.expand_as(x), scale.expand_as(x)


class Attenuation(nn.Module):
    """Multiplies each pixel by sigma0 / scale, for the scale map of a data set: the first layer of a classifier that
    then sees noise of one scale everywhere, and the less of a pixel, the larger its scale.

    Without it, the noise of pixels that do not matter spreads through the convolutions to those that do.
    """

    def __init__(self, noise: DatasetNoise) -> None:
        super().__init__()
        self.bounds, self.raw_scale = noise.bounds, noise.raw_scale

    def forward(self, x: Tensor) -> Tensor:
        return x * (self.bounds.sigma0 / self.bounds.scale(self.raw_scale))


class NoiseGenerator(nn.Module):
    """The paper's generator: a dense block of 3x3 convolutions with leaky ReLU, then a branch for each map.

    With a stride, each stride x stride square of pixels becomes a pixel with as many times the channels, and the maps
    are put together again from such pixels.
    """

    def __init__(self, channels: int, bounds: NoiseShape, size: GeneratorSize = PAPERS_SIZE) -> None:
        super().__init__()
        self.bounds, self.stride = bounds, size.stride
        channels *= size.stride**2
        widths = [channels + size.growth * layer for layer in range(size.layers + 1)]
        self.dense = nn.ModuleList(nn.Conv2d(width, size.growth, 3, padding=1) for width in widths[:-1])
        self.mean_branch = nn.Conv2d(widths[-1], channels, 3, padding=1)
        self.scale_branch = nn.Conv2d(widths[-1], channels, 3, padding=1)
        for branch in (self.mean_branch, self.scale_branch):  # every map starts nearly constant
            nn.init.normal_(branch.weight, std=1e-3)
            assert branch.bias is not None
            nn.init.zeros_(branch.bias)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = x if self.stride == 1 else nn.functional.pixel_unshuffle(x, self.stride)
        for convolution in self.dense:
            new = nn.functional.leaky_relu(convolution(features), 0.2)
            # Under autocast `new` has 16 bits; with x in 32 bits, all features would be widened to 32.
            features = torch.cat([features.to(new.dtype), new], dim=1)
        # One convolution for both branches reads the features once.
        branches = (self.mean_branch, self.scale_branch)
        weight, bias = (torch.cat([getattr(one, name) for one in branches]) for name in ("weight", "bias"))
        maps = nn.functional.conv2d(features, weight, bias, padding=1).to(x.dtype).chunk(2, dim=1)
        mean, scale = maps if self.stride == 1 else (nn.functional.pixel_shuffle(one, self.stride) for one in maps)
        return self.bounds.mean(mean), self.bounds.scale(scale)


def make_noise(
    kind: NoiseKind, shape: Sequence[int], bounds: NoiseShape, generator: GeneratorSize = PAPERS_SIZE
) -> nn.Module:
    """The module for a kind of noise, for inputs of this shape."""
    if kind is NoiseKind.ISOTROPIC:
        return IsotropicNoise(bounds.sigma0)
    if kind is NoiseKind.DATASET:
        return DatasetNoise(shape, bounds)
    if any(side % generator.stride for side in shape[1:]):
        problem = f"it must divide the sides of the images, which are {' x '.join(map(str, shape[1:]))}"
        raise ArgumentError("generator-stride", generator.stride, problem)
    return NoiseGenerator(shape[0], bounds, generator)
