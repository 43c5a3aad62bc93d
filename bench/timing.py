"""Timings that can be compared on a noisy machine: candidates take turns, round after round, and all times are kept."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.progress import track

__all__ = ["Ratio", "Timings", "interleave"]


@dataclass(frozen=True)
class Ratio:
    """How many times faster one candidate is than another, round by round."""

    median: float
    low: float
    """The 10th percentile over rounds."""
    high: float
    """The 90th percentile."""


@dataclass(frozen=True)
class Timings:
    """The seconds of one call of each candidate, in each round."""

    seconds: dict[str, list[float]]

    def ratio(self, faster: str, slower: str) -> Ratio:
        """Within a round both candidates saw about the same machine, so ratios are taken there."""
        ratios = np.array(self.seconds[slower]) / np.array(self.seconds[faster])
        low, median, high = np.percentile(ratios, [10, 50, 90])
        return Ratio(float(median), float(low), float(high))

    @property
    def noisy(self) -> bool:
        """Whether a typical round of some candidate took 1.5 times its best one or longer."""
        return any(np.median(times) > 1.5 * min(times) for times in self.seconds.values())


# A turn lasts at least this long: long enough that waking an idle core does not count.
TURN_SECONDS = 0.15


def interleave(candidates: Mapping[str, Callable[[], object]], rounds: int) -> Timings:
    """The seconds of one call of each candidate, in rounds where each has its turn, after a warm-up."""
    calls = {name: max(1, round(TURN_SECONDS / _turn(candidate, 1))) for name, candidate in candidates.items()}
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in track(range(rounds), "measuring", console=Console(stderr=True), transient=True):
        for name, candidate in candidates.items():
            seconds[name].append(_turn(candidate, calls[name]) / calls[name])
    return Timings(seconds)


def _turn(candidate: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        candidate()
    return time.perf_counter() - start
