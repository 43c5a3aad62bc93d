"""Options that several commands share: which model, which inputs, and when to stop."""

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click

from ars.engine.backends import list_backends
from ars.engine.cluster import Cluster
from ars.engine.records.inputs import Inputs
from ars.engine.smoothed import SmoothedClassifier, load
from ars.engine.statistics.losses import MAX_LOSS
from ars.engine.statistics.plan import Plan
from ars.engine.statistics.stopping import Grid, Question, Tolerance
from ars.errors import ArgumentError
from ars.noise import FAMILIES

__all__ = [
    "ClusterOptions",
    "ModelOptions",
    "StoppingOptions",
    "cluster_options",
    "inputs_options",
    "model_options",
    "stopping_options",
]

Command = Callable[..., None]
FILE = click.Path(dir_okay=False, path_type=Path)


class BatchSize(click.ParamType[int | None]):
    """A number, or auto, which stands for None."""

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
    seed: int | None
    noise_stream: str
    lattice_step: float | None
    backend: str
    device: str | None

    def load(self) -> SmoothedClassifier:
        return load(
            self.engine,
            sigma=self.sigma,
            noise=self.noise,
            family=self.family,
            batch=self.batch,
            threads=self.threads,
            seed=self.seed,
            noise_stream=int(self.noise_stream),
            lattice_step=self.lattice_step,
            backend=self.backend,
            device=self.device,
        )


@dataclass(frozen=True)
class StoppingOptions:
    stopping: str
    radii: str | None
    radius: float | None
    tolerance: float | None
    max_loss: float | None

    def apply(self, plan: Plan, usual: Callable[[], Question]) -> Plan:
        """The plan with its question, or with the usual one if none was asked for."""
        given = {name: value for name, value in vars(self).items() if name != "stopping" and value is not None}
        if self.stopping == "fixed":
            if given:
                name, value = given.popitem()
                raise ArgumentError(name, value, "it is for --stopping adaptive")
            return plan
        given.pop("max_loss", None)
        if len(given) > 1:
            name, value = given.popitem()
            raise ArgumentError(name, value, "give one of --radii, --radius and --tolerance")
        max_loss = MAX_LOSS if self.max_loss is None else self.max_loss
        return dataclasses.replace(plan, question=self._question() or usual(), max_loss=max_loss)

    def _question(self) -> Question | None:
        if self.tolerance is not None:
            return Tolerance(self.tolerance)
        if self.radius is not None:
            return Grid((self.radius,))
        return None if self.radii is None else Grid.parse(self.radii)


def _gather(group: type, argument: str, *options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """A decorator that adds options to a command and passes them to it as one object."""

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


@dataclass(frozen=True)
class ClusterOptions:
    cluster: str | None
    workers: int | None
    worker_cpus: int | None
    wait: bool
    data_on_workers: bool

    def make(self) -> Cluster | None:
        """The cluster to certify on; None without --cluster."""
        if self.cluster is None:
            for name, value in vars(self).items():
                if value:
                    raise ArgumentError(name, value, "it is for --cluster")
            return None
        return Cluster(
            self.cluster,
            workers=self.workers,
            worker_cpus=self.worker_cpus or 1,
            wait=self.wait,
            data_on_workers=self.data_on_workers,
        )


def _end(context: click.Context, option: click.Parameter, value: int | None) -> int | None:
    """--max, whose default in the field's scripts, -1, is no end."""
    if value == 0:
        raise click.BadParameter("give at least 1, or -1 for no end")
    return None if value == -1 else value


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
    click.option(
        "--threads", type=click.IntRange(1), help="Batches processed at once. Default: the cores, or 2 per GPU."
    ),
    click.option("--seed", type=click.IntRange(0, 2**64 - 1), help="Repeats the noise of a run. Default: random."),
    click.option(
        "--noise-stream",
        type=click.Choice(["1", "2"]),
        default="2",
        show_default=True,
        help="2: certificates hold in floating-point arithmetic; 1: as in older versions.",
    ),
    click.option("--lattice-step", type=float, help="Of noise stream 2, a power of two. Default: from the scale."),
    click.option("--device", help="cpu, cuda:0, or several: cuda:0,cuda:1. Default: cuda:0 for a .trt, or else cpu."),
    click.option("--backend", default="auto", show_default=True, help=f"What runs it: {_BACKENDS}."),
)

inputs_options = _gather(
    Inputs,
    "inputs",
    click.option("--data", required=True, help="A folder, an archive or a file of inputs: see docs/data.md."),
    click.option("--resize", type=click.IntRange(1), help="Resize the shorter side of each image to this."),
    click.option("--crop", type=click.IntRange(1), help="Then crop a square of this size from the centre."),
    click.option("--classes", "classes_file", type=FILE, help="A folder's class names in label order, one per line."),
    click.option("--start", type=click.IntRange(0), default=0, help="Leave out this many inputs at the start."),
    click.option("--limit", type=click.IntRange(1), help="Take at most this many."),
    click.option("--skip", type=click.IntRange(1), default=1, help="Take every N-th input, like the field's scripts."),
    click.option(
        "--max", "end", type=click.IntRange(-1), callback=_end, help="End before this number, like the field's scripts."
    ),
    click.option("--only", help='Take only these, like "3,17,200-300" or "0-9999/20".'),
    click.option("--shard", help="Of all these, take a share: 3/20 is the third of twenty. `merge` joins the stores."),
)

cluster_options = _gather(
    ClusterOptions,
    "on",
    click.option("--cluster", help="Certify on a Ray cluster: auto, local, host:6379 or ray://host:10001."),
    click.option("--workers", type=click.IntRange(1), help="On the cluster: this many. Default: as many as fit."),
    click.option("--worker-cpus", type=click.IntRange(1), help="Cores of each worker without a GPU. Default: 1."),
    click.option("--wait", is_flag=True, help="Wait for workers that the cluster has no room for yet."),
    click.option("--data-on-workers", is_flag=True, help="Each worker reads the data, from the same path."),
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
    click.option(
        "--radii",
        help="Adaptive: which of these radii are certified? Default: 0,0.25,...,3.5, or finer for small sigma.",
    ),
    click.option("--radius", type=float, help="Adaptive: is this radius certified?"),
    click.option("--tolerance", type=float, help="Adaptive: the radius to within this share of what n draws give."),
    click.option(
        "--max-loss",
        type=float,
        help=f"Adaptive: lose about this much certified accuracy, in points, for fewer draws. Default: {MAX_LOSS:g}.",
    ),
)
