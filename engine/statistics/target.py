"""How many inputs to certify: in random order, until certified accuracy is known closely enough.

There are a few looks at the results, after numbers of inputs that are fixed beforehand. Each look has the same part of
the error probability, so the intervals of all looks hold together with the confidence LEVEL (the union bound), and that
of the look at which a run stops holds, whatever made it stop. docs/deciding.md has the proof.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ars.engine.statistics.accuracy import LEVEL, Interval, share_interval
from ars.engine.statistics.stopping import Grid
from ars.errors import ArgumentError

__all__ = ["LOOKS", "Target", "random_order"]

LOOKS = 10
"""The most looks at a part of the inputs. A look at all inputs is exact and needs no part of the error probability."""


@dataclass(frozen=True)
class Target:
    """Certified accuracy at these radii is to be known to within this width."""

    width: float
    radii: tuple[float, ...]

    def __post_init__(self) -> None:
        if not 0 < self.width < 1:
            raise ArgumentError("target_width", self.width, "it is the width of an interval for a share, like 0.02")
        object.__setattr__(self, "radii", Grid(self.radii).radii)

    def looks(self, population: int) -> tuple[int, ...]:
        """The numbers of inputs after which to look, in a population of this size: from the first number that may be
        enough, where the accuracy is 0 or 1, in equal ratios to the number that is enough for every accuracy; and last
        the whole population."""
        numbers = range(1, population + 1)
        first = bisect_left(numbers, True, key=lambda n: self.interval(0, n, population).width <= self.width)
        last = bisect_left(numbers, True, key=lambda n: self.interval(n // 2, n, population).width <= self.width)
        between = np.geomspace(first + 1, last + 1, LOOKS)
        return (*sorted({int(np.ceil(n)) for n in between if n < population}), population)

    @staticmethod
    def interval(successes: int, inputs: int, population: int | None) -> Interval:
        """The interval of a look at so many inputs, of a population as for `share_interval`."""
        return share_interval(successes, inputs, population, 1 - (1 - LEVEL) / LOOKS)

    def reached(self, successes: Iterable[int], inputs: int, population: int) -> bool:
        """Whether the intervals are narrow enough, if so many of the inputs are certified at each of the radii."""
        return all(self.interval(number, inputs, population).width <= self.width for number in successes)


def random_order(ids: Sequence[int], seed: int) -> list[int]:
    """The inputs in the random order in which a run with this seed certifies them."""
    return [ids[place] for place in np.random.default_rng(seed).permutation(len(ids))]
