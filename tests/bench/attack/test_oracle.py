"""The proposition of docs/frozen.md by construction: with a generator that knows the class, every input is certified as
far as the draws allow, whatever the deployed classifier does around it."""

from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from onnx import helper
from scipy import stats
from support import models
from torch import nn

from ars.bench.attack import run as attack_module
from ars.bench.attack.attack_file import read_attacks
from ars.bench.cli import main as bench
from ars.engine.cli import main as engine
from ars.engine.records.store import read_header
from ars.engine.records.stored_run import read_run
from ars.train.smoothing import SmoothedModel

SHAPE, SIGMA, N = (1, 4, 4), 0.25, 5000
SLOPE = 20.0
EDGE = 0.02
"""How far the first pixel of an input is from 1/2, where the oracle changes its mind."""
FIRST = np.eye(16, 1, dtype=np.float32)
LARGEST = SIGMA * float(stats.norm.ppf(0.001 ** (1 / N)))
"""The radius of N draws that agree: about 0.75."""


class Oracle(nn.Module):
    """mean = t - x, where t is the black or the white image: the class is told by the first pixel alone. |mean| <= 1,
    the paper's own bound."""

    def forward(self, x):
        told = (SLOPE * (x[:, :1, :1, :1] - 0.5) + 0.5).clamp(0, 1)
        return told - x, torch.full_like(x, SIGMA)


def write_oracle():
    nodes = [
        helper.make_node("Reshape", ["x", "rows"], ["flat"]),
        helper.make_node("MatMul", ["flat", "first"], ["pixel"]),
        helper.make_node("Mul", ["pixel", "slope"], ["steep"]),
        helper.make_node("Add", ["steep", "shift"], ["raw"]),
        helper.make_node("Clip", ["raw", "low", "high"], ["told"]),
        helper.make_node("Sub", ["told", "flat"], ["difference"]),
        helper.make_node("Reshape", ["difference", "images"], ["mean"]),
        helper.make_node("Mul", ["x", "low"], ["nothing"]),
        helper.make_node("Add", ["nothing", "sigma"], ["scale"]),
    ]
    numbers = {"slope": SLOPE, "shift": 0.5 - SLOPE / 2, "low": 0, "high": 1, "sigma": SIGMA}
    weights = [(name, np.float32(number)) for name, number in numbers.items()]
    weights += [("first", FIRST), ("rows", np.array([-1, 16])), ("images", np.array([-1, *SHAPE]))]
    outputs = [models.value("mean", "n", *SHAPE), models.value("scale", "n", *SHAPE)]
    models.save(Path("noise.onnx"), nodes, [models.value("x", "n", *SHAPE)], outputs, weights)


def write_classifier():
    """White or black: the class is told by the mean of the image."""
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("MatMul", ["flat", "W"], ["product"]),
        helper.make_node("Add", ["product", "b"], ["logits"]),
    ]
    W = np.outer(np.ones(16), [-1, 1]).astype(np.float32)
    given = [models.value("x", "n", *SHAPE)], [models.value("logits", "n", 2)]
    models.save(Path("model.onnx"), nodes, *given, [("W", W), ("b", np.array([8, -8], np.float32))])
    head = nn.Linear(16, 2)
    head.weight.data, head.bias.data = torch.from_numpy(W.T.copy()), torch.tensor([8.0, -8.0])
    return nn.Sequential(nn.Flatten(), head)


def run(command, *words):
    result = CliRunner().invoke(command, list(map(str, words)))
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture
def certified(tmp_path, monkeypatch, one_thread):
    """Eight inputs of noise, whose first pixel is close to the oracle's boundary; it is wrong about the last two."""
    monkeypatch.chdir(tmp_path)
    model = SmoothedModel(write_classifier(), Oracle(), SIGMA)
    monkeypatch.setattr(attack_module, "load_gradients", lambda *given: model.requires_grad_(False))
    Path("gradients.pt").touch()
    write_oracle()
    x = np.random.default_rng(0).random((8, *SHAPE), dtype=np.float32)
    told = np.arange(8) % 2
    x[:, 0, 0, 0] = 0.5 + EDGE * (2 * told - 1)
    np.savez("data.npz", x=x, y=np.where(np.arange(8) < 6, told, 1 - told))
    words = ["--engine", "model.onnx", "--noise", "noise.onnx", "--data", "data.npz", "--n", N, "--bounds", "binary"]
    run(engine, "certify", *words, "--seed", 0, "--batch", 512, "--out", "run.sqlite", "--quiet")
    return x


def predictions(x, *noise):
    """The answers of the deployed classifier."""
    np.savez("asked.npz", x=x)
    output = run(engine, "predict", "--engine", "model.onnx", "--data", "asked.npz", "--n", 1000, *noise).stdout
    rows = [line.split("\t") for line in output.splitlines()[1:]]
    return [int(row[2]) for row in sorted(rows, key=lambda row: int(row[0]))]


def test_an_oracle_certifies_its_clean_accuracy_at_every_radius_and_one_pixel_undoes_it(certified):
    x = certified
    certificates = read_run(Path("run.sqlite"))
    assert certificates.scope == "frozen"
    # Every input has the largest radius that so many draws can prove, right or wrong.
    assert all(0.999 * LARGEST < record.certificate.radius <= LARGEST for record in certificates.records)
    assert [record.certificate.predicted == record.label for record in certificates.records] == [True] * 6 + [False] * 2
    # The deployed classifier answers otherwise when one pixel moves by 0.04, less than a tenth of that.
    moved = x.copy()
    moved[:, 0, 0, 0] = 1 - x[:, 0, 0, 0]
    generator = ("--noise", "noise.onnx")
    before, after = predictions(x, *generator), predictions(moved, *generator)
    assert before == [0, 1] * 4
    assert after == [1, 0] * 4
    # The one that the certificates speak of, whose noise stays as it was, does not.
    with torch.no_grad():
        mean, scale = (part.numpy() for part in Oracle()(torch.from_numpy(x)))
    np.savez("frozen.npz", mean=mean, scale=scale)
    assert predictions(moved, "--noise", "frozen.npz") == before


def test_the_attack_finds_that_pixel(certified):
    more = ("--limit", 3, "--n", 4000, "--draws", 16, "--restarts", 2, "--seed", 7)
    result = run(bench, "attack", "run.sqlite", "--model", "gradients.pt", *more)
    found = read_attacks(Path("run.sqlite"), read_header(Path("run.sqlite")).settings)
    for one in found[1]:
        assert EDGE < one.success.length < 1.2 * EDGE
        assert one.ratio < 0.04
    assert "the answer changes for 3 of 3 inputs" in result.stdout
