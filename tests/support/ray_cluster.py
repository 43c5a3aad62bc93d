"""Ray clusters of several nodes on this computer, and workers that misbehave, for the tests."""

import os
import signal
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

import ars
from ars.engine.worker import Opening, Worker

OBJECT_STORE = 80 * 2**20

# A busy computer takes long to start a node, and with Ray's own niceness of 15 even longer to start a worker.
_PATIENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_gcs_server_request_timeout_seconds": "300",
}


@contextmanager
def nodes_with(*cores, gpus=0, settings=None):
    """A cluster whose nodes have so many cores each, and GPUs, the first of them the head, with settings of Ray's own.
    Workers can import this module only as a copy, because they do not have the tests."""
    for name, value in _PATIENT.items():
        os.environ.setdefault(name, value)
    import ray
    from ray.cluster_utils import Cluster

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    cluster = Cluster(shutdown_at_exit=True)
    try:
        for attempt in range(5):
            try:
                for place, number in enumerate(cores):
                    head = {"_system_config": settings} if settings and not place else {}
                    cluster.add_node(
                        num_cpus=number,
                        num_gpus=gpus,
                        object_store_memory=OBJECT_STORE,
                        include_dashboard=False,
                        **head,
                    )
                break
            except Exception as error:  # Ray gives a node 30 seconds to start, which a busy computer may exceed
                if "timed out" not in str(error).lower() or attempt == 4:
                    raise
                cluster.shutdown()
                cluster = Cluster(shutdown_at_exit=True)
        yield cluster
    finally:
        ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
        cluster.shutdown()


class Watched(ars.RunProgress):
    """Remembers what a run reports, and does something at each certified input."""

    def __init__(self, at_input=lambda record: None):
        self.warnings, self.errors, self.ids, self.most_workers, self.total_draws = [], [], [], 0, 0
        self._at_input = at_input

    def warn(self, doubt):
        self.warnings.append(doubt)

    def skipped(self, error):
        self.errors.append(str(error))

    def certified(self, record):
        self.ids.append(record.idx)
        self._at_input(record)

    def draws(self, number):
        self.total_draws += number

    def workers(self, ready, starting):
        self.most_workers = max(self.most_workers, ready)


class Behaving(Worker):
    """Does to some inputs what `behave` says, before it certifies them."""

    behave = None

    def certify(self, inputs):
        for one in inputs:
            type(self).behave(one if isinstance(one, int) else one.idx)
        return super().certify(inputs)


def bad_at(folder, *, deadly=(), hanging=()):
    """Workers that die whenever they begin some inputs, and hang at others for the first time."""

    def behave(idx):
        if idx in deadly or idx in hanging:
            (Path(folder) / f"begun-{idx}-{os.getpid()}-{time.monotonic_ns()}").touch()
        if idx in deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        if idx in hanging and len(list(Path(folder).glob(f"begun-{idx}-*"))) == 1:
            threading.Event().wait()

    return type("BadAt", (Behaving,), {"behave": staticmethod(behave)})


def slow(seconds):
    """Workers that take so long for each input."""
    return type("Slow", (Behaving,), {"behave": staticmethod(lambda idx: time.sleep(seconds))})


def refusing(folder, reason):
    """Workers of which all on the node that comes first are not fit for work."""

    def open_worker(self):
        import ray

        node = ray.get_runtime_context().get_node_id()
        with suppress(FileExistsError):
            (Path(folder) / "refused").symlink_to(node)
        if os.readlink(Path(folder) / "refused") == node:
            return Opening(reason)
        return Worker.open(self)

    return type("Refusing", (Worker,), {"open": open_worker})


def as_its_node_says(folder, kinds):
    """Workers of nodes that have another package, receive another model, or compute another noise, as the variable NODE
    of a node says. What then refuses them is what would refuse them on such a computer. The others wait for all
    kinds before they begin."""

    def open_worker(self):
        import dataclasses
        import importlib.metadata

        from ars.engine import selftest

        kind, version, noise = os.environ.get("NODE"), importlib.metadata.version, selftest._host_noise
        if kind == "version":
            importlib.metadata.version = lambda name: "0.0.1" if name == "scipy" else version(name)
        elif kind == "model":
            content = bytearray(self._task.files["model.onnx"])
            weights = np.random.default_rng(0).normal(0, 1, (16, 3)).astype(np.float32)  # as in models.linear
            content[content.index(weights.tobytes())] ^= 1
            self._task = dataclasses.replace(self._task, files={"model.onnx": bytes(content)})
        elif kind == "noise":
            selftest._host_noise = lambda *given: noise(*given) * (1 + 2**-20)
        opening = Worker.open(self)
        if kind:
            (Path(folder) / f"opened-{kind}").touch()
        return opening

    def certify(self, inputs):
        while not all((Path(folder) / f"opened-{kind}").exists() for kind in kinds):
            time.sleep(0.1)
        time.sleep(2 if inputs[-1].idx == 39 else 0)  # so that the driver has heard of all
        return Worker.certify(self, inputs)

    return type("AsItsNodeSays", (Worker,), {"open": open_worker, "certify": certify})


def on_simulated_gpus():
    """Workers with a simulated GPU each (tests/simulated_gpu)."""
    tests = str(Path(__file__).parents[1])

    def open_worker(self):
        sys.path.insert(0, tests)
        import simulated_gpu

        self._machine = simulated_gpu.installed()
        self._machine.__enter__()
        return Worker.open(self)

    return type("OnSimulatedGpu", (Worker,), {"open": open_worker})


def processes_of_workers():
    """The process ids of the workers of ARS on this computer that belong to this process's clusters."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if (entry / "cmdline").read_bytes().startswith(b"ray::Actor") and _started_here(int(entry.name)):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def _started_here(process):
    while process > 1:
        stat = Path(f"/proc/{process}/stat").read_text()
        process = int(stat.rpartition(")")[2].split()[1])
        if process == os.getpid():
            return True
    return False
