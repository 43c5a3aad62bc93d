"""Radii in other norms than the one that a family certifies.

The region of a certificate is ||delta / s||_p < K, for the scale map s and the norm p of the family. Its radius in the
norm q is that of the largest q-ball around 0 inside this region.

**Theorem.** That radius is K min(s) if q <= p, and otherwise K / ||1/s||_m, where 1/m = 1/p - 1/q.

*Proof.* Let c be the largest value of ||delta / s||_p over all delta with ||delta||_q = 1. By scaling, a ball of radius
r lies inside the region if r c <= K, and some delta with ||delta||_q < r lies outside if r c > K. Hence the radius is
K / c, and it remains to find c.

Suppose that q <= p. A p-norm is at most the q-norm, so ||delta / s||_p <= ||delta / s||_q <= ||delta||_q / min(s). For
the unit vector of a dimension with the smallest scale, all of these are equal. Hence c = 1 / min(s).

Suppose that q > p. By Hoelder's inequality with the exponents q/p and m/p, whose inverses add up to 1,

    sum |delta_i|^p s_i^-p <= (sum |delta_i|^q)^(p/q) (sum s_i^-m)^(p/m),

that is, ||delta / s||_p <= ||delta||_q ||1/s||_m. Both sides are equal if |delta_i|^q is proportional to s_i^-m; for
q = infinity, if all |delta_i| are the same, since then m = p. Hence c = ||1/s||_m. QED.

With the norms 1, 2 and infinity, m is 1 from l1 to l-infinity, and 2 from l1 to l2 and from l2 to l-infinity. So the
smallest scale, ||1/s||_1 and ||1/s||_2 are all that these radii need of a scale map.
"""

import math

import numpy as np
from numpy.typing import NDArray

from ars.checks import real_number
from ars.errors import ArgumentError

__all__ = ["NORMS", "check_norm", "inverse_norms", "norm_name", "radius_in"]

NORMS = (1.0, 2.0, math.inf)

# More than the sum of all rounding errors below, in units of the last place.
_SLACK = 8 * 2.0**-52
_NORM = "give 1, 2 or infinity"


def check_norm(norm: float) -> float:
    """The norm as a float, if it is one of NORMS."""
    if real_number("norm", norm, _NORM) not in NORMS:
        raise ArgumentError("norm", norm, _NORM)
    return float(norm)


def norm_name(norm: float) -> str:
    """The name of a norm: l1, l2 or linf."""
    return f"l{norm:g}"


def inverse_norms(scale: NDArray[np.floating], dimensions: int) -> tuple[float, float]:
    """||1/s||_1 and ||1/s||_2 of a scale map, or of one scale for all dimensions; never below the exact values.

    They are the same on every machine: each operation, the sum included, is rounded once.
    """
    if scale.ndim and scale.size != dimensions:
        raise ArgumentError("scale.size", scale.size, f"there are {dimensions} dimensions")
    inverse = 1 / scale.astype(np.float64)
    if scale.ndim:
        sums = math.fsum(inverse.flat), math.fsum((inverse * inverse).flat)
    else:
        sums = dimensions * float(inverse), dimensions * float(inverse * inverse)
    return sums[0] * (1 + _SLACK), math.sqrt(sums[1]) * (1 + _SLACK)


def radius_in(norm: float, region_norm: float, radius: float, scale_min: float, inverse: tuple[float, float]) -> float:
    """The radius in the norm q of the region ||delta / s||_p < K with p = region_norm, never above its exact value.

    `radius` is K min(s), rounded to the nearest float at worst; `scale_min` is min(s), and `inverse` has ||1/s||_1 and
    ||1/s||_2.
    """
    if norm <= region_norm:
        return radius
    return radius / scale_min / inverse[0 if (region_norm, norm) == (1, math.inf) else 1] * (1 - _SLACK)
