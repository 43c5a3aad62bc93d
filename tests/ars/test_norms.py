"""Radii in other norms: the ball lies inside the region, it is the largest that does, and it is never rounded up."""

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import minimize

from ars.errors import ArgumentError
from ars.noise.norms import NORMS, check_norm, inverse_norms, norm_name, radius_in

scales = st.lists(st.floats(0.0625, 4.0, width=32), min_size=1, max_size=6).map(np.array)
pairs = pytest.mark.parametrize(("region_norm", "norm"), list(itertools.product(NORMS, NORMS)))


def radius_of(norm, region_norm, scale, K=1.0):
    smallest = float(scale.min())
    return radius_in(norm, region_norm, K * smallest, smallest, inverse_norms(scale, scale.size))


def farthest(norm, region_norm, scale):
    """A delta of norm 1 with the largest ||delta / scale|| that a search finds, started at random."""
    rng = np.random.default_rng(0)

    def unit(delta):
        return delta / np.linalg.norm(delta, norm)

    def size(delta):
        return -np.linalg.norm(unit(delta) / scale, region_norm)

    starts = [*np.eye(scale.size), np.ones(scale.size), *rng.uniform(0.1, 1, (8, scale.size))]
    found = [minimize(size, start, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12}) for start in starts]
    return unit(min(found, key=lambda one: one.fun).x)


@pairs
@pytest.mark.parametrize("scale", [[0.5], [0.5, 0.5, 0.5], [0.25, 1.0], [0.1, 0.5, 2.0], [0.3, 0.31, 4.0]])
def test_the_radius_is_what_a_search_for_the_nearest_point_outside_finds(region_norm, norm, scale):
    scale = np.array(scale)
    nearest = 1 / np.linalg.norm(farthest(norm, region_norm, scale) / scale, region_norm)
    assert radius_of(norm, region_norm, scale) == pytest.approx(nearest, rel=1e-4)


@pairs
@given(scale=scales, direction=st.lists(st.floats(-1, 1), min_size=6, max_size=6))
def test_every_point_of_the_ball_lies_inside_the_region(region_norm, norm, scale, direction):
    direction = np.array(direction[: scale.size])
    assume(np.abs(direction).max() > 1e-6)
    delta = direction / np.linalg.norm(direction, norm) * radius_of(norm, region_norm, scale)
    assert np.linalg.norm(delta / scale, region_norm) <= 1 + 1e-12


@given(scale=scales)
def test_the_point_of_equality_in_the_proof_lies_on_the_border(scale):
    for region_norm, norm in [(1, 2), (1, math.inf), (2, math.inf)]:
        m = 1 / (1 / region_norm - 1 / norm)
        delta = scale ** (-m / norm)
        delta *= radius_of(norm, region_norm, scale) / np.linalg.norm(delta, norm)
        assert np.linalg.norm(delta / scale, region_norm) == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("dimensions", [1, 2, 3, 784, 3072, 150_528])
def test_inverse_norms_are_never_below_their_exact_values_and_radii_never_above(dimensions):
    scale = np.random.default_rng(dimensions).uniform(0.1, 2, dimensions).astype(np.float32)
    exact = [1 / mp.mpf(float(value)) for value in scale]
    with mp.workdps(40):
        truths = mp.fsum(exact), mp.sqrt(mp.fsum(value**2 for value in exact))
        for found, truth in zip(inverse_norms(scale, dimensions), truths, strict=True):
            assert truth <= found <= truth * (1 + mp.mpf("1e-14"))
        for (region_norm, norm), inverse in {
            (1, 2): truths[1],
            (1, math.inf): truths[0],
            (2, math.inf): truths[1],
        }.items():
            truth = mp.mpf(0.7) / inverse
            assert truth * (1 - mp.mpf("1e-14")) <= radius_of(norm, region_norm, scale, 0.7) <= truth


def test_the_smallest_and_the_largest_scales_neither_overflow_nor_underflow():
    for scale in (np.float32([1e-45, 1]), np.float32([3.4e38, 3.4e38])):
        for found in inverse_norms(scale, 2):
            assert 0 < found < math.inf


@pytest.mark.parametrize("norm", [0.5, 3, math.nan, -1, "2", None])
def test_other_norms_are_refused(norm):
    with pytest.raises(ArgumentError, match="norm = "):
        check_norm(norm)


def test_norms_have_names():
    assert [norm_name(norm) for norm in NORMS] == ["l1", "l2", "linf"]
