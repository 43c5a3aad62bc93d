"""`ars-bench attack` on linear classifiers, whose smallest attacks are known in closed form.

A linear classifier of two classes answers by the sign of w x + b. Symmetric noise leaves the smoothed classifier's
answer the same, so the smallest attack ends on the plane w x + b = 0.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from onnx import helper
from support import models
from support.engine_runs import refused
from support.stores import forge
from torch import nn

from ars.bench.attack import run as attack_module
from ars.bench.attack.attack_file import Success, attack_path, read_attacks
from ars.bench.attack.search import find_smallest
from ars.bench.cli import main as bench
from ars.engine.cli import main as engine
from ars.engine.records.store import read_header
from ars.train.smoothing import SmoothedModel

SHAPE, SIGMA = (1, 4, 4), 0.25
DENSE = np.random.default_rng(0).normal(0, 1, 16).astype(np.float32)
SPARSE = np.where(np.arange(16) == 5, 1.0, 0.0).astype(np.float32)
PULL = 3.0
"""The mean of `write_generator` in units of the input."""


def write_linear(weights):
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("MatMul", ["flat", "W"], ["product"]),
        helper.make_node("Add", ["product", "b"], ["logits"]),
    ]
    W = np.stack([-weights, weights], 1)
    b = np.array([0.5 * weights.sum(), -0.5 * weights.sum()], np.float32)
    given = [models.value("x", "n", *SHAPE)], [models.value("logits", "n", 2)], [("W", W), ("b", b)]
    return models.save(Path("model.onnx"), nodes, *given)


def write_generator():
    """mean = PULL (x - 1/2), scale = SIGMA: it moves the middle of the noise further than the input is moved."""
    nodes = [
        helper.make_node("Sub", ["x", "half"], ["centred"]),
        helper.make_node("Mul", ["centred", "pull"], ["mean"]),
        helper.make_node("Mul", ["x", "zero"], ["nothing"]),
        helper.make_node("Add", ["nothing", "sigma"], ["scale"]),
    ]
    weights = [("half", 0.5), ("pull", PULL), ("zero", 0), ("sigma", SIGMA)]
    outputs = [models.value("mean", "n", *SHAPE), models.value("scale", "n", *SHAPE)]
    named = [(name, np.float32(value)) for name, value in weights]
    return models.save(Path("noise.onnx"), nodes, [models.value("x", "n", *SHAPE)], outputs, named)


class Pulled(nn.Module):
    def forward(self, x):
        return PULL * (x - 0.5), torch.full_like(x, SIGMA)


def margin(x, weights):
    return abs((weights.astype(np.float64) * (x.reshape(len(x), -1) - 0.5)).sum(1))


@pytest.fixture
def linear(tmp_path, monkeypatch, one_thread):
    """A function that certifies inputs at known distances from the plane of a linear classifier."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)

    def make(weights=DENSE, noise=("--sigma", SIGMA), *, sign=1.0, dual=2, shrink=1.0):
        write_linear(weights)
        head = nn.Linear(16, 2)
        head.weight.data = torch.from_numpy(sign * np.stack([-weights, weights]))
        head.bias.data = torch.from_numpy(sign * np.array([0.5, -0.5], np.float32) * weights.sum())
        model = SmoothedModel(nn.Sequential(nn.Flatten(), head), Pulled(), SIGMA)
        monkeypatch.setattr(attack_module, "load_gradients", lambda *given: model.requires_grad_(False))
        Path("gradients.pt").touch()
        # Four inputs at one to two scales from the plane, in the norm of the noise.
        distances = SIGMA * np.linspace(1, 2, 4) * shrink
        away = np.sign(weights) * (abs(weights) == abs(weights).max()) if dual == np.inf else weights
        along = away / (away @ weights) * np.linalg.norm(weights, dual)
        x = 0.5 + np.outer(distances * np.array([1, -1, 1, -1]), along)
        np.savez("data.npz", x=x.reshape(4, *SHAPE).astype(np.float32), y=np.array([1, 0] * 2))
        given = ["--engine", "model.onnx", "--data", "data.npz", "--n", 20_000, "--batch", 512, "--seed", 0]
        words = ["certify", *given, *noise, "--out", "run.sqlite", "--quiet"]
        result = CliRunner().invoke(engine, list(map(str, words)))
        assert result.exit_code == 0, result.output
        return np.load("data.npz")["x"]

    return make


OPTIONS = ("--draws", "16", "--restarts", "2")


def attack(*more, n=40_000):
    given = ["attack", "run.sqlite", "--model", "gradients.pt", "--n", n, *OPTIONS, "--seed", 7, *more]
    return CliRunner().invoke(bench, list(map(str, given)))


def results(store="run.sqlite"):
    found = read_attacks(Path(store), read_header(Path(store)).settings)
    assert found is not None
    return found


def test_the_attack_on_gaussian_noise_is_close_to_the_exact_radius(linear):
    x = linear()
    result = attack()
    assert result.exit_code == 0, result.output
    settings, attacked = results()
    exact = margin(x, DENSE) / np.linalg.norm(DENSE.astype(np.float64))
    assert len(attacked) == 4
    for one, radius in zip(attacked, exact, strict=True):
        # No attack is smaller than the exact one. A test of 40,000 draws needs a lead that begins 0.036 scales beyond.
        assert radius < one.success.length < 1.08 * radius
        assert one.radius < radius
        assert one.success.answer == 1 - one.predicted
        assert one.upper_radius == pytest.approx(one.success.length, rel=1e-5)
        assert sum(one.success.counts) == settings.n
        assert one.success.level >= settings.alpha / (one.tests * (one.tests + 1))
    assert "the answer changes for 0 of 4 inputs" in result.stdout
    assert "at most 0.004 contradictions are expected" in result.stdout


def test_the_attack_on_laplace_noise_is_close_to_the_exact_radius_in_l1(linear):
    x = linear(SPARSE, ["--sigma", SIGMA, "--family", "laplace"], dual=np.inf)
    assert attack().exit_code == 0
    for one, radius in zip(results()[1], margin(x, SPARSE), strict=True):
        assert radius < one.success.length < 1.08 * radius


def test_the_attack_on_a_scale_map_is_close_to_the_exact_region(linear):
    """The smallest ||delta / s|| that reaches the plane is its distance over ||w s||."""
    scale = np.linspace(0.2, 1.2, 16, dtype=np.float32)
    np.savez("maps.npz", mean=np.zeros(SHAPE, np.float32), scale=scale.reshape(SHAPE))
    x = linear(noise=["--noise", "maps.npz"], shrink=3)
    assert attack().exit_code == 0
    exact = margin(x, DENSE) / np.linalg.norm(DENSE.astype(np.float64) * scale)
    settings, attacked = results()
    assert not settings.moves_maps
    for one, K in zip(attacked, exact, strict=True):
        assert K < one.success.measure < 1.12 * K
        assert one.success.length > one.upper_radius  # the region reaches further where the scale is larger


def inflate(factor):
    forge("run.sqlite", f"UPDATE certificates SET K = K * {factor}, radius = radius * {factor}")


def test_certificates_that_claim_too_much_are_contradicted(linear):
    x = linear()
    inflate(1.5)
    result = refused(attack(), "CONTRADICTION", "of 4 of 4 inputs (0, 1, 2, 3)", "probability of at most", status=1)
    assert "the answer changes for 4 of 4 inputs" in result.stdout
    # The evidence can be checked by two other commands.
    perturbed = Path("run.contradiction-0.npy")
    assert np.linalg.norm(np.load(perturbed) - x[0]) < results()[1][0].radius
    covers = ["covers", "run.sqlite", "--input", "0", "--perturbed", str(perturbed)]
    assert "is covered" in CliRunner().invoke(engine, covers).stdout
    np.savez("moved.npz", x=np.load(perturbed)[None])
    predict = ["predict", "--engine", "model.onnx", "--data", "moved.npz", "--sigma", str(SIGMA), "--n", "40000"]
    assert CliRunner().invoke(engine, predict).stdout.splitlines()[-1].split("\t")[2] == "0"


def test_the_probability_of_contradictions_follows_from_both_alphas(linear):
    from ars.bench.attack.show import Contradictions
    from ars.engine.records.stored_run import read_run

    linear()
    inflate(1.5)
    attack("--limit", 3)
    found = Contradictions(read_run("run.sqlite"), *results())
    rate = 0.001 + 1e-6
    assert (found.expected, found.attacked) == (pytest.approx(3 * rate), 3)
    assert found.probability == pytest.approx(rate**3)


def test_an_attack_moves_the_maps_of_a_generator_and_says_what_the_scope_leaves_out(linear):
    """The middle of the noise moves 1 + PULL times as far as the input, so this is how much smaller the attacks are
    than those on the classifier whose noise is frozen."""
    write_generator()
    x = linear(noise=["--noise", "noise.onnx"], shrink=1 / (1 + PULL))
    result = attack()
    assert result.exit_code == 0, result.output
    settings, attacked = results()
    assert settings.moves_maps
    exact = margin(x, DENSE) / np.linalg.norm(DENSE.astype(np.float64))
    for one, radius in zip(attacked, exact, strict=True):
        assert radius < one.success.length < 1.08 * radius
        assert one.radius == pytest.approx((1 + PULL) * radius, rel=0.15)
        assert one.inside
    assert "the answer changes for 4 of 4 inputs" in result.stdout
    assert "what the scope leaves out" in result.stdout.replace("\n", " ")
    assert not list(Path().glob("*.contradiction-*"))


def test_maps_of_each_input_from_a_file_do_not_move_and_are_contradicted(linear):
    scale = np.full((4, *SHAPE), SIGMA, np.float32)
    np.savez("maps.npz", mean=np.zeros_like(scale), scale=scale)
    linear(noise=["--noise", "maps.npz"])
    assert attack("--limit", 2).exit_code == 0
    attack_path(Path("run.sqlite")).unlink()
    inflate(1.5)
    refused(attack("--limit", 2), "CONTRADICTION", "of 2 of 2 inputs", status=1)


def test_what_only_the_gradients_believe_is_no_success(linear):
    """Gradients of the opposite classifier lead away from the plane."""
    linear(sign=-1.0)
    result = attack("--limit", 2, "--reach", 1.5)
    assert result.exit_code == 0, result.output
    assert [one.success for one in results()[1]] == [None, None]
    assert "No attack was found on 2 inputs" in result.stdout
    assert "no attack found up to 1.5" in result.stderr
    assert "none" in result.stdout


def lines():
    return [json.loads(line) for line in attack_path(Path("run.sqlite")).read_text().splitlines()]


def without_times(found):
    return [{name: value for name, value in line.items() if name != "seconds"} for line in found]


def test_an_interrupted_attack_is_resumed_and_ends_as_if_it_had_never_been(linear):
    linear()
    assert attack().exit_code == 0
    whole, path = lines(), attack_path(Path("run.sqlite"))
    # It was stopped while the third line was being written.
    kept = path.read_text().splitlines(keepends=True)
    path.write_text("".join(kept[:3]) + kept[3][:40])
    words = ["attack", "run.sqlite", "--model", "gradients.pt", "--n", "40000", *OPTIONS]
    again = CliRunner().invoke(bench, words)
    assert again.exit_code == 0, again.output  # without --seed, the earlier one is kept
    assert "input 1:" not in again.stderr
    assert "input 2:" in again.stderr
    assert lines()[:3] == whole[:3]
    assert without_times(lines()) == without_times(whole)
    done = path.read_bytes()
    assert attack().exit_code == 0
    assert path.read_bytes() == done


def test_bad_input_is_refused_in_one_sentence(linear):
    linear()
    assert attack("--limit", 1).exit_code == 0
    refused(attack("--limit", 1, n=500), "run.attack.jsonl: its attacks were made with n = 40000")
    refused(CliRunner().invoke(bench, ["attack", "run.sqlite"]), "an attack needs gradients", "--model")
    refused(attack("--alpha", 0), "alpha = 0")
    refused(attack("--engine", "noise.onnx"), "noise.onnx: there is no such file")
    refused(attack("--engine", "data.npz"), "data.npz: it is not the model of the run")
    refused(attack("--data", "maps.npz"), "maps.npz: it is not there, or not the data of the run")
    path = attack_path(Path("run.sqlite"))
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 1'))
    refused(attack(), "run.attack.jsonl: its attacks were made with another run")
    path.write_text('{"format": 9}\n')
    refused(attack(), "its format is 9")
    path.write_text("[]\n")
    refused(attack(), "it is not a file of attacks")
    path.unlink()
    path.mkdir()
    refused(attack(), "it cannot be written")
    forge("run.sqlite", "UPDATE certificates SET predict = -1, K = 0, radius = 0")
    refused(attack(), "run.sqlite: it has no certified inputs")


def test_the_search_ends_close_to_the_smallest_success_and_at_its_limit():
    tried = []

    def propose(size, earlier):
        tried.append(size)
        return size, size > 1.7

    def confirm(size):
        return Success(1, size, size, (0, 1, 0), 0.1) if size > 2 else None

    found = find_smallest(1.0, 3.0, propose, confirm)
    assert found is not None
    assert 2 < found[1].measure < 2.05
    assert found[0] == found[1].measure
    assert tried[0] < 1 < tried[1]
    assert find_smallest(1.0, 1.9, propose, confirm) is None
    assert tried[-1] == 1.9
    small = find_smallest(5.0, 15.0, propose, confirm)  # a success inside is made as small as possible
    assert small is not None
    assert 2 < small[1].measure < 2.05
