"""When an input has had enough draws.

Whatever the rule, the bound that a certificate reports is valid for it: `Fixed` looks once, and `Adaptive` uses bounds
that hold at every look (spending.py explains them). So when to stop may be any guess. `Adaptive` stops when its
question is settled: when the radius that is certified now gives the same answer as the best radius that may be hoped
for at n draws.

To be hoped for, a radius must have some chance: HOPE sqrt(t) (1 - t) after a share t of the draws. The more draws are
left to pay, the better the chance must be; but early on the next look is near, costs little, and tells more. The chance
is that of the coming votes after those so far, with Jeffreys' prior. HOPE was chosen on a trained Fashion-MNIST model,
so that giving up loses less than half a point of certified accuracy at any radius (docs/adaptive.md).
"""

import bisect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from scipy.special import betaincinv

from ars.checks import real_number
from ars.engine.spending import Look, look_draws, next_look
from ars.errors import ArgumentError

__all__ = ["RADII", "Adaptive", "Fixed", "Grid", "Question", "StoppingRule", "Tolerance", "parse_radii"]

RADII = tuple(i * 0.25 for i in range(15))
"""The field's grid."""

HOPE = 0.3


class StoppingRule(Protocol):
    def more(self, looks: Sequence[Look]) -> int:
        """How many more draws to take after these looks; 0 ends the input."""
        ...


@dataclass(frozen=True)
class Fixed:
    """The paper's rule: n draws, whatever they say."""

    n: int

    def more(self, looks: Sequence[Look]) -> int:
        return 0 if looks else self.n


class Question(Protocol):
    """What is asked of a certificate. Radii are -1 where it abstains."""

    def settled(self, now: float, best: float) -> bool:
        """Whether a radius of `best` would give the same answer as the radius `now`."""
        ...

    @property
    def settings(self) -> dict[str, str | float]:
        """The question, for the record."""
        ...


@dataclass(frozen=True)
class Grid:
    """Which of these radii are certified? One radius makes a yes-or-no question."""

    radii: tuple[float, ...] = RADII

    def __post_init__(self) -> None:
        radii = [real_number("radii", radius, _RADII) for radius in self.radii]
        if not radii or not all(0 <= radius < math.inf for radius in radii):
            raise ArgumentError("radii", ",".join(map(str, radii)), _RADII)
        object.__setattr__(self, "radii", tuple(sorted(set(radii))))

    def settled(self, now: float, best: float) -> bool:
        return bisect.bisect_right(self.radii, now) >= bisect.bisect_right(self.radii, best)

    @property
    def settings(self) -> dict[str, str | float]:
        return {"radii": ",".join(map(str, self.radii))}


@dataclass(frozen=True)
class Tolerance:
    """What is the radius, to within this share of what n draws would give?"""

    tolerance: float

    def __post_init__(self) -> None:
        if not 0 < real_number("tolerance", self.tolerance, _TOLERANCE) < 1:
            raise ArgumentError("tolerance", self.tolerance, _TOLERANCE)

    def settled(self, now: float, best: float) -> bool:
        return now >= best or (now > 0 and now >= (1 - self.tolerance) * best)

    @property
    def settings(self) -> dict[str, str | float]:
        return {"tolerance": self.tolerance}


_RADII = "give radii that are finite and not negative, like 0,0.25,0.5"
_TOLERANCE = "it is a share between 0 and 1, like 0.01"


@dataclass(frozen=True)
class Adaptive:
    """Stop at the first look that settles the question, and at n draws at the latest."""

    n: int
    question: Question
    radius: Callable[[Sequence[Look]], float]
    """The radius that these looks certify, or -1."""

    def more(self, looks: Sequence[Look]) -> int:
        if not looks:
            return look_draws(self.n)[0]
        last = looks[-1]
        if last.draws == self.n:
            return 0
        if self.question.settled(self.radius(looks), self.radius([*looks, self._best(last)])):
            return 0
        return next_look(last.draws, self.n) - last.draws

    def _best(self, look: Look) -> Look:
        """The look at n draws that may be hoped for."""
        left = self.n - look.draws
        chance = HOPE * math.sqrt(look.draws / self.n) * left / self.n
        # Votes weighed by `left / n` give the share of the coming votes the spread of its predictive law.
        hits = _share(look.hits, look.draws, left / self.n, 1 - chance)
        runner_up = _share(look.runner_up, look.draws, left / self.n, chance)
        most = self.n - look.draws + look.hits
        hoped = min(most, look.hits + math.ceil(left * hits))
        return Look(self.n, hoped, min(self.n - hoped, look.runner_up + math.floor(left * runner_up)))


def _share(count: int, draws: int, weight: float, quantile: float) -> float:
    return float(betaincinv(count * weight + 0.5, (draws - count) * weight + 0.5, quantile))


def parse_radii(text: str) -> Grid:
    """A grid from a list like 0,0.25,0.5."""
    try:
        radii = tuple(float(number) for number in text.split(","))
    except ValueError:
        raise ArgumentError("radii", text, _RADII) from None
    return Grid(radii)
