"""The result of a benchmark: every raw time, and the seconds per sample that follow from them."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ars.bench.timing import Ratio, Timings

__all__ = ["FORMAT", "LOOP", "BenchResult", "Measurement", "deviation"]

LOOP = "loop"
"""The backend of the field's PyTorch loop."""

FORMAT = 1


@dataclass(frozen=True)
class Measurement:
    """One candidate, and the times of its turns. It has one turn in each round."""

    name: str
    backend: str
    precision: str
    stopping: str
    noise: str
    """The kind of the noise: isotropic, dataset or input."""
    batch: int
    threads: int
    sha256: str
    """The hash of the model file."""
    extrapolated: bool
    """Whether a turn had fewer draws than a sample, so that the seconds per sample are computed from the rate."""
    draws: int
    """The draws in a turn."""
    inputs: int
    """The inputs that are certified in a turn; 1 if all draws are of one input."""
    draws_per_sample: float
    once: float
    """The seconds that each input takes however many draws it has: those of its noise maps."""
    seconds: tuple[float, ...]
    """The seconds of the turn, in each round."""

    @property
    def seconds_per_sample(self) -> tuple[float, ...]:
        """The seconds per sample, in each round."""
        if not self.extrapolated:
            return tuple(seconds / self.inputs for seconds in self.seconds)
        return tuple(self.once + max(0.0, s - self.once) * self.draws_per_sample / self.draws for s in self.seconds)

    @property
    def draws_per_second(self) -> float:
        return self.draws / float(np.mean(self.seconds))


@dataclass(frozen=True)
class BenchResult:
    network: str
    n0: int
    n: int
    rounds: int
    measurements: tuple[Measurement, ...]
    left_out: tuple[str, ...]
    """What could not be measured, and why, in one sentence each."""
    environment: dict[str, str | int | float]
    format: int = FORMAT

    @cached_property
    def timings(self) -> Timings:
        """Seconds per sample of each candidate, round by round."""
        return Timings({one.name: list(one.seconds_per_sample) for one in self.measurements})

    @cached_property
    def fastest(self) -> Measurement:
        """The candidate that no other beats, by the median over rounds of the ratio of their times. If each is beaten
        by some other, it is the one that is beaten by the least."""

        def worst(one: Measurement) -> float:
            others = (other for other in self.measurements if other is not one)
            return min((self.timings.ratio(one.name, other.name).median for other in others), default=1.0)

        return max(self.measurements, key=worst)

    @property
    def baseline(self) -> Measurement:
        """What the others are compared with: the field's PyTorch loop, or the slowest candidate if the loop is left
        out."""
        loop = next((one for one in self.measurements if one.backend == LOOP), None)
        return loop or self.slowest_first()[0]

    def slowest_first(self) -> list[Measurement]:
        """All candidates, the fastest last."""
        return [*(one for one, _ in reversed(self.ratios())), self.fastest]

    def speed_up(self, one: Measurement) -> Ratio:
        """How many times as fast as the baseline the candidate is."""
        return self.timings.ratio(one.name, self.baseline.name)

    def ratios(self) -> list[tuple[Measurement, Ratio]]:
        """How many times as fast the fastest is as each other candidate, the nearest first."""
        others = [one for one in self.measurements if one is not self.fastest]
        ratios = [(one, self.timings.ratio(self.fastest.name, one.name)) for one in others]
        return sorted(ratios, key=lambda pair: pair[1].median)

    def as_json(self) -> str:
        """The whole result, with the numbers that follow from the raw times."""
        content = dataclasses.asdict(self)
        for stored, one in zip(content["measurements"], self.measurements, strict=True):
            per_sample = one.seconds_per_sample
            stored["seconds_per_sample"] = per_sample
            stored["draws_per_second"] = one.draws_per_second
            stored |= {"mean": float(np.mean(per_sample)), "deviation": deviation(per_sample)}
            stored |= {"lowest": min(per_sample), "highest": max(per_sample)}
            stored["speed_up"] = dataclasses.asdict(self.speed_up(one))
        content["baseline"], fastest = self.baseline.name, self.fastest.name
        content["ratios"] = [
            {"faster": fastest, "slower": one.name} | dataclasses.asdict(ratio) for one, ratio in self.ratios()
        ]
        return json.dumps(content, indent=2) + "\n"


def deviation(values: Sequence[float]) -> float:
    """The sample standard deviation."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
