"""A certificate: what the votes of one input prove about the smoothed classifier around this input.

The statistics are in bounds.py and ladder.py, and the geometry is in ars/noise/; here they meet. `certify_votes` is
the last third of the paper's certification algorithm: counts in, radius out. `predict_from_votes` is the end of its
prediction algorithm.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ars.checks import real_number, whole_number
from ars.engine.statistics.bounds import MAX_N, binomial_test, check_alpha, most_moved
from ars.engine.statistics.looks import Look, check_looks, take_look
from ars.engine.statistics.plan import Plan
from ars.errors import ArgumentError
from ars.noise import Family, NoiseKind, Scope, family_named, scale_map
from ars.noise.norms import check_norm, inverse_norms, radius_in

__all__ = [
    "ABSTAIN",
    "REAL_ARITHMETIC",
    "Certificate",
    "certify_votes",
    "end_after_selection",
    "format_radius",
    "format_upper",
    "geometric_mean",
    "name_radius",
    "predict_from_votes",
]

ABSTAIN = -1
"""Stands for the class of an abstention."""

REAL_ARITHMETIC = (
    "noise stream 1 assumes real arithmetic: a classifier that reads the low bits of its input can defeat it"
)


@dataclass(frozen=True)
class Certificate:
    """The guarantee for one input x: with probability at least 1 - alpha over the draws, the smoothed classifier
    answers `predicted` at x + delta for every delta in the region ||delta / scale||_norm < K, and so for every delta
    with ||delta||_norm < radius.

    `scope` says which smoothed classifier this is (ars.noise.Scope).
    """

    predicted: int
    """The certified class, or ABSTAIN; then radius and K are 0, and nothing is claimed."""
    radius: float
    K: float
    p_a: float
    """A lower bound on the probability of the selected class."""
    p_b: float
    """An upper bound on the probability of every other answer."""
    selected: int
    """The class that won the n0 selection draws."""
    counts: tuple[int, ...]
    """The votes of the n estimation draws: for each class, and last the draws that voted for nobody."""
    n0: int
    n: int
    """The number of estimation draws; 0 for an input that ended after selection (`end_after_selection`)."""
    alpha: float
    two_sided: bool
    family: str
    scope: Scope
    sigma_min: float
    sigma_geomean: float
    dimensions: int | None
    """The dimensions of the input. This and the next two are None in records of older versions, which did not keep
    them; then there are no radii in larger norms."""
    inverse_scale_l1: float | None
    """||1 / scale||_1, rounded up."""
    inverse_scale_l2: float | None
    """||1 / scale||_2, rounded up."""
    budget: int
    """The plan's n. Adaptive stopping may have ended with fewer draws."""
    looks: tuple[Look, ...]
    """All looks of adaptive stopping; empty at fixed n. The bounds follow from them, the budget, alpha, the question
    and `max_loss` of the plan (ladder.py)."""
    eta: float
    """How far the probability of an answer may differ between the draws and the ideal noise, which the bounds account
    for (docs/soundness.md). It is 0 with noise stream 1, whose certificates assume real arithmetic."""

    @property
    def noise_stream(self) -> int:
        return 2 if self.eta else 1

    @property
    def assumption(self) -> str | None:
        """What the guarantee takes for granted about arithmetic; None with noise stream 2, which takes nothing."""
        return None if self.eta else REAL_ARITHMETIC

    @property
    def abstained(self) -> bool:
        return self.predicted == ABSTAIN

    @property
    def stopping(self) -> str:
        """The rule that decided n: adaptive, fixed, or selection if the input ended after its selection draws."""
        return "selection" if self.n == 0 else "adaptive" if self.looks else "fixed"

    @property
    def noise_family(self) -> Family:
        """The family of the noise, for inputs of this many dimensions."""
        family = family_named(self.family)
        return family if self.dimensions is None else family.in_dimensions(self.dimensions)

    @property
    def norm(self) -> float:
        return self.noise_family.norm

    @property
    def volume_radius(self) -> float:
        """The radius of the ball that has the volume of the region: K times the geometric mean of the scale."""
        return self.K * self.sigma_geomean

    def radius_in(self, norm: float) -> float | None:
        """The certified radius in the l1, l2 or l-infinity norm, which is 1, 2 or math.inf here (ars/noise/norms.py).

        It is None if the norm is larger than the family's and the record is of a version that did not keep what this
        radius depends on.
        """
        return self.convert_radius(self.radius, norm)

    def convert_radius(self, radius: float, norm: float) -> float | None:
        """What a radius in the family's norm is in another one, with the scale map of this input; None as for
        `radius_in`."""
        norm = check_norm(norm)
        if norm <= self.norm:
            return radius
        if self.inverse_scale_l1 is None or self.inverse_scale_l2 is None:
            return None
        return radius_in(norm, self.norm, radius, self.sigma_min, (self.inverse_scale_l1, self.inverse_scale_l2))

    def covers(self, delta: ArrayLike, scale: ArrayLike) -> bool:
        """Whether the guarantee extends to x + delta. `scale` is the scale map of this certificate."""
        return self.measure(delta, scale) < self.K

    def measure(self, delta: ArrayLike, scale: ArrayLike) -> float:
        """||delta / scale|| in the norm of the certificate, never below its exact value; the region is where it is
        below K. `scale` is the scale map of this certificate."""
        delta, sigma = np.asarray(delta, np.float64), scale_map(scale)
        if sigma.shape not in ((), delta.shape):
            raise ArgumentError("scale.shape", sigma.shape, f"it must be the shape of delta, {delta.shape}")
        if float(sigma.min()) != self.sigma_min:
            raise ArgumentError("scale", f"a map of minimum {sigma.min()}", f"the certificate's has {self.sigma_min}")
        # The rest of the map is compared by its means, of which an older record has only the first.
        inverse_l1, inverse_l2 = inverse_norms(sigma, delta.size)
        means = (
            (self.sigma_geomean, geometric_mean(sigma)),
            (self.inverse_scale_l1, inverse_l1),
            (self.inverse_scale_l2, inverse_l2),
        )
        if any(recorded is not None and not math.isclose(recorded, found, rel_tol=1e-12) for recorded, found in means):
            raise ArgumentError("scale", "a map of other values", "it must be the scale map of the certificate")
        return self.noise_family.weighted_norm(delta, sigma)


def certify_votes(
    counts: Sequence[int],
    selected: int,
    *,
    plan: Plan,
    family: Family | str,
    scale: ArrayLike,
    kind: NoiseKind | str,
    dimensions: int | None = None,
    looks: Sequence[Look] = (),
    eta: float = 0.0,
) -> Certificate:
    """The certificate that these votes prove, at the plan's alpha.

    `counts` are the votes of the estimation draws: for each class, and last the draws that voted for nobody, which
    compete with the classes as one more answer. `selected` is the class that won the plan's n0 selection draws; the
    estimation draws must be independent of it. `scale` is rounded to float32, as the noise is drawn. It is a map, or
    one number for all `dimensions` of the input. Without these, the certificate has no radius in larger norms, and K is
    one that the family has in any number of dimensions.

    If the plan has no question, there must be n votes. If it has one, the number of votes may depend on the votes
    themselves; then `looks` are all looks that were taken, and the last is the look at `counts`.

    `eta` bounds the total variation distance between a draw and the ideal noise. If it is 0, the certificate assumes
    that the draws were made in real arithmetic.
    """
    votes = _whole_counts(counts)
    classes, n = len(votes) - 1, sum(votes)
    selected = _check_selected(selected, classes)
    noise = _Noise.check(family, scale, kind, dimensions, eta)
    now, looks = take_look(votes, selected), tuple(Look(*look) for look in looks)
    if plan.question is None:
        if looks:
            raise ArgumentError("looks", looks[-1], "only a plan with a question has looks")
        if n != plan.n:
            raise ArgumentError("counts", votes, f"they are {n} votes, and the plan has n = {plan.n}")
    else:
        if not looks or looks[-1] != now:
            last = looks[-1] if looks else "none"
            raise ArgumentError("looks", last, "the last look must be the look at the counts")
        check_looks(looks, plan.n, classes)
    return _make(votes, selected, plan.bound(looks or (now,), noise.family, noise.sigma_min, eta), plan, noise, looks)


def end_after_selection(
    selected: int,
    classes: int,
    *,
    plan: Plan,
    family: Family | str,
    scale: ArrayLike,
    kind: NoiseKind | str,
    dimensions: int | None = None,
    eta: float = 0.0,
) -> Certificate:
    """The record of an input that took no estimation draws, because the selected class was not its label. It abstains,
    with no votes. The arguments are as for `certify_votes`."""
    noise = _Noise.check(family, scale, kind, dimensions, eta)
    return _make([0] * (classes + 1), _check_selected(selected, classes), (0.0, 1.0), plan, noise, ())


@dataclass(frozen=True)
class _Noise:
    """The noise of an input, checked."""

    family: Family
    kind: NoiseKind
    sigma: NDArray[np.float64]
    sigma_min: float
    dimensions: int | None
    eta: float

    @classmethod
    def check(
        cls, family: Family | str, scale: ArrayLike, kind: NoiseKind | str, dimensions: int | None, eta: float
    ) -> Self:
        family, kind = family_named(family), NoiseKind(kind)
        if not 0 <= real_number("eta", eta, _ETA) < 1:
            raise ArgumentError("eta", eta, _ETA)
        sigma = scale_map(scale).astype(np.float64)
        sigma_min = float(sigma.min())
        if kind is NoiseKind.ISOTROPIC and sigma_min != sigma.max():
            raise ArgumentError("kind", str(kind), "this scale is not the same everywhere")
        dimensions = _check_dimensions(sigma, dimensions)
        if dimensions is not None:
            family = family.in_dimensions(dimensions)
        return cls(family, kind, sigma, sigma_min, dimensions, eta)


def _make(
    votes: Sequence[int],
    selected: int,
    bounds: tuple[float, float],
    plan: Plan,
    noise: _Noise,
    looks: tuple[Look, ...],
) -> Certificate:
    p_a, p_b = bounds
    K = noise.family.region(p_a, p_b)
    dimensions = noise.dimensions
    inverse_l1, inverse_l2 = (None, None) if dimensions is None else inverse_norms(noise.sigma, dimensions)
    return Certificate(
        predicted=selected if K > 0 else ABSTAIN,
        radius=noise.family.radius(p_a, p_b, noise.sigma_min),
        K=K,
        p_a=p_a,
        p_b=p_b,
        selected=selected,
        counts=tuple(votes),
        n0=plan.n0,
        n=sum(votes),
        alpha=plan.alpha,
        two_sided=plan.two_sided,
        family=noise.family.name,
        scope=noise.kind.scope,
        sigma_min=noise.sigma_min,
        sigma_geomean=geometric_mean(noise.sigma),
        dimensions=dimensions,
        inverse_scale_l1=inverse_l1,
        inverse_scale_l2=inverse_l2,
        budget=plan.n,
        looks=looks,
        eta=noise.eta,
    )


def _check_selected(selected: int, classes: int) -> int:
    return whole_number("selected", selected, 0, classes - 1, f"there are {classes} classes")


def _check_dimensions(sigma: NDArray[np.float64], dimensions: int | None) -> int | None:
    """The dimensions, if they are given. They do not follow from a scale map, which may hold for larger inputs by
    repetition, like one of shape (3, 1, 1)."""
    if dimensions is None:
        return None
    dimensions = whole_number("dimensions", dimensions, 1, 2**63 - 1, "an input has at least one")
    if sigma.ndim and sigma.size != dimensions:
        problem = f"the scale map has {sigma.size}; one scale for all dimensions is a number, not an array"
        raise ArgumentError("dimensions", dimensions, problem)
    return dimensions


def geometric_mean(scale: NDArray[np.floating]) -> float:
    return float(np.exp(np.log(scale.astype(np.float64)).mean()))


def predict_from_votes(counts: Sequence[int], alpha: float, eta: float = 0.0) -> int:
    """The class with the most votes, or ABSTAIN if its lead over the runner-up may be chance.

    The answer is not the likeliest class with probability at most alpha. `counts` and `eta` are as for `certify_votes`.
    With ideal noise, a few of the votes might have been others: at most `moved` of them, except with probability
    alpha / 100. That many are taken from the winner and given to the runner-up before the test.
    """
    check_alpha(alpha)
    votes = _whole_counts(counts)
    top, second = sorted(range(len(votes)), key=lambda answer: -votes[answer])[:2]
    moved, level = (most_moved(sum(votes), eta, alpha / 100), 0.99 * alpha) if eta else (0, alpha)
    winner, other = votes[top] - moved, votes[second] + moved
    if top == len(votes) - 1 or winner <= other or binomial_test(winner, winner + other) > level:
        return ABSTAIN
    return top


def _whole_counts(counts: Sequence[int]) -> list[int]:
    """The counts as Python integers, whose sum cannot overflow."""
    votes = [whole_number("counts", count, 0, MAX_N, f"votes lie between 0 and {MAX_N}") for count in counts]
    if len(votes) < 2:
        raise ArgumentError("counts", votes, "there is a count for each class, and one for draws that voted for nobody")
    whole_number("n", sum(votes), 1, MAX_N, f"counts must add up to between 1 and {MAX_N} draws")
    return votes


def format_radius(radius: float, digits: int = 3) -> str:
    """The radius with this number of digits after the point, rounded down: never more than was proved."""
    return _format(radius, digits, ROUND_FLOOR)


def format_upper(value: float, digits: int = 3) -> str:
    """An upper bound with this number of digits after the point, rounded up."""
    return _format(value, digits, ROUND_CEILING)


def _format(value: float, digits: int, rounding: str) -> str:
    if math.isinf(value):
        return str(value)
    return f"{Decimal(value).quantize(Decimal(1).scaleb(-digits), rounding, Context(prec=400)):f}"


def name_radius(radius: float) -> str:
    """A radius that was asked for, in a form that is exactly this number: what holds there need not hold at another."""
    short = f"{radius:g}"
    return short if float(short) == radius else str(radius)


_ETA = "it is a probability, and 0 for ideal draws"
