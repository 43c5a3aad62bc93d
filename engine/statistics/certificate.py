"""A certificate: what the votes of one input prove about the smoothed classifier around it.

The statistics are in bounds.py and the geometry in ars/noise.py; here they meet. `certificate` is the last third of
the paper's certification algorithm (counts in, radius out) and `prediction` the end of its prediction algorithm.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal

import numpy as np
from numpy.typing import ArrayLike

from ars.checks import whole_number
from ars.engine.statistics.bounds import (
    MAX_N,
    binomial_test,
    check_alpha,
    lower_confidence_bound,
    upper_confidence_bound,
)
from ars.engine.statistics.ladder import STEPS, TWO_SIDED, Ladder, bounds_at, ladder
from ars.engine.statistics.looks import Look, check_looks
from ars.engine.statistics.stopping import Question
from ars.errors import ArgumentError
from ars.noise import Family, NoiseKind, Scope, family_named, scale_map

__all__ = [
    "ABSTAIN",
    "BOUNDS",
    "Certificate",
    "certificate",
    "fixed_bounds",
    "format_radius",
    "ladders_of",
    "look_at",
    "prediction",
]

ABSTAIN = -1

BOUNDS = 2
"""The version of the bounds of adaptive and two-sided certificates, for the record: the same votes have others in
another version. (1 had Bonferroni's inequality, over the looks and over the other answers.)"""


@dataclass(frozen=True)
class Certificate:
    """With probability at least 1 - alpha over the draws, the smoothed classifier answers `predicted` for every
    x + delta with ||delta||_norm < radius, and for every delta in the region ||delta / scale||_norm < K.

    `scope` says which smoothed classifier that is (ars.noise.Scope).
    """

    predicted: int
    """The class, or ABSTAIN; then radius and K are 0 and nothing is claimed."""
    radius: float
    K: float
    p_a: float
    """Lower bound of the probability of the predicted class."""
    p_b: float
    """Upper bound of the probability of every other answer."""
    selected: int
    """The class that the n0 selection draws chose."""
    counts: tuple[int, ...]
    """The votes of the estimation draws: by class, and last the draws that voted for nobody."""
    n0: int
    n: int
    """The estimation draws used."""
    alpha: float
    two_sided: bool
    family: str
    scope: Scope
    sigma_min: float
    sigma_geomean: float
    budget: int
    """The most estimation draws that the plan allowed; n is less where adaptive stopping ended early."""
    looks: tuple[Look, ...]
    """Where adaptive stopping looked at the votes: the bounds follow from these, budget, alpha and the question
    (ladder.py). Empty at fixed n."""

    @property
    def abstained(self) -> bool:
        return self.predicted == ABSTAIN

    @property
    def stopping(self) -> str:
        """The rule that ended the draws."""
        return "adaptive" if self.looks else "fixed"

    @property
    def norm(self) -> float:
        return family_named(self.family).norm

    @property
    def volume_radius(self) -> float:
        """The radius of the ball with the region's volume: K times the geometric mean of the scale."""
        return self.K * self.sigma_geomean

    def radius_in(self, norm: float, dimensions: int) -> float:
        """The certified radius in the l1, l2 or l-infinity norm of inputs with that many dimensions."""
        return family_named(self.family).radius_in(norm, self.radius, dimensions)

    def covers(self, delta: ArrayLike, scale: ArrayLike) -> bool:
        """Whether the guarantee holds at x + delta, given the scale map that this certificate was made with."""
        delta, sigma = np.asarray(delta, np.float64), scale_map(scale)
        if sigma.shape not in ((), delta.shape):
            raise ArgumentError("scale.shape", sigma.shape, f"it must be the shape of delta, {delta.shape}")
        if float(sigma.min()) != self.sigma_min:
            raise ArgumentError("scale", f"a map of minimum {sigma.min()}", f"the certificate's has {self.sigma_min}")
        return family_named(self.family).weighted_norm(delta, sigma) < self.K


def certificate(
    counts: Sequence[int],
    selected: int,
    *,
    n0: int,
    alpha: float,
    family: Family | str,
    scale: ArrayLike,
    kind: NoiseKind | str,
    two_sided: bool = False,
    question: Question | None = None,
    looks: Sequence[Look] = (),
    budget: int | None = None,
) -> Certificate:
    """The certificate for the class `selected`, from the votes of n fresh draws.

    `counts` has a bin for each class and one last bin for draws that voted for nobody; that bin competes like a class.
    `selected` must come from other draws than `counts`, `n0` of them. If `two_sided`, alpha is split in halves between
    the bound of pA and that of pB; otherwise pB is 1 - pA. The scale is taken as the noise uses it, in float32.

    Without a `question`, n must have been fixed beforehand. With one, n may depend on the votes: `looks` are all that
    were taken of a budget of `budget` draws, the last one at `counts`.
    """
    votes = _whole_counts(counts)
    family, kind = family_named(family), NoiseKind(kind)
    classes, n = len(votes) - 1, sum(votes)
    selected = whole_number("selected", selected, 0, classes - 1, f"there are {classes} classes")
    alpha = check_alpha(alpha)
    sigma = scale_map(scale).astype(np.float64)
    sigma_min = float(sigma.min())
    looks, budget = tuple(Look(*look) for look in looks), n if budget is None else budget
    if question is not None:
        if not looks or looks[-1] != look_at(votes, selected):
            raise ArgumentError(
                "looks", looks[-1] if looks else "none", "the last look is at the votes that are counted"
            )
        check_looks(looks, budget, classes)
        ladders = ladders_of(question, family, sigma_min, two_sided=two_sided)
        p_a, p_b = bounds_at(looks, budget, alpha, ladders, two_sided=two_sided)
    elif looks:
        raise ArgumentError("looks", looks[-1], "looks are for a question")
    else:
        p_a, p_b = fixed_bounds(look_at(votes, selected), alpha, two_sided=two_sided)
    if kind is NoiseKind.ISOTROPIC and sigma_min != sigma.max():
        raise ArgumentError("kind", str(kind), "this scale is not the same everywhere")
    K = family.region(p_a, p_b)
    return Certificate(
        predicted=selected if K > 0 else ABSTAIN,
        radius=family.radius(p_a, p_b, sigma_min),
        K=K,
        p_a=p_a,
        p_b=p_b,
        selected=selected,
        counts=tuple(votes),
        n0=n0,
        n=n,
        alpha=alpha,
        two_sided=bool(two_sided),
        family=family.name,
        scope=kind.scope,
        sigma_min=sigma_min,
        sigma_geomean=float(np.exp(np.log(sigma).mean())),
        budget=budget,
        looks=looks,
    )


def fixed_bounds(votes: Look, alpha: float, *, two_sided: bool) -> tuple[float, float]:
    """pA from below and pB from above after a number of draws that was fixed beforehand.

    pB is bounded by the count of the most frequent other answer, at the level of a single one: the likeliest other
    answer has no more votes than that, so whenever its own bound holds, this one does, for it and for all others.
    """
    p_a = lower_confidence_bound(votes.hits, votes.draws, alpha / (1 + two_sided))
    if not two_sided:
        return p_a, 1 - p_a  # exact where it matters, for p_a of at least 1/2
    return p_a, min(upper_confidence_bound(votes.runner_up, votes.draws, alpha / 2), 1 - p_a)


def ladders_of(question: Question, family: Family, sigma_min: float, *, two_sided: bool) -> tuple[Ladder, ...]:
    """The rates that are tested to answer a question."""
    return (TWO_SIDED,) if two_sided else (STEPS, ladder(family, question.regions(sigma_min)))


def look_at(counts: Sequence[int], selected: int) -> Look:
    """What a look sees of the votes."""
    return Look(sum(counts), counts[selected], max(count for answer, count in enumerate(counts) if answer != selected))


def prediction(counts: Sequence[int], alpha: float) -> int:
    """The class that wins the votes, or ABSTAIN where its lead over the next could be chance (with risk alpha).

    `counts` is as for `certificate`.
    """
    check_alpha(alpha)
    votes = _whole_counts(counts)
    top, second = sorted(range(len(votes)), key=lambda answer: -votes[answer])[:2]
    if top == len(votes) - 1 or binomial_test(votes[top], votes[top] + votes[second]) > alpha:
        return ABSTAIN
    return top


def _whole_counts(counts: Sequence[int]) -> list[int]:
    """The votes as Python ints, whose sum cannot overflow."""
    votes = [whole_number("counts", count, 0, MAX_N, f"votes lie between 0 and {MAX_N}") for count in counts]
    if len(votes) < 2:
        raise ArgumentError("counts", votes, "there is a bin for each class, and one for draws that voted for nobody")
    whole_number("n", sum(votes), 1, MAX_N, f"counts must add up to between 1 and {MAX_N} draws")
    return votes


def format_radius(radius: float, digits: int = 3) -> str:
    """The radius rounded down: what is printed is never more than what was proved."""
    if math.isinf(radius):
        return str(radius)
    return f"{Decimal(radius).quantize(Decimal(1).scaleb(-digits), ROUND_FLOOR, Context(prec=400)):f}"
