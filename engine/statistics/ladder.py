"""The bounds of a certificate that may have stopped at any look.

A ladder is a sequence of rates, each smaller than the one before. A rate of misses is excluded when any look so far has
few enough (spending.py), and the least rate that is excluded bounds the true one. It is found by bisection, first among
the rates of STEPS, and then among those between that a question asks about: where it asks for radii, the rates at which
these are just certain. Many rates are tested so, and still the bound is right with probability 1 - alpha at all looks
together:

A bound is wrong if a rate at or below the true one is excluded. Before the search gets to such a rate, it has excluded
all rates above the true one that it tested; where it failed to, it went up, and can no longer be wrong. So the search
that is to be wrong goes toward the true rate, and always by the same tests. Those of them that are not above the true
rate have each the limits of the one before as a floor, for that one was not excluded and is the nearest lower rate
tested so far. So whatever excludes any of them, at any look, excludes the last of them too; and that is excluded at all
with a probability of at most alpha.

The bound of pB is that of the most frequent of the other answers. The likeliest of them has no more votes at any look,
so whatever excludes a rate for the first excludes it for the second, and nothing is to be divided among the answers.
A certificate can be computed again from its looks, n, alpha and the ladders; nothing else decides its bounds.
"""

from collections.abc import Sequence
from functools import lru_cache

from scipy.special import ndtr

from ars.engine.statistics.looks import Look, look_number
from ars.engine.statistics.spending import find_limits
from ars.engine.statistics.stopping import Question
from ars.noise import Family, hits_at

__all__ = ["STEPS", "TWO_SIDED", "Ladder", "bound_at_looks", "choose_ladders", "make_ladder"]

Ladder = tuple[float, ...]

STEPS: Ladder = tuple(float(ndtr(-K / 32)) for K in range(1, 5 * 32, 2))
"""For every question: a certificate says more than the answer alone."""

TWO_SIDED: Ladder = tuple(float(ndtr(-K / 128)) for K in range(-3 * 128, 6 * 128))
"""Bounds of pA and pB make a radius together, so no rate stands for a radius. A step is about the spread of
100,000 votes; finer ones would take longer to make than many a run."""


@lru_cache(maxsize=2**12)
def choose_ladders(question: Question, family: Family, sigma_min: float, *, two_sided: bool) -> tuple[Ladder, ...]:
    """The rates that are tested to answer a question."""
    return (TWO_SIDED,) if two_sided else (STEPS, make_ladder(family, question.regions(sigma_min)))


@lru_cache
def make_ladder(family: Family, regions: tuple[float, ...]) -> Ladder:
    """The rates of misses at which regions of these sizes, from small to large, are just certain, if pB is 1 - pA."""
    rates = (_largest_rate(family, K) for K in regions)
    return tuple(dict.fromkeys(rate for rate in rates if rate > 0))


_largest_rate = lru_cache(maxsize=2**14)(Family.largest_rate)


def bound_at_looks(
    looks: Sequence[Look], n: int, alpha: float, ladders: Sequence[Ladder], *, two_sided: bool
) -> tuple[float, float]:
    """pA from below and pB from above after these looks, for a budget of n draws. Each has half of alpha if
    `two_sided`, and otherwise pB is 1 - pA."""
    numbers = [look_number(look.draws, n) for look in looks]
    misses = [look.draws - look.hits for look in looks]
    p_a = hits_at(_rate_bound(numbers, misses, ladders, n, alpha / (1 + two_sided)))
    if not two_sided:
        return p_a, 1 - p_a
    p_b = _rate_bound(numbers, [look.runner_up for look in looks], ladders, n, alpha / 2)
    return p_a, min(p_b, 1 - p_a)


def _rate_bound(
    numbers: Sequence[int], counts: Sequence[int], ladders: Sequence[Ladder], n: int, alpha: float
) -> float:
    """The least rate of the ladders that these counts at these looks exclude; 1 if they exclude none."""
    excluded, not_excluded = 1.0, 0.0
    floor: tuple[int, ...] = ()
    for steps in ladders:
        rates = [rate for rate in steps if not_excluded < rate < excluded]
        while rates:
            middle = len(rates) // 2
            most = find_limits(rates[middle], n, alpha, floor)
            if any(count <= most[number] for number, count in zip(numbers, counts, strict=True)):
                excluded, rates = rates[middle], rates[middle + 1 :]
            else:
                not_excluded, rates, floor = rates[middle], rates[:middle], most
    return excluded
