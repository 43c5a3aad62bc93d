"""What the certified inputs of a run say about the inputs that were not certified: intervals for a share and for an
average, and the paired comparison of two runs. docs/deciding.md has the proofs.

All intervals have the confidence LEVEL. They assume that the certified inputs are a random sample of the others.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import special, stats

__all__ = ["LEVEL", "Interval", "average_interval", "difference_interval", "mcnemar", "share_interval"]

LEVEL = 0.95

RESAMPLES = 2000

# The part of the error probability that goes to the number of discordant pairs; the rest goes to their direction.
PAIRS_PART = 0.2


class Interval(NamedTuple):
    low: float
    high: float

    @property
    def width(self) -> float:
        return self.high - self.low


def share_interval(successes: int, inputs: int, population: int | None = None, level: float = LEVEL) -> Interval:
    """An interval for the share of successes in a population, from a sample of it without replacement. Its coverage is
    at least `level` for every share.

    It holds the shares that a hypergeometric test does not reject at half of 1 - level on either side, so it is a point
    if the whole population was sampled. Without a population, or with an infinite one, the test is binomial (Clopper
    and Pearson); that interval contains the other.
    """
    if not 0 <= successes <= inputs or inputs < 1 or (population is not None and population < inputs):
        raise ValueError(f"there are no {successes} successes in {inputs} inputs of {population}")
    tail, failures = (1 - level) / 2, inputs - successes
    if population is None:
        low = float(special.betaincinv(successes, failures + 1, tail)) if successes else 0.0
        return Interval(low, float(special.betainccinv(successes + 1, failures, tail)) if failures else 1.0)
    fewest, most = successes, population - inputs + successes  # that the population can have

    def too_few(number: int) -> bool:
        return bool(stats.hypergeom.sf(successes - 1, population, number, inputs) <= tail)

    def too_many(number: int) -> bool:
        return bool(stats.hypergeom.cdf(successes, population, number, inputs) <= tail)

    first = bisect_left(range(fewest, most), True, key=lambda number: not too_few(number))
    last = bisect_left(range(fewest, most), True, key=lambda number: too_many(number + 1))
    return Interval((fewest + first) / population, (fewest + last) / population)


def average_interval(values: Sequence[float], population: int | None = None) -> Interval:
    """A percentile bootstrap interval for the average of a population, from a sample of it without replacement. Its
    coverage is approximate, and its seed fixed, so that the same values have the same interval.

    The distances from the sample's average are multiplied by sqrt(1 - n / N), as the standard error of a sample
    without replacement is.
    """
    sample = np.asarray(values, np.float64)
    average = float(sample.mean())
    if sample.min() == sample.max() or len(sample) == population:
        return Interval(average, average)
    batch = max(1, 2**22 // len(sample))
    found = stats.bootstrap(
        (sample,),
        np.mean,
        n_resamples=RESAMPLES,
        batch=batch,
        confidence_level=LEVEL,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    shrink = 1.0 if population is None else float(np.sqrt(1 - len(sample) / population))
    return Interval(average + shrink * (float(found.low) - average), average + shrink * (float(found.high) - average))


def mcnemar(gained: int, lost: int) -> float:
    """The p-value of McNemar's exact test: how likely so unequal numbers of discordant pairs are if both directions are
    equally likely."""
    return float(stats.binomtest(gained, gained + lost, 0.5).pvalue) if gained + lost else 1.0


def difference_interval(gained: int, lost: int, inputs: int) -> Interval:
    """An interval for the difference of two shares on the same inputs, of which `gained` are successes only in the
    second and `lost` only in the first. Its coverage is at least LEVEL for every distribution of pairs.

    The difference is the share of discordant pairs, times 2 q - 1, where q is the share of gains among them. Both have
    an interval of Clopper and Pearson; that of q holds given the number of discordant pairs, hence always.
    """
    error = 1 - LEVEL
    pairs = share_interval(gained + lost, inputs, level=1 - PAIRS_PART * error)
    if gained + lost == 0:
        return Interval(-pairs.high, pairs.high)
    gains = share_interval(gained, gained + lost, level=1 - (1 - PAIRS_PART) * error)
    low, high = (2 * share - 1 for share in gains)
    return Interval(low * (pairs.low if low > 0 else pairs.high), high * (pairs.high if high > 0 else pairs.low))
