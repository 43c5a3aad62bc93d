"""Adaptive stopping: it answers its question as n draws would, with fewer, and never takes more."""

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from support import simulate

from ars.engine.statistics.certificate import certify_votes
from ars.engine.statistics.plan import Plan
from ars.engine.statistics.stopping import (
    QUESTIONS,
    RADII,
    Grid,
    Tolerance,
    question_from_settings,
    usual_radii,
)
from ars.errors import ArgumentError
from ars.noise import FAMILIES, GAUSSIAN, NoiseKind

N = 20_000


def cells(made, radii=RADII):
    return sum(not made.abstained and made.radius >= radius for radius in radii)


@pytest.mark.parametrize("share", [0.4, 0.65, 0.9, 0.99, 0.999, 1.0])
def test_an_easy_input_gets_the_answer_of_n_draws_for_fewer(share):
    probabilities = [share, (1 - share) / 2, (1 - share) / 2, 0]
    adaptive = simulate.certify(probabilities, Plan(n=N, question=Grid()), seed=1)
    fixed = simulate.certify(probabilities, Plan(n=N), seed=1)
    assert fixed.n == fixed.budget == adaptive.budget == N
    assert adaptive.n <= N / 2
    assert cells(adaptive) == cells(fixed)


def test_an_input_on_the_border_of_a_cell_runs_to_the_budget_and_not_further():
    used = [simulate.certify([0.85, 0.15, 0], Plan(n=N, question=Grid()), seed=seed).n for seed in range(20)]
    assert max(used) == N


def test_one_radius_takes_fewer_draws_than_the_grid():
    plans = [Plan(n=N, question=question) for question in (Grid((0.5,)), Grid())]
    one, grid = (sum(simulate.certify([0.99, 0.01, 0], plan, seed=seed).n for seed in range(20)) for plan in plans)
    assert one < grid / 2


@pytest.mark.parametrize(("share", "tolerance"), [(0.9, 0.05), (0.9, 0.02), (0.6, 0.1), (0.53, 0.2)])
def test_a_tolerance_is_met_against_the_same_bounds_after_n_draws(share, tolerance, monkeypatch):
    plan, met, draws = Plan(n=N, question=Tolerance(tolerance)), 0, []
    early = [simulate.certify([share, 1 - share, 0], plan, seed=seed) for seed in range(20)]
    monkeypatch.setattr(Tolerance, "settled", lambda question, now, best: False)
    for seed, made in enumerate(early):
        whole = simulate.certify([share, 1 - share, 0], plan, seed=seed)
        assert whole.n == N
        met += made.radius >= (1 - tolerance) * whole.radius
        draws.append(made.n)
    assert met >= 18, "it is a guess, and may fail now and then"
    assert np.mean(draws) < N


@pytest.mark.parametrize("two_sided", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_and_both_kinds_of_bounds_save_draws(family, two_sided):
    plan = Plan(n=N, two_sided=two_sided, question=Grid((0, 0.1, 0.2, 0.3)))
    made = simulate.certify([0.8, 0.1, 0.06, 0.04, 0], plan, family=FAMILIES[family], seed=0)
    assert made.n < N / 2
    assert made.radius > (0 if family == "pareto" else 0.1)  # at p = 0.8, Pareto noise barely reaches 0.1


def test_a_certificate_is_computed_again_from_its_looks():
    for two_sided in (False, True):
        plan = Plan(n=N, two_sided=two_sided, question=Grid())
        made = simulate.certify([0.9, 0.07, 0.03, 0], plan, seed=3)
        noise = {"family": GAUSSIAN, "scale": 0.5, "kind": NoiseKind.ISOTROPIC, "dimensions": 1}
        again = certify_votes(made.counts, made.selected, plan=plan, looks=made.looks, **noise)
        assert again == made
        assert made.stopping == "adaptive"
        with pytest.raises(ArgumentError, match="the last look must be the look at the counts"):
            certify_votes(made.counts, 1, plan=plan, looks=made.looks, **noise)


def test_a_budget_below_the_first_look_is_the_fixed_rule():
    for seed in range(20):
        made = simulate.certify([0.9, 0.1, 0], Plan(n=100, question=Grid()), seed=seed)
        fixed = simulate.certify([0.9, 0.1, 0], Plan(n=100), seed=seed)
        assert made.counts == fixed.counts
        assert cells(made) == cells(fixed)


@pytest.mark.parametrize("family", ["gaussian", "laplace", "uniform"])  # the shares below are chosen for these
@pytest.mark.parametrize("scale", [0.12, 0.25, 0.4997, 0.5, 1.0])
def test_a_radius_of_the_question_is_certified_as_at_fixed_n_and_none_just_missed(family, scale):
    radii = tuple(scale * K for K in (0.25, 0.5, 0.75))
    found = set()
    for share in (0.4, 0.55, 0.65, 0.73, 0.8, 0.9, 0.95):
        given = {"seed": 0, "family": FAMILIES[family], "scale": scale}
        made = simulate.certify([share, 1 - share, 0], Plan(n=N, question=Grid(radii)), **given)
        assert cells(made, (0, *radii)) == cells(
            simulate.certify([share, 1 - share, 0], Plan(n=N), **given), (0, *radii)
        )
        assert not any(-0.001 * scale < made.radius - radius < 0 for radius in radii)
        found.add(cells(made, (0, *radii)))
    assert found == {0, 1, 2, 3, 4}, "from abstention to the last radius"


@settings(deadline=None)
@given(st.floats(2**-10, 2**10, width=32), st.lists(st.floats(0, 100), min_size=1, max_size=5))
def test_the_regions_of_a_grid_are_just_above_its_radii(scale, radii):
    regions = Grid(tuple(radii)).regions(scale)
    assert list(regions) == sorted(set(regions))
    assert 0 < regions[0] < 2.5e-4
    for radius in radii:
        above = [K for K in regions if K * scale > radius]
        assert radius / scale > 19.9 or above[0] - radius / scale < 2.5e-4 + 3e-7 * radius / scale


def test_a_radius_that_is_a_multiple_of_sigma_is_asked_for_as_it_is():
    for scale in (0.1, 0.12, 0.25, 0.5, 0.7, 1.0):
        rounded = float(np.float32(scale))
        assert Grid((3 * scale,)).regions(rounded)[-1] == pytest.approx(3, rel=4e-7)


def test_a_question_without_looks_and_looks_without_a_question_are_refused():
    given = {"family": GAUSSIAN, "scale": 0.5, "kind": NoiseKind.ISOTROPIC}
    with pytest.raises(ArgumentError, match="the last look must be the look at the counts"):
        certify_votes([90, 10, 0], 0, plan=Plan(n=100, question=Grid()), **given)
    with pytest.raises(ArgumentError, match="only a plan with a question has looks"):
        certify_votes([90, 10, 0], 0, plan=Plan(n=100), looks=[(100, 90, 10)], **given)


def test_the_certified_accuracy_of_many_inputs_is_that_of_n_draws_for_a_quarter_of_the_draws():
    """Inputs like a trained model's: a few that abstain, many in the middle, a quarter that hardly ever miss."""
    rng = np.random.default_rng(0)
    shares = norm.cdf(np.concatenate([rng.normal(1.5, 1.3, 150), rng.uniform(4.5, 7, 50)]))
    plans = Plan(n=100_000, question=Grid()), Plan(n=100_000)
    adaptive, fixed = (
        [simulate.certify([p, 1 - p, 0], plan, seed=seed) for seed, p in enumerate(shares)] for plan in plans
    )
    assert np.mean([made.n for made in adaptive]) < 100_000 / 4
    for radius in RADII:
        lost = np.mean([cells(b, [radius]) - cells(a, [radius]) for a, b in zip(adaptive, fixed, strict=True)])
        assert lost <= 0.01, f"{lost:.1%} are lost at {radius}"


def test_the_less_may_be_lost_the_more_draws_are_taken():
    rng = np.random.default_rng(0)
    shares = norm.cdf(rng.normal(1.5, 1.0, 60))

    def draws(max_loss):
        plan = Plan(n=N, question=Grid(), max_loss=max_loss)
        return np.mean([simulate.certify([p, 1 - p, 0], plan, seed=seed).n for seed, p in enumerate(shares)])

    taken = [draws(max_loss) for max_loss in (0.1, 0.5, 2, 5)]
    assert sorted(taken, reverse=True) == taken
    assert taken[0] > 1.3 * taken[-1]


@pytest.mark.parametrize("text", ["", "a", "0.5,-1", "nan", "inf", "0.5,,1"])
def test_radii_that_are_none_are_refused(text):
    with pytest.raises(ArgumentError, match="radii"):
        Grid.parse(text)


def test_questions_and_plans_that_make_no_sense_are_refused():
    for tolerance in (0, 1, -0.5, 0.0005, float("nan")):
        with pytest.raises(ArgumentError, match="tolerance"):
            Tolerance(tolerance)
    with pytest.raises(ArgumentError, match="adaptive certificates are for alpha of at least 1e-05"):
        Plan(alpha=1e-6, question=Grid())
    for max_loss in (0, 0.005, 6, float("nan"), "1"):
        with pytest.raises(ArgumentError, match="max_loss"):
            Plan(question=Grid(), max_loss=max_loss)
    with pytest.raises(ArgumentError, match="it is for adaptive stopping; give a question too"):
        Plan(max_loss=1)
    assert Grid((1, 0.5, 0.5)) == Grid((0.5, 1))


@pytest.mark.parametrize("question", [None, Grid(), Grid((0.3, 1 / 3)), Tolerance(0.05), Tolerance(np.float32(0.1))])
@pytest.mark.parametrize("two_sided", [False, True])
def test_a_plan_comes_back_from_its_settings_as_json_keeps_them(question, two_sided):
    plan = Plan(np.int64(50), 20_000, 0.01, two_sided, question)
    for one in (plan, *(dataclasses.replace(plan, max_loss=lost) for lost in (0.1, 0.7) if question)):
        settings = json.loads(json.dumps(one.settings | {"seed": 7, "sigma": None}))
        assert Plan.from_settings(settings) == one


def test_an_adaptive_run_that_does_not_say_what_may_be_lost_is_an_older_one():
    settings = Plan(question=Grid()).settings
    assert settings.pop("max_loss") == 0.5
    older = Plan.from_settings(settings)
    assert older.max_loss == 0.7
    assert older.settings == settings | {"max_loss": 0.7}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"n": "20000"}, "n = '20000' is not valid"),
        ({"n0": 10.5}, "n0 = 10.5 is not valid"),
        ({"n": None}, "n = None is not valid"),
        ({"alpha": "0.01"}, "alpha = '0.01' is not valid"),
        ({"two_sided": "False"}, "two_sided = 'False' is not valid"),
        ({"two_sided": None}, "two_sided = None is not valid"),
        ({"stopping": None}, "stopping = None is not valid; it is fixed or adaptive"),
        ({"max_loss": "0.7"}, "max_loss = '0.7' is not valid"),
        ({"max_loss": 50}, "max_loss = 50.0 is not valid"),
        ({"radii": 0.5}, "radii = 0.5 is not valid"),
        ({"radii": ""}, "radii =  is not valid"),
    ],
)
def test_settings_that_no_plan_has_are_refused(changed, message):
    settings = {"n0": 100, "n": 20_000, "alpha": 0.01, "two_sided": False, "stopping": "adaptive", "radii": "0,0.5"}
    assert Plan.from_settings(settings) == Plan(100, 20_000, 0.01, False, Grid((0, 0.5)), 0.7)
    with pytest.raises(ArgumentError, match=message):
        Plan.from_settings(settings | changed)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tolerance": "0.1"}, "tolerance = '0.1' is not valid"),
        ({"tolerance": 2}, "tolerance = 2.0 is not valid"),
        ({}, "stopping = adaptive is not valid; the settings have none of radii, tolerance"),
    ],
)
def test_settings_that_no_question_has_are_refused(settings, message):
    with pytest.raises(ArgumentError, match=message):
        question_from_settings({"stopping": "adaptive"} | settings)


def test_a_question_is_described_in_words_and_has_radii_to_report():
    assert Grid((0.5, 0)).describe() == "which of the radii 0.0, 0.5 are certified"
    assert Grid((0.5,)).describe() == "whether the radius 0.5 is certified"
    assert Tolerance(0.05).describe() == "the radius to within 5 % of what the full number of draws would certify"
    assert Grid((0.5, 0)).radii == (0, 0.5)
    assert Tolerance(0.05).radii == RADII


def test_the_settings_of_a_question_have_its_own_name_and_no_other():
    """An old store is read by these names."""
    assert Grid((0.5, 0.25)).settings == {"radii": "0.25,0.5"}
    assert Tolerance(0.05).settings == {"tolerance": 0.05}
    for name, kind in QUESTIONS.items():
        own = (Grid() if kind is Grid else kind(0.05)).settings
        assert own.keys() & QUESTIONS.keys() == {name}


@pytest.mark.parametrize(
    ("family", "sigma", "step"),
    [
        *[("gaussian", sigma, 0.25) for sigma in (None, 0.24, 0.25, 0.5, 1.0, 1.09)],
        *[("gaussian", 0.12, 0.1), ("gaussian", 0.1, 0.1), ("gaussian", 0.3 - 0.2, 0.1), ("gaussian", 0.05, 0.05)],
        *[("gaussian", 1e-5, 1e-5), ("gaussian", 2.0, 1.0), ("gaussian", 4.0, 2.5), ("gaussian", 64.0, 50.0)],
        *[("laplace", 0.25, 0.25), ("laplace", 1.0, 1.0), ("uniform", 0.5, 0.1), ("uniform", 1.0, 0.25)],
        *[("pareto", 0.5, 0.1), ("exponential", 0.25, 0.05)],
    ],
)
def test_the_usual_radii_are_the_fields_or_in_round_steps_that_the_noise_can_reach(family, sigma, step):
    family = FAMILIES[family]
    radii = usual_radii(family, sigma)
    assert radii == tuple(float(f"{step * number:.12g}") for number in range(15))
    if sigma is not None:
        made = certify_votes(
            [10_000, 0, 0], 0, plan=Plan(n=10_000), family=family, scale=sigma, kind=NoiseKind.ISOTROPIC
        )
        assert 3 <= sum(0 < radius <= made.radius for radius in radii) <= 14
