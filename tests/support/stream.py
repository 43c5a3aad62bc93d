"""Rows of standard noise from noise stream 1, made by the host sampler."""

import numpy as np

from ars.engine.requests import Phase, Request
from ars.engine.samplers.host import HostSampler
from ars.noise import Family


def standard_noise(
    family: Family,
    *,
    dimensions: int,
    seed: int = 0,
    input_id: int = 0,
    phase: int = Phase.ESTIMATION,
    first_draw: int = 0,
    draws: int = 1,
    **how,
) -> np.ndarray:
    host = HostSampler(1, dimensions, family, seed, **how)
    host.load(0, np.zeros(dimensions), 0, 1)
    out = np.empty((draws, dimensions), np.float32)
    host.fill(out, [Request(0, input_id, phase, first_draw, draws)])
    return out
