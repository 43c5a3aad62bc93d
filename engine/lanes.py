"""Batches on their way. A lane is a thread with a buffer of its own: it makes the noise, runs the model and counts the
votes of one batch after another. All three release Python's lock, so lanes use the cores, and no lane waits for Python
as long as the next batch is already submitted."""

import queue
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType

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
    def __init__(self, device: Host, runner: Runner, shape: tuple[int, ...], batch: int, lanes: int) -> None:
        self.device, self.batch, self.lanes = device, batch, lanes
        self._runner = runner
        self._buffers: queue.SimpleQueue[NDArray[np.float32]] = queue.SimpleQueue()
        for _ in range(lanes):
            self._buffers.put(np.empty((batch, *shape), np.float32))
        self._pool = ThreadPoolExecutor(lanes, thread_name_prefix="lane")

    def submit(self, requests: Sequence[Request]) -> "Future[BatchVotes]":
        """Queue a batch, of at most `batch` rows."""
        return self._pool.submit(self._work, requests)

    def _work(self, requests: Sequence[Request]) -> BatchVotes:
        start = time.perf_counter()
        buffer = self._buffers.get()
        try:
            copies = buffer[: sum(request.draws for request in requests)]
            self.device.fill(copies, requests)
            counts = self.device.count(self._runner.run(copies), requests)
        finally:
            self._buffers.put(buffer)
        return BatchVotes(requests, counts, time.perf_counter() - start)

    def __enter__(self) -> "Lanes":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
