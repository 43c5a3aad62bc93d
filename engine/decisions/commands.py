"""The commands `ars-engine summary`, `compare` and `check`."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import click

from ars.command_line import Command
from ars.engine.decisions.comparison import Comparison, compare_runs
from ars.engine.decisions.overview import find_best, find_radii, overview
from ars.engine.decisions.requirements import Requirement, check_run, write_junit
from ars.engine.decisions.show import FORMATS, align
from ars.engine.records.reopen import refuse_runs
from ars.engine.records.stored_run import Run, name_runs, read_run
from ars.engine.statistics.accuracy import LEVEL
from ars.engine.statistics.stopping import Grid
from ars.errors import ArgumentError
from ars.noise import Scope
from ars.output import open_output

FILE = click.Path(dir_okay=False, path_type=Path)

radii_option = click.option("--radii", help="A list like 0,0.25,0.5. Default: as far as something is certified.")
output_option = click.option("-o", "--output", type=FILE, default=Path("-"), help="The output file; - is stdout.")

SHOWN_CHANGES = 20


def _read(paths: Sequence[Path]) -> list[Run]:
    return [read_run(path, name) for path, name in zip(paths, name_runs(paths), strict=True)]


def _radii(text: str | None, runs: Sequence[Run]) -> tuple[float, ...]:
    return find_radii(runs) if text is None else Grid.parse(text).radii


@click.command(
    cls=Command,
    examples=[
        "ars-engine summary run.sqlite",
        "ars-engine summary runs/*.sqlite --format markdown -o table.md",
    ],
)
@click.argument("runs", nargs=-1, required=True, type=FILE)
@radii_option
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMATS)),
    default="text",
    show_default=True,
    help="The form of the table.",
)
@output_option
def summary(runs: tuple[Path, ...], form: str, radii: str | None, output: Path) -> None:
    """Print certified accuracy by radius with its interval, and what else is known of each run; for runs of several
    sigmas also the best over sigma."""
    refuse_runs(output, runs)
    found = _read(runs)
    at = _radii(radii, found)
    overviews = [overview(run, at) for run in found]
    with open_output(output) as file:
        file.write(FORMATS[form](overviews, find_best(found, overviews)))


@click.command(
    cls=Command,
    examples=[
        "ars-engine compare before.sqlite after.sqlite --radii 0.5,1",
    ],
)
@click.argument("first", type=FILE)
@click.argument("second", type=FILE)
@radii_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def compare(first: Path, second: Path, radii: str | None, as_json: bool) -> None:
    """Say whether the second run is better or worse than the first, on the inputs that both certified."""
    one, other = _read([first, second])
    found = compare_runs(one, other, _radii(radii, [one, other]))
    if as_json:
        settings = [difference._asdict() for difference in found.settings]
        content = dataclasses.asdict(found) | {"settings": settings, "verdict": found.verdict, "level": LEVEL}
        click.echo(json.dumps(content, indent=2))
    else:
        click.echo(_show(found))


def _show(found: Comparison) -> str:
    rows = [["radius", found.first, found.second, "difference", f"{LEVEL:.0%} interval", "gained", "lost", "p", ""]]
    rows += [[*pair.cells, pair.verdict] for pair in found.pairs]
    lines = [f"Certified accuracy in percent on the {found.inputs:,} labelled inputs of both runs", align(rows)]
    lines.append("p is that of McNemar's exact test, adjusted for the number of radii (Holm).")
    if found.only_first or found.only_second:
        only = f"{found.only_first:,} inputs only in {found.first}, {found.only_second:,} only in {found.second}"
        lines.append(f"Left out: {only}.")
    if found.changed:
        more = len(found.changed) - SHOWN_CHANGES
        ids = " ".join(map(str, found.changed[:SHOWN_CHANGES])) + (f" and {more:,} more" if more > 0 else "")
        lines.append(f"{len(found.changed):,} inputs have another answer: {ids}")
    lines += [f"setting {line}" for line in found.setting_lines]
    lines += [f"note: {note}" for note in found.notes]
    return "\n".join([*lines, found.verdict])


@click.command(
    cls=Command,
    examples=[
        "ars-engine check run.sqlite --require 0.5:0.60 --junit checks.xml",
    ],
)
@click.argument("run", type=FILE)
@click.option("--require", multiple=True, help="A radius and the least certified accuracy there, like 0.5:0.60.")
@click.option("--require-scope", type=click.Choice([scope.value for scope in Scope]), help="The scope it must have.")
@click.option("--lower-bound", is_flag=True, help="Require it of the lower end of the interval.")
@click.option("--junit", type=FILE, help="Also write JUnit XML.")
@click.pass_context
def check(
    context: click.Context,
    run: Path,
    require: tuple[str, ...],
    require_scope: str | None,
    lower_bound: bool,
    junit: Path | None,
) -> None:
    """Check requirements of a run, for pipelines. Exit status: 0 if all are met, 1 if not, 2 for bad input."""
    requirements = [Requirement.parse(text) for text in require]
    if not requirements and require_scope is None:
        raise ArgumentError("require", "nothing", "give --require, like 0.5:0.60, or --require-scope")
    if junit is not None:
        refuse_runs(junit, [run])
    scope = None if require_scope is None else Scope(require_scope)
    checks, notes = check_run(read_run(run), requirements, scope, lower_bound=lower_bound)
    for one in checks:
        click.echo(f"{'ok    ' if one.met else 'FAILED'}  {one.name}: {one.said}")
    for note in notes:
        click.echo(f"note: {note}")
    if junit is not None:
        with open_output(junit) as file:
            file.write(write_junit(str(run), checks))
    context.exit(0 if all(one.met for one in checks) else 1)
