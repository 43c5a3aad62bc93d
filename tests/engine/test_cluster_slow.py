"""Campaigns on real Ray clusters: workers, nodes and drivers die at random moments, and nothing is lost or counted
twice. Each prints what it did."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from support import models
from support.engine_runs import ENGINE, records, write_manifest
from support.ray_cluster import (
    OBJECT_STORE,
    Watched,
    as_its_node_says,
    bad_at,
    nodes_with,
    on_simulated_gpus,
    processes_of_workers,
    refusing,
    slow,
)

import ars
from ars.engine import driver
from ars.engine.records.store import read_header
from ars.engine.statistics.target import Target
from ars.engine.worker import Worker
from ars.errors import ArgumentError, DataError, RunError
from ars.noise import NoiseKind

pytestmark = pytest.mark.slow

PLANS = {"fixed": ars.Plan(10, 200), "adaptive": ars.Plan(10, 400, question=ars.Grid((0, 0.05, 0.1)))}
ROUNDS = int(os.environ.get("ARS_CAMPAIGN", "10"))


def run(
    address,
    store,
    plan=PLANS["fixed"],
    *,
    worker=None,
    progress=None,
    data="data.npz",
    sigma=0.1,
    device=None,
    target=None,
    **options,
):
    with (
        ars.Cluster(address, **options) as cluster,
        ars.load("model.onnx", sigma=sigma, batch=16, seed=3, device=device, threads=1) as classifier,
    ):
        cluster.make_worker = worker or cluster.make_worker
        given = {"store": store, "target": target, "progress": progress or Watched()}
        return ars.certify_run(classifier, data, plan, cluster=cluster, **given)


def alone(plan=PLANS["fixed"], store="alone.sqlite", sigma=0.1, target=None):
    with ars.load("model.onnx", sigma=sigma, batch=16, seed=3) as classifier:
        ars.certify_run(classifier, "data.npz", plan, store=store, target=target, progress=Watched())
    return records(store)


@pytest.mark.parametrize("cores", [(4,), (2, 1, 1)])
def test_certificates_are_identical_on_one_and_three_nodes_with_one_two_and_four_workers(files, cores):
    """Of isotropic noise, and of a generator that makes other noise for each input."""
    with nodes_with(*cores) as cluster:
        for sigma in (0.1, None):
            if sigma is None:
                write_manifest(NoiseKind.INPUT)
            for name, plan in PLANS.items():
                expected = alone(plan, f"{name}-{sigma}.sqlite", sigma)
                assert len({record[2].sigma_min for record in expected}) == (1 if sigma else 40)
                for workers in (1, 2, 4):
                    store = f"{name}-{sigma}-{workers}.sqlite"
                    run(cluster.address, store, plan, sigma=sigma, workers=workers)
                    assert records(store) == expected


def test_a_run_with_a_target_takes_the_same_inputs_as_one_process(files):
    target = Target(0.35, (0.0,))
    with nodes_with(1, 1) as cluster:
        run(cluster.address, "run.sqlite", target=target)
    assert records("run.sqlite") == alone(target=target)
    assert len(records("run.sqlite")) < 40


def test_gpu_workers_make_the_same_certificates(files, machine):
    """On simulated GPUs, of which Ray gives one to each worker."""
    expected = alone()
    with nodes_with(1, 1, gpus=1) as cluster:
        run(cluster.address, "run.sqlite", worker=on_simulated_gpus(), device="cuda:0")
        assert records("run.sqlite") == expected
        (device,) = {record.made_by.device for record in ars.read_records("run.sqlite")}
        assert device.startswith("cuda:0")
        with pytest.raises(ArgumentError, match="2 nodes with 2 cores and 2 GPUs, room for 2 workers with a GPU each"):
            run(cluster.address, "many.sqlite", device="cuda:0", workers=3)


def test_nodes_with_another_package_another_model_or_other_noise_are_left_out(files, monkeypatch):
    monkeypatch.setattr(driver, "SILENCE_SECONDS", 600.0)
    kinds = ("version", "model", "noise")
    with nodes_with(1) as cluster:
        for kind in kinds:
            cluster.add_node(num_cpus=1, object_store_memory=OBJECT_STORE, env_vars={"NODE": kind})
        progress = Watched()
        run(cluster.address, "run.sqlite", worker=as_its_node_says(files, kinds), progress=progress, workers=4)
    assert records("run.sqlite") == alone()
    assert len(progress.warnings) == 3
    for said in ("its version of scipy is 0.0.1, and", "its model (SHA-256) is", "it fails the self-test of noise"):
        assert sum(said in warning for warning in progress.warnings) == 1, progress.warnings


def test_a_node_without_ars_is_left_out_and_says_so(files):
    missing = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "ars":
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Missing())
"""
    (files / "without").mkdir()
    (files / "without" / "sitecustomize.py").write_text(missing)
    with nodes_with(1) as cluster:
        environment = {"PYTHONPATH": str(files / "without")}
        cluster.add_node(num_cpus=1, object_store_memory=OBJECT_STORE, env_vars=environment)
        progress = Watched()
        run(cluster.address, "run.sqlite", worker=slow(0.5), progress=progress)
    (warning,) = progress.warnings
    assert "it has no ARS like the driver's (ModuleNotFoundError: No module named 'ars')" in warning
    assert records("run.sqlite") == alone()


def test_a_worker_that_is_stopped_is_killed_and_its_inputs_are_certified(files, monkeypatch):
    """It does not answer Ray either."""
    monkeypatch.setattr(driver, "SILENCE_SECONDS", 5.0)
    monkeypatch.setattr(driver, "SILENT_BATCHES", 0)
    stopped = []

    def stop(record):
        if not stopped:
            stopped.extend(processes_of_workers()[:1])
            os.kill(stopped[0], signal.SIGSTOP)

    with nodes_with(1) as cluster:
        run(cluster.address, "run.sqlite", worker=slow(0.2), progress=Watched(stop))
        assert stopped[0] not in processes_of_workers()
    assert records("run.sqlite") == alone()


def test_an_input_that_kills_three_workers_is_given_up_by_name_and_a_bad_one_is_left_out(files):
    x, y = np.load("data.npz")["x"], np.load("data.npz")["y"].copy()
    y[3] = 99
    np.savez("bad.npz", x=x, y=y)
    with nodes_with(1, 1) as cluster:
        with pytest.raises(RunError, match=r"input 7: three workers died of it \(.*\); all other inputs are certified"):
            run(cluster.address, "run.sqlite", worker=bad_at(files, deadly={7}))
        assert records("run.sqlite") == [record for record in alone() if record[0] != 7]
        assert read_header(Path("run.sqlite")).sampling.given_up == "7"
        with pytest.raises(DataError, match="input 3 has the label 99"):
            run(cluster.address, "bad.sqlite", data="bad.npz")
        progress = Watched()
        with (
            ars.Cluster(cluster.address, data_on_workers=True) as opened,
            ars.load("model.onnx", sigma=0.1, batch=16, seed=3, threads=1) as classifier,
        ):
            given = {"store": "bad.sqlite", "skip_bad_inputs": True, "cluster": opened, "progress": progress}
            assert ars.certify_run(classifier, "bad.npz", PLANS["fixed"], **given).summary.inputs == 39
        assert ["input 3 has the label 99" in error for error in progress.errors] == [True]


class Trouble(threading.Thread):
    """Kills workers, removes nodes and adds nodes, at random moments, until it is told to stop."""

    def __init__(self, cluster, rng):
        super().__init__(daemon=True)
        self._cluster, self._rng, self._over = cluster, rng, threading.Event()
        self.counts = Counter()
        cluster._shutdown_at_exit = False  # what it would register at exit, only a main thread can

    def run(self):
        while not self._over.wait(self._rng.uniform(0.5, 4)):
            nodes = sorted(self._cluster.worker_nodes, key=lambda node: node.node_id)
            kind = self._rng.choice(["kill", "kill", "kill", "add" if len(nodes) < 3 else "remove"])
            if kind == "kill" and (found := processes_of_workers()):
                with suppress(ProcessLookupError):
                    os.kill(self._rng.choice(found), signal.SIGKILL)
            elif kind == "add":
                self._cluster.add_node(num_cpus=1, object_store_memory=OBJECT_STORE)
            elif kind == "remove":
                self._cluster.remove_node(self._rng.choice(nodes), allow_graceful=self._rng.random() < 0.5)
            else:
                continue
            self.counts[kind] += 1

    def end(self):
        self._over.set()
        self.join()


def test_workers_and_nodes_that_die_and_join_at_random_moments(files, monkeypatch):
    monkeypatch.setattr(driver, "FAILURES", 10**6)  # each death here is trouble, and none the node's own fault
    expected, total = alone(), Counter()
    with nodes_with(1, 1) as cluster:
        for number in range(ROUNDS):
            trouble = Trouble(cluster, random.Random(number))
            trouble.start()
            try:
                run(cluster.address, f"{number}.sqlite", worker=slow(0.3))
                given_up = set()
            except RunError:  # some inputs were given up: these, and no others
                header = ars.read_run(f"{number}.sqlite").header
                given_up = set(map(int, header.sampling.given_up.split(",")))
            finally:
                trouble.end()
            found = records(f"{number}.sqlite")
            assert found == [record for record in expected if record[0] not in given_up]
            total += trouble.counts
            total["given up"] += len(given_up)
            total["rounds"] += 1
            print(f"round {number}: {dict(trouble.counts)}, given up {sorted(given_up)}", flush=True)
    print(f"all rounds: {dict(total)}")
    assert total["kill"] >= ROUNDS


def count(store):
    try:
        return sum(1 for _ in ars.read_records(store))
    except ars.ArsError:
        return 0


def test_a_driver_that_is_killed_at_random_moments_is_resumed(files):
    rng, expected, kills = random.Random(5), alone(ars.Plan(10, 4000)), 0
    plan = ["--n0", "10", "--n", "4000", "--sigma", "0.1", "--batch", "16", "--seed", "3", "--quiet"]
    with nodes_with(1, 1) as cluster:
        command = [ENGINE, "certify", "--engine", "model.onnx", "--data", "data.npz", *plan]
        command += ["--cluster", cluster.address]
        for number in range(ROUNDS):
            store, ended = f"{number}.sqlite", False
            while not ended:
                goal = count(store) + rng.randint(0, 25)
                with subprocess.Popen([*command, "--out", store], stdout=subprocess.DEVNULL) as process:
                    while process.poll() is None and count(store) < goal:
                        time.sleep(0.05)
                    time.sleep(rng.uniform(0, 0.5))
                    ended = process.poll() is not None
                    if not ended:
                        process.send_signal(rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGINT]))
                        kills += 1
                assert not ended or process.returncode == 0
            assert records(store) == expected
            print(f"{number + 1} runs, {kills} drivers killed", flush=True)
        deadline = time.monotonic() + 60
        while processes_of_workers():
            assert time.monotonic() < deadline, "a worker outlived its driver"
            time.sleep(1)
    assert kills >= ROUNDS


@pytest.fixture
def large(files):
    """Inputs of 200 kB, which travel through the object store, and the certificates of one process."""
    x = np.random.default_rng(0).random((30, 1, 224, 224), dtype=np.float32)
    np.savez("large.npz", x=x, y=np.zeros(30, int))
    models.linear(Path("model.onnx"), shape=(1, 224, 224))
    with ars.load("model.onnx", sigma=0.1, batch=16, seed=3) as classifier:
        ars.certify_run(classifier, "large.npz", PLANS["fixed"], store="alone.sqlite", progress=Watched())
    return records("alone.sqlite")


def fill_object_store(sizes, number):
    """Put arrays of these sizes into it, so many of each or until it is full, and return what keeps them there."""
    import ray

    held = []
    for size in sizes:
        with suppress(ray.exceptions.OutOfDiskError):
            held.extend(ray.put(np.random.default_rng(k).random(size)) for k in range(number))
    return held


def test_a_full_object_store_that_spills_to_disk_does_not_stop_the_run(large):
    import ray

    with nodes_with(1, 1) as cluster:
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        try:
            held = fill_object_store([2**20], 2 * OBJECT_STORE // 2**23)
            run(cluster.address, "run.sqlite", data="large.npz")
            assert len(held) == 20
        finally:
            ray.shutdown()
    assert records("run.sqlite") == large


def test_an_object_store_and_a_disk_that_are_full_end_the_run_which_can_be_resumed(large):
    import ray

    with nodes_with(2, settings={"local_fs_capacity_threshold": 0.0}) as cluster:
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        try:
            held = fill_object_store([2**20, 2**17, 2**14], 1000)
            with pytest.raises(
                RunError, match=r"the Ray cluster at .* failed \(Local disk is full.*the same command resumes"
            ):
                run(cluster.address, "run.sqlite", data="large.npz")
            held.clear()
            run(cluster.address, "run.sqlite", data="large.npz")
        finally:
            ray.shutdown()
    assert records("run.sqlite") == large


def test_workers_that_hang_or_kill_in_many_runs(files, monkeypatch):
    monkeypatch.setattr(driver, "SILENCE_SECONDS", 10.0)
    monkeypatch.setattr(driver, "SILENT_BATCHES", 0)
    expected = alone()
    with nodes_with(1, 1) as cluster:
        for number in range(ROUNDS):
            rng = random.Random(number)
            deadly, hanging = ({idx} for idx in rng.sample(range(40), 2))
            (files / str(number)).mkdir()
            worker = bad_at(files / str(number), deadly=deadly, hanging=hanging)
            with pytest.raises(RunError, match="three workers died of it"):
                run(cluster.address, f"{number}.sqlite", worker=worker)
            found = records(f"{number}.sqlite")
            assert found == [record for record in expected if record[0] not in deadly]


def test_a_cluster_that_shrinks_to_nothing_and_grows_again(files):
    with nodes_with(0, 1) as cluster:
        (node,) = cluster.worker_nodes

        def change():
            cluster.remove_node(node, allow_graceful=False)
            time.sleep(5)
            cluster.add_node(num_cpus=1, object_store_memory=OBJECT_STORE)

        changing = []

        def begin(record):
            if not changing:
                changing.append(threading.Thread(target=change))
                changing[0].start()

        run(cluster.address, "run.sqlite", worker=slow(0.3), progress=Watched(begin))
        changing[0].join()
    assert records("run.sqlite") == alone()


def test_workers_that_are_waited_for_come_when_a_node_does(files):
    with nodes_with(0) as cluster:
        threading.Timer(5, lambda: cluster.add_node(num_cpus=2, object_store_memory=OBJECT_STORE)).start()
        run(cluster.address, "run.sqlite", workers=2, wait=True)
    assert records("run.sqlite") == alone()


def test_where_every_node_is_refused_the_run_ends_with_the_reasons(files, monkeypatch):
    monkeypatch.setattr(driver, "FAILURES", 2)
    with nodes_with(1, 1) as cluster:
        bad = type("Bad", (Worker,), {"open": lambda self: 1 / 0})
        with pytest.raises(RunError, match=r"the cluster has no worker for this run \(.*ZeroDivisionError"):
            run(cluster.address, "none.sqlite", worker=bad)
        progress = Watched()
        run(cluster.address, "run.sqlite", worker=refusing(files, "its version of ars is 0.0.1"), progress=progress)
        assert len(progress.warnings) == 1
    assert records("run.sqlite") == alone()


def test_a_client_certifies_through_the_address_of_a_head(files):
    with nodes_with(2) as cluster:
        server = [sys.executable, "-m", "ray.util.client.server", "--address", cluster.address, "--port", "23457"]
        with subprocess.Popen([*server, "--host", "127.0.0.1"], stderr=subprocess.DEVNULL) as process:
            try:
                time.sleep(10)
                run("ray://127.0.0.1:23457", "run.sqlite", workers=1)
            finally:
                process.kill()
    assert records("run.sqlite") == alone()


def bench(*arguments):
    command = [Path(sys.executable).with_name("ars-bench"), "cluster", "--json", *arguments]
    patience = {"RAY_worker_maximum_startup_concurrency": "4", "RAY_worker_register_timeout_seconds": "300"}
    environment = os.environ | patience | {"RAY_worker_niceness": "0"}
    return json.loads(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)


def test_memory_does_not_grow_with_ten_thousand_inputs():
    found = bench("--workers", "4", "--inputs", "10000", "--seconds", "0.001")
    print(found)
    assert found["memory_growth"] < 16 * 2**20
    assert found["store_growth"] < 16 * 2**20


def test_a_hundred_workers_are_busy_nine_tenths_of_the_time():
    found = bench("--workers", "100", "--inputs", "3000", "--seconds", "1")
    print(found)
    assert found["efficiency"] >= 0.9


def test_twenty_shards_of_500_inputs_merge_into_the_one_run(files):
    x = np.random.default_rng(2).random((10_000, 1, 4, 4), dtype=np.float32)
    np.savez("large.npz", x=x, y=np.zeros(10_000, int))
    with ars.load("model.onnx", sigma=0.1, batch=64, seed=3) as classifier:
        for number in range(1, 21):
            inputs = ars.Inputs("large.npz", shard=f"{number}/20")
            ars.certify_run(classifier, inputs, PLANS["fixed"], store=f"{number}.sqlite", progress=Watched())
            assert len(records(f"{number}.sqlite")) == 500
        ars.certify_run(classifier, "large.npz", PLANS["fixed"], store="run.sqlite", progress=Watched())
    assert ars.merge_runs([f"{number}.sqlite" for number in range(1, 21)], "merged.sqlite") == 10_000
    assert records("merged.sqlite") == records("run.sqlite")
