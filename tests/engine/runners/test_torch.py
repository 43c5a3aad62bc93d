"""A model.pt on PyTorch: the certificates of the ONNX file that was exported from it."""

import json
import warnings

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from ars.engine.cli import main
from ars.engine.records.store import read_records
from ars.engine.runners.torch import Torch
from ars.errors import ModelError
from ars.export.cli import main as export
from ars.noise import NoiseKind
from ars.train.batches import Images
from ars.train.model_file import ModelSettings, build, write_model_file
from ars.train.noise_models import NoiseShape

SHAPE = (1, 12, 12)


def write_model(path, kind="isotropic", state=None):
    torch.manual_seed(0)
    settings = ModelSettings(
        "cnn", SHAPE, ("a", "b", "c"), (0.5,), (0.25,), "gaussian", NoiseKind(kind), NoiseShape(0.5)
    )
    model = build(settings)
    for parameter in model.noise.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    write_model_file(path, settings, model, {}, Images(torch.rand(32, *SHAPE), torch.arange(32) % 3), state)
    return model.eval()


def certify(engine, out):
    given = ["certify", "--engine", engine, "--data", "data.npz", "--n", "4000", "--n0", "96", "--batch", "512"]
    result = CliRunner().invoke(main, [*given, "--out", out])
    assert result.exit_code == 0, result.output
    return result.stderr, list(read_records(out))


@pytest.mark.parametrize("kind", NoiseKind)
def test_model_pt_gives_the_counts_of_its_onnx_file(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path / "model.pt", kind)
    exported = CliRunner().invoke(export, ["model.pt"])
    assert exported.exit_code == 0, exported.output
    np.savez("data.npz", x=np.random.default_rng(0).random((5, *SHAPE), dtype=np.float32), y=np.zeros(5, int))
    said, ours = certify("model.pt", tmp_path / "torch.sqlite")
    assert "backend torch: it runs a model.pt as it was trained" in said
    _, theirs = certify("model.onnx", tmp_path / "onnx.sqlite")
    counts = np.array([[record.certificate.counts for record in records] for records in (ours, theirs)])
    assert counts.sum() == 2 * 5 * 4000
    assert np.abs(counts[0] - counts[1]).sum() / 2 <= 5 * 4000 / 10_000
    for a, b in zip(ours, theirs, strict=True):
        assert a.certificate.scope == b.certificate.scope
        assert a.certificate.sigma_min == pytest.approx(b.certificate.sigma_min, rel=1e-6)


def test_inspect_says_what_a_model_pt_is(tmp_path):
    write_model(tmp_path / "model.pt", "dataset")
    result = CliRunner().invoke(main, ["inspect", str(tmp_path / "model.pt"), "--json"])
    facts = json.loads(result.stdout)
    assert (facts["role"], facts["input"], facts["names"]) == ("classifier", "1 x 12 x 12", "a, b, c")
    assert (facts["noise"], facts["scope"]) == ("gaussian, dataset, sigma0 0.5", "global")


def test_one_thread_a_lane_and_the_earlier_number_after_that(tmp_path):
    model = write_model(tmp_path / "model.pt")
    seen, before = [], torch.get_num_threads()
    runner = Torch(tmp_path / "model.pt")
    runner._classifier.register_forward_hook(lambda *_: seen.append(torch.get_num_threads()))
    x = np.random.default_rng(0).random((7, *SHAPE), dtype=np.float32)
    try:
        torch.set_num_threads(2)
        logits = runner.run(x)
        assert (seen, torch.get_num_threads()) == ([1], 2)
    finally:
        torch.set_num_threads(before)
    with torch.no_grad():
        np.testing.assert_allclose(logits, model.classifier(torch.from_numpy(x)), atol=1e-5)


def test_a_model_that_is_not_ready_is_refused(tmp_path):
    write_model(tmp_path / "half.pt", state={"epoch": 1})
    (tmp_path / "text.pt").write_text("hello")
    torch.save({"weights": torch.zeros(1)}, tmp_path / "other.pt")
    with warnings.catch_warnings(action="ignore"):  # TorchScript is deprecated
        torch.jit.save(torch.jit.trace(torch.nn.Flatten(), torch.zeros(2, 3)), tmp_path / "script.pt")
    for name, message in [
        ("none.pt", "there is no such file"),
        ("text.pt", "it"),
        ("other.pt", "it was not written by ars-train"),
        ("script.pt", "it is a TorchScript file; run `ars-export` on it, and use the ONNX file that it writes"),
        ("half.pt", "its training has not finished; resume it with `ars-train --resume`"),
    ]:
        with pytest.raises(ModelError, match=f"{name}: {message}") as refused:
            Torch(tmp_path / name)
        assert "\n" not in str(refused.value)
