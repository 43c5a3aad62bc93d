"""Bounds that hold at every look, so that an input may stop at any of them, for any reason.

A lower bound of the selected class's share is an upper bound of the rate at which draws miss it. Clopper-Pearson bounds
the rate of something that was seen `count` times in m draws, at one m that is fixed beforehand. To look many times, the
allowed error alpha is spent on the looks: each has its part, the parts add up to alpha, and with probability 1 - alpha
all bounds hold at once (Lan and DeMets, "Discrete sequential boundaries for clinical trials", Biometrika 70, 1983, with
Bonferroni in the place of their exact sums). It is spent in two ways:

- *By draws.* Only looks that are a tenth apart count. Half of alpha is for the last one, at n, and half for the others
  in proportion to their draws, because late looks are where draws are saved.
- *By count.* "At most c were seen in the first m draws" can only become false as m grows. So for a fixed c the
  Clopper-Pearson bound with c in the place of the count holds at all m together (inverse sampling; Haldane, "On a
  method of estimating frequencies", Biometrika 33, 1945). 0.7 of alpha is for the last look, because there one more
  miss may decide; 0.2 for c = 0, and the rest for c = 1, 2, 4, ..., 128. So an input that never misses has a rate below
  r after log(1 / 0.2 alpha) / r draws, wherever the looks are. More of them cost nothing, so there are more.

Each way has all of alpha. The first judges rates above RARE / n, the second those below: the true rate is on one side,
and only the bound of that side can be wrong. The second is asked only after the first has excluded its whole side.

A certificate can be computed again from its looks, n and alpha; nothing else decides its bounds.
"""

import bisect
import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from ars.engine.bounds import upper_confidence_bound
from ars.errors import ArgumentError

__all__ = ["Look", "bounds_at", "check_looks", "look_draws", "next_look"]

RATIO = 1.1
FIRST_LOOK = 200
MOST_SPREAD = 500
"""The first look is not before n / 500 draws: each part of alpha stays in the range of the bounds."""
MOST_BETWEEN, LEAST_APART = 5, 500
"""A tenth has so many looks at most, and they are so many draws apart at least: a look takes time."""
RARE = 100
RESERVE_BY_DRAWS, RESERVE_BY_COUNT = 0.5, 0.7
"""The parts of alpha for the last look."""
BY_COUNT = ((0, 0.2), *((2**power, 0.1 / 8) for power in range(8)))
"""The other parts, by count."""


class Look(NamedTuple):
    """The votes at one look: how many draws, how many of them for the selected class, and for the next best answer."""

    draws: int
    hits: int
    runner_up: int


@lru_cache
def _tenths(n: int) -> tuple[int, ...]:
    """The draws of the looks that are a tenth apart; the last one is at n."""
    looks = [n]
    while (earlier := round(looks[-1] / RATIO)) >= max(FIRST_LOOK, n / MOST_SPREAD):
        looks.append(earlier)
    return tuple(reversed(looks))


@lru_cache
def look_draws(n: int) -> tuple[int, ...]:
    """The draws at which a budget of n is looked at; the last look is at n."""
    looks = []
    for before, after in itertools.pairwise(_tenths(n)):
        pieces = max(1, min(MOST_BETWEEN, (after - before) // LEAST_APART))
        looks += [before + (after - before) * piece // pieces for piece in range(pieces)]
    return (*looks, n)


def next_look(draws: int, n: int) -> int:
    """The draws of the first look after so many."""
    looks = look_draws(n)
    return looks[bisect.bisect_right(looks, draws)]


@lru_cache
def _parts(n: int) -> dict[int, float]:
    """The part of alpha for each look by draws. A budget too small for a second look has all of it there."""
    *early, last = _tenths(n)
    if not early:
        return {last: 1.0}
    return {draws: (1 - RESERVE_BY_DRAWS) * draws / sum(early) for draws in early} | {last: RESERVE_BY_DRAWS}


def check_looks(looks: Sequence[Look], n: int) -> None:
    """Refuse looks that no input can have had: elsewhere, with some left out, or with votes that were taken back."""
    if tuple(look.draws for look in looks) != look_draws(n)[: len(looks)]:
        raise ArgumentError("looks", [look.draws for look in looks], f"a budget of {n} draws is looked at elsewhere")
    for before, look in itertools.pairwise([Look(0, 0, 0), *looks]):
        misses = look.draws - look.hits
        grown = before.hits <= look.hits and before.draws - before.hits <= misses
        if not grown or not before.runner_up <= look.runner_up <= misses:
            raise ArgumentError("looks", tuple(look), f"these votes do not follow {tuple(before)}")


def bounds_at(looks: Sequence[Look], n: int, alpha: float, *, two_sided: bool, others: int) -> tuple[float, float]:
    """pA from below and pB from above after these looks, for a budget of n draws and that many answers besides the
    selected one. Alpha is divided as at fixed n: in halves if `two_sided`, and the second half among the others."""
    misses = _rate_bound([(look.draws - look.hits, look.draws) for look in looks], n, alpha / (1 + two_sided))
    p_a = 1 - misses  # the slack of the bound is more than this rounding
    if not two_sided:
        return p_a, 1 - p_a
    return p_a, min(_rate_bound([(look.runner_up, look.draws) for look in looks], n, alpha / 2 / others), 1 - p_a)


def _rate_bound(seen: Sequence[tuple[int, int]], n: int, alpha: float) -> float:
    """At least the true rate, with confidence 1 - alpha, from counts at draws."""
    bounds = [_bounds_by(count, draws, n, alpha) for count, draws in seen]
    by_draws = min(bound for bound, _ in bounds)
    if by_draws > RARE / n:
        return by_draws
    return min(RARE / n, *(bound for _, bound in bounds))


@lru_cache(maxsize=2**16)
def _bounds_by(count: int, draws: int, n: int, alpha: float) -> tuple[float, float]:
    """What one look says of the rate, by draws and by count."""
    parts = _parts(n)
    by_draws = upper_confidence_bound(count, draws, alpha * parts[draws]) if draws in parts else 1.0
    if len(parts) == 1:
        return by_draws, by_draws
    # The least c gives the least bound: none of those after it has a larger part.
    most, part = next(((most, part) for most, part in BY_COUNT if count <= most), (draws, 0.0))
    by_count = upper_confidence_bound(most, draws, alpha * part) if most < draws else 1.0
    last = upper_confidence_bound(count, n, alpha * RESERVE_BY_COUNT) if draws == n else 1.0
    return by_draws, min(last, by_count)
