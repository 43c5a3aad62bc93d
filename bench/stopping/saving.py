"""What adaptive stopping saves in draws and loses in certified accuracy, against fixed n."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ars.engine.records.record import Record
from ars.engine.statistics.stopping import NO_RADIUS, Grid

__all__ = ["Answer", "Saving", "find_worst_loss", "measure_saving"]

Answer = tuple[bool, float]
"""Whether the class of an input is right (or has no label to compare it with), and its radius, or NO_RADIUS."""


@dataclass(frozen=True)
class Saving:
    """An adaptive run beside a run at fixed n."""

    inputs: int
    fixed_draws: float
    """The mean number of draws of an input."""
    adaptive_draws: float
    lost: float
    """The certified accuracy lost at the radius where most is lost, as a fraction of the inputs."""
    lost_at: float
    """That radius."""

    @property
    def times(self) -> float:
        return self.fixed_draws / self.adaptive_draws


def measure_saving(fixed: Mapping[int, Record], adaptive: Mapping[int, Record], question: Grid) -> Saving:
    """What an adaptive run saved, and what it lost at the radii of a question.

    The fixed run may lack inputs whose selected class is wrong: these count as certified at no radius.
    """
    both = [fixed[idx] for idx in adaptive if idx in fixed]
    answers = [*map(_answer, both)], [*map(_answer, adaptive.values())]
    lost, lost_at = find_worst_loss(*answers, question, len(adaptive))
    fixed_draws = float(np.mean([record.draws for record in both]))
    adaptive_draws = float(np.mean([record.draws for record in adaptive.values()]))
    return Saving(len(adaptive), fixed_draws, adaptive_draws, lost, lost_at)


def _answer(record: Record) -> Answer:
    made = record.certificate
    return record.label in (None, made.selected), NO_RADIUS if made.abstained else made.radius


def find_worst_loss(
    fixed: Sequence[Answer], found: Sequence[Answer], question: Grid, total: int
) -> tuple[float, float]:
    """The most certified accuracy lost at a radius of the question, as a fraction of `total` inputs, and that radius.

    `fixed` has the answers at fixed n and `found` those to compare with them. Both may leave out inputs of a wrong
    class, which are certified at no radius.
    """

    def certified(answers: Sequence[Answer], at: float) -> int:
        return sum(right and radius >= at for right, radius in answers)

    losses = {at: (certified(fixed, at) - certified(found, at)) / total for at in question.radii}
    worst = max(losses, key=lambda at: losses[at])
    return losses[worst], worst
