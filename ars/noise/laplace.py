"""Laplace noise: density exp(-|z|) / 2 before scaling, certified in the l1 norm."""

import math
from typing import TYPE_CHECKING

from scipy import stats

from ars.noise.family import Family

if TYPE_CHECKING:
    import torch

__all__ = ["LAPLACE"]


def _G(p: float) -> float:
    """log(2p): the logarithm of the density changes at a rate of at most 1, so a set of measure p loses mass at a rate
    of at most p. The region contains that of the paper's Theorem 7.1, and is larger unless pB = 1 - pA."""
    return math.log(p) + math.log(2) if p > 0 else -math.inf


def _torch_noise(shape: tuple[int, ...], generator: "torch.Generator | None", device: "torch.device") -> "torch.Tensor":
    import torch

    uniform = 2 * torch.rand(shape, generator=generator, device=device) - 1
    # `rand` has steps of 2^-24, so 1 - |uniform| can be 0, whose logarithm is infinite: take the smallest step instead.
    return -torch.sign(uniform) * torch.log((1 - uniform.abs()).clamp_min(2.0**-24))


LAPLACE = Family(
    name="laplace",
    code=1,
    norm=1,
    G=_G,
    distribution=stats.laplace(),
    variation=1,
    torch_noise=_torch_noise,
    selftest_sha256=(
        "4bd5ac253071cdc381def0ca13aa1a790d9caf9a1a6d71d51f150c90d6dd19ab",
        "ee6c5de3205b75732fc57a152748dd97c75b97fc2b842750c36822505db3741a",
    ),
)
