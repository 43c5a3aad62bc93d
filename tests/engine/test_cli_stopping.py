"""`ars-engine certify --stopping adaptive` as a user meets it."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from support.engine_runs import certify, records, refused
from support.stores import forged

import ars
from ars.engine.cli import main
from ars.engine.records.store import read_header

pytestmark = pytest.mark.usefixtures("files")

ADAPTIVE = ("--stopping", "adaptive", "--radii", "0,0.05,0.1")


def test_an_adaptive_run_takes_fewer_draws_and_keeps_its_looks():
    summary = json.loads(certify(*ADAPTIVE, "--json", "--quiet", n=5000).stdout)
    made = [row[2] for row in records()]
    assert len(made) == 40
    assert summary["draws"] == sum(one.n0 + one.n for one in made) < 40 * 5000 / 2
    assert {(one.stopping, one.budget) for one in made} == {("adaptive", 5000)}
    assert all(one.looks[-1].draws == one.n for one in made)
    rows = csv.DictReader(io.StringIO(CliRunner().invoke(main, ["results", "run.sqlite"]).stdout), delimiter="\t")
    for row, one in zip(rows, made, strict=True):
        assert (row["stopping"], int(row["budget"]), int(row["n"])) == ("adaptive", 5000, one.n)
        assert [tuple(map(int, look.split(":"))) for look in row["looks"].split()] == list(one.looks)
    assert read_header(Path("run.sqlite")).settings.plan.question == ars.Grid((0.0, 0.05, 0.1))


def test_adaptive_certificates_do_not_depend_on_threads_batches_or_order():
    certify(*ADAPTIVE, "--threads", "1", n=3000)
    certify(*ADAPTIVE, "--threads", "3", "--batch", "7", "--only", "20-39,0-19", "--out", "other.sqlite", n=3000)
    assert records() == records("other.sqlite")


def test_an_adaptive_run_goes_on_only_with_its_own_question():
    certify(*ADAPTIVE, "--limit", "3")
    assert certify(*ADAPTIVE).exit_code == 0
    refused(certify(), "it holds a run with stopping = adaptive, and this one has fixed")
    other = certify("--stopping", "adaptive", "--tolerance", "0.1")
    refused(other, "it holds a run with radii = 0.0,0.05,0.1, and this one has None")
    other = certify(*ADAPTIVE, "--max-loss", "2")
    refused(other, "it holds a run with max_loss = 0.5, and this one has 2.0")


def test_who_allows_more_loss_takes_fewer_draws():
    certify(*ADAPTIVE, "--max-loss", "0.1", "--out", "careful.sqlite", n=5000)
    certify(*ADAPTIVE, "--max-loss", "5", n=5000)
    assert sum(row[2].n for row in records()) < sum(row[2].n for row in records("careful.sqlite"))
    assert read_header(Path("run.sqlite")).settings.plan.max_loss == 5
    audit = CliRunner().invoke(main, ["audit", "run.sqlite", "--sample", "3"])
    assert audit.exit_code == 0, audit.output


def test_from_python_the_adaptive_certificate_is_the_same():
    certify(*ADAPTIVE, "--limit", "3", n=2000)
    with ars.load("model.onnx", sigma=0.1, batch=64) as classifier:
        x = np.load("data.npz")["x"]
        question = ars.Grid((0, 0.05, 0.1))
        assert classifier.certify(x[2], n0=10, n=2000, question=question, input_id=2) == records()[2][2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--radius", "0.5"], "radius = 0.5 is not valid; it is for --stopping adaptive"),
        (["--max-loss", "1"], "max_loss = 1.0 is not valid; it is for --stopping adaptive"),
        (["--stopping", "adaptive", "--max-loss", "0"], "max_loss = 0.0 is not valid; it is in points"),
        (["--stopping", "adaptive", "--radius", "1", "--tolerance", "0.1"], "give one of --radii, --radius and --tol"),
        (["--stopping", "adaptive", "--radii", "a"], "radii = a is not valid; give radii"),
        (["--stopping", "adaptive", "--radius", "-1"], "radii = -1.0 is not valid; give radii"),
        (["--stopping", "adaptive", "--tolerance", "2"], "tolerance = 2.0 is not valid; it is a share"),
        (["--stopping", "adaptive", "--alpha", "1e-6"], "adaptive certificates are for alpha of at least 1e-05"),
    ],
)
def test_bad_questions_are_one_sentence(arguments, message):
    refused(certify(*arguments), message)


def test_a_store_of_format_1_is_read_but_not_gone_on_with():
    certify("--limit", "3", "--noise-stream", "1")
    expected = records()
    with forged("run.sqlite") as database:
        database.execute("UPDATE run SET format = 1")
        for column in ("budget", "looks", "eta", "checksum"):
            database.execute(f"ALTER TABLE certificates DROP COLUMN {column}")
        database.execute("ALTER TABLE run DROP COLUMN checksum")
    assert records() == expected
    refused(certify(), "its format is 1, and this version resumes runs of 4; use the version that wrote it")
