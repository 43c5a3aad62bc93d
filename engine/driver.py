"""The driver of a cluster: it hands out the inputs of a run, and replaces workers that die or hang.

Workers may come and go at any time: what they held is handed out again. How they are started and reached is the crew's
business; engine/cluster.py has the crew of a Ray cluster, and the tests have one that does what they say.
"""

import time
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from ars.engine.dispatch import Chunk, Dispatch
from ars.engine.records.record import Record
from ars.engine.records.run import RunProgress
from ars.engine.records.work import Work
from ars.engine.worker import Reply
from ars.errors import ArsError, DataError, DependentRows, RunError

__all__ = ["Crew", "Driver", "Node", "WorkerLost"]

OPENING_SECONDS = 600.0
"""A worker that has not opened its model after this time hangs."""
SILENCE_SECONDS, SILENT_BATCHES = 60.0, 10
"""A worker hangs if no batch of it ends for this time, and as many times as long as its first batch took, with the
checks around it."""
LONELY_SECONDS = 600.0
"""A run that has had no worker for so long ends, unless it was told to wait."""
FAILURES = 5
"""A computer on which so many workers died before they were ready gets no more."""
_STAFFING_SECONDS, _LOOK_SECONDS, _WAIT_SECONDS = 1.0, 2.0, 0.5
_LONGEST_STEP = 5.0


@dataclass(frozen=True)
class Node:
    """A computer of the cluster."""

    id: str
    name: str
    cores: int
    gpus: int
    memory: int


class WorkerLost(Exception):
    """A worker died, or its answer is lost. The text says of what, in one line."""


class Crew(Protocol):
    """Where workers come from, and how they are reached. A worker is whatever `hire` returns."""

    def nodes(self) -> list[Node]:
        """The computers that are there now."""
        ...

    def room(self, node: Node) -> int:
        """How many workers fit on a computer."""
        ...

    def hire(self, without: Collection[str]) -> Any:
        """Start a worker on any computer but these. It may wait for a place."""
        ...

    def ask(self, worker: Any, question: str, *given: Any) -> Hashable:
        """Ask a worker: its place, to open the model, to certify inputs, its draws. Returns at once, with a ticket."""
        ...

    def wait(self, tickets: Sequence[Hashable], seconds: float) -> Sequence[Hashable]:
        """The tickets that have been answered; if there are none, after the first answer, or this time."""
        ...

    def answer(self, ticket: Hashable) -> Any:
        """The answer. Raises WorkerLost."""
        ...

    def dismiss(self, worker: Any) -> None:
        """End a worker, whatever it does."""
        ...


@dataclass(frozen=True)
class _Order:
    """A chunk that a worker was sent, and which of its inputs could be read."""

    chunk: Chunk
    sent: frozenset[int]


@dataclass(eq=False)
class _Member:
    """A worker as the driver sees it."""

    worker: Any
    heard: float
    """When it last gave a sign of life."""
    node: str | None = None
    """Where it runs; None as long as there is no place for it."""
    ready: bool = False
    draws: int = 0
    busy: int = 0
    """How many chunks it holds."""
    looking: bool = False
    """Whether it has been asked for its draws and has not answered yet."""


@dataclass(eq=False, kw_only=True)
class Driver:
    """Certifies the inputs of a run. Whatever happens to a worker, its inputs are finished, held by another worker,
    waiting, or given up; only what the consumer of `run` has committed counts after the driver's own death."""

    crew: Crew
    task: Any
    """What `open` is asked with."""
    workers: int | None
    """How many there should be; by default as many as fit."""
    wait: bool
    data_on_workers: bool
    work: Work
    progress: RunProgress
    on_given_up: Callable[[int, str], None]
    dispatch: Dispatch[_Member]
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._members: list[_Member] = []
        self._pending: dict[Hashable, tuple[_Member, _Order | str]] = {}  # what each ticket will be the answer to
        self._refused: dict[str, str] = {}  # why, by node
        self._failures: dict[str | None, int] = {}
        self._silence = SILENCE_SECONDS
        self._now, self._last_step = 0.0, self.clock()
        self._staffed = self._looked = -1e9
        self._accompanied = 0.0
        self._failure: ArsError | None = None

    def run(self) -> Iterator[Record]:
        """The records of the inputs, each as soon as it is known."""
        try:
            while not self.dispatch.finished:
                self._tell_time()
                self._staff()
                self._feed()
                yield from self._collect()
                self._look_after()
            if self._failure is not None:
                raise self._failure
        finally:
            for member in list(self._members):
                self._dismiss(member)

    def _tell_time(self) -> None:
        """Only time in which the driver listens counts. Otherwise all workers would seem silent after it was stopped,
        its computer slept, or a commit took a minute."""
        now = self.clock()
        self._now += min(now - self._last_step, _LONGEST_STEP)
        self._last_step = now

    def _staff(self) -> None:
        """Have as many workers as fit, or as were asked for, but not more than inputs."""
        if self._now - self._staffed < _STAFFING_SECONDS:
            return
        self._staffed = self._now
        nodes = [node for node in self.crew.nodes() if node.id not in self._refused]
        room = sum(map(self.crew.room, nodes))
        most = max(room, 1) if self.wait else room
        wanted = self.workers if self.wait and self.workers else min(self.workers or most, most)
        wanted = min(wanted, self.dispatch.unfinished)
        if self._report() > 0:
            self._accompanied = self._now
        elif not self.wait and ((room == 0 and self._refused) or self._now - self._accompanied > LONELY_SECONDS):
            why = "; ".join(dict.fromkeys(self._refused.values())) or f"none for {LONELY_SECONDS / 60:.0f} minutes"
            raise RunError(f"the cluster has no worker for this run ({why}); the same command resumes the run")
        placeless = [member for member in self._members if member.node is None]
        for member in placeless[: max(0, len(self._members) - wanted)]:
            self._dismiss(member)
        for _ in range(wanted - len(self._members)):
            member = _Member(self.crew.hire(self._refused), self._now)
            self._members.append(member)
            self._ask(member, "place")

    def _report(self) -> int:
        """Say how many workers there are, and return how many are ready."""
        ready = sum(member.ready for member in self._members)
        self.progress.workers(ready, len(self._members) - ready)
        return ready

    def _ask(self, member: _Member, question: str, *given: Any) -> None:
        self._pending[self.crew.ask(member.worker, question, *given)] = member, question

    def _feed(self) -> None:
        for member in [member for member in self._members if member.ready]:
            while (chunk := self.dispatch.take(member)) is not None:
                sent: frozenset[int] = frozenset()
                try:
                    given: list[Any] = list(chunk.inputs if self.data_on_workers else self.work.read(chunk.inputs))
                    if given:
                        ticket = self.crew.ask(member.worker, "certify", given)
                        sent = frozenset(one if isinstance(one, int) else one.idx for one in given)
                except ArsError as error:
                    self._fail(error)
                if not sent:
                    self.dispatch.receive(member, chunk, (), None)
                    continue
                if not member.busy:
                    member.heard = self._now
                member.busy += 1
                self._pending[ticket] = member, _Order(chunk, sent)

    def _collect(self) -> Iterator[Record]:
        """Wait for an answer, and take in all that are there."""
        for ticket in self.crew.wait(list(self._pending), _WAIT_SECONDS):
            if ticket not in self._pending:
                continue  # its worker was lost a moment ago
            member, asked = self._pending.pop(ticket)
            try:
                answer = self.crew.answer(ticket)
            except WorkerLost as error:  # it died, or its reply is lost: which of the two does not matter
                self._lose(member, str(error))
                continue
            if asked == "draws":
                self._note_draws(member, answer)
                continue
            member.heard = self._now
            if isinstance(asked, _Order):
                yield from self._receive(member, asked, answer)
            elif asked == "place":
                self._open(member, answer)
            else:
                self._welcome(member, *answer)

    def _open(self, member: _Member, node: str) -> None:
        member.node = node
        if node in self._refused:
            self._dismiss(member)
        else:
            self._ask(member, "open", self.task)

    def _welcome(self, member: _Member, refusal: str | None, batch_seconds: float) -> None:
        assert member.node is not None
        if refusal is not None:
            self._refuse(member.node, refusal)
            return
        member.ready = True
        for node in (member.node, None):
            self._failures.pop(node, None)
        self._silence = max(self._silence, SILENT_BATCHES * batch_seconds)
        self.dispatch.join(member)
        self._report()

    def _receive(self, member: _Member, order: _Order, reply: Reply) -> Iterator[Record]:
        member.busy -= 1
        if isinstance(reply.error, DependentRows):
            raise reply.error
        records = {record.idx: record for record in reply.records}
        if strange := records.keys() - order.sent:
            raise RunError(f"a worker's reply has input {min(strange)}, which it was not sent; please report this")
        forgotten = order.sent - records.keys() - reply.bad.keys()
        if reply.error is None and forgotten:
            raise RunError(f"a worker's reply does not mention input {min(forgotten)}; please report this")
        for idx in self.dispatch.receive(member, order.chunk, records, reply.seconds):
            yield records[idx]
        for error in (*reply.bad.values(), *([] if reply.error is None else [reply.error])):
            if self.work.on_bad_input is not None and isinstance(error, DataError):
                self.work.on_bad_input(error)
            else:
                self._fail(error)

    def _note_draws(self, member: _Member, draws: int) -> None:
        member.looking = False
        if draws > member.draws:  # an answer alone is no sign that the model is at work
            self.progress.draws(draws - member.draws)
            member.heard, member.draws = self._now, draws

    def _look_after(self) -> None:
        """Ask the workers for signs of life, and replace those that give none."""
        if self._now - self._looked < _LOOK_SECONDS:
            return
        self._looked = self._now
        for member in list(self._members):
            if member not in self._members:
                continue  # it was dismissed with another of its computer
            silent = self._now - member.heard
            if member.ready and member.busy:
                if silent > self._silence:
                    self._lose(member, f"it gave no sign of life for {silent:.0f} s")
                elif not member.looking:
                    member.looking = True
                    self._ask(member, "draws")
            elif not member.ready and member.node is not None and silent > OPENING_SECONDS:
                self._lose(member, f"it did not open the model within {silent:.0f} s")

    def _lose(self, member: _Member, reason: str) -> None:
        """A worker died or hangs. If its computer lives on, what it was doing may be the cause."""
        lives = any(node.id == member.node for node in self.crew.nodes())
        self._dismiss(member, reason, blame=lives)
        if member.ready or (member.node is not None and not lives):
            return
        self._failures[member.node] = failures = self._failures.get(member.node, 0) + 1
        if failures >= FAILURES:
            if member.node is not None:
                self._refuse(member.node, reason)
            elif not any(other.node for other in self._members):
                raise RunError(f"no worker can be started ({reason}); look at the cluster with `ray status`")

    def _dismiss(self, member: _Member, reason: str = "", *, blame: bool = False) -> None:
        """End a worker, or what is left of it. What it holds waits again; a late answer is nobody's."""
        self._members.remove(member)
        self._pending = {ticket: what for ticket, what in self._pending.items() if what[0] is not member}
        with suppress(Exception):  # it may be dead already, or the cluster gone
            self.crew.dismiss(member.worker)
        for idx in self.dispatch.lose(member, reason, blame=blame):
            self.on_given_up(idx, reason)

    def _refuse(self, node: str, reason: str) -> None:
        """Have no more workers on a computer, and dismiss those that are not at work there."""
        name = next((each.name for each in self.crew.nodes() if each.id == node), node[:8])
        self._refused[node] = f"{name}: {reason}"
        self.progress.warn(f"{name} is left out of the run: {reason}")
        for member in [member for member in self._members if member.node == node and not member.ready]:
            self._dismiss(member)

    def _fail(self, error: ArsError) -> None:
        """Hand out nothing more; what is held is finished, and then the first error is raised."""
        self._failure = self._failure or error
        self.dispatch.stop()
