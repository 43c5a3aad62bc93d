"""Exponential noise, whose values share the stretch of their draw, has the distribution that it claims.

test_distribution.py is about families with independent values. Here, every check takes one number from each draw, so
that these numbers are independent, and fails with probability FALSE_ALARM if the noise is perfect. The seeds are fixed.
"""

import numpy as np
import pytest
from scipy import stats
from support import reference
from support.stream import noisy_copies, standard_noise

from ars.engine.lattice import Lattice
from ars.engine.requests import Phase
from ars.noise import EXPONENTIAL, UNIFORM

FALSE_ALARM = 1e-6
DRAWS = {1: 10**6, 2: 10**6, 5: 400_000, 784: 40_000}

every_size = pytest.mark.parametrize("dimensions", DRAWS)
streams = pytest.mark.parametrize("lattice", [None, Lattice(2.0**-7)], ids=["stream 1", "stream 2"])


def stretches(dimensions: int, draws: int, **where) -> np.ndarray:
    """The stretch of each draw, from the largest of its values, by noise stream 1."""
    y, z = (standard_noise(family, dimensions=dimensions, draws=draws, **where) for family in (UNIFORM, EXPONENTIAL))
    largest = np.abs(y).argmax(1)[:, None]
    values = [np.take_along_axis(each, largest, 1)[:, 0].astype(np.float64) for each in (z, y)]
    return values[0] / values[1]


@every_size
def test_the_stretch_is_a_gamma_variable_and_no_other(dimensions):
    found = dimensions * stretches(dimensions, DRAWS[dimensions], seed=4)
    assert stats.kstest(found, stats.gamma(dimensions + 1).cdf).pvalue > FALSE_ALARM
    assert stats.kstest(found, stats.gamma(dimensions).cdf).pvalue < FALSE_ALARM
    assert stats.kstest(found * 1.02, stats.gamma(dimensions + 1).cdf).pvalue < FALSE_ALARM


@every_size
@streams
def test_a_value_and_the_largest_value_have_their_distributions(dimensions, lattice):
    z = standard_noise(EXPONENTIAL, dimensions=dimensions, draws=DRAWS[dimensions], seed=5, lattice=lattice)
    z = z.astype(np.float64)
    largest = np.abs(z).max(1) * dimensions
    if lattice:  # the boundary between two cells near each quantile: rounding does not change what is below it
        ends = (np.arange(-40, 41) / 20 // lattice.step + 0.5) * lattice.step
        for end in ends:
            share = EXPONENTIAL.in_dimensions(dimensions).distribution.cdf(end)
            below = int((z[:, 0] < end).sum())
            assert stats.binomtest(below, len(z), share).pvalue > FALSE_ALARM / len(ends)
            expected = stats.gamma(dimensions).cdf(dimensions * end)
            if end > 0:
                inside = int((largest < dimensions * end).sum())
                assert stats.binomtest(inside, len(z), expected).pvalue > FALSE_ALARM / len(ends)
    else:
        law = EXPONENTIAL.in_dimensions(dimensions).distribution
        assert stats.kstest(z[:, 0], law.cdf).pvalue > FALSE_ALARM
        assert stats.kstest(z[:, -1], law.cdf).pvalue > FALSE_ALARM
        assert stats.kstest(largest, stats.gamma(dimensions).cdf).pvalue > FALSE_ALARM


@every_size
def test_stretches_do_not_depend_on_values_or_on_each_other(dimensions):
    draws = DRAWS[dimensions]
    base = {"seed": 7, "input_id": 7, "phase": Phase.SELECTION}
    found = stretches(dimensions, draws, **base)
    other = {"seed": 7 + 2**32, "input_id": 8, "phase": Phase.ESTIMATION}
    pairs = {name: stretches(dimensions, draws, **base | {name: value}) for name, value in other.items()}
    y = standard_noise(UNIFORM, dimensions=dimensions, draws=draws, **base)
    pairs |= {"values": y[:, 0], "sizes": np.abs(y).max(1), "draws": np.roll(found, 1)}
    for name, values in pairs.items():
        assert stats.spearmanr(found, values).pvalue > FALSE_ALARM, name


@pytest.mark.parametrize("dimensions", [1, 2, 3, 784, 150_528])
def test_the_stretch_is_that_of_the_reference(dimensions):
    where = {"seed": 2**40 + 9, "input_id": 3, "phase": Phase.PREDICTION}
    found = stretches(dimensions, 30, first_draw=2**33, **where)
    expected = [reference.exponential_stretch(*where.values(), 2**33 + draw, dimensions) for draw in range(30)]
    np.testing.assert_allclose(found, np.array(expected, float), rtol=4e-7)


@pytest.mark.parametrize("dimensions", [1, 2])
def test_draws_with_a_stretch_above_8_are_left_to_the_slow_path_and_right(dimensions):
    lattice, draws = Lattice(2.0**-8), 400_000
    found = stretches(dimensions, draws, seed=6)
    large = np.flatnonzero(found > 8)
    assert 3 <= len(large) < 0.01 * draws
    noisy = noisy_copies(EXPONENTIAL, np.full(dimensions, 0.3, np.float32), seed=6, draws=draws, lattice=lattice)
    for draw in large[:20]:
        ideal = reference.lattice_noise("exponential", 6, 0, Phase.ESTIMATION, int(draw), 0, dimensions)
        values = [reference.lattice_value(z, np.float32(0.3), 0, 1, lattice.step) for z in ideal[:dimensions]]
        assert noisy[draw].tolist() == values
