"""Rows of noise from the host sampler, by noise stream 1 or, with `lattice=`, by noise stream 2."""

import numpy as np
from numpy.typing import ArrayLike

from ars.engine.requests import Phase, Request
from ars.engine.samplers.host import HostSampler
from ars.noise import Family


def standard_noise(family: Family, *, dimensions: int, **where_and_how) -> np.ndarray:
    """Noise of mean 0 and scale 1."""
    return noisy_copies(family, np.zeros(dimensions), **where_and_how)


def noisy_copies(
    family: Family,
    x: np.ndarray,
    mean: ArrayLike = 0,
    scale: ArrayLike = 1,
    *,
    seed: int = 0,
    input_id: int = 0,
    phase: int = Phase.ESTIMATION,
    first_draw: int = 0,
    draws: int = 1,
    **how,
) -> np.ndarray:
    host = HostSampler(1, x.size, family, seed, **how)
    host.load(0, x, mean, scale)
    out = np.empty((draws, x.size), np.float32)
    host.fill(out, [Request(0, input_id, phase, first_draw, draws)])
    return out
