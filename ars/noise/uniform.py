"""Uniform noise: on [-1, 1] before scaling, certified in the l1 norm."""

from typing import TYPE_CHECKING

from scipy import stats

from ars.noise.family import Family, round_down

if TYPE_CHECKING:
    import torch

__all__ = ["UNIFORM"]


def _region(p_a: float, p_b: float) -> float:
    """K = pA - pB in the l1 norm.

    Proof. Let z be uniform on the cube [-1, 1]^d, t a shift and r = ||t||_1. The densities of z and z + t are equal
    where both cubes overlap, and z lies outside the shifted cube only if one of its coordinates does, which has
    probability at most |t_i| / 2 for coordinate i and so at most r / 2 in all. Hence the probabilities with which z and
    z + t hit any set differ at most by r / 2: the top class keeps at least pA - r / 2, and another class gets at most
    pB + r / 2. The first is larger if r < pA - pB.
    """
    return round_down(p_a - p_b, 1.0)


def _torch_noise(shape: tuple[int, ...], generator: "torch.Generator | None", device: "torch.device") -> "torch.Tensor":
    import torch

    return 2 * torch.rand(shape, generator=generator, device=device) - 1


UNIFORM = Family(
    name="uniform",
    code=2,
    norm=1,
    theorem=_region,
    distribution=stats.uniform(-1, 2),
    variation=1,
    torch_noise=_torch_noise,
    selftest_sha256=(
        "7ad400ac2fa700d6d064602eb2a053d0e497705a44f0e0b9d867c1d11fe7fe6c",
        "23f13aae94996cac0db4bb531e3902bf991be0dea91c71dedc3e9746edfd4940",
    ),
)
