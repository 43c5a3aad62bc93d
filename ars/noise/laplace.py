"""Laplace noise: density exp(-|z|) / 2 before scaling, certified in the l1 norm."""

import math
from typing import TYPE_CHECKING

from scipy import stats

from ars.noise.family import Family, round_down

if TYPE_CHECKING:
    import torch

__all__ = ["LAPLACE"]


def _region(p_a: float, p_b: float) -> float:
    """K, the larger of log(pA / pB) / 2 and -log(1 - pA + pB), in the l1 norm (the paper's Theorem 7.1).

    Proof. Let z be standard Laplace noise, t a shift and r = ||t||_1. By the triangle inequality the densities of z and
    z + t differ at most by a factor exp(r), and so do the probabilities with which z and z + t hit any set. Let qA and
    qB be the probabilities of the top class and of another class under z + t.

    First, qA >= exp(-r) pA and qB <= exp(r) pB; so qA > qB if r < log(pA / pB) / 2. Second, applied to the complement
    of the top class, 1 - qA <= exp(r) (1 - pA); so qA - qB >= 1 - exp(r) (1 - pA + pB), which is positive if
    r < -log(1 - pA + pB). Either condition is enough.
    """
    if p_b == 0:
        return math.inf
    a, b = math.log(p_a), math.log(p_b)
    total = -math.log((1 - p_a) + p_b)
    return max(round_down((a - b) / 2, abs(a) + abs(b)), round_down(total, total))


def _torch_noise(shape: tuple[int, ...], generator: "torch.Generator | None", device: "torch.device") -> "torch.Tensor":
    import torch

    uniform = 2 * torch.rand(shape, generator=generator, device=device) - 1
    # `rand` has steps of 2^-24, so 1 - |uniform| can be 0, whose logarithm is infinite: take the smallest step instead.
    return -torch.sign(uniform) * torch.log((1 - uniform.abs()).clamp_min(2.0**-24))


LAPLACE = Family(
    name="laplace",
    code=1,
    norm=1,
    theorem=_region,
    distribution=stats.laplace(),
    variation=1,
    torch_noise=_torch_noise,
    selftest_sha256=(
        "4bd5ac253071cdc381def0ca13aa1a790d9caf9a1a6d71d51f150c90d6dd19ab",
        "ee6c5de3205b75732fc57a152748dd97c75b97fc2b842750c36822505db3741a",
    ),
)
