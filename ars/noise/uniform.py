"""Uniform noise: on [-1, 1] before scaling, certified in the l1 norm."""

from typing import TYPE_CHECKING

from scipy import stats

from ars.noise.family import Family

if TYPE_CHECKING:
    import torch

__all__ = ["UNIFORM"]


def _G(p: float) -> float:
    """2p - 1: a shift of the cube [-1, 1]^d by t along an axis takes t / 2 of its mass out of it, so every set loses
    mass at a rate of at most 1/2. The region is K = pA - pB."""
    return 2 * p - 1


def _torch_noise(shape: tuple[int, ...], generator: "torch.Generator | None", device: "torch.device") -> "torch.Tensor":
    import torch

    return 2 * torch.rand(shape, generator=generator, device=device) - 1


UNIFORM = Family(
    name="uniform",
    code=2,
    norm=1,
    G=_G,
    distribution=stats.uniform(-1, 2),
    variation=1,
    torch_noise=_torch_noise,
    selftest_sha256=(
        "7ad400ac2fa700d6d064602eb2a053d0e497705a44f0e0b9d867c1d11fe7fe6c",
        "23f13aae94996cac0db4bb531e3902bf991be0dea91c71dedc3e9746edfd4940",
    ),
)
