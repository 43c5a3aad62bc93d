"""`ars-bench stopping`: the rules on the same votes, and both ways to run measured."""

import json

import models
import numpy as np
import pytest
from click.testing import CliRunner

from ars.bench.cli import main
from ars.bench.stopping import _betting, _equal, replay, votes_of_run
from ars.engine.certificate import certificate
from ars.engine.spending import look_draws
from ars.engine.store import Record
from ars.noise import GAUSSIAN, NoiseKind


def records(n, shares):
    for idx, share in enumerate(shares):
        hits = round(n * share)
        made = certificate(
            [hits, n - hits, 0], 0, n0=100, alpha=0.001, family=GAUSSIAN, scale=0.5, kind=NoiseKind.ISOTROPIC
        )
        yield Record(idx, 0, made, n + 100, 0.1, "")


def test_the_published_bounds_are_bounds_and_betting_holds_for_the_mixture_it_bets():
    for count, draws in ((0, 1000), (10, 1000), (500, 1000), (999, 1000), (1000, 1000)):
        for bound in (_equal, _betting):
            assert count / draws <= bound(count, draws, 20_000, 0.001) <= 1
    rate = _betting(0, 1000, 20_000, 0.001)
    from scipy.special import beta

    assert beta(0.5, 1000.5) / beta(0.5, 0.5) / (1 - rate) ** 1000 == pytest.approx(1000)


def test_votes_of_a_run_end_where_the_run_ended():
    (votes,) = votes_of_run(records(20_000, [0.9]), 20_000)
    assert [look.draws for look in votes.looks] == list(look_draws(20_000))
    assert votes.looks[-1] == (20_000, 18_000, 2000)
    assert all(0.8 < look.hits / look.draws < 1 for look in votes.looks)
    (longer,) = votes_of_run(records(1000, [0.9]), 20_000)
    assert longer.looks[-1].draws == 20_000
    assert longer.looks[-1].hits / 20_000 == pytest.approx(0.9, abs=0.05)


def test_ours_takes_the_fewest_draws_and_loses_the_least():
    """200 inputs like a trained model's, at the budget of the field."""
    from scipy.stats import norm

    rng = np.random.default_rng(0)
    shares = norm.cdf(np.concatenate([rng.normal(1.5, 1.3, 150), rng.uniform(4.5, 7, 50)]))
    ours, equal, betting = replay(list(votes_of_run(records(100_000, shares), 100_000)), 100_000)
    assert ours.mean_draws < min(equal.mean_draws, betting.mean_draws)
    assert ours.lost <= 0.011
    assert ours.lost <= min(equal.lost, betting.lost)


def test_a_model_is_measured_and_a_run_is_replayed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    models.linear(tmp_path / "model.onnx")
    rng = np.random.default_rng(0)
    np.savez("data.npz", x=rng.random((6, 1, 4, 4), dtype=np.float32), y=rng.integers(0, 3, 6))
    given = ["--engine", "model.onnx", "--data", "data.npz", "--sigma", "0.1"]
    common = ["stopping", "--n", "2000", "--quiet"]
    result = CliRunner().invoke(main, [*common, *given, "--batch", "64", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["measured"]["fixed_draws"] == 2100
    ours = found["rules"][0]
    assert ours["mean_draws"] == pytest.approx(found["measured"]["adaptive_draws"]), "the replay is the run"

    from ars.engine.cli import main as engine

    assert CliRunner().invoke(engine, ["certify", *given, "--n", "500", "--out", "run.sqlite"]).exit_code == 0
    shown = CliRunner().invoke(main, [*common, "--run", "run.sqlite"])
    assert shown.exit_code == 0, shown.output
    assert "1,500 of 2,000 draws simulated" in " ".join(shown.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give --engine and --data, or --run"),
        (["--run", "a.sqlite", "--data", "b"], "give either --run, or --engine and --data"),
        (["--run", "none.sqlite"], "there is no such file"),
        (["--run", "a.sqlite", "--only", "3"], "its votes are made, so leave out --only, or give --engine and --data"),
        (["--run", "a.sqlite", "--two-sided", "--alpha", "0.001"], "so leave out --alpha, --two-sided, or"),
        (["--run", "a.sqlite", "--sigma", "1", "--n0", "9"], "so leave out --sigma, --n0, or"),
        (["--run", "a.sqlite", "--batch", "9", "--threads", "9"], "so leave out --batch, --threads, or"),
    ],
)
def test_wrong_arguments_are_one_sentence(arguments, message):
    result = CliRunner().invoke(main, ["stopping", *arguments])
    assert result.exit_code == 2
    assert message in result.stderr
