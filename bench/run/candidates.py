"""What takes turns in a benchmark: the field's PyTorch loop, and the engine with each backend on each file."""

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ars.bench.run.model import BenchModel, BenchModelFile
from ars.bench.run.result import LOOP
from ars.engine.backends import find_backends, manifest_of
from ars.engine.devices import CPU
from ars.engine.examples import FromData
from ars.engine.smoothed import SmoothedClassifier, load
from ars.engine.statistics.plan import Plan
from ars.errors import ArsError, RunError, one_line
from ars.noise import NoiseKind

if TYPE_CHECKING:
    from ars.train.smoothing import SmoothedModel

__all__ = ["COMPILED", "Candidate", "Work", "engine_candidates", "loop_candidates"]

COMPILED = "compiled"
OWN, BOTH = "own", "both"

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Work:
    """What every candidate has to do: the inputs, and how they are certified."""

    inputs: tuple[Array, ...]
    """Inputs from the data; or one of random pixels, if only the time of a draw is measured."""
    plan: Plan
    adaptive: Plan | None
    labels: dict[int, int | None] | None
    """The labels of the inputs by their numbers, if adaptive stopping is also measured with `--only-correct`."""
    sigma: float
    """The scale of the noise for a model that has no noise of its own."""
    noise: str
    """Which noise to measure with: the model's own, isotropic noise, or both."""
    batch: int | None
    threads: int
    device: str = CPU
    """The value of `--device`."""

    @property
    def draws_per_sample(self) -> int:
        return self.plan.n0 + self.plan.n


@dataclass(frozen=True)
class Candidate:
    """One way to certify, ready to be timed."""

    name: str
    backend: str
    precision: str
    stopping: str
    noise: str
    batch: int
    sha256: str
    draws: int
    """The draws in a turn."""
    inputs: int
    """The inputs that are certified in a turn."""
    draws_per_sample: float
    extrapolated: bool
    once: float
    """The seconds that the noise maps of an input take."""
    turn: Callable[[], object]


# A sample that takes no longer than WHOLE_SECONDS is measured whole. For a longer one, a turn has as many draws as take
# about TURN_SECONDS.
WHOLE_SECONDS, TURN_SECONDS = 2.0, 1.0

# The same for adaptive stopping, whose turns certify many inputs: if all of them take longer than this, a turn has the
# first of them, which take about half as long.
MOST_ADAPTIVE_SECONDS = 20.0


def _turn_draws(rate: float, sample: int, batch: int) -> int:
    """The draws of a turn: a whole sample, or a number of full batches."""
    if sample / rate <= WHOLE_SECONDS:
        return sample
    return min(sample, max(1, math.ceil(rate * TURN_SECONDS / batch)) * batch)


def _seconds(call: Callable[[], object], times: int = 1) -> float:
    """The seconds of the fastest of a few calls."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return min(found)


def engine_candidates(
    model: BenchModel, work: Work, backends: set[str], stack: ExitStack, leave_out: Callable[[str], None]
) -> Iterator[Candidate]:
    """The engine on each file of the model with each backend that reads it, with adaptive stopping too if asked."""
    for file in model.files:
        fitting = find_backends(file.path, work.device, manifest_of(file.path))
        for backend in (one.name for one in fitting if one.name in backends):
            for sigma in _sigmas(model, work):
                name = f"ars {backend} {file.precision}{_without(model, sigma)}"
                try:
                    classifier = stack.enter_context(_load(file, backend, sigma, work))
                    yield _fixed(name, classifier, file, backend, work)
                    if work.adaptive is not None:
                        yield _adaptive(f"{name} adaptive", classifier, file, backend, work, work.adaptive)
                    if work.adaptive is not None and work.labels is not None:
                        only = f"{name} adaptive, only correct"
                        yield _adaptive(only, classifier, file, backend, work, work.adaptive, work.labels)
                except ArsError as error:
                    leave_out(f"{name} is left out: {error}")


def _sigmas(model: BenchModel, work: Work) -> list[float | None]:
    """The scales of isotropic noise to measure with; None stands for the model's own noise."""
    if model.noise is None:
        return [work.sigma]
    if work.noise == OWN or model.noise == NoiseKind.ISOTROPIC:
        return [None]
    return [None, model.sigma0] if work.noise == BOTH else [model.sigma0]


def _without(model: BenchModel, sigma: float | None) -> str:
    """The end of a candidate's name, if its noise is not the model's own."""
    return "" if sigma is None or model.noise is None else ", no generator"


def _load(file: BenchModelFile, backend: str, sigma: float | None, work: Work) -> SmoothedClassifier:
    threads = work.threads if work.device == CPU else None
    return load(file.path, sigma=sigma, backend=backend, batch=work.batch, threads=threads, device=work.device)


def _fixed(name: str, classifier: SmoothedClassifier, file: BenchModelFile, backend: str, work: Work) -> Candidate:
    x, plan, sample = work.inputs[0], work.plan, work.draws_per_sample
    prepared = classifier.prepare(x.shape)
    batch = prepared.batch
    few = 4 * batch * classifier.threads
    rate = prepared.rate or few / _seconds(lambda: classifier.predict(x, n=few), 2)
    draws = _turn_draws(rate, sample, batch * classifier.threads)

    def whole() -> object:
        return classifier.certify(x, plan)

    def part() -> object:
        return classifier.predict(x, n=draws)

    return Candidate(
        name,
        backend,
        file.precision,
        "fixed",
        classifier.noise.kind.value,
        batch,
        file.sha256,
        draws,
        1,
        sample,
        draws < sample,
        _seconds(lambda: classifier.noise.at(0, x), 3),
        whole if draws == sample else part,
    )


def _adaptive(
    name: str,
    classifier: SmoothedClassifier,
    file: BenchModelFile,
    backend: str,
    work: Work,
    plan: Plan,
    labels: dict[int, int | None] | None = None,
) -> Candidate:
    """Certifies all inputs once, because what adaptive stopping saves depends on them; and in each turn, as many of
    them as the turn has time for."""

    def certify_first(number: int) -> list[int]:
        """The draws of each of the first inputs."""
        certified = classifier.certify_many(FromData(enumerate(work.inputs[:number])), plan, labels=labels)
        return [finished.draws for finished in sorted(certified, key=lambda finished: finished.input_id)]

    kind, batch = classifier.noise.kind.value, classifier.prepare(work.inputs[0].shape).batch
    start = time.perf_counter()
    draws = certify_first(len(work.inputs))
    number = _turn_inputs(draws, time.perf_counter() - start)
    return Candidate(
        name,
        backend,
        file.precision,
        "adaptive",
        kind,
        batch,
        file.sha256,
        sum(draws[:number]),
        number,
        sum(draws) / len(draws),
        number < len(draws),
        0.0,
        lambda: certify_first(number),
    )


def _turn_inputs(draws: Sequence[int], seconds: float) -> int:
    """How many inputs are certified in a turn, if all of them, with these numbers of draws, take so many seconds."""
    if seconds <= MOST_ADAPTIVE_SECONDS:
        return len(draws)
    enough = sum(draws) * MOST_ADAPTIVE_SECONDS / 2 / seconds
    return next(number for number, so_far in enumerate(itertools.accumulate(draws), 1) if so_far >= enough)


BATCHES = (64, 256, 1000)
"""The batch sizes that the PyTorch loop is tried with. It is timed with the fastest of them."""


def loop_candidates(
    model: BenchModel, work: Work, backends: set[str], leave_out: Callable[[str], None]
) -> Iterator[Candidate]:
    """The field's PyTorch loop on the model.pt, eager and compiled."""
    wanted = [backend for backend in (LOOP, COMPILED) if backend in backends]
    if model.trained is None:
        if wanted:
            leave_out("The PyTorch loop is left out: it needs the model.pt that ars-train wrote, beside the model")
        return
    for backend in wanted:
        for sigma in _sigmas(model, work):
            name = "PyTorch loop" + (", compiled" if backend == COMPILED else "") + _without(model, sigma)
            try:
                yield _loop(name, model.trained, backend, sigma, work)
            except ArsError as error:
                leave_out(f"{name} is left out: {error}")


def _loop(name: str, trained: Path, backend: str, sigma: float | None, work: Work) -> Candidate:
    from ars.data.pixels import file_sha256
    from ars.train.model_file import load_model

    settings, model, _ = load_model(trained)
    try:
        votes, maps = _prepare_loop(model, len(settings.classes), sigma, work, compiled=backend == COMPILED)

        def rate(batch: int) -> float:
            votes(batch, batch)  # the first call compiles the model for this size
            return 2 * batch / _seconds(lambda: votes(2 * batch, batch))

        rates = {batch: rate(batch) for batch in ((work.batch,) if work.batch else BATCHES)}
    except Exception as error:  # torch.compile needs a C++ compiler, and can fail in many ways
        raise RunError(one_line(error)) from error
    batch = max(rates, key=lambda batch: rates[batch])
    sample = work.draws_per_sample
    draws = _turn_draws(rates[batch], sample, batch)
    return Candidate(
        name,
        backend,
        "fp32",
        "fixed",
        settings.kind.value if sigma is None else NoiseKind.ISOTROPIC.value,
        batch,
        file_sha256(trained),
        draws,
        1,
        sample,
        draws < sample,
        _seconds(maps, 3),
        lambda: votes(draws, batch),
    )


def _prepare_loop(
    model: "SmoothedModel", classes: int, sigma: float | None, work: Work, *, compiled: bool
) -> tuple[Callable[[int, int], object], Callable[[], object]]:
    """Two functions: one makes n draws in batches of a given size, the other makes the noise maps of the input."""
    import torch

    from ars.bench.pytorch_path import sample_votes
    from ars.train.processes import fixed_threads

    x = torch.from_numpy(work.inputs[0]).to(work.device.partition(",")[0])  # the field's loop uses one GPU
    model = model.to(x.device)
    classifier = torch.compile(model.classifier, dynamic=False) if compiled else model.classifier

    def maps() -> tuple[torch.Tensor | float, torch.Tensor | float]:
        if sigma is not None:
            return 0.0, sigma
        with torch.no_grad():
            mean, scale = model.noise(x[None])
        return mean[0], scale[0]

    def votes(n: int, batch: int) -> object:
        with fixed_threads(work.threads):
            return sample_votes(classifier, classes, x, *maps(), n, batch)

    return votes, maps
