"""What the draws of an input went for: why it stopped, and how many more votes would have certified the next radius.

The next radius is the first of the radii asked for that is larger than the certified one; for an abstention it is 0. An
input that took all n draws lacks the smallest number of votes that, cast for the selected class instead of the most
frequent other answer, would have certified the next radius. (When another answer becomes the most frequent one, the
votes are taken from that in turn.) For an input that stopped early, the votes are first extrapolated to n draws, at the
shares observed.

These numbers use the bounds for n draws that were fixed beforehand, with adaptive stopping too: its own bounds depend
on all looks. At the last look they need a few votes more (`choose_given_up` in spending.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from ars.engine.statistics.certificate import Certificate, name_radius
from ars.engine.statistics.looks import Look
from ars.engine.statistics.plan import Plan
from ars.engine.statistics.stopping import Grid
from ars.noise import Family
from ars.noise.norms import norm_name

__all__ = ["Shortfall", "Stop", "count_votes_short", "find_shortfall"]


class Stop(StrEnum):
    """Why an input got no more draws."""

    ALL_DRAWS = "all-draws"
    SETTLED = "settled"
    """Every radius that it can reach is certified, or its radius is known as closely as was asked for."""
    OUT_OF_REACH = "out-of-reach"
    """The next radius had become too unlikely."""
    HOPELESS = "hopeless"
    """A certificate of any radius had become too unlikely."""
    WRONG_CLASS = "wrong-class"
    """The selected class is not the label, and only correct answers count."""


@dataclass(frozen=True)
class Shortfall:
    """Why an input stopped, and what it lacked."""

    stopped: Stop
    next_radius: float | None
    """In the norm of the noise family; None if all radii asked for are certified, or if the class was wrong."""
    votes_short: int | None
    """None also if not even n votes for the selected class would certify the next radius."""
    explanation: str
    """The same in one or two sentences."""


def find_shortfall(certificate: Certificate, plan: Plan, radii: Sequence[float]) -> Shortfall:
    """Why an input stopped that was certified by this plan, and what it lacked to the next of these radii."""
    if certificate.n == 0:
        return Shortfall(
            Stop.WRONG_CLASS, None, None, "It ended after selection, because the selected class was wrong."
        )
    following = (radius for radius in radii if radius > certificate.radius)
    next_radius = 0.0 if certificate.abstained else next(following, None)
    votes_short = None if next_radius is None else _count_votes_short(certificate, plan, next_radius)
    if certificate.n == plan.n:
        stopped = Stop.ALL_DRAWS
    elif certificate.abstained:
        stopped = Stop.HOPELESS
    elif isinstance(plan.question, Grid) and votes_short is not None:
        stopped = Stop.OUT_OF_REACH
    else:
        stopped = Stop.SETTLED
    return Shortfall(stopped, next_radius, votes_short, _explain(certificate, stopped, next_radius, votes_short))


def _count_votes_short(certificate: Certificate, plan: Plan, radius: float) -> int | None:
    others = [count for answer, count in enumerate(certificate.counts) if answer != certificate.selected]
    hits, others = _extrapolate(certificate.counts[certificate.selected], others, plan.n)
    at_n = plan.without_question
    in_order = tuple(sorted((count for count in others if count), reverse=True))
    noise = (certificate.noise_family, certificate.sigma_min, certificate.eta)
    return count_votes_short(hits, in_order, radius, at_n, *noise)


def _extrapolate(hits: int, others: Sequence[int], n: int) -> tuple[int, list[int]]:
    """The votes after n draws at the same shares. What is lost by rounding goes to the most frequent other answer."""
    draws = hits + sum(others)
    most, counts = max(range(len(others)), key=others.__getitem__), [count * n // draws for count in others]
    counts[most] += n - hits * n // draws - sum(counts)
    return hits * n // draws, counts


@lru_cache(maxsize=2**16)
def count_votes_short(
    hits: int, others: tuple[int, ...], radius: float, plan: Plan, family: Family, sigma_min: float, eta: float
) -> int | None:
    """The smallest number of votes that the selected class lacks to certify this radius (0: any radius) by a plan of
    fixed n; 0 if it lacks none, and None if not even n votes are enough.

    It has `hits` of n votes, and `others` are the votes of the other answers, from the most frequent one on.
    """
    draws, misses = hits + sum(others), sum(others)

    def certifies(more: int) -> bool:
        look = Look(draws, hits + more, _runner_up(others, more))
        found = family.radius(*plan.bound((look,), family, sigma_min, eta), sigma_min)
        return found > 0 and found >= radius

    if not certifies(misses):
        return None
    too_few, enough = -1, misses
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        too_few, enough = (too_few, middle) if certifies(middle) else (middle, enough)
    return enough


def _runner_up(others: Sequence[int], taken: int) -> int:
    """The votes of the most frequent other answer after so many are taken, each from the most frequent one."""
    total = 0
    for number, (count, below) in enumerate(zip(others, [*others[1:], 0], strict=False), 1):
        total += count
        if total - number * below >= taken:  # the first ones come down to a common level, not below the next
            return -(-(total - taken) // number)
    return 0


def _explain(certificate: Certificate, stopped: Stop, next_radius: float | None, votes_short: int | None) -> str:
    norm, n, early = norm_name(certificate.norm), certificate.budget, stopped is not Stop.ALL_DRAWS
    wanted = f"the {norm} radius {name_radius(next_radius)}" if next_radius else "a radius above 0"
    why = {
        Stop.SETTLED: "its question was settled",
        Stop.OUT_OF_REACH: f"{wanted} was out of reach",
        Stop.HOPELESS: "a certificate was out of reach",
    }.get(stopped)
    taken = f"It stopped after {certificate.n:,} of {n:,} draws: {why}." if why else f"It took all {n:,} draws."
    if certificate.abstained:
        hits, others = certificate.counts[certificate.selected], list(certificate.counts)
        others.pop(certificate.selected)
        taken = (
            f"It abstains: {hits:,} of {certificate.n:,} votes for its class and {max(others):,} for the next answer "
            f"do not prove that its class is the most likely answer. {taken}"
        )
    if next_radius is None:
        return f"{taken} Every radius asked for is certified."
    if votes_short is None:
        return f"{taken} Not even {n:,} votes for its class would have certified {wanted}."
    if votes_short == 0:
        return f"{taken} Such shares of {n:,} draws would just have certified {wanted}, had n been fixed beforehand."
    number = f"About {votes_short:,}" if early else f"{votes_short:,}"
    votes = "vote" if votes_short == 1 else "votes"
    return f"{taken} {number} more {votes} of {n:,} would have certified {wanted}."
