"""Gaussian noise: standard deviation 1 before scaling, certified in the l2 norm."""

from typing import TYPE_CHECKING

from scipy import stats
from scipy.special import ndtri

from ars.noise.family import Family, round_down

if TYPE_CHECKING:
    import torch

__all__ = ["GAUSSIAN"]


def _region(p_a: float, p_b: float) -> float:
    """K = (Phi^-1(pA) - Phi^-1(pB)) / 2 in the l2 norm (the paper's Theorem 4.1).

    Proof. Let z be standard Gaussian noise, t a shift and r = ||t||_2. By the Neyman-Pearson lemma, of all sets that z
    hits with probability at least pA, the half-space {t . z <= r Phi^-1(pA)} is the one that z + t hits least often,
    with probability Phi(Phi^-1(pA) - r). In the same way, z + t hits a set of probability at most pB with probability
    at most Phi(Phi^-1(pB) + r). Hence the top class keeps the larger probability if
    Phi^-1(pA) - r > Phi^-1(pB) + r, that is, if r < K.
    """
    a, b = float(ndtri(p_a)), float(ndtri(p_b))
    return round_down((a - b) / 2, abs(a) + abs(b))


def _torch_noise(shape: tuple[int, ...], generator: "torch.Generator | None", device: "torch.device") -> "torch.Tensor":
    import torch

    return torch.randn(shape, generator=generator, device=device)


GAUSSIAN = Family(
    name="gaussian",
    code=0,
    norm=2,
    theorem=_region,
    distribution=stats.norm(),
    variation=0.8,  # 2 / sqrt(2 pi) = 0.7979
    torch_noise=_torch_noise,
    selftest_sha256=(
        "dee47244dd08ca393519052c3e5ea3f6d4d6e12b30499a9387d1a16e9e7dbfee",
        "8d5367d543c7136adedef73b30fed2c7cd63e557e5c8aca67db8cefaaedc83d3",
    ),
)
