"""A certificate: what the votes of one input prove about the smoothed classifier around it.

The statistics are in bounds.py and the geometry in ars/noise.py; here they meet. `certificate` is the last third of
the paper's certification algorithm (counts in, radius out) and `prediction` the end of its prediction algorithm.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal

import numpy as np
from numpy.typing import ArrayLike

from ars.engine.bounds import binomial_test, check_alpha, lower_confidence_bound, upper_confidence_bound
from ars.errors import ArgumentError
from ars.noise import Family, NoiseKind, Scope, check_scale, family_named

__all__ = ["ABSTAIN", "Certificate", "certificate", "format_radius", "prediction"]

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

    @property
    def abstained(self) -> bool:
        return self.predicted == ABSTAIN

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
        return family_named(self.family).weighted_norm(delta, scale) < self.K


def certificate(
    counts: Sequence[int],
    selected: int,
    *,
    n0: int,
    alpha: float,
    family: Family,
    scale: ArrayLike,
    kind: NoiseKind,
    two_sided: bool = False,
) -> Certificate:
    """The certificate for the class `selected`, from the votes of n fresh draws.

    `counts` has a bin for each class and one last bin for draws that voted for nobody; that bin competes like a class.
    `selected` must come from other draws than `counts`, `n0` of them. If `two_sided`, alpha is split in halves between
    the bound of pA and those of all other bins at once (Bonferroni); otherwise pB is 1 - pA.
    """
    n = sum(counts)
    if not 0 <= selected < len(counts) - 1:
        raise ArgumentError("selected", selected, f"there are {len(counts) - 1} classes")
    others = [count for answer, count in enumerate(counts) if answer != selected]
    if two_sided:
        p_a = lower_confidence_bound(counts[selected], n, alpha / 2)
        p_b = upper_confidence_bound(max(others), n, alpha / 2 / len(others))
        p_b = min(p_b, math.nextafter(1 - p_a, 2.0))
    else:
        p_a = lower_confidence_bound(counts[selected], n, alpha)
        p_b = 1 - p_a
    check_scale(scale)
    sigma = np.asarray(scale, np.float64)
    sigma_min = float(sigma.min())
    K = family.region(p_a, p_b)
    return Certificate(
        predicted=selected if K > 0 else ABSTAIN,
        radius=family.radius(p_a, p_b, sigma_min),
        K=K,
        p_a=p_a,
        p_b=p_b,
        selected=selected,
        counts=tuple(counts),
        n0=n0,
        n=n,
        alpha=alpha,
        two_sided=two_sided,
        family=family.name,
        scope=kind.scope,
        sigma_min=sigma_min,
        sigma_geomean=float(np.exp(np.log(sigma).mean())),
    )


def prediction(counts: Sequence[int], alpha: float) -> int:
    """The class that wins the votes, or ABSTAIN where its lead over the next could be chance (with risk alpha).

    `counts` is as for `certificate`.
    """
    check_alpha(alpha)
    top, second = np.argsort(-np.asarray(counts), kind="stable")[:2]
    n_a, n_b = int(counts[top]), int(counts[second])
    if top == len(counts) - 1 or n_a == 0 or binomial_test(n_a, n_a + n_b) > alpha:
        return ABSTAIN
    return int(top)


def format_radius(radius: float, digits: int = 3) -> str:
    """The radius rounded down: what is printed is never more than what was proved."""
    return str(Decimal(radius).quantize(Decimal(1).scaleb(-digits), ROUND_FLOOR))
