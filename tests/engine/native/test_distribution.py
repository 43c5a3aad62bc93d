"""The noise has the distribution that it claims.

Every check compares one statistic with its exact distribution, and fails with probability FALSE_ALARM if the noise is
perfect. A run makes 27 checks of each family, so with three families a perfect generator would fail one run in 12,000.
The seeds are fixed, so a run that has passed once passes again. `make test-slow` takes 10^9 values of each family.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from support.stream import standard_noise

from ars.engine.requests import Phase
from ars.noise import FAMILIES, Family

FALSE_ALARM = 1e-6
SMALL, LARGE = 4 * 10**6, 10**9
DIMENSIONS = 1000
CHUNK = 4000  # draws at a time

TAILS = (1e-4, 1e-6)  # the probabilities of both tails together, beyond each of two thresholds

families = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
sizes = pytest.mark.parametrize("values", [SMALL, pytest.param(LARGE, marks=pytest.mark.slow)], ids=["small", "large"])


def even_moments(family: Family) -> list[float]:
    """E z^2, E z^4, E z^6 and E z^8. The odd moments are 0, for every family is symmetric."""
    density, (_, end) = family.distribution.pdf, family.distribution.support()
    return [quad(lambda z, power=power: 2 * z**power * density(z), 0, end)[0] for power in (2, 4, 6, 8)]


def thresholds_of(family: Family) -> list[float]:
    return [family.distribution.isf(share / 2) for share in TAILS]


@dataclass
class Summary:
    """What is kept of the values: counts below each of 4095 quantiles, sums of four powers, and counts in the tails."""

    values: int
    below: np.ndarray
    power_sums: np.ndarray
    beyond: np.ndarray


def summarize(family: Family, values: int) -> Summary:
    thresholds = thresholds_of(family)
    quantiles = family.distribution.ppf(np.arange(1, 4096) / 4096)
    below, sums, beyond = np.zeros(4095, np.int64), np.zeros(4), np.zeros(2, np.int64)
    for first in range(0, values // DIMENSIONS, CHUNK):
        draws = min(CHUNK, values // DIMENSIONS - first)
        z = np.sort(standard_noise(family, seed=1, first_draw=first, draws=draws, dimensions=DIMENSIONS), axis=None)
        below += np.searchsorted(z, quantiles)
        beyond += [int(np.searchsorted(z, -t, side="right") + z.size - np.searchsorted(z, t)) for t in thresholds]
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

    m2, m4, m6, m8 = even_moments(family)
    expected, variance = np.array([0, m2, 0, m4]), np.array([m2, m4 - m2**2, m6, m8 - m4**2])
    score = (summary.power_sums / n - expected) / np.sqrt(variance / n)
    assert np.abs(score).max() < stats.norm.isf(FALSE_ALARM / 2), f"moments 1 to 4 are off by {score} deviations"

    for share, threshold, count in zip(TAILS, thresholds_of(family), summary.beyond, strict=True):
        p_value = stats.binomtest(int(count), n, share).pvalue
        assert p_value > FALSE_ALARM, f"{count} of {n} values beyond {threshold}, {share * n:.0f} expected"


def neighbours(family: Family, values: int):
    """Pairs of arrays whose values are neighbours in the stream in some way, and should be independent."""
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
    m2, m4, *_ = even_moments(family)
    for name, a, b in neighbours(family, values):
        for power, mean, variance in ((1, 0, m2), (2, m2, m4 - m2**2)):
            products = (a**power - np.float32(mean)) * (b**power - np.float32(mean))
            score = products.mean(dtype=np.float64) / variance * np.sqrt(products.size)
            assert abs(score) < stats.norm.isf(FALSE_ALARM / 2), f"{name}, power {power}: {score:.1f} deviations"
