"""A smoothed classifier: a model file, the noise that smooths it, and the lanes that run it."""

import dataclasses
import itertools
import math
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypedDict, TypeVar, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ars.checks import whole_number
from ars.data import image_channels
from ars.data.pixels import to_pixels
from ars.engine import algorithms, split
from ars.engine.algorithms import Prediction, Procedure
from ars.engine.backends import choose_backend, manifest_of
from ars.engine.devices import CPU, Device, choose_devices, open_devices
from ars.engine.lanes import Lanes
from ars.engine.lattice import UNKNOWN_STEP, Lattice, choose_step
from ars.engine.noise_maps import NoiseMaps, open_noise
from ars.engine.samplers import Sampler
from ars.engine.scheduler import Finished, Job
from ars.engine.statistics.certificate import Certificate
from ars.engine.statistics.plan import Plan
from ars.engine.statistics.stopping import Grid, Question, usual_radii
from ars.errors import ArgumentError, DataError, OutOfMemory
from ars.noise import family_named

__all__ = ["PREDICTION_N", "Prepared", "SmoothedClassifier", "load"]

Result = TypeVar("Result")

DEFAULT_PLAN = Plan()
PREDICTION_N = 1000
_SLOT_BYTES = 2**28
_BYTES_A_VALUE = 20
"""Of a slot, with noise stream 2."""
_FIRST_OWN_ID = 2**31
"""Inputs that the caller does not number are numbered from here on."""
_SEED = "it must fit 64 bits"


def load(
    engine: str | Path,
    *,
    sigma: float | None = None,
    noise: str | Path | None = None,
    family: str | None = None,
    batch: int | None = None,
    threads: int | None = None,
    seed: int | None = None,
    noise_stream: int = 2,
    lattice_step: float | None = None,
    backend: str = "auto",
    device: str | None = None,
) -> "SmoothedClassifier":
    """A smoothed classifier from a model file.

    Its noise is isotropic with `sigma`, or comes from `noise` (a generator .onnx, or maps in an .npz), or is what the
    manifest beside the model says. `batch` is the number of draws in a batch; by default the fastest is measured when
    the first input comes. `backend` names the library that runs the model; auto takes the fastest one installed that
    fits the file. `device` is cpu, or GPUs like cuda:0,cuda:1; by default TensorRT engines run on the first GPU, and
    everything else on the CPU.

    Draws come from noise stream 2, on a lattice whose step follows from the scale of the noise unless `lattice_step`
    gives it; noise stream 1 is for comparison with older runs. The seed is random by default. Model and inputs must not
    depend on it (docs/soundness.md); give one only to repeat a run.
    """
    return SmoothedClassifier(
        Path(engine),
        sigma=sigma,
        noise=None if noise is None else Path(noise),
        family=family,
        batch=batch,
        threads=threads,
        seed=seed,
        noise_stream=noise_stream,
        lattice_step=lattice_step,
        backend=backend,
        device=device,
    )


def _choose_lattice(noise_stream: int, step: float | None, noise: NoiseMaps) -> Lattice | None:
    if whole_number("noise_stream", noise_stream, 1, 2, "there are the noise streams 1 and 2") == 1:
        if step is not None:
            raise ArgumentError("lattice_step", step, "noise stream 1 has no lattice: leave it out")
        return None
    if step is None:
        argument = "scale" if noise.source.sigma is None else "sigma"
        step = UNKNOWN_STEP if noise.scale_hint is None else choose_step(noise.scale_hint, argument)
    return Lattice(step)


def _check_batch(batch: int | None) -> int | None:
    return None if batch is None else whole_number("batch", batch, 1, 2**24, "it must be at least 1")


class PlanChanges(TypedDict, total=False):
    """The fields of a Plan, as keywords."""

    n0: int
    n: int
    alpha: float
    two_sided: bool
    question: Question | None


@dataclass(frozen=True)
class Prepared:
    """What a classifier uses for inputs of one shape."""

    batch: int
    """The draws in a batch."""
    lanes: tuple[Lanes, ...]
    """The lanes of each device."""
    rate: float | None
    """The draws per second that were measured to choose the batch; None if it was not measured."""
    notes: tuple[str, ...]
    """What the user should know, each a sentence."""


class SmoothedClassifier:
    """A classifier that answers with the class that its model gives most often under noise. `ars.load` opens one."""

    def __init__(
        self,
        engine: Path,
        *,
        sigma: float | None,
        noise: Path | None,
        family: str | None,
        batch: int | None,
        threads: int | None,
        seed: int | None,
        noise_stream: int,
        lattice_step: float | None,
        backend: str,
        device: str | None,
    ) -> None:
        self.batch = _check_batch(batch)
        """The draws in a batch that were asked for. `prepare` returns the one that is used."""
        self.noise_file = noise
        lane_count = None if threads is None else whole_number("threads", threads, 1, 1024, "at least 1")
        self.seed_given = seed is not None
        self.seed = secrets.randbits(64) if seed is None else whole_number("seed", seed, 0, 2**64 - 1, _SEED)
        self._input_ids = itertools.count(_FIRST_OWN_ID)
        beside = manifest_of(engine)
        self.why: str | None = None
        """Why `auto` took this backend, as a note to the user."""
        names = choose_devices(device, engine, backend)
        if backend == "auto" and names == [CPU]:
            backend, self.why = choose_backend(engine, beside)
        self._prepared: dict[tuple[tuple[int, ...], int | None], Prepared] = {}
        self._preparing = threading.Lock()
        self.devices = open_devices(names, engine, backend, lane_count)
        try:
            self.runner = self.devices[0].runner
            self.manifest = beside or self.runner.own_manifest
            if self.manifest:
                self.manifest.check(engine, self.runner.sha256, self.runner.shape, self.runner.classes)
            self.noise = open_noise(self.manifest, self.runner, sigma, noise)
            stated = self.manifest.noise.family if self.manifest and sigma is None and noise is None else "gaussian"
            self.family = family_named(family or stated)
            self.lattice = _choose_lattice(noise_stream, lattice_step, self.noise)
        except BaseException:
            self.close()
            raise

    def certify(
        self, x: ArrayLike, plan: Plan = DEFAULT_PLAN, *, input_id: int | None = None, **changes: Unpack[PlanChanges]
    ) -> Certificate:
        """The certificate of one input: floats in pixel units, or integers in 0..255.

        The plan is given as such, or by its fields: `n0`, `n`, `alpha`, `two_sided` and `question`. With a question,
        like ars.Grid((0, 0.25, 0.5)), drawing ends as soon as it is settled. `input_id` and the seed decide the noise;
        by default every call has noise of its own.
        """
        (finished,) = self.certify_many([(self._own_id(input_id), x)], plan, **changes)
        return finished.result

    def certify_many(
        self,
        examples: Iterable[tuple[int, ArrayLike]],
        plan: Plan = DEFAULT_PLAN,
        *,
        batch: int | None = None,
        seed: int | None = None,
        labels: Mapping[int, int | None] | None = None,
        on_draws: Callable[[int], None] = lambda draws: None,
        **changes: Unpack[PlanChanges],
    ) -> Iterator[Finished[Certificate]]:
        """The certificates of numbered inputs, each as soon as it is known, and not always in the order of the inputs.

        The plan is given as for `certify`, and `batch` as for `prepare`. `seed` is by default the classifier's.
        `labels` has classes of inputs by their numbers: an input whose selection draws choose another class than its
        label ends there, and abstains. `on_draws` is told after each batch how many draws were counted.
        """
        plan = dataclasses.replace(plan, **changes)

        def procedure(input_id: int, scale: NDArray[np.float32], eta: float) -> Procedure[Certificate]:
            label = None if labels is None else labels.get(input_id)
            return algorithms.certify(scale, plan, self.family, self.noise.kind, eta, label)

        yield from self._run(examples, procedure, batch, seed, on_draws)

    def predict(
        self, x: ArrayLike, *, n: int = PREDICTION_N, alpha: float = DEFAULT_PLAN.alpha, input_id: int | None = None
    ) -> Prediction:
        """The smoothed classifier's answer at one input. By default every call has noise of its own."""
        (finished,) = self.predict_many([(self._own_id(input_id), x)], n=n, alpha=alpha)
        return finished.result

    def predict_many(
        self,
        examples: Iterable[tuple[int, ArrayLike]],
        *,
        n: int = PREDICTION_N,
        alpha: float = DEFAULT_PLAN.alpha,
    ) -> Iterator[Finished[Prediction]]:
        """The smoothed classifier's answers at numbered inputs, each as soon as it is known."""

        def procedure(input_id: int, scale: NDArray[np.float32], eta: float) -> Procedure[Prediction]:
            return algorithms.predict(n=n, alpha=alpha, eta=eta)

        yield from self._run(examples, procedure, None, None, lambda draws: None)

    def _own_id(self, input_id: int | None) -> int:
        return next(self._input_ids) if input_id is None else input_id

    def usual_question(self) -> Grid:
        """The question of adaptive stopping if nothing else is asked: which of the usual radii are certified?"""
        return Grid(usual_radii(self.family, self.noise.scale_hint))

    @property
    def noise_stream(self) -> int:
        return 2 if self.lattice else 1

    @property
    def threads(self) -> int:
        """The batches that are processed at the same time."""
        return sum(device.lane_count for device in self.devices)

    @property
    def channels(self) -> int | None:
        """The channels of the images that it takes; None if its inputs are not images."""
        return image_channels(self.runner.shape)

    def prepare(self, shape: tuple[int, ...], batch: int | None = None) -> Prepared:
        """Get ready for inputs of that shape, and decide the number of draws in a batch.

        It is `batch`, or else the one that the classifier was loaded with, or else the fastest here, which is measured.
        It is halved for as long as a GPU lacks the memory for it.
        """
        asked = _check_batch(batch) or self.batch
        with self._preparing:
            if (shape, asked) not in self._prepared:
                self.runner.check_shape(shape)
                chosen, rate = (asked, None) if asked else self._choose_batch(shape)
                prepared = self._make_lanes(shape, chosen, rate)
                try:
                    for lanes in prepared.lanes:
                        lanes.check_rows(shape)
                except BaseException:
                    _close(prepared.lanes)
                    raise
                self._prepared[shape, asked] = prepared
            return self._prepared[shape, asked]

    def _choose_batch(self, shape: tuple[int, ...]) -> tuple[int, float | None]:
        """The batch size that suits every device, and the draws per second that were measured with it, if any were."""
        return min((device.choose_batch(shape) for device in self.devices), key=lambda choice: choice[0])

    def _make_lanes(self, shape: tuple[int, ...], batch: int, rate: float | None) -> Prepared:
        """Lanes on each device; the batch is halved for as long as a GPU has not enough memory for it."""
        notes: list[str] = []
        while True:
            made: list[Lanes] = []
            try:
                for device in self.devices:
                    made.append(device.make_lanes(shape, batch))
                    self._make_sampler(
                        device, shape, batch, self.seed
                    ).close()  # a run's slots must fit beside the lanes
                return Prepared(batch, tuple(made), rate, tuple(notes))
            except BaseException as error:
                _close(made)
                if not isinstance(error, OutOfMemory) or batch // 2 < max(d.least_batch for d in self.devices):
                    raise
                notes.append(f"{device.name} has not enough memory for batches of {batch}; going on with {batch // 2}")
                batch //= 2

    def _make_sampler(self, device: Device, shape: tuple[int, ...], batch: int, seed: int) -> Sampler:
        """Enough slots that 16 draws of each input fill the batches in flight, within a bound on memory."""
        dimensions = math.prod(shape)
        slots = max(2, min(2 * device.lane_count * batch // 16, _SLOT_BYTES // (_BYTES_A_VALUE * dimensions)))
        return device.make_sampler(slots, dimensions, self.family, seed, self.lattice)

    def _run(
        self,
        examples: Iterable[tuple[int, ArrayLike]],
        procedure_for: Callable[[int, NDArray[np.float32], float], Procedure[Result]],
        batch: int | None,
        seed: int | None,
        on_draws: Callable[[int], None],
    ) -> Iterator[Finished[Result]]:
        """Run a procedure on each input. Runs may overlap: each has a sampler of its own."""
        inputs = ((input_id, to_pixels(np.asarray(x), f"input {input_id}")) for input_id, x in examples)
        first = next(inputs, None)
        if first is None:
            return
        shape = first[1].shape
        prepared = self.prepare(shape, batch)

        def jobs() -> Iterator[Job[Result]]:
            for input_id, x in itertools.chain([first], inputs):
                if x.shape != shape:
                    found = f"its shape is {x.shape}, and the first one's is {shape}"
                    raise DataError(f"input {input_id}", found, "give inputs of one shape")
                mean, scale = self.noise.at(input_id, x)
                if not mean.shape == scale.shape == shape:
                    found = f"its noise maps have the shapes {mean.shape} and {scale.shape}"
                    raise DataError(f"input {input_id}", found, f"they must have the input's, {shape}")
                eta = self.lattice.error(x, mean, scale, self.family) if self.lattice else 0.0
                yield Job(input_id, x, mean, scale, procedure_for(input_id, scale, eta))

        with ExitStack() as owned:
            parts = []
            for device, on_device in zip(self.devices, prepared.lanes, strict=True):
                sampler = self._make_sampler(device, shape, prepared.batch, self.seed if seed is None else seed)
                parts.append((on_device, sampler))
                owned.callback(parts[-1][1].close)
            yield from split.run(parts, jobs(), on_draws)

    def close(self) -> None:
        """End the lanes. If the classifier is used again, it starts new ones."""
        for prepared in self._prepared.values():
            _close(prepared.lanes)
        self._prepared = {}
        for device in self.devices:
            device.close()

    def __enter__(self) -> "SmoothedClassifier":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _close(lanes: Iterable[Lanes]) -> None:
    for some in lanes:
        some.close()
