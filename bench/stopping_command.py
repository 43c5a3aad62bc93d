"""The command `ars-bench stopping`."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import click
from click.core import ParameterSource
from rich.console import Console
from rich.table import Table

from ars.bench.stopping import Measured, Outcome, Votes, measure, replay, votes_of_run
from ars.command_line import Command
from ars.data import ImageSize, open_data, select
from ars.engine.algorithms import Plan
from ars.engine.run import read_examples
from ars.engine.smoothed import load
from ars.engine.stopping import Grid
from ars.engine.store import read_records, read_settings
from ars.errors import ArgumentError, StoreError

FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(cls=Command)
@click.option("--run", "store", type=FILE, help="The votes of a fixed run, instead of a model's.")
@click.option("--engine", type=FILE, help="A classifier, to be certified to the end and adaptively.")
@click.option("--data", help="Its inputs.")
@click.option("--sigma", type=float, help="Isotropic noise of this scale. Default: the manifest's noise.")
@click.option("--max", "most", type=click.IntRange(1), help="Take at most so many inputs.")
@click.option("--only", help='Take only these, like "3,17,200-300".')
@click.option("--n0", default=100, show_default=True, type=click.IntRange(1), help="Draws that select the class.")
@click.option("--n", default=100_000, show_default=True, type=click.IntRange(1), help="The budget of draws.")
@click.option("--alpha", type=float, default=0.001, show_default=True, help="Allowed share of errors.")
@click.option("--two-sided", is_flag=True, help="Bound the runner-up's share too.")
@click.option("--batch", type=click.IntRange(1), help="Draws in a batch. Default: the fastest, measured.")
@click.option("--threads", type=click.IntRange(1), help="Batches at work side by side. Default: the cores.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--quiet", is_flag=True, help="No progress.")
def stopping(
    store: Path | None,
    engine: Path | None,
    data: str | None,
    sigma: float | None,
    most: int | None,
    only: str | None,
    n0: int,
    n: int,
    alpha: float,
    two_sided: bool,
    batch: int | None,
    threads: int | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Compare adaptive stopping with fixed n, and with two published rules, on the field's grid of radii.

    With --engine and --data, both are measured, and the rules are replayed on the votes of the fixed run. With --run,
    the votes come from a store: where it has fewer draws than --n, the others are simulated from its shares, and it is
    said.
    """
    measured = None
    if store is not None:
        if engine or data:
            raise ArgumentError("run", store, "give either --run, or --engine and --data")
        _refuse_of_a_model(store)
        votes, origin = _from_store(store, n, most)
    else:
        if engine is None or data is None:
            raise ArgumentError("engine", engine, "give --engine and --data, or --run")
        plan = Plan(n0, n, alpha, two_sided, Grid())
        with load(engine, sigma=sigma, batch=batch, threads=threads) as classifier:
            source = open_data(data, ImageSize(channels=classifier.channels))
            ids = select(len(source), most=most, only=only)
            examples = list(read_examples(source, ids, classifier.runner.classes, None))
            measured, votes = measure(classifier, examples, plan, quiet=quiet)
        origin = f"{len(votes)} inputs of {source.name} by {engine}, all draws measured"
    outcomes = replay(votes, n)
    if as_json:
        facts = None if measured is None else dataclasses.asdict(measured)
        rows = [dataclasses.asdict(outcome) for outcome in outcomes]
        click.echo(json.dumps({"votes": origin, "n": n, "measured": facts, "rules": rows}, indent=2))
    else:
        _show(origin, n, votes, outcomes, measured)


OF_A_MODEL = ("sigma", "only", "n0", "alpha", "two_sided", "batch", "threads")


def _refuse_of_a_model(store: Path) -> None:
    """Refuse options that decide how a model is certified, where a store says what was."""
    context = click.get_current_context()
    given = [name for name in OF_A_MODEL if context.get_parameter_source(name) is not ParameterSource.DEFAULT]
    if given:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise ArgumentError("run", store, f"its votes are made, so leave out {names}, or give --engine and --data")


def _from_store(store: Path, n: int, most: int | None) -> tuple[list[Votes], str]:
    settings, _, _ = read_settings(store)
    if settings.get("stopping") != "fixed":
        raise StoreError(store, "its inputs stopped when their question was settled", "give a run of --stopping fixed")
    votes = list(votes_of_run(list(read_records(store))[:most], n))
    if not votes:
        raise StoreError(store, "it holds no certificates", "certify some inputs first")
    drawn = min(n, int(str(settings["n"])))
    rest = f", {n - drawn:,} of {n:,} draws simulated from their shares" if drawn < n else ", their order simulated"
    return votes, f"{len(votes)} inputs of {store}{rest}"


def _show(origin: str, n: int, votes: Sequence[Votes], outcomes: list[Outcome], measured: Measured | None) -> None:
    table = Table("rule", "mean draws", "saving", "certified accuracy lost, at most", title=f"budget {n:,}: {origin}")
    whole = n + votes[0].certificate.n0
    for one in outcomes:
        saving = f"{whole / one.mean_draws:.2f} times"
        table.add_row(one.rule, f"{one.mean_draws:,.0f}", saving, f"{100 * one.lost:.2f} points, at {one.lost_at:.2f}")
    Console().print(table)
    if measured is None:
        return
    click.echo(f"fixed n: {measured.fixed_draws:,.0f} draws an input, {measured.fixed_seconds:.1f} s")
    click.echo(f"adaptive: {measured.adaptive_draws:,.0f} draws an input, {measured.adaptive_seconds:.1f} s")
    kept = measured.time_saving / measured.draw_saving
    click.echo(
        f"{measured.draw_saving:.2f} times fewer draws in {measured.time_saving:.2f} times less time: {kept:.0%}"
    )
    if measured.fullness is not None:
        click.echo(f"batches were {measured.fullness:.1%} full, without the last two seconds")
