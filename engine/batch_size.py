"""`--batch auto`: measures which batch size gives the most draws per second on this machine."""

import os
import resource
import sys
import time
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from ars.engine.lanes import Lanes
from ars.engine.requests import Phase, Request
from ars.engine.samplers import Sampler

__all__ = ["find_best_batch"]

SIZES = (1, 4, 16, 32, 64, 128, 256, 512, 1024)
ENOUGH = 64
"""All sizes up to this one are tried, even after one that was slower: other work on the machine may have slowed it."""
_SECONDS_PER_SIZE = 0.2
_LARGEST_BATCH_BYTES = 2**26
_SHARE_OF_MEMORY = 4
"""No size is tried that would take more than this part of the machine's memory, going by the size before it."""


def find_best_batch(make_lanes: Callable[[int], Lanes], sampler: Sampler, shape: tuple[int, ...]) -> tuple[int, float]:
    """The smallest batch size within 3 % of the best rate, and its draws per second. This takes a second or two."""
    dimensions = int(np.prod(shape))
    sampler.load(0, np.full(shape, 0.5, np.float32), 0.0, 0.25)
    rates: dict[int, float] = {}
    sizes = [size for size in SIZES if size == 1 or 4 * size * dimensions <= _LARGEST_BATCH_BYTES]
    before = _peak_memory()
    for size, larger in pairwise([*sizes, 2 * sizes[-1]]):
        lanes = make_lanes(size)
        try:
            rates[size] = _measure_rate(lanes, sampler)
        finally:
            lanes.close()
        worse = size >= ENOUGH and rates[size] < 0.9 * max(rates.values())
        taken = (_peak_memory() - before) * larger / size
        # or a batch of the next size would take a second, or too much memory
        if worse or 2 * size / rates[size] > 1 or _SHARE_OF_MEMORY * taken > _memory():
            break
    best = next(size for size, rate in rates.items() if rate >= 0.97 * max(rates.values()))
    return best, rates[best]


def _measure_rate(lanes: Lanes, sampler: Sampler) -> float:
    request = [Request(0, 0, Phase.PREDICTION, 0, lanes.batch)]

    def one_round() -> None:
        for future in [lanes.submit(sampler, request) for _ in range(2 * lanes.lane_count)]:
            future.result()

    one_round()
    rounds, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < _SECONDS_PER_SIZE:
        one_round()
        rounds += 1
    return rounds * 2 * lanes.lane_count * lanes.batch / elapsed


def _peak_memory() -> int:
    """The most bytes that this process has had in memory."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _memory() -> int:
    """The bytes of memory that the machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
