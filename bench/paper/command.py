"""The command `ars-bench paper`."""

from pathlib import Path

import click

from ars.command_line import Command
from ars.output import open_output, refuse_inputs

PATH = click.Path(path_type=Path)


@click.command(cls=Command)
@click.argument("models", nargs=-1, required=True, type=PATH)
@click.option("--data", help="Certify models on this: fashion-mnist:test, .npz, folder, CIFAR-10 .bin.")
@click.option(
    "--max", "most", type=click.IntRange(1), default=500, show_default=True, help="Take at most so many inputs."
)
@click.option("--only", help='Take only these, like "0-9999/20".')
@click.option(
    "--n", type=click.IntRange(1), default=10_000, show_default=True, help="Draws that bound a class's share."
)
@click.option("--backend", default="auto", show_default=True, help="What runs the classifiers.")
@click.option("--batch", type=click.IntRange(1), help="Draws in a batch. Default: the fastest, measured.")
@click.option(
    "--attack",
    type=click.Choice(["generator", "smoothed", "classifier", "none"]),
    default="generator",
    show_default=True,
    help="What PGD knows: all, through the generator; the maps as given; the classifier alone.",
)
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(3), help="Rounds that time the generator.")
@click.option(
    "--folder", type=PATH, default=Path("paper"), show_default=True, help="For run stores and attacked inputs."
)
@click.option("-o", "--output", type=PATH, default=Path("-"), help="The tables, as Markdown; - is stdout.")
def paper(
    models: tuple[Path, ...],
    data: str | None,
    most: int,
    only: str | None,
    n: int,
    backend: str,
    batch: int | None,
    attack: str,
    rounds: int,
    folder: Path,
    output: Path,
) -> None:
    """Make the paper's tables for the models at hand, with the paper's own figures beside them.

    MODELS are exported models, which are certified on --data, before and after PGD; or run stores, taken as they are.
    The same command again goes on where it was stopped.
    """
    from ars.bench.paper.write import Inputs, write_tables

    refuse_inputs(output, [*models, *([data] if data else [])])
    inputs = Inputs(data, most, only)
    how = ["--n", str(n), "--backend", backend, *(["--batch", str(batch)] if batch else [])]
    with open_output(output) as file:
        write_tables(models, inputs, how, attack, rounds, folder, file)
