"""The runs of a report, read from their stores, and their curves and histograms as plain numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ars.engine.records.record import Record
from ars.engine.records.settings import RunHeader
from ars.engine.records.store import read_header, read_records
from ars.engine.records.summary import Summary, summarize
from ars.errors import StoreError
from ars.noise import Scope

__all__ = ["Curves", "Histogram", "Run", "accuracy_curves", "certified_accuracy", "draw_histogram", "read_runs"]


@dataclass(frozen=True)
class Run:
    """A run store with what is computed from all of its certificates."""

    name: str
    path: Path
    header: RunHeader
    records: tuple[Record, ...]
    summary: Summary

    @property
    def norm(self) -> str:
        """The norm of its radii. Radii of different norms are never drawn in the same chart."""
        return f"l{self.records[0].certificate.norm:g}"

    @property
    def scope(self) -> Scope:
        return self.records[0].certificate.scope

    @property
    def average_volume_radius(self) -> float:
        """Like the average certified radius, but with the radius of the ball that has the volume of the region."""
        labelled = [record for record in self.records if record.label is not None]
        return sum(record.certificate.volume_radius for record in labelled if record.correct) / max(1, len(labelled))

    @property
    def seconds_deviation(self) -> float:
        return float(np.std([record.seconds for record in self.records]))

    def class_name(self, number: int) -> str:
        names = self.header.classes
        return names[number] if names and 0 <= number < len(names) else f"class {number}"


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """The runs, named after their files; runs whose files have the same name are named by their whole paths."""
    stems = [path.stem for path in paths]
    runs = []
    for path, stem in zip(paths, stems, strict=True):
        records = tuple(read_records(path))
        if not records:
            raise StoreError(path, "it has no certificates yet", "run the same `ars-engine certify` again")
        name = stem if stems.count(stem) == 1 else str(path.with_suffix(""))
        runs.append(Run(name, path, read_header(path), records, summarize(records)))
    return runs


def certified_accuracy(run: Run, radii: Sequence[float]) -> list[float]:
    """At each radius, the share of labelled inputs that are certified for the right class within it."""
    found = np.sort([record.certificate.radius for record in run.records if record.correct])
    below = np.searchsorted(found, radii, side="left")
    return ((len(found) - below) / run.summary.labelled).tolist()  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Curves:
    """Certified accuracy by radius, of the runs of one norm that have labels."""

    norm: str
    radii: list[float]
    shares: dict[int, list[float]]
    """By the number of the run."""


STEPS = 240
FIELD_STEP = 0.25


def accuracy_curves(runs: Sequence[Run]) -> list[Curves]:
    """The curves for each norm, on a grid from 0 to just past the largest radius of its runs."""
    curves = []
    for norm in sorted({run.norm for run in runs}, reverse=True):
        of_norm = [number for number, run in enumerate(runs) if run.norm == norm and run.summary.labelled]
        if not of_norm:
            continue
        largest = max(record.certificate.radius for number in of_norm for record in runs[number].records)
        end = FIELD_STEP * max(1, math.floor(largest / FIELD_STEP) + 1)
        radii = np.linspace(0, end, STEPS + 1).tolist()
        curves.append(Curves(norm, radii, {number: certified_accuracy(runs[number], radii) for number in of_norm}))
    return curves


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
