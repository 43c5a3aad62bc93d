"""Certified accuracy by radius, the average certified radius, and the cost of a run."""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median_low

from ars.engine.records.record import Record
from ars.engine.statistics.plan import Plan
from ars.engine.statistics.stopping import RADII, usual_radii

__all__ = ["Summary", "count_certified", "radii_of_run", "summarize"]


@dataclass(frozen=True)
class Summary:
    """A run in a few numbers."""

    inputs: int
    labelled: int
    abstained: int
    ended_after_selection: int
    """Inputs that took no estimation draws, because their selected class was wrong (`only_correct`). They abstain."""
    certified_accuracy: dict[float, float]
    """By radius: the share of labelled inputs whose certificate is for the right class and at least that large."""
    average_certified_radius: float
    """Over labelled inputs; wrong and abstained ones count 0 (ACR)."""
    average_volume_radius: float
    """The same average of the radii of balls that have the volume of the regions."""
    nobody: int
    """Draws whose logits were not finite, and that voted for nobody."""
    draws: int
    seconds: float


def radii_of_run(plan: Plan, records: Sequence[Record]) -> tuple[float, ...]:
    """The radii at which the certified accuracy of a run is reported: those of its question, or else the usual ones for
    its noise, whose scale is the median of the smallest scales."""
    if plan.question:
        return plan.question.radii
    if not records:
        return RADII
    made = records[0].certificate
    return usual_radii(made.noise_family, median_low(record.certificate.sigma_min for record in records))


def count_certified(records: Iterable[Record], at: Sequence[float]) -> list[int]:
    """How many of these inputs are certified for the right class at each of these radii."""
    found = sorted(record.certificate.radius for record in records if record.correct)
    return [len(found) - bisect_left(found, radius) for radius in at]


def summarize(records: Iterable[Record], at: Sequence[float] = RADII) -> Summary:
    """Summarize the certified inputs of a run, with certified accuracy at these radii."""
    records = list(records)
    labelled = [record for record in records if record.label is not None]
    radii = [record.certificate.radius if record.correct else None for record in labelled]

    numbers = zip(at, count_certified(labelled, at), strict=True)
    return Summary(
        inputs=len(records),
        labelled=len(labelled),
        abstained=sum(record.certificate.abstained for record in records),
        ended_after_selection=sum(record.certificate.n == 0 for record in records),
        certified_accuracy={radius: number / len(labelled) for radius, number in numbers} if labelled else {},
        average_certified_radius=math.fsum(radius or 0.0 for radius in radii) / len(radii) if radii else 0.0,
        average_volume_radius=sum(record.certificate.volume_radius for record in labelled if record.correct)
        / max(1, len(labelled)),
        nobody=sum(record.certificate.counts[-1] for record in records),
        draws=sum(record.draws for record in records),
        seconds=sum(record.seconds for record in records),
    )
