"""`--only-correct`: an input whose selected class is wrong ends after selection, and no certified accuracy changes."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from support.engine_runs import certify, records, refused
from support.stores import forged

import ars
from ars.bench.cli import main as bench
from ars.engine.cli import main
from ars.engine.records.store import read_header

WRONG = range(0, 40, 4)
ADAPTIVE = ("--stopping", "adaptive", "--radii", "0,0.05,0.1")


@pytest.fixture(autouse=True)
def wrong_labels(files):
    """Every fourth input has a label that the classifier does not give."""
    with np.load("data.npz") as data:
        x, y = data["x"], data["y"].copy()
    y[WRONG] = (y[WRONG] + 1) % 3
    np.savez("data.npz", x=x, y=y)


def audit(sample=40):
    return CliRunner().invoke(main, ["audit", "run.sqlite", "--sample", str(sample)])


def change(sql, *values):
    with forged("run.sqlite") as database:
        database.execute(sql, values)


def results(path="run.sqlite"):
    return json.loads(CliRunner().invoke(main, ["results", path, "--format", "json"]).stdout)


@pytest.fixture(params=[(), ADAPTIVE], ids=["fixed", "adaptive"])
def stopping(request):
    return request.param


def test_the_table_is_the_same_at_every_radius_and_takes_fewer_draws(stopping):
    certify(*stopping, "--out", "all.sqlite", n=1000)
    result = certify(*stopping, "--only-correct", n=1000)
    assert result.exit_code == 0, result.output
    whole, fewer = list(ars.read_records("all.sqlite")), list(ars.read_records("run.sqlite"))
    ended = [one.idx for one in fewer if one.certificate.n == 0]
    assert set(WRONG) <= set(ended)
    assert f"{len(ended)} inputs ended after selection: their class was wrong\n" in result.stdout
    radii = sorted({0.0, *(one.certificate.radius for one in whole)})
    before, after = ars.summarize(whole, radii), ars.summarize(fewer, radii)
    assert before.certified_accuracy == after.certified_accuracy
    assert before.average_certified_radius == after.average_certified_radius > 0
    assert (before.ended_after_selection, after.ended_after_selection) == (0, len(ended))
    saved = sum(one.certificate.n for one in whole if one.idx in ended)
    assert after.draws == before.draws - saved
    for one, other in zip(whole, fewer, strict=True):
        assert one.certificate == other.certificate or other.idx in ended


def test_the_record_of_an_ended_input_says_so():
    certify("--only-correct")
    (row,) = [row for row in results() if row["idx"] == 4]
    assert (row["predict"], row["radius"], row["correct"], row["n"], row["draws"]) == (ars.ABSTAIN, 0, 0, 0, 10)
    assert (row["selected"] != row["label"], row["stopping"]) == (True, "selection")
    assert row["counts"] == [0] * 4
    assert (row["stopped"], row["next_radius"], row["votes_short"]) == ("wrong-class", None, None)


def test_the_audit_computes_and_draws_them_again(stopping):
    certify(*stopping, "--only-correct", n=1000)
    result = audit()
    assert result.exit_code == 0, result.output
    assert "40 certificates computed again from their votes, 40 drawn again\nthe record holds" in result.stdout


def test_a_right_input_without_votes_is_found():
    certify("--only-correct")
    ended = "n = 0, draws = 10, counts = '[0, 0, 0, 0]', predict = -1, radius = 0.0, K = 0.0, p_a = 0.0, p_b = 1.0"
    change(f"UPDATE certificates SET {ended} WHERE idx = 3")
    result = refused(audit(1), "the record does not hold", status=1)
    assert "difference: input 3: its votes make no certificate" in result.stdout


def test_an_ended_input_in_a_run_that_ends_none_is_found():
    certify("--only-correct", "--out", "other.sqlite")
    certify()
    with forged("run.sqlite") as database:
        database.execute("ATTACH 'other.sqlite' AS other")
        database.execute("DELETE FROM certificates WHERE idx = 4")
        database.execute("INSERT INTO certificates SELECT * FROM other.certificates WHERE idx = 4")
    result = refused(audit(1), "the record does not hold", status=1)
    assert "difference: input 4: its votes make no certificate" in result.stdout


def test_a_wrong_input_with_votes_is_found_in_a_run_that_ends_such():
    certify("--out", "other.sqlite")
    certify("--only-correct")
    with forged("run.sqlite") as database:
        database.execute("ATTACH 'other.sqlite' AS other")
        database.execute("DELETE FROM certificates WHERE idx = 4")
        database.execute("INSERT INTO certificates SELECT * FROM other.certificates WHERE idx = 4")
    result = refused(audit(1), "the record does not hold", status=1)
    assert "difference: input 4: " in result.stdout


def test_another_selected_class_is_found_by_drawing_again():
    certify("--only-correct")
    change("UPDATE certificates SET selected = 3 - selected - label WHERE idx = 4")
    result = refused(audit(), "the record does not hold", status=1)
    assert "difference: input 4: selected is" in result.stdout


def test_it_is_a_setting_of_the_run():
    certify("--only-correct", "--limit", "5")
    assert read_header(Path("run.sqlite")).settings.only_correct
    refused(
        certify(), "run.sqlite: it holds a run with --only-correct; choose another store, or give the same settings"
    )
    assert certify("--only-correct").exit_code == 0
    resumed = records()
    certify("--only-correct", "--out", "whole.sqlite")
    assert resumed == records("whole.sqlite")
    certify("--out", "all.sqlite")
    assert not read_header(Path("all.sqlite")).settings.only_correct
    refused(certify("--only-correct", "--out", "all.sqlite"), "it holds a run without --only-correct")


def test_data_without_labels_is_refused_in_one_sentence():
    with np.load("data.npz") as data:
        np.savez("unlabelled.npz", x=data["x"])
    result = certify("--only-correct", data="unlabelled.npz")
    refused(result, "unlabelled.npz: none of the chosen inputs has a label; leave out --only-correct")
    assert not Path("run.sqlite").exists()


def test_an_input_without_a_label_among_others_is_certified():
    with np.load("data.npz") as data:
        images, labels = data["x"], data["y"].tolist()
    with ars.load("model.onnx", sigma=0.1, batch=64) as classifier:
        given = {0: None, 4: labels[4], 5: labels[5]}
        certified = classifier.certify_many([(idx, images[idx]) for idx in given], n0=10, n=200, labels=given)
        assert {one.input_id: one.result.n for one in certified} == {0: 200, 4: 0, 5: 200}


def test_it_is_compared_with_an_adaptive_run_of_the_same_kind():
    certify("--only-correct", "--out", "fixed.sqlite")
    certify("--only-correct", *ADAPTIVE)
    result = CliRunner().invoke(bench, ["stopping", "fixed.sqlite", "run.sqlite", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["measured"]["inputs"] == 40
    certify("--only-correct", "--only", "0,4", "--out", "wrong.sqlite")
    result = CliRunner().invoke(bench, ["stopping", "wrong.sqlite"])
    refused(result, "wrong.sqlite: all of its inputs ended after selection; certify again without --only-correct")
