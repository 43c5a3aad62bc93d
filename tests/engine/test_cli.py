"""`ars-engine` as a user meets it: certify, resume, kill, results, inspect."""

import csv
import io
import json
import os
import pty
import random
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.stats import beta, norm
from support import models
from support.engine_runs import ENGINE, certify, records, refused, write_manifest

import ars
from ars.engine.cli import main
from ars.engine.statistics.plan import Plan

pytestmark = pytest.mark.usefixtures("files")


def test_a_run_certifies_every_input_and_says_how_well():
    result = certify()
    assert result.exit_code == 0, result.output
    assert "40 inputs certified" in result.stdout
    assert "certified accuracy at radius 0.00" in result.stdout
    assert "average certified radius" in result.stdout
    assert " in the l2 norm\n" in result.stdout
    assert [row[0] for row in records()] == list(range(40))


def test_certified_accuracy_is_what_the_stored_counts_give():
    summary = json.loads(certify("--json", "--quiet").stdout)
    rows = list(csv.DictReader(io.StringIO(CliRunner().invoke(main, ["results", "run.sqlite"]).stdout), delimiter="\t"))
    for radius, share in summary["certified_accuracy"].items():
        right = 0
        for row in rows:
            *votes, _ = map(int, row["counts"].split())
            p_a = beta.ppf(0.001, votes[int(row["selected"])], 200 - votes[int(row["selected"])] + 1)
            certified = 0.1 * norm.ppf(p_a) if p_a > 0.5 else -1
            right += int(row["selected"]) == int(row["label"]) and certified >= 0 and certified >= float(radius)
        assert share == pytest.approx(right / 40)


@pytest.mark.parametrize(("family", "shrunk"), [("gaussian", (1, 1, 4)), ("laplace", (1, 4, 16))])
def test_results_have_radii_in_each_norm(family, shrunk):
    """The inputs have 16 dimensions: an l1 ball holds an l2 ball of a quarter of its radius."""

    def radii(*arguments):
        rows = json.loads(CliRunner().invoke(main, ["results", "run.sqlite", "--format", "json", *arguments]).stdout)
        assert {row["stopped"] for row in rows} == {"all-draws"}
        assert {row["next_radius"] for row in rows if not row["radius"]} <= {0}
        assert all(row["next_radius"] > row["radius"] for row in rows if row["radius"])
        return {row["norm"] for row in rows}, np.array([row["radius"] for row in rows])

    certify("--family", family)
    _, own = radii()
    assert own.max() > 0
    for asked, factor in zip(("1", "2", "inf"), shrunk, strict=True):
        name, found = radii("--norm", asked)
        assert name == {f"l{asked}"}
        assert found == pytest.approx(own / factor, rel=1e-12)
        assert (found <= own / factor).all()


def test_the_fields_scripts_read_the_results():
    """As an analysis script of the field does: tab-separated, by these column names."""
    certify()
    lines = CliRunner().invoke(main, ["results", "run.sqlite"]).stdout.splitlines()
    assert lines[0].split("\t")[:6] == ["idx", "label", "predict", "radius", "correct", "time"]
    columns = dict(zip(lines[0].split("\t"), zip(*(line.split("\t") for line in lines[1:]), strict=True), strict=False))
    correct, radius = np.array(columns["correct"], int), np.array(columns["radius"], float)
    accuracy = (correct.astype(bool) & (radius >= 0.05)).mean()
    assert 0 < accuracy < 1
    assert all(text.count(":") == 2 for text in columns["time"]), "hours:minutes:seconds"


def test_results_come_as_csv_and_json_and_into_a_file():
    certify()
    as_json = json.loads(CliRunner().invoke(main, ["results", "run.sqlite", "--format", "json"]).stdout)
    CliRunner().invoke(main, ["results", "run.sqlite", "--format", "csv", "-o", "out.csv"])
    as_csv = list(csv.DictReader(io.StringIO(Path("out.csv").read_text())))
    assert len(as_json) == len(as_csv) == 40
    assert float(as_csv[3]["radius"]) == as_json[3]["radius"] == records()[3][2].radius
    assert sum(as_json[0]["counts"]) == 200


def test_the_same_command_goes_on_and_more_inputs_are_added():
    certify("--limit", "10")
    before = records()
    result = certify()
    assert "10 of 40 inputs are certified already" in result.stderr
    assert records()[:10] == before
    assert len(records()) == 40
    assert certify().exit_code == 0, "and a run that is done says so again"


def test_certificates_are_the_same_for_every_thread_count_and_order_of_inputs():
    certify("--threads", "1")
    expected = records()
    certify("--threads", "2", "--out", "two.sqlite")
    certify("--only", "20-39,0-19", "--out", "turned.sqlite")
    certify("--threads", "3", "--start", "30", "--out", "part.sqlite")
    assert records("two.sqlite") == records("turned.sqlite") == expected
    assert records("part.sqlite") == expected[30:]


@pytest.mark.parametrize("batch", ["1", "7", "1000", "auto"])
def test_certificates_of_a_linear_model_are_the_same_for_every_batch_size(batch):
    certify("--limit", "8")
    expected = records()
    result = certify("--limit", "8", "--batch", batch, "--out", "other.sqlite")
    assert result.exit_code == 0
    assert ("the fastest here" in result.stderr) == (batch == "auto")
    assert records("other.sqlite") == expected


def test_a_run_that_was_measured_keeps_its_batch_size_when_it_goes_on():
    certify("--limit", "2", "--batch", "auto")
    result = certify("--batch", "auto")
    assert result.exit_code == 0, result.stderr
    assert "the fastest here" not in result.stderr


def command(*arguments, n):
    given = ["--engine", "model.onnx", "--data", "data.npz", "--sigma", "0.1", "--batch", "64", "--seed", "0"]
    return [ENGINE, "certify", *given, "--out", "run.sqlite", "--n", str(n), *arguments]


def test_a_killed_run_goes_on_to_the_same_certificates():
    """Really killed, several times, at random moments."""
    rng = random.Random(0)
    n = 60_000
    subprocess.run(command("--out", "whole.sqlite", n=n), check=True, capture_output=True)
    killed = 0
    for _ in range(4):
        process = subprocess.Popen(command(n=n), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while not (Path("run.sqlite").exists() and Path("run.sqlite").stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(rng.uniform(0.05, 0.5))
        process.kill()
        killed += process.wait() == -signal.SIGKILL
    assert killed >= 2
    before = records()
    assert len(before) < 40 or killed < 4
    subprocess.run(command(n=n), check=True, capture_output=True)
    assert records() == records("whole.sqlite")
    assert [row for row in records() if row in before] == before


def test_an_interrupted_run_keeps_what_is_certified_and_says_how_to_go_on():
    process = subprocess.Popen(command(n=300_000), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        time.sleep(0.05)
        try:
            if len(records()) >= 2:
                break
        except ars.ArsError:
            pass
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command resumes the run" in stderr
    assert "Traceback" not in stderr
    assert 2 <= len(records()) < 40


def test_a_terminal_shows_a_live_bar_and_a_pipe_plain_lines():
    parent, child = pty.openpty()
    process = subprocess.Popen(command(n=20_000), stdout=subprocess.PIPE, stderr=child)
    os.close(child)
    shown = b""
    while True:
        try:
            piece = os.read(parent, 4096)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    process.communicate()
    os.close(parent)
    assert process.returncode == 0
    assert b"certifying" in shown
    assert b"draws/s" in shown


def test_maps_from_a_file_and_a_generator_are_used():
    shape = (1, 4, 4)
    np.savez("maps.npz", mean=np.zeros(shape), scale=np.full(shape, 0.1))
    models.generator(Path("model.noise.onnx"), floor=0.05)
    base = ["certify", "--engine", "model.onnx", "--data", "data.npz", "--n", "200", "--n0", "10", "--batch", "64"]

    def run(*arguments):
        result = CliRunner().invoke(main, [*base, *arguments])
        assert result.exit_code == 0, result.output

    certify()
    run("--noise", "maps.npz", "--out", "maps.sqlite")
    run("--noise", "model.noise.onnx", "--out", "generated.sqlite")
    np.savez("each.npz", mean=np.zeros((40, *shape)), scale=np.full((40, *shape), 0.1))
    run("--noise", "each.npz", "--out", "each.sqlite")

    isotropic, maps = records(), records("maps.sqlite")
    assert [one[2].counts for one in isotropic] == [one[2].counts for one in maps], "the same noise, the same votes"
    assert {one[2].scope for one in maps} == {"global"}
    assert {one[2].scope for one in records("each.sqlite")} == {"frozen"}
    generated = records("generated.sqlite")
    assert {one[2].scope for one in generated} == {"frozen"}
    x = np.load("data.npz")["x"]
    assert generated[3][2].sigma_min == pytest.approx(0.05 + abs(x[3]).min())


@pytest.mark.parametrize("family", ["laplace", "uniform"])
def test_other_families_and_two_sided_bounds(family):
    assert certify("--family", family).exit_code == 0
    assert {(one[2].family, one[2].two_sided, one[2].norm) for one in records()} == {(family, True, 1)}


def test_a_model_with_a_manifest_needs_no_more_words():
    write_manifest()
    result = CliRunner().invoke(main, ["certify", "--engine", "model.onnx", "--data", "data.npz", "--n", "100"])
    assert result.exit_code == 0, result.output
    (store,) = Path().glob("model.onnx.data.npz.laplace-noise-*.sqlite")
    assert {(one[2].family, one[2].scope) for one in records(store)} == {("laplace", "frozen")}
    inspected = CliRunner().invoke(main, ["inspect", "model.onnx"]).stdout
    assert "laplace, input, sigma0 0.05" in inspected


def test_predict_prints_an_answer_for_each_input():
    given = ["predict", "--engine", "model.onnx", "--data", "data.npz", "--sigma", "0.01", "--limit", "5", "--n", "100"]
    lines = CliRunner().invoke(main, given).stdout.splitlines()
    assert lines[0].split("\t") == ["idx", "label", "predict", "correct"]
    assert len(lines) == 6
    rows = [json.loads(line) for line in CliRunner().invoke(main, [*given, "--json"]).stdout.splitlines()]
    assert {sum(row["counts"]) for row in rows} == {100}
    assert [str(row["predict"]) for row in sorted(rows, key=lambda row: row["idx"])] == [
        line.split("\t")[2] for line in sorted(lines[1:])
    ]


def test_inspect_and_devices_say_what_is_there():
    certify("--limit", "3")
    model = json.loads(CliRunner().invoke(main, ["inspect", "model.onnx", "--json"]).stdout)
    assert (model["input"], model["classes"], model["batch"]) == ("1 x 4 x 4", 3, "any")
    store = CliRunner().invoke(main, ["inspect", "run.sqlite"]).stdout
    assert "certified     3" in store
    assert "seed          0" in store
    assert "onnxruntime     ready" in CliRunner().invoke(main, ["devices"]).stdout


def test_from_python_the_certificate_is_the_same():
    certify("--limit", "3")
    with ars.load("model.onnx", sigma=0.1, batch=64) as classifier:
        x = np.load("data.npz")["x"]
        one = classifier.certify(x[2], n0=10, n=200, input_id=2)
        many = {done.input_id: done.result for done in classifier.certify_many(enumerate(x[:3]), Plan(10, 200))}
        answer = classifier.predict(x[2], n=100)
    assert one == many[2] == records()[2][2]
    assert (len(answer.counts), sum(answer.counts)) == (4, 100)


def test_results_never_overwrite_the_store_or_an_older_file_with_nothing(files):
    assert certify().exit_code == 0
    refused(CliRunner().invoke(main, ["results", "run.sqlite", "-o", "run.sqlite"]), "it belongs to the input")
    Path("kept.tsv").write_text("older")
    refused(
        CliRunner().invoke(main, ["results", "none.sqlite", "-o", "kept.tsv"]), "none.sqlite: there is no such file"
    )
    assert Path("kept.tsv").read_text() == "older"
    refused(CliRunner().invoke(main, ["results", "run.sqlite", "-o", "nowhere/x.tsv"]), "it cannot be written")
    assert CliRunner().invoke(main, ["results", "run.sqlite", "-o", "kept.tsv"]).exit_code == 0
    assert Path("kept.tsv").read_text().startswith("idx\tlabel\tpredict\tradius\tcorrect\ttime\t")
