"""`ars-bench stopping`: the rules on the same votes, and both ways to run measured."""

import json
import shutil
import sqlite3

import numpy as np
import pytest
from click.testing import CliRunner
from support import models
from support.stores import forge
from support.tracing import untraced

from ars.bench.cli import main
from ars.bench.stopping.replay import LOSSES, reorder_votes, replay
from ars.bench.stopping.rules import bound_by_betting, bound_with_equal_alpha
from ars.engine.cli import main as engine
from ars.engine.records.record import Record
from ars.engine.statistics.certificate import certify_votes
from ars.engine.statistics.looks import look_draws
from ars.engine.statistics.losses import MAX_LOSS
from ars.engine.statistics.plan import Plan
from ars.engine.statistics.stopping import Grid
from ars.noise import GAUSSIAN, NoiseKind


def records(n, shares):
    for idx, share in enumerate(shares):
        hits = round(n * share)
        counts = [hits, n - hits, 0]
        made = certify_votes(counts, 0, plan=Plan(n=n), family=GAUSSIAN, scale=0.5, kind=NoiseKind.ISOTROPIC)
        yield Record(idx, 0, made, n + 100, 0.1, "")


def test_the_published_bounds_are_bounds_and_betting_holds_for_the_mixture_it_bets():
    for count, draws in ((0, 1000), (10, 1000), (500, 1000), (999, 1000), (1000, 1000)):
        for bound in (bound_with_equal_alpha, bound_by_betting):
            assert count / draws <= bound(count, draws, 20_000, 0.001) <= 1
    rate = bound_by_betting(0, 1000, 20_000, 0.001)
    from scipy.special import beta

    assert beta(0.5, 1000.5) / beta(0.5, 0.5) / (1 - rate) ** 1000 == pytest.approx(1000)


def test_votes_of_a_run_end_where_the_run_ended():
    (votes,) = reorder_votes(list(records(20_000, [0.9])), 20_000, orders=1)
    assert [look.draws for look in votes.looks] == list(look_draws(20_000))
    assert votes.looks[-1] == (20_000, 18_000, 2000)
    assert all(0.8 < look.hits / look.draws < 1 for look in votes.looks)
    (longer,) = reorder_votes(list(records(1000, [0.9])), 20_000, orders=1)
    assert longer.looks[-1].draws == 20_000
    assert longer.looks[-1].hits / 20_000 == pytest.approx(0.9, abs=0.05)


@untraced()
def test_ours_takes_the_fewest_draws_at_equal_certified_accuracy():
    """200 inputs like a trained model's, at the budget of the field."""
    from scipy.stats import norm

    rng = np.random.default_rng(0)
    shares = norm.cdf(np.concatenate([rng.normal(1.5, 1.3, 150), rng.uniform(4.5, 7, 50)]))
    votes = list(reorder_votes(list(records(100_000, shares)), 100_000, orders=1))
    as_it_is, ours, *others = replay(votes, 100_000, Grid(), len(votes))
    assert as_it_is.max_loss == MAX_LOSS
    assert (as_it_is.mean_draws <= ours.mean_draws) == (ours.max_loss <= MAX_LOSS)
    assert ours.lost <= 0.005
    for other in others:
        assert other.mean_draws > 1.05 * ours.mean_draws
        assert other.lost <= 0.005 or other.max_loss == LOSSES[-1]


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """A run at fixed n and an adaptive one, of 30 inputs."""
    monkeypatch.chdir(tmp_path)
    models.linear(tmp_path / "model.onnx")
    rng = np.random.default_rng(0)
    np.savez("data.npz", x=rng.random((30, 1, 4, 4), dtype=np.float32), y=rng.integers(0, 3, 30))
    certify("--out", "fixed.sqlite")
    certify("--stopping", "adaptive", "--out", "adaptive.sqlite")


def certify(*more):
    given = ["certify", "--engine", "model.onnx", "--data", "data.npz", "--sigma", "0.3", "--batch", "64"]
    result = CliRunner().invoke(engine, [*given, "--n", "2000", "--quiet", *more])
    assert result.exit_code == 0, result.output


def stopping(*arguments):
    return CliRunner().invoke(main, ["stopping", *arguments])


def in_store(store, query):
    with sqlite3.connect(store) as database:
        rows = database.execute(query).fetchall()
    database.close()
    return rows


@pytest.mark.usefixtures("runs")
def test_two_runs_are_compared_input_by_input():
    result = stopping("fixed.sqlite", "adaptive.sqlite", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    (mean,) = in_store("adaptive.sqlite", "SELECT avg(draws) FROM certificates")[0]
    measured = found["measured"]
    assert measured["inputs"] == 30
    assert measured["fixed_draws"] == 2100
    assert measured["adaptive_draws"] == pytest.approx(mean)
    assert measured["lost"] == pytest.approx(lost_by_hand(), abs=1e-12)
    assert found["rules"][0]["mean_draws"] == pytest.approx(mean, rel=0.35), "the order of the votes is simulated"
    shown = stopping("fixed.sqlite", "adaptive.sqlite").stdout
    assert f"measured on 30 inputs: {mean:,.0f} draws an input instead of 2,100" in shown
    assert f"certified accuracy lost: {100 * measured['lost']:.2f} points at most" in shown


def lost_by_hand():
    def certified(store):
        rows = in_store(store, "SELECT radius, predict = label, predict FROM certificates")
        return [sum(right and radius >= at for radius, right, _ in rows) for at in np.arange(15) * 0.25]

    return max(a - b for a, b in zip(certified("fixed.sqlite"), certified("adaptive.sqlite"), strict=True)) / 30


@pytest.mark.usefixtures("runs")
def test_inputs_that_nobody_certifies_may_be_left_out_at_fixed_n():
    whole = json.loads(stopping("fixed.sqlite", "adaptive.sqlite", "--json").stdout)["measured"]
    in_store("fixed.sqlite", "DELETE FROM certificates WHERE selected != label")
    (left,) = in_store("fixed.sqlite", "SELECT count(*) FROM certificates")[0]
    assert 0 < left < 30
    found = json.loads(stopping("fixed.sqlite", "adaptive.sqlite", "--json").stdout)["measured"]
    assert found == whole
    ((idx,),) = in_store("fixed.sqlite", "SELECT min(idx) FROM certificates")
    in_store("fixed.sqlite", f"DELETE FROM certificates WHERE idx = {idx}")
    result = stopping("fixed.sqlite", "adaptive.sqlite")
    assert result.exit_code == 2
    assert f"fixed.sqlite: it lacks input {idx} of adaptive.sqlite, whose class is not wrong; certify" in result.stderr
    in_store("adaptive.sqlite", "UPDATE certificates SET label = NULL")
    in_store("fixed.sqlite", "UPDATE certificates SET label = NULL")
    result = stopping("fixed.sqlite", "adaptive.sqlite")
    assert result.exit_code == 2, "without labels no class is known to be wrong"


@pytest.mark.usefixtures("runs")
def test_draws_that_a_run_does_not_have_are_simulated_and_it_is_said():
    shown = stopping("fixed.sqlite", "--n", "5000")
    assert shown.exit_code == 0, shown.output
    assert "3,000 of 5,000 draws simulated from their shares" in " ".join(shown.stdout.split())


@pytest.mark.usefixtures("runs")
def test_runs_that_cannot_be_compared_are_one_sentence():
    certify("--seed", "1", "--stopping", "adaptive", "--out", "seed.sqlite")
    certify("--n0", "50", "--limit", "1", "--out", "empty.sqlite")
    in_store("empty.sqlite", "DELETE FROM certificates")
    for store, origin in (("old.sqlite", "adaptive.sqlite"), ("damaged.sqlite", "fixed.sqlite")):
        shutil.copy(origin, store)
    forge("old.sqlite", "UPDATE run SET settings = json_remove(settings, '$.bounds')")
    forge("damaged.sqlite", "UPDATE certificates SET sigma_min = 0")
    for arguments, message in (
        (["none.sqlite"], "there is no such file"),
        (["adaptive.sqlite"], "adaptive.sqlite: it is a run of --stopping adaptive; give one of --stopping fixed"),
        (
            ["fixed.sqlite", "fixed.sqlite"],
            "fixed.sqlite: it is a run of --stopping fixed; give one of --stopping adap",
        ),
        (
            ["fixed.sqlite", "seed.sqlite"],
            "seed.sqlite: its seed is 1, and that of fixed.sqlite is 0; certify one of them again with the seed of",
        ),
        (["fixed.sqlite", "old.sqlite"], "old.sqlite: its bounds are of version 1, and this version of ARS has 4;"),
        (["damaged.sqlite"], "damaged.sqlite: it is damaged"),
        (["empty.sqlite"], "empty.sqlite: it holds no certificates; certify some inputs first"),
        (["fixed.sqlite", "--n", "0"], "--n"),
    ):
        result = stopping(*arguments)
        assert result.exit_code == 2, result.output
        assert message in result.stderr
