"""Clopper-Pearson bounds are on the safe side of the exact ones, and close to them."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats
from support import exact

from ars.engine.statistics.bounds import binomial_test, lower_confidence_bound, upper_confidence_bound
from ars.errors import ArgumentError

ALPHAS = [0.001, 0.05, 0.5, 1e-6, 1e-15]


def hits(n):
    shares = (1e-6, 0.001, 0.01, 0.1, 1 / 3, 0.5, 0.501, 0.6, 0.9, 0.99, 0.999, 0.9999, 1 - 1e-6)
    return sorted({1, 2, 10, n - 10, n - 2, n - 1, *(int(n * share) for share in shares)} & set(range(1, n)))


def assert_just_below_the_exact_bound(bound, k, n, alpha):
    """The exact lower bound is the p at which at least k hits have probability alpha."""
    if bound < mp.mpf(k) / n:
        assert exact.binomial_tail(k, n, bound) <= alpha
        slack = mp.mpf("2e-10") * min(bound, 1 - bound) + mp.mpf("3e-15")
        assert exact.binomial_tail(k, n, min(bound + slack, mp.mpf(k) / n)) >= alpha


def assert_safe_and_close(k, n, alpha):
    assert_just_below_the_exact_bound(mp.mpf(lower_confidence_bound(k, n, alpha)), k, n, alpha)
    # The upper bound of the misses is 1 minus the lower bound of the hits.
    assert_just_below_the_exact_bound(1 - mp.mpf(upper_confidence_bound(n - k, n, alpha)), k, n, alpha)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("n", [2, 10, 100, 1000, 100_000, 10**7])
def test_bounds_are_never_on_the_wrong_side_and_are_close(n, alpha):
    for k in hits(n):
        assert_safe_and_close(k, n, alpha)


@pytest.mark.slow
def test_bounds_are_never_on_the_wrong_side_of_a_thousand_random_ones():
    rng = np.random.default_rng(0)
    for _ in range(1000):
        n = int(10 ** rng.uniform(0.5, 9))
        near_an_end = int(10 ** rng.uniform(0, np.log10(n)))
        k = int(np.clip(rng.choice([rng.integers(1, n), near_an_end, n - near_an_end]), 1, n - 1))
        assert_safe_and_close(k, n, float(10 ** rng.uniform(-15, -0.31)))


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("n", [1, 10, 100_000, 10**7, 10**9])
def test_all_hits_and_no_hits_have_closed_forms(n, alpha):
    root = mp.mpf(alpha) ** (mp.mpf(1) / n)
    slack = mp.mpf("2e-10") * min(root, 1 - root) + mp.mpf("2e-15")
    assert lower_confidence_bound(0, n, alpha) == 0
    assert upper_confidence_bound(n, n, alpha) == 1
    assert root - slack <= lower_confidence_bound(n, n, alpha) <= root
    assert 1 - root <= upper_confidence_bound(0, n, alpha) <= 1 - root + slack


@settings(deadline=None)
@given(n=st.integers(1, 10**6), data=st.data(), alpha=st.floats(1e-9, 0.5))
def test_bounds_agree_with_scipys_own_clopper_pearson(n, data, alpha):
    k = data.draw(st.integers(0, n))
    result = stats.binomtest(k, n)
    expected = result.proportion_ci(1 - 2 * alpha, method="exact")  # two-sided, alpha on each side
    assert lower_confidence_bound(k, n, alpha) == pytest.approx(expected.low, abs=1e-9)
    assert upper_confidence_bound(k, n, alpha) == pytest.approx(expected.high, abs=1e-9)


@settings(deadline=None)
@given(n=st.integers(2, 10**5), data=st.data())
def test_more_hits_raise_both_bounds_and_a_smaller_alpha_widens_them(n, data):
    k = data.draw(st.integers(0, n - 1))
    for bound in (lower_confidence_bound, upper_confidence_bound):
        assert bound(k, n, 0.01) <= bound(k + 1, n, 0.01)
    assert lower_confidence_bound(k, n, 0.001) <= lower_confidence_bound(k, n, 0.01)
    assert upper_confidence_bound(k, n, 0.001) >= upper_confidence_bound(k, n, 0.01)


@pytest.mark.parametrize("p", [0.5, 0.7, 0.99])
def test_the_lower_bound_is_wrong_no_more_often_than_alpha(p):
    """The exact share of wrong bounds over all outcomes, weighted by their binomial probabilities."""
    n, alpha = 500, 0.05
    wrong = np.array([lower_confidence_bound(k, n, alpha) > p for k in range(n + 1)])
    assert stats.binom.pmf(np.arange(n + 1), n, p)[wrong].sum() <= alpha


@given(n=st.integers(1, 1000), data=st.data())
@settings(deadline=None, max_examples=50)
@example(n=1, data=None)
def test_the_binomial_test_is_the_sum_of_outcomes_as_unlikely(n, data):
    k = data.draw(st.integers(0, n)) if data else 1
    pmf = stats.binom.pmf(np.arange(n + 1), n, 0.5)
    assert binomial_test(k, n) == pytest.approx(pmf[pmf <= pmf[k] * (1 + 1e-7)].sum(), rel=1e-9)


@pytest.mark.parametrize("bound", [lower_confidence_bound, upper_confidence_bound])
@pytest.mark.parametrize(
    ("k", "n", "alpha", "message"),
    [
        (11, 10, 0.1, "k = 11 is not valid"),
        (-1, 10, 0.1, "k = -1 is not valid"),
        (0, 0, 0.1, "n = 0 is not valid"),
        (5, 10, 0.0, "alpha = 0.0 is not valid"),
        (5, 10, 1.0, "alpha = 1.0 is not valid"),
        (5, 10, float("nan"), "alpha = nan is not valid"),
        (5, 10, 1e-16, "alpha = 1e-16 is not valid"),
        (5, 10, "0.1", "alpha = '0.1' is not valid"),
        (5, 10, None, "alpha = None is not valid"),
        (5, 10**9 + 1, 0.1, "n = 1000000001 is not valid"),
        (5, 10**400, 0.1, "n = 1000"),
        (5, float("inf"), 0.1, "n = inf is not valid"),
        ("5", 10, 0.1, "k = '5' is not valid"),
        (2.5, 10, 0.1, "k = 2.5 is not valid"),
    ],
)
def test_bad_arguments_are_named_with_their_value(bound, k, n, alpha, message):
    with pytest.raises(ArgumentError, match=message):
        bound(k, n, alpha)


def test_the_binomial_test_refuses_more_hits_than_draws():
    with pytest.raises(ArgumentError, match="k = 3 is not valid"):
        binomial_test(3, 2)
