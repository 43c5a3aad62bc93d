"""`ars-bench sampler`: the native sampler, by both noise streams, against the ways that its users come from."""

from collections.abc import Callable

import numpy as np

from ars.bench.timing import Timings, interleave
from ars.engine.lattice import Lattice, choose_step
from ars.engine.requests import Phase, Request
from ars.engine.samplers.host import HostSampler
from ars.errors import MissingPackage
from ars.noise import GAUSSIAN

__all__ = ["NUMPY", "ONE_THREAD", "STREAM_1", "TORCH", "TWO_THREADS", "time_samplers"]

STREAM_1 = "ars, noise stream 1, 1 thread"
ONE_THREAD = "ars, 1 thread"
TWO_THREADS = "ars, 2 threads"
TORCH = "torch, 1 thread"
NUMPY = "numpy, 1 thread"


def time_samplers(dimensions: int, batch: int, rounds: int) -> Timings:
    """Time how long each way takes to make one batch of noisy copies of one input."""
    rng = np.random.default_rng(0)
    x = rng.random(dimensions, dtype=np.float32)
    scale = 0.25 + rng.random(dimensions, dtype=np.float32)
    lattice = Lattice(choose_step(float(scale.min())))
    try:
        import torch
    except ImportError as error:
        raise MissingPackage("torch", "train") from error
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        candidates = {
            ONE_THREAD: _ars(x, scale, batch, lattice=lattice),
            STREAM_1: _ars(x, scale, batch),
            TORCH: _torch(x, scale, batch),
            NUMPY: _numpy(x, scale, batch),
            TWO_THREADS: _ars(x, scale, batch, lattice=lattice, threads=2),
        }
        return interleave(candidates, rounds)
    finally:
        torch.set_num_threads(threads)


def _ars(
    x: np.ndarray, scale: np.ndarray, batch: int, *, lattice: Lattice | None = None, threads: int = 1
) -> Callable[[], object]:
    host = HostSampler(1, x.size, GAUSSIAN, seed=0, lattice=lattice, threads=threads)
    host.load(0, x, 0.0, scale)
    out = np.empty((batch, x.size), np.float32)
    return lambda: host.fill(out, [Request(0, 0, Phase.ESTIMATION, 0, batch)])


def _torch(x: np.ndarray, scale: np.ndarray, batch: int) -> Callable[[], object]:
    """As the field's scripts have it."""
    import torch

    image, deviation = torch.from_numpy(x), torch.from_numpy(scale)

    def noisy_copies() -> object:
        copies = image.repeat((batch, 1))
        noise = torch.randn_like(copies) * deviation
        return copies + noise

    return noisy_copies


def _numpy(x: np.ndarray, scale: np.ndarray, batch: int) -> Callable[[], object]:
    """As fast as numpy goes: in place, in a buffer that is there already."""
    rng = np.random.default_rng(0)
    out = np.empty((batch, x.size), np.float32)

    def noisy_copies() -> None:
        rng.standard_normal(out=out, dtype=np.float32)
        np.multiply(out, scale, out=out)
        np.add(out, x, out=out)

    return noisy_copies
