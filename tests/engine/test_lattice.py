"""The lattice of noise stream 2: the steps and inputs that it refuses, with a fix that works, and its error."""

import re
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ars.engine.lattice import LEAST_SCALE, MOST_CENTER, MOST_SCALE, Lattice, choose_step
from ars.engine.noise_maps import Isotropic
from ars.engine.samplers.host import HostSampler
from ars.errors import ArgumentError
from ars.noise import FAMILIES, GAUSSIAN, PARETO, UNIFORM


def floats(*values):
    return np.array(values, np.float32)


def load(step, x=0.0, mean=0.0, scale=(1.0, 1.0)):
    HostSampler(1, 2, GAUSSIAN, 0, lattice=Lattice(step)).load(0, floats(0, x), mean, scale)


@pytest.mark.parametrize("step", [0.3, 1 / 255, 0, -0.5, 3, 2.0**-101, 2.0**101, float("inf"), float("nan")])
def test_a_step_that_is_not_a_power_of_two_is_refused(step):
    message = f"lattice_step = {re.escape(str(float(step)))} is not valid; it must be a power of two between 2^-100"
    with pytest.raises(ArgumentError, match=message.replace("^", r"\^")):
        Lattice(step)


def test_a_step_that_is_no_number_is_refused():
    with pytest.raises(ArgumentError, match=r"lattice_step = '0\.5' is not valid; it must be a number"):
        Lattice("0.5")


@pytest.mark.parametrize("step", [2.0**-100, 2.0**-8, 1, 2.0**100])
def test_powers_of_two_are_taken(step):
    assert Lattice(step).step == step


@pytest.mark.parametrize("step", [np.float32(2**-8), np.float64(2**-8), Fraction(1, 256)])
def test_a_step_of_any_type_is_kept_as_a_float(step):
    assert type(Lattice(step).step) is float
    assert Lattice(step) == Lattice(2.0**-8)


@pytest.mark.parametrize("step", [True, np.True_])
def test_true_is_no_step(step):
    with pytest.raises(ArgumentError, match=r"lattice_step = .*True.* is not valid; it must be a number"):
        Lattice(step)


@pytest.mark.parametrize("sigma", [np.float32(0.5), np.float64(0.5), Fraction(1, 2)])
def test_a_sigma_of_any_type_is_kept_as_a_float(sigma):
    assert type(Isotropic(sigma).source.sigma) is float
    assert Isotropic(sigma) == Isotropic(0.5)


@pytest.mark.parametrize("scale", [1e-45, 1e-42, 1e-30, 4e-29, 1e32, 1e37, 3e38])
def test_a_scale_that_no_step_is_chosen_for_is_named_itself(scale):
    with pytest.raises(ArgumentError, match=r"sigma = \S+ is not valid; noise stream 2 covers scales from 5.05e-29 to"):
        choose_step(scale, "sigma")


@pytest.mark.parametrize("scale", [1e-45, 1e-42, 1e-30, 1e-28, 1e-3, 1.0, 1e30, 1e32, 1e37, 3e38])
@pytest.mark.parametrize("step", [2.0**-100, 2.0**-8, 2.0**100])
def test_noise_and_its_error_refuse_the_same_inputs_with_a_fix_that_works(scale, step):
    said = []
    for made, *family in ((Lattice(step).noise,), (Lattice(step).error, GAUSSIAN)):
        try:
            made(floats(0, 1), floats(0), floats(scale), *family)
        except ArgumentError as refusal:
            said.append(str(refusal))
    assert len(said) in (0, 2)
    assert len(set(said)) <= 1
    if said and (other := re.search(r": use a lattice step of (\S+)$", said[0])):
        assert Lattice(float(other[1])).error(floats(0, 1), floats(0), floats(scale), GAUSSIAN) < 1e-3


REFUSED = [
    ({"step": 2**-5, "scale": 0.5}, "lattice_step = 0.03125 is not valid; it must be at most a 32nd of the smallest"),
    ({"step": 2.0**100, "scale": 1e-27}, r"lattice_step = 1\.26\S+ is not valid; it must be at most a 32nd"),
    ({"step": 2**-8, "scale": 200}, "scale = 200.0 is not valid; the largest for a lattice step of 0.00390625 is 128"),
    ({"step": 2**-100, "scale": 1e20}, r"scale = 1\.0\S+ is not valid; the largest for a lattice step"),
    ({"step": 2**-8, "scale": (1.0, 900.0)}, r"scale = 900.0 .*: use a lattice step of 0.03125"),
    ({"step": 2**-4, "scale": (1.0, 1500.0)}, r"lattice_step = 0.0625 .*: no lattice step fits this input"),
    ({"step": 2**-8, "scale": (1.0, 1500.0)}, r"scale = 1500.0 .*: no lattice step .* scale is at least 2.92969"),
    ({"step": 2**-8, "x": -4096.5}, r"x \+ mean = 4096.5 is not valid; the largest for a lattice step of \S+ is 4096"),
    ({"step": 2**-8, "x": 4000, "mean": 97}, r"x \+ mean = 4097.0 is not valid"),
]


@pytest.mark.parametrize(("given", "message"), REFUSED)
def test_noise_beyond_the_range_of_the_proof_is_refused_with_a_fix_that_works(given, message):
    with pytest.raises(ArgumentError, match=message) as refusal:
        load(**given)
    said = str(refusal.value)
    if step := re.search(r": use a lattice step of (\S+)$", said):
        load(**given | {"step": float(step[1])})
    else:
        assert "no lattice step fits this input, unless its smallest scale is at least" in said


@given(
    step=st.integers(-100, 100).map(lambda e: 2.0**e),
    least=st.floats(2.0**-90, 2.0**90, width=32),
    ratio=st.floats(1, 3000, width=32),
    x=st.floats(-(2.0**100), 2.0**100, width=32),
)
def test_whatever_is_refused_is_taken_with_the_fix(step, least, ratio, x):
    scale = floats(least, least * ratio)
    x = floats(x, 0)
    try:
        Lattice(step).noise(x, floats(0), scale)
    except ArgumentError as refusal:
        said = str(refusal)
    else:
        assert scale.min() >= 32 * step
        return
    if other := re.search(r": use a lattice step of (\S+)$", said):
        assume(2.0**-100 <= float(other[1]) <= 2.0**100)
        Lattice(float(other[1])).noise(x, floats(0), scale)
    else:
        larger = np.maximum(scale, np.float32(float(said.rsplit(" ", 1)[1]) * 1.001))
        with pytest.raises(ArgumentError, match="no lattice step fits"):
            Lattice(choose_step(float(scale.min()))).noise(x, floats(0), scale)
        step = choose_step(float(larger.min()))
        assume(2.0**-100 <= step <= 2.0**100)
        try:
            Lattice(step).noise(x, floats(0), larger)
        except ArgumentError as refusal:
            Lattice(float(str(refusal).rsplit(" ", 1)[1])).noise(x, floats(0), larger)


def test_the_ends_of_the_range_are_taken():
    step, x = 2.0**-8, floats(1, -1) * np.float32(MOST_CENTER * 2.0**-8)
    noise = Lattice(step).noise(x, floats(0), floats(LEAST_SCALE * step, MOST_SCALE * step))
    assert noise.scale.tolist() == [LEAST_SCALE, MOST_SCALE]
    assert noise.center.tolist() == [MOST_CENTER, -MOST_CENTER]
    assert (noise.margin > 0.25).all()
    for scale, far in ((LEAST_SCALE, False), (MOST_SCALE, False), (1024, True)):
        beyond = np.nextafter(np.float32(scale * step), np.float32(0 if scale == LEAST_SCALE else np.inf))
        with pytest.raises(ArgumentError):
            Lattice(step).noise(np.nextafter(x, x * 2) if far else x, floats(0), floats(beyond))


@given(
    x=st.floats(-4096, 4096, width=32),
    mean=st.floats(-1, 1, width=32),
    scale=st.floats(2.0**-3, 128, width=32),
)
def test_the_margin_is_below_half_a_cell_minus_the_error_of_the_fast_path(x, mean, scale):
    """With exact fractions: B of Lemma 2 (docs/soundness.md)."""
    center = (Fraction(x) + Fraction(mean)) * 256
    assume(abs(center) <= 2**20)
    noise = Lattice(2.0**-8).noise(floats(x), floats(mean), floats(scale))
    product = Fraction(scale) * 256 * (Fraction(1, 2**19) + Fraction(84, 10) / 2**24)
    bound = product + Fraction(1001, 1000) / 2**23 * abs(center) + Fraction(1, 2**25)
    assert Fraction(1, 2) - bound - Fraction(1, 2**23) < Fraction(float(noise.margin[0])) <= Fraction(1, 2) - bound


@given(
    x=st.lists(st.floats(-1000, 1000, width=32), min_size=1, max_size=20),
    scale=st.floats(2.0**-3, 128, width=32),
    family=st.sampled_from(list(FAMILIES.values())),
)
def test_the_error_is_that_of_the_theorem_rounded_up_to_a_power_of_two(x, scale, family):
    step, a, v = Fraction(1, 256), Fraction(scale) * 256, 4 if family is PARETO else 1
    eta = sum(2 * (a / 2**46 + abs(Fraction(x_i)) / step / 2**51) * (1 + v / a) for x_i in x)
    error = Lattice(2.0**-8).error(floats(*x), floats(0), floats(scale), family)
    assert eta <= Fraction(error) <= 2 * eta * (1 + Fraction(1, 10**8))
    assert np.frexp(error)[0] == 0.5


def test_the_error_grows_with_the_variation_of_the_density():
    x, scale = np.zeros(64, np.float32), floats(LEAST_SCALE / 256)
    rougher = replace(UNIFORM, variation=float(LEAST_SCALE))
    usual, larger = (Lattice(2.0**-8).error(x, floats(0), scale, family) for family in (UNIFORM, rougher))
    assert larger == 2 * usual


def test_the_error_of_the_usual_inputs_is_what_the_documentation_says():
    for dimensions, most in ((150_528, 2.0**-20), (3072, 2.0**-26)):
        x, scale = np.ones(dimensions, np.float32), floats(0.5)
        assert Lattice(choose_step(0.5)).error(x, floats(0), scale, GAUSSIAN) == most


@given(st.floats(2.0**-90, 2.0**90))
def test_the_chosen_step_has_between_64_and_1024_steps_in_a_scale(scale):
    step = Lattice(choose_step(scale)).step
    assert 64 <= scale / step <= 1024
    assert step == 2.0**-8 or 64 <= scale / step < 128


def test_images_have_a_step_of_two_to_the_minus_8():
    assert {choose_step(scale) for scale in (0.25, 0.5, 1.0, 4.0)} == {2.0**-8}
    assert choose_step(0.12) == 2.0**-10


def test_an_inputs_noise_is_written_in_steps():
    noise = Lattice(2.0**-8).noise(floats(0.5, 1), floats(0.25), floats(2))
    assert noise.center.tolist() == noise.exact_center.tolist() == [192, 320]
    assert noise.scale.tolist() == [512, 512]
