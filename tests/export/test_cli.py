"""`ars-export`: the files of a model, which certify without a further word, and what it refuses."""

import numpy as np
import onnx
import pytest
import torch
from click.testing import CliRunner

from ars.engine.cli import main as engine
from ars.engine.runners.onnxruntime import OnnxGenerator, OnnxRuntime
from ars.engine.store import read_records
from ars.export.cli import main as export
from ars.manifest import manifest_beside
from ars.noise import NoiseKind
from ars.train.batches import Images
from ars.train.model_file import ModelSettings, build, write_model_file
from ars.train.noise_models import NoiseShape

SHAPE = (1, 12, 12)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_model(path, kind="input", arch="cnn", state=None):
    torch.manual_seed(0)
    bounds = NoiseShape(0.5)
    settings = ModelSettings(arch, SHAPE, ("a", "b", "c"), (0.5,), (0.25,), "laplace", NoiseKind(kind), bounds)
    model = build(settings)
    for parameter in model.noise.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    examples = Images(torch.rand(64, *SHAPE), torch.arange(64) % 3)
    write_model_file(path, settings, model, {}, examples, state)
    return model.eval()


def run(*arguments):
    return CliRunner().invoke(export, list(map(str, arguments)))


@pytest.mark.parametrize("kind", NoiseKind)
def test_the_files_of_each_kind_compute_what_torch_does(folder, kind):
    model = write_model(folder / "model.pt", kind)
    result = run("model.pt")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == ["model.onnx", "model.noise.onnx", "model.json"]
    x = torch.rand(5, *SHAPE)
    with torch.no_grad():
        logits, (mean, scale) = model.classifier(x), model.noise(x)
    np.testing.assert_allclose(OnnxRuntime(folder / "model.onnx").run(x.numpy()), logits, atol=1e-5)
    generator = OnnxGenerator(folder / "model.noise.onnx")
    for row in range(5):
        maps = generator(x[row].numpy())
        np.testing.assert_allclose(maps[0], mean[row], atol=1e-5)
        np.testing.assert_allclose(maps[1], scale[row], atol=1e-5)
    manifest = manifest_beside(folder / "model.onnx")
    assert (manifest.shape, manifest.classes) == (SHAPE, ("a", "b", "c"))
    assert (manifest.noise.kind, manifest.noise.family) == (kind, "laplace")


@pytest.mark.parametrize("kind", NoiseKind)
def test_what_was_exported_certifies_without_a_further_word(folder, kind):
    write_model(folder / "model.pt", kind)
    run("model.pt", "-o", "out")
    np.savez("data.npz", x=np.random.default_rng(0).random((4, *SHAPE), dtype=np.float32), y=np.zeros(4, int))
    given = [
        "certify",
        "--engine",
        "out/model.onnx",
        "--data",
        "data.npz",
        "--n",
        "200",
        "--batch",
        "50",
        "--out",
        "r.sqlite",
    ]
    result = CliRunner().invoke(engine, given)
    assert result.exit_code == 0, result.output
    scopes = {record.certificate.scope for record in read_records(folder / "r.sqlite")}
    assert scopes == {"frozen" if kind is NoiseKind.INPUT else "global"}


def test_a_file_holds_no_path_of_the_machine_that_made_it(folder):
    write_model(folder / "model.pt")
    run("model.pt")
    for name in ("model.onnx", "model.noise.onnx"):
        model = onnx.load(folder / name)
        assert not any(node.metadata_props for node in model.graph.node)
        assert str(folder).encode() not in (folder / name).read_bytes()
        assert b"site-packages" not in (folder / name).read_bytes()


def test_a_resnet_exports(folder):
    model = write_model(folder / "model.pt", arch="resnet20")
    assert run("model.pt").exit_code == 0
    x = torch.rand(3, *SHAPE)
    with torch.no_grad():
        np.testing.assert_allclose(OnnxRuntime(folder / "model.onnx").run(x.numpy()), model.classifier(x), atol=1e-4)


def test_what_cannot_be_exported_is_refused_and_nothing_is_written(folder):
    (folder / "text.pt").write_text("hello")
    torch.save({"weights": torch.zeros(1)}, "other.pt")
    write_model(folder / "half.pt", state={"epoch": 1})
    write_model(folder / "good.pt")
    (folder / "file").write_text("")
    for arguments, message in [
        (["none.pt"], "none.pt: there is no such file"),
        (["text.pt"], "text.pt: it"),
        (["other.pt"], "other.pt: it is not a model of ars-train"),
        (["half.pt"], "half.pt: its training is not done; go on with `ars-train --resume`"),
        (["good.pt", "-o", "file/out"], "file/out: it cannot be written"),
    ]:
        result = run(*arguments)
        assert result.exit_code == 2, result.output
        assert message in result.stderr
        assert "Traceback" not in result.output
    assert not list(folder.glob("*.onnx"))
    assert not list(folder.glob(".export-*"))
