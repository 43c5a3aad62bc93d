"""`ars-bench sampler`: the native sampler, by both noise streams, against PyTorch and numpy."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ars.bench.timing import Timings, interleave
from ars.engine.lattice import Lattice, choose_step
from ars.engine.requests import Phase, Request
from ars.engine.samplers.host import HostSampler
from ars.errors import MissingPackage
from ars.noise import GAUSSIAN

if TYPE_CHECKING:
    import torch

__all__ = ["NUMPY", "ONE_THREAD", "STREAM_1", "TORCH", "TWO_THREADS", "time_samplers"]

STREAM_1 = "ars, noise stream 1, 1 thread"
ONE_THREAD = "ars, 1 thread"
TWO_THREADS = "ars, 2 threads"
TORCH = "torch, 1 thread"
NUMPY = "numpy, 1 thread"


def time_samplers(dimensions: int, batch: int, rounds: int) -> Timings:
    """The seconds that each of them takes to make one batch of noisy copies of one input."""
    rng = np.random.default_rng(0)
    x = rng.random(dimensions, dtype=np.float32)
    scale = 0.25 + rng.random(dimensions, dtype=np.float32)
    lattice = Lattice(choose_step(float(scale.min())))
    try:
        import torch

        from ars.train.processes import fixed_threads
    except ImportError as error:
        raise MissingPackage("torch", "train") from error
    with fixed_threads(1):
        candidates = {
            ONE_THREAD: _ars(x, scale, batch, lattice=lattice),
            STREAM_1: _ars(x, scale, batch),
            TORCH: _torch(torch.from_numpy(x), torch.from_numpy(scale), batch),
            NUMPY: _numpy(x, scale, batch),
            TWO_THREADS: _ars(x, scale, batch, lattice=lattice, threads=2),
        }
        return interleave(candidates, rounds)


def _ars(
    x: np.ndarray, scale: np.ndarray, batch: int, *, lattice: Lattice | None = None, threads: int = 1
) -> Callable[[], object]:
    host = HostSampler(1, x.size, GAUSSIAN, seed=0, lattice=lattice, threads=threads)
    host.load(0, x, 0.0, scale)
    out = np.empty((batch, x.size), np.float32)
    return lambda: host.fill(out, [Request(0, 0, Phase.ESTIMATION, 0, batch)])


def _torch(x: "torch.Tensor", scale: "torch.Tensor", batch: int) -> Callable[[], object]:
    """As the scripts of the field do it."""
    import torch

    def noisy_copies() -> object:
        copies = x.repeat((batch, 1))
        noise = torch.randn_like(copies) * scale
        return copies + noise

    return noisy_copies


def _numpy(x: np.ndarray, scale: np.ndarray, batch: int) -> Callable[[], object]:
    """As fast as numpy can do it: in place, in a buffer that exists already."""
    rng = np.random.default_rng(0)
    out = np.empty((batch, x.size), np.float32)

    def noisy_copies() -> None:
        rng.standard_normal(out=out, dtype=np.float32)
        np.multiply(out, scale, out=out)
        np.add(out, x, out=out)

    return noisy_copies
