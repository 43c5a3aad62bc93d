"""Exports of models with weights in files of their own: as torch writes them, and as we write them beyond 2 GB."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from click.testing import CliRunner
from support import models
from support.export_runs import SHAPE, refused, run, write_model
from torch import nn

from ars.data.pixels import file_sha256
from ars.engine.cli import main
from ars.engine.runners.onnxruntime import OnnxRuntime
from ars.errors import ModelError
from ars.export import onnx_files, pipeline
from ars.export.tensorrt import BuildOptions, Flavour, build_engine
from ars.external_data import hash_model
from ars.manifest import Profile, manifest_beside

OWN = ["--sigma", "0.25", "--calibration", "data.npz", "--tensorrt", "off", "--min-agreement", "0.5"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """mine.onnx and mine.onnx.data, as torch writes them, and data.npz to calibrate on."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.savez("data.npz", x=rng.random((40, *SHAPE), dtype=np.float32), y=np.arange(40) % 3)
    write_torch(tmp_path / "mine.onnx")
    return tmp_path


def write_torch(path, seed=0):
    torch.manual_seed(seed)
    layers = [nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(512, 3)]
    module, shapes = nn.Sequential(*layers).eval(), ({0: torch.export.Dim("n")},)
    with onnx_files.silence():
        program = torch.export.export(module, (torch.zeros(2, *SHAPE),), dynamic_shapes=shapes)
        torch.onnx.export(program, (), path, input_names=["x"], output_names=["logits"], external_data=True)
    assert [file.path for file in hash_model(path).external] == [f"{path.name}.data"]


def engine(*arguments):
    return CliRunner().invoke(main, list(map(str, arguments)))


def certify(model, store, *arguments):
    given = ["--data", "data.npz", "--n", "200", "--n0", "10", "--batch", "64", "--limit", "4"]
    return engine("certify", "--engine", model, "--out", store, *given, *arguments)


def test_what_torch_writes_with_external_data_is_exported_certified_audited_and_inspected(folder, monkeypatch):
    before = {name: file_sha256(folder / name) for name in ("mine.onnx", "mine.onnx.data")}
    result = run("mine.onnx", "--precision", "fp16,int8", *OWN)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == ["mine.noise.onnx", "mine.fp16.onnx", "mine.int8.onnx", "mine.json"]
    assert {name: file_sha256(folder / name) for name in before} == before
    listed = json.loads((folder / "mine.json").read_text())["files"]
    assert listed[0]["external"] == [{"path": "mine.onnx.data", "sha256": before["mine.onnx.data"]}]
    assert all("external" not in file for file in listed[1:])

    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    (elsewhere / "mine.onnx.data").write_bytes(bytes(2**16))
    (elsewhere / "data.npz").symlink_to("../data.npz")
    for name in ("mine.onnx", "mine.int8.onnx"):
        certified = certify(folder / name, f"{name}.sqlite")
        assert certified.exit_code == 0, certified.output
        audited = engine("audit", f"{name}.sqlite", "--engine", folder / name, "--data", "data.npz", "--sample", "2")
        assert audited.exit_code == 0, audited.output
    facts = json.loads(engine("inspect", folder / "mine.onnx", "--json").stdout)
    assert (facts["external data"], facts["sha256"]) == ("mine.onnx.data", listed[0]["sha256"])
    assert facts["sha256"] == hash_model(folder / "mine.onnx").sha256 != before["mine.onnx"]
    assert "external data" not in json.loads(engine("inspect", folder / "mine.int8.onnx", "--json").stdout)
    facts = json.loads(engine("inspect", folder / "mine.json", "--json").stdout)
    assert facts["mine.onnx"] == "classifier, fp32, as written"
    assert facts["mine.onnx.data"] == "external data of mine.onnx, as written"


def test_external_data_that_changed_since_the_manifest_was_written_is_refused_with_its_name(folder):
    assert run("mine.onnx", *OWN).exit_code == 0
    data = folder / "mine.onnx.data"
    before = data.read_bytes()
    data.write_bytes(bytes([before[0] ^ 1]) + before[1:])
    problem = "it is not the file that the manifest was written for; export the model again"
    with pytest.raises(ModelError) as changed:
        manifest_beside(folder / "mine.onnx")
    assert str(changed.value) == f"{data}: {problem}"
    for result in (certify("mine.onnx", "run.sqlite"), engine("inspect", "mine.onnx")):
        assert result.exit_code == 2
        assert f"mine.onnx.data: {problem}" in result.stderr
    assert refused("mine.onnx", "--calibration", "data.npz").startswith(f"mine.onnx.data: {problem}")
    facts = json.loads(engine("inspect", "mine.json", "--json").stdout)
    assert facts["mine.onnx"] == "classifier, fp32, CHANGED"
    assert facts["mine.onnx.data"] == "external data of mine.onnx, CHANGED"
    data.unlink()
    facts = json.loads(engine("inspect", "mine.json", "--json").stdout)
    assert "it should hold weights of mine.onnx, but there is no such file" in facts["mine.onnx"]
    assert facts["mine.onnx.data"] == "external data of mine.onnx, missing"
    assert refused("mine.onnx", *OWN).startswith(
        "mine.onnx.data: it should hold weights of mine.onnx, but there is no such"
    )
    # If the model file itself changed, it is the one that is named.
    data.write_bytes(before)
    model = onnx.load("mine.onnx", load_external_data=False)
    model.producer_name = "another"
    Path("mine.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=r"mine.onnx: it is not the file that the manifest was written for"):
        manifest_beside(folder / "mine.onnx")


def test_external_data_goes_where_the_model_goes(folder):
    models.external(folder / "deep.onnx", "weights/deep.data")
    np.savez("small.npz", x=np.random.default_rng(0).random((40, 1, 4, 4), dtype=np.float32))
    given = ["--sigma", "0.25", "--calibration", "small.npz", "--tensorrt", "off", "-o", "out"]
    result = run("deep.onnx", *given)
    assert result.exit_code == 0, result.output
    files = ["out/weights/deep.data", "out/deep.onnx", "out/deep.noise.onnx", "out/deep.json"]
    assert result.stdout.splitlines() == files
    assert hash_model(Path("out/deep.onnx")) == hash_model(Path("deep.onnx"))
    assert manifest_beside(Path("out/deep.onnx")) is not None
    assert run("deep.onnx", *given).exit_code == 0
    # A new version of the same model takes the place of the old one, but no file that is not the model's is lost.
    models.external(folder / "deep.onnx", "weights/deep.data", seed=1)
    assert run("deep.onnx", *given).exit_code == 0
    Path("out/other.data").write_bytes(b"of another model")
    models.external(folder / "deep.onnx", "other.data")
    message = "out/other.data: it exists, and the export would overwrite it with external data; save the model again"
    assert refused("deep.onnx", *given).startswith(message)
    models.external(folder / "deep.onnx", "deep.noise.onnx")
    message = "deep.noise.onnx: external data and another file have this name; save the model again with another name"
    assert refused("deep.onnx", *given[:-2]).startswith(message)


@pytest.mark.parametrize("spoil", ["missing", "outside"])
def test_an_export_refuses_external_data_with_its_name(folder, spoil):
    if spoil == "missing":
        Path("mine.onnx.data").unlink()
        expected = (
            "mine.onnx.data: it should hold weights of mine.onnx, but there is no such file; keep the files of a model"
        )
    else:
        Path("mine.onnx").write_bytes(models.external_model("../mine.onnx.data").SerializeToString())
        expected = "mine.onnx: its tensor 'W' is in '../mine.onnx.data', which is not a plain path inside the model's"
    assert refused("mine.onnx", *OWN).startswith(expected)


def test_weights_of_more_than_2_gb_are_written_as_external_data(folder, monkeypatch):
    """With a smaller number in the place of 2 GB."""
    write_model(folder / "model.pt")
    plain = run("model.pt", "-o", "plain", "--tensorrt", "off")
    assert plain.exit_code == 0, plain.output
    monkeypatch.setattr(onnx_files, "MAX_BYTES", 1000)
    large = run("model.pt", "--tensorrt", "off")
    assert large.exit_code == 0, large.output
    assert large.stdout.splitlines() == ["model.onnx.data", "model.onnx", "model.noise.onnx", "model.json"]
    assert [file.path for file in manifest_beside(folder / "model.onnx").entry("model.onnx").external] == [
        "model.onnx.data"
    ]
    assert str(folder).encode() not in Path("model.onnx").read_bytes()
    x = np.random.default_rng(0).random((4, *SHAPE), dtype=np.float32)
    assert np.array_equal(OnnxRuntime(Path("model.onnx")).run(x), OnnxRuntime(Path("plain/model.onnx")).run(x))
    monkeypatch.setattr(pipeline, "MAX_BYTES", 1000)
    assert refused("model.pt", "--precision", "int8", "--tensorrt", "off") == (
        "model.pt: it has 0.0 GiB of weights, but int8 is made from less than 2; omit int8"
    )


def test_an_engine_is_built_from_external_data(folder, monkeypatch):
    rtx = Flavour("tensorrt_rtx", pytest.importorskip("tensorrt_rtx"))
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    plan, build = build_engine(folder / "mine.onnx", rtx, BuildOptions(Profile(1, 64, 256)))
    assert b"trt" in plan[:4]
    assert build.source_sha256 == hash_model(folder / "mine.onnx").sha256
