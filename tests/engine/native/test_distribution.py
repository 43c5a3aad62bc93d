"""The noise has the distribution that it claims: on the lattice of noise stream 2, and in noise stream 1.

Every check compares one statistic with its exact distribution, and fails with probability FALSE_ALARM if the noise is
perfect. A run makes 27 checks of each family in noise stream 1 and 56 in noise stream 2, so with four families perfect
noise would fail one run in 3,000. The seeds are fixed, so a run that has passed once passes again. `make test-slow`
takes 10^9 values of each family.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from support.stream import noisy_copies, standard_noise

from ars.engine.lattice import Lattice
from ars.engine.requests import Phase
from ars.noise import FAMILIES, UNIFORM, Family

FALSE_ALARM = 1e-6
SMALL, LARGE = 4 * 10**6, 10**9
DIMENSIONS = 1000
CHUNK = 4000  # draws at a time

REACH = 45  # scales: the cells at both ends stand for all beyond them
CLIP = 14.0  # moments are those of values that are clipped there, since Pareto noise has no fourth moment
TAILS = (1e-4, 1e-6)  # the probabilities of both tails together, beyond each of two thresholds

# The values of a draw of exponential noise are not independent: see test_stretch.py.
INDEPENDENT = [family for family in FAMILIES.values() if not family.stretched]
families = pytest.mark.parametrize("family", INDEPENDENT, ids=lambda family: family.name)
slow = pytest.mark.slow
coarse, fine = Lattice(2.0**-5), Lattice(2.0**-7)  # 32 and 128 steps in a scale of 1


def noise_and_size(large):
    """Noise stream 1 (no lattice) and noise stream 2, with SMALL values and, behind `slow`, with more of them."""
    small = {"stream 1": None, "stream 2, 128 steps": fine, "stream 2, 32 steps": coarse}
    cases = [pytest.param(lattice, SMALL, id=name) for name, lattice in small.items()]
    cases += [pytest.param(lattice, large, id=f"{name}, large", marks=slow) for name, lattice in [*small.items()][:2]]
    return pytest.mark.parametrize(("lattice", "values"), cases)


def cell_probabilities(family: Family, scale: float, center: float) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers, and the exact probability that each is the one nearest to center + scale z. The first and the last
    one stand for all numbers beyond them."""
    law, reach = family.distribution, int(scale * min(family.distribution.isf(1e-18), REACH)) + 2
    cells = np.arange(-reach, reach + 1) + round(center)
    low, high = (cells - center - 0.5) / scale, (cells - center + 0.5) / scale
    low[0], high[-1] = -np.inf, np.inf
    return cells, np.where(low > 0, law.sf(low) - law.sf(high), law.cdf(high) - law.cdf(low))


def even_moments(family: Family, lattice: Lattice | None, clip: float = CLIP) -> list[float]:
    """E z^2, E z^4, E z^6 and E z^8 of clipped noise. The odd moments are 0, for every family is symmetric."""
    if lattice:
        cells, probability = cell_probabilities(family, 1 / lattice.step, 0)
        values = np.clip(cells * lattice.step, -clip, clip)
        return [float(probability @ values**power) for power in (2.0, 4.0, 6.0, 8.0)]
    law, end = family.distribution, min(clip, family.distribution.support()[1])
    inside = [quad(lambda z, power=power: 2 * z**power * law.pdf(z), 0, end)[0] for power in (2, 4, 6, 8)]
    return [value + 2 * law.sf(end) * end**power for value, power in zip(inside, (2, 4, 6, 8), strict=True)]


def between_cells(points: np.ndarray, lattice: Lattice | None) -> np.ndarray:
    """The points; on a lattice, a boundary between two cells near each of them. Rounding to the lattice does not change
    the probability of values below a boundary."""
    return points if lattice is None else np.unique((np.floor(points / lattice.step) + 0.5) * lattice.step)


def quantiles_of(family: Family, lattice: Lattice | None) -> np.ndarray:
    return between_cells(family.distribution.ppf(np.arange(1, 4096) / 4096), lattice)


def thresholds_of(family: Family, lattice: Lattice | None) -> np.ndarray:
    return between_cells(family.distribution.isf(np.array(TAILS) / 2), lattice)


@dataclass
class Summary:
    """What is kept of the values: counts below each quantile, sums of four powers, and counts in the tails."""

    values: int
    below: np.ndarray
    power_sums: np.ndarray
    beyond: np.ndarray


def summarize(family: Family, lattice: Lattice | None, values: int) -> Summary:
    thresholds, quantiles = thresholds_of(family, lattice), quantiles_of(family, lattice)
    below, sums, beyond = np.zeros(len(quantiles), np.int64), np.zeros(4), np.zeros(len(thresholds), np.int64)
    where = {"seed": 1, "dimensions": DIMENSIONS, "lattice": lattice}
    for first in range(0, values // DIMENSIONS, CHUNK):
        draws = min(CHUNK, values // DIMENSIONS - first)
        z = np.sort(standard_noise(family, **where, first_draw=first, draws=draws), axis=None)
        below += np.searchsorted(z, quantiles)
        beyond += [int(np.searchsorted(z, -t, side="right") + z.size - np.searchsorted(z, t)) for t in thresholds]
        z = np.clip(z.astype(np.float64), -CLIP, CLIP)
        sums += [z.sum(), (z2 := z * z).sum(), (z2 * z).sum(), (z2 * z2).sum()]
    return Summary(values, below, sums, beyond)


@families
@noise_and_size(large=LARGE)
def test_distribution_moments_and_tails(family, lattice, values):
    summary = summarize(family, lattice, values)
    n = summary.values

    distance = np.abs(summary.below / n - family.distribution.cdf(quantiles_of(family, lattice))).max()
    assert distance < stats.kstwobign.isf(FALSE_ALARM) / np.sqrt(n), "Kolmogorov-Smirnov"

    m2, m4, m6, m8 = even_moments(family, lattice)
    expected, variance = np.array([0, m2, 0, m4]), np.array([m2, m4 - m2**2, m6, m8 - m4**2])
    score = (summary.power_sums / n - expected) / np.sqrt(variance / n)
    assert np.abs(score).max() < stats.norm.isf(FALSE_ALARM / 2), f"moments 1 to 4 are off by {score} deviations"

    for threshold, count in zip(thresholds_of(family, lattice), summary.beyond, strict=True):
        share = 2 * family.distribution.sf(threshold)
        p_value = stats.binomtest(int(count), n, share).pvalue
        assert p_value > FALSE_ALARM, f"{count} of {n} values beyond {threshold}, {share * n:.0f} expected"


@families
@pytest.mark.parametrize("lattice", [coarse, fine], ids=["32 steps", "128 steps"])
def test_the_lattice_adds_a_twelfth_of_a_squared_step_to_the_variance(family, lattice):
    """Or a sixth if the density ends in the middle of a cell, as that of uniform noise does."""
    added = even_moments(family, lattice, REACH)[0] - even_moments(family, None, REACH)[0]
    assert added == pytest.approx(lattice.step**2 / (6 if family is UNIFORM else 12), rel=2e-3)


def neighbours(family: Family, lattice: Lattice | None, values: int):
    """Pairs of arrays whose values are neighbours in the stream in some way, and should be independent."""
    draws = values // DIMENSIONS
    base = {"seed": 7, "input_id": 7, "phase": Phase.SELECTION, "draws": draws, "dimensions": DIMENSIONS}
    base["lattice"] = lattice
    z = standard_noise(family, **base)
    for lag in (1, 2, 3, 4):
        yield f"dimensions {lag} apart", z[:, :-lag], z[:, lag:]
    yield "the two values of a pair", z[:, 0::2], z[:, 1::2]
    yield "draws", z[:-1], z[1:]
    for name, value in (("input_id", 8), ("seed", 8), ("seed", 7 + 2**32), ("phase", Phase.ESTIMATION)):
        yield f"{name} {value}", z, standard_noise(family, **base | {name: value})


@families
@noise_and_size(large=10**8)
def test_neighbours_are_not_correlated(family, lattice, values):
    m2, m4, *_ = even_moments(family, lattice)
    for name, a, b in neighbours(family, lattice, values):
        a, b = np.clip(a, -CLIP, CLIP), np.clip(b, -CLIP, CLIP)
        for power, mean, variance in ((1, 0, m2), (2, m2, m4 - m2**2)):
            products = (a**power - np.float32(mean)) * (b**power - np.float32(mean))
            score = products.mean(dtype=np.float64) / variance * np.sqrt(products.size)
            assert abs(score) < stats.norm.isf(FALSE_ALARM / 2), f"{name}, power {power}: {score:.1f} deviations"


def chi_square(family: Family, steps: int, values: int, rounded=None) -> float:
    """The p-value of the frequencies of cells, for noise of this many steps, from their exact probabilities.

    Cells that expect fewer than 20 values count as one. `rounded` makes cells from noise stream 1, in some wrong way.
    """
    center = 0.3125  # so that no cell is a mirror image of another
    cells, probability = cell_probabilities(family, steps, center)
    counts = np.zeros(len(cells), np.int64)
    lattice, x = None if rounded else Lattice(1), np.full(DIMENSIONS, center, np.float32)
    for first in range(0, values // DIMENSIONS, CHUNK):
        noisy = noisy_copies(family, x, 0, steps, seed=3, first_draw=first, draws=CHUNK, lattice=lattice)
        noisy = np.clip(rounded(noisy) if rounded else noisy, cells[0], cells[-1])
        counts += np.bincount(noisy.ravel().astype(np.int64) - cells[0], minlength=len(cells))
    expected = probability * counts.sum()
    rare = np.where(expected < 20, 0, np.arange(1, len(cells) + 1))
    counts, expected = (np.bincount(rare, weights=each) for each in (counts, expected))
    often = expected >= 20
    statistic = ((counts[often] - expected[often]) ** 2 / expected[often]).sum()
    return float(stats.chi2.sf(statistic, np.count_nonzero(often) - 1))


@families
@pytest.mark.parametrize("steps", [32, 128])
@pytest.mark.parametrize("values", [6 * 10**7, pytest.param(10**9, marks=slow)], ids=["small", "large"])
def test_every_cell_has_its_exact_probability(family, steps, values):
    assert chi_square(family, steps, values) > FALSE_ALARM


@families
@pytest.mark.parametrize("steps", [32, 128])
@pytest.mark.parametrize(
    "rounded", [np.floor, lambda noisy: np.rint(noisy * np.float32(1.01))], ids=["rounded down", "one percent too wide"]
)
def test_cells_with_other_probabilities_are_noticed(family, steps, rounded):
    assert chi_square(family, steps, 6 * 10**7, rounded) < FALSE_ALARM
