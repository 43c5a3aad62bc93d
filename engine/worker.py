"""A worker of a cluster: it opens the model that it is sent, checks that it is fit for work, and certifies inputs.

This module knows nothing of how workers are started or reached; engine/driver.py and engine/cluster.py do.
"""

import dataclasses
import functools
import importlib.metadata
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ars.data import Dataset
from ars.distribution import VERSION
from ars.engine.backends import manifest_of
from ars.engine.records.inputs import Input, Inputs, read_inputs
from ars.engine.records.record import Record
from ars.engine.records.work import Work, certify_inputs, environment_of
from ars.engine.selftest import run_checks
from ars.engine.smoothed import SmoothedClassifier, load
from ars.engine.statistics.plan import Plan
from ars.errors import ArgumentError, ArsError, DataError, ModelError
from ars.external_data import hash_model
from ars.manifest import manifest_path

__all__ = ["Opening", "Reply", "Task", "Worker", "make_task"]


@dataclass(frozen=True, kw_only=True)
class Task:
    """What every worker of a run is told once."""

    files: Mapping[str, bytes]
    """The model, with its external data, its manifest and its noise, by their places in the model's folder."""
    engine: Path
    """Where the driver has the model."""
    noise: str | None
    """The file of the noise among `files`, if the user named one."""
    options: Mapping[str, Any]
    """The other arguments of `ars.load`, as decided by the driver."""
    expected: Mapping[str, object]
    """What the worker must find too: hashes, versions and noise (`_identify`)."""
    shape: tuple[int, ...]
    batch: int
    plan: Plan
    seed: int
    only_correct: bool
    data: Inputs | None = None
    """If workers read the data themselves: which."""
    fingerprint: str | None = None
    """Of that data."""


@dataclass(frozen=True)
class Opening:
    """Whether a worker is fit for work."""

    refusal: str | None
    """Why it is not."""
    batch_seconds: float = 0.0
    """How long it took for the first batch, with all checks around it."""


@dataclass
class Reply:
    """What became of the inputs of a chunk."""

    records: list[Record] = field(default_factory=list)
    bad: dict[int, DataError] = field(default_factory=dict)
    """Inputs that could not be read."""
    error: ArsError | None = None
    """What ended the work on the chunk."""
    seconds: float = 0.0


def make_task(work: Work, *, device: str, threads: int | None, data_on_workers: bool) -> Task:
    """The task to do on other computers what the work says."""
    classifier, batch, seed = work.classifier, work.batch, work.seed
    runner, wanted = classifier.runner, classifier.wanted
    if not runner.path.is_file():
        requirement = "a model of this process cannot be sent to a cluster; give a file, which ars-export makes of it"
        raise ArgumentError("model", runner.path, requirement)
    files = _pack(runner.path)
    noise = None
    if wanted.noise is not None:
        noise = f"noise/{wanted.noise.name}"
        files |= {f"noise/{name}": content for name, content in _pack(wanted.noise, alone=True).items()}
    return Task(
        files=files,
        engine=runner.path,
        noise=noise,
        options={
            "sigma": wanted.sigma,
            "family": wanted.family,
            "batch": batch,
            "threads": threads,
            "seed": seed,
            "noise_stream": wanted.noise_stream,
            "lattice_step": classifier.lattice.step if classifier.lattice else None,
            "backend": runner.name,
            "device": device,
        },
        expected=_identify(classifier),
        shape=work.shape,
        batch=batch,
        plan=work.plan,
        seed=seed,
        only_correct=work.only_correct,
        data=_absolute(work.inputs) if data_on_workers else None,
        fingerprint=work.source.fingerprint() if data_on_workers else None,
    )


def _absolute(inputs: Inputs) -> Inputs:
    """The same inputs for a process with another working folder."""
    named = inputs.data.partition(":")[0] == "fashion-mnist"
    return dataclasses.replace(
        inputs,
        data=inputs.data if named else os.path.abspath(inputs.data),
        classes_file=None if inputs.classes_file is None else inputs.classes_file.absolute(),
    )


def _pack(path: Path, *, alone: bool = False) -> dict[str, bytes]:
    """A model file with the files that it needs: external data and, unless it is alone, its manifest and the noise
    generator that this names."""
    names = [path.name, *(external.path for external in hash_model(path).external)]
    manifest = None if alone else manifest_of(path)
    if manifest is not None:
        names += [beside.name for beside in (manifest_path(path),) if beside is not None]
        generator = manifest.file("noise", path.parent)
        if generator is not None:
            names += [generator.name, *(external.path for external in hash_model(generator).external)]
    return {name: (path.parent / name).read_bytes() for name in dict.fromkeys(names)}


def _identify(classifier: SmoothedClassifier) -> dict[str, object]:
    """Everything in which a worker must agree with the driver, by the name that a user reads."""
    runner = classifier.runner
    versions = {f"version of {name}": importlib.metadata.version(name) for name in ("numpy", "scipy")}
    return {
        "model (SHA-256)": runner.sha256,
        "backend": runner.name,
        f"version of {runner.name}": runner.version,
        "version of ars": VERSION,
        **versions,
        "family": classifier.family.name,
        "kind of noise": str(classifier.noise.kind),
        "noise": classifier.noise.source,
        "lattice step": classifier.lattice.step if classifier.lattice else None,
    }


class Worker:
    """Certifies what it is given. Its methods are called one at a time, except `draws`."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._draws = 0

    def open(self) -> Opening:
        """Open the model, and check this computer and what it has installed."""
        try:
            self._classifier = self._load()
            found = _identify(self._classifier)
            for name, expected in self._task.expected.items():
                if found.get(name) != expected:
                    return Opening(f"its {name} is {found.get(name)}, and the driver's is {expected}")
            runner = self._classifier.runner
            for check in run_checks(self._task.options["device"], runner.name):
                if not check.passed:
                    return Opening(f"it fails the self-test of {check.name} ({check.said})")
            self._data = self._open_data()
            start = time.perf_counter()
            prepared = self._classifier.prepare(self._task.shape, self._task.batch)
            if prepared.batch != self._task.batch:
                return Opening("; ".join(prepared.notes))
            self._environment = environment_of(self._classifier, prepared.batch)
            return Opening(None, time.perf_counter() - start)
        except ArsError as error:
            return Opening(str(error))

    def _load(self) -> SmoothedClassifier:
        """The classifier from the files that came with the task, which leave no trace here."""
        task = self._task
        with tempfile.TemporaryDirectory(prefix="ars-") as folder:
            for name, content in task.files.items():
                place = Path(folder, name)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)
            noise = None if task.noise is None else Path(folder, task.noise)
            try:
                classifier = load(Path(folder, task.engine.name), noise=noise, **task.options)
            except ArsError as error:
                problem = f"it cannot be opened ({str(error).replace(folder, 'its copy')})"
                raise ModelError(task.engine, problem, "look at this computer") from error
        for device in classifier.devices:
            device.runner.path = task.engine  # what errors and records name
        return classifier

    def _open_data(self) -> Dataset | None:
        if self._task.data is None:
            return None
        data, _ = self._task.data.open(self._classifier.channels)
        if data.fingerprint() != self._task.fingerprint:
            raise DataError(data.name, "it is other data than the driver has", "leave out --data-on-workers")
        return data

    def certify(self, inputs: Sequence[Input | int]) -> Reply:
        """Certify inputs: these, or those with these numbers of the data."""
        reply, start, task = Reply(), time.perf_counter(), self._task
        try:
            made = certify_inputs(
                self._classifier,
                self._read(inputs, reply.bad.__setitem__),
                task.plan,
                made_by=self._environment,
                batch=task.batch,
                seed=task.seed,
                only_correct=task.only_correct,
                on_draws=self._count,
            )
            reply.records += made
        except ArsError as error:
            reply.error = error
        reply.seconds = time.perf_counter() - start
        return reply

    def _read(self, inputs: Sequence[Input | int], on_bad: Callable[[int, DataError], None]) -> Iterator[Input]:
        for one in inputs:
            if isinstance(one, Input):
                yield one
            else:
                assert self._data is not None
                classes, note = self._classifier.runner.classes, functools.partial(on_bad, one)
                yield from read_inputs(self._data, [one], classes, note, self._task.shape)

    def _count(self, draws: int) -> None:
        self._draws += draws

    def draws(self) -> int:
        """The draws so far. It may be called while inputs are being certified, and is a sign of life."""
        return self._draws
