"""The attacks on the runs of a report: certified radius against smallest attack."""

from dataclasses import dataclass

from ars.bench.attack.attack_file import Attacked, AttackSettings, read_attacks
from ars.bench.attack.show import quartiles
from ars.bench.report.runs import Run
from ars.engine.statistics.certificate import format_radius, format_upper

__all__ = ["RunAttacks", "attacks_of"]


@dataclass(frozen=True)
class RunAttacks:
    """The attacks on a run, by the numbers of its inputs."""

    settings: AttackSettings
    attacked: dict[int, Attacked]

    def show(self, idx: int) -> str:
        """The smallest attack on an input, rounded up, or how far there is none; nothing if it was not attacked."""
        one = self.attacked.get(idx)
        if one is None:
            return ""
        bound = one.upper_radius
        return f"> {format_radius(farthest(one))}" if bound is None else format_upper(bound)

    @property
    def inside(self) -> int:
        return sum(one.inside for one in self.attacked.values())

    @property
    def median_ratio(self) -> str:
        """The median of the smallest attacks in units of their certificates, rounded up."""
        median = quartiles([one.ratio for one in self.attacked.values()])[1]
        return format_upper(median, 2) if median < float("inf") else f"> {self.settings.reach:g}"


def farthest(attacked: Attacked) -> float:
    """The radius up to which attacks were tried."""
    return attacked.limit / attacked.K * attacked.radius


def attacks_of(run: Run) -> RunAttacks | None:
    """The attacks on a run, without those on inputs that were certified differently since; None if there are none."""
    found = read_attacks(run.path, run.header.settings)
    if found is None:
        return None
    settings, attacked = found
    certified = {record.idx: (record.input_sha256, record.certificate.K) for record in run.records}
    known = {one.idx: one for one in attacked if certified.get(one.idx) == (one.input_sha256, one.K)}
    return RunAttacks(settings, known) if known else None
