"""`ars-bench`."""

import dataclasses
import json

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from ars.command_line import Group, version_option


@click.group(cls=Group)
@version_option
def main() -> None:
    """Measure ARS on this machine, against what its users come from."""


@main.command()
@click.option("--dimensions", default=3072, show_default=True, type=click.IntRange(1), help="Values in an input.")
@click.option("--batch", default=1000, show_default=True, type=click.IntRange(1), help="Noisy copies at a time.")
@click.option("--rounds", default=40, show_default=True, type=click.IntRange(3), help="Rounds that count.")
@click.option("--json", "as_json", is_flag=True, help="Print all times and ratios as JSON.")
def sampler(dimensions: int, batch: int, rounds: int, as_json: bool) -> None:
    """Time the native sampler against PyTorch's and numpy's ways to make noisy copies."""
    from ars.bench.sampler import NUMPY, ONE_THREAD, TORCH, TWO_THREADS, time_samplers

    timings = time_samplers(dimensions, batch, rounds)
    values = dimensions * batch
    pairs = [(ONE_THREAD, TORCH), (ONE_THREAD, NUMPY), (TWO_THREADS, ONE_THREAD)]
    ratios = [(faster, slower, timings.ratio(faster, slower)) for faster, slower in pairs]
    if as_json:
        report = {
            "dimensions": dimensions,
            "batch": batch,
            "seconds": timings.seconds,
            "ratios": [{"faster": f, "slower": s} | dataclasses.asdict(ratio) for f, s, ratio in ratios],
        }
        click.echo(json.dumps(report, indent=2))
        return
    table = Table("", "ns a value", "± deviation", "best", title=f"{batch} noisy copies of {dimensions} values")
    for name, seconds in timings.seconds.items():
        ns = np.array(seconds) / values * 1e9
        table.add_row(name, f"{ns.mean():.2f}", f"{ns.std():.2f}", f"{ns.min():.2f}")
    console = Console()
    console.print(table)
    for faster, slower, ratio in ratios:
        console.print(
            f"{faster} is {ratio.median:.2f} times faster than {slower} ({ratio.low:.2f} to {ratio.high:.2f})"
        )
    if timings.noisy:
        click.echo("The machine is noisy: stop other work, or ask for more --rounds.", err=True)
