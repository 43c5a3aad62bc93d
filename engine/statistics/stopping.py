"""When an input has had enough draws.

The guarantee of a certificate does not depend on this module. `Fixed` looks once, after n draws; `Adaptive` uses bounds
that hold at all looks together (ladder.py). A bad guess about when to stop costs draws or certified accuracy, never
validity.

`Adaptive` stops an input when its question is settled: when the radius that is certified now gives the same answer as
the best radius that is still reachable with n draws. A radius counts as reachable if its predictive probability
(Jeffreys prior) of being certified at n draws exceeds HOPE t (1 - t) sqrt(2 s), where t is the fraction of the budget
spent and s the standard deviation of one vote. (The runner-up is taken to keep its share of the misses.) The threshold
has this form for three reasons:

- 1 - t: the more draws are left to pay for, the likelier a better answer must be.
- t: early on, the next look costs little and tells much, so even an unlikely answer is worth waiting for.
- sqrt(2 s): s is small where misses are rare. There the radius that n draws certify varies most by chance, so giving up
  the unlikely radii loses more inputs.

HOPE is for `allowance` = 1; with `max_loss`, the user chooses how much certified accuracy may be lost for how many
draws (docs/adaptive.md has what was measured). Where misses are rare, and most of the draws are spent, no rule with the
same tests and the same loss saves even 1 % more draws (test_stopping_optimum.py).
"""

import bisect
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from scipy.special import betaincinv

from ars.checks import real_number
from ars.engine.statistics.looks import Look, look_draws, next_look
from ars.engine.statistics.losses import MAX_LOSS, allowance
from ars.errors import ArgumentError
from ars.noise import Family

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
    "usual_radii",
]

RADII = tuple(i * 0.25 for i in range(15))
"""The radii at which the literature reports certified accuracy."""

NO_RADIUS = -1.0
"""Stands for the radius of votes that certify nothing, not even the radius 0."""

HOPE = 1.2
"""How likely a better answer must be before it is worth more draws, if `allowance` is 1; the module's docstring has the
formula."""

LEAST_TOLERANCE = 0.001

_STEP = 2.0**-12
"""The region sizes of a grid are multiples of this, so that inputs of nearly the same scale share their tests. The
step is at most 1/16 of K's standard deviation after 100,000 votes."""
_SMALLEST_REGION, _LARGEST_REGION = 1 / 64, 20.0  # no region is larger than 20, even after 10^9 draws without a miss


_USUAL_SHARE = 0.9993
"""The share that 10,000 draws prove if all of them hit, at alpha = 0.001."""


def usual_radii(family: Family, sigma: float | None) -> tuple[float, ...]:
    """The radii at which certified accuracy is reported if nobody asks for others, for noise of this scale.

    They are the literature's if sigma is not known, or if at least three of these and not all can be reached with
    10,000 draws: for Gaussian noise of sigma from 0.24 to 1.1. Otherwise they are multiples of the largest number like
    0.1, 0.25, 0.5 or 10 of which three or four can be reached.
    """
    if sigma is None:
        return RADII
    reach = sigma * family.region(_USUAL_SHARE, 1 - _USUAL_SHARE)
    if 3 * RADII[1] <= reach <= RADII[-1]:
        return RADII
    most = reach / 3 if reach < RADII[-1] else reach / 4
    power = math.floor(math.log10(most))
    steps = [float(f"{digits}e{exponent}") for exponent in (power - 1, power) for digits in ("1", "2.5", "5")]
    step = max(step for step in steps if step <= most)
    return tuple(float(f"{number * step:.12g}") for number in range(len(RADII)))


class StoppingRule(Protocol):
    """Decides, from the looks at an input's votes, how many more draws it gets."""

    def more(self, looks: Sequence[Look]) -> int:
        """The number of draws to take after these looks, before the next; 0 if the input has had enough."""
        ...


@dataclass(frozen=True)
class Fixed:
    """The paper's rule: n draws, whatever the votes."""

    n: int

    def more(self, looks: Sequence[Look]) -> int:
        return 0 if looks else self.n


class Question(Hashable, Protocol):
    """What adaptive stopping wants to know about the certified radius, which is NO_RADIUS for an abstention.

    A new kind of question is a class here, a row of QUESTIONS, and an option of the command line.
    """

    @property
    def radii(self) -> tuple[float, ...]:
        """The radii at which the certified accuracy is reported."""
        ...

    def describe(self) -> str:
        """The question in words, to stand after "its question was settled:"."""
        ...

    def regions(self, sigma_min: float) -> tuple[float, ...]:
        """The region sizes K that the answer depends on, from small to large, if the smallest scale is sigma_min."""
        ...

    def settled(self, now: float, best: float) -> bool:
        """Whether the radius `now` answers the question as the radius `best` would."""
        ...

    @property
    def settings(self) -> dict[str, str | float]:
        """The question as a run's record keeps it, in JSON."""
        ...

    @classmethod
    def from_settings(cls, settings: Mapping[str, object]) -> Self:
        """The question whose settings these are; other settings among them are ignored."""
        ...


@dataclass(frozen=True)
class Grid:
    """Which of these radii are certified? A single radius makes it a yes-or-no question."""

    radii: tuple[float, ...] = RADII

    def __post_init__(self) -> None:
        radii = [real_number("radii", radius, _RADII) for radius in self.radii]
        if not radii or not all(0 <= radius < math.inf for radius in radii):
            raise ArgumentError("radii", ",".join(map(str, radii)), _RADII)
        object.__setattr__(self, "radii", tuple(sorted(set(radii))))

    def describe(self) -> str:
        if len(self.radii) == 1:
            return f"whether the radius {self.radii[0]} is certified"
        return f"which of the radii {', '.join(map(str, self.radii))} are certified"

    def regions(self, sigma_min: float) -> tuple[float, ...]:
        """The smallest region, then radius / sigma_min for each radius, rounded up to a step. The margin keeps each
        region above its radius after sigma_min has been rounded to float32.

        That rounding moves radius / sigma_min by up to 6e-8 of it. So a quotient that exceeds a step by less than 1e-7
        counts as that step, which is then raised by 2e-7 of it.
        """
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
    """What is the radius, to within this fraction of what n draws would certify with the same tests? Radii below
    sigma_min / 64 may be off by more."""

    tolerance: float

    def __post_init__(self) -> None:
        tolerance = real_number("tolerance", self.tolerance, _TOLERANCE)
        if not LEAST_TOLERANCE <= tolerance < 1:
            raise ArgumentError("tolerance", tolerance, _TOLERANCE)
        object.__setattr__(self, "tolerance", tolerance)

    @property
    def radii(self) -> tuple[float, ...]:
        return RADII

    def describe(self) -> str:
        return f"the radius to within {100 * self.tolerance:g} % of what the full number of draws would certify"

    def regions(self, sigma_min: float) -> tuple[float, ...]:
        """Sizes in ratios of half the tolerance. The other half is left for stopping early."""
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
"""The kinds of questions, each by a name that its settings have and those of no other kind."""


def question_from_settings(settings: Mapping[str, object]) -> Question | None:
    """The question that a run's settings hold; None if its stopping is fixed."""
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
_TOLERANCE = f"it is a share of the radius, at least {LEAST_TOLERANCE} and below 1, like 0.01"


@dataclass(frozen=True)
class Adaptive:
    """Stops at the first look that settles the question, and after n draws at the latest."""

    n: int
    question: Question
    radius: Callable[[Sequence[Look]], float]
    """The radius that these looks certify, or NO_RADIUS."""
    radius_at_n: Callable[[Look], float]
    """The radius that a look at n draws would certify if it were the only one, or NO_RADIUS."""
    max_loss: float = MAX_LOSS

    def more(self, looks: Sequence[Look]) -> int:
        if not looks:
            return look_draws(self.n)[0]
        last = looks[-1]
        if last.draws == self.n:
            return 0
        if self.question.settled(self.radius(looks), self.radius_at_n(self._best_reachable(last))):
            return 0
        return next_look(last.draws, self.n) - last.draws

    def _best_reachable(self, look: Look) -> Look:
        """The best look at n draws that is still reachable after this one: more hits would have a predictive
        probability below the threshold."""
        left = self.n - look.draws
        rate = (look.draws - look.hits + 0.5) / (look.draws + 1)
        sqrt_2s = (4 * rate * (1 - rate)) ** 0.25
        hope = HOPE * allowance(self.max_loss, self.n)
        threshold = min(0.5, hope * look.draws / self.n * left / self.n * sqrt_2s)
        # Given the votes of m draws, the share of hits among the `left` draws to come has about the variance
        # pq (1/m + 1/left) = pq / (m left / n): that of a posterior in which each vote counts only left / n.
        hits = _posterior_quantile(look.hits, look.draws, left / self.n, 1 - threshold)
        new_hits = round(left * hits)
        reached, misses, new_misses = look.hits + new_hits, look.draws - look.hits, left - new_hits
        # The runner-up keeps its share of the misses.
        share = look.runner_up / misses if misses else 1.0
        return Look(self.n, reached, look.runner_up + round(share * new_misses))


def _posterior_quantile(count: int, draws: int, weight: float, quantile: float) -> float:
    """The quantile of a probability after `count` hits in `draws`, each vote of that weight (Jeffreys prior)."""
    return float(betaincinv(count * weight + 0.5, (draws - count) * weight + 0.5, quantile))
