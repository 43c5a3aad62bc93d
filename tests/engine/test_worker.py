"""A worker certifies as the driver would, leaves no trace, and refuses work that it is not fit for."""

import dataclasses
import pickle
import tempfile
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from support import models
from support.engine_runs import write_manifest

import ars
from ars.engine.cli import main
from ars.engine.records.inputs import Inputs
from ars.engine.records.work import Work
from ars.engine.selftest import Check
from ars.engine.worker import Worker, make_task
from ars.errors import ArgumentError, ArsError, DataError, DependentRows, StoreError
from ars.noise import NoiseKind

pytestmark = pytest.mark.usefixtures("files")

PLAN = ars.Plan(10, 200)


def make_work(classifier, data="data.npz", **changed):
    inputs = Inputs(data)
    source, _ = inputs.open(classifier.channels)
    given = {"plan": PLAN, "seed": 3, "batch": 16, "only_correct": False, "on_bad_input": None} | changed
    return Work(classifier=classifier, inputs=inputs, source=source, shape=source[0].x.shape, **given)


def make(classifier, *, data_on_workers=False, **changed):
    work = make_work(classifier, **changed)
    return work, make_task(work, device="cpu", threads=1, data_on_workers=data_on_workers)


def load(**given):
    return ars.load("model.onnx", **{"sigma": 0.1, "batch": 16, "threads": 1} | given)


def opened(task):
    worker = Worker(pickle.loads(pickle.dumps(task)))  # as it travels
    opening = worker.open()
    assert opening.refusal is None
    assert opening.batch_seconds > 0
    return worker


def expected(classifier, ids):
    data = np.load("data.npz")
    found = classifier.certify_many(((idx, data["x"][idx]) for idx in ids), PLAN, batch=16, seed=3)
    return {one.input_id: one.result for one in found}


def made(reply):
    assert reply.error is None
    return {record.idx: record.certificate for record in reply.records}


def test_it_makes_the_drivers_certificates_from_what_it_was_sent():
    with load() as classifier:
        work, task = make(classifier)
        worker = opened(task)
        reply = worker.certify(list(work.read([3, 8, 5])))
        assert made(reply) == expected(classifier, [3, 8, 5])
    assert worker.draws() == 3 * 210
    assert reply.seconds > 0
    (one,) = (record for record in reply.records if record.idx == 8)
    assert one.label == np.load("data.npz")["y"][8]
    assert one.made_by.batch == 16
    assert one.made_by.node


def test_it_reads_the_data_itself_if_it_is_told_to():
    with load() as classifier:
        _, task = make(classifier, data_on_workers=True)
        assert made(opened(task).certify([0, 1])) == expected(classifier, [0, 1])
        np.savez("data.npz", x=np.load("data.npz")["x"], y=np.load("data.npz")["y"][::-1])
        assert "it is other data than the driver has" in Worker(task).open().refusal
        Path("data.npz").unlink()
        assert "there is no such file" in Worker(task).open().refusal


def test_an_input_that_it_cannot_read_is_reported_and_the_others_are_certified():
    x, y = np.load("data.npz")["x"], np.load("data.npz")["y"].copy()
    y[1] = 99
    np.savez("bad.npz", x=x, y=y)
    with load() as classifier:
        _, task = make(classifier, data_on_workers=True, data="bad.npz")
        reply = opened(task).certify([0, 1, 2])
    assert made(reply).keys() == {0, 2}
    assert list(reply.bad) == [1]
    assert "input 1 has the label 99" in str(reply.bad[1])


def test_only_correct_travels_with_the_task():
    with load() as classifier:
        work, task = make(classifier, only_correct=True)
        wrong = [one._replace(label=(one.label + 1) % 3) for one in work.read([0, 1])]
        assert all(record.draws == 10 for record in opened(task).certify(wrong).records)


@pytest.mark.parametrize("kind", [NoiseKind.INPUT, NoiseKind.DATASET])
def test_manifest_and_generator_travel_with_the_model(kind):
    write_manifest(kind)
    with load(sigma=None) as classifier:
        work, task = make(classifier)
        assert sorted(task.files) == ["model.json", "model.noise.onnx", "model.onnx"]
        assert made(opened(task).certify(list(work.read([0, 1])))) == expected(classifier, [0, 1])


def test_maps_and_external_data_travel_too():
    models.external(Path("model.onnx"))
    np.savez("maps.npz", mean=np.zeros((1, 4, 4)), scale=np.full((1, 4, 4), 0.1))
    with load(sigma=None, noise="maps.npz") as classifier:
        work, task = make(classifier)
        assert sorted(task.files) == ["model.onnx", "noise/maps.npz", "weights.data"]
        assert made(opened(task).certify(list(work.read([0])))) == expected(classifier, [0])


def test_the_model_leaves_no_file_behind(tmp_path, monkeypatch):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    with load() as classifier:
        opened(make(classifier)[1])
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_worker_with_another_model_is_refused():
    with load() as classifier:
        _, task = make(classifier)
    weights = np.random.default_rng(0).normal(0, 1, (16, 3)).astype(np.float32).tobytes()  # as in models.linear
    content = bytearray(task.files["model.onnx"])
    content[content.index(weights)] ^= 1
    other = dataclasses.replace(task, files={"model.onnx": bytes(content)})
    assert Worker(other).open().refusal.startswith("its model (SHA-256) is ")
    damaged = dataclasses.replace(task, files={"model.onnx": b"no model"})
    refusal = Worker(damaged).open().refusal
    assert "it is not an ONNX model" in refusal
    assert "/tmp" not in refusal


@pytest.mark.parametrize("package", ["ars", "onnxruntime", "numpy", "scipy"])
def test_a_worker_with_another_version_is_refused(package):
    with load() as classifier:
        _, task = make(classifier)
    other = dataclasses.replace(task, expected={**task.expected, f"version of {package}": "0.0.1"})
    refusal = Worker(other).open().refusal
    assert refusal.startswith(f"its version of {package} is ")
    assert refusal.endswith(", and the driver's is 0.0.1")


def test_a_worker_that_fails_the_self_test_is_refused(monkeypatch):
    with load() as classifier:
        _, task = make(classifier)
    monkeypatch.setattr("ars.engine.worker.run_checks", lambda *given: [Check("noise", False, "wrong bits")])
    assert Worker(task).open().refusal == "it fails the self-test of noise (wrong bits)"


def test_the_self_test_of_a_worker_is_that_of_its_backend():
    from ars.engine.selftest import run_checks

    assert [check.name for check in run_checks("cpu", "onnxruntime")][2:] == ["onnxruntime", "certificate, onnxruntime"]
    assert [check.name for check in run_checks("cpu", "torch")] == ["noise", "votes"], "it cannot run the small network"


def test_an_error_ends_the_chunk_and_travels_as_it_is():
    models.linear(Path("nan.onnx"), nan=True)
    with ars.load("nan.onnx", sigma=0.1, batch=16, threads=1) as classifier:
        work, task = make(classifier)
        reply = pickle.loads(pickle.dumps(opened(task).certify(list(work.read([0])))))
    assert "none of the first 10 draws has finite logits" in str(reply.error)


@pytest.mark.parametrize(
    "error",
    [
        DependentRows("row 3"),
        DataError("a.npz", "it is bad", "leave it"),
        ArgumentError("n", 0, "more"),
        StoreError(Path("a"), "b", "c"),
    ],
)
def test_errors_travel_between_processes_as_they_are(error):
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
    assert isinstance(again, ArsError)


def test_a_model_of_the_process_is_not_sent():
    classifier = ars.load(lambda x: x.reshape(len(x), -1)[:, :3], sigma=0.1, shape=(1, 4, 4), batch=16)
    with classifier, pytest.raises(ArgumentError, match="a model of this process cannot be sent to a cluster"):
        make(classifier)


@pytest.mark.parametrize("lies", [False, True])
def test_a_worker_that_lies_about_its_votes_is_found_by_an_audit(lies):
    """Its votes are of another seed, so certificates and checksums follow from them."""

    class Lying:
        def certify(self, work, ids, progress, on_given_up):
            task = make_task(work, device="cpu", threads=1, data_on_workers=False)
            worker = opened(dataclasses.replace(task, seed=task.seed + lies))
            yield from worker.certify(list(work.read(ids))).records

    with load(seed=3) as classifier:
        ars.certify_run(classifier, "data.npz", PLAN, store="run.sqlite", cluster=Lying())
    found = CliRunner().invoke(main, ["audit", "run.sqlite"])
    assert found.exit_code == int(lies), found.output
    assert ("and drawn again it is" in found.output) == lies
