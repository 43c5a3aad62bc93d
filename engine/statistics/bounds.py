"""What n votes say about a probability, if n was fixed beforehand: Clopper-Pearson bounds, and the test that prediction
uses.

For up to 10^9 draws and alpha down to 1e-15, rounding errs on the safe side only: no lower bound is above the exact
one, and no upper bound below it (test_bounds.py compares them with binomial sums of 50 digits). Outside this range
scipy's inverse of the incomplete beta function is not accurate enough, and the arguments are refused.
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
    "most_moved",
    "split_alpha",
    "upper_confidence_bound",
    "widen",
]

MAX_N = 10**9
MIN_ALPHA = 1e-15

P_A_SHARE = 0.9
"""The share of alpha that a two-sided certificate spends on the bound of pA; the rest goes to pB. A radius depends most
on pA, and if the runner-up has all the misses, the bound on pB is of no use: then this share costs the least."""

# In that range the error of scipy's inverse was at most 2e-12 of min(bound, 1 - bound), plus the last bit of a number
# near 1. The bounds give up these much larger amounts instead, which costs less than 1e-9 of a radius.
_TAIL_SLACK = 1e-10
_ROUNDING_SLACK = 4 * 2.0**-52


def lower_confidence_bound(k: int, n: int, alpha: float) -> float:
    """The paper's LowerConfBound: from k hits in n draws, a lower bound on the probability of a hit.

    It exceeds the true probability with probability at most alpha.
    """
    k, n = _check_counts(k, n)
    alpha = check_alpha(alpha)
    if k == 0:
        return 0.0
    bound = alpha ** (1 / n) if k == n else float(betaincinv(k, n - k + 1, alpha))
    return bound - _TAIL_SLACK * min(bound, 1 - bound) - _ROUNDING_SLACK * bound


def upper_confidence_bound(k: int, n: int, alpha: float) -> float:
    """From k hits in n draws, an upper bound on the probability of a hit.

    It is below the true probability with probability at most alpha.
    """
    k, n = _check_counts(k, n)
    alpha = check_alpha(alpha)
    if k == n:
        return 1.0
    bound = -math.expm1(math.log(alpha) / n) if k == 0 else float(betainccinv(k + 1, n - k, alpha))
    return min(1.0, bound + _TAIL_SLACK * min(bound, 1 - bound) + _ROUNDING_SLACK)


def split_alpha(alpha: float, *, two_sided: bool, share: float = P_A_SHARE) -> tuple[float, float]:
    """The parts of alpha for the bounds on pA, which gets this share, and on pB. They add up to no more than alpha.

    One-sided certificates use pB = 1 - pA and have no bound on pB of its own.
    """
    if not two_sided:
        return alpha, 0.0
    for_p_a = share * alpha
    return for_p_a, math.nextafter(alpha - for_p_a, 0.0)


def bound_at_fixed_n(votes: Look, alpha: float, *, two_sided: bool) -> tuple[float, float]:
    """A lower bound on pA and an upper bound on pB, after a number of draws that was fixed beforehand.

    If `two_sided`, alpha is divided between them (`split_alpha`); otherwise pB is 1 - pA, and the bound on pA has all
    of it. With probability at least 1 - alpha both are right.

    The bound on pB is that of the most frequent other answer, and alpha is not divided among the answers. Proof: let b
    be the likeliest other answer. It has at most as many votes as the most frequent one, and the bound grows with the
    votes. So whenever the bound from b's own votes holds, which fails with probability at most b's part of alpha, this
    one holds for b, and hence for every other answer, as none is likelier than b. None is likelier than 1 - pA either.
    """
    for_p_a, for_p_b = split_alpha(alpha, two_sided=two_sided)
    p_a = lower_confidence_bound(votes.hits, votes.draws, for_p_a)
    if not two_sided:
        return p_a, 1 - p_a  # the subtraction is exact for p_a >= 1/2, and smaller ones certify nothing
    return p_a, min(upper_confidence_bound(votes.runner_up, votes.draws, for_p_b), 1 - p_a)


def binomial_test(k: int, n: int) -> float:
    """The paper's BinomPValue: the p-value of the two-sided test that a hit has probability 1/2, from k hits in n."""
    k, n = _check_counts(k, n)
    return float(binomtest(k, n, 0.5).pvalue)


def check_alpha(alpha: object) -> float:
    """Alpha as a float, if it is in the range of the bounds."""
    requirement = f"it is the allowed probability of a wrong answer, at least {MIN_ALPHA} and below 1"
    number = real_number("alpha", alpha, requirement)
    if not MIN_ALPHA <= number < 1:
        raise ArgumentError("alpha", alpha, requirement)
    return number


def _check_counts(k: int, n: int) -> tuple[int, int]:
    n = whole_number("n", n, 1, MAX_N, f"the bounds are for 1 to {MAX_N} draws")
    return whole_number("k", k, 0, n, f"hits lie between 0 and the number of draws, n = {n}"), n


def widen(p_a: float, p_b: float, eta: float) -> tuple[float, float]:
    """Bounds of the ideal probabilities from bounds of the draws' probabilities, which differ from them by at most eta
    (docs/soundness.md). Rounding never makes them narrower."""
    if eta == 0:
        return p_a, p_b
    p_a = max(0.0, math.nextafter(p_a - eta, -1.0))
    return p_a, min(math.nextafter(p_b + eta, 2.0), 1 - p_a)


def most_moved(n: int, eta: float, risk: float) -> int:
    """A bound on how many of n draws differ from ideal ones, exceeded with probability at most `risk`, if each differs
    with probability at most eta. (More than m differ with probability at most (n eta)^(m+1) / (m+1)!.)"""
    moved, more = 0, n * eta
    while more > risk:
        moved += 1
        more *= n * eta / (moved + 1)
        if moved > n:
            return n
    return moved
