"""Lanes on the CPU. Each has a buffer in ordinary memory and uses one core."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ars.engine.lanes import Lanes
from ars.engine.requests import Request
from ars.engine.samplers.host import HostSampler

__all__ = ["HostLane", "host_lanes"]

Infer = Callable[[NDArray[np.float32]], NDArray[np.float32]]
"""Computes the logits of each row of a batch. Several threads may call it at once."""


class HostLane:
    """A buffer of its own for noisy copies, and a runner that it shares with the other lanes."""

    def __init__(self, infer: Infer, shape: tuple[int, ...], batch: int, row_cost: int, fixed: bool) -> None:
        self._infer, self.row_cost, self.fixed = infer, row_cost, fixed
        self._buffer = np.empty((batch, *shape), np.float32)
        self._last: tuple[NDArray[np.float32], NDArray[np.float32]] = self._buffer[:0], np.empty((0, 0), np.float32)

    def votes(self, sampler: HostSampler, requests: Sequence[Request]) -> NDArray[np.int64]:
        copies = self._buffer[: sum(request.draws for request in requests)]
        sampler.fill(copies, requests)
        logits = self._infer(copies)
        self._last = copies, logits
        return sampler.count(logits, requests)

    def last_batch(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return self._last

    def run(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        return self._infer(batch)

    def close(self) -> None:
        return


def host_lanes(
    infer: Infer, shape: tuple[int, ...], batch: int, lane_count: int, row_cost: int = 1, *, fixed: bool = False
) -> Lanes:
    """As many lanes as asked for, each of which uses one core. `row_cost` and `fixed` are what a Lane says of them."""
    return Lanes([HostLane(infer, shape, batch, row_cost, fixed) for _ in range(lane_count)], batch)
