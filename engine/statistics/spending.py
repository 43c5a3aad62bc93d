"""The test of one miss rate at all looks together: with how few misses is the rate excluded?

Let each draw miss with probability p, independently of the others. The test of `rate` has a limit for each look of the
schedule, and it excludes the rate, that is, it concludes p < rate, if at any look the misses so far are at most the
limit of that look.

**Claim.** If p >= rate, the test excludes the rate with probability at most alpha.

docs/adaptive-validity.md has the proof. Let X be the misses after all n draws and L the last limit. The rate is
excluded if X <= L, or if X > L and an earlier limit was met. So the probability is P(X <= L), plus a sum over the
earlier looks and over the numbers m of misses that each of them excludes: the probability of m misses there with no
limit met before, times the probability that more than L - m of the remaining draws miss. `find_limits` keeps this total
at alpha or below. There is neither a union bound in this nor an approximation.

**How the limits are chosen.** Any limits with that total are valid; these are meant to lose little at n draws.

1. The last limit comes first. It is that of the test with a single look at n draws, less `given_up` standard
   deviations of X, rounded down to a whole number of misses. So an input that uses its whole budget loses almost
   nothing; and where misses are so rare that one of them decides, it loses nothing at all. `choose_given_up` has the
   number, which follows from the certified accuracy that may be lost.
2. What that leaves of alpha is spent on the earlier looks. The look at t draws has the largest limit for which the sum
   above, over the looks up to it, is at most the share (t / T) ** EARLY of it, where T is the number of draws at the
   second-to-last look. Only outcomes that the last look would not exclude anyway cost anything.
3. No limit is below that of a given `floor`: the limits of the test of a lower rate. The proof needs
   this. If the floor costs more than that leaves, the last limit is lowered by one, up to TRIES times, which leaves
   more. If it still does, the floor itself is the test: it is a test of a lower rate, and so, by the claim, a test of
   this rate too.

**Numerical error.** The share SLACK + n SLACK_A_DRAW of alpha is given up for it. It has to cover:

- the tails that are left out, each at most _TAIL alpha: two for each step and one for each distribution, at 130 looks
  at most, which is 4e-7 of alpha;
- the rounding of the distributions, below 1e-9 of the sums that decide;
- the binomial sums. They are incomplete beta functions, whose error was at most 4e-11 for up to 10^9 draws, against
  sums with 50 digits. (scipy's bdtr and bdtrc are no good here: near the mean they are off by a fifth at 10^8 draws.
  test_spending.py has both comparisons.)

The error of a Fourier transform is added to the costs instead (_FOURIER_ERROR).
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.signal import fftconvolve
from scipy.special import betainc, betaincc

from ars.engine.statistics.looks import look_draws
from ars.engine.statistics.losses import allowance

__all__ = ["choose_given_up", "find_limits"]

GIVEN_UP = 0.2
TRIES = 3
EARLY = 0.25
SLACK, SLACK_A_DRAW = 1e-6, 1e-14
_TAIL = 1e-9
_FOURIER = 2**18
"""A convolution of more products than this is computed by Fourier transform."""
_FOURIER_ERROR = 1e-14
"""Bounds the error of any sum of probabilities after a Fourier transform."""

Distribution = NDArray[np.float64]
"""The probabilities of successive numbers of misses; the lowest number is kept beside it."""


def choose_given_up(max_loss: float, n: int) -> float:
    """The standard deviations by which the last limit of a budget of n draws is lower than with a single look, if
    `max_loss` points of certified accuracy may be lost."""
    return GIVEN_UP * allowance(max_loss, n)


@lru_cache(maxsize=2**14)
def find_limits(
    rate: float, n: int, alpha: float, floor: tuple[int, ...] = (), given_up: float = GIVEN_UP
) -> tuple[int, ...]:
    """For each look of a budget of n draws, the most misses with which `rate` is excluded; -1 if none are few enough.

    A `floor` is the limits of the test of a lower rate, at the same n. No limit is below it, so whatever excludes the
    lower rate excludes this one too. If the floor alone has more than alpha, which takes a floor of a higher level, it
    is returned as it is. The last limit is `given_up` standard deviations below that of a single look.
    """
    draws = look_draws(n)
    floor = floor or (-1,) * len(draws)
    alpha *= 1 - SLACK - SLACK_A_DRAW * n
    single = _find_single_limit(rate, n, alpha)
    if len(draws) == 1 or single < 0:
        return (*floor[:-1], max(single, floor[-1]))
    # An input that never misses gives up nothing.
    highest = max(single - int(given_up * math.sqrt(n * rate * (1 - rate))), min(single, 0), floor[-1])
    for last in range(highest, max(highest - TRIES, floor[-1]) - 1, -1):
        if limits := _spend(rate, draws, alpha, floor, last):
            return limits
    return floor


def _spend(
    rate: float, draws: tuple[int, ...], alpha: float, floor: tuple[int, ...], last: int
) -> tuple[int, ...] | None:
    """The limits of all looks, if that of the last one is `last`; None if the floor costs more than alpha allows."""
    n = draws[-1]
    left = alpha - _chance_of_at_most(last, n, rate)
    limits: list[int] = []
    # The distribution of the misses of draws that have met no limit so far, and what the limits so far have spent.
    distribution, lowest, spent = np.ones(1), 0, 0.0
    for number, (before, now) in enumerate(zip((0, *draws), draws[:-1], strict=False)):
        distribution, lowest, error = _draw_more(distribution, lowest, now - before, rate, _TAIL * alpha)
        # A limit is met with the probability that it costs, plus a part of P(X <= last): at most alpha. So those beyond
        # the quantile of 2 alpha cost too much in any case, and are not tried.
        tried = max(floor[number] - lowest + 1, int(np.searchsorted(np.cumsum(distribution), 2 * alpha)))
        candidates = distribution[:tried]
        misses_left = np.minimum(np.maximum(last - lowest - np.arange(len(candidates)), -1), n - now)
        costs = spent + error + np.cumsum(candidates * _chances_of_more_than(misses_left, n - now, rate))
        excluded = int(np.searchsorted(costs, left * (now / draws[-2]) ** EARLY, "right"))
        excluded = max(excluded, floor[number] - lowest + 1, 0)
        spent = float(costs[excluded - 1]) if excluded else spent + error
        if not spent <= left:
            return None
        limits.append(lowest + excluded - 1)
        distribution, lowest = distribution[excluded:], lowest + excluded
    return (*limits, last)


def _find_single_limit(rate: float, n: int, alpha: float) -> int:
    """The largest k for which n draws miss at most k times with a probability of at most alpha; -1 if there is none."""
    few, many = -1, n
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (middle, many) if _chance_of_at_most(middle, n, rate) <= alpha else (few, middle)
    return few


def _chance_of_at_most(k: int, draws: int, rate: float) -> float:
    """P(X <= k) for the number X of misses among `draws` draws, -1 <= k < draws."""
    return float(betaincc(k + 1, draws - k, rate)) if k >= 0 else 0.0  # some versions of scipy have NaN there


def _chances_of_more_than(numbers: NDArray[np.int64], draws: int, rate: float) -> NDArray[np.float64]:
    """P(X > k) for the number X of misses among `draws` draws, for each k of `numbers`, -1 <= k <= draws."""
    inside = np.minimum(np.maximum(numbers, 0), draws - 1)
    chances = betainc(inside + 1, draws - inside, rate)
    return np.where(numbers < 0, 1.0, np.where(numbers == draws, 0.0, chances))


def _draw_more(
    distribution: Distribution, lowest: int, draws: int, rate: float, tail: float
) -> tuple[Distribution, int, float]:
    """The distribution of the misses after more draws, its lowest number, and a bound on the error of its sums."""
    fewest, step = _binomial(draws, rate, tail)
    fourier = len(distribution) * len(step) > _FOURIER
    after = np.maximum(fftconvolve(distribution, step), 0) if fourier else np.convolve(distribution, step)
    after = after[: len(after) - int(np.searchsorted(np.cumsum(after[::-1]), tail))]
    return after, lowest + fewest, _FOURIER_ERROR if fourier else 0.0


def _binomial(draws: int, rate: float, tail: float) -> tuple[int, Distribution]:
    """The lowest number and the distribution of the misses among `draws` draws, without its two tails."""
    mode, width = int((draws + 1) * rate), 12 * math.sqrt(draws * rate * (1 - rate)) + 60
    numbers = np.arange(max(0, int(mode - width)), min(draws, int(mode + width)) + 1)
    # Successive probabilities have simple ratios; a sum of their logarithms neither overflows nor underflows.
    ratios = np.log((draws - numbers[:-1]) / (numbers[:-1] + 1)) + math.log(rate / (1 - rate))
    logs = np.concatenate([[0.0], np.cumsum(ratios)])
    distribution = np.exp(logs - logs.max())
    distribution /= distribution.sum()
    below = int(np.searchsorted(np.cumsum(distribution), tail))
    above = int(np.searchsorted(np.cumsum(distribution[::-1]), tail))
    return int(numbers[below]), distribution[below : len(distribution) - above]
