"""A certificate: what the votes of one input prove about the smoothed classifier around it.

The statistics are in bounds.py and ladder.py, and the geometry is in ars/noise.py; here they meet. `certify_votes` is
the last third of the paper's certification algorithm: counts in, radius out. `predict_from_votes` is the end of its
prediction algorithm.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal

import numpy as np
from numpy.typing import ArrayLike

from ars.checks import whole_number
from ars.engine.statistics.bounds import MAX_N, binomial_test, check_alpha
from ars.engine.statistics.looks import Look, check_looks, take_look
from ars.engine.statistics.plan import Plan
from ars.errors import ArgumentError
from ars.noise import Family, NoiseKind, Scope, family_named, scale_map

__all__ = ["ABSTAIN", "Certificate", "certify_votes", "format_radius", "predict_from_votes"]

ABSTAIN = -1


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


def certify_votes(
    counts: Sequence[int],
    selected: int,
    *,
    plan: Plan,
    family: Family | str,
    scale: ArrayLike,
    kind: NoiseKind | str,
    looks: Sequence[Look] = (),
) -> Certificate:
    """The certificate for the class `selected`, from the votes of fresh draws.

    `counts` has a bin for each class and one last bin for draws that voted for nobody; that bin competes like a class.
    `selected` must come from other draws than `counts`: the plan's n0. The scale is taken as the noise uses it, in
    float32.

    If the plan has no question, `counts` are the votes of its n draws. If it has one, the number of draws may depend on
    the votes: `looks` are all that were taken, the last one at `counts`.
    """
    votes = _whole_counts(counts)
    family, kind = family_named(family), NoiseKind(kind)
    classes, n = len(votes) - 1, sum(votes)
    selected = whole_number("selected", selected, 0, classes - 1, f"there are {classes} classes")
    sigma = scale_map(scale).astype(np.float64)
    sigma_min = float(sigma.min())
    if kind is NoiseKind.ISOTROPIC and sigma_min != sigma.max():
        raise ArgumentError("kind", str(kind), "this scale is not the same everywhere")
    now, looks = take_look(votes, selected), tuple(Look(*look) for look in looks)
    if plan.question is None:
        if looks:
            raise ArgumentError("looks", looks[-1], "looks are for a question")
        if n != plan.n:
            raise ArgumentError("counts", votes, f"they are {n} votes, and the plan is {plan.n}")
    else:
        if not looks or looks[-1] != now:
            last = looks[-1] if looks else "none"
            raise ArgumentError("looks", last, "the last look is at the votes that are counted")
        check_looks(looks, plan.n, classes)
    p_a, p_b = plan.bound(looks or (now,), family, sigma_min)
    K = family.region(p_a, p_b)
    return Certificate(
        predicted=selected if K > 0 else ABSTAIN,
        radius=family.radius(p_a, p_b, sigma_min),
        K=K,
        p_a=p_a,
        p_b=p_b,
        selected=selected,
        counts=tuple(votes),
        n0=plan.n0,
        n=n,
        alpha=plan.alpha,
        two_sided=plan.two_sided,
        family=family.name,
        scope=kind.scope,
        sigma_min=sigma_min,
        sigma_geomean=float(np.exp(np.log(sigma).mean())),
        budget=plan.n,
        looks=looks,
    )


def predict_from_votes(counts: Sequence[int], alpha: float) -> int:
    """The class that wins the votes, or ABSTAIN where its lead over the next could be chance (with risk alpha).

    `counts` is as for `certify_votes`.
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
