"""What each family certifies: never more than the exact value, and within the last digits of it."""

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats
from support import exact, reference

from ars.engine.statistics.bounds import lower_confidence_bound
from ars.errors import ArgumentError, UnknownName
from ars.noise import EXPONENTIAL, FAMILIES, GAUSSIAN, LAPLACE, UNIFORM, NoiseKind, Scope, family_named, scale_map

families = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)

NEAR_ONE = [1 - 10.0**-e for e in range(1, 16)] + [0.001 ** (1 / 10**7), 0.05 ** (1 / 10**5)]
NEAR_HALF = [0.5 + 10.0**-e for e in range(1, 16)]
SMALL = [10.0**-e for e in (1, 2, 3, 5, 8, 12, 16, 50, 300)]
GRID = sorted({*NEAR_ONE, *NEAR_HALF, *SMALL, *np.linspace(0.01, 0.99, 25), *(1 - p for p in NEAR_ONE)})


@families
def test_no_region_is_above_its_exact_value_and_all_are_close(family):
    for p_a in GRID:
        for p_b in [p for p in GRID if p < p_a] + ([1 - p_a] if p_a > 0.5 else []):
            K = family.region(p_a, p_b)
            truth = reference.region(family.name, mp.mpf(p_a), mp.mpf(p_b))
            assert truth >= K
            assert truth - 1e-13 * (1 + truth) <= K


@pytest.mark.parametrize("dimensions", [1, 2, 5, 784, 10**9])
def test_no_exponential_region_is_above_its_exact_value_and_all_are_close(dimensions):
    family = EXPONENTIAL.in_dimensions(dimensions)
    for p_a in GRID:
        for p_b in [p for p in GRID if p < p_a and p <= 1 - p_a]:
            a, b = (reference.exponential_G(mp.mpf(p), dimensions) for p in (p_a, p_b))
            K, truth = family.region(p_a, p_b), (a - b) / 2
            assert truth - 1e-13 * (1 + truth) <= K <= truth
            assert UNIFORM.region(p_a, p_b) * (1 - 1e-13) - 1e-13 <= K
            assert EXPONENTIAL.region(p_a, p_b) <= truth


def test_families_in_the_same_number_of_dimensions_are_equal():
    assert EXPONENTIAL.in_dimensions(3) == EXPONENTIAL.in_dimensions(2).in_dimensions(3)
    assert hash(EXPONENTIAL.in_dimensions(3)) == hash(EXPONENTIAL.in_dimensions(3))
    assert EXPONENTIAL.in_dimensions(3) != EXPONENTIAL.in_dimensions(2)
    assert GAUSSIAN.in_dimensions(3) is GAUSSIAN


def test_the_laplace_region_is_never_below_that_of_the_papers_theorem():
    def theorem_7_1(a, b):
        return max(math.log(a / b) / 2, -math.log(1 - a + b))

    for p_a in GRID:
        for p_b in [p for p in GRID if p < p_a and p <= 1 - p_a]:
            assert LAPLACE.region(p_a, p_b) >= theorem_7_1(p_a, p_b) * (1 - 1e-13) - 1e-13
    assert LAPLACE.region(0.9, 0.02) == pytest.approx(2.414, abs=5e-4)
    assert theorem_7_1(0.9, 0.02) == pytest.approx(2.120, abs=5e-4)


@families
@pytest.mark.parametrize("sigma", [np.float32(0.1), 0.25, 1 / 3, 1e-6, 7.0])
def test_no_radius_is_above_its_exact_value(family, sigma):
    for p_a in NEAR_ONE + NEAR_HALF:
        truth = reference.region(family.name, mp.mpf(p_a), 1 - mp.mpf(p_a)) * mp.mpf(float(sigma))
        radius = family.radius(p_a, 1 - p_a, float(sigma))
        assert radius <= truth
        assert radius >= truth - 1e-13 * (float(sigma) + truth)


@families
@pytest.mark.parametrize(("k", "n"), [(10**7, 10**7), (10**5, 10**5), (10**7 - 1, 10**7), (99_900, 10**5), (80, 100)])
def test_from_counts_to_radius_nothing_rounds_up(family, k, n):
    """The radius of the exact bound, found by bisection on the exact binomial tail, is never exceeded."""
    alpha = 0.001
    if k == n:
        p = mp.mpf(alpha) ** (mp.mpf(1) / n)
    else:
        p = mp.mpf(lower_confidence_bound(k, n, alpha))
        low, high = p * (1 - mp.mpf("1e-10")), p * (1 + mp.mpf("1e-10"))
        for _ in range(110):
            middle = (low + high) / 2
            low, high = (middle, high) if exact.binomial_tail(k, n, middle) <= mp.mpf(alpha) else (low, middle)
        p = low
    truth = reference.region(family.name, p, 1 - p) / 4
    p_a = lower_confidence_bound(k, n, alpha)
    radius = family.radius(p_a, 1 - p_a, 0.25)
    assert truth * (1 - mp.mpf("1e-8")) <= radius <= truth


@families
def test_nothing_is_certified_when_the_bounds_meet(family):
    assert family.region(0.5, 0.5) == 0
    assert family.region(0.3, 0.4) == 0
    assert family.radius(0.5, 0.5, 1.0) == 0


@pytest.mark.parametrize(("family", "K"), [(GAUSSIAN, math.inf), (LAPLACE, math.inf), (UNIFORM, 1)])
def test_the_region_of_a_certain_answer_is_as_large_as_the_noise(family, K):
    assert family.region(1.0, 0.0) == pytest.approx(K)
    assert family.radius(1.0, 0.0, 2.0) == pytest.approx(2 * K)


# A linear classifier answers A where w . z <= b. Smoothing moves its boundary only by the mean of the noise, so both pA
# and the true distance from x to the boundary are known.

scales = st.lists(st.floats(0.05, 4.0), min_size=1, max_size=6).map(np.array)


def unit_vectors(draw, dimensions):
    vector = np.array(draw(st.lists(st.floats(-1, 1), min_size=dimensions, max_size=dimensions)))
    assume(np.linalg.norm(vector) > 1e-3)
    return vector / np.linalg.norm(vector)


@given(sigma=scales, z=st.floats(0.01, 5.0), data=st.data())
def test_gaussian_radius_and_ellipsoid_stay_inside_a_linear_boundary(sigma, z, data):
    w = unit_vectors(data.draw, sigma.size)
    spread = np.linalg.norm(sigma * w)
    distance = z * spread  # b - w . (x + mean)
    p_a = stats.norm.cdf(z) * (1 - 1e-15)
    assert GAUSSIAN.radius(p_a, 1 - p_a, sigma.min()) <= distance * (1 + 1e-9)

    K = GAUSSIAN.region(p_a, 1 - p_a)
    worst = sigma**2 * w / spread * K  # the point of the ellipsoid that is nearest to the boundary
    assert w @ worst <= distance * (1 + 1e-9)
    assert w @ worst == pytest.approx(distance, abs=1e-6)
    anywhere = unit_vectors(data.draw, sigma.size) * sigma * K
    assert GAUSSIAN.weighted_norm(anywhere, sigma) == pytest.approx(K)
    assert w @ anywhere <= distance * (1 + 1e-9)


def half_space(family, scale, t, axis):
    """pA of a half-space along an axis, the radius that follows from it, and the true distance of its boundary."""
    size = t * min(5.0, family.distribution.support()[1])
    p_a = family.distribution.cdf(size) * (1 - 1e-15)
    return p_a, family.radius(p_a, 1 - p_a, scale.min()), size * scale[axis]


@families
@given(scale=scales, t=st.floats(0.001, 0.999), axis=st.integers(0, 5))
def test_the_radius_of_a_half_space_along_an_axis_is_sound(family, scale, t, axis):
    axis %= scale.size
    p_a, radius, distance = half_space(family, scale, t, axis)
    assert radius <= distance * (1 + 1e-9)
    assert family.region(p_a, 1 - p_a) * scale[axis] <= distance * (1 + 1e-9)


@pytest.mark.parametrize("family", [GAUSSIAN, LAPLACE, UNIFORM], ids=lambda family: family.name)
@given(scale=scales, t=st.floats(0.001, 0.999), axis=st.integers(0, 5))
def test_the_theorem_is_tight_on_half_spaces_along_the_axis_with_the_smallest_scale(family, scale, t, axis):
    axis %= scale.size
    p_a, radius, distance = half_space(family, scale, t, axis)
    assert family.region(p_a, 1 - p_a) * scale[axis] == pytest.approx(distance, abs=1e-6)
    if scale[axis] == scale.min():
        assert radius == pytest.approx(distance, abs=1e-6)


@families
@given(left=st.floats(0.05, 6), right=st.floats(0.05, 6), scale=st.floats(0.05, 4), step=st.floats(-1, 1))
def test_with_three_classes_the_two_sided_radius_is_sound(family, left, right, scale, step):
    """On a line: B below -left, A between, C above right. Every shift inside the radius leaves A on top."""
    law = family.distribution

    def probabilities(shift):
        below, above = law.cdf((-left - shift) / scale), law.sf((right - shift) / scale)
        return 1 - below - above, max(below, above)

    p_a, p_b = probabilities(0.0)
    assume(p_a > p_b)
    radius = family.radius(p_a * (1 - 1e-12), min(1.0, p_b * (1 + 1e-12) + 1e-15), scale)
    top, other = probabilities(step * min(radius, 1e3))
    assert top >= other - 1e-9


def test_the_weighted_norm_is_never_below_its_exact_value():
    rng = np.random.default_rng(0)
    for family in FAMILIES.values():
        for _ in range(20):
            delta, scale = rng.normal(0, 1, 3072), rng.uniform(0.1, 1, 3072)
            ratios = [mp.mpf(d) / mp.mpf(s) for d, s in zip(delta, scale, strict=True)]
            truth = mp.norm(ratios, family.norm)
            assert truth <= family.weighted_norm(delta, scale) <= truth * (1 + mp.mpf("2e-12"))


def test_the_guarantee_is_global_unless_noise_depends_on_the_input():
    assert NoiseKind.ISOTROPIC.scope is NoiseKind.DATASET.scope is Scope.GLOBAL
    assert NoiseKind.INPUT.scope is Scope.FROZEN


def test_an_unknown_family_is_refused_with_the_nearest_name():
    with pytest.raises(UnknownName, match=r"unknown noise family 'gausian'; did you mean 'gaussian'\?"):
        family_named("gausian")
    for bad in ("cauchy-like", [], None):
        with pytest.raises(UnknownName, match="choose one of gaussian, laplace, uniform"):
            family_named(bad)
    assert family_named(GAUSSIAN) is family_named("gaussian") is GAUSSIAN
    with pytest.raises(UnknownName, match="unknown noise kind 'inputs'; did you mean 'input'"):
        NoiseKind("inputs")


@pytest.mark.parametrize("bad", [math.nan, -0.1, 0.0, math.inf])
def test_a_scale_that_is_not_positive_and_finite_is_refused(bad):
    with pytest.raises(ArgumentError, match="scale = "):
        scale_map(np.array([0.5, bad, 1.0]))
    with pytest.raises(ArgumentError, match="scale_min = "):
        GAUSSIAN.radius(0.9, 0.1, bad)


@pytest.mark.parametrize("bad", ["a", None, 1j, [], [[1], [1, 2]], {}, 10**400, True])
def test_a_scale_that_is_no_array_of_real_numbers_is_refused(bad):
    with pytest.raises(ArgumentError, match="scale = "):
        scale_map(bad)


def test_the_scale_is_what_the_noise_uses():
    assert scale_map(0.7).dtype == np.float32
    assert float(scale_map(0.7)) != 0.7


@families
def test_extreme_probabilities_and_scales_give_finite_results_below_the_exact_ones(family):
    for p_a, p_b in [(0.9, 1e-310), (0.9, 5e-324), (1e-300, 1e-310), (1 - 2**-53, 1e-300)]:
        K = family.region(p_a, p_b)
        truth = reference.region(family.name, mp.mpf(p_a), mp.mpf(p_b))
        assert 0 <= K <= truth
        assert truth - 1e-12 * (1 + truth) <= K
    assert math.isfinite(family.radius(0.999999, 1e-6, 1e308))


@pytest.mark.parametrize(("p_a", "p_b"), [(1.1, 0.1), (0.9, -0.1), (math.nan, 0.1), ("0.9", 0.1), (None, 0.1)])
def test_a_probability_outside_the_unit_interval_is_refused(p_a, p_b):
    with pytest.raises(ArgumentError, match=r"p_[ab] = "):
        GAUSSIAN.region(p_a, p_b)


@families
def test_the_variation_of_a_family_is_that_of_its_density(family):
    z = np.linspace(-20, 20, 400_001)
    measured = np.abs(np.diff(family.distribution.pdf(z))).sum()
    assert measured <= family.variation < measured + 0.01
