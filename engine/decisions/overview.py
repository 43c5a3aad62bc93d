"""A run in the numbers that people decide with, each with its interval: certified accuracy at the radii asked for, the
distribution of pA, the average certified radius, abstentions, and the cost."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ars.engine.decisions.sample import describe_unfinished, sample_of, sigma_groups
from ars.engine.records.record import Record
from ars.engine.records.stored_run import Run
from ars.engine.records.summary import count_certified, radii_of_run
from ars.engine.statistics.accuracy import LEVEL, Interval, average_interval
from ars.engine.statistics.certificate import format_radius, name_radius
from ars.engine.statistics.looks import Look
from ars.engine.statistics.losses import MAX_LOSS
from ars.engine.statistics.stopping import Grid
from ars.noise import NoiseKind, Scope

__all__ = [
    "Accuracy",
    "Best",
    "Overview",
    "describe_level",
    "find_best",
    "find_caveats",
    "find_radii",
    "find_reach",
    "overview",
    "p_a_quartiles",
]


@dataclass(frozen=True)
class Accuracy:
    """Certified accuracy at a radius."""

    radius: float
    share: float
    interval: Interval


@dataclass(frozen=True)
class Overview:
    """A run in a few numbers. The intervals speak of all inputs of the data."""

    name: str
    model: str | None
    data: str | None
    family: str
    kind: NoiseKind
    scope: Scope
    norm: str
    sigma: float
    """The median of the smallest scales of the inputs."""
    n: int
    alpha: float
    two_sided: bool
    stopping: str
    inputs: int
    population: int | None
    """The number of inputs that the intervals speak of; None if it is not known."""
    exact: bool
    """Whether all of these are certified, so that the accuracies have no sampling error."""
    labelled: int
    abstained: int
    accuracies: tuple[Accuracy, ...]
    """Empty without labels."""
    p_a: tuple[float, float, float]
    acr: float
    acr_interval: Interval
    at_least: bool
    """Whether more draws for each input would have given larger radii: adaptive stopping ends before."""
    volume: float
    draws: int
    seconds: float
    notes: tuple[str, ...]


def find_radii(runs: Sequence[Run]) -> tuple[float, ...]:
    """The radii for these runs if nobody asks for others: those of the run that certifies the largest one, as far as
    something is certified."""
    run = max(runs, key=lambda run: max(record.certificate.radius for record in run.records))
    radii = radii_of_run(run.header.settings.plan, run.records)
    largest = max((record.certificate.radius for record in run.records if record.correct), default=0.0)
    return tuple(radius for radius in radii if radius <= largest) or radii[:1]


def overview(run: Run, radii: Sequence[float]) -> Overview:
    """A run at these radii, in the norm of its noise family."""
    settings, origin = run.header.settings, run.header.origin
    sample = sample_of(run)
    records, labelled = sample.records, sample.labelled
    accuracies = [
        Accuracy(radius, number / len(labelled), sample.interval(number))
        for radius, number in zip(radii, count_certified(labelled, radii), strict=True)
        if labelled
    ]
    values = [record.certificate.radius if record.correct else 0.0 for record in labelled] or [0.0]
    volumes = [record.certificate.volume_radius for record in labelled if record.correct]
    return Overview(
        name=run.name,
        model=origin.engine_file,
        data=origin.data_name,
        family=settings.family,
        kind=settings.kind,
        scope=run.scope,
        norm=run.norm,
        sigma=run.sigma,
        n=settings.plan.n,
        alpha=settings.plan.alpha,
        two_sided=settings.plan.two_sided,
        stopping="fixed" if settings.plan.question is None else "adaptive",
        inputs=len(records),
        population=sample.population,
        exact=sample.exact,
        labelled=len(labelled),
        abstained=sum(record.certificate.abstained for record in records),
        accuracies=tuple(accuracies),
        p_a=p_a_quartiles(records),
        acr=math.fsum(values) / len(values),
        acr_interval=average_interval(values, sample.labelled_population),
        at_least=settings.plan.question is not None,
        volume=sum(volumes) / max(1, len(labelled)),
        draws=sum(record.draws for record in records),
        seconds=sum(record.seconds for record in records),
        notes=tuple(_notes(run, records, len(records) - len(labelled), radii)),
    )


def _notes(run: Run, records: Sequence[Record], unlabelled: int, radii: Sequence[float]) -> Iterator[str]:
    """What a reader of the numbers has to know, in sentences."""
    sampling = run.header.sampling
    if sampling.target is not None and sampling.looked is not None:
        yield (
            f"{len(records):,} inputs in random order were enough for intervals of the width "
            f"{sampling.target.width:g} at {_list(sampling.target.radii)}; the intervals hold although that number "
            "was not fixed beforehand"
        )
    if unlabelled:
        yield f"{unlabelled:,} inputs have no labels and count in no accuracy"
    yield from find_caveats(run, radii)
    if run.header.settings.noise_stream == 1:
        yield "the certificates assume real arithmetic (noise stream 1)"


def find_caveats(run: Run, radii: Sequence[float]) -> Iterator[str]:
    """Why certified accuracy at these radii is not all that it could be, in sentences."""
    plan = run.header.settings.plan
    if (unfinished := describe_unfinished(run)) is not None:
        yield unfinished
    reach = find_reach(run)
    if beyond := [radius for radius in radii if radius > reach]:
        yield (
            f"no certificate of {plan.n:,} draws reaches the radius {_list(beyond)}: with sigma {run.sigma:.4g} the "
            f"largest is {format_radius(reach)}"
        )
    grid = plan.question.radii if isinstance(plan.question, Grid) else radii
    if others := [radius for radius in radii if radius not in grid and radius <= reach]:
        yield (
            f"adaptive stopping was not asked about the radius {_list(others)}: with all draws, more inputs could be "
            "certified there"
        )
    if plan.question is not None and plan.max_loss != MAX_LOSS:
        yield f"adaptive stopping was allowed to lose about {plan.max_loss:g} points against {plan.n:,} draws"


def _list(radii: Sequence[float]) -> str:
    return ", ".join(name_radius(radius) for radius in radii)


def p_a_quartiles(records: Sequence[Record]) -> tuple[float, float, float]:
    """The quartiles of the lower bound on pA, over the inputs that took draws for it."""
    bounded = [record.certificate.p_a for record in records if record.certificate.n]
    low, middle, high = np.quantile(bounded or [0.0], (0.25, 0.5, 0.75)).tolist()
    return low, middle, high


def find_reach(run: Run) -> float:
    """The largest radius that any input of the run could have got, with all n votes for its class."""
    plan = run.header.settings.plan
    noises = {(record.certificate.sigma_min, record.certificate.eta): record.certificate for record in run.records}
    votes = Look(plan.n, plan.n, 0)
    return max(made.noise_family.radius(*plan.bound_at_n(votes, eta), sigma) for (sigma, eta), made in noises.items())


@dataclass(frozen=True)
class Best:
    """Runs on the same data with the same kind of noise, and the best certified accuracy among them at each radius."""

    runs: tuple[str, ...]
    sigmas: tuple[float, ...]
    norm: str
    shares: tuple[float, ...]


def find_best(runs: Sequence[Run], overviews: Sequence[Overview]) -> list[Best]:
    """The best over sigma, for each group of runs that differ in sigma."""
    found = []
    for numbers in sigma_groups(runs):
        group = [overviews[number] for number in numbers]
        shares = zip(*([at.share for at in one.accuracies] for one in group), strict=True)
        names, sigmas = tuple(one.name for one in group), tuple(one.sigma for one in group)
        found.append(Best(names, sigmas, group[0].norm, tuple(map(max, shares))))
    return found


def describe_level(overviews: Sequence[Overview]) -> str:
    """What the intervals are, in one sentence."""
    if all(one.exact for one in overviews):
        return "All inputs of the data are certified: certified accuracy has no sampling error."
    return (
        f"Intervals have a confidence of {LEVEL:.0%} and speak of all inputs of the data, of which the certified ones "
        "are taken to be a random sample."
    )
