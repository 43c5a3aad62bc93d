"""The command `ars-bench paper`."""

from pathlib import Path

import click

from ars.command_line import Command
from ars.output import open_output, refuse_inputs

PATH = click.Path(path_type=Path)


@click.command(
    cls=Command,
    examples=[
        "ars-bench paper isotropic.onnx input.onnx --data test.npz -o tables.md",
    ],
)
@click.argument("models", nargs=-1, required=True, type=PATH)
@click.option("--data", help="Certify models on this: a folder, archive, or file of inputs.")
@click.option(
    "--limit", type=click.IntRange(1), default=500, show_default=True, help="Certify at most this many inputs."
)
@click.option("--only", help='Take only these, like "0-9999/20".')
@click.option("--skip", type=click.IntRange(1), default=1, help="Take every N-th input.")
@click.option("--resize", type=click.IntRange(1), help="Resize the shorter side of each image to this.")
@click.option("--crop", type=click.IntRange(1), help="Then crop a square of this size from the centre.")
@click.option(
    "--n", type=click.IntRange(1), default=10_000, show_default=True, help="Draws that bound a class's share."
)
@click.option("--backend", default="auto", show_default=True, help="What runs the classifiers.")
@click.option(
    "--only-correct",
    is_flag=True,
    help="End an input after selection if its class is wrong. The tables are the same, from fewer draws.",
)
@click.option("--batch", type=click.IntRange(1), help="Draws in a batch. Default: the fastest, measured.")
@click.option(
    "--attack",
    type=click.Choice(["generator", "smoothed", "classifier", "none"]),
    default="generator",
    show_default=True,
    help="What PGD knows: everything, through the generator; the maps as constants; or the classifier alone.",
)
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(3), help="Rounds that time the generator.")
@click.option(
    "--folder", type=PATH, default=Path("paper"), show_default=True, help="For run stores and attacked inputs."
)
@click.option("-o", "--output", type=PATH, default=Path("-"), help="The tables, as Markdown; - is stdout.")
def paper(
    models: tuple[Path, ...],
    data: str | None,
    limit: int,
    only: str | None,
    skip: int,
    resize: int | None,
    crop: int | None,
    n: int,
    backend: str,
    only_correct: bool,
    batch: int | None,
    attack: str,
    rounds: int,
    folder: Path,
    output: Path,
) -> None:
    """Make the paper's tables for the models at hand, with the paper's own figures beside them.

    MODELS are exported models, which are certified on --data before and after PGD, or run stores, which are read.
    The same command again resumes what was stopped.
    """
    from ars.bench.paper.models import Certification
    from ars.bench.paper.write import write_tables
    from ars.engine.records.inputs import Inputs
    from ars.engine.statistics.plan import Plan

    refuse_inputs(output, [*models, *([data] if data else [])])
    inputs = None if data is None else Inputs(data, resize, crop, limit=limit, skip=skip, only=only)
    how = Certification(Plan(n=n, two_sided=False), backend, batch, only_correct)
    with open_output(output) as file:
        write_tables(models, inputs, how, attack, rounds, folder, file)
