"""The options that several commands share: which model, and which data."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click

from ars.data import Dataset, ImageSize, open_data, select
from ars.engine.backends import list_backends
from ars.engine.smoothed import SmoothedClassifier, load
from ars.engine.statistics.stopping import Grid, Question, Tolerance
from ars.errors import ArgumentError, DataError
from ars.noise import FAMILIES

__all__ = ["DataOptions", "ModelOptions", "StoppingOptions", "data_options", "model_options", "stopping_options"]

Command = Callable[..., None]
FILE = click.Path(dir_okay=False, path_type=Path)


class BatchSize(click.ParamType[int | None]):
    """A number, or auto, which is None."""

    name = "N|auto"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> int | None:
        return None if value in (None, "auto") else int(click.IntRange(1).convert(value, parameter, context))


@dataclass(frozen=True)
class ModelOptions:
    engine: Path
    sigma: float | None
    noise: Path | None
    family: str | None
    batch: int | None
    threads: int | None
    seed: int
    backend: str
    device: str | None

    def load(self, batch: int | None) -> SmoothedClassifier:
        return load(
            self.engine,
            sigma=self.sigma,
            noise=self.noise,
            family=self.family,
            batch=batch,
            threads=self.threads,
            seed=self.seed,
            backend=self.backend,
            device=self.device,
        )


@dataclass(frozen=True)
class DataOptions:
    data: str
    resize: int | None
    crop: int | None
    classes: Path | None
    skip: int
    max: int | None
    only: str | None
    on_error: str

    def open(self, classifier: SmoothedClassifier) -> tuple[Dataset, list[int]]:
        """The data, with images in the classifier's number of channels, and the numbers of the chosen inputs."""
        data = open_data(self.data, ImageSize(self.resize, self.crop, classifier.channels), self.classes)
        return data, select(len(data), skip=self.skip, most=self.max, only=self.only)

    def origin(self, model: ModelOptions) -> dict[str, str | int | None]:
        """Where model and data came from, as they were given: an audit looks for them there."""
        given = {"engine_file": model.engine, "noise_file": model.noise, "classes_file": self.classes}
        files = {name: None if path is None else str(path) for name, path in given.items()}
        return files | {"data_source": self.data, "resize": self.resize, "crop": self.crop}

    def skipper(self, say: Callable[[DataError], None]) -> Callable[[DataError], None] | None:
        """What to do with an input that cannot be read: say it and go on, or, for None, end the run."""
        return say if self.on_error == "skip" else None


@dataclass(frozen=True)
class StoppingOptions:
    stopping: str
    radii: str | None
    radius: float | None
    tolerance: float | None

    def question(self) -> Question | None:
        """What adaptive stopping is to settle; None for the fixed rule."""
        given = {name: value for name, value in vars(self).items() if name != "stopping" and value is not None}
        if self.stopping == "fixed" and given:
            name, value = given.popitem()
            raise ArgumentError(name, value, "it is a question for --stopping adaptive")
        if len(given) > 1:
            name, value = given.popitem()
            raise ArgumentError(name, value, "give one of --radii, --radius and --tolerance")
        if self.stopping == "fixed":
            return None
        if self.tolerance is not None:
            return Tolerance(self.tolerance)
        if self.radius is not None:
            return Grid((self.radius,))
        return Grid() if self.radii is None else Grid.parse(self.radii)


def _gather(group: type, argument: str, *options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """A decorator that adds options to a command and hands them over as one object."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def gathered(**given: Any) -> None:
            values = {field.name: given.pop(field.name) for field in fields(group)}
            command(**{argument: group(**values)}, **given)

        decorated: Command = gathered
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


_FAMILIES = ", ".join(FAMILIES)
_BACKENDS = ", ".join(["auto", *(backend.name for backend in list_backends())])

model_options = _gather(
    ModelOptions,
    "model",
    click.option(
        "--engine", required=True, type=FILE, help="The classifier: an ONNX file, a model.pt, or a TensorRT engine."
    ),
    click.option("--sigma", type=float, help="Isotropic noise of this scale, in pixel units."),
    click.option("--noise", type=FILE, help="A noise generator (.onnx), or maps named mean and scale (.npz)."),
    click.option("--family", help=f"{_FAMILIES}. Default: the manifest's, or gaussian."),
    click.option("--batch", type=BatchSize(), default="auto", help="Draws in a batch. Default: the fastest, measured."),
    click.option("--threads", type=click.IntRange(1), help="Batches at work at once. Default: the cores, or 2 a GPU."),
    click.option("--seed", type=click.IntRange(0, 2**64 - 1), default=0, show_default=True, help="Decides the noise."),
    click.option("--device", help="cpu, cuda:0, or several: cuda:0,cuda:1. Default: cuda:0 for a .trt, or else cpu."),
    click.option("--backend", default="auto", show_default=True, help=f"What runs it: {_BACKENDS}."),
)

data_options = _gather(
    DataOptions,
    "data",
    click.option("--data", required=True, help="fashion-mnist:test, .npz, idx file, CIFAR-10 .bin, folder, or image."),
    click.option("--resize", type=click.IntRange(1), help="Bring an image's shorter side to this."),
    click.option("--crop", type=click.IntRange(1), help="Then cut this square from its middle."),
    click.option("--classes", type=FILE, help="A folder's class names in label order, one a line."),
    click.option("--skip", type=click.IntRange(0), default=0, help="Leave out the first so many inputs."),
    click.option("--max", type=click.IntRange(1), help="Take at most so many."),
    click.option("--only", help='Take only these, like "3,17,200-300" or "0-9999/20".'),
    click.option(
        "--on-error", type=click.Choice(["fail", "skip"]), default="fail", show_default=True, help="Bad inputs."
    ),
)

stopping_options = _gather(
    StoppingOptions,
    "stop",
    click.option(
        "--stopping",
        type=click.Choice(["fixed", "adaptive"]),
        default="fixed",
        show_default=True,
        help="n draws for each input (the paper), or until its question is settled.",
    ),
    click.option("--radii", help="Adaptive: which of these radii are certified? Default: 0,0.25,...,3.5."),
    click.option("--radius", type=float, help="Adaptive: is this radius certified?"),
    click.option("--tolerance", type=float, help="Adaptive: the radius to within this share of what n draws give."),
)
