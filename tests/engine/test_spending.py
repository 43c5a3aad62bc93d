"""The bounds that hold at every look: the looks, the parts of alpha, and what they cost."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ars.engine import spending
from ars.engine.bounds import MIN_ALPHA, lower_confidence_bound, upper_confidence_bound
from ars.engine.spending import Look, bounds_at, check_looks, look_draws, next_look
from ars.errors import ArgumentError
from ars.noise import GAUSSIAN


def binary(looks, n, alpha=0.001):
    return bounds_at(looks, n, alpha, two_sided=False, others=3)[0]


@settings(deadline=None)
@given(st.integers(1, 10**9))
def test_looks_go_up_to_the_budget_and_their_parts_add_up_to_alpha(n):
    looks = look_draws(n)
    assert looks[-1] == n
    assert all(a < b for a, b in itertools.pairwise(looks))
    assert looks[0] >= min(n, spending.FIRST_LOOK)
    assert math.fsum(spending._parts(n).values()) == pytest.approx(1, abs=1e-12)
    assert math.fsum([spending.RESERVE_BY_COUNT, *(part for _, part in spending.BY_COUNT)]) == pytest.approx(
        1, abs=1e-12
    )
    assert min(spending._parts(n).values()) * 1e-5 / 2 / 10**5 > MIN_ALPHA, "the plan's least alpha, over 10^5 classes"
    for before, after in itertools.pairwise(looks):
        assert next_look(before, n) == after


def test_a_budget_too_small_for_a_second_look_has_the_bound_of_fixed_n():
    for n in (1, 10, 200):
        assert look_draws(n) == (n,)
        for hits in (0, n // 2, n):
            assert binary([Look(n, hits, 0)], n) == pytest.approx(lower_confidence_bound(hits, n, 0.001), abs=1e-9)


def test_an_input_that_runs_to_the_budget_loses_almost_nothing():
    """In radius, for Gaussian noise of scale 1: under 0.01 where pA is up to 0.99, under 0.02 where all draws hit."""
    n = 100_000
    for share, most in ((0.55, 0.01), (0.8, 0.01), (0.99, 0.01), (1.0, 0.02)):
        hits = round(share * n)
        p = binary([Look(n, hits, 0)], n)
        fixed = lower_confidence_bound(hits, n, 0.001)
        assert 0 < GAUSSIAN.radius(fixed, 1 - fixed, 1) - GAUSSIAN.radius(p, 1 - p, 1) < most


def test_draws_that_never_miss_have_the_bound_of_a_fifth_of_alpha_at_every_look():
    n = 100_000
    looks = [Look(draws, draws, 0) for draws in look_draws(n) if draws < n]
    for number, look in enumerate(looks, 1):
        p = binary(looks[:number], n)
        if 1 - p < spending.RARE / n:
            assert p == pytest.approx(0.0002 ** (1 / look.draws), abs=1e-9)
    assert 1 - binary(looks, n) < spending.RARE / n


def test_another_look_never_takes_away_what_was_certified():
    rng = np.random.default_rng(0)
    for share in (0.6, 0.95, 0.9995, 1.0):
        n, hits, before, looks = 20_000, 0, 0, []
        reported = 0.0
        for draws in look_draws(n):
            hits += int(rng.binomial(draws - before, share))
            before = draws
            looks.append(Look(draws, hits, draws - hits))
            p_a, p_b = bounds_at(looks, n, 0.01, two_sided=True, others=5)
            assert p_a >= reported
            assert p_b <= 1 - p_a
            reported = p_a


def test_the_runner_up_is_bounded_like_the_misses_at_its_part_of_alpha():
    n = 50_000
    looks = [Look(draws, draws // 2, draws // 4) for draws in look_draws(n)]
    _, p_b = bounds_at(looks, n, 0.01, two_sided=True, others=10)
    assert upper_confidence_bound(n // 4, n, 0.0005) < p_b < upper_confidence_bound(n // 4, n, 0.0001)


def test_looks_between_tenths_bound_rare_misses_only():
    n = 100_000
    assert len(look_draws(n)) > 1.5 * len(spending._parts(n))
    between = next(draws for draws in look_draws(n) if draws not in spending._parts(n) and draws > n / 2)
    assert binary([Look(between, between, 0)], n) == 0
    tenth = max(draws for draws in spending._parts(n) if draws < between)
    assert binary([Look(tenth, tenth, 0), Look(between, between, 0)], n) == pytest.approx(0.0002 ** (1 / between))
    common = Look(tenth, tenth // 2, 0)
    assert binary([common, Look(between, between // 2, 0)], n) == binary([common], n)


@pytest.mark.parametrize(
    "change",
    [
        lambda looks: looks[1:],
        lambda looks: [*looks[:2], looks[1], *looks[2:]],
        lambda looks: [looks[0]._replace(draws=looks[0].draws + 1), *looks[1:]],
        lambda looks: [looks[0]._replace(hits=looks[1].hits + 1), *looks[1:]],
        lambda looks: [looks[0]._replace(hits=0), *looks[1:]],
        lambda looks: [looks[0]._replace(runner_up=looks[1].runner_up + 1), *looks[1:]],
        lambda looks: [*looks[:-1], looks[-1]._replace(runner_up=looks[-1].draws)],
    ],
    ids=["left out", "twice", "elsewhere", "hits taken back", "misses taken back", "runner-up", "too many"],
)
def test_looks_that_no_input_can_have_had_are_refused(change):
    looks = [Look(draws, draws * 3 // 4, draws // 5) for draws in look_draws(10_000)[:5]]
    check_looks(looks, 10_000)
    with pytest.raises(ArgumentError, match="looks"):
        check_looks(change(looks), 10_000)
