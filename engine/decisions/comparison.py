"""Two runs compared on the inputs that both certified: is the second better, worse, or not distinguishable?

The comparison is paired. At each radius, an input counts as gained if only the second run certifies it for its label,
and as lost if only the first does. Whether gains and losses are equally likely is McNemar's question. The p-values of
several radii are adjusted by Holm's method, so the verdict is wrong with a probability of at most 1 - LEVEL.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ars.engine.decisions.overview import find_caveats
from ars.engine.decisions.show import percent, show_difference
from ars.engine.records.record import Record
from ars.engine.records.settings import Difference, differences
from ars.engine.records.stored_run import Run
from ars.engine.statistics.accuracy import LEVEL, Interval, difference_interval, mcnemar
from ars.engine.statistics.certificate import name_radius
from ars.errors import StoreError
from ars.noise import Scope

__all__ = ["Comparison", "Pairs", "compare_runs"]


@dataclass(frozen=True)
class Pairs:
    """The common inputs at one radius."""

    radius: float
    first: float
    second: float
    """Certified accuracy of both runs, on the common inputs."""
    gained: int
    lost: int
    difference: Interval
    p: float
    adjusted_p: float

    @property
    def cells(self) -> list[str]:
        """A row of a table: radius, both accuracies, their difference and its interval, gained, lost, p."""
        return [
            name_radius(self.radius),
            percent(self.first),
            percent(self.second),
            f"{100 * (self.second - self.first):+.1f}",
            show_difference(self.difference),
            f"{self.gained:,}",
            f"{self.lost:,}",
            f"{self.adjusted_p:.2g}",
        ]

    @property
    def verdict(self) -> str:
        if self.adjusted_p > 1 - LEVEL:
            return "not distinguishable"
        return "better" if self.gained > self.lost else "worse"


@dataclass(frozen=True)
class Comparison:
    first: str
    second: str
    inputs: int
    """Labelled inputs that both have."""
    only_first: int
    only_second: int
    pairs: tuple[Pairs, ...]
    changed: tuple[int, ...]
    """The inputs with another answer in the second run, abstentions included."""
    settings: tuple[Difference, ...]
    """The settings that differ."""
    scopes: tuple[Scope, Scope]
    notes: tuple[str, ...]
    """What a reader of the numbers has to know, each with the name of the run."""

    @property
    def setting_lines(self) -> list[str]:
        """The settings that differ, in words; of a hash only its first digits."""
        return [f"{name}: {_shorten(one)}, then {_shorten(other)}" for name, one, other in self.settings]

    @property
    def verdict(self) -> str:
        """The answer in one sentence, and one more if the two do not mean the same."""
        return self._answer if len(set(self.scopes)) == 1 else f"{self._answer} {self._caution}"

    @property
    def _caution(self) -> str:
        one, other = self.scopes
        what = f"the scope of {self.first} is {one}, and that of {self.second} {other}"
        return f"But {what}: a frozen certificate says nothing about the classifier that is deployed."

    @property
    def _answer(self) -> str:
        radii = {
            kind: [name_radius(pair.radius) for pair in self.pairs if pair.verdict == kind]
            for kind in ("better", "worse")
        }
        parts = [f"{kind} than {self.first} at radius {_list(found)}" for kind, found in radii.items() if found]
        if parts:
            return f"{self.second} is {' and '.join(parts)}."
        return f"{self.second} is not distinguishable from {self.first} on these {self.inputs:,} inputs."


def _shorten(value: object) -> str:
    text = "none" if value is None else str(value)
    return f"{text[:12]}..." if re.fullmatch("[0-9a-f]{64,}", text) else text


def _list(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def compare_runs(first: Run, second: Run, radii: Sequence[float]) -> Comparison:
    """Compare two runs at these radii. Runs over other data or labels, or in other norms, are refused."""
    _check_alike(first, second)
    one, other = ({record.idx: record for record in run.records} for run in (first, second))
    both = sorted(one.keys() & other.keys())
    if not both:
        raise StoreError(second.path, f"it has no input of {first.path}", "compare runs of the same inputs")
    _check_inputs(first, second, [(one[idx], other[idx]) for idx in both])
    labelled = [(one[idx], other[idx]) for idx in both if one[idx].label is not None]
    if not labelled:
        raise StoreError(second.path, "its inputs have no labels", "compare runs over data with labels")
    found = [_count(labelled, radius) for radius in radii]
    p = [mcnemar(gained, lost) for _, _, gained, lost in found]
    number = len(labelled)
    return Comparison(
        first=first.name,
        second=second.name,
        inputs=number,
        only_first=len(one) - len(both),
        only_second=len(other) - len(both),
        pairs=tuple(
            Pairs(
                radius, in_first / number, in_second / number, gained, lost,
                difference_interval(gained, lost, number), raw, adjusted,
            )
            for radius, (in_first, in_second, gained, lost), raw, adjusted in zip(
                radii, found, p, adjust(p), strict=True
            )
        ),
        changed=tuple(
            idx for idx in both if one[idx].certificate.predicted != other[idx].certificate.predicted
        ),
        settings=tuple(differences(first.header.settings, second.header.settings)),
        scopes=(first.scope, second.scope),
        notes=tuple(f"{run.name}: {note}" for run in (first, second) for note in find_caveats(run, radii)),
    )  # fmt: skip


def adjust(p: Sequence[float]) -> list[float]:
    """The p-values adjusted by Holm's method: if all hypotheses are rejected whose adjusted value is at most alpha, a
    true one is among them with a probability of at most alpha."""
    adjusted, largest = [0.0] * len(p), 0.0
    for rank, place in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        largest = max(largest, min(1.0, (len(p) - rank) * p[place]))
        adjusted[place] = largest
    return adjusted


def _count(pairs: Sequence[tuple[Record, Record]], radius: float) -> tuple[int, int, int, int]:
    """How many inputs the first and the second run certify at a radius, and how many are gained and lost."""

    def certified(record: Record) -> bool:
        return record.correct is True and record.certificate.radius >= radius

    found = [(certified(one), certified(other)) for one, other in pairs]
    first, second = sum(one for one, _ in found), sum(other for _, other in found)
    gained = sum(other and not one for one, other in found)
    return first, second, gained, first - (second - gained)


def _check_alike(first: Run, second: Run) -> None:
    if first.norm != second.norm:
        problem = f"its radii are in {second.norm}, and those of {first.path} in {first.norm}"
        raise StoreError(second.path, problem, "compare runs of noise families with the same norm")
    one, other = first.header, second.header
    if one.settings.data != other.settings.data:
        problem = (
            f"its data is {other.origin.data_name or 'unknown'} (SHA-256 {other.settings.data[:12]}...), and that of "
            f"{first.path} is {one.origin.data_name or 'unknown'} ({one.settings.data[:12]}...)"
            f"{_other_labels(first, second)}"
        )
        raise StoreError(second.path, problem, "compare runs over the same data")


def _other_labels(first: Run, second: Run) -> str:
    """That two data sets differ only in the labels of the inputs that both runs have, if they do."""
    known = {record.idx: record for record in first.records}
    pairs = [(known[record.idx], record) for record in second.records if record.idx in known]
    differing = [(one, other) for one, other in pairs if one.label != other.label]
    if not differing or any(one.input_sha256 != other.input_sha256 for one, other in pairs):
        return ""
    one, other = differing[0]
    return (
        f": the same inputs, but {len(differing):,} of {len(pairs):,} have other labels (input {one.idx}: {one.label} "
        f"in {first.path}, {other.label} in {second.path})"
    )


def _check_inputs(first: Run, second: Run, pairs: Sequence[tuple[Record, Record]]) -> None:
    """Folders of images are compared by names and sizes alone; the inputs have hashes of their own."""
    for one, other in pairs:
        if one.input_sha256 != other.input_sha256:
            problem = f"its input {one.idx} has other values than in {first.path}"
            raise StoreError(second.path, problem, "compare runs over the same data, read in the same size")
        if one.label != other.label:
            problem = f"its input {one.idx} has the label {other.label}, and {one.label} in {first.path}"
            raise StoreError(second.path, problem, "compare runs over the same labels")
