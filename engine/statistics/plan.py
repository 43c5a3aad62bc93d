"""The plan of a certification: the draws, the error probability, and the question that may end an input early."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Self, cast

from ars.checks import real_number, whole_number
from ars.engine.statistics.bounds import MAX_N, bound_at_fixed_n, check_alpha, widen
from ars.engine.statistics.ladder import STEPS, bound_at_looks, bound_both_at_looks, make_ladder
from ars.engine.statistics.looks import Look
from ars.engine.statistics.losses import LEAST_LOSS, MAX_LOSS, MOST_LOSS, OLDER_LOSS
from ars.engine.statistics.stopping import (
    NO_RADIUS,
    Adaptive,
    Fixed,
    Question,
    StoppingRule,
    question_from_settings,
)
from ars.errors import ArgumentError
from ars.noise import Family

__all__ = ["BOUNDS", "Plan", "check_plan"]

BOUNDS, TWO_SIDED_ADAPTIVE_BOUNDS = 3, 4
"""The version of the bounds of adaptive and two-sided certificates, and of those that are both, kept with a run: other
versions compute other bounds from the same votes. (Version 1 divided alpha among the looks and among the other answers,
by Bonferroni's inequality. Version 2 gave pA and pB the same part of alpha, and lost more radii at small n. In version
3, certificates that are both divided alpha in one way for all rates, and had fewer rates below 100,000 draws.)"""

COARSE = tuple(K / 16 for K in range(1, 5 * 16))
"""The sizes that a two-sided certificate settles besides those of its question, once it has stopped, so that it gets a
bound of its own between two radii of the question."""

# The parts of alpha, and those into which `ars-bench stopping` divides them, must be in the range of bounds.py.
MIN_PLAN_ALPHA = 1e-9
MIN_ADAPTIVE_ALPHA = 1e-5

_MAX_LOSS = f"it is in points of certified accuracy, from {LEAST_LOSS:g} to {MOST_LOSS:g}, like {MAX_LOSS:g}"


@dataclass(frozen=True)
class Plan:
    """How an input is certified: n0 draws select a class, n further draws bound its probability, and the certificate is
    wrong with probability at most alpha.

    With a `question`, an input stops as soon as the question is settled, and n is its budget: it never takes more.
    `max_loss` says about how many points of certified accuracy that may cost at any radius, in exchange for draws: it
    is calibrated and not proved (losses.py). If `two_sided`, alpha is divided between a bound on pA and one on pB;
    otherwise pB is 1 - pA.
    """

    n0: int = 100
    n: int = 100_000
    alpha: float = 0.001
    two_sided: bool = True
    question: Question | None = None
    max_loss: float = MAX_LOSS

    def __post_init__(self) -> None:
        for name in ("n0", "n"):
            draws = whole_number(name, getattr(self, name), 1, MAX_N, f"certificates are for 1 to {MAX_N} draws")
            object.__setattr__(self, name, draws)
        object.__setattr__(self, "alpha", check_alpha(self.alpha))
        if not isinstance(self.two_sided, bool):
            raise ArgumentError("two_sided", repr(self.two_sided), "it is True or False")
        max_loss = real_number("max_loss", self.max_loss, _MAX_LOSS)
        if not LEAST_LOSS <= max_loss <= MOST_LOSS:
            raise ArgumentError("max_loss", max_loss, _MAX_LOSS)
        if self.question is None and max_loss != MAX_LOSS:
            raise ArgumentError("max_loss", max_loss, "it is for adaptive stopping; give a question too, or leave it")
        object.__setattr__(self, "max_loss", max_loss)
        least = MIN_PLAN_ALPHA if self.question is None else MIN_ADAPTIVE_ALPHA
        if self.alpha < least:
            kind = "certificates" if self.question is None else "adaptive certificates"
            raise ArgumentError("alpha", self.alpha, f"{kind} are for alpha of at least {least}")

    @property
    def without_question(self) -> Self:
        """The plan that takes all n draws."""
        return dataclasses.replace(self, question=None, max_loss=MAX_LOSS)

    @property
    def bounds_version(self) -> int | None:
        """The version of the bounds of its certificates; None for one-sided bounds at fixed n, which have only one."""
        if self.two_sided and self.question:
            return TWO_SIDED_ADAPTIVE_BOUNDS
        return BOUNDS if self.two_sided or self.question else None

    @property
    def settings(self) -> dict[str, str | float]:
        """The plan as a run's record keeps it, in JSON."""
        plan: dict[str, str | float] = {"n0": self.n0, "n": self.n, "alpha": self.alpha, "two_sided": self.two_sided}
        if self.question is None:
            plan |= {"stopping": "fixed"}
        else:
            plan |= {"stopping": "adaptive", "max_loss": self.max_loss, **self.question.settings}
        return plan | ({} if self.bounds_version is None else {"bounds": self.bounds_version})

    @classmethod
    def from_settings(cls, settings: Mapping[str, object]) -> Self:
        """The plan whose settings these are: the inverse of `settings`.

        Other settings of a run may be among them, and are ignored. So is the version of the bounds: whoever computes
        certificates again must compare it with `bounds_version`.
        """
        question = question_from_settings(settings)
        value: Callable[[str], Any] = settings.get  # __post_init__ checks the types, None included
        max_loss = MAX_LOSS if question is None else settings.get("max_loss", OLDER_LOSS)
        return cls(value("n0"), value("n"), value("alpha"), value("two_sided"), question, cast(float, max_loss))

    def bound(
        self, looks: Sequence[Look], family: Family, sigma_min: float, eta: float, *, closely: bool = True
    ) -> tuple[float, float]:
        """A lower bound on pA and an upper bound on pB, from all looks at the votes. At fixed n there is one look.

        The probability of an answer may differ by `eta` between the draws and the ideal noise. Two-sided bounds take
        time. Unless they are to be found `closely`, they only settle the question, which is all that stopping needs.
        """
        if self.question is None:
            (look,) = looks
            return self.bound_at_n(look, eta)
        sizes, with_coarse = _sizes(self.question, sigma_min)
        ladder = make_ladder(family, sizes, eta)
        if not self.two_sided:
            return widen(*bound_at_looks(looks, self.n, self.alpha, (STEPS, ladder), self.max_loss), eta)
        settled = with_coarse if closely else sizes
        region = partial(_region, family, eta)
        return widen(*bound_both_at_looks(looks, self.n, self.alpha, ladder, settled, region, self.max_loss), eta)

    def bound_at_n(self, look: Look, eta: float) -> tuple[float, float]:
        """The bounds of this look if it were the only one."""
        return widen(*bound_at_fixed_n(look, self.alpha, two_sided=self.two_sided), eta)

    def stopping_rule(self, family: Family, sigma_min: float, eta: float) -> StoppingRule:
        """The rule that decides when an input with this noise has had enough draws."""
        if self.question is None:
            return Fixed(self.n)

        def radius(looks: Sequence[Look]) -> float:
            return family.radius(*self.bound(looks, family, sigma_min, eta, closely=False), sigma_min) or NO_RADIUS

        def radius_at_n(look: Look) -> float:
            return family.radius(*self.bound_at_n(look, eta), sigma_min) or NO_RADIUS

        return Adaptive(self.n, self.question, radius, radius_at_n, self.max_loss)


@lru_cache
def _sizes(question: Question, sigma_min: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The sizes that a question depends on, and these with the coarse ones."""
    sizes = question.regions(sigma_min)
    return sizes, tuple(sorted({*sizes, *COARSE}))


@lru_cache(maxsize=2**14)
def _region(family: Family, eta: float, p_a: float, p_b: float) -> float:
    """The size of the region that bounds of the draws' probabilities prove. Many inputs share the tested rates."""
    return family.region(*widen(p_a, p_b, eta))


def check_plan(plan: object, otherwise: str = "like ars.Plan(n=10_000)") -> Plan:
    """The plan, unless something else was given where one was expected."""
    if not isinstance(plan, Plan):
        raise ArgumentError("plan", type(plan).__name__, f"give an ars.Plan, {otherwise}")
    return plan
