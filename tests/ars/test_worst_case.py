"""No region is larger than the exact worst case allows, in one and two dimensions; and the tight ones are as large."""

import numpy as np
import pytest
from support.worst_case import WorstCase, answer_stays, exact_region, exponential_answer_stays, exponential_cells

from ars.noise import EXPONENTIAL, GAUSSIAN, LAPLACE, PARETO, UNIFORM

PAIRS = [(0.6, 0.4), (0.9, 0.1), (0.9, 0.02), (0.99, 0.01), (0.999, 0.0002), (0.45, 0.2), (0.3, 0.01)]
DIRECTIONS = [(1, 1), (2, 1), (5, 1)]
LINE, PLANE = 2000, 100  # cells of a line, alone and in a plane

families = pytest.mark.parametrize("family", [GAUSSIAN, LAPLACE, UNIFORM, PARETO], ids=lambda family: family.name)
tight = pytest.mark.parametrize("family", [GAUSSIAN, LAPLACE, UNIFORM], ids=lambda family: family.name)
pairs = pytest.mark.parametrize(("p_a", "p_b"), PAIRS)


def stays_on_the_line(family, K, p_a, p_b):
    return all(answer_stays(family, [share * K], p_a, p_b, LINE) for share in (0.1, 0.5, 0.9, 0.999))


def stays_in_the_plane(family, K, p_a, p_b):
    units = [np.array(direction) / np.linalg.norm(direction, family.norm) for direction in DIRECTIONS]
    return all(answer_stays(family, share * K * unit, p_a, p_b, PLANE) for unit in units for share in (0.5, 0.999))


@families
@pairs
def test_no_shift_inside_the_region_changes_the_answer(family, p_a, p_b):
    K = family.region(p_a, p_b)
    assert K > 0
    assert stays_on_the_line(family, K, p_a, p_b)
    assert stays_in_the_plane(family, K, p_a, p_b)


@tight
@pairs
def test_a_region_that_is_one_percent_larger_is_not_sound(family, p_a, p_b):
    assert exact_region(family, [1], p_a, p_b, LINE) == pytest.approx(family.region(p_a, p_b), rel=1e-3)
    assert not stays_on_the_line(family, 1.01 * family.region(p_a, p_b), p_a, p_b)


@pytest.mark.parametrize(("p_a", "p_b"), [(0.99, 0.01), (0.999, 0.0002)])
def test_the_region_that_pareto_noise_has_on_a_line_is_not_sound_in_the_plane(p_a, p_b):
    """Though it is sound on the line. Ours is smaller, and sound in all dimensions."""
    on_the_line = exact_region(PARETO, [1], p_a, p_b, LINE)
    assert stays_on_the_line(PARETO, on_the_line, p_a, p_b)
    assert not stays_in_the_plane(PARETO, on_the_line, p_a, p_b)
    assert PARETO.region(p_a, p_b) < exact_region(PARETO, [0.5, 0.5], p_a, p_b, PLANE) < on_the_line


@families
@pytest.mark.parametrize("p", [0.01, 0.1, 0.3, 0.49])
def test_G_falls_at_the_rate_at_which_the_worst_set_loses_mass(family, p):
    """G'(p) = 1 / phi(p), where phi(p) is the largest loss of a set of measure p under a small shift, per shift."""
    t = 1e-4
    phi = (p - WorstCase(family, [t], 4 * LINE).least(p)) / t
    slope = (family.G(p + 1e-6) - family.G(p - 1e-6)) / 2e-6
    assert 1 / slope == pytest.approx(phi, rel=2e-3)


@pairs
def test_on_a_line_the_exponential_region_is_that_of_laplace_noise_and_not_sound_if_it_is_larger(p_a, p_b):
    family = EXPONENTIAL.in_dimensions(1)
    K = family.region(p_a, p_b)
    assert pytest.approx(LAPLACE.region(p_a, p_b), rel=1e-12) == K
    assert stays_on_the_line(family, K, p_a, p_b)
    assert not stays_on_the_line(family, 1.01 * K, p_a, p_b)


@pytest.mark.parametrize("dimensions", [2, 3, 10, 100])
def test_the_cells_of_exponential_noise_have_its_probabilities(dimensions):
    cells = exponential_cells(dimensions, 0.02, 400)
    assert cells.sum() == pytest.approx(1, abs=1e-5)
    family = EXPONENTIAL.in_dimensions(dimensions)
    one = 2 * np.diff(family.distribution.cdf(0.02 * np.arange(401)))
    np.testing.assert_allclose(cells.sum(1), one, atol=1e-6)


@pairs
@pytest.mark.parametrize("dimensions", [2, 3, 10, 100])
def test_no_shift_inside_the_exponential_region_changes_the_answer_but_one_five_percent_outside_does(
    dimensions, p_a, p_b
):
    K = EXPONENTIAL.in_dimensions(dimensions).region(p_a, p_b)
    assert exponential_answer_stays(dimensions, 0.7 * K, p_a, p_b)
    assert exponential_answer_stays(dimensions, 0.999 * K, p_a, p_b)
    assert not exponential_answer_stays(dimensions, 1.05 * K, p_a, p_b)


@pairs
@pytest.mark.parametrize("direction", [(1, 1), (2, 1), (5, 1)])
def test_no_shift_inside_the_exponential_region_changes_the_answer_in_other_directions(p_a, p_b, direction):
    K = EXPONENTIAL.in_dimensions(2).region(p_a, p_b)
    assert exponential_answer_stays(2, 0.999 * K, p_a, p_b, direction)
