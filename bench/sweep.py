"""`ars-bench sweep`: models, precisions and sigmas over one data set, as one table and one plot."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from ars.command_line import Command
from ars.engine.decisions.show import FORMATS
from ars.errors import ArgumentError, ModelError

PATH = click.Path(path_type=Path)


@dataclass(frozen=True)
class Point:
    """One run of a sweep. Without a sigma, the noise is the model's own."""

    file: Path
    name: str
    sigma: float | None


@click.command(
    cls=Command,
    examples=[
        "ars-bench sweep model.onnx --data test.npz --sigmas 0.25,0.5,1",
    ],
)
@click.argument("models", nargs=-1, required=True, type=PATH)
@click.option("--data", required=True, help="Certify on this: fashion-mnist:test, .npz, folder, CIFAR-10 .bin.")
@click.option("--sigmas", help="Isotropic noise of these scales, like 0.25,0.5. Default: each model's own noise.")
@click.option("--own-noise", is_flag=True, help="Each model's own noise too, beside --sigmas.")
@click.option("--precisions", help="Only these, like fp32,int8. Default: all that the models have.")
@click.option("--limit", type=click.IntRange(1), default=500, show_default=True, help="At most so many inputs.")
@click.option("--only", help='Take only these, like "0-9999/20".')
@click.option("--n", type=click.IntRange(1), default=10_000, show_default=True, help="Draws that bound the share.")
@click.option("--backend", default="auto", show_default=True, help="What runs the classifiers.")
@click.option("--batch", type=click.IntRange(1), help="Draws in a batch. Default: the fastest, measured.")
@click.option("--folder", type=PATH, default=Path("sweep"), show_default=True, help="For the run stores.")
@click.option("--radii", help="A list like 0,0.25,0.5. Default: as far as something is certified.")
@click.option("--plot", type=PATH, help="Also draw certified accuracy here: .svg, .png or .pdf.")
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMATS)),
    default="text",
    show_default=True,
    help="The form of the table.",
)
@click.option("-o", "--output", type=PATH, default=Path("-"), help="The table; - is stdout.")
def sweep(
    models: tuple[Path, ...],
    data: str,
    sigmas: str | None,
    own_noise: bool,
    precisions: str | None,
    limit: int,
    only: str | None,
    n: int,
    backend: str,
    batch: int | None,
    folder: Path,
    form: str,
    radii: str | None,
    plot: Path | None,
    output: Path,
) -> None:
    """Certify models in each precision with each noise on the same inputs, into one folder of run stores.

    The same command again resumes what was stopped, and a longer one adds to it.
    """
    from ars.engine.decisions.overview import find_best, find_radii, overview
    from ars.engine.progress import TerminalProgress
    from ars.engine.records.inputs import Inputs
    from ars.engine.records.run import certify_run
    from ars.engine.records.stored_run import read_run
    from ars.engine.smoothed import load
    from ars.engine.statistics.plan import Plan
    from ars.engine.statistics.stopping import Grid
    from ars.output import make_folder, open_output, refuse_inputs

    refuse_inputs(output, [*models, data])
    if plot is not None:
        from ars.bench.report.figures import FORMATS as PLOTS

        if plot.suffix.lstrip(".") not in PLOTS:
            raise ArgumentError("plot", plot, f"its suffix is one of .{', .'.join(PLOTS)}")
    at = None if radii is None else Grid.parse(radii).radii
    points = list(_points(models, _numbers(sigmas), own_noise, precisions and precisions.split(",")))
    make_folder(folder, "--folder")
    runs = []
    for number, point in enumerate(points, 1):
        click.echo(f"{point.name}, {number} of {len(points)}", err=True)
        store = folder / f"{point.name}.sqlite"
        with (
            load(point.file, sigma=point.sigma, backend=backend, batch=batch) as classifier,
            TerminalProgress(classifier, quiet=False) as progress,
        ):
            certify_run(classifier, Inputs(data, limit=limit, only=only), Plan(n=n), store=store, progress=progress)
        runs.append(read_run(store))
    overviews = [overview(run, at or find_radii(runs)) for run in runs]
    with open_output(output) as file:
        file.write(FORMATS[form](overviews, find_best(runs, overviews)))
    if plot is not None:
        from ars.bench.report.figures import plot_accuracy

        plot_accuracy(runs, plot)


def _numbers(text: str | None) -> list[float]:
    try:
        return [] if text is None else [float(number) for number in text.split(",")]
    except ValueError:
        raise ArgumentError("sigmas", text, "it is a list like 0.25,0.5") from None


def _points(
    models: Sequence[Path], sigmas: Sequence[float], own_noise: bool, precisions: Sequence[str] | None
) -> Iterator[Point]:
    """Each file of each model with each noise. Names say which, and none is given twice."""
    from ars.bench.run.model import open_bench_model

    names = set()
    for path in models:
        if not path.is_file():
            raise ModelError(path, "there is no such file", "give exported models")
        model = open_bench_model(str(path), path.parent)
        files = [file for file in model.files if file.path.suffix == ".onnx"]
        if precisions is not None:
            files = [file for file in files if file.precision in precisions]
        if not files:
            raise ModelError(path, "it has no ONNX file in these precisions", "run `ars-export --precision` first")
        if model.noise is None and (own_noise or not sigmas):
            raise ModelError(path, "it has no noise of its own", "give --sigmas, and leave out --own-noise")
        noises = [*sigmas, *([None] if own_noise or not sigmas else [])]
        for file in files:
            for sigma in noises:
                noise = model.noise if sigma is None else f"sigma{sigma:g}"
                point = Point(file.path, f"{model.name}-{file.precision}-{noise}", sigma)
                if point.name in names:
                    raise ArgumentError("models", point.name, "give each model once, and models of different names")
                names.add(point.name)
                yield point
