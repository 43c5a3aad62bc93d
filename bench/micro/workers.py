"""`ars-bench workers`: two workers of a cluster with a core each, against one process with two threads."""

import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track

from ars.bench.networks import small_cnn
from ars.bench.timing import Timings
from ars.engine.cluster import Cluster
from ars.engine.records.inputs import Input
from ars.engine.records.record import Record
from ars.engine.records.run import RunProgress, certify_run
from ars.engine.smoothed import load
from ars.engine.statistics.plan import Plan
from ars.engine.worker import Reply, Worker

__all__ = ["CLUSTER", "PROCESS", "WorkersCost", "time_workers"]

CLUSTER, PROCESS, DRIVER = "2 workers, a core each", "1 process, 2 threads", "of the cluster's, the driver"
_SHAPE, _BATCH = (1, 28, 28), 128


@dataclass(frozen=True)
class WorkersCost:
    wall: Timings
    """Of each draw, once all workers are at work. It needs two idle cores."""
    processor: Timings
    """Of each draw, in all processes that certify, the driver among them. Other work on the machine matters little, but
    the driver looks around twice a second however slow its workers are."""


class Counting(Worker):
    """Says of each input the processor time that it took, instead of the time."""

    def certify(self, inputs: "list[Input | int]") -> Reply:  # type: ignore[override]
        start = time.process_time()
        reply = super().certify(inputs)
        each = (time.process_time() - start) / max(len(reply.records), 1)
        reply.records = [replace(record, seconds=each) for record in reply.records]
        return reply


class _Watch(RunProgress):
    """Counts the draws from the moment that so many workers are ready."""

    def __init__(self, workers: int) -> None:
        self._wanted, self.start_time, self.draws_certified, self.worker_seconds = workers, 0.0, 0, 0.0
        self.all_draws = 0
        if not workers:
            self.start_time = time.perf_counter()

    def workers(self, ready: int, starting: int) -> None:
        if ready == self._wanted and not self.start_time:
            self.start_time, self.draws_certified = time.perf_counter(), 0

    def certified(self, record: Record) -> None:
        self.draws_certified += record.draws
        self.all_draws += record.draws
        self.worker_seconds += record.seconds


def time_workers(inputs: int, n: int, rounds: int) -> WorkersCost:
    """Certify so many inputs in turns on a cluster of this computer and in this process."""
    wall: dict[str, list[float]] = {CLUSTER: [], PROCESS: []}
    processor: dict[str, list[float]] = {CLUSTER: [], PROCESS: [], DRIVER: []}
    with tempfile.TemporaryDirectory(prefix="ars-") as folder:
        model, data = Path(folder, "small_cnn.onnx"), Path(folder, "data.npz")
        small_cnn(model)
        images = np.random.default_rng(0).random((inputs, *_SHAPE), dtype=np.float32)
        np.savez(data, x=images, y=np.zeros(inputs, int))
        cluster = Cluster("local", workers=2)
        cluster.make_worker, cluster.cores = Counting, 2
        with cluster:
            for number in track(range(rounds), "measuring", console=Console(stderr=True), transient=True):
                for name in wall:
                    crew = cluster if name == CLUSTER else None
                    with load(model, sigma=0.25, batch=_BATCH, threads=2 if crew is None else 1, seed=0) as classifier:
                        classifier.prepare(_SHAPE, _BATCH)
                        watch, used = _Watch(2 if crew else 0), time.process_time()
                        store = Path(folder, f"{number}-{len(name)}.sqlite")
                        certify_run(classifier, data, Plan(100, n), store=store, cluster=crew, progress=watch)
                        end, used = time.perf_counter(), time.process_time() - used
                    wall[name].append((end - watch.start_time) / watch.draws_certified)
                    processor[name].append((used + (watch.worker_seconds if crew else 0.0)) / watch.all_draws)
                    if crew:
                        processor[DRIVER].append(used / watch.all_draws)
    return WorkersCost(Timings(wall), Timings(processor))
