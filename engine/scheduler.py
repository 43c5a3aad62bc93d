"""The scheduler runs the procedures of many inputs at once and packs their draws into full batches.

The input that asks for the fewest draws goes first, and among equals the oldest one: it will soon free its slot, or ask
for more. New inputs are admitted when the next batch would not be full without them. A batch that is not full runs only
if nothing can fill it and a lane is idle; at the end of a run, the remaining draws are shared out among the idle lanes.
No draw is made that no procedure asked for.
"""

import math
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ars.engine.algorithms import Procedure
from ars.engine.lanes import BatchVotes, Lanes
from ars.engine.requests import Phase, Request, name_input
from ars.engine.samplers import Sampler
from ars.errors import ArsError, RunError

__all__ = ["Finished", "Job", "run"]

Result = TypeVar("Result")


@dataclass(frozen=True)
class Job(Generic[Result]):
    """An input with its noise maps, and the procedure to run on it."""

    input_id: int
    x: NDArray[np.float32]
    mean: NDArray[np.float32]
    scale: NDArray[np.float32]
    procedure: Procedure[Result]


@dataclass(frozen=True)
class Finished(Generic[Result]):
    """The result of one input, and what it cost."""

    input_id: int
    result: Result
    draws: int
    seconds: float
    """The input's share of the run's wall-clock time: for each of its batches, the time of the batch times the input's
    share of the rows, divided by the number of lanes."""
    label: int | None = None
    """The input's class, if it was given with the input."""


def run(
    lanes: Lanes,
    sampler: Sampler,
    jobs: Iterator[Job[Result]],
    on_draws: Callable[[int], None] = lambda draws: None,
) -> Iterator[Finished[Result]]:
    """The results of all jobs, each as soon as it is known. No other run may use the sampler.

    If a job cannot be made, or its procedure fails, no further job is taken. The inputs that were begun are finished,
    so that their work is not lost, and then the error is raised.
    """
    scheduler = _Scheduler(lanes, sampler, jobs)
    try:
        while scheduler.submit_batches():
            for votes in scheduler.collect():
                on_draws(int(votes.counts.sum()))
                yield from scheduler.hand_out(votes)
    finally:
        scheduler.drain()
    if scheduler.failure is not None:
        raise scheduler.failure


@dataclass
class _Active(Generic[Result]):
    """An input in progress, and what its procedure has asked for: the draws that are still to be submitted, and those
    whose votes have not come back yet."""

    job: Job[Result]
    slot: int
    phase: Phase = Phase.SELECTION
    to_submit: int = 0
    to_come: int = 0
    votes: NDArray[np.int64] | None = None
    next_draw: dict[Phase, int] = field(default_factory=dict)
    seconds: float = 0.0

    def advance(self) -> None:
        """Send the procedure the votes that it asked for, and note what it asks for next. When the procedure is done,
        this raises StopIteration with its result."""
        try:
            wish = self.job.procedure.send(self.votes)  # type: ignore[arg-type]  # None starts a generator
        except RunError as error:
            raise RunError(f"{name_input(self.job.input_id)}: {error}") from error
        self.phase, self.to_submit, self.to_come, self.votes = wish.phase, wish.number, wish.number, None

    def take(self, most: int) -> Request:
        draws = min(most, self.to_submit)
        first = self.next_draw.get(self.phase, 0)
        self.next_draw[self.phase] = first + draws
        self.to_submit -= draws
        return Request(self.slot, self.job.input_id, self.phase, first, draws)

    def receive(self, counts: NDArray[np.int64]) -> None:
        self.votes = counts.copy() if self.votes is None else self.votes + counts
        self.to_come -= int(counts.sum())


class _Scheduler(Generic[Result]):
    def __init__(self, lanes: Lanes, sampler: Sampler, jobs: Iterator[Job[Result]]) -> None:
        self.failure: ArsError | None = None
        self._lanes, self._sampler = lanes, sampler
        self._jobs: Iterator[Job[Result]] | None = jobs
        self._free = list(range(sampler.slots))
        self._active: dict[int, _Active[Result]] = {}  # by slot, the oldest first
        self._flying: set[Future[BatchVotes]] = set()

    def submit_batches(self) -> bool:
        """Submit batches until there are two for each lane, one running and one waiting. Returns whether there are
        any."""
        while len(self._flying) < 2 * self._lanes.lane_count:
            waiting, idle = self._admit(), self._lanes.lane_count - len(self._flying)
            if waiting == 0 or (waiting < self._lanes.batch and idle <= 0):
                break
            share = waiting if self._jobs else math.ceil(waiting / max(1, idle))
            self._flying.add(self._lanes.submit(self._sampler, self._pack(min(self._lanes.batch, share))))
        return bool(self._flying)

    def collect(self) -> Iterator[BatchVotes]:
        """Wait until a batch is done, and yield the votes of every batch that is."""
        done, self._flying = wait(self._flying, return_when=FIRST_COMPLETED)
        for future in done:
            yield future.result()

    def drain(self) -> None:
        """Cancel the batches that are queued, and wait for those that run: they use the sampler, which the caller will
        close."""
        wait([future for future in self._flying if not future.cancel()])

    def hand_out(self, votes: BatchVotes) -> Iterator[Finished[Result]]:
        """Give each input its votes, and advance the inputs that have received all that they asked for."""
        rows = int(votes.counts.sum())
        for request, counts in zip(votes.requests, votes.counts, strict=True):
            active = self._active[request.slot]
            if int(counts.sum()) != request.draws:
                raise RunError(f"{name_input(request.input_id)}: {request.draws} draws gave {counts.sum()} votes")
            active.receive(counts)
            active.seconds += votes.seconds * request.draws / rows / self._lanes.lane_count
            if active.to_come == 0:
                yield from self._advance(active)

    def _advance(self, active: _Active[Result]) -> Iterator[Finished[Result]]:
        try:
            active.advance()
            return
        except StopIteration as stop:
            yield Finished(active.job.input_id, stop.value, sum(active.next_draw.values()), active.seconds)
        except RunError as error:
            self._fail(error)
        del self._active[active.slot]
        self._free.append(active.slot)

    def _admit(self) -> int:
        """Admit inputs until a batch can be filled. Returns the number of draws that wait to be submitted."""
        waiting = sum(active.to_submit for active in self._active.values())
        while waiting < self._lanes.batch and self._jobs is not None and self._free:
            try:
                job = next(self._jobs, None)
                if job is None:
                    self._jobs = None
                    break
                self._sampler.load(self._free[-1], job.x, job.mean, job.scale)
            except ArsError as error:
                self._fail(error)
                break
            active = _Active(job, self._free.pop())
            self._active[active.slot] = active
            active.advance()
            waiting += active.to_submit
        return waiting

    def _fail(self, error: ArsError) -> None:
        """Stop taking jobs, and remember the error if it is the first."""
        self._jobs = None
        self.failure = self.failure or error

    def _pack(self, room: int) -> list[Request]:
        requests = []
        for active in sorted(self._active.values(), key=lambda active: active.to_submit):
            if active.to_submit and room:
                requests.append(active.take(room))
                room -= requests[-1].draws
        return requests
