"""A certification run: the inputs of a data source through a smoothed classifier into a store."""

import hashlib
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ars.data import Dataset
from ars.distribution import VERSION
from ars.engine.records.store import Record, Store
from ars.engine.samplers.host import usable_instructions
from ars.engine.smoothed import SmoothedClassifier
from ars.engine.statistics.plan import Plan
from ars.errors import DataError, StoreError

__all__ = ["certify_run", "check_unchanged", "environment_of", "read_examples", "settings_of"]

NOISE_STREAM = 1


def settings_of(
    classifier: SmoothedClassifier, data: Dataset, plan: Plan
) -> dict[str, str | int | float | bool | None]:
    """Everything that decides the certificates."""
    return {
        "engine": classifier.runner.sha256,
        "runner": classifier.runner.name,
        "data": data.fingerprint(),
        "family": classifier.family.name,
        "kind": classifier.noise.kind.value,
        **classifier.noise.settings,
        **plan.settings,
        "seed": classifier.seed,
        "batch": classifier.batch,
        "noise_stream": NOISE_STREAM,
    }


def environment_of(classifier: SmoothedClassifier, data: Dataset) -> dict[str, str | int | float | bool | None]:
    """What the run happened on: for the record, and free to change between a run and its resume."""
    entry = classifier.manifest.entry(classifier.runner.path.name) if classifier.manifest else None
    return {
        "data_name": data.name,
        "ars": VERSION,
        classifier.runner.name: classifier.runner.version,
        "precision": (entry and entry.precision) or classifier.runner.precision,
        "device": "; ".join(device.describe() for device in classifier.devices),
        "instructions": usable_instructions()[0],
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
    }


def read_examples(
    data: Dataset,
    ids: Sequence[int],
    classes: int,
    on_bad_input: Callable[[DataError], None] | None,
    shape: tuple[int, ...] | None = None,
) -> Iterator[tuple[int, NDArray[np.float32], int | None]]:
    """The chosen inputs, all of one shape, with their labels.

    A bad one is passed to `on_bad_input` and left out, or ends the run.
    """
    for idx in ids:
        try:
            example = data[idx]
            shape = shape or example.x.shape
            if example.x.shape != shape:
                found = f"input {idx} has the shape {example.x.shape}, and an earlier one has {shape}"
                raise DataError(data.name, found, "use --resize and --crop")
            if example.label is not None and not 0 <= example.label < classes:
                found = f"input {idx} has the label {example.label}, and the model has {classes} classes"
                raise DataError(data.name, found, "use the data that the model was made for")
        except DataError as error:
            if on_bad_input is None:
                raise
            on_bad_input(error)
        else:
            yield idx, example.x, example.label


def content_sha256(x: NDArray[np.float32]) -> str:
    return hashlib.sha256(x.tobytes()).hexdigest()


def check_unchanged(data: Dataset, done: Mapping[int, str], store: Path) -> None:
    """Refuse to go on where an input that is certified already has another content by now."""
    for idx, sha256 in done.items():
        if content_sha256(data[idx].x) != sha256:
            changed = f"input {idx} of {data.name} is not what it was when it was certified"
            raise StoreError(store, changed, "choose another --out")


def certify_run(
    classifier: SmoothedClassifier,
    examples: Iterator[tuple[int, NDArray[np.float32], int | None]],
    plan: Plan,
    store: Store,
    on_draws: Callable[[int], None] = lambda draws: None,
) -> Iterator[Record]:
    """Certify the examples; each record has been committed to the store when it is yielded."""
    labels: dict[int, tuple[int | None, str]] = {}

    def numbered() -> Iterator[tuple[int, NDArray[np.float32]]]:
        for idx, x, label in examples:
            labels[idx] = (label, content_sha256(x))
            yield idx, x

    for one in classifier.certify_many(numbered(), plan, on_draws):
        label, sha256 = labels.pop(one.input_id)
        record = Record(one.input_id, label, one.result, one.draws, one.seconds, sha256)
        store.add(record)
        yield record
