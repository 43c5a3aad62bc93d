"""`ars-export`."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ars.checks import whole_number
from ars.command_line import Command, version_option
from ars.errors import ArgumentError, MissingPackage
from ars.manifest import Profile
from ars.noise import FAMILIES
from ars.output import refuse_inputs

FILE = click.Path(dir_okay=False, path_type=Path)


class CommaList(click.ParamType[tuple[Any, ...]]):
    """A list of values, separated by commas."""

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


# The options that matter only if an engine is built.
ENGINE = (
    "compute_capability",
    "min_batch",
    "opt_batch",
    "max_batch",
    "static_batch",
    "workspace",
    "timing_cache",
    "builder_optimization_level",
)


def _for_engine() -> tuple[str, ...]:
    """The options for engines that were given on the command line."""
    source = click.get_current_context().get_parameter_source
    return tuple(f"--{name.replace('_', '-')}" for name in ENGINE if source(name) is not ParameterSource.DEFAULT)


@click.command(
    cls=Command,
    examples=[
        "ars-export model.pt --precision fp32,fp16,int8",
        "ars-export mine.onnx --sigma 0.25 --calibration train.npz -o exported/",
        "ars-export --arch resnet20 --weights best.pth --sigma 0.5 --calibration train.npz",
    ],
)
@click.argument("model", type=FILE, required=False)
@click.option(
    "--precision", type=CommaList("fp32,fp16,int8", str), default=(), help="fp32, fp16, int8. Default: the model's."
)
@click.option("--calibration", help="Data to calibrate and compare on. Default: the examples in a model.pt.")
@click.option("--resize", type=click.IntRange(1), help="Resize the shorter side of each image to this.")
@click.option("--crop", type=click.IntRange(1), help="Then crop a square of this size from the centre.")
@click.option("--min-agreement", type=float, default=0.98, show_default=True, help="Lowest agreement of fp16 and int8.")
@click.option(
    "--tensorrt",
    type=click.Choice(["auto", "on", "off"]),
    default="auto",
    show_default=True,
    help="Build an engine; auto: if there is a GPU.",
)
@click.option(
    "--compute-capability", type=CommaList("8.6,8.9", str), default=(), help="Of the GPUs to build the engine for."
)
@click.option("--min-batch", type=int, default=1, show_default=True, help="The engine's smallest batch.")
@click.option(
    "--opt-batch", type=int, default=256, show_default=True, help="The batch that the engine is optimised for."
)
@click.option("--max-batch", type=int, default=1024, show_default=True, help="The engine's largest batch.")
@click.option("--static-batch", type=int, help="Build it for batches of this size only, instead of these three.")
@click.option("--workspace", type=int, help="MiB of GPU memory that the engine may use as scratch space.")
@click.option("--timing-cache", type=FILE, help="A file that speeds up the next build (tensorrt).")
@click.option("--builder-optimization-level", type=int, help="0 builds quickly, 5 builds fast engines.")
@click.option("--arch", help="Your own weights: resnet20 ... resnet110, resnet18, 34, 50, 101, timm:NAME, or cnn.")
@click.option("--weights", type=FILE, help="With --arch: a state_dict, a checkpoint of the field's, or .safetensors.")
@click.option("--shape", type=CommaList("3,32,32", _side), help="Input shape of your own model, like 3,32,32.")
@click.option(
    "--classes", type=CommaList("cat,dog", str), help="Number or names of your own model's classes, or a file of them."
)
@click.option("--logits", help="The output of your own ONNX file that has the logits, or the probabilities.")
@click.option(
    "--pixel-mean",
    type=CommaList("0.5,0.5,0.5", float),
    help="The mean of your own model's (x - mean) / deviation, by channel.",
)
@click.option("--pixel-deviation", type=CommaList("0.2,0.2,0.2", float), help="Its deviation, by channel.")
@click.option("--sigma", type=float, help="The scale of your own model's noise, in pixel units.")
@click.option("--family", help=f"Its family: {', '.join(FAMILIES)}.")
@click.option(
    "-o", "--output", type=click.Path(file_okay=False, path_type=Path), help="Output folder. Default: the model's."
)
@click.option("--overwrite", is_flag=True, help="Replace files that exist and are not of an earlier export.")
@click.option("--quiet", is_flag=True, help="No progress and no advice.")
@version_option
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
    static_batch: int | None,
    workspace: int | None,
    timing_cache: Path | None,
    builder_optimization_level: int | None,
    overwrite: bool,
    quiet: bool,
    **own: Any,
) -> None:
    """Export a model to ONNX, with its noise and a manifest; on request also in other precisions and to TensorRT.

    MODEL is a model.pt written by ars-train, or a model of your own: a TorchScript, torch.export or ONNX file, or, with
    no MODEL, --arch and --weights. Your own models need --sigma and --calibration.
    """
    only_onnx = model is not None and model.suffix == ".onnx"
    for package in ("onnx", "onnxruntime") if only_onnx else ("torch", "onnx", "onnxscript"):
        if importlib.util.find_spec(package) is None:
            raise MissingPackage(package, "cpu" if only_onnx else "train")
    from ars.data import ImageSize
    from ars.export.pipeline import ExportPlan, export_model
    from ars.export.progress import ExportProgress
    from ars.export.source import OwnModel
    from ars.export.tensorrt import LARGEST_BATCH, BuildOptions

    given = _for_engine()
    if static_batch is not None:
        for option in ("--min-batch", "--opt-batch", "--max-batch"):
            if option in given:
                raise ArgumentError("static-batch", static_batch, f"it takes the place of {option}: omit one of them")
        whole_number("static-batch", static_batch, 1, LARGEST_BATCH, f"it must be between 1 and {LARGEST_BATCH}")
        min_batch = opt_batch = max_batch = static_batch
    profile = Profile(min_batch, opt_batch, max_batch)
    build = BuildOptions(profile, compute_capability, workspace, timing_cache, builder_optimization_level)
    if timing_cache is not None:
        refuse_inputs(timing_cache, [each for each in (model, own["weights"], calibration) if each is not None])
    size = ImageSize(resize, crop)
    plan = ExportPlan(precision, tensorrt, build, calibration, min_agreement, size, given, overwrite)
    with ExportProgress(quiet=quiet) as progress:
        written = export_model(model, output, OwnModel(**own), plan, progress)
    for path in written:
        click.echo(path)
