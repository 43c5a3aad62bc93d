"""`ars-bench bounds`: what two-sided bounds prove more than binary ones, from the same votes."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from ars.bench.stopping.replay import ORDERS, Votes, describe_origin, reorder_votes, replay_rule
from ars.bench.stopping.rules import OURS
from ars.command_line import Command
from ars.engine.records.store import read_header, read_records
from ars.engine.records.summary import radii_of_run
from ars.engine.statistics.bounds import MAX_N
from ars.engine.statistics.certificate import format_radius, name_radius
from ars.engine.statistics.losses import LEAST_LOSS, MAX_LOSS, MOST_LOSS
from ars.engine.statistics.stopping import Grid
from ars.errors import StoreError

__all__ = ["Proved", "bounds", "measure_bounds"]

FILE = click.Path(dir_okay=False, path_type=Path)


@dataclass(frozen=True)
class Proved:
    """What one kind of bounds proves of the votes of a run."""

    certified_accuracy: tuple[float, ...]
    """At fixed n, by radius of the grid."""
    average_radius: float
    mean_draws: float
    """Of adaptive stopping, over the inputs that have votes, those of selection included."""
    lost: float
    """The certified accuracy that adaptive stopping loses at the radius where it loses most."""


@click.command(
    cls=Command,
    examples=[
        "ars-bench bounds run.sqlite --n 10000",
    ],
)
@click.argument("stores", nargs=-1, required=True, type=FILE)
@click.option("--n", type=click.IntRange(1, MAX_N), help="The number of votes of each input. Default: all that it has.")
@click.option(
    "--max-loss",
    type=click.FloatRange(LEAST_LOSS, MOST_LOSS),
    default=MAX_LOSS,
    show_default=True,
    help="About how many points of certified accuracy adaptive stopping may lose.",
)
def bounds(stores: tuple[Path, ...], n: int | None, max_loss: float) -> None:
    """Compare binary with two-sided bounds on the votes of runs at fixed n.

    Certified accuracy is that of fixed n. The draws, and what they lose, are those of adaptive stopping, which looks at
    the same votes in simulated orders. Inputs that ended after selection count as not certified, and have no draws. If
    --n is more than the draws of a run, the missing draws are simulated from the shares of its votes, and the output
    says so.
    """
    for store in stores:
        settings, records = read_header(store).settings, list(read_records(store))
        if settings.plan.question:
            raise StoreError(store, "it is a run of --stopping adaptive", "give one of --stopping fixed")
        voted = [record for record in records if record.certificate.n]
        if not voted:
            raise StoreError(store, "it has no votes", "certify some inputs first")
        if any(record.label is None for record in records):
            raise StoreError(store, "some of its inputs have no label", "give a run of labelled data")
        draws = n or settings.plan.n
        question = Grid(radii_of_run(settings.plan, records))
        votes = list(reorder_votes(voted, draws))
        found = [measure_bounds(votes, draws, question, len(records), max_loss, two_sided=two) for two in (False, True)]
        origin = describe_origin(store, len(voted), settings.plan.n, draws)
        _show(f"n = {draws:,}, {len(records)} inputs: {origin}", question, *found)


def measure_bounds(
    votes: Sequence[Votes], n: int, question: Grid, inputs: int, max_loss: float = MAX_LOSS, *, two_sided: bool
) -> Proved:
    """What these bounds prove of the votes, which are in ORDERS orders, out of so many inputs."""
    votes = [
        dataclasses.replace(one, certificate=dataclasses.replace(one.certificate, two_sided=two_sided)) for one in votes
    ]
    radii = np.array([one.radius_at_n(one.looks[-1]) for one in votes if one.right])
    total = inputs * ORDERS
    outcome = replay_rule(votes, n, question, total, OURS, max_loss)
    return Proved(
        tuple(float(np.sum(radii >= radius)) / total for radius in question.radii),
        float(np.maximum(radii, 0).sum()) / total,
        outcome.mean_draws,
        outcome.lost,
    )


def _show(title: str, question: Grid, binary: Proved, two_sided: Proved) -> None:
    table = Table("", "binary", "two-sided", "difference", title=title)
    for radius, one, other in zip(question.radii, binary.certified_accuracy, two_sided.certified_accuracy, strict=True):
        if one or other:
            name = f"certified accuracy at {name_radius(radius)}"
            table.add_row(name, f"{one:.1%}", f"{other:.1%}", f"{100 * (other - one):+.1f} points")
    for name, one, other in (
        ("average certified radius", binary.average_radius, two_sided.average_radius),
        ("draws with adaptive stopping", binary.mean_draws, two_sided.mean_draws),
    ):
        show = format_radius if name.startswith("average") else "{:,.0f}".format
        table.add_row(name, show(one), show(other), f"{other / one - 1:+.1%}" if one else "")
    table.add_row("lost by adaptive stopping", *(f"{100 * one.lost:.2f} points" for one in (binary, two_sided)), "")
    Console().print(table)
