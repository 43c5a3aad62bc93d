"""Certification on a Ray cluster. This is the only module that knows Ray.

The process that runs `certify_run` is the driver (engine/driver.py). It has one actor, a worker, for each GPU or for
every k cores, and alone writes the store. Nothing outlives the driver; the same command resumes the run from the store.
"""

import os
import socket
import time
import warnings
from collections.abc import Callable, Collection, Generator, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from ars.checks import whole_number
from ars.engine.devices import CPU
from ars.engine.dispatch import Dispatch
from ars.engine.driver import Driver, Node, WorkerLost
from ars.engine.records.record import Record
from ars.engine.records.run import RunProgress
from ars.engine.records.work import Work
from ars.engine.worker import Task, Worker, make_task
from ars.errors import ArgumentError, InputError, MissingPackage, RunError, one_line

__all__ = ["Cluster"]

CONNECT_SECONDS = 5.0


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
        try:
            _check_reachable(*self._find_address())
            with warnings.catch_warnings():  # Ray raises the same as an error, which is ours to report
                warnings.filterwarnings("ignore", "Ray Client connection timed out")
                self._ray.init(address=self.address, log_to_driver=False, logging_level="ERROR", **own)
        except InputError:
            raise
        except (Exception, SystemExit) as error:  # of Ray, which has no base class for what goes wrong here
            self._ray.shutdown()  # it may be half connected, and the next attempt would take that for a connection
            if isinstance(error, RuntimeError) and "version" in str(error).lower():
                problem = f"the Ray cluster at {self.address} has other versions than this computer ({one_line(error)})"
                raise InputError(f"{problem}; install the same versions of Ray and Python here and there") from error
            problem = f"there is no Ray cluster to connect to at {self.address} ({one_line(error)})"
            raise InputError(f"{problem}; start one with `ray start --head`, or use --cluster local") from error
        self._owns = True
        return self

    def _find_address(self) -> tuple[str, bool]:
        """Where ray.init will look, and whether it needs to be told the token of what it finds there."""
        named = os.environ.get("RAY_ADDRESS") or "auto" if self.address == "auto" else self.address
        if named != "auto":
            return named, True
        with suppress(Exception):  # not part of Ray's interface
            found = self._ray._private.services.canonicalize_bootstrap_address("auto")
            if isinstance(found, str):
                return found, False  # it may be that of a cluster that was killed
        return named, False

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
        return _list_nodes(self._ray)

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
        crew = _RayCrew(self._ray, _make_actor(self._ray), self._cpus, gpu)
        self._check_room(crew)
        task = make_task(
            work,
            device="cuda:0" if gpu else CPU,
            threads=None if gpu else self._cpus,
            data_on_workers=self._data_on_workers,
        )
        work.classifier.close()  # it has decided the batch, and the workers need the memory
        try:
            yield from Driver(
                crew=crew,
                task=self._ray.put(self._ray.cloudpickle.dumps((self.make_worker, task))),
                workers=self._workers,
                wait=self._wait,
                data_on_workers=self._data_on_workers,
                work=work,
                progress=progress,
                on_given_up=on_given_up,
                dispatch=Dispatch(ids),
            ).run()
        except (self._ray.exceptions.RayError, ConnectionError) as error:  # its connection, its memory, its disk
            problem = f"the Ray cluster at {self.address} failed ({one_line(error)})"
            raise RunError(f"{problem}; what is certified is kept, and the same command resumes the run") from error

    def _check_room(self, crew: "_RayCrew") -> None:
        nodes = crew.nodes()
        room = sum(map(crew.room, nodes))
        if self._wait or room >= (self._workers or 1):
            return
        has = f"{len(nodes)} nodes with {sum(node.cores for node in nodes)} cores and {sum(n.gpus for n in nodes)} GPUs"
        needs = "a GPU" if crew.gpu else f"{self._cpus} cores"
        requirement = f"the cluster has {has}, room for {room} workers with {needs} each; ask for fewer, or --wait"
        raise ArgumentError("workers", self._workers or 1, requirement)


@dataclass(frozen=True)
class _RayCrew:
    """Workers are actors, each with one GPU or with some cores. Ray never restarts them: the driver does."""

    ray: Any
    actor: Any
    cpus: int
    gpu: bool

    def nodes(self) -> list[Node]:
        return _list_nodes(self.ray)

    def room(self, node: Node) -> int:
        return min(node.cores // self.cpus, node.gpus) if self.gpu else node.cores // self.cpus

    def hire(self, without: Collection[str]) -> Any:
        options: dict[str, Any] = {"num_cpus": self.cpus, "num_gpus": int(self.gpu), "max_restarts": 0}
        if without:
            options["label_selector"] = {"ray.io/node-id": f"!in({','.join(without)})"}
        return self.actor.options(**options, scheduling_strategy="SPREAD").remote()

    def ask(self, worker: Any, question: str, *given: Any) -> Hashable:
        ticket: Hashable = getattr(worker, question).remote(*given)
        return ticket

    def wait(self, tickets: Sequence[Hashable], seconds: float) -> Sequence[Hashable]:
        if not tickets:
            time.sleep(seconds)
            return ()
        found, _ = self.ray.wait(tickets, timeout=seconds)
        if found:
            found, _ = self.ray.wait(tickets, num_returns=len(tickets), timeout=0)
        return list(found)

    def answer(self, ticket: Hashable) -> Any:
        try:
            return self.ray.get(ticket)
        except Exception as error:  # of Ray or of the worker
            raise WorkerLost(_describe(error)) from error

    def dismiss(self, worker: Any) -> None:
        self.ray.kill(worker)


def _list_nodes(ray: Any) -> list[Node]:
    return [
        Node(
            node["NodeID"],
            node["NodeManagerHostname"],
            int(node["Resources"].get("CPU", 0)),
            int(node["Resources"].get("GPU", 0)),
            int(node["Resources"].get("memory", 0)),
        )
        for node in ray.nodes()
        if node["Alive"]
    ]


def _check_reachable(address: str, needs_token: bool = True) -> None:
    """Refuse an address at which no Ray cluster listens. Ray itself would try for minutes."""
    client = address.startswith("ray://")
    target = address.removeprefix("ray://")
    host, _, port = target.rpartition(":")
    if not (host and port.isdecimal()):
        if client:
            raise ArgumentError("cluster", address, "it needs a host and a port, like ray://host:10001")
        return  # auto, local, or something that Ray has to judge
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
        problem = _find_problem(target, client, needs_token)
    except (OSError, OverflowError) as error:
        problem = one_line(error)
    if problem is not None:
        usual = "the port is usually 10001 after ray://, and 6379 without it"
        problem = f"there is no Ray cluster at {address} ({problem})"
        raise InputError(f"{problem}; start one with `ray start --head` ({usual}), or use --cluster local")


def _find_problem(target: str, client: bool, needs_token: bool) -> str | None:
    """What is wrong with what listens there, if it is no Ray cluster. Both of Ray's ports speak gRPC."""
    if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
        return None
    import grpc

    service = "/ray.rpc.RayletDriver/ClusterInfo" if client else "/ray.rpc.NodeInfoGcsService/CheckAlive"
    with grpc.insecure_channel(target) as channel:
        try:
            channel.unary_unary(service)(b"", timeout=CONNECT_SECONDS)
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                return "what listens there does not answer as Ray does"
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return "another service listens there"
            told = "RAY_AUTH_MODE" in os.environ or not needs_token
            if error.code() is grpc.StatusCode.UNAUTHENTICATED and not told:
                problem = f"the Ray cluster at {target} asks for a token"
                fix = "set RAY_AUTH_MODE=token, and copy ~/.ray/auth_token from its head"
                raise InputError(f"{problem}; {fix}") from error
    return None


def _describe(error: object) -> str:
    """What a worker died of, in one line."""
    cause = getattr(error, "cause", None)  # of an exception in the worker; its text is the whole traceback
    if isinstance(cause, Exception):
        return f"{type(cause).__name__}: {one_line(cause)}"
    text = str(error)
    return one_line(text[max(0, text.find("The actor is dead because")) :])


def _make_actor(ray: Any) -> Any:
    """The actor of a worker. It needs ARS only from `open` on, so a computer that lacks ARS can say so. That is why it
    is annotated with no type of ARS: an annotation travels with the class."""

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

        def certify(self, inputs: Sequence[Any]) -> Any:
            return self._worker.certify(inputs)

        # A thread of its own answers, also while inputs are being certified.
        @ray.method(concurrency_group="signs")  # type: ignore[untyped-decorator]
        def draws(self) -> int:
            return int(self._worker.draws())

    return ray.remote(concurrency_groups={"signs": 1})(Actor)
