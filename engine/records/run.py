"""A certification run: the inputs of a data source, certified by a smoothed classifier into a run store."""

import dataclasses
import os
import platform
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ars.data import Dataset
from ars.distribution import VERSION
from ars.engine.records.inputs import (
    Inputs,
    check_labelled,
    check_unchanged,
    content_sha256,
    doubts,
    find_shape,
    read_inputs,
    unit_of,
)
from ars.engine.records.record import Record
from ars.engine.records.settings import Environment, Origin, RunHeader, RunSettings, Sampling
from ars.engine.records.store import Store, read_records, stored_settings
from ars.engine.records.summary import Summary, count_certified, radii_of_run, summarize
from ars.engine.samplers.host import usable_instructions
from ars.engine.smoothed import Prepared, SmoothedClassifier
from ars.engine.statistics.plan import Plan
from ars.engine.statistics.target import Target, random_order
from ars.errors import DataError, DependentRows, StoreError

__all__ = ["RunProgress", "RunResult", "certify_run", "environment_of", "settings_of"]

# At the end of a run there is nothing left to fill the batches with.
_END_SECONDS = 2.0


class RunProgress:
    """What a run reports while it is in progress. This class ignores it all, except warnings; override what you want to
    know."""

    def warn(self, doubt: str) -> None:
        """Something about the data may be wrong."""
        warnings.warn(doubt, stacklevel=3)

    def start(self, store: Path, prepared: Prepared, plan: Plan, seed: int, done: int, left: int) -> None:
        """The store is open. Of the chosen inputs, `done` are certified in it already, and `left` are not."""

    def draws(self, number: int) -> None:
        """A batch of this many draws has been counted."""

    def certified(self, record: Record) -> None:
        """An input has been certified and committed to the store."""

    def skipped(self, error: DataError) -> None:
        """An input could not be read and is left out."""


@dataclass(frozen=True)
class RunResult:
    """A run that has ended."""

    store: Path
    summary: Summary
    """Of the chosen inputs, also those that were certified earlier."""
    batch: int
    fullness: float | None
    """How full the batches were, as a share of `batch`; None for a run of less than two seconds."""


def certify_run(
    classifier: SmoothedClassifier,
    data: Inputs | str | Path,
    plan: Plan | None = None,
    *,
    store: str | Path | None = None,
    skip_bad_inputs: bool = False,
    only_correct: bool = False,
    target: Target | None = None,
    progress: RunProgress | None = None,
) -> RunResult:
    """Certify the inputs of a data source into a run store, as `ars-engine certify` does.

    `data` is what `--data` takes, or Inputs, which can choose among them. `store` is by default named after model, data
    and noise, in the current folder. Each input is committed as soon as it is certified. If the store holds
    certificates of a run with the same settings, the run is resumed. An input that cannot be read raises DataError,
    after the inputs in progress have been certified; with `skip_bad_inputs` it is left out. With `only_correct`, an
    input ends after selection if the selected class is not its label, because it can no longer be certified correct.
    With a `target`, inputs are certified in random order until the target is reached. A model whose votes for a row
    depend on the rest of its batch raises DependentRows, and the certificates in the store are taken out of use.
    """
    inputs = data if isinstance(data, Inputs) else Inputs(str(data))
    plan, progress = plan or Plan(), progress or RunProgress()
    source, ids = inputs.open(classifier.channels)
    path = Path(store or _default_store(classifier, source))
    if not path.parent.is_dir():
        raise StoreError(path, "it cannot be written (there is no such folder)", "choose another store")
    classes = classifier.runner.classes
    for doubt in doubts(source, classes):
        progress.warn(doubt)
    shape = find_shape(source, ids, classes, skip_bad_inputs=skip_bad_inputs)
    if only_correct:
        check_labelled(source, ids, classes, skip_bad_inputs=skip_bad_inputs)
    # A resumed run keeps the settings that were chosen for it: the batch size and the random seed.
    stored = stored_settings(path)
    batch = classifier.batch or (stored.batch if stored else None)
    seed = classifier.seed if classifier.seed_given or stored is None else stored.seed
    prepared = classifier.prepare(shape, batch)
    fullness = _Fullness(prepared.batch)

    def on_draws(number: int) -> None:
        fullness.count(number)
        progress.draws(number)

    settings = settings_of(classifier, source, plan, prepared.batch, seed, only_correct=only_correct)
    sampling = Sampling(
        data_inputs=len(source),
        start=inputs.start,
        limit=inputs.limit,
        skip=inputs.skip,
        end=inputs.end,
        only=inputs.only,
        target_width=target and target.width,
        target_radii=target and ",".join(map(str, target.radii)),
    )
    with Store(path, _describe(classifier, inputs, source, settings, sampling, path)) as opened:
        done = opened.done()
        check_unchanged(source, {idx: done[idx] for idx in ids if idx in done}, path)
        left = [idx for idx in ids if idx not in done]
        progress.start(path, prepared, plan, seed, len(ids) - len(left), len(left))
        waiting: dict[int, tuple[int | None, str, str | None]] = {}
        labels: dict[int, int | None] | None = {} if only_correct else None

        def numbered(left: Sequence[int]) -> Iterator[tuple[int, NDArray[np.float32]]]:
            for one in read_inputs(source, left, classes, progress.skipped if skip_bad_inputs else None, shape):
                waiting[one.idx] = one.label, content_sha256(one.x), one.name
                if labels is not None:
                    labels[one.idx] = one.label
                yield one.idx, one.x

        def certify(ids: Sequence[int]) -> None:
            certified = classifier.certify_many(
                numbered(ids), plan, batch=batch, seed=seed, labels=labels, on_draws=on_draws
            )
            for one in certified:
                label, sha256, name = waiting.pop(one.input_id)
                record = Record(one.input_id, label, one.result, one.draws, one.seconds, sha256, name)
                opened.add(record)
                progress.certified(record)

        try:
            if target is None:
                certify(left)
            else:
                ids = _certify_until(target, random_order(ids, seed), certify, opened, sampling)
        except DependentRows:
            opened.refuse()
            raise
    chosen = set(ids)
    records = [record for record in read_records(path) if record.idx in chosen]
    summary = summarize(records, radii_of_run(plan, records) if target is None else target.radii)
    return RunResult(path, summary, prepared.batch, fullness.share())


def _certify_until(
    target: Target, order: Sequence[int], certify: Callable[[Sequence[int]], None], store: Store, sampling: Sampling
) -> list[int]:
    """Certify inputs in this order from look to look, until the target is reached; return those of the last look.

    A look waits for all of its inputs. Taking those that are certified first would favour inputs of few draws.
    """
    for number in target.looks(len(order)):
        chosen, done = set(order[:number]), store.done()
        certify([idx for idx in order[:number] if idx not in done])
        store.note_sampling(dataclasses.replace(sampling, looked=number))
        found = [record for record in read_records(store.path) if record.idx in chosen and record.label is not None]
        if not found:
            raise DataError(store.path, "none of its inputs has a label", "leave out --target-width")
        if target.reached(count_certified(found, target.radii), len(found), len(order)):
            break
    return list(order[:number])


def _default_store(classifier: SmoothedClassifier, data: Dataset) -> str:
    """The name of the store of a run: its model, its data, and its noise, so that runs with other noise are apart."""
    source = classifier.noise.source
    noise = f"noise-{source.file[:8]}" if source.file else f"{source.sigma:g}"
    family = classifier.family.name
    return f"{classifier.runner.path.name}.{data.name.replace(':', '-')}.{family}-{noise}.sqlite"


def settings_of(
    classifier: SmoothedClassifier, data: Dataset, plan: Plan, batch: int, seed: int, *, only_correct: bool
) -> RunSettings:
    """The settings of a run of this version."""
    return RunSettings(
        engine=classifier.runner.sha256,
        runner=classifier.runner.name,
        data=data.fingerprint(),
        family=classifier.family.name,
        kind=classifier.noise.kind,
        noise=classifier.noise.source,
        plan=plan,
        bounds=plan.bounds_version,
        seed=seed,
        batch=batch,
        noise_stream=classifier.noise_stream,
        lattice_step=classifier.lattice.step if classifier.lattice else None,
        only_correct=only_correct,
    )


def environment_of(classifier: SmoothedClassifier) -> Environment:
    """What runs the classifier here."""
    runner = classifier.runner
    entry = classifier.manifest.entry(runner.path.name) if classifier.manifest else None
    return Environment(
        ars=VERSION,
        runner=runner.name,
        runner_version=runner.version,
        precision=(entry and entry.precision) or runner.precision,
        device="; ".join(device.describe() for device in classifier.devices),
        instructions=usable_instructions()[0],
        python=platform.python_version(),
        machine=f"{platform.system()} {platform.machine()}",
    )


def _describe(
    classifier: SmoothedClassifier,
    inputs: Inputs,
    data: Dataset,
    settings: RunSettings,
    sampling: Sampling,
    store: Path,
) -> RunHeader:
    origin = Origin(
        data_name=data.name,
        data_source=inputs.data,
        engine_file=str(classifier.runner.path),
        noise_file=_text(classifier.noise_file),
        classes_file=_text(inputs.classes_file),
        resize=inputs.resize,
        crop=inputs.crop,
        folder=os.getcwd(),
        store_folder=str(store.parent.absolute()),
        unit=unit_of(data),
    )
    names = None if data.classes is None else tuple(data.classes)
    return RunHeader(settings, origin, environment_of(classifier), names, sampling)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


class _Fullness:
    """How full the batches of a run are, except for those of its last two seconds."""

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self._last: deque[tuple[float, int]] = deque()
        self._draws = self._batches = 0

    def count(self, draws: int) -> None:
        now = time.perf_counter()
        self._last.append((now, draws))
        while self._last[0][0] < now - _END_SECONDS:
            self._draws += self._last.popleft()[1]
            self._batches += 1

    def share(self) -> float | None:
        return self._draws / (self._batch * self._batches) if self._batches else None
