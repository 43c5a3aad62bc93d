"""The noise has the distribution that it claims.

Every check below compares one statistic with its exact law and fails at a probability of FALSE_ALARM if the noise is
perfect. There are 81 checks a run, so a perfect generator would fail one run in 12,000; the seeds are fixed, so a
run that has passed passes again. `make test-slow` does the same with 10^9 values a family.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats
from support.stream import standard_noise

from ars.engine.requests import Phase
from ars.noise import FAMILIES, Family

FALSE_ALARM = 1e-6
SMALL, LARGE = 4 * 10**6, 10**9
DIMENSIONS = 1000
CHUNK = 4000  # draws at a time

# Even moments E z^2, E z^4, E z^6, E z^8; the odd ones are 0. And tails: sizes with the probability of being beyond.
MOMENTS = {"gaussian": (1, 3, 15, 105), "laplace": (2, 24, 720, 40320), "uniform": (1 / 3, 1 / 5, 1 / 7, 1 / 9)}
LAWS = {"gaussian": stats.norm(), "laplace": stats.laplace(), "uniform": stats.uniform(-1, 2)}
TAILS = {"gaussian": (4, 5), "laplace": (4 * 2**0.5, 12), "uniform": (0.9999, 0.999999)}

families = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
sizes = pytest.mark.parametrize("values", [SMALL, pytest.param(LARGE, marks=pytest.mark.slow)], ids=["small", "large"])


@dataclass
class Summary:
    """What is kept of the values: counts below each of 4096 quantiles, sums of powers, counts beyond the tails."""

    values: int
    below: np.ndarray
    power_sums: np.ndarray
    beyond: np.ndarray


def summarize(family: Family, values: int) -> Summary:
    law = LAWS[family.name]
    quantiles = law.ppf(np.arange(1, 4096) / 4096)
    below, sums, beyond = np.zeros(4095, np.int64), np.zeros(4), np.zeros(2, np.int64)
    for first in range(0, values // DIMENSIONS, CHUNK):
        draws = min(CHUNK, values // DIMENSIONS - first)
        z = np.sort(standard_noise(family, seed=1, first_draw=first, draws=draws, dimensions=DIMENSIONS), axis=None)
        below += np.searchsorted(z, quantiles)
        beyond += [
            int(np.searchsorted(z, -t, side="right") + z.size - np.searchsorted(z, t)) for t in TAILS[family.name]
        ]
        z = z.astype(np.float64)
        sums += [z.sum(), (z2 := z * z).sum(), (z2 * z).sum(), (z2 * z2).sum()]
    return Summary(values, below, sums, beyond)


@families
@sizes
def test_distribution_moments_and_tails(family, values):
    summary = summarize(family, values)
    n = summary.values

    distance = np.abs(summary.below / n - np.arange(1, 4096) / 4096).max()
    assert distance < stats.kstwobign.isf(FALSE_ALARM) / np.sqrt(n), "Kolmogorov-Smirnov"

    m2, m4, m6, m8 = MOMENTS[family.name]
    expected, variance = np.array([0, m2, 0, m4]), np.array([m2, m4 - m2**2, m6, m8 - m4**2])
    score = (summary.power_sums / n - expected) / np.sqrt(variance / n)
    assert np.abs(score).max() < stats.norm.isf(FALSE_ALARM / 2), f"moments 1 to 4 are off by {score} deviations"

    for threshold, count in zip(TAILS[family.name], summary.beyond, strict=True):
        share = 2 * LAWS[family.name].sf(threshold)
        p_value = stats.binomtest(int(count), n, share).pvalue
        assert p_value > FALSE_ALARM, f"{count} of {n} values beyond {threshold}, {share * n:.0f} expected"


def neighbours(family: Family, values: int):
    """Pairs of arrays of independent values that are next to each other in some way."""
    draws = values // DIMENSIONS
    base = {"seed": 7, "input_id": 7, "phase": Phase.SELECTION, "draws": draws, "dimensions": DIMENSIONS}
    z = standard_noise(family, **base)
    for lag in (1, 2, 3, 4):
        yield f"dimensions {lag} apart", z[:, :-lag], z[:, lag:]
    yield "the two values of a pair", z[:, 0::2], z[:, 1::2]
    yield "draws", z[:-1], z[1:]
    for name, value in (("input_id", 8), ("seed", 8), ("seed", 7 + 2**32), ("phase", Phase.ESTIMATION)):
        yield f"{name} {value}", z, standard_noise(family, **base | {name: value})


@families
@pytest.mark.parametrize("values", [SMALL, pytest.param(10**8, marks=pytest.mark.slow)], ids=["small", "large"])
def test_neighbours_are_not_correlated(family, values):
    m2, m4, *_ = MOMENTS[family.name]
    for name, a, b in neighbours(family, values):
        for power, mean, variance in ((1, 0, m2), (2, m2, m4 - m2**2)):
            products = (a**power - np.float32(mean)) * (b**power - np.float32(mean))
            score = products.mean(dtype=np.float64) / variance * np.sqrt(products.size)
            assert abs(score) < stats.norm.isf(FALSE_ALARM / 2), f"{name}, power {power}: {score:.1f} deviations"
