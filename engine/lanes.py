"""Batches on their way. A lane is a thread with a buffer of its own: it makes the noise, runs the model and counts the
votes of one batch after another. All three release Python's lock, so lanes use the cores, and no lane waits for Python
as long as the next batch is already submitted."""

import queue
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ars.engine.devices.host import Host
from ars.engine.requests import Request
from ars.engine.runners import Runner

__all__ = ["BatchVotes", "Lanes"]


@dataclass(frozen=True)
class BatchVotes:
    """The votes of a batch, a row of counts for each request, and how long its lane was at work."""

    requests: Sequence[Request]
    counts: NDArray[np.int64]
    seconds: float


class Lanes:
    """Lanes for inputs of one shape. Several runs may use them at once, each with a device of its own."""

    def __init__(self, runner: Runner, shape: tuple[int, ...], batch: int, lanes: int) -> None:
        self.batch, self.lanes = batch, lanes
        self._runner = runner
        self._buffers: queue.SimpleQueue[NDArray[np.float32]] = queue.SimpleQueue()
        for _ in range(lanes):
            self._buffers.put(np.empty((batch, *shape), np.float32))
        self._pool = ThreadPoolExecutor(lanes, thread_name_prefix="lane")

    def submit(self, device: Host, requests: Sequence[Request]) -> "Future[BatchVotes]":
        """Queue a batch, of at most `batch` rows, for the inputs that are loaded in the device."""
        return self._pool.submit(self._work, device, requests)

    def _work(self, device: Host, requests: Sequence[Request]) -> BatchVotes:
        buffer = self._buffers.get()
        start = time.perf_counter()
        try:
            copies = buffer[: sum(request.draws for request in requests)]
            device.fill(copies, requests)
            counts = device.count(self._runner.run(copies), requests)
        finally:
            self._buffers.put(buffer)
        return BatchVotes(requests, counts, time.perf_counter() - start)

    def close(self) -> None:
        """End the threads, once the batches at work are done."""
        self._pool.shutdown(wait=True, cancel_futures=True)
