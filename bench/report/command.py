"""The command `ars-bench report`."""

from pathlib import Path

import click

from ars.command_line import Command

PATH = click.Path(path_type=Path)


@click.command(
    cls=Command,
    examples=[
        "ars-bench report run.sqlite",
        "ars-bench report runs/ -o site/",
    ],
)
@click.argument("runs", nargs=-1, required=True, type=PATH)
@click.option("--bench", multiple=True, type=PATH, help="A benchmark, from `ars-bench run --export-json`.")
@click.option("--data", "data", multiple=True, help="The data of runs, if it has moved since.")
@click.option("--noise", "noise", multiple=True, type=PATH, help="A run's noise generator or maps, if they have moved.")
@click.option("--only", help='Show these inputs, like "3,17". Default: three of each run.')
@click.option("--figures", type=PATH, help="Also write the figures here: SVG, PNG, PDF.")
@click.option("-o", "--output", type=PATH, default="report.html", show_default=True, help="The page; - is stdout.")
def report(
    runs: tuple[Path, ...],
    output: Path,
    bench: tuple[Path, ...],
    data: tuple[str, ...],
    noise: tuple[Path, ...],
    only: str | None,
    figures: Path | None,
) -> None:
    """Make one self-contained page of run stores: curves, draws, times, inputs, and every certificate. Of a folder of
    runs, make a site: a page for each run, and an index that compares any two."""
    from ars.bench.report.site import write_site
    from ars.bench.report.write import write_report
    from ars.engine.records.reopen import refuse_runs
    from ars.errors import ArgumentError
    from ars.output import open_output, refuse_inputs

    if any(run.is_dir() for run in runs):
        if len(runs) > 1 or bench or data or noise or only or figures:
            raise ArgumentError("runs", runs[0], "a folder of runs is given alone, with -o for the folder of the site")
        site = Path("site") if output == Path("report.html") else output
        indexed = write_site(runs[0], site)
        click.echo(f"{site / 'index.html'}: {len(indexed)} runs; open it in a browser", err=True)
        return
    refuse_runs(output, runs)
    refuse_inputs(output, [*bench, *data, *noise])
    with open_output(output) as page:
        written = write_report(runs, page, benches=bench, data=data, noise=noise, only=only, figures=figures)
    certificates = sum(run.summary.inputs for run in written)
    number = "one run" if len(written) == 1 else f"{len(written)} runs"
    click.echo(f"{output}: {certificates:,} certificates of {number}; open it in a browser", err=True)
