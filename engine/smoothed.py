"""A smoothed classifier: a model file, the noise that smooths it, and the lanes that run it."""

import itertools
import math
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TypeVar

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
from ars.engine.noise_maps import open_noise
from ars.engine.samplers import Sampler
from ars.engine.scheduler import Finished, Job
from ars.engine.statistics.certificate import Certificate
from ars.engine.statistics.plan import Plan
from ars.engine.statistics.stopping import Question
from ars.errors import DataError, OutOfMemory, RunError
from ars.noise import family_named

__all__ = ["SmoothedClassifier", "load"]

Result = TypeVar("Result")

DEFAULT_PLAN = Plan()
PREDICTION_N = 1000
_SLOT_BYTES = 2**28


def load(
    engine: str | Path,
    *,
    sigma: float | None = None,
    noise: str | Path | None = None,
    family: str | None = None,
    batch: int | None = None,
    threads: int | None = None,
    seed: int = 0,
    backend: str = "auto",
    device: str | None = None,
) -> "SmoothedClassifier":
    """A smoothed classifier from a model file.

    Its noise is isotropic with `sigma`, or comes from `noise` (a generator .onnx, or maps in an .npz), or is what the
    manifest beside the model says. `batch` None measures which size is fastest here when the first input comes.
    `backend` names the library that runs the model; auto takes the fastest one installed that fits the file.
    `device` is cpu, or GPUs like cuda:0,cuda:1; TensorRT engines run on the first GPU unless it says otherwise.
    """
    return SmoothedClassifier(
        Path(engine),
        sigma=sigma,
        noise=None if noise is None else Path(noise),
        family=family,
        batch=batch,
        threads=threads,
        seed=seed,
        backend=backend,
        device=device,
    )


def check_rows_are_independent(lanes: Lanes, shape: tuple[int, ...]) -> None:
    """Refuse a model whose logits for an input depend on the rest of its batch: its votes would mean nothing."""
    rows = np.random.default_rng(0).random((4, *shape), dtype=np.float32)
    together, turned, alone = lanes.run(rows)[0], lanes.run(rows[::-1].copy())[-1], lanes.run(rows[:1])[0]
    if not np.isfinite([together, turned, alone]).all():
        return  # that is found, and said, when draws vote for nobody
    apart = max(np.abs(together - turned).max(), np.abs(together - alone).max())
    if apart > 0.01 * max(1.0, np.abs(together).max()):
        fix = "export it for inference (model.eval())"
        raise RunError(f"the model's logits for an input depend on the other inputs of its batch; {fix}")


class SmoothedClassifier:
    def __init__(
        self,
        engine: Path,
        *,
        sigma: float | None,
        noise: Path | None,
        family: str | None,
        batch: int | None,
        threads: int | None,
        seed: int,
        backend: str,
        device: str | None,
    ) -> None:
        self.batch = None if batch is None else whole_number("batch", batch, 1, 2**24, "it must be at least 1")
        lane_count = None if threads is None else whole_number("threads", threads, 1, 1024, "at least 1")
        self.seed = whole_number("seed", seed, 0, 2**64 - 1, "it must fit 64 bits")
        beside = manifest_of(engine)
        self.why: str | None = None
        """Why `auto` took this backend, for the user."""
        names = choose_devices(device, engine, backend)
        if backend == "auto" and names == [CPU]:
            backend, self.why = choose_backend(engine, beside)
        self.measured_rate: float | None = None
        """The draws a second that `batch` was chosen for, where it was measured."""
        self.notes: list[str] = []
        """What the user should know of how it was prepared."""
        self._lanes: dict[tuple[int, ...], list[Lanes]] = {}
        self._preparing = threading.Lock()
        self.devices = open_devices(names, engine, backend, lane_count)
        try:
            self.runner = self.devices[0].runner
            self.manifest = beside or self.runner.own_manifest
            if self.manifest:
                self.manifest.check(engine, self.runner.shape, self.runner.classes)
            self.noise = open_noise(self.manifest, self.runner, sigma, noise)
            stated = self.manifest.noise.family if self.manifest and sigma is None and noise is None else "gaussian"
            self.family = family_named(family or stated)
        except BaseException:
            self.close()
            raise

    def certify(
        self,
        x: ArrayLike,
        *,
        n0: int = DEFAULT_PLAN.n0,
        n: int = DEFAULT_PLAN.n,
        alpha: float = DEFAULT_PLAN.alpha,
        two_sided: bool = False,
        question: Question | None = None,
        input_id: int = 0,
    ) -> Certificate:
        """The certificate of one input: floats in pixel units, or integers in 0..255. `input_id` and the seed decide
        its noise. With a question, like ars.Grid((0, 0.25, 0.5)), it stops as soon as that is settled."""
        plan = Plan(n0, n, alpha, two_sided, question)
        (finished,) = self.certify_many([(input_id, x)], plan)
        return finished.result

    def certify_many(
        self,
        examples: Iterable[tuple[int, ArrayLike]],
        plan: Plan = DEFAULT_PLAN,
        on_draws: Callable[[int], None] = lambda draws: None,
    ) -> Iterator[Finished[Certificate]]:
        """Certificates of numbered inputs, each as soon as it is known, and not always in the order of the inputs.

        `on_draws` is told how many draws have been counted, batch by batch.
        """
        family, kind = self.family, self.noise.kind
        yield from self._run(examples, lambda scale: algorithms.certify(scale, plan, family, kind), on_draws)

    def predict(
        self, x: ArrayLike, *, n: int = PREDICTION_N, alpha: float = DEFAULT_PLAN.alpha, input_id: int = 0
    ) -> Prediction:
        """The smoothed classifier's answer at one input."""
        (finished,) = self.predict_many([(input_id, x)], n=n, alpha=alpha)
        return finished.result

    def predict_many(
        self,
        examples: Iterable[tuple[int, ArrayLike]],
        *,
        n: int = PREDICTION_N,
        alpha: float = DEFAULT_PLAN.alpha,
    ) -> Iterator[Finished[Prediction]]:
        """The smoothed classifier's answers at numbered inputs, each as soon as it is known."""
        yield from self._run(examples, lambda scale: algorithms.predict(n=n, alpha=alpha), lambda draws: None)

    @property
    def threads(self) -> int:
        """The batches that are at work side by side."""
        return sum(device.lane_count for device in self.devices)

    @property
    def channels(self) -> int | None:
        """The channels of the images that it takes; None if its inputs are not images."""
        return image_channels(self.runner.shape)

    def prepare(self, shape: tuple[int, ...]) -> list[Lanes]:
        """The lanes for inputs of that shape, on each device; chooses the batch size first, where none was given."""
        with self._preparing:
            if shape not in self._lanes:
                self.runner.check_shape(shape)
                if self.batch is None:
                    choices = [device.choose_batch(shape) for device in self.devices]
                    self.batch, self.measured_rate = min(choices, key=lambda choice: choice[0])
                lanes = self._make_lanes(shape)
                self._lanes[shape] = lanes
                check_rows_are_independent(lanes[0], shape)
            return self._lanes[shape]

    def _make_lanes(self, shape: tuple[int, ...]) -> list[Lanes]:
        """Lanes on each device, for half the batch as often as a GPU has not enough memory for it."""
        assert self.batch is not None
        while True:
            made: list[Lanes] = []
            try:
                for device in self.devices:
                    made.append(device.make_lanes(shape, self.batch))
                    self._make_sampler(device, shape).close()  # a run's slots must fit beside the lanes
                return made
            except BaseException as error:
                for lanes in made:
                    lanes.close()
                if not isinstance(error, OutOfMemory) or self.batch // 2 < max(d.least_batch for d in self.devices):
                    raise
                halved = f"{device.name} has not enough memory for batches of {self.batch}"
                self.batch //= 2
                self.notes.append(f"{halved}; going on with {self.batch}")

    def _make_sampler(self, device: Device, shape: tuple[int, ...]) -> Sampler:
        """Slots for so many inputs that 16 draws of each fill the batches in flight, within a bound on memory."""
        assert self.batch is not None
        dimensions = math.prod(shape)
        slots = max(2, min(2 * device.lane_count * self.batch // 16, _SLOT_BYTES // (8 * dimensions)))
        return device.make_sampler(slots, dimensions, self.family, self.seed)

    def _run(
        self,
        examples: Iterable[tuple[int, ArrayLike]],
        procedure_for: Callable[[NDArray[np.float32]], Procedure[Result]],
        on_draws: Callable[[int], None],
    ) -> Iterator[Finished[Result]]:
        """Run a procedure on each input. Runs may overlap: each has a sampler of its own."""
        inputs = ((input_id, to_pixels(np.asarray(x), f"input {input_id}")) for input_id, x in examples)
        first = next(inputs, None)
        if first is None:
            return
        shape = first[1].shape
        lanes = self.prepare(shape)

        def jobs() -> Iterator[Job[Result]]:
            for input_id, x in itertools.chain([first], inputs):
                if x.shape != shape:
                    found = f"its shape is {x.shape}, and the first one's is {shape}"
                    raise DataError(f"input {input_id}", found, "give inputs of one shape")
                mean, scale = self.noise.at(input_id, x)
                yield Job(input_id, x, mean, scale, procedure_for(scale))

        with ExitStack() as owned:
            parts = []
            for device, on_device in zip(self.devices, lanes, strict=True):
                parts.append((on_device, self._make_sampler(device, shape)))
                owned.callback(parts[-1][1].close)
            yield from split.run(parts, jobs(), on_draws)

    def close(self) -> None:
        """End the lanes. The classifier can be used again; it then starts new ones."""
        for lanes in itertools.chain.from_iterable(self._lanes.values()):
            lanes.close()
        self._lanes = {}
        for device in self.devices:
            device.close()

    def __enter__(self) -> "SmoothedClassifier":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
