"""The runs of a report, read from their stores, and their curves and histograms as plain numbers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ars.engine.decisions.sample import sample_of, sigma_groups
from ars.engine.records.stored_run import Run, name_runs, read_run
from ars.noise.norms import NORMS, norm_name

__all__ = ["Curves", "Histogram", "Run", "accuracy_curves", "certified_accuracy", "draw_histogram", "read_runs"]


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """The runs, named after their files; runs whose files have the same name are named by their whole paths."""
    return [read_run(path, name) for path, name in zip(paths, name_runs(paths), strict=True)]


def certified_accuracy(run: Run, radii: Sequence[float], certified: Sequence[float] | None = None) -> list[float]:
    """At each radius, the share of labelled inputs that are certified for the right class within it.

    `certified` has the certified radii of the run's records, by default those in the norm of the noise family.
    """
    if certified is None:
        certified = [record.certificate.radius for record in run.records]
    found = np.sort([radius for radius, record in zip(certified, run.records, strict=True) if record.correct])
    below = np.searchsorted(found, radii, side="left")
    return ((len(found) - below) / run.summary.labelled).tolist()  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Best:
    """The largest share at each radius among runs that differ in sigma."""

    runs: list[str]
    shares: list[float]


@dataclass(frozen=True)
class Curves:
    """Certified accuracy by radius in one norm, of the runs that have labels and radii in this norm."""

    norm: str
    step: float
    """The distance between the radii of the table."""
    radii: list[float]
    """From 0 on, in a whole number of parts of `step`."""
    shares: dict[int, list[float]]
    """By the number of the run."""
    bands: dict[int, list[tuple[float, float]]]
    """The intervals of the shares, of the runs that did not certify all inputs."""
    best: list[Best]
    """The best over sigma, for runs that differ in sigma."""
    averages: dict[int, float]
    """The average certified radius in this norm, by the number of the run."""


POINTS = 240
FIELD_STEP, LEAST_STEPS = 0.25, 3
"""The table has the field's step if at least so many of its radii are reached."""
NICE_STEPS = (1, 2, 2.5, 5)


def accuracy_curves(runs: Sequence[Run]) -> list[Curves]:
    """The curves for each norm, on a grid from 0 to just past the largest radius of its runs."""
    curves = []
    for norm in NORMS:
        known = {number: run.radii_in(norm) for number, run in enumerate(runs) if run.summary.labelled}
        found = {number: radii for number, radii in known.items() if radii is not None}
        if not found:
            continue
        largest = max((r for radii in found.values() for r in radii if math.isfinite(r)), default=0.0)
        step = FIELD_STEP if largest >= LEAST_STEPS * FIELD_STEP or largest == 0 else _nice_step(largest / 8)
        steps = math.floor(largest / step) + 1
        parts = math.ceil(POINTS / steps)
        grid = [part * step / parts for part in range(steps * parts + 1)]
        shares = {number: certified_accuracy(runs[number], grid, radii) for number, radii in found.items()}
        bands = {number: _bands(runs[number], of_run) for number, of_run in shares.items()}
        averages = {number: average_radius(runs[number], radii) for number, radii in found.items()}
        known_bands = {number: band for number, band in bands.items() if band}
        best = _best(runs, shares)
        curves.append(Curves(norm_name(norm), step, grid, shares, known_bands, best, averages))
    return curves


def _bands(run: Run, shares: Sequence[float]) -> list[tuple[float, float]]:
    """The interval of each share; nothing if all inputs are certified, or if a target did not look at some."""
    labelled, sample = run.summary.labelled, sample_of(run)
    if sample.exact or len(sample.records) < len(run.records):
        return []
    counts = [round(share * labelled) for share in shares]
    found = {count: sample.interval(count) for count in set(counts)}
    outward = {count: (math.floor(1e4 * at.low) / 1e4, math.ceil(1e4 * at.high) / 1e4) for count, at in found.items()}
    return [outward[count] for count in counts]


def _best(runs: Sequence[Run], shares: Mapping[int, list[float]]) -> list[Best]:
    return [
        Best([runs[number].name for number in group], np.max([shares[number] for number in group], axis=0).tolist())
        for group in sigma_groups(runs)
        if shares.keys() >= set(group)
    ]


def average_radius(run: Run, radii: Sequence[float]) -> float:
    """The average certified radius, if these are the radii of the run's records. Wrong answers count 0."""
    correct = (radius for radius, record in zip(radii, run.records, strict=True) if record.correct)
    return math.fsum(correct) / run.summary.labelled


def _nice_step(least: float) -> float:
    """The smallest of 1, 2, 2.5 or 5 times a power of ten that is at least this large."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(nice for nice in (*(factor * power for factor in NICE_STEPS), 10 * power) if nice >= least)


@dataclass(frozen=True)
class Histogram:
    """How many inputs of each run used how many draws. The bins are equally wide on a logarithmic axis."""

    edges: list[float]
    counts: list[list[int]]


BINS = 24


def draw_histogram(runs: Sequence[Run]) -> Histogram:
    """Histograms of all runs over the same bins, so that they can be compared. The last bin includes its upper edge."""
    draws = [np.log10([record.draws for record in run.records]) for run in runs]
    low, high = min(values.min() for values in draws), max(values.max() for values in draws)
    if high - low < 0.05:  # all inputs used about the same number of draws: leave room around the bar
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, BINS + 1)
    return Histogram((10**edges).tolist(), [np.histogram(values, edges)[0].tolist() for values in draws])
