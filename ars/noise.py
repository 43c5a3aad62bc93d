"""The noise of a smoothed classifier: its families, what each of them certifies, and how far the guarantee reaches.

A family turns bounds on two class probabilities, pA from below and pB from above, into a number K such that no
perturbation delta with ||delta / scale|| < K changes the answer, in the family's own norm (the paper's Theorems 4.1,
4.2 and 7.1, and their proofs, which hold for this larger region). The ball of radius min(scale) * K lies inside it.

No float error rounds a K or a radius up: what these functions return is never above the exact value of their formula
(tests/ars/test_noise.py compares with 50 digits).
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from ars.checks import float32_array, real_number, whole_number
from ars.errors import ArgumentError, UnknownName

__all__ = [
    "FAMILIES",
    "GAUSSIAN",
    "LAPLACE",
    "UNIFORM",
    "Family",
    "NoiseKind",
    "Scope",
    "family_named",
    "hits_at",
    "scale_map",
]

# Eight units in the last place: more than all the roundings of one formula below can add up to.
_SLACK = 8 * 2.0**-52


def _gaussian_region(p_a: float, p_b: float) -> float:
    """Theorem 4.1: (Phi^-1(pA) - Phi^-1(pB)) / 2 in the l2 norm."""
    a, b = float(ndtri(p_a)), float(ndtri(p_b))
    return _at_most((a - b) / 2, abs(a) + abs(b))


def _laplace_region(p_a: float, p_b: float) -> float:
    """Theorem 7.1: the larger of log(pA / pB) / 2 and -log(1 - pA + pB) in the l1 norm."""
    if p_b == 0:
        return math.inf
    a, b = math.log(p_a), math.log(p_b)
    total = -math.log((1 - p_a) + p_b)
    return max(_at_most((a - b) / 2, abs(a) + abs(b)), _at_most(total, total))


def _uniform_region(p_a: float, p_b: float) -> float:
    """On [-scale, scale]: pA - pB in the l1 norm, since a shift by delta moves at most
    the share sum(|delta_i| / (2 scale_i)) of the noise out of where it was."""
    return _at_most(p_a - p_b, 1.0)


def _at_most(value: float, size: float) -> float:
    """A float below a value that was computed from numbers of this size, whatever their roundings did."""
    return value - _SLACK * (1 + size) if math.isfinite(value) else value


@dataclass(frozen=True)
class Family:
    """A family of noise distributions: x + mean + scale * z, where z is its standard noise."""

    name: str
    code: int
    """Its number in noise stream 1 (engine/native/stream.h)."""
    norm: float
    """The p of the lp norm that it certifies."""
    _region: Callable[[float, float], float]

    def region(self, p_a: float, p_b: float) -> float:
        """K: the answer is the same for every delta with weighted_norm(delta, scale) < K; 0 where nothing is certain.

        p_a is a lower bound of the top class's probability, p_b an upper bound of every other class's.
        """
        p_a, p_b = _probability("p_a", p_a), _probability("p_b", p_b)
        return max(0.0, self._region(p_a, p_b)) if p_a > p_b else 0.0

    def largest_rate(self, K: float) -> float:
        """The largest share of all other answers together at which the region is at least K; 0 if none is small
        enough."""
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

    def radius_in(self, norm: float, radius: float, dimensions: int) -> float:
        """The radius of the largest ball of another norm (1, 2, inf) inside this family's ball of the given radius."""
        whole_number("dimensions", dimensions, 1, 2**63, "an input has at least one")
        if not real_number("norm", norm, _NORM) >= 1:
            raise ArgumentError("norm", norm, _NORM)
        if norm <= self.norm:
            return radius
        shrink: float = dimensions ** (1 / norm - 1 / self.norm)
        return radius * shrink * (1 - _SLACK)

    def weighted_norm(self, delta: ArrayLike, scale: ArrayLike) -> float:
        """||delta / scale||, never below its exact value: the perturbation as the region measures it."""
        delta, scale = np.asarray(delta, np.float64), np.asarray(scale, np.float64)
        norm = float(np.linalg.norm((delta / scale).ravel(), self.norm))
        return norm * (1 + (delta.size + 4) * 2.0**-52)


def hits_at(rate: float) -> float:
    """The share of the hits where this is the rate of misses; never above it."""
    return math.nextafter(1 - rate, 0.0)


GAUSSIAN = Family("gaussian", 0, 2, _gaussian_region)
LAPLACE = Family("laplace", 1, 1, _laplace_region)
UNIFORM = Family("uniform", 2, 1, _uniform_region)
FAMILIES = {family.name: family for family in (GAUSSIAN, LAPLACE, UNIFORM)}


def family_named(family: "str | Family") -> Family:
    """The family of that name; a family is its own."""
    if isinstance(family, Family):
        return family
    if isinstance(family, str) and family in FAMILIES:
        return FAMILIES[family]
    raise UnknownName("noise family", family, FAMILIES)


_POSITIVE = "every value must be positive and finite"
_NORM = "give 1, 2 or infinity"


def scale_map(scale: ArrayLike) -> NDArray[np.float32]:
    """The scale as the noise uses it, float32; refused where it is not positive and finite."""
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


class Scope(StrEnum):
    """What classifier a certificate speaks of. The theorems hold for noise that does not depend on the input."""

    GLOBAL = "global"
    """The deployed classifier: its noise is the same at every input."""
    FROZEN = "frozen"
    """The classifier whose noise is frozen at this input's maps; elsewhere the generator may give other noise."""


class NoiseKind(StrEnum):
    """Where mean and scale come from."""

    ISOTROPIC = "isotropic"
    """No mean, one scale for every dimension (Cohen et al., 2019)."""
    DATASET = "dataset"
    """One mean map and one scale map for all inputs."""
    INPUT = "input"
    """Maps that the noise generator makes for each input (the paper)."""

    @property
    def scope(self) -> Scope:
        return Scope.FROZEN if self is NoiseKind.INPUT else Scope.GLOBAL

    @classmethod
    def _missing_(cls, value: object) -> "NoiseKind":
        raise UnknownName("noise kind", value, [kind.value for kind in cls])
