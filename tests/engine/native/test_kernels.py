"""kernels.cu, compiled as host code, and as the PTX that nvcc writes for GPUs, gives what the host sampler gives."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_gpu import kernels, ptx
from simulated_gpu.kernels import launch

from ars.engine.lattice import Lattice
from ars.engine.requests import MAX_DRAWS, Phase, Request
from ars.engine.samplers.host import HostSampler
from ars.noise import EXPONENTIAL, FAMILIES, GAUSSIAN

FILL, FILL_LATTICE, COUNT = "PPiqPPqIQ", "PPiqPPPPfqIQ", "PiPiqP"

streams = pytest.mark.parametrize("lattice", [None, Lattice(2.0**-9)], ids=["stream 1", "stream 2"])


without_nvcc = pytest.mark.skipif(not ptx.NVCC, reason="nvcc is not installed")


@pytest.fixture(scope="module", autouse=True, params=["host code", pytest.param("PTX", marks=without_nvcc)])
def code(request):
    """What the kernels of all tests are compiled to."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "PTX":
            patch.setattr(kernels, "library", ptx.library)
        yield request.param


def device_table(requests):
    table = np.array(requests, np.int64).reshape(-1, 5)
    table[:, 4] = np.cumsum(table[:, 4])
    return table


def address(array):
    return array.ctypes.data


def random_slots(slots, dimensions, seed=0):
    rng = np.random.default_rng(seed)
    center = rng.normal(0, 1, (slots, dimensions)).astype(np.float32)
    return center, rng.uniform(0.1, 2, (slots, dimensions)).astype(np.float32)


def tables_of(center, scale, lattice):
    """The tables that the kernels read, with a row for each slot."""
    if not lattice:
        return [center, scale]
    rows = [lattice.noise(x, np.float32([0]), s) for x, s in zip(center, scale, strict=True)]
    return [np.stack([getattr(row, name) for row in rows]) for name in ("center", "scale", "margin", "exact_center")]


def filled(requests, center, scale, family=GAUSSIAN, seed=0, dtype=np.float32, block=64, most_rows=65535, lattice=None):
    """The batch that the kernel fills. A value after its end checks that nothing is written there."""
    dimensions, rows = center.shape[1], sum(request.draws for request in requests)
    # CUDA's buffers are aligned to 256 bytes and numpy's to 16, which is all that the kernel needs.
    out = np.full(rows * dimensions + 1, 77, dtype)
    table, tables = device_table(requests), tables_of(center, scale, lattice)
    grid = (-(-dimensions // (4 * block)), min(rows, most_rows))
    where = (address(out), address(table), len(table), rows, *map(address, tables))
    name, form, step = ("lattice", FILL_LATTICE, [lattice.step]) if lattice else ("noisy", FILL, [])
    name = f"stretched_{name}" if family.stretched else name
    what = (*step, dimensions, family.code, seed)
    launch(f"fill_{name}_{np.dtype(dtype)}", grid, (block, 1, 1), form, *where, *what)
    assert out[-1] == 77
    return out[:-1].reshape(rows, dimensions)


def filled_by_host(requests, center, scale, family=GAUSSIAN, seed=0, lattice=None):
    host = HostSampler(len(center), center.shape[1], family, seed, lattice=lattice)
    for slot in range(len(center)):
        host.load(slot, center[slot], 0, scale[slot])
    out = np.empty((sum(request.draws for request in requests), center.shape[1]), np.float32)
    host.fill(out, requests)
    return out


def same_bits(a, b):
    np.testing.assert_array_equal(a.view(f"u{a.itemsize}"), b.view(f"u{b.itemsize}"))


MANY = [  # several inputs, phases, empty requests at both ends and in the middle, the last draws of the stream
    Request(0, 0, Phase.SELECTION, 0, 0),
    Request(1, 7, Phase.SELECTION, 5, 3),
    Request(0, 2**32 - 1, Phase.ESTIMATION, 2**32 - 2, 5),
    Request(2, 9, Phase.ESTIMATION, 0, 0),
    Request(2, 9, Phase.ESTIMATION, 0, 0),
    Request(2, 8, Phase.PREDICTION, MAX_DRAWS - 4, 4),
    Request(1, 7, Phase.ESTIMATION, 0, 1),
    Request(1, 7, Phase.PREDICTION, 3, 0),
]


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
@streams
@pytest.mark.parametrize("dimensions", [1, 2, 3, 4, 5, 8, 255, 256, 257, 784])
def test_noisy_copies_are_the_host_samplers_to_the_bit(family, dimensions, lattice):
    center, scale = random_slots(3, dimensions)
    made = filled(MANY, center, scale, family, seed=0x123456789ABCDEF0, lattice=lattice)
    same_bits(made, filled_by_host(MANY, center, scale, family, seed=0x123456789ABCDEF0, lattice=lattice))


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_values_that_only_the_slow_path_decides_are_the_host_samplers_to_the_bit(family):
    """Scales of 2^14 steps, and centers of 2^20, leave every fourth value to the slow path."""
    lattice, (center, scale) = Lattice(2.0**-13), random_slots(3, 1001)
    center[1] += np.float32(120)
    made = filled(MANY, center, scale, family, lattice=lattice)
    same_bits(made, filled_by_host(MANY, center, scale, family, lattice=lattice))


@pytest.mark.parametrize("dimensions", [3, 4, 257, 784])
def test_half_precision_copies_are_the_float32_ones_rounded_to_nearest(dimensions):
    center, scale = random_slots(3, dimensions)
    center[0] *= 1e-6  # values that are subnormal in half precision
    scale[0] *= 1e-6
    center[1] *= 1e6  # and values that are too large for it
    with np.errstate(over="ignore"):
        expected = filled_by_host(MANY, center, scale).astype(np.float16)
    assert np.isinf(expected).any()
    assert (np.abs(expected) < 2**-14).any()
    same_bits(filled(MANY, center, scale, dtype=np.float16), expected)


@pytest.mark.parametrize("dimensions", [256, 257])
def test_half_precision_copies_are_rounded_lattice_points_and_exact_up_to_11_bits(dimensions):
    lattice, scale = Lattice(2.0**-8), np.full((3, dimensions), 4, np.float32)
    center = np.linspace(-30, 30, 3 * dimensions, dtype=np.float32).reshape(3, dimensions)
    half = filled(MANY, center, scale, dtype=np.float16, lattice=lattice)
    exact = filled_by_host(MANY, center, scale, lattice=lattice)
    same_bits(half, exact.astype(np.float16))
    short = np.abs(exact) <= 2**11 * lattice.step
    assert 0.1 < short.mean() < 0.9
    np.testing.assert_array_equal(half[short].astype(np.float32), exact[short])


@streams
def test_a_family_that_the_kernels_do_not_know_gives_copies_that_vote_for_nobody(lattice):
    center, scale = random_slots(3, 8)
    for unknown in (replace(GAUSSIAN, code=99), replace(EXPONENTIAL, code=99), replace(EXPONENTIAL, stretched=False)):
        assert np.isnan(filled(MANY, center, scale, unknown, lattice=lattice)).all()


@streams
def test_a_family_that_the_native_module_does_not_know_is_refused(lattice):
    center, scale = random_slots(3, 8)
    with pytest.raises(ValueError, match="there is no such noise family"):
        filled_by_host(MANY, center, scale, replace(GAUSSIAN, code=99), lattice=lattice)


@settings(max_examples=50, deadline=None)
@given(
    dimensions=st.integers(1, 70),
    draws=st.lists(st.integers(0, 9), min_size=1, max_size=12),
    block=st.sampled_from([1, 32, 128]),
    most_rows=st.integers(1, 20),
    lattice=st.sampled_from([None, Lattice(2.0**-9)]),
    data=st.data(),
)
def test_any_shape_on_any_grid_gives_the_same_copies(dimensions, draws, block, most_rows, lattice, data):
    center, scale = random_slots(2, dimensions)
    requests = [Request(data.draw(st.integers(0, 1)), i, Phase.ESTIMATION, 10 * i, n) for i, n in enumerate(draws)]
    made = filled(requests, center, scale, block=block, most_rows=most_rows, lattice=lattice)
    same_bits(made, filled_by_host(requests, center, scale, lattice=lattice))


def counted(logits, requests, block=32):
    table, counts = device_table(requests), np.zeros((len(requests), logits.shape[1] + 1), np.int32)
    pointers = (address(logits), logits.shape[1], address(table), len(table), len(logits), address(counts))
    launch(f"count_votes_{logits.dtype}", (-(-len(logits) * 32 // block), 1), (block, 1, 1), COUNT, *pointers)
    return counts


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("classes", [1, 2, 10, 31, 32, 33, 100, 1000])
@pytest.mark.parametrize("block", [32, 128])
def test_votes_are_the_host_counters(dtype, classes, block):
    rng = np.random.default_rng(classes)
    # Whole numbers, so that there are ties; and here and there a logit that is not finite.
    logits = rng.integers(-3, 4, (100, classes)).astype(dtype)
    for row, bad in zip(rng.choice(100, 9, replace=False), [np.nan, np.inf, -np.inf] * 3, strict=True):
        logits[row, rng.integers(classes)] = bad
    requests = [Request(0, i, Phase.ESTIMATION, 0, draws) for i, draws in enumerate([0, 33, 1, 0, 0, 66, 0])]
    host = HostSampler(1, 4, GAUSSIAN, 0)
    host.load(0, np.zeros(4), 0, 1)
    counts = counted(logits, requests, block)
    np.testing.assert_array_equal(counts, host.count(logits.astype(np.float32), requests))
    assert counts[:, -1].sum() == 9


def test_every_half_precision_number_survives_the_stand_in_for_cudas_conversions():
    """The simulated GPU's own conversions agree with numpy's."""
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    logits = np.stack([every, np.zeros_like(every)], 1)
    counts = counted(logits, [Request(0, 0, Phase.ESTIMATION, 0, 1)] * 2**16)
    finite = np.isfinite(every)
    np.testing.assert_array_equal(counts[:, 2] == 1, ~finite)
    np.testing.assert_array_equal(counts[finite, 0] == 1, every[finite] >= 0)


@pytest.mark.parametrize(
    "statement",
    [
        "add.f32 %f1, %f2, %f3",
        "mad.rn.f32 %f1, %f2, %f3, %f1",
        "sin.approx.f32 %f1, %f2",
        "add.rn.ftz.f32 %f1, %f2, %f3",
    ],
)
def test_arithmetic_that_a_gpu_may_round_otherwise_is_not_translated(statement):
    text = f".visible .entry kernel(\n.param .u64 kernel_param_0\n)\n{{\n.reg .f32 %f<4>;\n{statement};\nret;\n\n}}"
    with pytest.raises(AssertionError, match="the translator does not know"):
        ptx.translate(text)
    exact = text.replace(statement, "add.rn.f32 %f1, %f2, %f3")
    assert "put<float>(f1, as<float>(f2) + as<float>(f3));" in ptx.translate(exact)
