"""The command `ars-bench stopping`."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

from ars.bench.stopping.replay import ORDERS, Outcome, describe_origin, reorder_votes, replay
from ars.bench.stopping.rules import RULES
from ars.bench.stopping.saving import Saving, measure_saving
from ars.command_line import Command
from ars.engine.records.record import Record
from ars.engine.records.settings import RunSettings, differences
from ars.engine.records.store import read_header, read_records
from ars.engine.records.summary import radii_of_run
from ars.engine.statistics.bounds import MAX_N
from ars.engine.statistics.stopping import Grid
from ars.errors import StoreError

FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(
    cls=Command,
    examples=[
        "ars-bench stopping fixed.sqlite adaptive.sqlite",
    ],
)
@click.argument("fixed", type=FILE)
@click.argument("adaptive", type=FILE, required=False)
@click.option("--n", type=click.IntRange(1, MAX_N), help="The budget of the rules. Default: the fixed run's n.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def stopping(fixed: Path, adaptive: Path | None, n: int | None, as_json: bool) -> None:
    """Compare adaptive stopping with fixed n, and with two published rules, at the radii of its question.

    FIXED is a run store of `ars-engine certify`. ADAPTIVE is one of the same command with `--stopping adaptive`; what
    it saved and lost is measured at its radii (or at the usual ones). FIXED may lack inputs whose selected class is
    wrong, which no run certifies as their own class. If both runs are of `--only-correct`, the rules are compared on
    the other inputs; what they lose is in points of all.

    The rules are compared on the votes of FIXED in simulated orders: ours as it is, and then each rule with the largest
    --max-loss with which it really loses at most 0.5 points of certified accuracy. If --n is more than the draws of
    FIXED, the missing draws are simulated from the shares of its votes, and the output says so.
    """
    settings, whole = _read(fixed, "fixed")
    drawn = settings.plan.n
    n, saving, inputs, total = n or drawn, None, list(whole.values()), len(whole)
    question = Grid(radii_of_run(settings.plan, inputs))
    if adaptive is not None:
        others, stopped = _read(adaptive, "adaptive")
        _check_alike(fixed, settings, adaptive, others)
        _check_complete(fixed, whole, adaptive, stopped)
        if others.plan.question:
            question = Grid(others.plan.question.radii)
        saving = measure_saving(whole, stopped, question)
        inputs, total = [whole[idx] for idx in stopped if idx in whole], len(stopped)
    inputs = [record for record in inputs if record.certificate.n]  # the others ended after selection: --only-correct
    if not inputs:
        raise StoreError(fixed, "all of its inputs ended after selection", "certify again without --only-correct")
    votes = list(reorder_votes(inputs, n))
    steps = replay(votes, n, question, total * ORDERS)
    outcomes = list(track(steps, "replaying", 1 + len(RULES), console=Console(stderr=True), transient=True))
    origin = describe_origin(fixed, len(inputs), drawn, n)
    if as_json:
        facts = None if saving is None else dataclasses.asdict(saving)
        rows = [dataclasses.asdict(outcome) for outcome in outcomes]
        click.echo(json.dumps({"votes": origin, "n": n, "measured": facts, "rules": rows}, indent=2))
        return
    _show_rules(origin, n + votes[0].certificate.n0, outcomes)
    if saving is not None:
        _show_saving(saving)


def _read(store: Path, stopping: str) -> tuple[RunSettings, dict[int, Record]]:
    settings = read_header(store).settings
    found = "fixed" if settings.plan.question is None else "adaptive"
    if found != stopping:
        raise StoreError(store, f"it is a run of --stopping {found}", f"give one of --stopping {stopping}")
    records = {record.idx: record for record in read_records(store)}
    if not records:
        raise StoreError(store, "it holds no certificates", "certify some inputs first")
    return settings, records


def _check_alike(fixed: Path, settings: RunSettings, adaptive: Path, others: RunSettings) -> None:
    """Refuse runs whose votes differ, and those whose bounds are of another version than ours here."""
    for path, run in ((fixed, settings), (adaptive, others)):
        if run.bounds != run.plan.bounds_version:
            version = run.plan.bounds_version
            found = f"its bounds are of version {run.bounds or 1}, and this version of ARS has {version}"
            raise StoreError(path, found, "certify again into another store")
    # Runs that differ only in the question, and so perhaps in the bounds, have the same votes.
    alike = dataclasses.replace(others, plan=others.plan.without_question, bounds=settings.bounds)
    for name, one, other in sorted(differences(settings, alike)):
        found = f"its {name} is {other}, and that of {fixed} is {one}"
        raise StoreError(adaptive, found, f"certify one of them again with the {name} of the other")


def _check_complete(fixed: Path, whole: Mapping[int, Record], adaptive: Path, stopped: Mapping[int, Record]) -> None:
    for idx, record in stopped.items():
        if idx not in whole and record.label in (None, record.certificate.selected):
            found = f"it lacks input {idx} of {adaptive}, whose class is not wrong"
            raise StoreError(fixed, found, "certify that at fixed n too")
    if not whole.keys() & stopped.keys():
        raise StoreError(fixed, f"it has no input of {adaptive}", "compare runs of the same inputs")


def _show_rules(origin: str, whole: int, outcomes: list[Outcome]) -> None:
    table = Table("rule", "mean draws", "saving", "certified accuracy lost, at most", "max. loss", title=origin)
    for one in outcomes:
        lost = f"{100 * one.lost:.2f} points, at {one.lost_at:.2f}"
        table.add_row(
            one.rule, f"{one.mean_draws:,.0f}", f"{whole / one.mean_draws:.2f} times", lost, f"{one.max_loss:g}"
        )
    Console().print(table)


def _show_saving(saving: Saving) -> None:
    draws = f"{saving.adaptive_draws:,.0f} draws an input instead of {saving.fixed_draws:,.0f}"
    click.echo(f"measured on {saving.inputs} inputs: {draws}, {saving.times:.2f} times fewer")
    click.echo(f"certified accuracy lost: {100 * saving.lost:.2f} points at most, at {saving.lost_at:.2f}")
