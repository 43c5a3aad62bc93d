"""The certified inputs of a run as a sample of those that it speaks of, and the runs that differ only in sigma."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ars.engine.records.record import Record
from ars.engine.records.stored_run import Run
from ars.engine.statistics.accuracy import Interval, share_interval
from ars.engine.statistics.target import Target, random_order
from ars.errors import StoreError

__all__ = ["Sample", "describe_unfinished", "sample_of", "sigma_groups"]


@dataclass(frozen=True)
class Sample:
    records: Sequence[Record]
    population: int | None
    """The number of inputs that these are a sample of: those of the data, or those among which a target chose. None if
    it is not known."""
    target: Target | None

    @property
    def exact(self) -> bool:
        """Whether all inputs are certified, so that accuracies have no sampling error."""
        return len(self.records) == self.population

    @cached_property
    def labelled(self) -> list[Record]:
        return [record for record in self.records if record.label is not None]

    @property
    def labelled_population(self) -> int | None:
        """The number of inputs with labels; None if it is not known, as long as some have none and some are not
        certified."""
        labelled = len(self.labelled)
        return labelled if self.exact else self.population if labelled == len(self.records) else None

    def interval(self, successes: int) -> Interval:
        """The interval of the share of labelled inputs, if so many of them are certified."""
        found = self.target.interval if self.target else share_interval
        return found(successes, len(self.labelled), self.labelled_population)


def sample_of(run: Run) -> Sample:
    """The records of a run that count. With a target these are the inputs of the last look; what was certified after it
    was not looked at."""
    sampling = run.header.sampling
    target, asked = sampling.target, sampling.asked
    if sampling.data_inputs is not None and len(run.records) > sampling.data_inputs:
        problem = f"it is damaged (it has {len(run.records):,} inputs, and its data {sampling.data_inputs:,})"
        raise StoreError(run.path, problem, "certify again into another store")
    if target is None or asked is None:
        return Sample(run.records, sampling.data_inputs, None)
    order = random_order(asked, run.header.settings.seed)
    chosen = set(order if sampling.looked is None else order[: sampling.looked])
    return Sample([record for record in run.records if record.idx in chosen], len(order), target)


def describe_unfinished(run: Run) -> str | None:
    """That a run is not finished, in a sentence; None if it is, or if its store does not say what was asked for."""
    sampling, asked = run.header.sampling, run.header.sampling.asked
    if sampling.target is not None:
        if sampling.looked is not None:
            return None
        return f"the run is not finished: {len(sample_of(run).records):,} inputs are certified, in random order"
    missing = 0 if asked is None else len(set(asked) - {record.idx for record in run.records})
    if asked is None or not missing:
        return None
    return f"the run is not finished: {len(asked) - missing:,} of the {len(asked):,} inputs asked for are certified"


def sigma_groups(runs: Sequence[Run]) -> list[list[int]]:
    """The numbers of finished runs with labels that differ in sigma, in groups of the same data, family, kind of noise
    and bounds. The few inputs of an unfinished run could be the easy ones."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for number, run in enumerate(runs):
        if run.summary.labelled and describe_unfinished(run) is None:
            settings = run.header.settings
            key = (settings.data, settings.family, settings.kind, settings.plan.two_sided)
            groups.setdefault(key, []).append(number)
    return [group for group in groups.values() if len({runs[number].sigma for number in group}) > 1]
