"""Run stores of earlier versions (tests/data/stores): they open, give the same results and audit clean.

format-1*.sqlite are of the version before adaptive stopping, and the others of the version before run settings had
types. format-3/ is of the version before rows had checksums. Beside each is what `ars-engine results` printed then.
"""

import csv
import json
import shutil
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.engine_runs import refused

import ars
from ars.bench.report.runs import read_runs
from ars.engine.cli import main
from ars.engine.records.settings import RunSettings
from ars.engine.records.store import read_header
from ars.engine.statistics.plan import Plan
from ars.noise import NoiseKind

ROOT = Path(__file__).parents[3]
STORES = sorted((ROOT / "tests" / "data" / "stores").glob("*.sqlite"))
FILES = ["--engine", "examples/fashion-mnist/classifier.onnx", "--data", "examples/fashion-mnist/images.npz"]

named = pytest.mark.parametrize("original", STORES, ids=lambda path: path.stem)


@pytest.fixture
def store(original, tmp_path, monkeypatch):
    """A copy, since readers make files beside a store. The runs were made in the repository's folder."""
    monkeypatch.chdir(ROOT)
    return shutil.copy(original, tmp_path)


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def settings_in(store):
    database = sqlite3.connect(store)
    try:
        return json.loads(database.execute("SELECT settings FROM run").fetchone()[0])
    finally:
        database.close()


def test_every_kind_of_run_is_here():
    assert len(STORES) == 9


@named
def test_the_results_are_the_same(store, original):
    result = run("results", store)
    assert result.exit_code == 0, result.output
    assert _without_new_columns(result.stdout) == original.with_suffix(".tsv").read_text().splitlines()


def _without_new_columns(text):
    """The lines without the columns that came later. These runs have noise stream 1, whose eta is 0, and do not say the
    dimensions of their inputs."""
    head, *rows = text.splitlines()
    new = "\tnoise_stream\teta\tdimensions\tinverse_scale_l1\tinverse_scale_l2\tnorm\tstopped\tnext_radius\tvotes_short"
    new += "\tvolume_radius\tunit"
    new += "\talpha\ttwo_sided\tfamily\tname\tseed\tmodel_sha256\tinput_sha256\tenvironment\texplanation"
    assert head.endswith(new)
    assert all("\t1\t0.0\t\t\t\tl" in row for row in rows)
    return [line.rsplit("\t", new.count("\t"))[0] for line in (head, *rows)]


@named
def test_they_have_no_radii_in_larger_norms(store, original):
    assert run("results", store, "--norm", "1").exit_code == 0
    result = run("results", store, "--norm", "inf")
    refused(result, "did not keep what a radius in linf needs; certify again, or leave out --norm")


@named
def test_an_audit_finds_no_difference(store, original):
    given = FILES if original.stem.startswith("format-1") else []  # it does not say where model and data were
    result = run("audit", store, *given)
    if original.stem in ("format-1-two-sided", "two-sided", "adaptive", "tolerance", "two-sided-adaptive"):
        version, ours = settings_in(store).get("bounds", 1), 4 if original.stem == "two-sided-adaptive" else 3
        refused(result, f"its bounds are of version {version}, and this version of ARS has {ours}; use the version")
    else:
        assert result.exit_code == 0, result.output
        assert result.stdout.endswith("the record holds\n")


@named
def test_the_settings_are_written_as_they_were_read(store):
    settings = settings_in(store)
    unsaid = {"max_loss": 0.7} if settings["stopping"] == "adaptive" else {}
    assert RunSettings.from_json(settings).to_json() == settings | unsaid


@named
def test_inspect_and_the_report_read_them(store):
    facts = json.loads(run("inspect", store, "--json").stdout)
    assert facts["engine"] == settings_in(store)["engine"]
    assert facts["onnxruntime"]
    assert facts["data_name"] == "images.npz"
    (shown,) = read_runs([Path(store)])
    assert shown.summary.inputs == facts["certified"] in (12, 16)


def test_the_settings_are_those_of_the_commands(tmp_path):
    headers = {path.stem: read_header(Path(shutil.copy(path, tmp_path))) for path in STORES}
    plans = {name: header.settings.plan for name, header in headers.items()}
    assert plans["fixed"] == plans["generated"] == plans["format-1"] == Plan(n=500, two_sided=False)
    assert plans["two-sided"] == Plan(n=500)
    assert plans["adaptive"] == Plan(n=5000, two_sided=False, question=ars.Grid(), max_loss=0.7)
    assert plans["tolerance"] == Plan(n=5000, two_sided=False, question=ars.Tolerance(0.05), max_loss=0.7)
    assert plans["two-sided-adaptive"] == Plan(n=2000, question=ars.Grid((0, 0.1, 0.3)), max_loss=0.7)
    kinds = {name: header.settings.kind for name, header in headers.items() if name in ("fixed", "maps", "generated")}
    assert kinds == {"fixed": NoiseKind.ISOTROPIC, "maps": NoiseKind.DATASET, "generated": NoiseKind.INPUT}
    assert headers["maps"].settings.seed == 2**64 - 1
    assert headers["two-sided"].settings.family == "laplace"
    assert headers["fixed"].origin.data_source == "examples/fashion-mnist/images.npz"
    assert headers["format-1"].origin.data_source is None


@named
def test_they_are_not_resumed(store):
    given = [*FILES, "--sigma", "0.25", "--n", 500, "--batch", 64, "--noise-stream", 1, "--seed", 0, "--out", store]
    refused(run("certify", *given), "and this version resumes runs of 4; use the version that wrote it")


def test_a_store_of_format_3_gives_the_same_results_audits_clean_and_is_not_resumed(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    folder = ROOT / "tests" / "data" / "stores" / "format-3"
    store = shutil.copy(folder / "run.sqlite", tmp_path)
    found = list(csv.DictReader(run("results", store).stdout.splitlines(), delimiter="\t"))
    with (folder / "run.tsv").open() as file:
        before = list(csv.DictReader(file, delimiter="\t"))
    assert len(found) == len(before) == 16
    for row, old in zip(found, before, strict=True):
        assert {name: row[name] for name in old} == old
    result = run("audit", store, *FILES, "--sample", 3)
    assert result.exit_code == 0, result.output
    given = [*FILES, "--sigma", "0.25", "--n", 500, "--batch", 64, "--seed", 0, "--limit", 16, "--out", store]
    refused(run("certify", *given), "its format is 3, and this version resumes runs of 4; use the version that wrote")
