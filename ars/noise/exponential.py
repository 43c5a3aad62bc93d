"""Exponential noise with the shape of a cube: in d dimensions the density is proportional to exp(-d max |z_i|) before
scaling. It is certified in the l1 norm.

It is uniform noise on a cube [-s, s]^d of random size: d s has a Gamma distribution of shape d + 1. All values
of a draw have the same s, the *stretch* of the draw. In one dimension this is Laplace noise. In many dimensions s is
close to 1, and the noise close to uniform noise on [-1, 1].
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import gammaincc, gammaln, xlogy

from ars.noise.family import Family
from ars.noise.uniform import UNIFORM

if TYPE_CHECKING:
    import torch

__all__ = ["EXPONENTIAL"]

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class _G:
    """2p - 1 for p >= 1 / 2d, and (1 + log(2dp)) / d - 1 for smaller p.

    A shift by t in direction i changes the logarithm of the density at a rate of at most d, and only where |z_i| is the
    largest: 1 / 2d of the noise lies there on each side. So a set of measure p loses mass at a rate of at most
    d min(p, 1 / 2d). This is tight in one dimension only (docs/families.md).
    """

    dimensions: int

    def __call__(self, p: float) -> float:
        share = 2 * self.dimensions * p
        if share >= 1:
            return 2 * p - 1
        return (1 + math.log(share)) / self.dimensions - 1 if p > 0 else -math.inf


class _OneValue(stats.rv_continuous):  # type: ignore[misc]
    """The distribution of one value of the noise in d dimensions."""

    def _pdf(self, z: Doubles, d: Doubles) -> Doubles:
        return np.asarray(gammaincc(d, d * np.abs(z)) / 2)

    def _sf(self, z: Doubles, d: Doubles) -> Doubles:
        # P(S > z) / 2 - z E(1 / S; S > z) / 2 for the stretch S, if z >= 0.
        size = np.abs(z)
        peak = np.exp(xlogy(d, d * size) - d * size - gammaln(d + 1))
        beyond = ((1 - size) * gammaincc(d, d * size) + peak) / 2
        return np.asarray(np.where(z < 0, 1 - beyond, beyond))

    def _cdf(self, z: Doubles, d: Doubles) -> Doubles:
        return self._sf(-z, d)

    def _isf(self, p: Doubles, d: Doubles) -> Doubles:
        tail = np.minimum(p, 1 - p)
        low, high = np.zeros(np.shape(tail)), np.broadcast_to(1 + 40 / np.sqrt(d) + 800 / d, np.shape(tail))
        for _ in range(80):  # halves the interval of all of them at once
            middle = (low + high) / 2
            beyond = self._sf(middle, d) > tail
            low, high = np.where(beyond, middle, low), np.where(beyond, high, middle)
        return np.asarray(np.copysign(low, 0.5 - p))

    def _ppf(self, p: Doubles, d: Doubles) -> Doubles:
        return -self._isf(p, d)


_one_value = _OneValue(name="exponential noise", shapes="d")


def _torch_noise(shape: tuple[int, ...], generator: "torch.Generator | None", device: "torch.device") -> "torch.Tensor":
    import torch

    d = math.prod(shape[2:])
    # torch.distributions.Gamma draws with this function, but has no generator.
    gamma = torch._standard_gamma(torch.full(shape[:2], d + 1.0, device=device), generator)
    stretch = (gamma / d).reshape(shape[:2] + (1,) * len(shape[2:]))
    return stretch * UNIFORM.torch_noise(shape, generator, device)


@lru_cache
def _in_dimensions(dimensions: int) -> Family:
    return replace(EXPONENTIAL, G=_G(dimensions), distribution=_one_value(dimensions))


# As long as the number of dimensions is unknown, G and the distribution of a value are those in infinitely many, which
# are those of uniform noise. This G is never above the others, so its regions hold in every number of dimensions.
EXPONENTIAL = Family(
    name="exponential",
    code=4,
    norm=1,
    G=UNIFORM.G,
    distribution=UNIFORM.distribution,
    variation=1,
    torch_noise=_torch_noise,
    selftest_sha256=(
        "4b9b22dd3e21ff2a21c063366aaedc5fdff4c193f856bb3042ea6e610353cf88",
        "cac8435eb3c5512d388d9bc3dafd459379dba8331f4508bca551552169c64fa5",
    ),
    stretched=True,
    for_dimensions=_in_dimensions,
)
