"""What our figures say about the published ones, in sentences that follow from the intervals."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ars.bench.paper import published
from ars.bench.reproduce.presets import Preset, Wanted
from ars.engine.decisions.overview import Accuracy, Overview
from ars.engine.records.stored_run import Run

__all__ = ["Certified", "best_over_sigma", "reasons", "verdicts"]

# The published row that each kind of noise reproduces.
COUNTERPARTS = {"isotropic": "Cohen", "input": "Hong"}
LINES = {
    "isotropic": "isotropic noise (scope global)",
    "input": "input-wise noise (scope frozen)",
}


@dataclass(frozen=True)
class Certified:
    """A model with a run of the table, and one of the average radius, if it is there."""

    model: Wanted
    table: Overview
    average: Run | None


def best_over_sigma(group: Sequence[Certified]) -> list[Accuracy]:
    """The best certified accuracy over sigma0 at each radius, with the interval of the model that has it."""
    return [max(at, key=lambda one: one.share) for at in zip(*(one.table.accuracies for one in group), strict=True)]


def verdicts(
    certified: Sequence[Certified], best: dict[str, list[Accuracy]], theirs: published.AccuracyTable
) -> Iterator[str]:
    """What our figures say about the published ones, in sentences."""
    for kind, found in best.items():
        row = next(row for row in theirs.rows if row.method == COUNTERPARTS[kind])
        yield _compare(kind, found, row) if found else f"No model of {LINES[kind]} has been certified yet."
    if all(best.values()):
        higher = [
            f"{ours.radius:g}"
            for base, ours in zip(*best.values(), strict=True)
            if ours.interval.low > base.interval.high
        ]
        claim = "The paper's main claim, that input-wise noise certifies more at every radius (in its own scope), is"
        if higher:
            yield f"{claim} confirmed at {', '.join(higher)}: there the intervals of the best models do not overlap."
        else:
            yield f"{claim} confirmed at no radius: the intervals of the best models overlap everywhere."
    by_sigma = sorted({one.model.sigma0 for one in certified if one.model.kind == "isotropic"})
    for low, high in pairwise(by_sigma):
        first, second = (_shares(certified, sigma0) for sigma0 in (low, high))
        crossing = next((at.radius for at, other in zip(first, second, strict=True) if other.share > at.share), None)
        if crossing is not None:
            yield f"With isotropic noise, sigma0 = {high:g} certifies more than {low:g} from radius {crossing:g} on."


def reasons(preset: Preset, theirs: published.AccuracyTable, *, incomplete: bool) -> Iterator[str]:
    """Why our figures may differ from the published ones."""
    network = next(row.network for row in theirs.rows if row.method == COUNTERPARTS["isotropic"])
    if preset.network != network:
        yield f"our network is a {preset.network}, trained for {preset.epochs} epochs, and theirs is a {network}"
    if preset.plan["consistency"]:
        yield (
            "our training has consistency regularisation (Jeong and Shin, 2020), which those of Cohen and the paper do "
            "not have, and which gives up accuracy at small radii for large ones"
        )
    if incomplete:
        yield "our best over sigma0 is of fewer models"


def _shares(certified: Sequence[Certified], sigma0: float) -> Sequence[Accuracy]:
    return next(one.table.accuracies for one in certified if one.model == Wanted("isotropic", sigma0))


def _compare(kind: str, found: Sequence[Accuracy], row: published.AccuracyRow) -> str:
    inside: list[str] = []
    below: list[str] = []
    above: list[str] = []
    for at, value in zip(found, row.percent, strict=True):
        if value is not None:
            low, high = 100 * at.interval.low, 100 * at.interval.high
            (below if high < value else above if low > value else inside).append(f"{at.radius:g}")
    parts = [
        f"{verb} at {', '.join(radii)}"
        for verb, radii in (
            ("our interval contains the published figure", inside),
            ("ours is lower", below),
            ("ours is higher", above),
        )
        if radii
    ]
    return f"{LINES[kind][0].upper()}{LINES[kind][1:]}, against {row.method}'s {row.network}: {'; '.join(parts)}."
