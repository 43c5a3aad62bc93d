"""Draws that differ from the ideal noise with probability eta: every bound and every prediction accounts for it.

Real values of eta are below 1e-5. Here eta is large enough that a bound that forgets it is visibly wrong, and the same
tests fail without `widen`.
"""

import itertools

import numpy as np
import pytest
from scipy.stats import binom
from support.tracing import untraced

from ars.engine.statistics.bounds import lower_confidence_bound, most_moved, split_alpha, upper_confidence_bound
from ars.engine.statistics.certificate import ABSTAIN, certify_votes, predict_from_votes
from ars.engine.statistics.looks import Look, look_draws
from ars.engine.statistics.plan import Plan
from ars.engine.statistics.stopping import Grid, Tolerance
from ars.noise import GAUSSIAN, NoiseKind

ETAS = [0.01, 0.1]
N = 2000
GRID = Grid((0.25, 0.5, 0.75))
PLANS = {
    "binary": Plan(n=N, two_sided=False),
    "binary grid": Plan(n=N, question=GRID, two_sided=False),
    "binary tolerance": Plan(n=N, question=Tolerance(0.1), two_sided=False),
    "two-sided": Plan(n=N),
    "two-sided grid": Plan(n=N, question=GRID),
    "two-sided tolerance": Plan(n=N, question=Tolerance(0.1)),
}


def certify(plan, eta, share=0.95):
    """The certificate of votes that come as evenly as they can, all but the selected class's for one other class."""
    draws = look_draws(plan.n) if plan.question else (plan.n,)
    looks = [Look(n, round(share * n), n - round(share * n)) for n in draws]
    counts = (looks[-1].hits, looks[-1].runner_up, 0)
    noise = {"family": GAUSSIAN, "scale": 0.5, "kind": NoiseKind.ISOTROPIC}
    return certify_votes(counts, 0, plan=plan, looks=looks if plan.question else (), eta=eta, **noise), looks


@pytest.mark.parametrize("eta", ETAS)
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_every_bound_is_widened_by_eta(plan, eta):
    made, looks = certify(plan, eta)
    for_p_a, for_p_b = split_alpha(plan.alpha, two_sided=plan.two_sided)
    # No bound that holds at all looks is better than the best of the bounds that hold at one look each.
    best = max(lower_confidence_bound(look.hits, look.draws, for_p_a) for look in looks)
    assert made.p_a <= best - eta
    if plan.two_sided:
        least = min(upper_confidence_bound(look.runner_up, look.draws, for_p_b) for look in looks)
        assert made.p_b >= min(least, 1 - best) + eta
    else:
        assert made.p_b == pytest.approx(1 - made.p_a, abs=1e-15)
    assert (made.noise_stream, made.eta, made.assumption) == (2, eta, None)


@pytest.mark.parametrize("eta", ETAS)
@pytest.mark.parametrize("name", ["binary", "two-sided"])
def test_bounds_from_the_same_tests_differ_by_eta(name, eta):
    ideal, made = certify(PLANS[name], 0.0)[0], certify(PLANS[name], eta)[0]
    assert ideal.p_a - eta - 1e-12 < made.p_a <= ideal.p_a - eta
    assert ideal.p_b + eta <= made.p_b < ideal.p_b + eta + 1e-12
    assert ideal.noise_stream == 1


@pytest.mark.parametrize("eta", ETAS)
@pytest.mark.parametrize("radius", [0.25, 0.5, 0.75])
def test_a_grid_still_certifies_the_radius_that_was_asked_for(radius, eta):
    """The rates that are tested account for eta, so the radius is certified itself, and not a bit less."""
    made, _ = certify(Plan(n=N, question=Grid((radius,))), eta, share=1.0)
    if eta == 0.01 or radius < 0.75:
        assert made.radius >= radius
    # With votes that barely allow it, the bound is the rate of this very radius.
    rate = 1 - GAUSSIAN.largest_rate(radius / 0.5) + eta
    share = next((share for share in np.arange(rate, 1, 0.002) if covers(radius, eta, share)), None)
    if share is not None:
        assert radius <= certify(Plan(n=N, question=Grid((radius,))), eta, share)[0].radius < radius + 0.02


def covers(radius, eta, share):
    return certify(Plan(n=N, question=Grid((radius,))), eta, share)[0].radius >= radius


ALPHA = 0.05


def share_wrong(plan, p, eta, inputs=400):
    """How often the bound on pA is above p, if the draws vote for the class with probability p + eta."""
    if plan.question is None:
        hits = np.arange(plan.n + 1)
        likely = hits[binom.pmf(hits, plan.n, p + eta) > 1e-12]
        bounds = [plan.bound([Look(plan.n, int(k), plan.n - int(k))], GAUSSIAN, 0.5, eta)[0] for k in likely]
        return binom.pmf(likely[np.array(bounds) > p], plan.n, p + eta).sum()
    draws = look_draws(plan.n)
    votes = np.random.default_rng(0).binomial(np.diff([0, *draws]), p + eta, (inputs, len(draws))).cumsum(1)
    wrong = 0
    for hits in votes:
        looks = [Look(n, int(k), n - int(k)) for n, k in zip(draws, hits, strict=True)]
        wrong += plan.bound(looks, GAUSSIAN, 0.5, eta)[0] > p
    return wrong / inputs


def without_widening(monkeypatch):
    monkeypatch.setattr("ars.engine.statistics.plan.widen", lambda p_a, p_b, eta: (p_a, p_b))


CASES = list(itertools.product([None, GRID, Tolerance(0.1)], [False, True], ETAS))


@pytest.mark.parametrize(("question", "two_sided", "eta"), CASES)
@untraced()
def test_the_error_is_at_most_alpha_if_the_draws_are_wrong_by_eta(monkeypatch, question, two_sided, eta):
    """Exact at fixed n. Otherwise 400 inputs, with the bound from all looks; a false alarm once in 10^6."""
    n = 20_000 if question is None else N
    plan = Plan(n=n, alpha=ALPHA, two_sided=two_sided, question=question)
    p = 1 - GAUSSIAN.largest_rate(0.5 / 0.5) - 1e-9  # just below what the radius 0.5 needs: to certify it is wrong
    assert share_wrong(plan, p, eta) <= (ALPHA if question is None else binom.isf(1e-6, 400, ALPHA) / 400)
    without_widening(monkeypatch)
    if eta == 0.1 or question is None:
        assert share_wrong(plan, p, eta) > 0.5, "the negative control"


@pytest.mark.parametrize("two_sided", [False, True])
@pytest.mark.parametrize("question", [None, GRID])
def test_the_bound_on_the_others_holds_too(monkeypatch, question, two_sided):
    """Another answer of probability 0.3 gets only 0.2 of the votes."""
    plan = Plan(n=N, two_sided=two_sided, question=question)
    looks = [Look(n, round(0.7 * n), round(0.2 * n)) for n in (look_draws(N) if question else (N,))]
    assert plan.bound(looks, GAUSSIAN, 0.5, 0.1)[1] > 0.3
    without_widening(monkeypatch)
    if two_sided:
        assert plan.bound(looks, GAUSSIAN, 0.5, 0.1)[1] < 0.3, "the negative control"


@pytest.mark.parametrize("n", [1, 10, 1000, 100_000])
@pytest.mark.parametrize("eta", [1e-12, 1e-6, 1e-4, 0.01, 0.1, 0.9])
@pytest.mark.parametrize("risk", [1e-3, 1e-5, 1e-11])
def test_no_more_votes_move_than_most_moved_says(n, eta, risk):
    moved = most_moved(n, eta, risk)
    assert 0 <= moved <= n
    assert binom.sf(moved, n, eta) <= risk
    if n * eta < 0.1:
        assert binom.sf(moved - 2, n, eta) > risk, "it is within one vote of the smallest such number"


def test_a_prediction_abstains_where_moved_votes_could_change_the_winner():
    assert predict_from_votes([600, 400, 0], 0.001) == 0
    assert predict_from_votes([600, 400, 0], 0.001, 1e-6) == 0
    assert predict_from_votes([600, 400, 0], 0.001, 0.1) == ABSTAIN
    # A lead must be larger by the votes that may have moved, and a little for the stricter level.
    closest = [
        min(k for k in range(500, 1001) if predict_from_votes([k, 1000 - k, 0], 0.001, eta) == 0) for eta in (0, 1e-4)
    ]
    moved = most_moved(1000, 1e-4, 1e-5)
    assert moved >= 2
    assert moved <= closest[1] - closest[0] <= moved + 1


@pytest.mark.parametrize("eta", [0.01, 0.05])
def test_a_prediction_is_wrong_no_more_often_than_alpha_if_the_draws_are_wrong_by_eta(eta):
    """The ideal probability of class 0 is just below one half, and the draws' is eta more; computed exactly."""
    n, hits = 4000, np.arange(4001)

    def wrong(assumed):
        likely = hits[binom.pmf(hits, n, 0.5 + eta) > 1e-12]
        chosen = [predict_from_votes([int(k), n - int(k), 0], ALPHA, assumed) == 0 for k in likely]
        return binom.pmf(likely[np.array(chosen)], n, 0.5 + eta).sum()

    assert wrong(eta) <= ALPHA
    assert wrong(0.0) > 2 * ALPHA, "the negative control"
