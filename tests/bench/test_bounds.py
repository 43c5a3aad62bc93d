"""`ars-bench bounds`: binary and two-sided bounds on the same votes."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.stats import norm
from support import models
from support.tracing import untraced

from ars.bench.bounds import measure_bounds
from ars.bench.cli import main
from ars.bench.stopping.replay import ORDERS, reorder_votes, replay
from ars.bench.stopping.rules import RULES
from ars.engine.cli import main as engine
from ars.engine.records.record import Record
from ars.engine.statistics.certificate import certify_votes
from ars.engine.statistics.plan import Plan
from ars.engine.statistics.stopping import NO_RADIUS, Grid
from ars.noise import GAUSSIAN, NoiseKind

N = 2000


def compared(probabilities, inputs=20):
    counts = np.random.default_rng(0).multinomial(N, probabilities, inputs)
    noise = {"family": GAUSSIAN, "scale": 0.5, "kind": NoiseKind.ISOTROPIC}
    records = [
        Record(idx, 0, certify_votes([*row, 0], 0, plan=Plan(n=N), **noise), N + 100, 0.1, "")
        for idx, row in enumerate(counts.tolist())
    ]
    votes = list(reorder_votes(records, N))
    return [measure_bounds(votes, N, Grid((0, 0.25, 0.5)), inputs, two_sided=two) for two in (False, True)]


def test_two_sided_bounds_certify_more_where_misses_are_spread_and_hardly_less_where_they_are_not():
    binary, two_sided = compared([0.55, 0.15, 0.15, 0.15])
    assert two_sided.average_radius > 1.5 * binary.average_radius
    assert all(np.array(two_sided.certified_accuracy) >= binary.certified_accuracy)
    binary, two_sided = compared([0.9, 0.1])
    assert 0.99 * binary.average_radius < two_sided.average_radius < binary.average_radius
    for one in (binary, two_sided):
        assert 100 < one.mean_draws < N + 100
        assert one.lost <= 0.05


@pytest.mark.parametrize(("n", "inputs", "lost"), [(1000, 800, 0.005), (10_000, 200, 0.0075), (100_000, 200, 0.0075)])
@untraced()
def test_adaptive_stopping_loses_about_half_a_point_at_most_at_every_budget(n, inputs, lost):
    """In 4 orders. The inputs are harder than a trained model's, as a quarter of them hardly ever miss. With 200
    inputs, of which one in one order is 0.125 points, the limit is a little wider than half a point."""
    rng = np.random.default_rng(1)
    rare = inputs // 4
    shares = norm.cdf(np.concatenate([rng.normal(1.5, 1.3, inputs - rare), rng.uniform(2.5, 6, rare)]))
    noise = {"family": GAUSSIAN, "scale": 0.5, "kind": NoiseKind.ISOTROPIC}
    records = []
    for idx, share in enumerate(shares):
        hits = rng.binomial(n, share)
        other = rng.binomial(n - hits, 0.6)
        made = certify_votes([hits, other, n - hits - other, 0], 0, plan=Plan(n=n), **noise)
        records.append(Record(idx, 0, made, n + 100, 0.1, ""))
    votes = list(reorder_votes(records, n))
    for two_sided in (False, True):
        assert measure_bounds(votes, n, Grid(), len(records), two_sided=two_sided).lost <= lost


def test_inputs_that_ended_after_selection_count_as_not_certified():
    binary, _ = compared([0.9, 0.1])
    noise = {"family": GAUSSIAN, "scale": 0.5, "kind": NoiseKind.ISOTROPIC}
    one = Record(0, 0, certify_votes([1800, 200, 0], 0, plan=Plan(n=N), **noise), N + 100, 0.1, "")
    half = measure_bounds(list(reorder_votes([one], N)), N, Grid((0.25,)), 2, two_sided=False)
    assert half.certified_accuracy == (0.5,)
    assert half.average_radius == pytest.approx(binary.average_radius / 2, rel=0.1)
    assert len(list(reorder_votes([one], N))) == ORDERS


def test_it_counts_losses_in_points_of_all_inputs_as_the_comparison_of_rules_does(monkeypatch):
    """With a rule that certifies nothing, all of the certified accuracy is lost."""
    monkeypatch.setattr("ars.bench.stopping.replay._stop", lambda *_: (500, NO_RADIUS))
    noise = {"family": GAUSSIAN, "scale": 0.5, "kind": NoiseKind.ISOTROPIC}
    one = Record(0, 0, certify_votes([1800, 200, 0], 0, plan=Plan(n=N), **noise), N + 100, 0.1, "")
    votes, question = list(reorder_votes([one], N)), Grid((0.25,))
    found = measure_bounds(votes, N, question, 4, two_sided=True)
    assert found.lost == found.certified_accuracy[0] == 0.25
    assert [outcome.lost for outcome in replay(votes, N, question, 4 * ORDERS)] == [0.25] * (1 + len(RULES))


def test_the_command_prints_a_table_of_a_store_and_refuses_others(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    models.linear(Path("model.onnx"))
    rng = np.random.default_rng(0)
    np.savez("data.npz", x=rng.random((5, 1, 4, 4), dtype=np.float32), y=rng.integers(0, 3, 5))

    def certify(*given):
        base = [
            "certify",
            "--engine",
            "model.onnx",
            "--data",
            "data.npz",
            "--sigma",
            "0.1",
            "--n",
            "1000",
            "--limit",
            "5",
        ]
        result = CliRunner().invoke(engine, [*base, "--batch", "64", "--quiet", *given])
        assert result.exit_code == 0, result.output

    certify("--out", "fixed.sqlite")
    certify("--out", "adaptive.sqlite", "--stopping", "adaptive")
    result = CliRunner().invoke(main, ["bounds", "fixed.sqlite", "--n", "500"])
    assert result.exit_code == 0, result.output
    for text in ("n = 500, 5 inputs: the votes", "certified accuracy at 0 ", "average certified radius"):
        assert text in result.stdout
    assert "simulated" not in result.stdout
    more = CliRunner().invoke(main, ["bounds", "fixed.sqlite", "--n", "2000"])
    assert more.exit_code == 0, more.output
    assert "1,000 of 2,000 draws simulated" in " ".join(more.stdout.split())
    for store, message in (("adaptive.sqlite", "give one of --stopping fixed"), ("none.sqlite", "no such file")):
        result = CliRunner().invoke(main, ["bounds", store])
        assert result.exit_code == 2
        assert message in result.stderr
