"""The limits of a test of a rate: draws at that rate meet any of them with a probability of at most alpha, and hardly
less. The probability is computed again here, in whole numbers or by the plainest sums, and by simulation."""

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import fftconvolve
from scipy.special import bdtr, bdtrc
from scipy.stats import binom, norm
from support.exact import binomial_tail, chance_to_meet

from ars.engine.statistics import spending
from ars.engine.statistics.looks import look_draws
from ars.engine.statistics.losses import OLDER_LOSS
from ars.engine.statistics.spending import (
    GIVEN_UP,
    _chance_of_at_most,
    _chances_of_more_than,
    choose_given_up,
    find_limits,
)


def exact_chance(a, b, n, chosen):
    """The probability that draws which miss at the rate a / b meet a limit: exactly, in whole numbers."""
    ways, met, before = {0: 1}, Fraction(0), 0
    for draws, most in zip(look_draws(n), chosen, strict=True):
        step = draws - before
        more = [math.comb(step, k) * a**k * (b - a) ** (step - k) for k in range(step + 1)]
        grown: dict[int, int] = {}
        for misses, way in ways.items():
            for k, times in enumerate(more):
                grown[misses + k] = grown.get(misses + k, 0) + way * times
        met += Fraction(sum(way for misses, way in grown.items() if misses <= most), b**draws)
        ways, before = {misses: way for misses, way in grown.items() if misses > most}, draws
    return met


@pytest.mark.parametrize(("a", "b"), [(1, 2), (1, 10), (1, 50), (9, 10)])
def test_in_whole_numbers_alpha_is_not_exceeded(a, b):
    for alpha in (0.05, 0.001):
        chosen = find_limits(a / b, 600, alpha)
        met = exact_chance(a, b, 600, chosen)
        assert met <= Fraction(alpha)
        assert met >= 0.75 * alpha, "limits are whole numbers, so not all of alpha can be spent"


def cut_chance(rate, n, chosen):
    """The same for more draws, with the laws cut where they are below 1e-16."""
    law, lowest, met, before = np.ones(1), 0, 0.0, 0
    for draws, most in zip(look_draws(n), chosen, strict=True):
        step = draws - before
        first, last = binom.ppf([1e-16, 1 - 1e-16], step, rate).astype(int)
        law = np.convolve(law, binom.pmf(np.arange(first, last + 1), step, rate))
        number = max(0, most - lowest - first + 1)
        met += law[:number].sum()
        law, lowest, before = law[number:], lowest + first + number, draws
    return met


@pytest.mark.parametrize("K", [0, 1, 2, 2.5, 3, 3.5])
def test_nearly_all_of_alpha_is_spent_at_the_budget_of_the_field(K):
    rate = float(norm.sf(K))
    assert 0.00097 < cut_chance(rate, 100_000, find_limits(rate, 100_000, 0.001)) <= 0.001


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 4000),
    st.floats(0.0005, 0.999),
    st.floats(1e-8, 0.2),
    st.lists(st.floats(0.8, 0.9999), max_size=4),
    st.sampled_from([0.0, GIVEN_UP / 7, GIVEN_UP, 2.0]),
)
def test_alpha_is_not_exceeded_at_any_rate_nor_with_any_floor(n, rate, alpha, lower, given_up):
    """Floors come from lower rates, as near as a thousandth: a chain of them, the lowest rate first."""
    floor = ()
    for factor in sorted(lower):
        floor = find_limits(rate * factor, n, alpha, floor, given_up)
    chosen = find_limits(rate, n, alpha, floor, given_up)
    assert len(chosen) == len(look_draws(n))
    assert all(one >= least for one, least in zip(chosen, floor or chosen, strict=True))
    assert chance_to_meet(rate, n, chosen) <= alpha


def test_simulated_draws_meet_the_limits_no_more_often_than_alpha():
    """A million inputs at alpha = 0.05: three standard deviations are 0.00065."""
    n, inputs = 4000, 1_000_000
    rng, steps = np.random.default_rng(0), np.diff([0, *look_draws(4000)])
    for rate in (0.4, 0.01):
        chosen, misses, met = find_limits(rate, n, 0.05), np.zeros(inputs, np.int64), np.zeros(inputs, bool)
        for step, most in zip(steps, chosen, strict=True):
            misses += rng.binomial(step, rate, inputs)
            met |= misses <= most
        assert 0.045 < met.mean() < 0.05 + 0.00065


def test_the_last_look_is_nearly_that_of_fixed_n():
    n, alpha = 100_000, 0.001
    for K in (0, 1, 2, 3, 3.25, 3.5):
        rate = float(norm.sf(K))
        single = int(binom.ppf(alpha, n, rate)) - 1
        given_up = single - find_limits(rate, n, alpha)[-1]
        assert 0 <= given_up <= GIVEN_UP * math.sqrt(n * rate * (1 - rate))
    assert given_up == 0, "3.5: one miss more or less decides"


@pytest.mark.parametrize("undefined", [math.nan, 0.0])
@pytest.mark.parametrize("expected", [6.9, 8, 10, 14, 20])
@pytest.mark.parametrize("max_loss", [1, 2, 5])
def test_however_much_is_given_up_alpha_holds_and_an_input_without_a_miss_loses_nothing(
    max_loss, expected, undefined, monkeypatch
):
    """Where few misses are expected, what is given up is more than the limit. scipy 1.13 has NaN for the probability of
    fewer than 0 misses."""

    def betaincc(a, b, x):
        return undefined if a == 0 else exact(a, b, x)

    exact = spending.betaincc
    monkeypatch.setattr(spending, "betaincc", betaincc)
    n, alpha = 100_000, 0.001
    chosen = find_limits.__wrapped__(expected / n, n, alpha, (), choose_given_up(max_loss, n))
    assert chance_to_meet(expected / n, n, chosen) <= alpha
    assert (chosen[-1] >= 0) == ((1 - expected / n) ** n <= alpha * (1 - 1e-6))


def test_the_less_may_be_lost_the_nearer_is_the_last_look_to_that_of_fixed_n():
    n, alpha, rate = 100_000, 0.001, 0.05
    lasts = [find_limits(rate, n, alpha, (), choose_given_up(max_loss, n))[-1] for max_loss in (0.1, 0.5, 0.7, 5)]
    assert sorted(lasts, reverse=True) == lasts
    assert len(set(lasts)) == 4
    assert choose_given_up(OLDER_LOSS, n) == GIVEN_UP, "older runs keep their bounds"
    assert choose_given_up(0.5, 1000) == pytest.approx(choose_given_up(0.5, n) / 10)


def test_few_hits_in_a_row_exclude_a_rare_miss():
    """That a radius of 3.5 sigma is out of reach takes log(1 / alpha) / rate = 29,700 hits with one look."""
    rate = float(norm.sf(3.5))
    first = next(
        draws for draws, most in zip(look_draws(100_000), find_limits(rate, 100_000, 0.001), strict=True) if most >= 0
    )
    assert 29_700 < first < 36_500


def exact_sums(k, n, rate):
    """P(X <= k) and P(X > k) with 50 digits, for the misses X of n draws."""
    if k < n * rate:
        at_most = binomial_tail(n - k, n, 1 - mp.mpf(rate))
        return at_most, 1 - at_most
    more = binomial_tail(k + 1, n, mp.mpf(rate))
    return 1 - more, more


def relative_errors(at_most, more, k, n, rate):
    found = at_most(k, n, rate), more(np.array([k]), n, rate)[0]
    return [float(abs(mp.mpf(float(one)) / sure - 1)) for one, sure in zip(found, exact_sums(k, n, rate), strict=True)]


def deviations_from_the_mean(n, rate, deviations):
    return {max(0, int(n * rate + z * math.sqrt(n * rate * (1 - rate)))) for z in deviations}


@pytest.mark.parametrize("n", [10**5, 10**7, 10**8, 10**9])
@pytest.mark.parametrize("rate", [1e-5, 1e-3, 0.3, 0.6, 1 - 1e-9])
def test_binomial_sums_are_right_to_ten_digits_near_the_mean_and_in_the_tails(n, rate):
    """The mean is up to 10^9."""
    for k in deviations_from_the_mean(n, rate, (-6, -3, -1, -0.01, 0.01, 3)):
        assert max(relative_errors(_chance_of_at_most, _chances_of_more_than, min(k, n - 1), n, rate)) < 1e-10


def test_at_the_ends_binomial_sums_are_0_and_1():
    assert _chances_of_more_than(np.array([-1, 0, 9, 10]), 10, 0.5).tolist() == [1, 1023 / 1024, 1 / 1024, 0]
    assert _chance_of_at_most(0, 10, 0.5) == 1 / 1024
    assert _chance_of_at_most(9, 10, 0.5) == 1023 / 1024


@pytest.mark.parametrize(("n", "rate"), [(10**8, 0.3), (10**8, 0.5), (10**9, 0.3)])
def test_scipys_own_binomial_sums_are_wrong_near_the_mean_of_many_draws(n, rate):
    """That is why they are not used: the test above can fail."""
    for k in deviations_from_the_mean(n, rate, (-0.01, 0.01)):
        assert min(relative_errors(bdtr, bdtrc, k, n, rate)) > 0.01


def fourier_chance(rate, n, chosen):
    """`cut_chance` for many more draws, with Fourier transforms."""
    law, lowest, met, before = np.ones(1), 0, 0.0, 0
    for draws, most in zip(look_draws(n), chosen, strict=True):
        step = draws - before
        first, last = binom.ppf([1e-16, 1 - 1e-16], step, rate).astype(int)
        law = fftconvolve(law, binom.pmf(np.arange(first, last + 1), step, rate))
        number = max(0, most - lowest - first + 1)
        met += law[:number].sum()
        law, lowest, before = law[number : np.flatnonzero(law > 1e-18)[-1]], lowest + first + number, draws
    return met


def test_alpha_is_not_exceeded_by_a_hundred_million_draws_as_it_is_with_scipys_own_sums(monkeypatch):
    n, rate, alpha = 10**8, 0.6, 0.01
    assert 0.9999 * alpha < fourier_chance(rate, n, find_limits(rate, n, alpha)) <= alpha
    monkeypatch.setattr(spending, "_chance_of_at_most", bdtr)
    monkeypatch.setattr(spending, "_chances_of_more_than", bdtrc)
    assert fourier_chance(rate, n, find_limits.__wrapped__(rate, n, alpha)) > 1.00005 * alpha


def test_one_look_has_the_limit_of_fixed_n():
    for n in (1, 10, 200, 249):
        assert look_draws(n) == (n,)
        for rate in (0.01, 0.3, 0.9):
            (most,) = find_limits(rate, n, 0.05)
            assert binom.cdf(most, n, rate) <= 0.05 < binom.cdf(most + 1, n, rate)


def test_a_large_budget_takes_fourier_transforms_and_gives_the_same_limits(monkeypatch):
    fast = spending.find_limits.__wrapped__(0.3, 300_000, 0.001)
    monkeypatch.setattr(spending, "_FOURIER", 10**12)
    plain = spending.find_limits.__wrapped__(0.3, 300_000, 0.001)
    assert np.abs(np.subtract(fast, plain)).max() <= 1
    assert np.mean(np.equal(fast, plain)) > 0.95
