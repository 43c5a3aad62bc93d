"""How few misses exclude a rate of misses, at every look together: alpha is spent exactly.

A draw misses at some rate. To exclude that it is `rate` or more, a test has a limit for each look: with so few misses
there, or fewer, the rate is excluded. The test is right at all looks together if draws that do miss at `rate` meet any
of its limits with a probability of at most alpha. That probability is computed here, by following the law of the number
of misses from look to look; nothing is given away to Bonferroni's inequality, nor to an approximation (exact group
sequential tests: Lan and DeMets, "Discrete sequential boundaries for clinical trials", Biometrika 70, 1983; Stallard
and Todd, "Exact sequential tests for single samples of discrete responses using spending functions", Statistics in
Medicine 19, 2000).

The last limit is chosen first, and close to that of a test that looks only once, after n draws: GIVEN_UP standard
deviations of the misses below it, rounded down. So an input that runs to the budget loses almost nothing, and where
misses are so rare that one more of them would decide, it loses nothing at all. What is left of alpha is spent on the
earlier looks, in proportion to (draws / n) ** EARLY. An exclusion costs only what the last look would not have excluded
anyway.

Rounding and the tails that are left out are less than a share SLACK + n SLACK_A_DRAW of alpha, which is given up for
them. Binomial sums are incomplete beta functions, right to ten digits up to n = 10^9. scipy's bdtr and bdtrc are not:
near the mean they are off by a fifth at n = 10^8 (test_spending.py shows both).
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.signal import fftconvolve
from scipy.special import betainc, betaincc

from ars.engine.statistics.looks import look_draws

__all__ = ["find_limits"]

GIVEN_UP = 0.2
EARLY = 0.25
SLACK, SLACK_A_DRAW = 1e-6, 1e-14
_TAIL = 1e-9
"""Tails of this share of alpha are left out: two of a step and one of the law, at 130 looks at most."""
_LARGE = 2**18
_LARGE_ERROR = 1e-14
"""Convolutions of more products than _LARGE are by Fourier transform: fast, and a sum is wrong by less than this."""

Law = NDArray[np.float64]
"""The probabilities of numbers of misses, from some lowest number on."""


@lru_cache(maxsize=2**14)
def find_limits(rate: float, n: int, alpha: float, at_least: tuple[int, ...] = ()) -> tuple[int, ...]:
    """For each look of a budget of n draws, the most misses with which `rate` is excluded; -1 if it never is.

    No limit is below that of `at_least`, if given: the limits of the test of a lower rate, at the same n and alpha.
    What excludes the lower rate then excludes this one too.
    """
    draws = look_draws(n)
    floor = at_least or (-1,) * len(draws)
    alpha *= 1 - SLACK - SLACK_A_DRAW * n
    single = _single_limit(rate, n, alpha)
    if len(draws) == 1 or single < 0:
        return (*floor[:-1], max(single, floor[-1]))
    last = max(single - int(GIVEN_UP * math.sqrt(n * rate * (1 - rate))), floor[-1])
    left = alpha - _chance_of_at_most(last, n, rate)
    chosen: list[int] = []
    spent, law, lowest = 0.0, np.ones(1), 0  # the law of draws that have met no limit so far
    for number, (before, now) in enumerate(zip((0, *draws), draws[:-1], strict=False)):
        law, lowest, error = _after(law, lowest, now - before, rate, _TAIL * alpha)
        # More than these are not excluded: that would cost too much, even where the last look excludes nearly all.
        few = law[: max(floor[number] - lowest + 1, int(np.searchsorted(np.cumsum(law), 100 * alpha)))]
        to_come = np.clip(last - lowest - np.arange(len(few)), -1, n - now)
        costs = spent + error + np.cumsum(few * _chances_of_more_than(to_come, n - now, rate))
        excluded = int(np.searchsorted(costs, left * (now / draws[-2]) ** EARLY, "right"))
        excluded = max(excluded, floor[number] - lowest + 1, 0)
        spent = float(costs[excluded - 1]) if excluded else spent + error
        chosen.append(lowest + excluded - 1)
        law, lowest = law[excluded:], lowest + excluded
    # The floor may ask for more than is left. It is a test of a lower rate, and so one of this rate, too.
    return (*chosen, last) if spent <= left else floor


def _single_limit(rate: float, n: int, alpha: float) -> int:
    """The most misses that n draws at this rate have with a probability of at most alpha; -1 if there are none."""
    low, high = -1, n  # the first is few enough, the second too many
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _chance_of_at_most(middle, n, rate) <= alpha else (low, middle)
    return low


def _chance_of_at_most(k: int, draws: int, rate: float) -> float:
    """P(X <= k) for the number X of misses among so many draws, 0 <= k < draws."""
    return float(betaincc(k + 1, draws - k, rate))


def _chances_of_more_than(numbers: NDArray[np.int64], draws: int, rate: float) -> NDArray[np.float64]:
    """P(X > k) for each k of `numbers`, which may be anything from -1 to `draws`."""
    inside = np.clip(numbers, 0, draws - 1)
    chances = betainc(inside + 1, draws - inside, rate)
    return np.where(numbers < 0, 1.0, np.where(numbers == draws, 0.0, chances))


def _after(law: Law, lowest: int, draws: int, rate: float, tail: float) -> tuple[Law, int, float]:
    """The law after more draws, its lowest number, and by how much a sum of it may be wrong."""
    fewest, step = _binomial(draws, rate, tail)
    large = len(law) * len(step) > _LARGE
    law = np.maximum(fftconvolve(law, step), 0) if large else np.convolve(law, step)
    law = law[: len(law) - int(np.searchsorted(np.cumsum(law[::-1]), tail))]
    return law, lowest + fewest, _LARGE_ERROR if large else 0.0


def _binomial(draws: int, rate: float, tail: float) -> tuple[int, Law]:
    """The law of the misses among so many draws, without its tails; and its lowest number."""
    mode, width = int((draws + 1) * rate), 12 * math.sqrt(draws * rate * (1 - rate)) + 60
    numbers = np.arange(max(0, int(mode - width)), min(draws, int(mode + width)) + 1)
    steps = np.log((draws - numbers[:-1]) / (numbers[:-1] + 1)) + math.log(rate / (1 - rate))
    logs = np.concatenate([[0.0], np.cumsum(steps)])
    law = np.exp(logs - logs.max())
    law /= law.sum()
    below = int(np.searchsorted(np.cumsum(law), tail))
    above = int(np.searchsorted(np.cumsum(law[::-1]), tail))
    return int(numbers[below]), law[below : len(law) - above]
