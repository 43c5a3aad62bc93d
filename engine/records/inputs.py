"""The inputs of a run: which examples of which data, read one by one and checked."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ars.data import PIXELS, Dataset, ImageSize, open_data, select
from ars.engine.records.settings import CHOICE
from ars.errors import DataError, StoreError

__all__ = [
    "Input",
    "Inputs",
    "check_labelled",
    "check_unchanged",
    "content_sha256",
    "doubts",
    "find_shape",
    "read_inputs",
    "unit_of",
]


@dataclass(frozen=True)
class Inputs:
    """Which inputs to take: the data as `ars.data.open_data` names it, how its images are read, and which of its
    examples: those of `only` (like "3,17,200-300,0-9999/20"), every `skip`-th, before number `end`, without the first
    `start` of these, and at most `limit`. The `shard` "3/20" has a 20th of these."""

    data: str
    resize: int | None = None
    crop: int | None = None
    classes_file: Path | None = None
    start: int = 0
    limit: int | None = None
    skip: int = 1
    end: int | None = None
    only: str | None = None
    shard: str | None = None

    def open(self, channels: int | None) -> tuple[Dataset, list[int]]:
        """The data, with images of this number of channels, and the numbers of the chosen inputs."""
        data = open_data(self.data, ImageSize(self.resize, self.crop, channels), self.classes_file)
        return data, select(len(data), **self.choice)

    @property
    def choice(self) -> dict[str, Any]:
        """The arguments of `ars.data.select`: which examples are taken."""
        return {name: getattr(self, name) for name in CHOICE}


def unit_of(data: Dataset) -> str:
    """The unit of sigma and of every radius: that of the inputs' values."""
    low, high = data.span
    if PIXELS[0] <= low <= high <= PIXELS[1]:
        return "pixels, from 0 to 1"
    return f"data values, from {low:.4g} to {high:.4g}"


def doubts(data: Dataset, classes: int | None) -> list[str]:
    """What may be wrong with this data for a model of so many classes (None if the classes are known to fit), each a
    sentence for the user."""
    found = []
    low, high = data.span
    if not PIXELS[0] <= low <= high <= PIXELS[1]:
        found.append(
            f"{data.name} has values from {low:.4g} to {high:.4g}: sigma and every radius are in these units, and not "
            "in those of pixels from 0 to 1; if these are normalised images, certify the pixels instead, and put the "
            "normalisation into the model with ars-export --pixel-mean and --pixel-deviation (docs/units.md)"
        )
    if data.classes is not None and classes is not None and len(data.classes) != classes:
        found.append(
            f"{data.name} has {len(data.classes)} classes, and the model has {classes}: the labels are the numbers of "
            f"the data's own classes, from {data.classes[0]} (0) to {data.classes[-1]} ({len(data.classes) - 1}); if "
            "the model numbers them otherwise, list its classes in a file for --classes (docs/data.md)"
        )
    return found


class Input(NamedTuple):
    """One numbered example, with its class if that is known."""

    idx: int
    x: NDArray[np.float32]
    label: int | None
    name: str | None = None
    """Its file, relative to the data, if it has one of its own."""


def read_inputs(
    data: Dataset,
    ids: Sequence[int],
    classes: int,
    on_bad_input: Callable[[DataError], None] | None,
    shape: tuple[int, ...] | None = None,
) -> Iterator[Input]:
    """The chosen inputs, all of one shape: by default that of the first.

    A bad input is passed to `on_bad_input` and left out; without that function it raises.
    """
    for idx in ids:
        try:
            example = data[idx]
            shape = shape or example.x.shape
            if example.x.shape != shape:
                found = f"input {idx} has the shape {example.x.shape}, and an earlier one has {shape}"
                fix = "bring them to one size (--resize and --crop, or resize and crop of ars.Inputs)"
                raise DataError(data.name, found, fix)
            if example.label is not None and not 0 <= example.label < classes:
                found = f"input {idx} has the label {example.label}, and the model has {classes} classes"
                raise DataError(data.name, found, "use the data that the model was made for")
        except DataError as error:
            if on_bad_input is None:
                raise
            on_bad_input(error)
        else:
            yield Input(idx, example.x, example.label, example.name)


def find_shape(data: Dataset, ids: Sequence[int], classes: int, *, skip_bad_inputs: bool) -> tuple[int, ...]:
    """The shape of the chosen inputs: that of the first one that can be read."""
    for one in read_inputs(data, ids, classes, (lambda error: None) if skip_bad_inputs else None):
        return one.x.shape
    raise DataError(data.name, "none of the chosen inputs can be read", "choose others")


def check_labelled(data: Dataset, ids: Sequence[int], classes: int, *, skip_bad_inputs: bool) -> None:
    """Refuse inputs of which none has a label."""
    chosen = read_inputs(data, ids, classes, (lambda error: None) if skip_bad_inputs else None)
    if all(one.label is None for one in chosen):
        raise DataError(data.name, "none of the chosen inputs has a label", "leave out --only-correct")


def content_sha256(x: NDArray[np.float32]) -> str:
    """The hash of an input's values."""
    return hashlib.sha256(x.tobytes()).hexdigest()


def check_unchanged(data: Dataset, done: Mapping[int, str], store: Path) -> None:
    """Refuse to resume a run if an input that is certified already has other values by now. `done` has the hashes."""
    for idx, sha256 in done.items():
        if content_sha256(data[idx].x) != sha256:
            changed = f"input {idx} of {data.name} is not what it was when it was certified"
            raise StoreError(store, changed, "choose another store")
