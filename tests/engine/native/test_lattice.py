"""Noise stream 2 is ideal noise on the lattice: the measurements and comparisons that docs/soundness.md relies on."""

import platform
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import reference
from support.stream import noisy_copies, standard_noise

from ars.engine.lattice import FAST_ERROR, FAST_LARGEST, MOST_CENTER, MOST_SCALE, Lattice
from ars.engine.requests import MAX_DRAWS, Phase
from ars.engine.samplers.host import usable_instructions
from ars.errors import ArgumentError, UnknownName
from ars.noise import FAMILIES, GAUSSIAN, PARETO, UNIFORM

HERE = Path(__file__).parent
NATIVE = HERE.parents[2] / "engine" / "native"
SOUNDNESS = HERE.parents[2] / "docs" / "soundness.md"

families = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)


def measure(folder, source, *arguments, header="", old="", new=""):
    """The numbers that a program of this folder prints for each family, perhaps with a change in a header."""
    for path in NATIVE.glob("*.h"):
        text = path.read_text()
        assert path.name != header or old in text
        (folder / path.name).write_text(text.replace(old, new) if path.name == header else text)
    program = folder / "program"
    libraries = ["-lquadmath"] if platform.machine() == "x86_64" else []
    command = ["c++", "-std=c++17", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", f"-I{folder}"]
    compiled = subprocess.run([*command, HERE / source, "-o", program, *libraries], capture_output=True, text=True)
    assert compiled.returncode == 0, compiled.stderr
    printed = subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout
    return {name: tuple(map(float.fromhex, values)) for name, *values in map(str.split, printed.splitlines())}


@pytest.mark.parametrize("stride", [4099, pytest.param(1, marks=pytest.mark.slow)], ids=["some words", "all words"])
def test_the_fast_paths_noise_is_bounded_and_within_2_to_the_minus_19_of_ideal_noise(tmp_path, stride):
    measured = measure(tmp_path, "fast_path.cpp", str(stride))
    assert measured.keys() == FAMILIES.keys()
    for error, largest in measured.values():
        assert error < FAST_ERROR == 2.0**-19
        assert largest <= FAST_LARGEST
    if stride == 1:
        documented = re.findall(r"^    (\w+) (0x\S+) (0x\S+)$", SOUNDNESS.read_text(), re.M)
        assert measured.keys() == {name for name, *_ in documented}
        for name, *values in documented:
            assert measured[name] == pytest.approx([*map(float.fromhex, values)], rel=1e-8)


@pytest.mark.parametrize(
    ("family", "least", "wider"),
    [
        ("gaussian", "0x00040000u", "0x00000400u"),
        ("gaussian", "0xFFF3FFFFu", "0xFFFFF3FFu"),
        ("laplace", "0x00080000u", "0x00000400u"),
        ("pareto", "0x00100000u", "0x00040000u"),
    ],
)
def test_words_that_the_fast_path_leaves_to_the_slow_path_would_exceed_its_bound(tmp_path, family, least, wider):
    error, _ = measure(tmp_path, "fast_path.cpp", "4099", header="distributions.h", old=least, new=wider)[family]
    assert error > FAST_ERROR


def test_the_slow_paths_noise_is_within_110_roundings_of_ideal_noise(tmp_path):
    errors = measure(tmp_path, "slow_path.cpp")
    assert errors.keys() == FAMILIES.keys()
    assert errors["gaussian"][0] <= 88
    assert errors["laplace"][0] <= 107
    assert errors["uniform"][0] <= 3
    assert errors["pareto"][0] <= 4.3
    assert max(errors["exponential"]) <= 1  # of the bounds of Lemma 6


@pytest.mark.parametrize(
    ("family", "old", "new"),
    [
        ("laplace", "p = fma(p, w, 1.0 / 15);", ""),
        ("gaussian", "p = fma(p, q, 1.0 / 6227020800.0);", ""),
        ("gaussian", "add(to_double(most - word), 0.5)", "to_double(most - word)"),
    ],
)
def test_an_error_in_the_slow_path_would_be_measured(tmp_path, family, old, new):
    errors = measure(tmp_path, "slow_path.cpp", header="precise.h", old=old, new=new)
    assert errors[family][0] > 110


@pytest.mark.parametrize(
    ("header", "old", "new"),
    [
        ("stream.h", "add(d, 2.0 / 3)", "add(d, 0.66666666666666)"),
        ("precise.h", "p = fma(p, w, 1.0 / 15);", ""),
        ("precise.h", "p = fma(p, q, 1.0 / 6227020800.0);", ""),
    ],
)
def test_an_error_in_the_stretch_would_be_measured(tmp_path, header, old, new):
    assert max(measure(tmp_path, "slow_path.cpp", header=header, old=old, new=new)["exponential"]) > 1


def random_maps(seed, dimensions):
    """Scales from 32 to 2^15 steps and centers up to 2^20 steps, every size of both as likely as any other."""
    rng = np.random.default_rng(seed)
    scale = (32 * 2 ** rng.uniform(0, 10, dimensions)).astype(np.float32)
    center = rng.choice([-1, 1], dimensions) * 2 ** rng.uniform(-4, 19.98, dimensions)
    mean = (center * rng.uniform(-0.01, 0.01, dimensions)).astype(np.float32)
    return center.astype(np.float32), mean, scale


def differences(family, values):
    """How many values of the fast path, by each set of instructions, are not those of the slow path; and how many the
    slow path made. Every batch has other maps, another step and an odd number of dimensions."""
    different = made = seed = 0
    while made < values:
        dimensions, draws = (997, 1023, 2051, 4099)[seed % 4], 257 if values < 10**8 else 4096
        step = 2.0 ** (seed % 41 - 20)
        maps = [values * np.float32(step) for values in random_maps(seed, dimensions)]
        how = {"lattice": Lattice(step), "seed": seed, "draws": draws, "threads": 2}
        slow = noisy_copies(family, *maps, **how, instructions="precise")
        for instructions in usable_instructions():
            different += np.count_nonzero(noisy_copies(family, *maps, **how, instructions=instructions) != slow)
        made, seed = made + slow.size, seed + 1
    return different, made


@families
@pytest.mark.parametrize(
    "values", [3_400_000, pytest.param(340_000_000, marks=pytest.mark.slow)], ids=["10^7 in all", "10^9 in all"]
)
def test_the_fast_path_and_the_slow_path_give_the_same_values(family, values):
    different, made = differences(family, values)
    assert made >= values
    assert different == 0


@families
def test_without_its_margin_the_fast_path_would_differ(family, monkeypatch):
    noise = Lattice.noise
    half = np.float32(0.5)
    monkeypatch.setattr(Lattice, "noise", lambda *given: replace(made := noise(*given), margin=made.margin * 0 + half))
    different, made = differences(family, 3_400_000)
    assert different > made * len(usable_instructions()) * 1e-6


@families
def test_values_are_those_of_ideal_noise_in_50_digits(family):
    step, dimensions, draws = 2.0**-8, 203, 8
    x, mean, scale = (values * np.float32(step) for values in random_maps(5, dimensions))
    where = {"seed": 2**40 + 5, "input_id": 9, "phase": Phase.SELECTION}
    noisy = noisy_copies(family, x, mean, scale, **where, draws=draws, lattice=Lattice(step))
    for draw in range(draws):
        z = [reference.lattice_noise(family.name, *where.values(), draw, block, dimensions) for block in range(51)]
        ideal = map(reference.lattice_value, np.concatenate(z)[:dimensions], x, mean, scale, [step] * dimensions)
        assert noisy[draw].tolist() == list(ideal)


@families
def test_the_most_extreme_of_ten_million_values_are_those_of_ideal_noise(family):
    """Those at both ends, which only the slow path can decide, and those nearest to 0."""
    lattice, dimensions = Lattice(2.0**-15), 10**7
    z = standard_noise(family, dimensions=dimensions, seed=8)[0]
    order = np.argpartition(np.abs(z), [100, dimensions - 100])
    chosen = [*order[:100], *order[-100:]]
    noisy = standard_noise(family, dimensions=dimensions, seed=8, lattice=lattice)[0]
    for i in chosen:
        ideal = reference.lattice_noise(family.name, 8, 0, Phase.ESTIMATION, 0, int(i) // 4, dimensions)[int(i) % 4]
        assert noisy[i] == reference.lattice_value(ideal, 0, 0, 1, lattice.step)


@families
@pytest.mark.parametrize("step", [2.0**-100, 2.0**-8, 2.0**100])
@pytest.mark.parametrize("far", [0, 1])
def test_values_are_multiples_of_the_step_at_every_end_of_the_range(family, step, far):
    x = np.full(4099, far * MOST_CENTER * step, np.float32)
    noisy = noisy_copies(family, x, 0, MOST_SCALE * step, draws=50, lattice=Lattice(step)).astype(np.float64)
    cells = noisy / step
    np.testing.assert_array_equal(cells, np.rint(cells))
    assert np.abs(cells).max() <= 2**22
    assert not np.signbit(noisy[noisy == 0]).any()


def test_values_of_pareto_noise_beyond_the_furthest_cell_are_there():
    """Draws with values of 156 and 122 scales, found among 10^9 values: at most 2^22 steps, whatever the step."""
    where = {"seed": 0xDEADBEEFCAFEF00D, "input_id": 0x77, "phase": Phase.PREDICTION}
    for step, draw, i in ((2.0**100, 2, 12161), (2.0**-100, 86, 21422)):
        x = np.full(i + 1, MOST_CENTER * step, np.float32)
        noisy = noisy_copies(PARETO, x, 0, MOST_SCALE * step, **where, first_draw=draw, lattice=Lattice(step))
        assert noisy[0, i] == 2.0**22 * step
        assert np.isfinite(noisy).all()


MARKS = (0x00, 0x80, 0x40, 0xC0)  # of values, of their other 32 bits, and of the same for stretches


@settings(deadline=None)
@given(
    phase=st.sampled_from(Phase),
    draw=st.integers(0, MAX_DRAWS - 1),
    mark=st.sampled_from(MARKS),
    other=st.sampled_from(Phase),
    other_draw=st.integers(0, MAX_DRAWS - 1),
    other_mark=st.sampled_from(MARKS),
)
def test_the_counters_of_the_slow_path_and_of_stretches_are_no_other_draws(
    phase, draw, mark, other, other_draw, other_mark
):
    one, two = reference.counter(0, phase | mark, draw, 0), reference.counter(0, other | other_mark, other_draw, 0)
    assert one[3] & 0xC0 == mark
    assert (one == two) == ((phase, draw, mark) == (other, other_draw, other_mark))


@pytest.mark.parametrize("mark", MARKS[1:])
def test_no_request_can_ask_for_the_phases_of_the_slow_path_and_of_stretches(mark):
    for phase in Phase:
        with pytest.raises(ArgumentError, match=f"phase = {phase | mark} is not valid"):
            standard_noise(UNIFORM, dimensions=4, phase=phase | mark)


def test_noise_stream_1_has_no_slow_path():
    with pytest.raises(UnknownName, match="unknown set of instructions 'precise'"):
        standard_noise(GAUSSIAN, dimensions=4, instructions="precise")
