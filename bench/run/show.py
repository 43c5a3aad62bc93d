"""A benchmark on the terminal: the table, how fast the fastest is against each other one, and advice."""

import click
from rich.console import Console
from rich.table import Table

from ars.bench.run.export import HEADS, cells, footnote
from ars.bench.run.result import BenchResult

__all__ = ["show"]


def show(result: BenchResult, *, to_stderr: bool = False) -> None:
    """Figures go to stdout, or, where that is an export's, to stderr like advice; the last lines say how fast the
    fastest is."""
    for reason in result.left_out:
        click.echo(reason, err=True)
    table = Table(title=f"{result.network}: seconds per sample", title_justify="left")
    for number, head in enumerate(HEADS):
        table.add_column(head, justify="right" if number else "left", no_wrap=True)
    for row in cells(result):
        table.add_row(*row)
    # Wide enough for any table, which takes only its own width: nothing is cut. Names are no markup.
    Console(stderr=to_stderr, width=10_000, markup=False, emoji=False).print(table)
    click.echo(footnote(result), err=to_stderr)
    if result.timings.noisy:
        advice = "stop other work, ask for more --rounds, or use fewer --threads than cores"
        click.echo(f"The machine is noisy: {advice}.", err=True)
    ratios = result.ratios()
    if ratios:
        click.echo(f"\n{result.fastest.name} is", err=to_stderr)
        for one, ratio in ratios:
            line = f"{ratio.median:8.2f} times as fast as {one.name} ({ratio.low:.2f} to {ratio.high:.2f})"
            click.echo(line, err=to_stderr)
