"""Gaussian noise: standard deviation 1 before scaling, certified in the l2 norm."""

from typing import TYPE_CHECKING

from scipy import stats
from scipy.special import ndtri

from ars.noise.family import Family

if TYPE_CHECKING:
    import torch

__all__ = ["GAUSSIAN"]


def _G(p: float) -> float:
    """Phi^-1(p): a half-space of measure p loses mass at the rate of the normal density at its boundary, and no set of
    measure p loses more. The region is that of the paper's Theorem 4.1."""
    return float(ndtri(p))


def _torch_noise(shape: tuple[int, ...], generator: "torch.Generator | None", device: "torch.device") -> "torch.Tensor":
    import torch

    return torch.randn(shape, generator=generator, device=device)


GAUSSIAN = Family(
    name="gaussian",
    code=0,
    norm=2,
    G=_G,
    distribution=stats.norm(),
    variation=0.8,  # 2 / sqrt(2 pi) = 0.7979
    torch_noise=_torch_noise,
    selftest_sha256=(
        "dee47244dd08ca393519052c3e5ea3f6d4d6e12b30499a9387d1a16e9e7dbfee",
        "8d5367d543c7136adedef73b30fed2c7cd63e557e5c8aca67db8cefaaedc83d3",
    ),
)
