"""Which backend runs a file, and what a user hears of it."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from support import models
from support.engine_runs import certify, records, refused

import ars
from ars.data.pixels import file_sha256
from ars.engine.backends import choose_backend, load_generator, load_runner
from ars.engine.cli import main
from ars.errors import MissingPackage
from ars.manifest import Manifest, ModelFile, NoiseSettings
from ars.noise import NoiseKind

pytestmark = pytest.mark.usefixtures("files")


def hide(monkeypatch, *packages):
    """Make packages look as if they were not installed."""
    for package in packages:
        monkeypatch.setitem(sys.modules, package, None)
        monkeypatch.delitem(sys.modules, f"ars.engine.runners.{package}", raising=False)


def test_every_backend_gives_the_same_counts_for_a_float_model():
    counts = {}
    for backend in ("onnxruntime", "openvino", "auto"):
        result = certify("--backend", backend, "--out", f"{backend}.sqlite", "--threads", "2")
        assert result.exit_code == 0, result.output
        counts[backend] = np.array([one[2].counts for one in records(f"{backend}.sqlite")])
    assert np.abs(counts["openvino"] - counts["onnxruntime"]).sum() / 2 <= 1
    np.testing.assert_array_equal(counts["auto"], counts["onnxruntime"])


def test_float_goes_to_onnxruntime_and_int8_to_openvino_and_the_user_hears_why():
    models.quantised(Path("model.int8.onnx"))
    assert "backend onnxruntime: no other runs FP32" in certify("--limit", "1").stderr
    told = certify("--limit", "1", "--out", "int8.sqlite", engine="model.int8.onnx")
    assert "backend openvino: INT8 runs about twice as fast there\n" in told.stderr
    quiet = certify("--limit", "2", "--out", "int8.sqlite", "--quiet", engine="model.int8.onnx")
    assert quiet.stderr == ""
    asked = certify("--limit", "1", "--out", "asked.sqlite", "--backend", "onnxruntime", engine="model.int8.onnx")
    assert "backend" not in asked.stderr
    assert records("asked.sqlite")[0][0] == 0


def test_the_manifest_says_the_precision():
    files = (ModelFile("classifier", "model.onnx", file_sha256(Path("model.onnx")), precision="int8"),)
    manifest = Manifest((1, 4, 4), ("a", "b", "c"), NoiseSettings("gaussian", NoiseKind.ISOTROPIC, 0.1), files)
    assert choose_backend(Path("model.onnx"), manifest)[0] == "openvino"
    assert choose_backend(Path("model.onnx"), None)[0] == "onnxruntime"


def test_without_openvino_int8_runs_on_onnxruntime_with_advice(monkeypatch):
    hide(monkeypatch, "openvino")
    models.quantised(Path("model.int8.onnx"))
    told = certify("--limit", "1", engine="model.int8.onnx")
    assert told.exit_code == 0, told.output
    assert "openvino is not installed; run `pip install 'ars-certify[openvino]'`" in told.stderr
    refused(certify("--backend", "openvino"), "openvino is not installed; run `pip install 'ars-certify[openvino]'`")


def test_without_onnxruntime_openvino_runs_classifiers_and_generators(monkeypatch):
    hide(monkeypatch, "onnxruntime")
    models.generator(Path("noise.onnx"), floor=0.05)
    given = ["certify", "--engine", "model.onnx", "--data", "data.npz", "--noise", "noise.onnx", "--n", "100"]
    result = CliRunner().invoke(main, [*given, "--batch", "64", "--limit", "2"])
    assert result.exit_code == 0, result.output
    assert "backend openvino: onnxruntime is not installed" in result.stderr


def test_without_any_package_the_install_line_is_said(monkeypatch):
    hide(monkeypatch, "onnxruntime", "openvino", "torch")
    refused(certify(), "onnxruntime is not installed; run `pip install 'ars-certify[cpu]'`")
    with pytest.raises(MissingPackage, match="onnxruntime is not installed"):
        load_generator(Path("model.onnx"))
    Path("model.pt").write_bytes(b"a model")
    refused(certify(engine="model.pt"), "torch is not installed; run `pip install 'ars-certify[train]'`")
    listed = CliRunner().invoke(main, ["devices"]).stdout.splitlines()
    missing = {line.split()[0]: line for line in listed if line.split()[1] == "missing"}
    assert {"onnxruntime", "openvino", "torch"} <= missing.keys()
    assert missing["openvino"].endswith("run `pip install 'ars-certify[openvino]'`")


def test_files_that_a_backend_does_not_read_and_backends_that_are_none():
    refused(certify("--backend", "torch"), "model.onnx: torch does not read such files; leave --backend out, or choose")
    Path("model.pt").write_bytes(b"a model")
    refused(
        certify("--backend", "openvino", engine="model.pt"),
        "model.pt: openvino does not read such files; leave --backend out, or choose torch",
    )
    refused(certify("--backend", "openvin"), "unknown backend 'openvin'; did you mean 'openvino'?")
    Path("bad.onnx").write_bytes(b"this is not ONNX")
    refused(certify("--backend", "openvino", engine="bad.onnx"), "bad.onnx: it is not an ONNX model; check it")


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_logits_that_are_not_finite_vote_for_nobody(backend):
    models.linear(Path("nan.onnx"), nan=True)
    refused(certify("--backend", backend, engine="nan.onnx"), "none of the first 10 draws has finite logits", status=1)


def test_from_python_the_backend_has_a_name():
    with ars.load("model.onnx", sigma=0.1, batch=64, backend="openvino") as classifier:
        assert (classifier.runner.name, classifier.why) == ("openvino", None)
    assert load_runner(Path("model.onnx")).name == "onnxruntime"


def test_devices_lists_each_backend_with_its_version():
    listed = CliRunner().invoke(main, ["devices"]).stdout
    for name in ("onnxruntime", "openvino", "torch"):
        assert any(line.split()[:3] == [name, "ready", "version"] for line in listed.splitlines())


def test_stores_of_the_files_of_a_model_have_names_of_their_own():
    models.quantised(Path("model.int8.onnx"))
    for engine in ("model.onnx", "model.int8.onnx"):
        given = ["certify", "--engine", engine, "--data", "data.npz", "--sigma", "0.1", "--n", "100", "--batch", "64"]
        assert CliRunner().invoke(main, [*given, "--limit", "1"]).exit_code == 0
        store = f"{engine}.data.npz.gaussian-0.1.sqlite"
        assert json.loads(CliRunner().invoke(main, ["inspect", store, "--json"]).stdout)["certified"] == 1
