"""The type of a noise family, and what follows from its function G: regions, radii, and rates of misses.

Let z be the standard noise of a family, and let a classifier see x + mean + scale * z. Moving the input by delta then
has the same effect as shifting z by delta / scale. Let pA be a lower bound on the probability of the top class, pB an
upper bound on that of every other class, and K = (G(pA) - G(pB)) / 2. Then no shift of z with norm below K changes the
answer: no delta with ||delta / scale|| < K does. This region contains the ball of radius min(scale) * K.
docs/families.md has the theorem, its proof, and the G of each family.

No rounding makes a K or a radius too large: what these functions return is never above the exact value of their formula
(tests/ars/test_noise.py compares with 50 digits).
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ars.checks import float32_array, real_number, whole_number
from ars.errors import ArgumentError

if TYPE_CHECKING:
    import torch

__all__ = ["Family", "hits_at", "scale_map"]

# Eight units in the last place: more than the sum of all rounding errors in a region or a radius.
_SLACK = 8 * 2.0**-52
_POSITIVE = "every value must be positive and finite"


@dataclass(frozen=True)
class Family:
    """A family of noise distributions: noisy copies are x + mean + scale * z, where z is its standard noise."""

    name: str
    code: int
    """Its number in the noise stream (the list in engine/native/distributions.h)."""
    norm: float
    """The p of the lp norm in which it certifies."""
    G: Callable[[float], float]
    """G(p) for 0 <= p <= 1/2, where it is 0 or negative, and perhaps minus infinity at p = 0; for larger p,
    G(p) = -G(1 - p). Its error is at most 2^-50 (1 + |G(p)|)."""
    distribution: Any = field(compare=False)
    """The distribution of one value of standard noise, as a frozen distribution of scipy.stats."""
    variation: float
    """The total variation of that density (twice its maximum if it has one peak), rounded up. It bounds how often noise
    stream 2 is close to the boundary between two cells (Lemma 4 of docs/soundness.md)."""
    torch_noise: "Callable[[tuple[int, ...], torch.Generator | None, torch.device], torch.Tensor]"
    """Standard noise of a shape, for training: the axes of draws and images, and then those of an input."""
    selftest_sha256: tuple[str, str]
    """The SHA-256 of the noisy copies that `ars-engine selftest` makes, by noise stream 1 and by noise stream 2."""
    stretched: bool = False
    """Whether all values of a draw are multiplied by one random factor (engine/native/stream.h)."""
    for_dimensions: "Callable[[int], Family] | None" = field(default=None, compare=False)
    """This family in a number of dimensions; None if that number makes no difference to G and `distribution`."""

    def in_dimensions(self, dimensions: int) -> "Family":
        """This family for inputs of that many dimensions, which may be able to certify more."""
        whole_number("dimensions", dimensions, 1, 2**63, "an input has at least one")
        return self.for_dimensions(dimensions) if self.for_dimensions else self

    def region(self, p_a: float, p_b: float) -> float:
        """K: the answer is the same for every delta with weighted_norm(delta, scale) < K; 0 if nothing is certified.

        p_a is a lower bound on the top class's probability, p_b an upper bound on every other class's.
        """
        p_a, p_b = _probability("p_a", p_a), _probability("p_b", p_b)
        if p_a <= p_b:
            return 0.0
        a, b = self._G(p_a), self._G(p_b)
        K = (a - b) / 2
        return max(0.0, K - _SLACK * (1 + abs(a) + abs(b))) if math.isfinite(K) else K

    def _G(self, p: float) -> float:
        """G of any probability. No digit is lost: 1 - p is exact for p >= 1/2, and a small p is used as it is."""
        return self.G(p) if p <= 0.5 else -self.G(1 - p)

    def largest_rate(self, K: float) -> float:
        """The largest rate of misses at which the region is still at least K, with all misses on one class; 0 if even
        the smallest rates are too large."""
        low, high = 0.0, 0.5
        while low < (middle := (low + high) / 2) < high:
            p_a = hits_at(middle)
            low, high = (middle, high) if self.region(p_a, 1 - p_a) >= K else (low, middle)
        return low

    def radius(self, p_a: float, p_b: float, scale_min: float) -> float:
        """The radius of the ball, in this family's norm, within which the answer is the same."""
        if not 0 < real_number("scale_min", scale_min, _POSITIVE) < math.inf:
            raise ArgumentError("scale_min", scale_min, _POSITIVE)
        K = self.region(p_a, p_b)
        return K if math.isinf(K) else min(K * scale_min, sys.float_info.max)

    def weighted_norm(self, delta: ArrayLike, scale: ArrayLike) -> float:
        """||delta / scale||, the size of a perturbation in units of the region; never below its exact value."""
        delta, scale = np.asarray(delta, np.float64), np.asarray(scale, np.float64)
        norm = float(np.linalg.norm((delta / scale).ravel(), self.norm))
        return norm * (1 + (delta.size + 4) * 2.0**-52)


def hits_at(rate: float) -> float:
    """The rate of hits when `rate` is that of misses, rounded down."""
    return math.nextafter(1 - rate, 0.0)


def scale_map(scale: ArrayLike) -> NDArray[np.float32]:
    """The scale as the noise uses it, in float32; an error unless every value is positive and finite."""
    values = float32_array("scale", scale)
    bad = values[~(np.isfinite(values) & (values > 0))]
    if bad.size:
        raise ArgumentError("scale", bad.flat[0], _POSITIVE)
    if not values.size:
        raise ArgumentError("scale", "an empty array", _POSITIVE)
    return values


def _probability(name: str, value: float) -> float:
    p = real_number(name, value, "a probability lies in [0, 1]")
    if not 0 <= p <= 1:
        raise ArgumentError(name, p, "a probability lies in [0, 1]")
    return p
