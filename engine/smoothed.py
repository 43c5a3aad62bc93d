"""A smoothed classifier: a model, the noise that smooths it, and the lanes that run it."""

import dataclasses
import itertools
import math
import secrets
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ars.checks import whole_number
from ars.data import PIXELS, image_channels
from ars.data.pixels import to_pixels
from ars.engine import algorithms, split
from ars.engine.algorithms import Prediction, Procedure
from ars.engine.devices import Device
from ars.engine.examples import Example, Examples, FromData, read_examples
from ars.engine.in_process import InProcess, batch_given
from ars.engine.lanes import Lanes
from ars.engine.lattice import Lattice
from ars.engine.noise_maps import NoiseMaps
from ars.engine.opening import Opened, Wanted, check_wanted, open_file, open_in_process
from ars.engine.requests import FIRST_OWN_ID, name_input
from ars.engine.runners import Runner
from ars.engine.samplers import Sampler
from ars.engine.scheduler import Finished, Job
from ars.engine.statistics.certificate import Certificate
from ars.engine.statistics.plan import Plan, check_plan
from ars.engine.statistics.stopping import Grid, Question, usual_radii
from ars.errors import ArgumentError, DataError, InputError, OutOfMemory
from ars.manifest import Manifest
from ars.noise import Family

if TYPE_CHECKING:
    from torch import nn

__all__ = ["PREDICTION_N", "Prepared", "SmoothedClassifier", "load"]

Result = TypeVar("Result")

DEFAULT_PLAN = Plan()
PREDICTION_N = 1000
_SLOT_BYTES = 2**28
_BYTES_A_VALUE = 20
"""Of a slot, with noise stream 2."""
_SEED = "it must fit 64 bits"


def load(
    model: "str | Path | nn.Module | Callable[[NDArray[np.float32]], Any]",
    *,
    sigma: float | None = None,
    noise: str | Path | None = None,
    family: str | None = None,
    shape: Sequence[int] | None = None,
    batch: int | None = None,
    threads: int | None = None,
    seed: int | None = None,
    noise_stream: int = 2,
    lattice_step: float | None = None,
    backend: str = "auto",
    device: str | None = None,
) -> "SmoothedClassifier":
    """A smoothed classifier from a model: a file, a torch module, or a function from an array of rows to logits.

    Its noise is isotropic with `sigma`, or comes from `noise` (a generator .onnx, or maps in an .npz), or is what the
    manifest beside the model says. `batch` is the number of draws in a batch; by default the fastest is measured when
    the first input comes. `backend` names the library that runs the model; auto takes the fastest one installed that
    fits the file. `device` is cpu, or GPUs like cuda:0,cuda:1; by default TensorRT engines run on the first GPU, and
    everything else on the CPU.

    A torch module is copied, put into evaluation mode, exported and compared with the export, all without a trace on
    disk. With backend="torch" the copy itself is run. `shape` is the shape of an input of a module or a function;
    without it, they are opened when the first input comes.

    Draws come from noise stream 2, on a lattice whose step follows from the scale of the noise unless `lattice_step`
    gives it; noise stream 1 is for comparison with older runs. The seed is random by default. Model and inputs must not
    depend on it (docs/soundness.md); give one only to repeat a run.
    """
    return SmoothedClassifier(
        Path(model) if isinstance(model, str | Path) else InProcess(model, backend, device),
        Wanted(
            sigma=sigma,
            noise=None if noise is None else Path(noise),
            family=family,
            noise_stream=noise_stream,
            lattice_step=lattice_step,
            backend=backend,
            device=device,
            lane_count=None if threads is None else whole_number("threads", threads, 1, 1024, "use 1 to 1024"),
        ),
        shape=None if shape is None else _check_shape(shape),
        batch=batch,
        seed=seed,
    )


def _check_shape(shape: Sequence[int]) -> tuple[int, ...]:
    sides = tuple(whole_number("shape", side, 1, 2**31, "every side is at least 1") for side in shape)
    if not sides:
        raise ArgumentError("shape", shape, "an input has at least one axis")
    return sides


def _random_input(shape: tuple[int, ...]) -> NDArray[np.float32]:
    return np.random.default_rng(0).random(shape, dtype=np.float32)


def _check_batch(batch: int | None) -> int | None:
    return None if batch is None else whole_number("batch", batch, 1, 2**24, "it must be at least 1")


class PlanChanges(TypedDict, total=False):
    """The fields of a Plan, as keywords."""

    n0: int
    n: int
    alpha: float
    two_sided: bool
    question: Question | None
    max_loss: float


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
        model: Path | InProcess,
        wanted: Wanted,
        *,
        shape: tuple[int, ...] | None,
        batch: int | None,
        seed: int | None,
    ) -> None:
        self.batch = _check_batch(batch)
        """The draws in a batch that were asked for. `prepare` returns the one that is used."""
        self.noise_file = wanted.noise
        self.seed_given = seed is not None
        self.seed = secrets.randbits(64) if seed is None else whole_number("seed", seed, 0, 2**64 - 1, _SEED)
        self._input_ids = itertools.count(FIRST_OWN_ID)
        self._prepared: dict[tuple[tuple[int, ...], int | None], Prepared] = {}
        self._preparing = threading.RLock()
        self._model, self.wanted = model, wanted
        self._opened: Opened | None = None
        self._unit_said = False
        if isinstance(model, Path):
            if shape is not None:
                raise ArgumentError("shape", shape, "a file says its shape itself; leave it out")
            self._opened = open_file(model, wanted)
        else:
            check_wanted(wanted)
            if shape is not None:
                self.open(_random_input(shape))

    def open(self, x: NDArray[np.float32]) -> None:
        """Open a model of this process for inputs of the shape of x; a module is compared with its export there. A
        model that is open stays as it is."""
        with self._preparing:
            if self._opened is None and isinstance(self._model, InProcess):
                self._opened = open_in_process(self._model, self.wanted, x)

    @property
    def model_changed(self) -> bool:
        """Whether the model is a module of this process that is no longer what it was when it was opened."""
        return self._opened is not None and isinstance(self._model, InProcess) and self._model.has_changed()

    @property
    def opened(self) -> Opened:
        """The model and its noise. A model of this process is opened for its first input, unless its shape is given."""
        if self._opened is None:
            problem = "the shape of the model's inputs is not known yet"
            raise InputError(f"{problem}; give it to ars.load, like shape=(3, 32, 32), or certify an input first")
        return self._opened

    @property
    def devices(self) -> list[Device]:
        return self.opened.devices

    @property
    def runner(self) -> Runner:
        return self.opened.runner

    @property
    def manifest(self) -> Manifest | None:
        return self.opened.manifest

    @property
    def noise(self) -> NoiseMaps:
        return self.opened.noise

    @property
    def family(self) -> Family:
        return self.opened.family

    @property
    def lattice(self) -> Lattice | None:
        return self.opened.lattice

    @property
    def why(self) -> str | None:
        """Why `auto` took this backend, as a note to the user."""
        return self.opened.why

    def certify(
        self, x: ArrayLike, plan: Plan = DEFAULT_PLAN, *, input_id: int | None = None, **changes: Unpack[PlanChanges]
    ) -> Certificate:
        """The certificate of one input: floats in pixel units, or integers in 0..255.

        The plan is given as such, or by its fields: `n0`, `n`, `alpha`, `two_sided`, `question` and `max_loss`. With a
        question, like ars.Grid((0, 0.25, 0.5)), drawing ends as soon as it is settled. `input_id` and the seed decide
        the noise; by default every call has noise of its own.
        """
        (finished,) = self.certify_many([(self._own_id(input_id), x)], plan, **changes)
        return finished.result

    def certify_many(
        self,
        examples: Examples,
        plan: Plan = DEFAULT_PLAN,
        *,
        batch: int | None = None,
        seed: int | None = None,
        labels: Mapping[int, int | None] | None = None,
        on_draws: Callable[[int], None] = lambda draws: None,
        **changes: Unpack[PlanChanges],
    ) -> Iterator[Finished[Certificate]]:
        """The certificates of many inputs, each as soon as it is known, and not always in the order of the inputs.

        The examples are an array or a tensor with a batch axis, or a pair (X, Y) of such inputs and their labels;
        inputs, pairs (x, label) or pairs (number, x); or a Dataset or a DataLoader of torch. Those without a number are
        numbered from 0 on (`Finished.input_id`).

        The plan is given as for `certify`, and `batch` as for `prepare`. `seed` is by default the classifier's; if that
        is random and the inputs have no numbers, every call has another, so that no call repeats the noise of another.
        `labels` has classes of inputs by their numbers: an input whose selection draws choose another class than its
        label ends there, and abstains. `on_draws` is told after each batch how many draws were counted.
        """
        plan = check_plan(plan, "or its fields by name, like n=10_000; labels go with inputs, like (X, Y)")
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
        examples: Examples,
        *,
        n: int = PREDICTION_N,
        alpha: float = DEFAULT_PLAN.alpha,
        batch: int | None = None,
        seed: int | None = None,
    ) -> Iterator[Finished[Prediction]]:
        """The smoothed classifier's answers at many inputs, given as for `certify_many`, each as soon as it is known.
        `seed` is as for `certify_many`."""

        def procedure(input_id: int, scale: NDArray[np.float32], eta: float) -> Procedure[Prediction]:
            return algorithms.predict(n=n, alpha=alpha, eta=eta)

        yield from self._run(examples, procedure, batch, seed, lambda draws: None)

    def _say_unit(self, name: str, x: NDArray[np.float32]) -> None:
        """Warn, once, of an input that is not in pixel units."""
        low, high = x.min(), x.max()
        if not self._unit_said and not PIXELS[0] <= low <= high <= PIXELS[1]:
            self._unit_said = True
            warnings.warn(
                f"{name} has values from {low:.4g} to {high:.4g}: sigma and every radius are in these units, and not "
                "in those of pixels from 0 to 1; if it is a normalised image, certify the pixels instead, and put the "
                "normalisation into the model (docs/units.md)",
                stacklevel=2,
            )

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
                self.open(_random_input(shape))
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
                return Prepared(batch, tuple(made), rate, (*notes, *(note for lanes in made for note in lanes.notes)))
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
        examples: Examples,
        procedure_for: Callable[[int, NDArray[np.float32], float], Procedure[Result]],
        batch: int | None,
        seed: int | None,
        on_draws: Callable[[int], None],
    ) -> Iterator[Finished[Result]]:
        """Run a procedure on each input. Runs may overlap: each has a sampler of its own."""
        axes = None if self._opened is None else len(self.runner.shape)
        labels: dict[int, int | None] = {}

        def read() -> Iterator[Example]:
            for example in read_examples(examples, axes):
                labels[example.input_id] = example.label
                pixels = to_pixels(example.x, name_input(example.input_id))
                if not isinstance(examples, FromData):
                    self._say_unit(name_input(example.input_id), pixels)
                yield example._replace(x=pixels)

        inputs = read()
        first = next(inputs, None)
        if first is None:
            return
        shape = first.x.shape
        if axes is not None and len(shape) == axes + 1:
            raise batch_given(shape)
        if self.model_changed:
            problem = "the module has changed since it was opened, so the certificates would be about another model"
            raise InputError(f"{problem}; load it again")
        self.open(first.x)
        prepared = self.prepare(shape, batch)
        if seed is None:
            # Inputs without numbers are numbered from 0 on in each call. With one seed for all calls, an input that was
            # chosen after the answers of another call would meet the noise that it was chosen by.
            seed = self.seed if self.seed_given or first.numbered else secrets.randbits(64)

        def jobs() -> Iterator[Job[Result]]:
            for input_id, x, label, _ in itertools.chain([first], inputs):
                if x.shape != shape:
                    found = f"its shape is {x.shape}, and the first one's is {shape}"
                    raise DataError(name_input(input_id), found, "give inputs of one shape")
                if label is not None and label >= self.runner.classes:
                    found = f"its label is {label}, and the model has {self.runner.classes} classes"
                    raise DataError(name_input(input_id), found, "use the data that the model was made for")
                mean, scale = self.noise.at(input_id, x)
                if not mean.shape == scale.shape == shape:
                    found = f"its noise maps have the shapes {mean.shape} and {scale.shape}"
                    raise DataError(name_input(input_id), found, f"they must have the input's, {shape}")
                eta = self.lattice.error(x, mean, scale, self.family) if self.lattice else 0.0
                yield Job(input_id, x, mean, scale, procedure_for(input_id, scale, eta))

        with ExitStack() as owned:
            parts = []
            for device, on_device in zip(self.devices, prepared.lanes, strict=True):
                sampler = self._make_sampler(device, shape, prepared.batch, seed)
                parts.append((on_device, sampler))
                owned.callback(parts[-1][1].close)
            for finished in split.run(parts, jobs(), on_draws):
                yield dataclasses.replace(finished, label=labels.pop(finished.input_id, None))

    def close(self) -> None:
        """End the lanes. If the classifier is used again, it starts new ones."""
        for prepared in self._prepared.values():
            _close(prepared.lanes)
        self._prepared = {}
        for device in self._opened.devices if self._opened else ():
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
