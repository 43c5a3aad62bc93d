"""From votes to a certificate."""

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, binom, norm
from support import simulate

from ars.engine.statistics.bounds import bound_at_fixed_n
from ars.engine.statistics.certificate import ABSTAIN, certify_votes, format_radius, name_radius, predict_from_votes
from ars.engine.statistics.looks import Look
from ars.engine.statistics.plan import Plan
from ars.engine.statistics.stopping import Grid
from ars.errors import ArgumentError, UnknownName
from ars.noise import EXPONENTIAL, FAMILIES, GAUSSIAN, LAPLACE, UNIFORM, NoiseKind, Scope

NOISE = {"family": GAUSSIAN, "scale": 0.5, "kind": NoiseKind.ISOTROPIC}


def certify(counts, selected, *, two_sided=False, **changed):
    """The certificate at fixed n, which is as many draws as there are votes."""
    plan = Plan(n=sum(map(int, counts)), two_sided=two_sided)
    return certify_votes(counts, selected, plan=plan, **NOISE | changed)


def test_the_binary_certificate_is_the_one_of_cohen_et_al():
    made = certify([20, 99_900, 80, 0], 1)
    p_a = beta.ppf(0.001, 99_900, 101)
    assert made.predicted == 1
    assert made.p_a == pytest.approx(p_a)
    assert made.p_b == pytest.approx(1 - p_a)
    assert made.radius == pytest.approx(0.5 * norm.ppf(p_a))
    assert made.n == 100_000
    assert not made.abstained
    assert made.scope is Scope.GLOBAL


def test_the_two_sided_certificate_bounds_every_other_answer_at_once():
    made = certify([700, 200, 100, 0], 0, two_sided=True)
    p_a = beta.ppf(0.0009, 700, 301)
    p_b = beta.isf(0.0001, 201, 800)
    assert made.p_a == pytest.approx(p_a)
    assert made.p_b == pytest.approx(p_b)
    assert made.radius == pytest.approx(0.25 * (norm.ppf(p_a) - norm.ppf(p_b)))


@pytest.mark.parametrize(
    "probabilities",
    [(0.6, 0.4, 0.0), (0.4, 0.3, 0.3), (0.5, *[0.05] * 10)],
    ids=["one other", "two alike", "ten alike"],
)
def test_the_bound_of_the_others_fails_no_more_often_than_its_tenth_of_alpha(probabilities):
    """20,000 inputs at alpha = 0.05; a false alarm once in 10^6."""
    inputs, n = 20_000, 500
    counts = np.random.default_rng(0).multinomial(n, probabilities, size=inputs)
    highest, times = np.unique(counts[:, 1:].max(axis=1), return_counts=True)
    bounds = np.array([bound_at_fixed_n(Look(n, 0, int(count)), 0.05, two_sided=True)[1] for count in highest])
    wrong = times[bounds < max(probabilities[1:])].sum()
    assert wrong <= binom.isf(1e-6, inputs, 0.005)
    if probabilities[2] == 0:
        assert wrong > 0.003 * inputs, "one other answer uses its tenth of alpha"


def test_two_sided_certifies_where_no_class_has_half_of_the_votes():
    counts = [45_000, 30_000, 25_000, 0]
    assert certify(counts, 0).abstained
    assert certify(counts, 0, two_sided=True).radius > 0.09


@settings(deadline=None)
@given(counts=st.lists(st.integers(0, 10_000), min_size=2, max_size=6), data=st.data())
def test_the_others_bound_is_never_above_what_is_left_and_a_radius_never_negative(counts, data):
    counts = [*counts, 0]
    if sum(counts) == 0:
        return
    selected = data.draw(st.integers(0, len(counts) - 2))
    for family in FAMILIES.values():
        for two_sided in (False, True):
            made = certify(counts, selected, two_sided=two_sided, family=family)
            assert made.p_a + made.p_b <= 1 + 1e-12
            assert made.radius >= 0
            assert (made.predicted == ABSTAIN) == (made.K == 0)
            assert made.radius <= made.K * 0.5


def test_exponential_noise_certifies_more_in_few_dimensions_if_their_number_is_known():
    def region(**noise):
        return certify([9990, 10, 0], 0, **noise).K

    unknown = region(family=EXPONENTIAL)
    assert unknown == region(family=UNIFORM)
    assert region(family=EXPONENTIAL, dimensions=1) == pytest.approx(region(family=LAPLACE))
    in_three = region(family="exponential", scale=np.full((3, 1), 0.5), dimensions=3)
    assert in_three == region(family=EXPONENTIAL, dimensions=3) == region(family=EXPONENTIAL.in_dimensions(3))
    assert unknown == region(family=EXPONENTIAL, dimensions=10**6) < in_three < region(family=LAPLACE)


def test_stopping_knows_the_dimensions_of_exponential_noise():
    plan = Plan(n=2000, question=Grid((0, 0.25, 0.5, 0.75, 1)))
    made = simulate.certify([0.99, 0.01, 0], plan, seed=1, family=EXPONENTIAL, dimensions=3)
    assert made.radius > 0.5  # the radius of uniform noise is below the scale
    again = certify_votes(
        made.counts, 0, plan=plan, looks=made.looks, **NOISE | {"family": "exponential", "dimensions": made.dimensions}
    )
    assert again == made


def test_a_lost_vote_abstains_with_nothing_claimed():
    made = certify([400, 600, 0], 0)
    assert (made.predicted, made.radius, made.K) == (ABSTAIN, 0, 0)


def test_draws_that_vote_for_nobody_count_against_the_class():
    assert certify([600, 0, 400], 0).p_a == certify([600, 400, 0], 0).p_a
    two_sided = certify([600, 0, 400], 0, two_sided=True)
    assert two_sided.p_b == certify([600, 400, 0], 0, two_sided=True).p_b


def test_the_radius_follows_the_smallest_scale_and_the_region_covers_more():
    scale = np.array([[0.25, 1.0], [2.0, 0.5]], np.float32)
    made = certify([990, 10, 0], 0, scale=scale, kind=NoiseKind.INPUT)
    assert made.sigma_min == 0.25
    assert made.sigma_geomean == pytest.approx(0.25**0.25)
    assert made.radius == pytest.approx(0.25 * made.K)
    assert made.volume_radius == pytest.approx(made.K * 0.25**0.25)
    assert made.scope is Scope.FROZEN
    along_the_widest = np.array([[0, 0], [made.K * 1.99, 0]])
    assert np.linalg.norm(along_the_widest) > made.radius
    assert made.covers(along_the_widest, scale)
    assert not made.covers(along_the_widest * 1.01, scale)


def test_other_norms():
    made = certify([990, 10, 0], 0, dimensions=100)
    assert made.norm == 2
    assert made.radius_in(1) == made.radius_in(2) == made.radius
    assert made.radius_in(math.inf) == pytest.approx(made.radius / 10)
    assert certify([400, 600, 0], 0, dimensions=100).radius_in(math.inf) == 0
    scale = np.array([[0.25, 1.0], [2.0, 0.5]], np.float32)
    made = certify([990, 10, 0], 0, scale=scale, kind=NoiseKind.INPUT, dimensions=4)
    assert made.dimensions == 4
    assert made.radius_in(math.inf) == pytest.approx(made.K / math.sqrt(16 + 1 + 1 / 4 + 4))
    laplace = certify([990, 10, 0], 0, scale=scale, kind=NoiseKind.INPUT, dimensions=4, family="laplace")
    assert laplace.radius_in(2) == pytest.approx(laplace.K / math.sqrt(16 + 1 + 1 / 4 + 4))
    assert laplace.radius_in(math.inf) == pytest.approx(laplace.K / (4 + 1 + 1 / 2 + 2))


def test_one_scale_for_all_dimensions_is_a_constant_map():
    for scale in (0.1, 0.5, 1 / 3, 7.0):
        of_number = certify([990, 10, 0], 0, scale=scale, dimensions=3072)
        of_map = certify([990, 10, 0], 0, scale=np.full((3, 32, 32), scale), dimensions=3072)
        for name in ("radius", "dimensions", "inverse_scale_l1", "inverse_scale_l2"):
            assert getattr(of_number, name) == getattr(of_map, name)


@pytest.mark.parametrize("shape", [(1,), (1, 1, 1), (3, 1, 1)])
def test_an_array_of_other_dimensions_is_no_scale_for_all_of_them(shape):
    """Its inverse norms would be those of fewer dimensions, and the radii in larger norms far too large."""
    for family in ("gaussian", "laplace"):
        with pytest.raises(ArgumentError, match="one scale for all dimensions is a number, not an array"):
            certify([990, 10, 0], 0, scale=np.full(shape, 0.5), dimensions=3072, family=family)
        of_one = certify([990, 10, 0], 0, scale=np.full(1, 0.5), dimensions=1, family=family)
        assert of_one.radius_in(math.inf) == pytest.approx(of_one.radius, rel=1e-14)


def test_a_radius_that_was_asked_for_is_named_exactly():
    """What holds at 0.9094856 may fail at 0.909486."""
    named = {0.25: "0.25", 1.0: "1", 0.9094856210406663: "0.9094856210406663", 2 / 255: "0.00784313725490196"}
    assert {radius: name_radius(radius) for radius in named} == named
    assert all(float(name_radius(k / 255)) == k / 255 for k in range(1, 256))


def test_without_dimensions_there_is_no_radius_in_a_larger_norm():
    made = certify([990, 10, 0], 0)
    assert made.dimensions is None
    assert made.radius_in(1) == made.radius
    assert made.radius_in(math.inf) is None


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"selected": 2}, "selected = 2 is not valid; there are 2 classes"),
        ({"selected": -1}, "selected = -1 is not valid"),
        ({"scale": np.array([0.5, np.nan])}, "scale = nan is not valid"),
        ({"scale": -0.5}, "scale = -0.5 is not valid"),
        ({"counts": [0, 0, 0]}, "n = 0 is not valid"),
        ({"counts": [-5, 10, 0]}, "counts = -5 is not valid"),
        ({"counts": [60, 40, -30]}, "counts = -30 is not valid"),
        ({"counts": [99.5, 0.5, 0]}, "counts = 99.5 is not valid"),
        ({"counts": [2**57, 0, 0]}, "counts = 144115188075855872 is not valid"),
        ({"counts": [10**9, 10**9, 0]}, "n = 2000000000 is not valid"),
        ({"counts": []}, r"counts = \[\] is not valid; there is a count for each class"),
        ({"selected": 0.5}, "selected = 0.5 is not valid"),
        ({"selected": None}, "selected = None is not valid"),
        (
            {"counts": [900, 99, 0]},
            r"counts = \[900, 99, 0\] is not valid; they are 999 votes, and the plan has n = 1000",
        ),
        ({"scale": []}, "scale = an empty array is not valid"),
        ({"dimensions": 0}, "dimensions = 0 is not valid; an input has at least one"),
        ({"scale": np.full(3, 0.5), "dimensions": 4}, "dimensions = 4 is not valid; the scale map has 3"),
        ({"scale": np.array([0.5, 0.6])}, "kind = isotropic is not valid; this scale is not the same everywhere"),
    ],
)
def test_bad_arguments_are_named_with_their_value(changed, message):
    arguments = {"counts": [900, 100, 0], "selected": 0, "plan": Plan(n=1000)} | NOISE | changed
    with pytest.raises(ArgumentError, match=message):
        certify_votes(**arguments)


@pytest.mark.parametrize("alpha", [1.5, 0, 5e-324, 1e-10, "0.1"])
def test_an_alpha_that_no_certificate_has_is_refused(alpha):
    with pytest.raises(ArgumentError, match=f"alpha = {alpha!r} is not valid"):
        Plan(alpha=alpha)


def test_prediction_answers_only_when_the_lead_is_not_chance():
    assert predict_from_votes([60, 940, 0, 0], alpha=0.001) == 1
    assert predict_from_votes([510, 490, 0, 0], alpha=0.001) == ABSTAIN
    assert predict_from_votes([10, 0, 990], alpha=0.001) == ABSTAIN, "most draws voted for nobody"
    assert predict_from_votes(np.array([0, 990, 10, 0], np.uint64), alpha=0.001) == 1
    with pytest.raises(ArgumentError, match="alpha = 0 is not valid"):
        predict_from_votes([1, 0, 0], alpha=0)
    for bad in ([], [5], [0, 0, 0], [1.5, 2, 0]):
        with pytest.raises(ArgumentError, match=r"(counts|n) = "):
            predict_from_votes(bad, alpha=0.001)


def test_votes_of_any_integer_type_are_the_same_votes():
    """uint8 votes would overflow if they were summed as they are."""
    expected = certify([100, 200, 100], 1)
    made = certify(np.array([100, 200, 100], np.uint8), np.int64(1))
    assert made == expected
    assert made.n == 400
    assert json.dumps(dataclasses.asdict(made))


def test_family_and_kind_may_be_given_by_name():
    named = certify([990, 10, 0], 0, family="gaussian", kind="isotropic")
    assert named == certify([990, 10, 0], 0)
    with pytest.raises(UnknownName, match="noise family 'gausian'"):
        certify([990, 10, 0], 0, family="gausian")
    with pytest.raises(UnknownName, match="noise kind 'inputs'"):
        certify([990, 10, 0], 0, kind="inputs")


def test_the_certificate_is_for_the_scale_that_the_noise_has():
    """0.7 is drawn as the float32 below it; the radius must not be that of 0.7."""
    made = certify([990, 10, 0], 0, scale=0.7)
    assert made.sigma_min == float(np.float32(0.7))
    assert made.radius <= made.K * float(np.float32(0.7))


def test_covers_refuses_a_scale_that_is_not_the_certificates():
    scale = np.float32([0.25, 1.0])
    made = certify([990, 10, 0], 0, scale=scale, kind=NoiseKind.INPUT)
    assert made.covers([0.1, 0.1], scale)
    for bad in ([np.inf, np.inf], [1e9, 1e9], [0.25, 1.0, 1.0], 0.5):
        with pytest.raises(ArgumentError, match="scale"):
            made.covers([100, 100], bad)


def test_prediction_returns_a_wrong_class_no_more_often_than_alpha():
    """Two classes that are equally likely: any answer is wrong half of the time."""
    rng = np.random.default_rng(0)
    hits = rng.binomial(200, 0.5, 4000)
    answers = [predict_from_votes([int(k), 200 - int(k), 0], alpha=0.05) for k in hits]
    assert np.mean([answer != ABSTAIN for answer in answers]) < 0.05 + 4 * math.sqrt(0.05 * 0.95 / 4000)


@settings(deadline=None)
@given(radius=st.floats(0, 1e6), digits=st.integers(0, 6))
def test_a_printed_radius_is_never_more_than_the_proved_one(radius, digits):
    printed = format_radius(radius, digits)
    assert float(printed) <= radius
    assert float(printed) > radius - 10.0**-digits * (1 + 1e-6)


def test_radii_are_printed_with_their_digits():
    assert format_radius(0.49999) == "0.499"
    assert format_radius(2.0, 2) == "2.00"
    assert format_radius(1e30, 1) == "1000000000000000019884624838656.0"
    assert format_radius(math.inf) == "inf"


@pytest.mark.parametrize("shape", [(1,), (3, 1, 1), (3072,)])
def test_dimensions_do_not_follow_from_a_scale_map_that_may_hold_for_larger_inputs(shape):
    for family in ("exponential", "gaussian"):
        made = certify([9990, 10, 0], 0, scale=np.full(shape, 0.5), family=family)
        assert made.dimensions is None
        assert made.K <= certify([9990, 10, 0], 0, dimensions=10**6, family=family).K
        assert made.radius_in(math.inf) is None
