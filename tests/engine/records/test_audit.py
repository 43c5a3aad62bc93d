"""`ars-engine audit`: it passes on a run as it was, and names whatever was changed."""

import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from support import models
from support.engine_runs import certify, refused, write_manifest
from support.stores import forged

from ars.data.pixels import file_sha256
from ars.engine.cli import main
from ars.engine.records.audit import _recompute
from ars.engine.records.store import read_header, read_records
from ars.engine.statistics.bounds import lower_confidence_bound
from ars.engine.statistics.certificate import certify_votes
from ars.engine.statistics.ladder import STEPS, bound_at_looks, make_ladder
from ars.engine.statistics.looks import Look
from ars.engine.statistics.plan import Plan
from ars.engine.statistics.stopping import Grid
from ars.errors import MissingPackage
from ars.manifest import Manifest, ModelFile, NoiseSettings
from ars.noise import GAUSSIAN, NoiseKind

pytestmark = pytest.mark.usefixtures("files")

ADAPTIVE = ("--stopping", "adaptive", "--radii", "0,0.05,0.1")


def audit(*arguments):
    return CliRunner().invoke(main, ["audit", "run.sqlite", "--sample", "40", *arguments])


def change(column, value, idx=3):
    with forged("run.sqlite") as database:
        database.execute(f"UPDATE certificates SET {column} = ? WHERE idx = ?", (value, idx))


def stored(column, idx=3):
    with sqlite3.connect("run.sqlite") as database:
        (value,) = database.execute(f"SELECT {column} FROM certificates WHERE idx = ?", (idx,)).fetchone()
    database.close()
    return value


def change_settings(**changed):
    with forged("run.sqlite") as database:
        (settings,) = database.execute("SELECT settings FROM run").fetchone()
        database.execute("UPDATE run SET settings = ?", (json.dumps(json.loads(settings) | changed),))


@pytest.fixture(params=["fixed", "adaptive"])
def run(request, files):
    assert certify(*(ADAPTIVE if request.param == "adaptive" else ()), n=1000).exit_code == 0
    return request.param


@pytest.mark.usefixtures("run")
def test_a_run_as_it_was_holds():
    result = audit()
    assert result.exit_code == 0, result.output
    assert "40 certificates computed again from their votes, 40 drawn again\nthe record holds" in result.stdout
    assert "difference" not in result.stdout


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize(
    ("column", "altered"),
    [
        ("radius", 0.25),
        ("p_a", 0.9),
        ("p_b", 0.3),
        ("K", 1.5),
        ("selected", 0),
        ("predict", 1),
        ("sigma_min", 0.2),
        ("draws", 5),
        ("label", 1),
    ],
)
def test_an_altered_value_is_named(column, altered):
    change(column, altered)
    result = refused(audit(), "run.sqlite: the record does not hold", status=1)
    assert "difference: input 3: " in result.stdout


@pytest.mark.parametrize("noise", ["sigma", "one map", "a map for each input"])
@pytest.mark.parametrize(
    "column", ["sigma_min", "sigma_geomean", "dimensions", "inverse_scale_l1", "inverse_scale_l2", "eta"]
)
def test_scales_and_eta_of_every_record_are_compared_with_the_maps(noise, column):
    shape = {"one map": (1, 4, 4), "a map for each input": (40, 1, 4, 4)}.get(noise)
    if shape:
        scale = np.random.default_rng(0).uniform(0.25, 0.5, shape).astype(np.float32)
        np.savez("maps.npz", mean=np.zeros_like(scale), scale=scale)
    given = ["--noise", "maps.npz"] if shape else ["--sigma", "0.5"]
    paths = ["--engine", "model.onnx", "--data", "data.npz", "--out", "run.sqlite"]
    made = CliRunner().invoke(main, ["certify", *paths, "--n", "200", "--n0", "10", "--batch", "64", *given])
    assert made.exit_code == 0, made.output
    assert audit("--sample", "1").exit_code == 0
    change(column, stored(column) + 1 if column == "dimensions" else stored(column) * 1.0001, idx=7)
    result = refused(audit("--sample", "1"), "run.sqlite: the record does not hold", status=1)
    assert f"input 7: {column} is" in result.stdout
    assert "its noise has" in result.stdout


def test_a_single_altered_count_is_named_by_its_votes_and_by_drawing_again(run):
    counts = json.loads(stored("counts"))
    counts[stored("selected")] -= 1
    counts[-1] += 1
    change("counts", json.dumps(counts))
    result = refused(audit(), status=1)
    by_votes = "input 3: its votes make no certificate" if run == "adaptive" else "its votes give"
    assert by_votes in result.stdout
    assert "input 3: counts is" in result.stdout


def test_a_count_altered_together_with_all_that_follows_from_it_is_found_by_drawing_again():
    certify()
    certify("--seed", "1", "--out", "other.sqlite")
    with forged("run.sqlite") as database:
        database.execute("ATTACH 'other.sqlite' AS other")
        database.execute("DELETE FROM certificates WHERE idx = 3")
        database.execute("INSERT INTO certificates SELECT * FROM other.certificates WHERE idx = 3")
    result = refused(audit(), status=1)
    assert "input 3: counts is" in result.stdout
    assert "drawn again it is" in result.stdout
    assert "40 certificates computed again from their votes, 40 drawn again" in result.stdout


def test_an_altered_look_is_named():
    certify(*ADAPTIVE, n=1000)
    looks = json.loads(stored("looks"))
    looks[0][1] -= 1
    change("looks", json.dumps(looks))
    result = refused(audit(), status=1)
    assert "input 3: looks is" in result.stdout


@pytest.mark.parametrize(
    "forge",
    [
        lambda looks: [],
        lambda looks: [looks[-1]],
        lambda looks: [[900, 900, 0], *looks],
        lambda looks: [[looks[0][0], looks[0][0], 0], *looks[1:]],
    ],
    ids=["as if n had been fixed", "only the last", "elsewhere", "more hits than later"],
)
def test_looks_that_no_input_can_have_had_are_found_though_all_bounds_follow_from_them(forge):
    """Such a record is caught without the model, also for inputs that are not drawn again."""
    certify(*ADAPTIVE, "--bounds", "binary", n=20_000)
    idx = next(idx for idx in range(40) if len(json.loads(stored("looks", idx))) > 3)
    looks = [Look(*look) for look in forge(json.loads(stored("looks", idx)))]
    hits, n = json.loads(stored("counts", idx))[stored("selected", idx)], stored("n", idx)
    p_a = lower_confidence_bound(hits, n, 0.001)
    if looks:
        ladders = STEPS, make_ladder(GAUSSIAN, Grid((0, 0.05, 0.1)).regions(stored("sigma_min", idx)))
        p_a = bound_at_looks(looks, 20_000, 0.001, ladders)[0]
    change("looks", json.dumps(looks), idx)
    change("p_a", p_a, idx)
    change("p_b", 1 - p_a, idx)
    change("K", GAUSSIAN.region(p_a, 1 - p_a), idx)
    change("radius", GAUSSIAN.radius(p_a, 1 - p_a, stored("sigma_min", idx)), idx)
    (record,) = (record for record in read_records(Path("run.sqlite")) if record.idx == idx)
    plan = Plan(100, 20_000, 0.001, False, Grid((0, 0.05, 0.1)))
    settings = replace(read_header(Path("run.sqlite")).settings, plan=plan)
    assert _recompute(record, settings)


def test_a_damaged_scale_is_one_sentence():
    certify()
    change_settings(sigma="abc")
    refused(audit(), "run.sqlite: it is damaged (its sigma is 'abc')")


def test_a_run_with_the_bounds_of_another_version_is_refused():
    certify(*ADAPTIVE, n=1000)
    change_settings(bounds=1)
    refused(audit(), "its bounds are of version 1, and this version of ARS has 4; use the version that wrote it")


@pytest.mark.usefixtures("run")
def test_a_scale_that_is_not_the_runs_is_found_though_the_radius_follows_from_it():
    for column, value in (("sigma_min", 5.0), ("radius", GAUSSIAN.radius(stored("p_a"), stored("p_b"), 5.0))):
        change(column, value)
    result = refused(audit(), status=1)
    assert "input 3: sigma_min is 5.0 in the record, and the run's is 0.1" in result.stdout


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize("factor", [0.9, 1 + 1e-13])
def test_a_region_that_the_votes_do_not_give_is_found_though_the_radius_follows_from_it(factor):
    change("K", K := factor * stored("K"))
    change("radius", K * stored("sigma_min"))
    assert "input 3: K is" in refused(audit(), status=1).stdout


@pytest.mark.usefixtures("run")
def test_an_input_that_the_data_does_not_have_is_named():
    change("idx", 99_999)
    result = refused(audit(), status=1)
    assert "input 99999: data.npz has only 40 inputs" in result.stdout


@pytest.mark.usefixtures("run")
def test_an_altered_label_is_found_also_where_nothing_is_drawn_again():
    change("label", 1 - stored("label") % 2)
    change("label", 1 - stored("label", 4) % 2, 4)
    result = refused(audit("--sample", "1"), status=1)
    for idx in (3, 4):
        assert f"input {idx}: data.npz has another image or label there" in result.stdout


@pytest.mark.usefixtures("run")
def test_settings_that_the_run_cannot_have_had_are_found():
    change_settings(tolerance=0.1)
    refused(audit(), "run.sqlite: it is damaged (a run with its other settings cannot have tolerance = 0.1)")
    change_settings(tolerance=None, seed=-1)
    refused(audit(), "run.sqlite: it is damaged (no run has batch = 64 and seed = -1)")
    change_settings(seed=0, runner="tensorflow")
    refused(audit(), "run.sqlite: its settings are damaged (unknown backend 'tensorflow'")
    change_settings(runner="onnxruntime")
    assert "run.sqlite" not in refused(audit("--device", "gpu"), "gpu").stderr


@pytest.mark.usefixtures("run")
def test_a_package_that_is_missing_is_no_fault_of_the_store(monkeypatch):
    def missing(*arguments, **options):
        raise MissingPackage("onnxruntime", "cpu")

    monkeypatch.setattr("ars.engine.records.reopen.load", missing)
    assert "run.sqlite" not in refused(audit(), "Error: onnxruntime is not installed; run `pip install").stderr


@pytest.mark.usefixtures("run")
def test_an_altered_seed_is_found():
    change_settings(seed=1)
    result = refused(audit(), status=1)
    assert "counts is" in result.stdout


def test_a_model_with_one_byte_changed_is_named(run):
    content = bytearray(Path("model.onnx").read_bytes())
    content[len(content) // 2] ^= 1
    Path("model.onnx").write_bytes(content)
    result = refused(audit(), status=1)
    assert "difference: model.onnx: it is not the model of the run" in result.stdout


def test_other_data_and_another_image_are_named():
    certify()
    x = np.load("data.npz")["x"]
    x[3] += 0.1
    np.savez("data.npz", x=x, y=np.load("data.npz")["y"])
    result = refused(audit(), status=1)
    assert "difference: data: the run's is" in result.stdout


def test_files_that_have_moved_are_given():
    certify()
    Path("model.onnx").rename("moved.onnx")
    Path("data.npz").rename("moved.npz")
    refused(audit(), "model.onnx: there is no such file; say with --engine where the model is now")
    assert audit("--engine", "moved.onnx", "--data", "moved.npz").exit_code == 0


def test_noise_from_a_manifest_and_from_maps_is_found_again():
    write_manifest()
    base = ["certify", "--engine", "model.onnx", "--data", "data.npz", "--n", "200", "--batch", "64"]
    assert CliRunner().invoke(main, [*base, "--out", "run.sqlite", "--limit", "5"]).exit_code == 0
    assert audit().exit_code == 0
    Path("run.sqlite").unlink()
    np.savez("maps.npz", mean=np.zeros((1, 4, 4)), scale=np.full((1, 4, 4), 0.1))
    given = ["--noise", "maps.npz", "--family", "uniform", "--out", "run.sqlite", "--limit", "5"]
    assert CliRunner().invoke(main, [*base, *given]).exit_code == 0
    assert audit().exit_code == 0
    np.savez("maps.npz", mean=np.zeros((1, 4, 4)), scale=np.full((1, 4, 4), 0.11))
    assert "difference: maps: the run's is" in refused(audit(), status=1).stdout


@pytest.mark.parametrize("of_run", [True, False])
def test_another_machine_part_is_said_and_does_not_fail_a_record_that_holds(of_run):
    certify("--limit", "3")
    with forged("run.sqlite") as database:
        (environment,) = database.execute("SELECT environment FROM run").fetchone()
        older = json.loads(environment) | {"onnxruntime": "1.0", "instructions": "scalar", "precision": "fp16"}
        database.execute("UPDATE run SET environment = ?", (json.dumps(older),))
        if of_run:  # as in older stores
            database.execute("UPDATE certificates SET environment = NULL")
        else:
            made_by = {**older, "runner": "onnxruntime", "runner_version": "1.0"}
            database.execute("UPDATE certificates SET environment = ? WHERE idx = 1", (json.dumps(made_by),))
    result = audit()
    assert result.exit_code == 0, result.output
    for part in ("onnxruntime: the run's is 1.0", "instructions: the run's is scalar", "precision: the run's is fp16"):
        assert f"different environment: {part}" in result.stdout


def test_a_store_that_does_not_say_where_things_were_asks_for_them():
    certify("--limit", "3")
    with forged("run.sqlite") as database:
        database.execute("UPDATE run SET environment = '{}'")
    refused(audit(), "run.sqlite does not say where it was; give --engine")
    assert audit("--engine", "model.onnx", "--data", "data.npz").exit_code == 0
    refused(CliRunner().invoke(main, ["audit", "none.sqlite"]), "there is no such file")


def test_a_model_that_is_another_file_altogether_is_named():
    certify("--limit", "3")
    models.linear(Path("other.onnx"), seed=5)
    assert "it is not the model of the run" in refused(audit("--engine", "other.onnx"), status=1).stdout


def test_dimensions_and_norms_of_a_generators_maps_are_compared_for_every_input():
    """Not only for those that are drawn again: in fewer dimensions, the same votes prove more of exponential noise."""
    models.generator(Path("model.noise.onnx"), floor=0.05)
    names = [("classifier", "model.onnx"), ("noise", "model.noise.onnx")]
    files = tuple(ModelFile(role, name, file_sha256(Path(name))) for role, name in names)
    noise = NoiseSettings("exponential", NoiseKind.INPUT, 0.05)
    Manifest((1, 4, 4), ("a", "b", "c"), noise, files).write(Path("model.json"))
    given = ["--engine", "model.onnx", "--data", "data.npz", "--n", "1000", "--batch", "64", "--out", "run.sqlite"]
    assert CliRunner().invoke(main, ["certify", *given]).exit_code == 0
    assert audit("--sample", "1").exit_code == 0
    (record,) = (record for record in read_records(Path("run.sqlite")) if record.idx == 3)
    made, settings = record.certificate, read_header(Path("run.sqlite")).settings
    where = {"scale": made.sigma_min, "kind": settings.kind, "eta": made.eta, "plan": settings.plan}
    forged = certify_votes(made.counts, made.selected, family="exponential", dimensions=1, **where)
    for column in ("dimensions", "K", "radius", "inverse_scale_l1", "inverse_scale_l2"):
        change(column, getattr(forged, column))
    assert "input 3: dimensions is 1 in the record, and its noise has 16" in audit("--sample", "1").stdout


@pytest.mark.usefixtures("run")
def test_counts_that_are_not_n_votes_are_one_sentence():
    change("counts", "[0, 0, 0, 0]")
    refused(CliRunner().invoke(main, ["results", "run.sqlite"]), "the counts of input 3 are not")
