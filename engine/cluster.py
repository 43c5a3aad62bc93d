"""Certification on a Ray cluster. This is the only module that knows Ray.

The process that runs `certify_run` is the driver. It starts one actor, a worker, for each GPU or for every k cores,
sends it inputs in small chunks, and alone writes the store. Workers may die, hang, come and go at any time: what they
held is handed out again. Nothing outlives the driver; the same command resumes the run from the store.
"""

import os
import socket
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from ars.checks import whole_number
from ars.engine.devices import CPU
from ars.engine.dispatch import Chunk, Dispatch
from ars.engine.records.record import Record
from ars.engine.records.run import RunProgress
from ars.engine.records.work import Work
from ars.engine.worker import Reply, Task, Worker, make_task
from ars.errors import ArgumentError, ArsError, DataError, DependentRows, InputError, MissingPackage, RunError, one_line

__all__ = ["Cluster", "Node"]

CONNECT_SECONDS = 5.0
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


@dataclass(frozen=True)
class Node:
    """A computer of the cluster."""

    id: str
    name: str
    cores: int
    gpus: int
    memory: int

    def room(self, cpus: int, gpu: bool) -> int:
        """How many workers fit."""
        return min(self.cores // cpus, self.gpus) if gpu else self.cores // cpus


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise MissingPackage("ray", "cluster") from error
    return ray


class Cluster:
    """A Ray cluster to certify on, as a context manager, to be passed to `ars.certify_run`.

    `address` is what ray.init takes: auto, local (a cluster of this computer alone), host:6379, or ray://host:10001. A
    worker has one GPU if the classifier is on one, and otherwise `worker_cpus` cores. There are `workers` of them, by
    default as many as fit. If `wait` is true, the run waits for computers that are not there yet, which an autoscaler
    may add. With `data_on_workers`, each worker reads the data itself, from the path that the driver reads.
    """

    def __init__(
        self,
        address: str = "auto",
        *,
        workers: int | None = None,
        worker_cpus: int = 1,
        wait: bool = False,
        data_on_workers: bool = False,
    ) -> None:
        self.address = address
        self._workers = None if workers is None else whole_number("workers", workers, 1, 10**6, "at least 1")
        self._cpus = whole_number("worker_cpus", worker_cpus, 1, 1024, "at least 1")
        self._wait, self._data_on_workers = wait, data_on_workers
        self._ray: Any = None
        self._owns = False
        self.make_worker: Callable[[Task], Worker] = Worker
        """What makes a worker on its computer. Benchmarks and tests have workers of their own."""
        self.cores: int | None = None
        """The cores that a local cluster claims to have; by default those of this computer. Workers that sleep need
        none."""

    def __enter__(self) -> "Cluster":
        self._ray = _import_ray()
        if self._ray.is_initialized():  # by the program that this is part of
            return self
        local = self.address == "local"
        own: dict[str, Any] = {"include_dashboard": False, "num_cpus": self.cores} if local else {}
        _check_reachable(self.address)
        try:
            self._ray.init(address=self.address, log_to_driver=False, logging_level="ERROR", **own)
        except (Exception, SystemExit) as error:  # of Ray, which has no base class for what goes wrong here
            problem = f"there is no Ray cluster to connect to at {self.address} ({one_line(error)})"
            raise InputError(f"{problem}; start one with `ray start --head`, or use --cluster local") from error
        self._owns = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._owns:
            self._owns = False
            self._ray.shutdown()

    def threads(self, device: str | None) -> int | None:
        """The threads of a worker on that device: the driver measures the batch size with as many."""
        return self._cpus if device in (None, CPU) else None

    def nodes(self) -> list[Node]:
        """The computers that are there now."""
        return [
            Node(
                node["NodeID"],
                node["NodeManagerHostname"],
                int(node["Resources"].get("CPU", 0)),
                int(node["Resources"].get("GPU", 0)),
                int(node["Resources"].get("memory", 0)),
            )
            for node in self._ray.nodes()
            if node["Alive"]
        ]

    def certify(
        self, work: Work, ids: Sequence[int], progress: RunProgress, on_given_up: Callable[[int, str], None]
    ) -> Generator[Record, None, None]:
        """The records of these inputs, as `Workforce.certify` says."""
        if self._ray is None:
            raise ArgumentError("cluster", self.address, "open it first: `with ars.Cluster(...) as cluster:`")
        devices = [device.name for device in work.classifier.devices]
        gpu = devices != [CPU]
        if len(devices) > 1:
            raise ArgumentError("device", ",".join(devices), "each worker of a cluster has one GPU; give cuda:0")
        self._check_room(gpu)
        task = make_task(
            work,
            device="cuda:0" if gpu else CPU,
            threads=None if gpu else self._cpus,
            data_on_workers=self._data_on_workers,
        )
        work.classifier.close()  # it has decided the batch, and the workers need the memory
        yield from _Driver(
            ray=self._ray,
            find_nodes=self.nodes,
            actor=_make_actor(self._ray),
            task=self._ray.put(self._ray.cloudpickle.dumps((self.make_worker, task))),
            cpus=self._cpus,
            gpu=gpu,
            workers=self._workers,
            wait=self._wait,
            data_on_workers=self._data_on_workers,
            work=work,
            progress=progress,
            on_given_up=on_given_up,
            dispatch=Dispatch(ids),
        ).run()

    def _check_room(self, gpu: bool) -> None:
        nodes = self.nodes()
        room = sum(node.room(self._cpus, gpu) for node in nodes)
        if self._wait or room >= (self._workers or 1):
            return
        has = f"{len(nodes)} nodes with {sum(node.cores for node in nodes)} cores and {sum(n.gpus for n in nodes)} GPUs"
        needs = "a GPU" if gpu else f"{self._cpus} cores"
        requirement = f"the cluster has {has}, room for {room} workers with {needs} each; ask for fewer, or --wait"
        raise ArgumentError("workers", self._workers or 1, requirement)


def _check_reachable(address: str) -> None:
    """Refuse an address at which nobody listens. Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdecimal()):
        return  # auto, local, or something that Ray has to judge
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        problem = f"there is no Ray cluster at {address} ({one_line(error)})"
        raise InputError(f"{problem}; start one with `ray start --head`, or use --cluster local") from error


def _describe(error: object) -> str:
    """What a worker died of, in one line."""
    cause = getattr(error, "cause", None)  # of an exception in the worker; its text is the whole traceback
    if isinstance(cause, Exception):
        return f"{type(cause).__name__}: {one_line(cause)}"
    text = str(error)
    return one_line(text[max(0, text.find("The actor is dead because")) :])


def _make_actor(ray: Any) -> Any:
    """The actor of a worker. It needs ARS only from `open` on, so a computer that lacks ARS can say so."""

    class Actor:
        def place(self) -> str:
            os.environ.pop("OMP_NUM_THREADS", None)  # Ray sets it; the task says how many threads there are
            return str(ray.get_runtime_context().get_node_id())

        def open(self, content: bytes) -> tuple[str | None, float]:
            """Why it is not fit for work, if it is not, and the seconds that its first batch took."""
            try:
                worker, task = ray.cloudpickle.loads(content)
                self._worker = worker(task)
            except Exception as error:
                return f"it has no ARS like the driver's ({type(error).__name__}: {error})", 0.0
            opening = self._worker.open()
            return opening.refusal, opening.batch_seconds

        def certify(self, inputs: Sequence[Any]) -> Reply:
            reply: Reply = self._worker.certify(inputs)
            return reply

        # A thread of its own answers, also while inputs are being certified.
        @ray.method(concurrency_group="signs")  # type: ignore[untyped-decorator]
        def draws(self) -> int:
            return int(self._worker.draws())

    return ray.remote(concurrency_groups={"signs": 1})(Actor)


@dataclass(frozen=True)
class _Order:
    """A chunk that a worker was sent, and which of its inputs could be read."""

    chunk: Chunk
    sent: frozenset[int]


@dataclass(eq=False)
class _Member:
    """A worker as the driver sees it."""

    actor: Any
    heard: float
    """When it last gave a sign of life."""
    node: str | None = None
    """Where it runs; None as long as Ray has found no place for it."""
    ready: bool = False
    draws: int = 0
    busy: int = 0
    """How many chunks it holds."""
    looking: bool = False
    """Whether it has been asked for its draws and has not answered yet."""


@dataclass(eq=False, kw_only=True)
class _Driver:
    """Certifies the inputs of a run. Whatever happens to a worker, its inputs are finished, held by another worker,
    waiting, or given up; only what the consumer of `run` has committed counts after the driver's own death."""

    ray: Any
    find_nodes: Callable[[], list[Node]]
    actor: Any
    task: Any
    cpus: int
    gpu: bool
    workers: int | None
    wait: bool
    data_on_workers: bool
    work: Work
    progress: RunProgress
    on_given_up: Callable[[int, str], None]
    dispatch: Dispatch[_Member]

    def __post_init__(self) -> None:
        self._members: list[_Member] = []
        self._pending: dict[Any, tuple[_Member, _Order | str]] = {}  # what each reference will be the answer to
        self._refused: dict[str, str] = {}  # why, by node
        self._failures: dict[str | None, int] = {}
        self._silence = SILENCE_SECONDS
        self._staffed = self._accompanied = self._looked = -1e9
        self._failure: ArsError | None = None

    def run(self) -> Iterator[Record]:
        self._accompanied = time.monotonic()
        try:
            while not self.dispatch.finished:
                self._staff()
                self._feed()
                yield from self._collect()
                self._look_after()
            if self._failure is not None:
                raise self._failure
        finally:
            for member in list(self._members):
                self._dismiss(member)

    def _staff(self) -> None:
        """Have as many workers as fit, or as were asked for, but not more than inputs."""
        now = time.monotonic()
        if now - self._staffed < _STAFFING_SECONDS:
            return
        self._staffed = now
        nodes = [node for node in self.find_nodes() if node.id not in self._refused]
        room = sum(node.room(self.cpus, self.gpu) for node in nodes)
        most = max(room, 1) if self.wait else room
        wanted = self.workers if self.wait and self.workers else min(self.workers or most, most)
        wanted = min(wanted, self.dispatch.unfinished)
        if self._report() > 0:
            self._accompanied = now
        elif not self.wait and ((room == 0 and self._refused) or now - self._accompanied > LONELY_SECONDS):
            why = "; ".join(dict.fromkeys(self._refused.values())) or f"none for {LONELY_SECONDS / 60:.0f} minutes"
            raise RunError(f"the cluster has no worker for this run ({why}); the same command resumes the run")
        placeless = [member for member in self._members if member.node is None]
        for member in placeless[: max(0, len(self._members) - wanted)]:
            self._dismiss(member)
        for _ in range(wanted - len(self._members)):
            self._hire()

    def _report(self) -> int:
        """Say how many workers there are, and return how many are ready."""
        ready = sum(member.ready for member in self._members)
        self.progress.workers(ready, len(self._members) - ready)
        return ready

    def _hire(self) -> None:
        options: dict[str, Any] = {"num_cpus": self.cpus, "num_gpus": int(self.gpu), "max_restarts": 0}
        if self._refused:
            options["label_selector"] = {"ray.io/node-id": f"!in({','.join(self._refused)})"}
        member = _Member(self.actor.options(**options, scheduling_strategy="SPREAD").remote(), time.monotonic())
        self._members.append(member)
        self._pending[member.actor.place.remote()] = member, "place"

    def _feed(self) -> None:
        for member in [member for member in self._members if member.ready]:
            while (chunk := self.dispatch.take(member)) is not None:
                given: list[Any] = list(chunk.inputs)
                if not self.data_on_workers:
                    try:
                        given = list(self.work.read(chunk.inputs))
                    except ArsError as error:
                        self._fail(error)
                        given = []
                if not given:
                    self.dispatch.receive(member, chunk, (), None)
                    continue
                if not member.busy:
                    member.heard = time.monotonic()
                member.busy += 1
                sent = frozenset(one if isinstance(one, int) else one.idx for one in given)
                self._pending[member.actor.certify.remote(given)] = member, _Order(chunk, sent)

    def _collect(self) -> Iterator[Record]:
        """Wait for an answer, and take in all that are there."""
        if not self._pending:
            time.sleep(_WAIT_SECONDS)
            return
        found, _ = self.ray.wait(list(self._pending), timeout=_WAIT_SECONDS)
        if found:
            found, _ = self.ray.wait(list(self._pending), num_returns=len(self._pending), timeout=0)
        for reference in found:
            if reference not in self._pending:
                continue  # its worker was lost a moment ago
            member, asked = self._pending.pop(reference)
            try:
                answer = self.ray.get(reference)
            except Exception as error:  # the worker died, or its reply is lost: which of the two does not matter
                self._lose(member, error)
                continue
            if asked == "draws":
                self._note_draws(member, answer)
                continue
            member.heard = time.monotonic()
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
            self._pending[member.actor.open.remote(self.task)] = member, "open"

    def _welcome(self, member: _Member, refusal: str | None, batch_seconds: float) -> None:
        assert member.node is not None
        if refusal is not None:
            self._refuse(member.node, refusal)
            return
        member.ready = True
        self._failures.pop(member.node, None)
        self._silence = max(self._silence, SILENT_BATCHES * batch_seconds)
        self.dispatch.join(member)
        self._report()

    def _receive(self, member: _Member, order: _Order, reply: Reply) -> Iterator[Record]:
        member.busy -= 1
        if isinstance(reply.error, DependentRows):
            raise reply.error
        records = {record.idx: record for record in reply.records}
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
            member.heard, member.draws = time.monotonic(), draws

    def _look_after(self) -> None:
        """Ask the workers for signs of life, and replace those that give none."""
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        for member in list(self._members):
            silent = now - member.heard
            if member.ready and member.busy:
                if silent > self._silence:
                    self._lose(member, f"it gave no sign of life for {silent:.0f} s")
                elif not member.looking:
                    member.looking = True
                    self._pending[member.actor.draws.remote()] = member, "draws"
            elif not member.ready and member.node is not None and silent > OPENING_SECONDS:
                self._lose(member, f"it did not open the model within {silent:.0f} s")

    def _lose(self, member: _Member, error: object) -> None:
        """A worker died or hangs. If its computer lives on, what it was doing may be the cause."""
        reason, lives = _describe(error), any(node.id == member.node for node in self.find_nodes())
        self._dismiss(member, reason, blame=lives)
        if member.ready or (member.node is not None and not lives):
            return
        self._failures[member.node] = failures = self._failures.get(member.node, 0) + 1
        if failures >= FAILURES:
            if member.node is None:
                raise RunError(f"no worker can be started ({reason}); look at the cluster with `ray status`")
            self._refuse(member.node, reason)

    def _dismiss(self, member: _Member, reason: str = "", *, blame: bool = False) -> None:
        """End a worker, or what is left of it. What it holds waits again; a late answer is nobody's."""
        self._members.remove(member)
        self._pending = {reference: what for reference, what in self._pending.items() if what[0] is not member}
        with suppress(Exception):  # it may be dead already, or the cluster gone
            self.ray.kill(member.actor)
        for idx in self.dispatch.lose(member, reason, blame=blame):
            self.on_given_up(idx, reason)

    def _refuse(self, node: str, reason: str) -> None:
        """Have no more workers on a computer, and dismiss those that are not at work there."""
        name = next((each.name for each in self.find_nodes() if each.id == node), node[:8])
        self._refused[node] = f"{name}: {reason}"
        self.progress.warn(f"{name} is left out of the run: {reason}")
        for member in [member for member in self._members if member.node == node and not member.ready]:
            self._dismiss(member)

    def _fail(self, error: ArsError) -> None:
        """Hand out nothing more; what is held is finished, and then the first error is raised."""
        self._failure = self._failure or error
        self.dispatch.stop()
