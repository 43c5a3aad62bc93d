"""Batches on their way. A lane has a buffer of its own and runs one batch after another: noise, model, votes. Lanes
keeps a thread for each of them. All that takes time releases Python's lock, so lanes run side by side, and none waits
for Python as long as the next batch is already submitted."""

import queue
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ars.engine.requests import Request
from ars.engine.samplers import Sampler

__all__ = ["BatchVotes", "Lane", "Lanes"]


@dataclass(frozen=True)
class BatchVotes:
    """The votes of a batch, a row of counts for each request, and how long its lane was at work."""

    requests: Sequence[Request]
    counts: NDArray[np.int64]
    seconds: float


class Lane(Protocol):
    def votes(self, sampler: Any, requests: Sequence[Request]) -> NDArray[np.int64]:
        """The votes of each request, for the inputs that are loaded in a sampler of this lane's kind."""
        ...

    def run(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        """The model's logits of rows from the host: for checks."""
        ...

    def close(self) -> None:
        """Give back what the lane holds."""
        ...


class Lanes:
    """Lanes for inputs of one shape. Several runs may use them at once, each with a sampler of its own."""

    def __init__(self, lanes: Sequence[Lane], batch: int) -> None:
        self.batch, self.lane_count = batch, len(lanes)
        self._all = lanes
        self._idle: queue.SimpleQueue[Lane] = queue.SimpleQueue()
        for lane in lanes:
            self._idle.put(lane)
        self._pool = ThreadPoolExecutor(self.lane_count, thread_name_prefix="lane")

    def submit(self, sampler: Sampler, requests: Sequence[Request]) -> "Future[BatchVotes]":
        """Queue a batch, of at most `batch` rows, for the inputs that are loaded in the sampler."""
        return self._pool.submit(self._work, sampler, requests)

    def _work(self, sampler: Sampler, requests: Sequence[Request]) -> BatchVotes:
        lane = self._idle.get()
        start = time.perf_counter()
        try:
            counts = lane.votes(sampler, requests)
        finally:
            self._idle.put(lane)
        return BatchVotes(requests, counts, time.perf_counter() - start)

    def run(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        """The model's logits of rows from the host: for checks."""
        lane = self._idle.get()
        try:
            return lane.run(batch)
        finally:
            self._idle.put(lane)

    def close(self) -> None:
        """End the threads, once the batches at work are done, and then the lanes."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        for lane in self._all:
            lane.close()
