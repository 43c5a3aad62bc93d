"""Where adaptive stopping looks at the votes of an input, and what it sees there.

The looks of a budget of n draws are set beforehand: each has a twentieth more draws than the one before, and at least a
hundred. A finer schedule saves no draws, and each look takes time.
"""

import bisect
import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from ars.errors import ArgumentError

__all__ = ["Look", "check_looks", "look_draws", "look_number", "next_look", "take_look"]

RATIO = 1.05
LEAST_APART = 100
FIRST_LOOK = 200
MOST_SPREAD = 500
"""The first look is not before n / 500 draws either."""


class Look(NamedTuple):
    """The votes at one look: how many draws, how many of them for the selected class, and for the next best answer."""

    draws: int
    hits: int
    runner_up: int


def take_look(counts: Sequence[int], selected: int) -> Look:
    """The look at these votes: `counts` has a bin for each answer, and `selected` is the number of the class."""
    return Look(sum(counts), counts[selected], max(count for answer, count in enumerate(counts) if answer != selected))


@lru_cache
def look_draws(n: int) -> tuple[int, ...]:
    """The draws at which a budget of n is looked at; the last look is at n."""
    looks = [n]
    while (earlier := min(round(looks[-1] / RATIO), looks[-1] - LEAST_APART)) >= max(FIRST_LOOK, n / MOST_SPREAD):
        looks.append(earlier)
    return tuple(reversed(looks))


def look_number(draws: int, n: int) -> int:
    """Which look of a budget of n is at so many draws, from 0."""
    return bisect.bisect_left(look_draws(n), draws)


def next_look(draws: int, n: int) -> int:
    """The draws of the first look after so many."""
    looks = look_draws(n)
    return looks[bisect.bisect_right(looks, draws)]


def check_looks(looks: Sequence[Look], n: int, others: int) -> None:
    """Refuse looks that no input can have had, with so many answers besides the selected one: elsewhere, with some left
    out, with votes that were taken back, or with a next best answer that has fewer votes than its part of the misses,
    or more new ones than there are."""
    if tuple(look.draws for look in looks) != look_draws(n)[: len(looks)]:
        raise ArgumentError("looks", [look.draws for look in looks], f"a budget of {n} draws is looked at elsewhere")
    for before, look in itertools.pairwise([Look(0, 0, 0), *looks]):
        misses, more = look.draws - look.hits, (look.draws - look.hits) - (before.draws - before.hits)
        grown = before.hits <= look.hits and more >= 0 and 0 <= look.runner_up - before.runner_up <= more
        if not grown or not misses <= others * look.runner_up:
            raise ArgumentError("looks", tuple(look), f"these votes do not follow {tuple(before)}")
