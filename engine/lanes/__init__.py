"""Lanes. A lane has a buffer of its own and takes one batch after another through noise, model and votes; `Lanes` keeps
a thread for each lane. Everything that takes long releases Python's global lock, so lanes run in parallel, and a lane
whose next batch has been submitted already does not wait for Python."""

import queue
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ars.engine.requests import Request
from ars.engine.row_check import RowCheck
from ars.engine.samplers import Sampler

__all__ = ["BatchVotes", "Lane", "Lanes"]


@dataclass(frozen=True)
class BatchVotes:
    """The votes of a batch, one row of counts for each request, and the seconds that its lane took."""

    requests: Sequence[Request]
    counts: NDArray[np.int64]
    seconds: float


class Lane(Protocol):
    row_cost: int
    """How many rows of a full batch cost as much as a row that is run alone: the size of the batch, if it is fixed."""
    fixed: bool
    """Whether the model takes only batches of one size, on a CPU."""

    def votes(self, sampler: Any, requests: Sequence[Request]) -> NDArray[np.int64]:
        """The votes of each request, for inputs in the slots of the sampler: a HostSampler for a HostLane, and so
        on."""
        ...

    def last_batch(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The noisy copies of the last batch that voted, and their logits, in the host's memory. This is for checks; it
        may be called once after `votes`, before anything is run."""
        ...

    def run(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        """The model's logits for rows in the host's memory. If a batch is filled up, it is with zeros. This is for
        checks."""
        ...

    def close(self) -> None:
        """Release what the lane holds."""
        ...


class Lanes:
    """The lanes of a device, for inputs of one shape. Several runs may share them; each has a sampler of its own."""

    def __init__(self, lanes: Sequence[Lane], batch: int, notes: Sequence[str] = ()) -> None:
        """`notes` are for the user, about how the lanes work."""
        self.batch, self.lane_count, self.notes = batch, len(lanes), notes
        self._all = lanes
        self._row_check: RowCheck | None = None
        self._idle: queue.SimpleQueue[Lane] = queue.SimpleQueue()
        for lane in lanes:
            self._idle.put(lane)
        self._pool = ThreadPoolExecutor(self.lane_count, thread_name_prefix="lane")

    def submit(self, sampler: Sampler, requests: Sequence[Request]) -> "Future[BatchVotes]":
        """Queue a batch of at most `batch` rows, for inputs in the slots of the sampler."""
        return self._pool.submit(self._work, sampler, requests)

    def _work(self, sampler: Sampler, requests: Sequence[Request]) -> BatchVotes:
        lane = self._idle.get()
        start = time.perf_counter()
        try:
            counts = lane.votes(sampler, requests)
            if self._row_check is not None:
                chosen = self._row_check.choose(requests)
                if len(chosen):
                    self._row_check.check(lane.run, *lane.last_batch(), requests, chosen)
        finally:
            self._idle.put(lane)
        return BatchVotes(requests, counts, time.perf_counter() - start)

    def check_rows(self, shape: tuple[int, ...]) -> None:
        """Check that the model treats every row of a batch as if it were alone: once now, and from now on in every
        run. Raises DependentRows, also from a batch's future."""
        check = RowCheck(self.batch, self._all[0].row_cost, fixed=self._all[0].fixed)
        check.check_before_run(self.run, shape)
        self._row_check = check

    def run(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        """The model's logits for rows in the host's memory. This is for checks."""
        lane = self._idle.get()
        try:
            return lane.run(batch)
        finally:
            self._idle.put(lane)

    def close(self) -> None:
        """Wait for the batches that are running, cancel those that are queued, and close the lanes."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        for lane in self._all:
            lane.close()
