"""A certification run: the inputs of a data source, certified by a smoothed classifier into a run store."""

import dataclasses
import os
import secrets
import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ars.data import Dataset
from ars.engine.records.inputs import (
    Inputs,
    check_labelled,
    check_unchanged,
    doubts,
    find_shape,
    unit_of,
)
from ars.engine.records.record import Record
from ars.engine.records.settings import Origin, RunHeader, RunSettings, Sampling, differences
from ars.engine.records.store import Store, find_begun, read_records
from ars.engine.records.summary import Summary, count_certified, radii_of_run, summarize
from ars.engine.records.work import Work, Workforce, certify_inputs, environment_of
from ars.engine.smoothed import Prepared, SmoothedClassifier
from ars.engine.statistics.plan import Plan, check_plan
from ars.engine.statistics.target import Target, random_order
from ars.errors import ArgumentError, ArsError, DataError, DependentRows, RunError, StoreError

__all__ = ["RunProgress", "RunResult", "certify_run", "settings_of"]

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

    def skipped(self, error: ArsError) -> None:
        """An input could not be read, or workers died of it, and it is left out."""

    def workers(self, ready: int, starting: int) -> None:
        """So many workers of a cluster are at work, and so many are to come."""


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
    cluster: Workforce | None = None,
    progress: RunProgress | None = None,
) -> RunResult:
    """Certify the inputs of a data source into a run store, as `ars-engine certify` does.

    `data` is what `--data` takes, or Inputs, which can choose among them. `store` is by default named after model, data
    and noise, in the current folder. Each input is committed as soon as it is certified. If the store holds
    certificates of a run with the same settings, the run is resumed. An input that cannot be read raises DataError,
    after the inputs in progress have been certified; with `skip_bad_inputs` it is left out. With `only_correct`, an
    input ends after selection if the selected class is not its label, because it can no longer be certified correct.
    With a `target`, inputs are certified in random order until the target is reached. With a `cluster`, an open
    `ars.Cluster`, its workers certify them. A model whose votes for a row depend on the rest of its batch raises
    DependentRows, and the certificates in the store are taken out of use.
    """
    inputs = data if isinstance(data, Inputs) else Inputs(_path_of(data))
    plan, progress = Plan() if plan is None else check_plan(plan), progress or RunProgress()
    source, ids = inputs.open(classifier.channels)
    path = Path(store or _default_store(classifier, source, inputs.shard))
    if not path.parent.is_dir():
        raise StoreError(path, "it cannot be written (there is no such folder)", "choose another store")
    classes = classifier.runner.classes
    for doubt in doubts(source, classes):
        progress.warn(doubt)
    shape = find_shape(source, ids, classes, skip_bad_inputs=skip_bad_inputs)
    if only_correct:
        check_labelled(source, ids, classes, skip_bad_inputs=skip_bad_inputs)
    # A resumed run keeps the settings that were chosen for it: the batch size and the random seed. So does one that was
    # stopped before its first certificate: whether an input ends before the stop may depend on its noise, and another
    # seed at each start would choose among noises.
    begun = find_begun(path)
    stored = None if begun is None else begun.settings
    if begun is not None and not begun.certified:
        had = begun.settings
        wanted = settings_of(classifier, source, plan, had.batch, had.seed, only_correct=only_correct)
        stored = None if differences(had, wanted) else had
    if inputs.shard is not None:
        _check_shard(inputs.shard, target, seed_known=classifier.seed_given or stored is not None)
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
        **inputs.choice,
        target_width=None if target is None else target.width,
        target_radii=None if target is None else ",".join(map(str, target.radii)),
    )
    header = _describe(classifier, inputs, source, settings, sampling, path)
    with Store(path, header) as opened:
        if opened.note is not None:
            progress.warn(opened.note)
        done = opened.done()
        check_unchanged(source, {idx: done[idx] for idx in ids if idx in done}, path)
        left = [idx for idx in ids if idx not in done]
        progress.start(path, prepared, plan, seed, len(ids) - len(left), len(left))
        skipped: dict[str, DataError] = {}

        def skip(error: DataError) -> None:
            if str(error) not in skipped:  # another worker may have been given the same input
                skipped[str(error)] = error
                progress.skipped(error)

        work = Work(
            classifier=classifier,
            inputs=inputs,
            source=source,
            shape=shape,
            batch=prepared.batch,
            plan=plan,
            seed=seed,
            only_correct=only_correct,
            on_bad_input=skip if skip_bad_inputs else None,
        )
        given_up: dict[int, str] = {}

        def certify(ids: Sequence[int]) -> None:
            if cluster is None:
                certified = certify_inputs(
                    classifier,
                    work.read(ids),
                    plan,
                    made_by=header.environment,
                    batch=batch,
                    seed=seed,
                    only_correct=only_correct,
                    on_draws=on_draws,
                )
            else:
                certified = cluster.certify(work, ids, progress, given_up.__setitem__)
            with closing(certified):  # so that workers are dismissed at once, whatever happens here
                for record in certified:
                    opened.add(record)
                    progress.certified(record)
            if given_up:
                noted = dataclasses.replace(sampling, given_up=",".join(map(str, sorted(given_up))))
                opened.note_sampling(noted)
                _report_given_up(given_up, progress if skip_bad_inputs else None)

        try:
            if target is None:
                certify(left)
                if lost := len(set(left) - opened.done().keys() - given_up.keys()) - len(skipped):
                    problem = f"{lost} inputs were left out without an error"
                    raise RunError(f"{path}: {problem}; this is a bug in ARS, please report it")
            else:
                ids = _certify_until(target, random_order(ids, seed), certify, opened, sampling)
        except DependentRows:
            opened.refuse()
            raise
        chosen = set(ids)
        records = [record for record in read_records(path) if record.idx in chosen]
    summary = summarize(records, radii_of_run(plan, records) if target is None else target.radii)
    return RunResult(path, summary, prepared.batch, fullness.share())


def _report_given_up(given_up: Mapping[int, str], progress: RunProgress | None) -> None:
    errors = [RunError(f"input {idx}: three workers died of it ({reason})") for idx, reason in given_up.items()]
    if progress is None:
        raise RunError(f"{errors[0]}; all other inputs are certified; leave out {len(errors)} with --on-error skip")
    for error in errors:
        progress.skipped(error)


def _check_shard(shard: str, target: Target | None, *, seed_known: bool) -> None:
    if target is not None:
        raise ArgumentError("shard", shard, "with --target-width, the inputs seen so far decide how many are needed")
    if not seed_known:
        fix = "all shards of a run need the same random seed; give each the same --seed"
        raise ArgumentError("shard", shard, f"{fix}, such as {secrets.randbits(64)}")


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


def _default_store(classifier: SmoothedClassifier, data: Dataset, shard: str | None) -> str:
    """The name of the store of a run: its model, its data, and its noise, so that runs with other noise are apart."""
    source = classifier.noise.source
    noise = f"noise-{source.file[:8]}" if source.file else f"{source.sigma:g}"
    family = classifier.family.name
    name = data.name.replace(":", "-").replace("/", "-")
    part = "" if shard is None else f".shard-{shard.replace('/', '-of-')}"
    return f"{classifier.runner.path.name}.{name}.{family}-{noise}{part}.sqlite"


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
    return RunHeader(settings, origin, environment_of(classifier, settings.batch), names, sampling)


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


def _path_of(data: object) -> str:
    if not isinstance(data, str | os.PathLike):
        requirement = "give the path of the data, or ars.Inputs; certify_many takes inputs in memory"
        raise ArgumentError("data", type(data).__name__, requirement)
    return str(data)
