"""`ars-bench cluster`: what the driver of a cluster costs, with workers that sleep instead of certifying."""

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ars.engine.cluster import Cluster
from ars.engine.records.inputs import Input, content_sha256
from ars.engine.records.record import Record
from ars.engine.records.run import RunProgress, certify_run
from ars.engine.selftest import MODEL
from ars.engine.smoothed import load
from ars.engine.statistics.certificate import certify_votes
from ars.engine.statistics.plan import Plan
from ars.engine.worker import Opening, Reply, Task, Worker
from ars.noise import GAUSSIAN, NoiseKind

__all__ = ["ClusterCost", "measure_cluster"]

_SHAPE = (3, 8, 8)


@dataclass(frozen=True)
class ClusterCost:
    workers: int
    inputs: int
    seconds_each: float
    """How long a worker sleeps for an input."""
    efficiency: float
    """The share of the workers' time that they slept, from the moment that all were there to the last input."""
    driver_seconds: float
    """The processor time of the driver for one certificate: reading the input, dispatch and commit."""
    memory_growth: int
    """By how many bytes the driver grew between a fifth of the inputs and the end."""
    store_growth: int | None
    """By how many bytes the shared memory of Ray grew in that time; None if it is not on this computer."""


class Sleeping(Worker):
    """Sleeps, and answers with the same certificate for every input."""

    def __init__(self, task: Task, seconds: float, workers: int, meeting: Path) -> None:
        super().__init__(task)
        self._seconds, self._workers, self._meeting = seconds, workers, meeting

    def open(self) -> Opening:
        """Waits for the others: a computer of few cores is busy for minutes with starting a hundred of them."""
        (self._meeting / str(os.getpid())).touch()
        while len(os.listdir(self._meeting)) < self._workers:
            time.sleep(0.2)
        plan = self._task.plan
        votes = [0] * 10 + [0]
        votes[3] = plan.n
        self._certificate = certify_votes(
            votes, 3, plan=plan, family=GAUSSIAN, scale=0.25, kind=NoiseKind.ISOTROPIC, dimensions=192
        )
        return Opening(None, 0.01)

    def certify(self, inputs: "list[Input | int]") -> Reply:  # type: ignore[override]
        reply, plan = Reply(), self._task.plan
        for one in inputs:
            assert isinstance(one, Input)
            time.sleep(self._seconds)
            draws = plan.n0 + plan.n
            self._count(draws)
            sha256 = content_sha256(one.x)
            reply.records.append(Record(one.idx, one.label, self._certificate, draws, self._seconds, sha256))
        reply.seconds = self._seconds * len(inputs)
        return reply


class _Watch(RunProgress):
    def __init__(self, inputs: int) -> None:
        self._inputs = inputs
        self.done = 0
        self.worker_seconds = 0.0
        """The time that workers were ready, added up over them."""
        self._ready, self._since = 0, time.perf_counter()
        self.sizes: list[tuple[int, int | None]] = []

    def workers(self, ready: int, starting: int) -> None:
        now = time.perf_counter()
        self.worker_seconds += self._ready * (now - self._since)
        self._ready, self._since = ready, now

    def certified(self, record: Record) -> None:
        self.done += 1
        if self.done == self._inputs:
            self.workers(0, 0)
        if self.done in (self._inputs // 5, self._inputs):
            self.sizes.append((_resident(os.getpid(), "VmRSS"), _shared_memory()))


def measure_cluster(workers: int, inputs: int, seconds: float) -> ClusterCost:
    """Run so many inputs over a cluster of this computer whose workers sleep so long for each."""
    images = np.random.default_rng(0).random((inputs, *_SHAPE), dtype=np.float32)
    with tempfile.TemporaryDirectory(prefix="ars-") as folder:
        data, watch = Path(folder, "data.npz"), _Watch(inputs)
        np.savez(data, x=images, y=np.full(inputs, 3))
        cluster = Cluster("local", workers=workers)
        meeting = Path(folder, "workers")
        meeting.mkdir()
        cluster.make_worker, cluster.cores = _Sleepers(seconds, workers, meeting), workers
        store, plan = Path(folder, "run.sqlite"), Plan(10, 1000)
        with cluster, load(MODEL, sigma=0.25, batch=8) as classifier:
            used = time.process_time()
            certify_run(classifier, data, plan, store=store, cluster=cluster, progress=watch)
            used = time.process_time() - used
    (memory, shared), (memory_end, shared_end) = watch.sizes
    return ClusterCost(
        workers,
        inputs,
        seconds,
        inputs * seconds / watch.worker_seconds,
        used / inputs,
        memory_end - memory,
        None if shared is None or shared_end is None else shared_end - shared,
    )


@dataclass(frozen=True)
class _Sleepers:
    seconds: float
    workers: int
    meeting: Path

    def __call__(self, task: Task) -> Sleeping:
        return Sleeping(task, self.seconds, self.workers, self.meeting)


def _resident(process: int, field: str) -> int:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    return 0


def _shared_memory() -> int | None:
    """The shared memory of Ray's object store, which its process called raylet has mapped."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if (entry / "comm").read_text().strip() == "raylet":
                    return _resident(int(entry.name), "RssShmem")
            except OSError:
                continue
    return None
