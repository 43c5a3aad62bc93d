"""The schedule of looks: after how many draws adaptive stopping looks at the votes of an input, and what it sees.

The budget n alone decides the schedule. Each look has about 5 % more draws than the one before, and at least a hundred
more. A finer schedule would save no draws, and every look takes time.
"""

import bisect
import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from ars.errors import ArgumentError

__all__ = ["FULL", "Look", "check_looks", "look_draws", "look_number", "next_look", "take_look"]

FULL = 100_000
"""The paper's budget."""

RATIO = 1.05
LEAST_APART = 50
FIRST_LOOK = 200
MOST_SPREAD = 500
"""The first look is after at least n / MOST_SPREAD draws, and at least FIRST_LOOK."""


class Look(NamedTuple):
    """The votes after a number of draws: those for the selected class, and those for the most frequent other answer."""

    draws: int
    hits: int
    runner_up: int


def take_look(counts: Sequence[int], selected: int) -> Look:
    """The look at these counts of votes, one for each answer, where `selected` is the number of the selected class."""
    return Look(sum(counts), counts[selected], max(count for answer, count in enumerate(counts) if answer != selected))


@lru_cache
def look_draws(n: int) -> tuple[int, ...]:
    """The numbers of draws after which a budget of n is looked at; the last is n."""
    looks = [n]
    while (earlier := min(round(looks[-1] / RATIO), looks[-1] - LEAST_APART)) >= max(FIRST_LOOK, n / MOST_SPREAD):
        looks.append(earlier)
    return tuple(reversed(looks))


def look_number(draws: int, n: int) -> int:
    """The place of the look after this many draws in the schedule of n, counted from 0."""
    return bisect.bisect_left(look_draws(n), draws)


def next_look(draws: int, n: int) -> int:
    """The number of draws at the first look after this many draws; there must be one."""
    looks = look_draws(n)
    return looks[bisect.bisect_right(looks, draws)]


def check_looks(looks: Sequence[Look], n: int, others: int) -> None:
    """Refuse looks that no input can have had, if there are `others` answers besides the selected class.

    Refused are looks that are not on the schedule of n or skip a part of it; counts that fall from one look to the
    next; a runner-up with fewer votes than the misses divided among all others, or a runner-up that gained more votes
    than there were new misses.
    """
    if tuple(look.draws for look in looks) != look_draws(n)[: len(looks)]:
        raise ArgumentError(
            "looks", [look.draws for look in looks], f"the schedule of {n} draws has its looks elsewhere"
        )
    for before, look in itertools.pairwise([Look(0, 0, 0), *looks]):
        misses, new_misses = look.draws - look.hits, (look.draws - look.hits) - (before.draws - before.hits)
        grown = before.hits <= look.hits and 0 <= look.runner_up - before.runner_up <= new_misses
        if not grown or misses > others * look.runner_up:
            raise ArgumentError("looks", tuple(look), f"these votes do not follow {tuple(before)}")
