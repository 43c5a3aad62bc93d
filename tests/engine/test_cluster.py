"""Certification on a real Ray cluster of two nodes on this computer. Starting workers takes long, so only what needs
Ray is here: test_driver.py has what the driver does about workers, and test_cluster_slow.py campaigns on real ones."""

import io
import json
import os
import pickle
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from click.testing import CliRunner
from support.engine_runs import certify, records, refused
from support.ray_cluster import Watched, nodes_with, processes_of_workers

import ars
from ars.engine import cluster as connecting
from ars.engine.cli import main
from ars.errors import ArgumentError, InputError

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


def test_the_certificates_are_those_of_one_process_fixed_and_adaptive_even_if_a_worker_is_killed(files, address):
    progress = Watched()
    run(address, "fixed.sqlite", progress=progress)
    assert records("fixed.sqlite") == alone()
    assert sorted(progress.ids) == list(range(40))
    assert 1 <= progress.most_workers <= 2
    killed = []

    def kill_one(record):
        if not killed and (found := processes_of_workers()):
            killed.append(found[0])
            os.kill(found[0], signal.SIGKILL)

    options, watched = {"data_on_workers": True}, Watched(kill_one)
    run(address, "adaptive.sqlite", ADAPTIVE, options=options, progress=watched, only_correct=True)
    assert killed
    assert records("adaptive.sqlite") == alone("alone2.sqlite", ADAPTIVE, only_correct=True)
    (one, *_) = ars.read_records("fixed.sqlite")
    assert one.made_by.node == socket.gethostname()
    assert one.made_by.device == "cpu, 1 lanes"


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


def test_what_ray_says_of_a_dead_worker_is_not_printed_among_the_results(files, address, monkeypatch):
    certify_on_cluster = connecting.Cluster.certify

    def print_as_ray_does(self, *given):
        print("(raylet) A worker died or was killed while executing a task")
        return certify_on_cluster(self, *given)

    monkeypatch.setattr(connecting.Cluster, "certify", print_as_ray_does)
    result = certify("--cluster", address, "--seed", "3", "--limit", "3", "--json")
    assert json.loads(result.stdout)["inputs"] == 3
    assert "(raylet) A worker died" in result.stderr


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


def test_auto_does_not_wait_for_a_cluster_that_was_killed(monkeypatch):
    """Ray keeps its address in a file, and would try it for two minutes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    services = __import__("ray")._private.services
    monkeypatch.setattr(services, "find_gcs_addresses", lambda: [])
    monkeypatch.setattr(services, "find_bootstrap_address", lambda folder: f"127.0.0.1:{port}")
    start = time.monotonic()
    with pytest.raises(InputError, match=rf"there is no Ray cluster at .*:{port} \(.*refused\); start one with"):
        ars.Cluster("auto").__enter__()
    assert time.monotonic() - start < 10


@pytest.mark.parametrize("mode", [None, "token"])
def test_a_cluster_that_asks_for_a_token_is_told_apart(monkeypatch, mode):
    import grpc

    def refuse(request, context):
        context.abort(grpc.StatusCode.UNAUTHENTICATED, "Invalid or missing authentication token")

    method = grpc.unary_unary_rpc_method_handler(refuse)
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("ray.rpc.NodeInfoGcsService", {"CheckAlive": method})]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    try:
        if mode is None:
            with pytest.raises(InputError, match="asks for a token; set RAY_AUTH_MODE=token, and copy"):
                connecting._check_reachable(f"127.0.0.1:{port}")
            connecting._check_reachable(f"127.0.0.1:{port}", needs_token=False)
        else:
            monkeypatch.setenv("RAY_AUTH_MODE", mode)
            connecting._check_reachable(f"127.0.0.1:{port}")  # Ray will send the token
    finally:
        server.stop(None)


def test_another_version_of_ray_is_refused_in_rays_words(files, address, monkeypatch):
    import ray

    monkeypatch.setattr(ray, "__version__", "2.9.0")
    said = (
        f"the Ray cluster at {address} has other versions than this computer (Version mismatch: The cluster was started"
    )
    result = refused(certify("--cluster", address), said, "was started with: Ray: 2.9.0", "install the same versions")
    assert "start one with" not in result.stderr
    assert not ray.is_initialized(), "the next attempt would take it for connected"


def test_what_else_ray_says_is_passed_on(files, monkeypatch):
    import ray

    def init(**given):
        raise ConnectionError("Could not find\n  any running Ray instance.")

    monkeypatch.setattr(ray, "init", init)
    refused(
        certify("--cluster", "auto"), "(Could not find any running Ray instance.); start one with `ray start --head`"
    )


def test_without_ray_the_install_line_is_printed(files, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    refused(certify("--cluster", "auto"), "ray is not installed; run `pip install", "cluster]")


def test_a_computer_without_ars_can_open_what_tells_that_it_lacks_it():
    """Otherwise no worker there could be started, and nobody would say why."""
    import ray

    class WithoutArs(pickle.Unpickler):
        def find_class(self, module, name):
            assert module.partition(".")[0] != "ars", f"it needs {module}.{name}"
            return super().find_class(module, name)

    actor = connecting._make_actor(ray).__ray_metadata__.modified_class
    made = WithoutArs(io.BytesIO(ray.cloudpickle.dumps(actor))).load()()
    refusal, _ = made.open(b"cars_nowhere\nWorker\n.")
    assert refusal == "it has no ARS like the driver's (ModuleNotFoundError: No module named 'ars_nowhere')"


def test_a_cluster_that_is_not_open_is_refused(files):
    classifier = ars.load("model.onnx", sigma=0.1, batch=16, seed=3)
    with classifier, pytest.raises(ArgumentError, match="open it first"):
        ars.certify_run(classifier, "data.npz", PLAN, store="run.sqlite", cluster=ars.Cluster("local"))


@pytest.mark.parametrize("given", [{"workers": 0}, {"worker_cpus": 0}, {"workers": 1.5}])
def test_numbers_of_workers_are_checked(given):
    with pytest.raises(InputError):
        ars.Cluster(**given)
