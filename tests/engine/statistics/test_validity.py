"""Certificates claim more than is true with probability at most alpha, at fixed n and whenever they stop.

Alpha is 0.05, so that a violation would be visible. The number of wrong certificates is compared with a quantile of
its binomial distribution at alpha; each comparison fails by chance once in 10^6 runs. Rules that peek, or that spend
alpha twice, fail the same tests.
"""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom
from support import simulate
from support.exact import chance_to_meet
from support.tracing import untraced

from ars.engine.statistics.bounds import bound_at_fixed_n, lower_confidence_bound
from ars.engine.statistics.ladder import (
    STEPS,
    _Search,
    bound_at_looks,
    bound_both_at_looks,
    divide_alpha,
    fine_ladder,
    make_ladder,
    rare_rate,
)
from ars.engine.statistics.looks import Look, look_draws
from ars.engine.statistics.losses import LEAST_LOSS, MAX_LOSS, MOST_LOSS
from ars.engine.statistics.plan import Plan
from ars.engine.statistics.spending import choose_given_up, find_limits
from ars.engine.statistics.stopping import RADII, Grid, Tolerance
from ars.noise import FAMILIES, GAUSSIAN, UNIFORM

ALPHA = 0.05
N = 4000
INPUTS = 20_000


def too_often(wrong, inputs):
    return wrong > binom.isf(1e-6, inputs, ALPHA)


DRAWS = look_draws(N)
RARE = rare_rate(N, MAX_LOSS)


def all_looks(probabilities, inputs, seed=0):
    """The votes at each look of inputs that never stop: inputs x looks x answers."""
    rng = np.random.default_rng(seed)
    steps = np.diff([0, *DRAWS])
    return np.stack([rng.multinomial(step, probabilities, size=inputs) for step in steps], axis=1).cumsum(axis=1)


# A grid that is fine where N draws can tell its steps apart, and finer than that in one place: many tests, and floors.
RATES = make_ladder(GAUSSIAN, tuple(sorted({*np.arange(1, 31) / 10, *np.arange(1000, 1040) / 1000})))
# Just above a rate that is tested: to exclude it is wrong, and as likely as it can be.
WORST = [RATES[number] * (1 + 1e-9) for number in (0, 4, 9, 20, 48, 55, 60, len(RATES) - 1)]


@pytest.mark.parametrize("rate", [pytest.param(rate, id=f"{rate:.4f}") for rate in WORST])
@untraced()
def test_the_best_bound_of_all_looks_is_above_the_truth_no_more_often_than_alpha(rate):
    """This is the worst that any stopping rule could do: it takes each input's bound at its best look."""
    wrong = 0
    for hits in all_looks([1 - rate, rate], INPUTS)[:, :, 0]:
        looks = [Look(draws, int(k), draws - int(k)) for draws, k in zip(DRAWS, hits, strict=True)]
        wrong += bound_at_looks(looks, N, ALPHA, [STEPS, RATES])[0] > 1 - rate
    assert not too_often(wrong, INPUTS), f"{wrong / INPUTS:.2%} are wrong"


def falling_limits(monkeypatch, find):
    """How often, in many searches, a rate has a limit below one of a lower rate that the search kept before."""
    tested = []

    def note(rate, n, alpha, floor, given_up):
        limits = find(rate, n, alpha, floor, given_up)
        tested.append((rate, np.array(limits)))
        return limits

    monkeypatch.setattr("ars.engine.statistics.ladder.find_limits", note)
    falling = 0
    for rate in WORST:
        for hits in all_looks([1 - rate, rate], 20)[:, :, 0]:
            tested.clear()
            looks = [Look(draws, int(k), draws - int(k)) for draws, k in zip(DRAWS, hits, strict=True)]
            bound_at_looks(looks, N, ALPHA, [STEPS, RATES])
            for (lower, few), (higher, many) in itertools.combinations(tested, 2):
                kept = (DRAWS - hits > few).all()
                falling += kept and lower < higher and (many < few).any()
    return falling


def test_what_excludes_a_lower_rate_excludes_each_rate_that_is_tested_after_it(monkeypatch):
    """The proof in docs/adaptive-validity.md rests on this. It needs the floor: without one, limits sometimes fall."""
    assert falling_limits(monkeypatch, find_limits) == 0
    assert falling_limits(monkeypatch, lambda rate, n, alpha, floor, given_up: find_limits(rate, n, alpha)) > 0


def just_above(rate):
    """The next rate above this one that is tested, and a little: to exclude it is wrong, and as likely as it can be."""
    return min(tested for tested in fine_ladder(N) if tested >= rate) * (1 + 1e-9)


EVERY_SIZE = tuple(np.arange(1, 50_000) / 10_000)


def wrong_bounds(probabilities, inputs):
    """How often either bound is wrong at all looks together, if the searches go on to their ends."""
    miss, other = just_above(1 - probabilities[0]), just_above(max(probabilities[1:]))
    wrong = 0
    for counts in all_looks([1 - miss, other, *([] if miss == other else [miss - other])], inputs):
        looks = [Look(int(row.sum()), int(row[0]), int(row[1:].max())) for row in counts]
        p_a, p_b = bound_both_at_looks(looks, N, ALPHA, RATES, EVERY_SIZE, lambda p_a, p_b: 2.5 * (1 + p_a - p_b))
        wrong += p_a > 1 - miss or p_b < other
    return wrong


@pytest.mark.parametrize("probabilities", [(0.6, 0.3), (0.9, 0.07), (0.97, 0.03), (0.05, 0.7)])
@untraced()
def test_both_bounds_of_all_looks_are_wrong_together_no_more_often_than_alpha(probabilities):
    assert not too_often(wrong_bounds(probabilities, 5000), 5000)


@untraced()
def test_bounds_that_both_spend_all_of_alpha_fail_the_same_test(monkeypatch):
    monkeypatch.setattr("ars.engine.statistics.ladder.split_alpha", lambda alpha, two_sided, share=0: (alpha, alpha))
    assert too_often(wrong_bounds((0.05, 0.7), 5000), 5000)


def exact_search_error(rate, level):
    """The probability that a search with tests of these levels is wrong at any look, if this is the true rate: that the
    last test on the path of a search that goes wrong excludes its rate."""
    search = _Search((), (), (RATES, fine_ladder(N)), N, level, choose_given_up(MAX_LOSS, N))

    class GoesWrong:
        """Counts at look 0 that exclude a tested rate if it is above the true one, and keep it otherwise."""

        def __iter__(self):
            tested = search._rates[len(search._rates) // 2]
            yield math.inf if tested <= rate else -1

    search._numbers, search._counts = (0,), GoesWrong()
    while search.gap:
        search.test()
    return chance_to_meet(rate, N, search._floor)


def exact_worst_error(divide):
    """The largest sum of the errors of both searches, at rates around those where the levels change."""
    for_misses, for_others = divide(ALPHA, RARE)
    edges = [RARE, *(rate for rate in fine_ladder(N) if 0.95 * RARE < rate < 1.1 * RARE), 0.0003, 0.002, 0.02, 0.3]
    rates = [rate * (1 + sign * 1e-9) for rate in edges for sign in (-1, 1)]
    misses = {rate: exact_search_error(rate, for_misses) for rate in rates}
    others = {rate: exact_search_error(rate, for_others) for rate in rates}
    return max(misses[rate] + max(others[other] for other in rates if other <= rate) for rate in rates)


def test_alpha_may_be_divided_otherwise_where_misses_are_rare():
    assert 0.98 * ALPHA < exact_worst_error(divide_alpha) <= ALPHA


def test_alpha_that_is_divided_inconsistently_fails_the_same_test():
    def change_both_at_once(alpha, rare):
        """The mistake of a level of pB that rises where that of pA falls, but where an error of pA may still be as
        likely as below."""
        for_misses, _ = divide_alpha(alpha, rare)
        return for_misses, lambda rate: 0.01 * alpha if rate <= rare else 0.1 * alpha

    def always_the_usual_part_for_p_b(alpha, rare):
        return divide_alpha(alpha, rare)[0], lambda rate: 0.1 * alpha

    assert exact_worst_error(change_both_at_once) > 1.001 * ALPHA
    assert exact_worst_error(always_the_usual_part_for_p_b) > 1.05 * ALPHA


def exact_error(probabilities, n):
    """The probability that either bound is wrong at fixed n, with three answers, summed over all votes."""
    (p, q, _), highest = probabilities, max(probabilities[1:])
    total = 0.0
    for hits in range(n + 1):
        votes = np.arange(n - hits + 1)
        chances = binom.pmf(hits, n, p) * binom.pmf(votes, n - hits, q / (1 - p))
        most = np.maximum(votes, n - hits - votes)
        bounds = {
            int(count): bound_at_fixed_n(Look(n, hits, int(count)), ALPHA, two_sided=True) for count in np.unique(most)
        }
        total += chances[[bounds[count][0] > p or bounds[count][1] < highest for count in most.tolist()]].sum()
    return total


@pytest.mark.parametrize("probabilities", [(0.6, 0.3, 0.1), (0.4, 0.3, 0.3), (0.95, 0.05, 0), (0.05, 0.7, 0.25)])
def test_both_bounds_of_fixed_n_are_wrong_together_no_more_often_than_alpha(probabilities):
    assert 0.1 * ALPHA < exact_error(probabilities, 200) <= ALPHA


def test_bounds_of_fixed_n_that_both_spend_all_of_alpha_fail_the_same_test(monkeypatch):
    def spend_twice(alpha, two_sided):
        return alpha, alpha

    monkeypatch.setattr("ars.engine.statistics.bounds.split_alpha", spend_twice)
    assert exact_error((0.05, 0.7, 0.25), 200) > 1.2 * ALPHA


def test_peeking_with_the_bound_of_fixed_n_fails_the_same_test():
    inputs, failed = 2000, 0
    for rate in WORST[1:5]:
        wrong = 0
        for hits in all_looks([1 - rate, rate], inputs)[:, :, 0]:
            peeks = (lower_confidence_bound(int(k), m, ALPHA) for m, k in zip(DRAWS, hits, strict=True))
            wrong += max(peeks) > 1 - rate
        failed += too_often(wrong, inputs)
    assert failed == 4


def worst_shares(family):
    """pA just below that at which a radius of the grid is true, for scale 0.5 and pB = 1 - pA."""
    rates = (family.largest_rate(radius / 0.5) for radius in RADII if radius < 1.8)
    return [1 - rate - 1e-12 for rate in rates if rate > 0]


QUESTIONS = {"grid": Grid(), "radius": Grid((0.25,)), "tolerance": Tolerance(0.05)}


def wrong_certificates(plan, family, inputs, dimensions=1):
    """Certificates above the truth, of inputs that are each at one of the worst shares: a mixture of them."""
    family = family.in_dimensions(dimensions)
    wrong, shares = 0, worst_shares(family)
    for seed in range(inputs):
        p_a = shares[seed % len(shares)]
        probabilities = [p_a, 1 - p_a, 0] if not plan.two_sided else [p_a, 0.7 * (1 - p_a), 0.3 * (1 - p_a), 0]
        made = simulate.certify(probabilities, plan, seed=seed, family=family, dimensions=dimensions)
        others = max(p for answer, p in enumerate(probabilities) if answer != made.selected)
        wrong += made.radius > family.radius(probabilities[made.selected], others, 0.5)
    return wrong


@pytest.mark.parametrize("inputs", [400, pytest.param(INPUTS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("two_sided", [False, True], ids=["binary", "two-sided"])
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize(("family", "dimensions"), [*((name, 1) for name in FAMILIES), ("exponential", 5)])
@untraced()
def test_certificates_of_every_rule_and_family_are_above_the_truth_no_more_often_than_alpha(
    family, dimensions, question, two_sided, inputs
):
    plan = Plan(20, 2000, ALPHA, two_sided, QUESTIONS[question])
    wrong = wrong_certificates(plan, FAMILIES[family], inputs, dimensions)
    assert not too_often(wrong, inputs), f"{wrong / inputs:.2%} are wrong"


@pytest.mark.parametrize("inputs", [400, pytest.param(INPUTS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("two_sided", [False, True], ids=["binary", "two-sided"])
@pytest.mark.parametrize("max_loss", [LEAST_LOSS, MOST_LOSS])
@untraced()
def test_they_are_so_whatever_may_be_lost(max_loss, two_sided, inputs):
    plan = Plan(20, 2000, ALPHA, two_sided, Grid(), max_loss)
    wrong = wrong_certificates(plan, GAUSSIAN, inputs)
    assert not too_often(wrong, inputs), f"{wrong / inputs:.2%} are wrong"


def test_a_rule_that_stops_where_its_peeks_look_best_fails_the_same_test(monkeypatch):
    """The same algorithm with the bound of fixed n at each look."""

    def peek(looks, n, alpha, ladders, max_loss):
        p_a = max(lower_confidence_bound(look.hits, look.draws, alpha) for look in looks)
        return p_a, 1 - p_a

    monkeypatch.setattr("ars.engine.statistics.plan.bound_at_looks", peek)
    plan = Plan(20, 2000, ALPHA, False, Grid())
    assert too_often(wrong_certificates(plan, UNIFORM, 1000), 1000)
