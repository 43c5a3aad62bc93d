"""Pareto noise: density (a / 2) (1 + |z|)^(-a-1) with a = 4 before scaling, certified in the l1 norm."""

import cmath
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from ars.noise.family import Family

if TYPE_CHECKING:
    import torch

__all__ = ["PARETO"]

_ROOTS = [cmath.exp(2j * math.pi * k / 5) for k in (1, 2)]
"""Two of the fifth roots of 1. Their conjugates are the other two, beside 1 itself."""


def _G(p: float) -> float:
    """Minus the sum of v^(4 + 5k) / (4 + 5k) over k = 0, 1, 2, ..., where v = (1 - 2p)^(1/4).

    No set of measure p loses mass at a higher rate than {0 < z_1 < c}, whose boundary at 0 is where the density is
    largest: 2 (1 - v^5). docs/families.md has the proof. The sum is that of log(1 - r v) times r / 5, over all r with
    r^5 = 1. Since 1 - v^4 = 2p, no digit is lost where v is close to 1.
    """
    if p == 0:
        return -math.inf
    v = (1 - 2 * p) ** 0.25
    total = math.log(p) + math.log(2) - math.log1p(v) - math.log1p(v * v)  # log(1 - v)
    for root in _ROOTS:
        total += 2 * (root * cmath.log(1 - root * v)).real
    return min(0.0, total / 5)


class _Pareto(stats.rv_continuous):  # type: ignore[misc]  # scipy has no annotations
    def _pdf(self, x: Any) -> Any:
        return 2 * (1 + np.abs(x)) ** -5.0

    def _cdf(self, x: Any) -> Any:
        return self._sf(-x)

    def _sf(self, x: Any) -> Any:
        tail = (1 + np.abs(x)) ** -4.0 / 2
        return np.where(x > 0, tail, 1 - tail)

    def _ppf(self, q: Any) -> Any:
        return -self._isf(q)

    def _isf(self, q: Any) -> Any:
        size = (2 * np.minimum(q, 1 - q)) ** -0.25 - 1
        return np.where(q < 0.5, size, -size)


def _torch_noise(shape: tuple[int, ...], generator: "torch.Generator | None", device: "torch.device") -> "torch.Tensor":
    import torch

    uniform = 2 * torch.rand(shape, generator=generator, device=device) - 1
    # `rand` has steps of 2^-24, so 1 - |uniform| can be 0, and its power infinite: take the smallest step instead.
    return torch.sign(uniform) * ((1 - uniform.abs()).clamp_min(2.0**-24) ** -0.25 - 1)


PARETO = Family(
    name="pareto",
    code=3,
    norm=1,
    G=_G,
    distribution=_Pareto()(),
    variation=4,
    torch_noise=_torch_noise,
    selftest_sha256=(
        "a3907c7a0f32ea04ccc9367a92f8db90895d16e95cc24ebb168a0fa6be41441c",
        "fd2ae138f6e664ca8e3a15ddf442e1a0c1bdd34cd293d2046d28e2f70f3d46a4",
    ),
)
