"""When an input has had enough draws.

Whatever the rule, the bound that a certificate reports is valid for it: `Fixed` looks once, and `Adaptive` uses bounds
that hold at every look (ladder.py). So when to stop may be any guess. `Adaptive` stops when its question is settled:
when the radius that is certified now gives the same answer as the best radius that may be hoped for at n draws.

To be hoped for, a radius must have some chance. The chance is that of the coming votes after those so far, with
Jeffreys' prior, and HOPE t (1 - t) sqrt(2 s) of it is enough after a share t of the draws: the more draws are left to
pay, the better it must be; but early on the next look is near, costs little, and tells more. s is the standard
deviation of a vote. Where misses are rare it is small, and there the radii that n draws certify spread the most: a
chance that is given up loses more inputs there. Where misses are rare, and most draws are spent, no rule could save a
hundredth more draws with the same tests and at the same loss (test_stopping_optimum.py). How much to lose
is HOPE's to say: for the models of docs/adaptive.md it is 0.15 to 0.35 points of certified accuracy at the worst radius
of the grid, on average over orders of the votes.
"""

import bisect
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from scipy.special import betaincinv

from ars.checks import real_number
from ars.engine.statistics.looks import Look, look_draws, next_look
from ars.errors import ArgumentError

__all__ = [
    "NO_RADIUS",
    "QUESTIONS",
    "RADII",
    "Adaptive",
    "Fixed",
    "Grid",
    "Question",
    "StoppingRule",
    "Tolerance",
    "question_from_settings",
]

RADII = tuple(i * 0.25 for i in range(15))
"""The field's grid."""

NO_RADIUS = -1.0
"""Stands for the radius of votes that certify nothing, not even the radius 0."""

HOPE = 1.8

LEAST_TOLERANCE = 0.001

# Regions are asked for at multiples of a step, so that inputs of nearly the same scale share their tests. It is a
# sixteenth of the spread of 100,000 votes or less.
_STEP = 2.0**-12
_SMALLEST_REGION, _LARGEST_REGION = 1 / 64, 20.0  # more than 10^9 draws that all hit can prove


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


class Question(Hashable, Protocol):
    """What is asked of a certificate. A radius is NO_RADIUS where the certificate abstains."""

    def regions(self, sigma_min: float) -> tuple[float, ...]:
        """The sizes K that are asked about, from small to large, where the smallest scale is this."""
        ...

    def settled(self, now: float, best: float) -> bool:
        """Whether a radius of `best` would give the same answer as the radius `now`."""
        ...

    @property
    def settings(self) -> dict[str, str | float]:
        """The question as the record keeps it, by names that JSON can hold."""
        ...

    @classmethod
    def from_settings(cls, settings: Mapping[str, object]) -> Self:
        """The question whose settings these are; other settings among them are ignored."""
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

    def regions(self, sigma_min: float) -> tuple[float, ...]:
        """The first of all, and those of the radii: above them by more than rounding, and by 3e-7 where a radius is a
        multiple of a step but for the float32 of the scale."""
        sizes = (min(radius / sigma_min, _LARGEST_REGION) / _STEP for radius in (0, *self.radii))
        steps = {max(1, math.ceil(size * (1 - 1e-7))) for size in sizes}
        return tuple(step * _STEP * (1 + 2e-7) for step in sorted(steps))

    def settled(self, now: float, best: float) -> bool:
        return bisect.bisect_right(self.radii, now) >= bisect.bisect_right(self.radii, best)

    @property
    def settings(self) -> dict[str, str | float]:
        return {"radii": ",".join(map(str, self.radii))}

    @classmethod
    def from_settings(cls, settings: Mapping[str, object]) -> Self:
        radii = settings["radii"]
        if not isinstance(radii, str):
            raise ArgumentError("radii", radii, _RADII)
        return cls.parse(radii)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The grid of a list like 0,0.25,0.5."""
        try:
            radii = tuple(float(number) for number in text.split(","))
        except ValueError:
            raise ArgumentError("radii", text, _RADII) from None
        return cls(radii)


@dataclass(frozen=True)
class Tolerance:
    """What is the radius, to within this share of what n draws would give with the same bounds? Below a 64th of sigma
    the share is larger."""

    tolerance: float

    def __post_init__(self) -> None:
        tolerance = real_number("tolerance", self.tolerance, _TOLERANCE)
        if not LEAST_TOLERANCE <= tolerance < 1:
            raise ArgumentError("tolerance", tolerance, _TOLERANCE)
        object.__setattr__(self, "tolerance", tolerance)

    def regions(self, sigma_min: float) -> tuple[float, ...]:
        """Half of the tolerance apart; the other half is for stopping early."""
        ratio = 1 / (1 - self.tolerance / 2)
        number = math.ceil(math.log(_LARGEST_REGION / _SMALLEST_REGION, ratio))
        return (_STEP, *(_SMALLEST_REGION * ratio**power for power in range(number)))

    def settled(self, now: float, best: float) -> bool:
        return now >= best or (now > 0 and now >= (1 - self.tolerance / 2) * best)

    @property
    def settings(self) -> dict[str, str | float]:
        return {"tolerance": self.tolerance}

    @classmethod
    def from_settings(cls, settings: Mapping[str, object]) -> Self:
        return cls(real_number("tolerance", settings["tolerance"], _TOLERANCE))


QUESTIONS: dict[str, type[Question]] = {"radii": Grid, "tolerance": Tolerance}
"""Every kind of question, by a name that is in its settings and in no other's."""


def question_from_settings(settings: Mapping[str, object]) -> Question | None:
    """The question among the settings of a run; None if n was fixed."""
    stopping = settings.get("stopping")
    if stopping == "fixed":
        return None
    if stopping != "adaptive":
        raise ArgumentError("stopping", stopping, "it is fixed or adaptive")
    for name, kind in QUESTIONS.items():
        if name in settings:
            return kind.from_settings(settings)
    raise ArgumentError("stopping", stopping, f"the settings have none of {', '.join(QUESTIONS)}")


_RADII = "give radii that are finite and not negative, like 0,0.25,0.5"
_TOLERANCE = f"it is a share from {LEAST_TOLERANCE} up to 1, like 0.01"


@dataclass(frozen=True)
class Adaptive:
    """Stop at the first look that settles the question, and at n draws at the latest."""

    n: int
    question: Question
    radius: Callable[[Sequence[Look]], float]
    """The radius that these looks certify, or -1."""
    hope: float = HOPE

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
        left, rate = self.n - look.draws, (look.draws - look.hits + 0.5) / (look.draws + 1)
        enough = min(0.5, self.hope * look.draws / self.n * left / self.n * (4 * rate * (1 - rate)) ** 0.25)
        # Votes weighed by `left / n` give the share of the coming votes the spread of its predictive law.
        hits = _share(look.hits, look.draws, left / self.n, 1 - enough)
        runner_up = _share(look.runner_up, look.draws, left / self.n, enough)
        most = self.n - look.draws + look.hits
        hoped = min(most, look.hits + round(left * hits))
        return Look(self.n, hoped, min(self.n - hoped, look.runner_up + round(left * runner_up)))


def _share(count: int, draws: int, weight: float, quantile: float) -> float:
    return float(betaincinv(count * weight + 0.5, (draws - count) * weight + 0.5, quantile))
