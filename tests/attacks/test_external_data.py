"""Two models whose files are the same, byte by byte, but whose weights, in another file, differ. If the hash did not
cover the weights, both could be certified into one store, and the audit would find nothing."""

import hashlib
import os
from pathlib import Path

import numpy as np
import onnxruntime
import openvino
import pytest
from click.testing import CliRunner
from support import models

from ars.engine import runners
from ars.engine.cli import main
from ars.engine.records.store import read_records
from ars.external_data import ModelHash

BACKENDS = ("onnxruntime", "openvino")
every_backend = pytest.mark.parametrize("backend", BACKENDS)
X = np.random.default_rng(1).random((4, 1, 4, 4), dtype=np.float32)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Models `one` and `two`, whose model files are the same, and a decoy: a folder with the weights of `two`, but no
    model."""
    for name, seed in (("one", 0), ("two", 1)):
        (tmp_path / name).mkdir()
        models.external(tmp_path / name / "m.onnx", seed=seed)
    (tmp_path / "decoy").mkdir()
    (tmp_path / "decoy" / "weights.data").write_bytes((tmp_path / "two" / "weights.data").read_bytes())
    assert (tmp_path / "one" / "m.onnx").read_bytes() == (tmp_path / "two" / "m.onnx").read_bytes()
    np.savez(tmp_path / "data.npz", x=X, y=np.zeros(len(X), int))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(params=["the model's folder", "its parent", "the root", "a folder with other weights"])
def working_directory(request, home, monkeypatch):
    folders = (home / "one", home, Path("/"), home / "decoy")
    names = ["the model's folder", "its parent", "the root", "a folder with other weights"]
    monkeypatch.chdir(folders[names.index(request.param)])


class OldModel:
    """How models were read: the hash of one file, and its bytes for the library."""

    def __init__(self, path):
        self.content = path.read_bytes()
        self.hash = ModelHash(hashlib.sha256(self.content).hexdigest())

    def onnx_source(self, library=None):
        return self.content

    def close(self):
        pass


def run(*arguments):
    return CliRunner().invoke(main, list(map(str, arguments)))


def certify(home, model, backend, *arguments, inputs="0,1", store="run.sqlite", noise=("--sigma", "0.25")):
    given = ["--engine", home / model / "m.onnx", "--data", home / "data.npz", "--backend", backend, "--seed", "1"]
    draws = ["--n", "200", "--n0", "10", "--batch", "64", "--only", inputs, "--out", home / store]
    return run("certify", *given, *draws, *noise, *arguments)


def audit(home, store="run.sqlite"):
    return run("audit", home / store, "--sample", "4")


def votes(home, store):
    return {record.idx: record.certificate.counts for record in read_records(home / store)}


@every_backend
def test_libraries_take_weights_from_the_working_directory(home, monkeypatch, backend):
    """The negative control: what the libraries do with the bytes of a model."""

    def logits():
        content = (home / "one" / "m.onnx").read_bytes()
        if backend == "onnxruntime":
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 4
            session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
            return session.run(None, {"x": X})[0]
        core = openvino.Core()
        return core.compile_model(core.read_model(content), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(X)[0].copy()

    found = {}
    for folder in ("one", "two", "decoy"):
        monkeypatch.chdir(home / folder)
        found[folder] = logits()
    assert np.abs(found["one"] - found["two"]).max() > 1
    assert np.array_equal(found["two"], found["decoy"])
    monkeypatch.chdir(home)
    with pytest.raises(Exception, match="xternal data"):
        logits()


@every_backend
def test_read_as_before_two_models_are_certified_into_one_store(home, monkeypatch, backend):
    """The negative control: the attack works on the old way to read models."""
    monkeypatch.setattr(runners, "HashedModel", OldModel)
    monkeypatch.setattr("ars.engine.records.audit.hash_model", lambda path: OldModel(path).hash)
    for model, inputs in (("one", "0,1"), ("two", "2,3")):
        monkeypatch.chdir(home / model)
        assert certify(home, model, backend, inputs=inputs).exit_code == 0
        assert certify(home, model, backend, inputs="0,1,2,3", store=f"{model}.sqlite").exit_code == 0
    monkeypatch.undo()
    mixed, one, two = (votes(home, store) for store in ("run.sqlite", "one.sqlite", "two.sqlite"))
    assert mixed == {0: one[0], 1: one[1], 2: two[2], 3: two[3]}
    assert one != two


@every_backend
@pytest.mark.usefixtures("working_directory")
def test_two_models_are_not_certified_into_one_store(home, backend):
    first = certify(home, "one", backend)
    assert first.exit_code == 0, first.output
    second = certify(home, "two", backend, inputs="2,3")
    assert second.exit_code == 2
    assert "another model" in second.stderr
    assert set(votes(home, "run.sqlite")) == {0, 1}
    assert audit(home).exit_code == 0


@every_backend
@pytest.mark.usefixtures("working_directory")
def test_changed_weights_neither_resume_a_run_nor_pass_its_audit(home, backend):
    assert certify(home, "one", backend).exit_code == 0
    (home / "one" / "weights.data").write_bytes((home / "two" / "weights.data").read_bytes())
    assert certify(home, "one", backend, inputs="0,1,2").exit_code == 2
    audited = audit(home)
    assert audited.exit_code == 1, audited.output
    assert "it is not the model of the run" in audited.output
    (home / "one" / "weights.data").unlink()
    for result in (certify(home, "one", backend, inputs="0,1,2"), audit(home)):
        assert result.exit_code == 2
        assert (
            f"{home / 'one' / 'weights.data'}: it should hold weights of m.onnx, but there is no such file"
            in result.stderr
        )


@every_backend
def test_certificates_do_not_depend_on_the_working_directory(home, monkeypatch, backend):
    found = []
    for number, folder in enumerate((home / "one", home, Path("/"), home / "decoy")):
        monkeypatch.chdir(folder)
        result = certify(home, "one", backend, store=f"{number}.sqlite")
        assert result.exit_code == 0, result.output
        found.append(votes(home, f"{number}.sqlite"))
    assert found[1:] == found[:-1]


@pytest.mark.usefixtures("working_directory")
def test_noise_generators_that_differ_in_external_data_are_not_certified_into_one_store(home):
    for name, floor in (("one", 0.25), ("two", 0.5)):
        models.move_weights(models.generator(home / name / "g.onnx", floor=floor), "g.data")
    (home / "decoy" / "g.data").write_bytes((home / "two" / "g.data").read_bytes())
    assert (home / "one" / "g.onnx").read_bytes() == (home / "two" / "g.onnx").read_bytes()
    assert certify(home, "one", "onnxruntime", noise=("--noise", home / "one" / "g.onnx")).exit_code == 0
    other = certify(home, "one", "onnxruntime", noise=("--noise", home / "two" / "g.onnx"), inputs="2,3")
    assert other.exit_code == 2
    assert "noise" in other.stderr
    assert all(0.25 <= record.certificate.sigma_min < 0.5 for record in read_records(home / "run.sqlite"))
    assert audit(home).exit_code == 0


def test_a_model_that_names_a_file_outside_its_folder_is_refused(home):
    target = home / "two" / "weights.data"
    for location in (str(target), "../two/weights.data", os.path.relpath(target, "/")):
        model = models.external_model(location)
        (home / "one" / "m.onnx").write_bytes(model.SerializeToString())
        for backend in BACKENDS:
            result = certify(home, "one", backend)
            assert result.exit_code == 2
            named = str(home / "one" / location) if not location.startswith(("/", "..")) else repr(location)
            assert named in result.stderr
    assert not (home / "run.sqlite").exists()
