"""`ars-engine inspect` on every kind of file."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from support import models
from support.engine_runs import refused, write_manifest

from ars.data.pixels import file_sha256
from ars.engine.cli import main
from ars.manifest import EngineBuild, Manifest, ModelFile, NoiseSettings, Parity, Profile
from ars.noise import NoiseKind

pytestmark = pytest.mark.usefixtures("files")


def inspect(name):
    result = CliRunner().invoke(main, ["inspect", name, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_classifier_without_a_manifest():
    models.quantised(Path("q.onnx"))
    facts = inspect("q.onnx")
    assert (facts["role"], facts["precision"], facts["input"], facts["batch"]) == (
        "classifier",
        "int8",
        "1 x 4 x 4",
        "any",
    )
    assert facts["backend"] == "openvino: INT8 runs about twice as fast there"
    assert facts["manifest"] == "none; give --sigma or --noise to certify it"


def test_a_generator_with_and_without_a_manifest():
    models.generator(Path("maps.onnx"))
    assert (inspect("maps.onnx")["role"], inspect("maps.onnx")["manifest"]) == ("noise", "none")
    write_manifest()
    facts = inspect("model.noise.onnx")
    assert (facts["role"], facts["gives"], facts["noise"]) == ("noise", "mean and scale", "laplace, input, sigma0 0.05")


def test_an_engine_says_what_it_was_built_for_without_a_gpu():
    Path("model.trt").write_bytes(b"engine")
    assert inspect("model.trt") == {
        "file": "model.trt",
        "role": "engine",
        "sha256": file_sha256(Path("model.trt")),
        "manifest": "none",
    }
    build = EngineBuild("tensorrt_rtx", "1.7", ("8.6", "9.0"), Profile(1, 256, 1024), "model.onnx", "0" * 64)
    parity = Parity("torch", "openvino 2026.4", 8, 4000, 0.01, 0.995, None)
    files = (ModelFile("engine", "model.trt", file_sha256(Path("model.trt")), "fp16", parity, build),)
    noise = NoiseSettings("gaussian", NoiseKind.DATASET, 0.5)
    Manifest((1, 4, 4), ("a", "b", "c"), noise, files).write(Path("model.json"))
    facts = inspect("model.trt")
    assert facts["built by"] == "tensorrt_rtx 1.7, from model.onnx"
    assert facts["compute capability"] == "8.6, 9.0"
    assert facts["batch"] == "1 to 1024, made for 256"
    assert facts["parity"] == "99.50% of 4,000 noisy draws have the top class of torch"
    assert facts["scope"] == "global"


def test_a_manifest_says_which_files_are_as_they_were():
    write_manifest()
    assert inspect("model.json")["model.onnx"] == "classifier, fp32, as written"
    models.linear(Path("model.onnx"), seed=1)
    Path("model.noise.onnx").unlink()
    facts = inspect("model.json")
    assert facts["model.onnx"] == "classifier, fp32, CHANGED"
    assert facts["model.noise.onnx"] == "noise, fp32, missing"
    assert (facts["classes"], facts["scope"]) == (3, "frozen")


def test_files_that_are_nothing_are_refused():
    Path("other.json").write_text("{}")
    Path("text.onnx").write_text("hello")
    Path("text.pt").write_text("hello")
    for name, message in [
        ("other.json", "other.json: it is not a manifest"),
        ("text.onnx", "text.onnx: it is not an ONNX model"),
        ("text.pt", "text.pt: it"),
        ("none.onnx", "none.onnx: there is no such file"),
    ]:
        refused(CliRunner().invoke(main, ["inspect", name]), message)
