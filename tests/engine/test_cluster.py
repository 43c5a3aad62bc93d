"""Certification on a real Ray cluster of two nodes on this computer: the certificates are those of a single process,
whatever happens to workers. The campaigns at random moments are in test_cluster_slow.py."""

import os
import signal
import socket
import time

import numpy as np
import pytest
from click.testing import CliRunner
from support.engine_runs import certify, records, refused
from support.ray_cluster import Watched, bad_at, nodes_with, processes_of_workers, refusing

import ars
from ars.engine import cluster as connecting
from ars.engine import driver
from ars.engine.cli import main
from ars.engine.records.store import read_header
from ars.errors import ArgumentError, DataError, InputError, RunError

PLAN = ars.Plan(10, 200)
ADAPTIVE = ars.Plan(10, 400, question=ars.Grid((0, 0.05, 0.1)))


@pytest.fixture(scope="module")
def address():
    with nodes_with(1, 1) as cluster:
        yield cluster.address


def run(address, store, plan=PLAN, *, data="data.npz", worker=None, progress=None, options=None, **given):
    with (
        ars.Cluster(address, **{"workers": 2} | (options or {})) as cluster,
        ars.load("model.onnx", sigma=0.1, batch=16, seed=3, threads=1) as classifier,
    ):
        cluster.make_worker = worker or cluster.make_worker
        return ars.certify_run(
            classifier, data, plan, store=store, cluster=cluster, progress=progress or Watched(), **given
        )


def alone(store="alone.sqlite", plan=PLAN, **given):
    with ars.load("model.onnx", sigma=0.1, batch=16, seed=3) as classifier:
        ars.certify_run(classifier, "data.npz", plan, store=store, progress=Watched(), **given)
    return records(store)


def test_the_certificates_are_those_of_one_process_fixed_and_adaptive(files, address):
    progress = Watched()
    run(address, "fixed.sqlite", progress=progress)
    assert records("fixed.sqlite") == alone()
    assert sorted(progress.ids) == list(range(40))
    assert 1 <= progress.most_workers <= 2
    run(address, "adaptive.sqlite", ADAPTIVE, options={"data_on_workers": True}, only_correct=True)
    assert records("adaptive.sqlite") == alone("alone2.sqlite", ADAPTIVE, only_correct=True)
    (one, *_) = ars.read_records("fixed.sqlite")
    assert one.made_by.node == socket.gethostname()
    assert one.made_by.device == "cpu, 1 lanes"


def test_workers_that_die_or_hang_are_replaced_and_an_input_that_kills_three_is_given_up(files, address, monkeypatch):
    monkeypatch.setattr(driver, "SILENCE_SECONDS", 10.0)
    monkeypatch.setattr(driver, "SILENT_BATCHES", 0)
    killed = []

    def kill_one(record):
        if not killed and (found := processes_of_workers()):
            killed.append(found[0])
            os.kill(found[0], signal.SIGKILL)

    problem = r"input 7: three workers died of it \(.*\); all other inputs are certified"
    with pytest.raises(RunError, match=problem):
        run(address, "run.sqlite", worker=bad_at(files, deadly={7}, hanging={5}), progress=Watched(kill_one))
    assert killed
    assert records("run.sqlite") == [record for record in alone() if record[0] != 7]
    assert list(files.glob("begun-7-*"))
    assert len(list(files.glob("begun-5-*"))) >= 2
    assert read_header(files / "run.sqlite").sampling.given_up == "7"


def test_a_node_that_is_not_fit_for_work_is_left_out(files, address):
    progress = Watched()
    run(address, "run.sqlite", worker=refusing(files, "its model (SHA-256) is another"), progress=progress)
    assert records("run.sqlite") == alone()
    (warning,) = progress.warnings
    assert warning.endswith("is left out of the run: its model (SHA-256) is another")


def test_a_bad_input_ends_the_run_or_is_left_out(files, address):
    x, y = np.load("data.npz")["x"], np.load("data.npz")["y"].copy()
    y[3] = 99
    np.savez("bad.npz", x=x, y=y)
    with pytest.raises(DataError, match="input 3 has the label 99"):
        run(address, "bad.sqlite", data="bad.npz")
    progress, options = Watched(), {"data_on_workers": True}
    result = run(address, "bad.sqlite", data="bad.npz", skip_bad_inputs=True, progress=progress, options=options)
    assert result.summary.inputs == 39
    assert ["input 3 has the label 99" in error for error in progress.errors] == [True]


def test_more_workers_than_fit_are_refused(files, address):
    found = r"workers = 9 is not valid; the cluster has 2 nodes with 2 cores and 0 GPUs, room for 2 workers"
    with pytest.raises(ArgumentError, match=found):
        run(address, "many.sqlite", options={"workers": 9})
    with pytest.raises(ArgumentError, match="room for 0 workers with 8 cores each"):
        run(address, "wide.sqlite", options={"workers": None, "worker_cpus": 8})


def test_the_command_shows_and_uses_the_cluster(files, address):
    found = CliRunner().invoke(main, ["devices", "--cluster", address])
    assert found.exit_code == 0, found.output
    assert sorted(line.split()[1:5] for line in found.stdout.splitlines()) == [
        ["1", "cores,", "0", "GPUs,"],
        ["1", "cores,", "0", "GPUs,"],
    ]
    result = certify("--cluster", address, "--workers", "1", "--seed", "3", "--limit", "5")
    assert result.exit_code == 0, result.output
    again = certify("--cluster", address, "--seed", "3", "--limit", "5")
    assert "5 of 5 inputs are certified already" in again.stderr
    refused(certify("--cluster", address, "--threads", "2"), "on a cluster, --worker-cpus says it")
    refused(certify("--workers", "2"), "workers = 2 is not valid; it is for --cluster")


def test_an_address_without_a_cluster_is_refused_at_once(files):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}", "127.0.0.1:99999999"):
        start = time.monotonic()
        refused(certify("--cluster", address), f"there is no Ray cluster at {address} (", "start one with `ray start")
        assert time.monotonic() - start < 10
    refused(certify("--cluster", "ray://head"), "it needs a host and a port, like ray://host:10001")


def test_an_address_at_which_something_else_listens_is_refused_at_once(address, monkeypatch):
    monkeypatch.setattr(connecting, "CONNECT_SECONDS", 1.0)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        place = "{}:{}".format(*silent.getsockname())
        for listening in (place, f"ray://{place}"):
            with pytest.raises(InputError, match="what listens there does not answer as Ray does"):
                ars.Cluster(listening).__enter__()
        monkeypatch.setenv("RAY_ADDRESS", place)
        with pytest.raises(InputError, match=f"no Ray cluster at {place}"):
            ars.Cluster("auto").__enter__()
    with pytest.raises(InputError, match=r"another service listens there.*the port is usually 10001 after ray://"):
        ars.Cluster(f"ray://{address}").__enter__()


def test_what_ray_says_is_passed_on(files, monkeypatch):
    import ray

    def init(**given):
        raise RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 2.9.0\n    Python: 3.9.1")

    monkeypatch.setattr(ray, "init", init)
    result = certify("--cluster", "auto")
    refused(result, "Version mismatch: The cluster was started with: Ray: 2.9.0 Python: 3.9.1")


def test_without_ray_the_install_line_is_printed(files, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    refused(certify("--cluster", "auto"), "ray is not installed; run `pip install", "cluster]")


def test_a_cluster_that_is_not_open_is_refused(files):
    classifier = ars.load("model.onnx", sigma=0.1, batch=16, seed=3)
    with classifier, pytest.raises(ArgumentError, match="open it first"):
        ars.certify_run(classifier, "data.npz", PLAN, store="run.sqlite", cluster=ars.Cluster("local"))


@pytest.mark.parametrize("given", [{"workers": 0}, {"worker_cpus": 0}, {"workers": 1.5}])
def test_numbers_of_workers_are_checked(given):
    with pytest.raises(InputError):
        ars.Cluster(**given)
