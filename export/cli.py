"""`ars-export`."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ars.command_line import Command, version_option
from ars.errors import MissingPackage
from ars.manifest import Profile
from ars.noise import FAMILIES

FILE = click.Path(dir_okay=False, path_type=Path)


class CommaList(click.ParamType[tuple[Any, ...]]):
    """Values that commas part."""

    def __init__(self, name: str, of: Callable[[str], Any]) -> None:
        self.name, self._of = name, of

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> tuple[Any, ...]:
        try:
            return value if isinstance(value, tuple) else tuple(self._of(part.strip()) for part in value.split(","))
        except ValueError:
            return self.fail(f"{value!r} is not a list like {self.name}", parameter, context)


def _side(text: str) -> int:
    if int(text) < 1:
        raise ValueError
    return int(text)


# Options that are of use only where an engine is built.
ENGINE = (
    "compute_capability",
    "min_batch",
    "opt_batch",
    "max_batch",
    "workspace",
    "timing_cache",
    "builder_optimization_level",
)


def _for_engine() -> tuple[str, ...]:
    """Those of them that were given."""
    source = click.get_current_context().get_parameter_source
    return tuple(f"--{name.replace('_', '-')}" for name in ENGINE if source(name) is not ParameterSource.DEFAULT)


@click.command(cls=Command)
@version_option
@click.argument("model", type=FILE, required=False)
@click.option("-o", "--output", type=click.Path(file_okay=False, path_type=Path), help="Folder. Default: the model's.")
@click.option(
    "--precision", type=CommaList("fp32,fp16,int8", str), default=(), help="fp32, fp16, int8. Default: the model's."
)
@click.option("--calibration", help="Data to calibrate and compare on. Default: a model.pt's own examples.")
@click.option("--resize", type=click.IntRange(1), help="Bring the shorter side of its images to this.")
@click.option("--crop", type=click.IntRange(1), help="Then cut this square from their middle.")
@click.option("--min-agreement", type=float, default=0.98, show_default=True, help="Share of draws, for fp16 and int8.")
@click.option(
    "--tensorrt", type=click.Choice(["auto", "on", "off"]), default="auto", help="An engine; auto: where a GPU is."
)
@click.option(
    "--compute-capability", type=CommaList("8.6,8.9", str), default=(), help="Of the GPUs that the engine is for."
)
@click.option("--min-batch", type=int, default=1, show_default=True, help="The engine's smallest batch,")
@click.option("--opt-batch", type=int, default=256, show_default=True, help="the one that it is made for,")
@click.option("--max-batch", type=int, default=1024, show_default=True, help="and the largest.")
@click.option("--workspace", type=int, help="MiB of the GPU's memory that the engine may use for scratch.")
@click.option("--timing-cache", type=FILE, help="A file that makes the next build faster (tensorrt).")
@click.option("--builder-optimization-level", type=int, help="0 builds fast, 5 builds fast engines.")
@click.option("--arch", help="Your own weights: timm:NAME, resnet20 ... resnet110, resnet50, or cnn.")
@click.option("--weights", type=FILE, help="With --arch: a state_dict.")
@click.option("--shape", type=CommaList("3,32,32", _side), help="Of an input of your own model, like 3,32,32.")
@click.option("--classes", type=CommaList("cat,dog", str), help="How many, or their names, of your own model.")
@click.option("--pixel-mean", type=CommaList("0.5,0.5,0.5", float), help="Your own model takes (x - mean)")
@click.option("--pixel-deviation", type=CommaList("0.2,0.2,0.2", float), help="/ deviation, by channel.")
@click.option("--sigma", type=float, help="The scale of your own model's noise, in pixel units.")
@click.option("--family", help=f"Its family: {', '.join(FAMILIES)}.")
@click.option("--quiet", is_flag=True, help="No progress.")
def main(
    model: Path | None,
    output: Path | None,
    precision: tuple[str, ...],
    calibration: str | None,
    resize: int | None,
    crop: int | None,
    min_agreement: float,
    tensorrt: str,
    compute_capability: tuple[str, ...],
    min_batch: int,
    opt_batch: int,
    max_batch: int,
    workspace: int | None,
    timing_cache: Path | None,
    builder_optimization_level: int | None,
    quiet: bool,
    **own: Any,
) -> None:
    """Export a model to ONNX, on request in other precisions and as a TensorRT engine, with its noise and its manifest.

    MODEL is a model.pt of ars-train; or your own: a TorchScript or torch.export file, an ONNX file, or, instead of a
    file, --arch and --weights. Your own models need --sigma and --calibration.
    """
    for package in ("torch", "onnx", "onnxscript"):
        if importlib.util.find_spec(package) is None:
            raise MissingPackage(package, "train")
    from ars.data import ImageSize
    from ars.export.pipeline import ExportPlan, export_model
    from ars.export.progress import ExportProgress
    from ars.export.sources import OwnModel
    from ars.export.tensorrt import BuildOptions

    profile = Profile(min_batch, opt_batch, max_batch)
    build = BuildOptions(profile, compute_capability, workspace, timing_cache, builder_optimization_level)
    plan = ExportPlan(precision, tensorrt, build, calibration, min_agreement, ImageSize(resize, crop), _for_engine())
    with ExportProgress(quiet=quiet) as progress:
        written = export_model(model, output, OwnModel(**own), plan, progress)
    for path in written:
        click.echo(path)
