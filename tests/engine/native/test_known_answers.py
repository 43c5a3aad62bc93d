"""Every implementation of the noise gives the known answers of one file, bit for bit."""

import platform
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from support import reference
from support.stream import standard_noise

from ars.engine import _native
from ars.engine.lattice import Lattice
from ars.engine.requests import Request
from ars.engine.samplers.host import HostSampler, usable_instructions
from ars.noise import FAMILIES

HERE = Path(__file__).parent
ANSWERS = HERE.parents[1] / "known_answers.txt"
SOURCE = HERE / "known_answers.cu"
NATIVE = HERE.parents[2] / "engine" / "native"
EXACT = ["-std=c++17", "-O2", "-ffp-contract=off", f"-I{NATIVE}"]
NVCC = shutil.which("nvcc")
ARM_COMPILER, ARM_EMULATOR = shutil.which("aarch64-linux-gnu-g++"), shutil.which("qemu-aarch64")

LINES = [line.split(":") for line in ANSWERS.read_text().splitlines() if not line.startswith("#")]
PHILOX = [(left.split()[1:], right.split()) for left, right in LINES if left.startswith("philox")]
LATTICE = [(left.split()[1:], right.split()) for left, right in LINES if left.startswith("lattice")]
STREAM = [(left.split(), right.split()) for left, right in LINES if left.split()[0] in FAMILIES]
COUNT = len(LINES)


def words(hexadecimal):
    return [int(word, 16) for word in hexadecimal]


@pytest.mark.parametrize(("given", "expected"), PHILOX)
def test_philox_gives_the_vectors_of_random123(given, expected):
    counter, key = words(given[:4]), words(given[4:])
    assert list(_native.philox4x32_10(tuple(counter), tuple(key))) == words(expected)
    assert reference.philox(counter, key) == words(expected)


def test_the_reference_philox_is_numpys_at_64_bits():
    counter, key = [11, 22, 33, 44], [55, 66]
    numpys = np.random.Philox(counter=counter, key=key).random_raw(4)  # numpy adds one to the counter first
    counter[0] += 1
    assert reference.philox(counter, key, reference.PHILOX_4X64) == numpys.tolist()


@pytest.mark.parametrize(("given", "expected"), STREAM, ids=[" ".join(given) for given, _ in STREAM])
@pytest.mark.parametrize("instructions", usable_instructions())
def test_scalar_and_vector_code_give_the_streams_known_bits(given, expected, instructions):
    family, (seed, input_id, phase, draw, block) = given[0], words(given[1:])
    noise = standard_noise(
        FAMILIES[family],
        seed=seed,
        input_id=input_id,
        phase=phase,
        first_draw=draw,
        dimensions=4 * block + 4,
        instructions=instructions,
    )
    assert noise[0, -4:].view(np.uint32).tolist() == words(expected)
    exact = reference.stream_block(family, seed, input_id, phase, draw, block, 4 * block + 4)
    np.testing.assert_allclose(noise[0, -4:], exact, atol=1e-6)


@pytest.mark.parametrize(("given", "expected"), LATTICE, ids=[" ".join(given) for given, _ in LATTICE])
def test_both_paths_of_noise_stream_2_give_its_known_bits(given, expected):
    family, (seed, input_id, phase, draw, block), bits = given[0], words(given[1:6]), words(given[6:])
    step, scale, margin = np.array(bits[:3], np.uint32).view(np.float32)
    center = np.array(bits[3], np.uint64).view(np.float64)
    for instructions in [*usable_instructions(), "precise"]:
        lattice, dimensions = Lattice(float(step)), 4 * block + 4
        host = HostSampler(1, dimensions, FAMILIES[family], seed, lattice=lattice, instructions=instructions)
        host.load(0, np.zeros(dimensions), 0, step * 64)
        host.put(0, [np.float32(center), scale, margin, center])  # the very bits of the line, the margin among them
        out = np.empty((1, dimensions), np.float32)
        host.fill(out, [Request(0, input_id, phase, draw, 1)])
        assert out[0, -4:].view(np.uint32).tolist() == words(expected), instructions
    ideal = reference.lattice_noise(family, seed, input_id, phase, draw, block, dimensions)
    values = [reference.lattice_value(z, center * step, 0, scale * step, step) for z in ideal]
    assert np.array(values, np.float32).view(np.uint32).tolist() == words(expected)


def test_known_answers_of_noise_stream_2_are_decided_by_both_paths():
    for family in FAMILIES:
        margins = [given[8] for given, _ in LATTICE if given[0] == family]
        assert len(margins) >= 10
        assert 3 <= margins.count("00000000") < len(margins)  # a margin of 0 leaves every value to the slow path


def test_python_and_cpp_list_the_same_families_with_the_same_codes():
    assert _native.families() == {family.name: family.code for family in FAMILIES.values()}


def test_every_family_has_known_answers_and_a_reference():
    assert {given[0] for given, _ in STREAM} == reference.REFERENCES.keys() == FAMILIES.keys()
    assert {given[0] for given, _ in LATTICE} == FAMILIES.keys()


def passes(program, *before):
    run = subprocess.run([*before, program, ANSWERS], capture_output=True, text=True)
    assert run.stdout == f"{COUNT} passed, 0 failed\n"


def compile_with(*command):
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout + run.stderr


def test_the_cuda_source_compiled_as_host_code_gives_the_known_bits(tmp_path):
    compile_with("c++", "-x", "c++", *EXACT, "-Wall", "-Wextra", "-Werror", SOURCE, "-o", tmp_path / "host")
    passes(tmp_path / "host")


@pytest.mark.skipif(not NVCC, reason="nvcc is not installed")
def test_the_cuda_source_through_nvcc_gives_the_known_bits_on_the_host(tmp_path):
    compile_with(NVCC, "-std=c++17", f"-I{NATIVE}", "-Xcompiler", "-ffp-contract=off", SOURCE, "-o", tmp_path / "nvcc")
    passes(tmp_path / "nvcc")


@pytest.mark.skipif(not NVCC, reason="nvcc is not installed")
@pytest.mark.parametrize("compute", [75, 80, 90, 120])
def test_nvcc_compiles_the_header_for_each_architecture(tmp_path, compute):
    cubin = tmp_path / "kernel.cubin"
    said = compile_with(
        NVCC, "-std=c++17", f"-arch=sm_{compute}", "-cubin", "-Xptxas=-v", f"-I{NATIVE}", SOURCE, "-o", cubin
    )
    assert cubin.stat().st_size > 0
    assert "warning" not in said
    assert "spill" not in said or "0 bytes spill stores" in said


@pytest.mark.skipif(platform.machine() != "x86_64", reason="a native arm64 run has tested this already")
@pytest.mark.skipif(not (ARM_COMPILER and ARM_EMULATOR), reason="g++-aarch64-linux-gnu and qemu-user are not installed")
def test_arm64_gives_the_known_bits_under_emulation(tmp_path):
    compile_with(ARM_COMPILER, "-static", "-x", "c++", *EXACT, SOURCE, "-o", tmp_path / "scalar")
    passes(tmp_path / "scalar", ARM_EMULATOR)
    sources = [NATIVE / name for name in ("instructions.cpp", "fill_scalar.cpp", "fill_neon.cpp")]
    compile_with(ARM_COMPILER, "-static", *EXACT, HERE / "instructions.cpp", *sources, "-o", tmp_path / "neon")
    run = subprocess.run([ARM_EMULATOR, tmp_path / "neon"], capture_output=True, text=True)
    assert run.stdout == "neon\nscalar\n", run.stderr
