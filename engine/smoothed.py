"""A smoothed classifier: a model file, the noise that smooths it, and the lanes that run it."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ars.data.pixels import file_sha256
from ars.engine import algorithms, scheduler
from ars.engine.algorithms import Plan, Prediction, Procedure
from ars.engine.batch_size import best_batch
from ars.engine.certificate import Certificate
from ars.engine.devices.host import Host, usable_cores
from ars.engine.lanes import Lanes
from ars.engine.noise_maps import open_noise
from ars.engine.scheduler import Finished, Job
from ars.errors import ArgumentError
from ars.manifest import manifest_beside
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
) -> "SmoothedClassifier":
    """A smoothed classifier from a model file.

    Its noise is isotropic with `sigma`, or comes from `noise` (a generator .onnx, or maps in an .npz), or is what the
    manifest beside the model says. `batch` None measures which size is fastest here when the first input comes.
    """
    return SmoothedClassifier(
        Path(engine),
        sigma=sigma,
        noise=None if noise is None else Path(noise),
        family=family,
        batch=batch,
        threads=threads,
        seed=seed,
    )


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
    ) -> None:
        from ars.engine.runners.onnxruntime import OnnxRuntime

        if batch is not None and batch < 1:
            raise ArgumentError("batch", batch, "it must be at least 1")
        self.manifest = manifest_beside(engine)
        self.runner = OnnxRuntime(engine)
        self.noise = open_noise(self.manifest, engine.parent, len(self.runner.shape), sigma, noise)
        stated = self.manifest.noise.family if self.manifest and sigma is None and noise is None else "gaussian"
        self.family = family_named(family or stated)
        self.threads = threads or usable_cores()
        self.seed = seed
        self.batch = batch
        self.measured_rate: float | None = None
        """The draws a second that `batch` was chosen for, where it was measured."""
        self.sha256 = file_sha256(engine)
        self._lanes: Lanes | None = None
        self._shape: tuple[int, ...] = ()

    def certify(
        self,
        x: ArrayLike,
        *,
        n0: int = DEFAULT_PLAN.n0,
        n: int = DEFAULT_PLAN.n,
        alpha: float = DEFAULT_PLAN.alpha,
        two_sided: bool = False,
        input_id: int = 0,
    ) -> Certificate:
        """The certificate of one input, in pixel units. `input_id` and the seed decide its noise."""
        plan = Plan(n0, n, alpha, two_sided)
        (finished,) = self.certify_many([(input_id, np.asarray(x, np.float32))], plan)
        return finished.result

    def certify_many(
        self, examples: Iterable[tuple[int, NDArray[np.float32]]], plan: Plan = DEFAULT_PLAN
    ) -> Iterator[Finished[Certificate]]:
        """Certificates of numbered inputs, each as soon as it is known, and not always in the order of the inputs."""
        family, kind = self.family, self.noise.kind
        yield from self._run(examples, lambda scale: algorithms.certify(scale, plan, family, kind))

    def predict(
        self, x: ArrayLike, *, n: int = PREDICTION_N, alpha: float = DEFAULT_PLAN.alpha, input_id: int = 0
    ) -> Prediction:
        """The smoothed classifier's answer at one input."""
        (finished,) = self.predict_many([(input_id, np.asarray(x, np.float32))], n=n, alpha=alpha)
        return finished.result

    def predict_many(
        self,
        examples: Iterable[tuple[int, NDArray[np.float32]]],
        *,
        n: int = PREDICTION_N,
        alpha: float = DEFAULT_PLAN.alpha,
    ) -> Iterator[Finished[Prediction]]:
        """The smoothed classifier's answers at numbered inputs, each as soon as it is known."""
        yield from self._run(examples, lambda scale: algorithms.predict(n=n, alpha=alpha))

    def prepare(self, shape: tuple[int, ...]) -> Lanes:
        """The lanes for inputs of that shape; measures the batch size first, where none was given."""
        self.runner.check_shape(shape)
        if self.batch is None:
            self.batch, self.measured_rate = best_batch(lambda size: self._make_lanes(shape, size), shape)
        if self._lanes is None or shape != self._shape:
            self.close()
            self._shape, self._lanes = shape, self._make_lanes(shape, self.batch)
        return self._lanes

    def _make_lanes(self, shape: tuple[int, ...], batch: int) -> Lanes:
        """Slots for so many inputs that 16 draws of each fill the batches in flight, within a bound on memory."""
        dimensions = int(np.prod(shape))
        slots = max(2, min(2 * self.threads * batch // 16, _SLOT_BYTES // (8 * dimensions)))
        device = Host(slots, dimensions, self.family, self.seed)
        return Lanes(device, self.runner, shape, batch, self.threads)

    def _run(
        self,
        examples: Iterable[tuple[int, NDArray[np.float32]]],
        procedure_for: Callable[[NDArray[np.float32]], Procedure[Result]],
    ) -> Iterator[Finished[Result]]:
        examples = iter(examples)
        first = next(examples, None)
        if first is None:
            return
        lanes = self.prepare(first[1].shape)

        def jobs() -> Iterator[Job[Result]]:
            for input_id, x in itertools.chain([first], examples):
                self.runner.check_shape(x.shape)
                mean, scale = self.noise.at(input_id, x)
                yield Job(input_id, x, mean, scale, procedure_for(scale))

        yield from scheduler.run(lanes, jobs())

    def close(self) -> None:
        """End the lanes. The classifier can be used again; it then starts new ones."""
        if self._lanes is not None:
            self._lanes.__exit__(None, None, None)
            self._lanes = None

    def __enter__(self) -> "SmoothedClassifier":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
