"""`ars-engine summary`: the same numbers in every format, with their intervals."""

import csv
import io
import json
import re
import shutil
import subprocess

import numpy as np
import pytest
from click.testing import CliRunner
from support.engine_runs import certify, refused
from support.stores import forge

import ars
from ars.engine.cli import main
from ars.engine.decisions.overview import find_best, overview
from ars.engine.decisions.show import show_difference, show_interval
from ars.engine.records.stored_run import read_run
from ars.engine.statistics.accuracy import Interval, share_interval

pytestmark = pytest.mark.usefixtures("files")


def summary(*arguments):
    return CliRunner().invoke(main, ["summary", *arguments])


@pytest.fixture
def runs(files):
    """Two sigmas on 30 of 40 inputs."""
    for sigma in ("0.1", "0.2"):
        assert certify("--limit", "30", "--sigma", sigma, "--out", f"s{sigma}.sqlite").exit_code == 0
    return ["s0.1.sqlite", "s0.2.sqlite"]


def test_a_part_of_the_inputs_has_intervals_and_all_of_them_are_exact(runs):
    found = overview(read_run(runs[0]), [0.0, 0.1])
    expected = [share_interval(round(at.share * 30), 30, 40) for at in found.accuracies]
    assert [at.interval for at in found.accuracies] == expected
    assert not found.exact
    assert found.acr_interval.low < found.acr < found.acr_interval.high
    certify("--sigma", "0.1", "--out", runs[0])  # the other 10
    found = overview(read_run(runs[0]), [0.0, 0.1])
    assert found.exact
    assert all(at.interval == (at.share, at.share) for at in found.accuracies)
    assert "no sampling error" in summary(runs[0]).stdout


def test_every_format_has_the_same_numbers(runs):
    arguments = [*runs, "--radii", "0,0.1,0.2", "--format"]
    content = json.loads(summary(*arguments, "json").stdout)
    shares = [[at["share"] for at in run["accuracies"]] for run in content["runs"]]
    best = [max(pair) for pair in zip(*shares, strict=True)]
    assert content["best_over_sigma"][0]["shares"] == best
    rows = list(csv.DictReader(io.StringIO(summary(*arguments, "csv").stdout)))
    assert [float(row["certified_accuracy"]) for row in rows] == [*shares[0], *shares[1], *best]
    for form in ("text", "markdown", "latex"):
        text = summary(*arguments, form).stdout
        line = next(line for line in text.splitlines() if "best over sigma" in line)
        numbers = [f"{100 * share:.1f}" for share in best]
        assert re.findall(r"\d+\.\d(?!\d)", line)[-3:] == numbers, form


def test_the_best_over_sigma_needs_several_sigmas_of_one_data_set(runs):
    stored = [read_run(path) for path in runs]
    found = [overview(run, [0.0]) for run in stored]
    assert len(find_best(stored, found)) == 1
    assert find_best(stored[:1], found[:1]) == find_best([stored[0]] * 2, [found[0]] * 2) == []


def test_the_best_over_sigma_leaves_unfinished_runs_out(runs):
    """Its first few inputs may be easy ones."""
    forge(runs[0], "DELETE FROM certificates WHERE idx >= 2")
    result = summary(*runs)
    assert "the run is not finished: 2 of the 30" in result.stdout
    assert "best over sigma" not in result.stdout


def test_the_latex_table_is_well_formed_and_compiles(runs, tmp_path):
    shutil.copy(runs[0], "50%_&x.sqlite")
    text = summary(*runs, "50%_&x.sqlite", "--format", "latex").stdout
    assert r"50\%\_\&x" in text
    assert "All runs: noise isotropic, scope global" in text
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    columns = len(re.search(r"begin{tabular}{(\w+)}", text)[1])
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {columns - 1}
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")
    if (
        shutil.which("pdflatex")
        and shutil.which("kpsewhich")
        and subprocess.run(["kpsewhich", "booktabs.sty"], capture_output=True).stdout
    ):
        for run in runs:
            shutil.copy(run, run.replace("s0", "sigma0"))
        five = summary(
            "sigma0.1.sqlite", "sigma0.2.sqlite", "--format", "latex", "--radii", "0,0.03,0.06,0.09,0.12"
        ).stdout
        (tmp_path / "t.tex").write_text(
            "\\documentclass{article}\\usepackage{booktabs}\\begin{document}" + text + five + "\\end{document}"
        )
        run = subprocess.run(
            ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"], cwd=tmp_path, capture_output=True
        )
        assert run.returncode == 0, run.stdout.decode()[-1000:]
        assert b"Overfull" not in run.stdout, "five radii fit the page"


def test_an_unfinished_run_is_said_and_not_refused(runs):
    forge(runs[0], "DELETE FROM certificates WHERE idx >= 12")
    assert "the run is not finished: 12 of the 30 inputs asked for are certified" in summary(runs[0]).stdout


def test_runs_without_labels_have_no_accuracy(files):
    x = np.load("data.npz")["x"]
    np.savez("plain.npz", x=x)
    certify("--data", "plain.npz", "--limit", "5")
    result = summary("run.sqlite")
    assert result.exit_code == 0
    assert "no labels" in result.stdout
    assert "Certified accuracy" not in result.stdout
    for form in ("json", "csv", "markdown", "latex"):
        assert summary("run.sqlite", "--format", form).exit_code == 0


def test_inputs_without_labels_beside_others_leave_the_population_unknown(runs):
    forge(runs[0], "UPDATE certificates SET label = NULL WHERE idx = 0")
    found = overview(read_run(runs[0]), [0.0])
    (at,) = found.accuracies
    assert at.interval == share_interval(round(at.share * 29), 29)
    assert "1 inputs have no labels" in summary(runs[0]).stdout


def test_a_radius_beyond_reach_is_said(runs):
    result = summary(runs[0], "--radii", "0,7")
    assert "no certificate of 200 draws reaches the radius 7: with sigma 0.1 the largest is 0.1" in result.stdout


def test_adaptive_averages_are_at_least_so_large(files):
    certify("--stopping", "adaptive", "--radii", "0,0.1", "--limit", "5")
    assert "≥ " in summary("run.sqlite").stdout
    assert r"$\geq$" in summary("run.sqlite", "--format", "latex").stdout


def test_radii_that_adaptive_stopping_was_not_asked_about_are_said(files):
    certify("--stopping", "adaptive", "--radii", "0.05,0.1", "--limit", "5")
    said = "run: adaptive stopping was not asked about the radius 0.02, 0.08: with all draws, more inputs could be"
    assert said in summary("run.sqlite", "--radii", "0.02,0.05,0.08,0.1").stdout
    assert "not asked about" not in summary("run.sqlite").stdout, "the default radii are those of its question"
    certify("--stopping", "adaptive", "--tolerance", "0.1", "--limit", "5", "--out", "close.sqlite")
    assert "not asked about" not in summary("close.sqlite", "--radii", "0.02").stdout


def test_the_ends_of_intervals_are_rounded_outward():
    """An interval that is rounded to nearest covers less than it says."""
    assert show_interval(Interval(0.6949, 0.69501)) == "69.4–69.6"
    assert show_interval(Interval(0.695, 0.795)) == "69.5–79.5", "numbers that need no rounding stay"
    assert show_interval(Interval(0.0, 0.0001)) == "0.0–0.1"
    assert show_difference(Interval(-0.0721, -0.0001)) == "-7.3 to +0.0"
    assert show_difference(Interval(0.0211, 0.0711)) == "+2.1 to +7.2"


def test_runs_in_several_norms_say_which(files):
    """A radius of 0.1 in l1 is not one in l2."""
    for family in ("gaussian", "laplace"):
        for sigma in ("0.1", "0.2"):
            certify("--family", family, "--sigma", sigma, "--limit", "5", "--out", f"{family}{sigma}.sqlite")
    runs = [f"{family}{sigma}.sqlite" for family in ("gaussian", "laplace") for sigma in ("0.1", "0.2")]
    for form in ("text", "markdown", "latex"):
        text = summary(*runs, "--format", form).stdout
        assert "gaussian0.1 (l2)" in text
        assert "laplace0.2 (l1)" in text
        assert "best of gaussian0.1, gaussian0.2" in text, "which group a best is of"
        assert "best of laplace0.1, laplace0.2" in text
    assert "(l2)" not in summary(*runs[:2]).stdout


def test_bad_input_is_refused(runs):
    refused(summary("nothing.sqlite"), "nothing.sqlite: there is no such file")
    refused(summary(runs[0], "--radii", "far"), "radii = far")
    refused(summary(runs[0], "-o", runs[0]), "it belongs to the input")


def test_a_target_stops_when_the_intervals_are_narrow_and_resumes(files):
    result = certify("--target-width", "0.6", "--target-radii", "0.05", "--seed", "3")
    assert result.exit_code == 0, result.output
    number = len(list(ars.read_records("run.sqlite")))
    assert 1 < number < 40
    assert f"{number} inputs in random order were enough for intervals of the width 0.6" in result.stdout
    run = read_run("run.sqlite")
    assert {record.idx for record in run.records} != set(range(number))
    found = overview(run, [0.05])
    assert found.accuracies[0].interval.width <= 0.6
    assert found.population == 40
    assert f"{number} inputs in random order" in summary("run.sqlite").stdout
    again = certify("--target-width", "0.6", "--target-radii", "0.05", "--seed", "3")
    assert again.exit_code == 0, again.output
    assert len(list(ars.read_records("run.sqlite"))) == number
    refused(certify("--target-width", "0.5", "--target-radii", "0.05", "--seed", "3"), "the same --target-width")
    refused(certify("--seed", "3"), "the same --target-width")
    refused(certify("--target-radii", "0.05", "--out", "other.sqlite"), "it is for --target-width")
    refused(certify("--target-width", "2", "--out", "other.sqlite"), "target_width = 2")


def test_a_narrow_target_takes_all_inputs(files):
    certify("--target-width", "0.001", "--target-radii", "0.05")
    assert overview(read_run("run.sqlite"), [0.05]).exact


def test_what_adaptive_stopping_may_lose_is_said_if_it_is_not_the_usual(files):
    certify("--stopping", "adaptive", "--radii", "0.05,0.1", "--limit", "5")
    assert "allowed to lose" not in summary("run.sqlite").stdout
    certify("--stopping", "adaptive", "--radii", "0.05,0.1", "--max-loss", "2", "--limit", "5", "--out", "fast.sqlite")
    assert (
        "fast: adaptive stopping was allowed to lose about 2 points against 200 draws" in summary("fast.sqlite").stdout
    )
