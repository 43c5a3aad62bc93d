"""What n votes say about a probability: Clopper-Pearson bounds, and the test that prediction uses.

For up to 10^9 draws and alpha down to 1e-15, the bounds err on the safe side only: rounding never makes a lower bound
larger or an upper bound smaller than the exact one (test_bounds.py sums the binomial tails with 50 digits).
Outside of that range scipy's inverse is not good enough, and the arguments are refused.
"""

import math

from scipy.special import betainccinv, betaincinv
from scipy.stats import binomtest

from ars.checks import real_number, whole_number
from ars.engine.statistics.looks import Look
from ars.errors import ArgumentError

__all__ = [
    "MAX_N",
    "binomial_test",
    "bound_at_fixed_n",
    "check_alpha",
    "lower_confidence_bound",
    "upper_confidence_bound",
]

MAX_N = 10**9
MIN_ALPHA = 1e-15

# In that range scipy's inverse was seen to be off by 2e-12 of the nearer tail, and by the last bit of a number near 1.
# Giving up these much larger shares costs a radius less than 1e-9.
_TAIL_SLACK = 1e-10
_ROUNDING_SLACK = 4 * 2.0**-52


def lower_confidence_bound(k: int, n: int, alpha: float) -> float:
    """The paper's LowerConfBound: at most the true probability with confidence 1 - alpha, from k hits in n draws."""
    k, n = _check_counts(k, n)
    alpha = check_alpha(alpha)
    if k == 0:
        return 0.0
    bound = alpha ** (1 / n) if k == n else float(betaincinv(k, n - k + 1, alpha))
    return bound - _TAIL_SLACK * min(bound, 1 - bound) - _ROUNDING_SLACK * bound


def upper_confidence_bound(k: int, n: int, alpha: float) -> float:
    """At least the true probability with confidence 1 - alpha, from k hits in n draws."""
    k, n = _check_counts(k, n)
    alpha = check_alpha(alpha)
    if k == n:
        return 1.0
    bound = -math.expm1(math.log(alpha) / n) if k == 0 else float(betainccinv(k + 1, n - k, alpha))
    return min(1.0, bound + _TAIL_SLACK * min(bound, 1 - bound) + _ROUNDING_SLACK)


def bound_at_fixed_n(votes: Look, alpha: float, *, two_sided: bool) -> tuple[float, float]:
    """A lower bound of pA and an upper bound of pB, after a number of draws that was fixed before the first.

    If `two_sided`, each bound holds at level alpha / 2; otherwise pB is 1 - pA and pA's bound has all of alpha. The
    bound of pB is computed from the count of the most frequent other answer, at the level of a single answer. Proof
    that this is enough: let b be the likeliest other answer. Its count is at most that of the most frequent one, and
    the bound grows with the count. So whenever b's own bound is at least its probability, which fails with probability
    at most alpha / 2, this one is too; and every other answer is no likelier than b.
    """
    p_a = lower_confidence_bound(votes.hits, votes.draws, alpha / (1 + two_sided))
    if not two_sided:
        return p_a, 1 - p_a  # exact where it matters, for p_a of at least 1/2
    return p_a, min(upper_confidence_bound(votes.runner_up, votes.draws, alpha / 2), 1 - p_a)


def binomial_test(k: int, n: int) -> float:
    """The p-value of the two-sided test that k hits in n draws came from probability 1/2 (the paper's BinomPValue)."""
    k, n = _check_counts(k, n)
    return float(binomtest(k, n, 0.5).pvalue)


def check_alpha(alpha: float) -> float:
    """Alpha as a float, or a refusal where it is no probability of error."""
    requirement = f"it is the allowed share of wrong answers, at least {MIN_ALPHA} and below 1"
    number = real_number("alpha", alpha, requirement)
    if not MIN_ALPHA <= number < 1:
        raise ArgumentError("alpha", alpha, requirement)
    return number


def _check_counts(k: int, n: int) -> tuple[int, int]:
    n = whole_number("n", n, 1, MAX_N, f"the bounds are for 1 to {MAX_N} draws")
    return whole_number("k", k, 0, n, f"hits lie between 0 and the number of draws, n = {n}"), n
