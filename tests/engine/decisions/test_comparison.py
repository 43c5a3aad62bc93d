"""`ars-engine compare`: paired on common inputs, with one sentence at the end."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from statsmodels.stats.multitest import multipletests
from support import models
from support.engine_runs import certify, refused
from support.stores import forge

from ars.engine.cli import main
from ars.engine.decisions.comparison import adjust, compare_runs
from ars.engine.records.stored_run import read_run

pytestmark = pytest.mark.usefixtures("files")


def compare(*arguments):
    return CliRunner().invoke(main, ["compare", *arguments])


@pytest.fixture
def runs(files):
    certify("--sigma", "0.1", "--out", "a.sqlite")
    certify("--sigma", "0.3", "--limit", "30", "--out", "b.sqlite")
    return ["a.sqlite", "b.sqlite"]


def test_pairs_are_counted_on_common_inputs(runs):
    found = compare_runs(*map(read_run, runs), [0.05, 0.3])
    assert (found.inputs, found.only_first, found.only_second) == (30, 10, 0)
    one, other = ({record.idx: record for record in read_run(path).records} for path in runs)
    for pair in found.pairs:
        first, second = (
            np.array([run[i].correct and run[i].certificate.radius >= pair.radius for i in range(30)])
            for run in (one, other)
        )
        assert (pair.first, pair.second) == (first.mean(), second.mean())
        assert (pair.gained, pair.lost) == ((second & ~first).sum(), (first & ~second).sum())
        assert pair.difference.low <= pair.second - pair.first <= pair.difference.high
    assert [name for name, _, _ in found.settings] == ["sigma", "lattice_step"]


def test_the_verdict_is_one_sentence(runs):
    better = compare(*runs, "--radii", "0.21")  # out of reach with sigma 0.1
    assert better.stdout.splitlines()[-1] == "b is better than a at radius 0.21."
    worse = compare(*reversed(runs), "--radii", "0.21")
    assert worse.stdout.splitlines()[-1] == "a is worse than b at radius 0.21."
    same = compare("a.sqlite", "a.sqlite", "--radii", "0.05")
    assert "is not distinguishable from" in same.stdout.splitlines()[-1]
    content = json.loads(compare(*runs, "--radii", "0.21", "--json").stdout)
    assert content["verdict"] == "b is better than a at radius 0.21."


def test_p_values_are_adjusted_as_statsmodels_does():
    p = [0.01, 0.04, 0.03, 0.2, 0.005]
    assert adjust(p) == pytest.approx(multipletests(p, method="holm")[1])


def test_changed_answers_are_listed(runs):
    forge("b.sqlite", "UPDATE certificates SET predict = -1 WHERE idx IN (3, 17)")
    assert set(compare_runs(*map(read_run, runs), [0.0]).changed) >= {3, 17}


def test_runs_that_cannot_be_compared_are_refused(runs):
    np.savez("other.npz", x=np.load("data.npz")["x"], y=np.roll(np.load("data.npz")["y"], 1))
    certify("--data", "other.npz", "--out", "c.sqlite", "--limit", "3")
    said = "of 3 have other labels (input "
    refused(compare("a.sqlite", "c.sqlite"), "c.sqlite: its data is other.npz", "that of a.sqlite is data.npz", said)
    certify("--only", "35-39", "--sigma", "0.1", "--out", "d.sqlite")
    refused(compare("b.sqlite", "d.sqlite"), "d.sqlite: it has no input of b.sqlite")
    certify("--family", "laplace", "--limit", "3", "--out", "e.sqlite")
    refused(compare("a.sqlite", "e.sqlite"), "e.sqlite: its radii are in l1")
    forge("b.sqlite", "UPDATE certificates SET label = 1 - label WHERE idx = 4 AND label < 2")
    forge("b.sqlite", "UPDATE certificates SET label = 0 WHERE idx = 4 AND label = 2")
    refused(compare(*runs), "b.sqlite: its input 4 has the label")
    forge("b.sqlite", "UPDATE certificates SET input_sha256 = 'x' WHERE idx = 0")
    refused(compare(*runs), "b.sqlite: its input 0 has other values")
    for path in runs:
        forge(path, "UPDATE certificates SET label = NULL, input_sha256 = 'x'")
    refused(compare(*runs), "b.sqlite: its inputs have no labels")


def test_what_a_comparison_leaves_open_is_said_before_the_verdict(runs):
    forge("b.sqlite", "DELETE FROM certificates WHERE idx >= 12")
    certify("--stopping", "adaptive", "--radii", "0.1", "--out", "c.sqlite")
    lines = compare("b.sqlite", "c.sqlite", "--radii", "0.05,0.1,7").stdout.splitlines()
    notes = "\n".join(line for line in lines[:-1] if line.startswith("note: "))
    assert "b: the run is not finished: 12 of the 30 inputs asked for are certified" in notes
    assert "c: adaptive stopping was not asked about the radius 0.05: with all draws" in notes
    assert "c: no certificate of 200 draws reaches the radius 7" in notes
    assert "note: " not in compare("a.sqlite", "a.sqlite", "--radii", "0.05").stdout


def test_scopes_that_differ_are_said_with_the_verdict(files):
    models.generator(Path("noise.onnx"), floor=0.1)
    certify("--out", "a.sqlite")
    command = ["certify", "--engine", "model.onnx", "--data", "data.npz", "--n", "200", "--n0", "10", "--batch", "64"]
    made = CliRunner().invoke(main, [*command, "--noise", "noise.onnx", "--out", "b.sqlite"])
    assert made.exit_code == 0, made.output
    said = compare("a.sqlite", "b.sqlite", "--radii", "0.05").stdout.splitlines()[-1]
    assert "But the scope of a is global, and that of b frozen: a frozen certificate says nothing about" in said
    assert "scope" not in compare("a.sqlite", "a.sqlite", "--radii", "0.05").stdout
    # A hash is shown by its first digits, and what a run does not have as none.
    lines = compare("a.sqlite", "b.sqlite").stdout.splitlines()
    assert "setting sigma: 0.1, then none" in lines
    assert any(re.fullmatch(r"setting generator: none, then [0-9a-f]{12}\.\.\.", line) for line in lines)
