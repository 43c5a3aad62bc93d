"""Shows a benchmark on the terminal: the table, the fastest candidate against each of the others, and advice."""

import click
from rich.console import Console
from rich.table import Table

from ars.bench.run.export import HEADS, cells, footnote
from ars.bench.run.result import BenchResult

__all__ = ["show"]


def show(result: BenchResult, *, to_stderr: bool = False) -> None:
    """Print the table, and how many times as fast the fastest candidate is as each of the others.

    Advice goes to stderr. So does everything else if an export is written to stdout.
    """
    for reason in result.left_out:
        click.echo(reason, err=True)
    table = Table(title=f"{result.network}: seconds per sample", title_justify="left")
    for number, head in enumerate(HEADS):
        table.add_column(head, justify="right" if number else "left", no_wrap=True)
    for row in cells(result):
        table.add_row(*row)
    # A table takes only the width that it needs, so with this limit nothing is cut off. Names are not parsed as markup.
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
