"""A benchmark from start to end: opens the model, prepares the candidates, and lets them take turns."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ars.bench.run.candidates import COMPILED, Candidate, Work, engine_candidates, loop_candidates
from ars.bench.run.environment import describe_machine
from ars.bench.run.model import BenchModel, open_bench_model
from ars.bench.run.result import LOOP, BenchResult, Measurement
from ars.bench.timing import interleave
from ars.data import Example, ImageSize, image_channels, open_data
from ars.engine.backends import list_backends
from ars.engine.devices import choose_devices, open_devices
from ars.engine.noise_maps import Isotropic
from ars.engine.statistics.plan import Plan
from ars.engine.statistics.stopping import Grid, usual_radii
from ars.errors import ArgumentError, ModelError, RunError, UnknownName
from ars.manifest import PRECISIONS
from ars.noise import family_named

__all__ = ["Wanted", "measure"]


@dataclass(frozen=True)
class Wanted:
    """The backends and precisions to measure; an empty tuple means all."""

    backends: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        known = [LOOP, COMPILED, *(backend.name for backend in list_backends())]
        for what, given, names in (("backend", self.backends, known), ("precision", self.precisions, PRECISIONS)):
            for name in given:
                if name not in names:
                    raise UnknownName(what, name, names)

    @property
    def backend_names(self) -> set[str]:
        """By default all except torch, which is there to check the other backends, not to be fast."""
        return set(self.backends) or {LOOP, COMPILED, *(backend.name for backend in list_backends())} - {"torch"}

    def files_of(self, model: BenchModel, engine: str) -> BenchModel:
        """The model with only the files of these precisions. `engine` is the name that the user gave."""
        known = {file.precision for file in model.files} | ({"fp32"} if model.trained else set())
        for precision in self.precisions:
            if precision not in known:
                fix = f"choose from {', '.join(sorted(known))}, or export it in {precision}"
                raise ModelError(engine, f"it has no file of --precision {precision}", fix)
        chosen = tuple(file for file in model.files if not self.precisions or file.precision in self.precisions)
        return replace(model, files=chosen)


def measure(
    engine: str,
    wanted: Wanted,
    folder: Path,
    *,
    data: str | None,
    inputs: int,
    only_correct: bool,
    plan: Plan,
    rounds: int,
    sigma: float,
    noise: str,
    batch: int | None,
    threads: int,
    device: str,
) -> BenchResult:
    """Time all candidates. Files that have to be made first go to `folder`."""
    # An error here ends the benchmark, instead of leaving out each candidate for the same reason.
    Isotropic(sigma)
    choose_devices(device, Path(engine))
    model = wanted.files_of(open_bench_model(engine, folder, device), engine)
    left_out: list[str] = []
    with ExitStack() as stack:
        usual = usual_radii(family_named(model.family), model.sigma0 or sigma)
        adaptive = None if data is None else replace(plan, question=Grid(usual))
        examples = _examples(model, data, inputs)
        labels = _labels(examples) if only_correct else None
        pixels = tuple(example.x for example in examples)
        work = Work(pixels, plan, adaptive, labels, sigma, noise, batch, threads, device)
        backends = wanted.backend_names
        candidates = [
            *loop_candidates(model, work, backends, left_out.append),
            *engine_candidates(model, work, backends, stack, left_out.append),
        ]
        if not candidates:
            reasons = f" ({'; '.join(left_out)})" if left_out else ""
            raise RunError(f"nothing of {engine} can be measured here{reasons}")
        timings = interleave({candidate.name: candidate.turn for candidate in candidates}, rounds)
    machine = describe_machine() | {"device": device}
    measurements = tuple(_measured(one, timings.seconds[one.name], work) for one in candidates)
    return BenchResult(model.name, plan.n0, plan.n, rounds, measurements, tuple(left_out), machine)


def _labels(examples: Sequence[Example]) -> dict[int, int | None]:
    """The labels of the inputs, of which at least one must have one."""
    if all(example.label is None for example in examples):
        raise ArgumentError("only_correct", True, "give --data with labels")
    return {number: example.label for number, example in enumerate(examples)}


def _examples(model: BenchModel, data: str | None, number: int) -> tuple[Example, ...]:
    """So many inputs, spread evenly over the data, with the model's number of channels; or one of random pixels."""
    path = model.files[0].path if model.files else model.trained
    if path is None:
        raise ModelError(model.name, "it has no file that can be measured", "export it again")
    (opened,) = open_devices(choose_devices(None, path), path, "auto", None)
    shape = opened.runner.shape
    opened.close()
    if data is None:
        x = np.random.default_rng(0).random(tuple(side or 1 for side in shape), dtype=np.float32)
        return (Example(x, None),)
    source = open_data(data, ImageSize(channels=image_channels(shape)))
    number = min(number, len(source))
    return tuple(source[rank * len(source) // number] for rank in range(number))


def _measured(candidate: Candidate, seconds: list[float], work: Work) -> Measurement:
    return Measurement(
        name=candidate.name,
        backend=candidate.backend,
        precision=candidate.precision,
        stopping=candidate.stopping,
        noise=candidate.noise,
        batch=candidate.batch,
        threads=work.threads,
        sha256=candidate.sha256,
        extrapolated=candidate.extrapolated,
        draws=candidate.draws,
        inputs=candidate.inputs,
        draws_per_sample=candidate.draws_per_sample,
        once=candidate.once,
        seconds=tuple(seconds),
    )
