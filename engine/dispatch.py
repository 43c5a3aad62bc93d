"""Which worker certifies which inputs: a table of what waits, what is held and what is finished, and nothing else.

It makes no calls and has no clock, so every order of deaths, losses and late replies can be tried in a test. Since the
noise is a function of seed, input and draw, an input may be certified twice; the second certificate is dropped.
"""

import itertools
import math
from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

__all__ = ["Chunk", "Dispatch"]

Worker = TypeVar("Worker", bound=Hashable)

CHUNKS_HELD = 2
"""Of each worker: one that it works on, and one that waits there, so that it never waits for the driver."""
CHUNK_SECONDS = 2.0
"""How long a worker should work on a chunk. It is also about what is lost with a worker."""
MOST_INPUTS = 64
STRIKES = 3


@dataclass(frozen=True)
class Chunk:
    """Inputs that a worker gets at once."""

    number: int
    inputs: tuple[int, ...]


@dataclass
class Dispatch(Generic[Worker]):
    """Hands out inputs until each is finished, or is given up because three workers died of it."""

    inputs: Iterable[int]
    given_up: dict[int, str] = field(default_factory=dict)
    """Why the inputs that were given up are not certified: how the last worker died."""

    def __post_init__(self) -> None:
        self._waiting = deque(self.inputs)
        # A worker died of a chunk with these. Each goes out alone, with nothing behind it: what kills a worker at once
        # may take the reply to the chunk before it along, which then seems to be the cause.
        self._suspects: deque[int] = deque()
        self._unfinished = set(self._waiting)
        self._held: dict[Worker, deque[Chunk]] = {}
        self._strikes: dict[int, int] = {}
        self._chunks = 0
        self._stopped = False
        self._seconds_per_input: float | None = None

    @property
    def finished(self) -> bool:
        return not self._unfinished

    @property
    def unfinished(self) -> int:
        return len(self._unfinished)

    def join(self, worker: Worker) -> None:
        """The worker is ready."""
        self._held[worker] = deque()

    def take(self, worker: Worker) -> Chunk | None:
        """The next chunk for a worker; None if it has enough, or there is nothing to do."""
        held = self._held[worker]
        if len(held) >= CHUNKS_HELD or any(idx in self._strikes for chunk in held for idx in chunk.inputs):
            return None
        if self._waiting:
            inputs = [self._waiting.popleft() for _ in range(self._chunk_size())]
        elif self._suspects and not held:
            inputs = [self._suspects.popleft()]
        else:
            inputs = [] if held or self._stopped else self._copy_of_last()
        if not inputs:
            return None
        self._chunks += 1
        held.append(Chunk(self._chunks, tuple(inputs)))
        return held[-1]

    def _chunk_size(self) -> int:
        """Small until the pace is known, and again near the end, so that no worker has the last inputs for itself."""
        if self._seconds_per_input is None:
            return 1
        by_time = int(min(MOST_INPUTS, CHUNK_SECONDS / max(self._seconds_per_input, 1e-9)))
        share = math.ceil(len(self._waiting) / (2 * CHUNKS_HELD * len(self._held)))
        return max(1, min(by_time, share))

    def _copy_of_last(self) -> list[int]:
        """An input that another worker holds, for a worker that would be idle: whoever is first counts. Nothing is
        held three times, and no copies are made of an input that a worker died of."""
        holders: dict[int, int] = {}
        for held in self._held.values():
            for chunk in held:
                for idx in chunk.inputs:
                    holders[idx] = holders.get(idx, 0) + 1
        latest = reversed([idx for idx, number in holders.items() if number == 1])
        free = (idx for idx in latest if idx in self._unfinished and idx not in self._strikes)
        return list(itertools.islice(free, 1))

    def receive(self, worker: Worker, chunk: Chunk, finished: Iterable[int], seconds: float | None) -> list[int]:
        """A worker's reply to a chunk, which took it these seconds; None if the chunk was never sent. Returns the
        inputs that were not finished yet. Those of the chunk that are not in the reply cannot be certified, and are
        done."""
        self._held[worker].remove(chunk)
        if seconds is not None:
            pace, known = seconds / len(chunk.inputs), self._seconds_per_input
            self._seconds_per_input = pace if known is None else 0.8 * known + 0.2 * pace
        new = [idx for idx in finished if idx in self._unfinished]
        self._unfinished.difference_update(chunk.inputs)
        return new

    def lose(self, worker: Worker, reason: str, *, blame: bool) -> list[int]:
        """A worker is gone, and its inputs wait again. With `blame`, the inputs that it was working on may be the
        cause, and one that has been there three times is given up. Returns those that were given up now."""
        held = self._held.pop(worker, deque())
        for idx in held[0].inputs if held and blame else ():
            self._strikes[idx] = self._strikes.get(idx, 0) + 1
        lost = []
        for idx in (idx for chunk in held for idx in chunk.inputs if idx in self._unfinished):
            if self._strikes.get(idx, 0) >= STRIKES:
                self._unfinished.remove(idx)
                self.given_up[idx] = reason
                lost.append(idx)
            elif self._is_held(idx):
                continue
            elif self._stopped:
                self._unfinished.remove(idx)
            else:
                (self._suspects if idx in self._strikes else self._waiting).append(idx)
        return lost

    def _is_held(self, idx: int) -> bool:
        return any(idx in chunk.inputs for held in self._held.values() for chunk in held)

    def stop(self) -> None:
        """Hand out nothing more, and wait only for what is held."""
        self._stopped = True
        self._unfinished &= {idx for held in self._held.values() for chunk in held for idx in chunk.inputs}
        self._waiting.clear()
        self._suspects.clear()
