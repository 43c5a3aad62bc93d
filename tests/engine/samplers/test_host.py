"""The host sampler: votes, and what it refuses."""

import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ars.engine import _native
from ars.engine.lattice import Lattice
from ars.engine.requests import MAX_DRAWS, Phase, Request
from ars.engine.samplers.host import HostSampler, usable_instructions
from ars.errors import ArgumentError, InputError, UnknownName
from ars.noise import GAUSSIAN


def ready(dimensions=12, slots=2, **how):
    host = HostSampler(slots, dimensions, GAUSSIAN, 0, **how)
    host.load(0, np.zeros(dimensions), 0, 1)
    return host


def request(draws=3, **changed):
    return Request(**{"slot": 0, "input_id": 0, "phase": Phase.ESTIMATION, "first_draw": 0, "draws": draws} | changed)


@given(
    logits=arrays.arrays(
        np.float32,
        st.tuples(st.integers(0, 30), st.integers(1, 12)),
        elements=st.floats(width=32) | st.sampled_from([0.0, -0.0, 1.0, float("nan"), float("inf"), float("-inf")]),
    ),
    data=st.data(),
)
def test_votes_are_numpys_argmax_and_rows_that_are_not_finite_vote_for_nobody(logits, data):
    rows, classes = logits.shape
    first = data.draw(st.integers(0, rows))
    counts = ready().count(logits, [request(first), request(0), request(rows - first)])
    expected = np.zeros((3, classes + 1), np.int64)
    for row, values in enumerate(logits):
        expected[0 if row < first else 2, values.argmax() if np.isfinite(values).all() else classes] += 1
    np.testing.assert_array_equal(counts, expected)
    assert counts.sum() == rows


def test_a_tie_goes_to_the_lowest_class():
    assert ready().count(np.float32([[1, 3, 3], [0, -0.0, 0]]), [request(2)]).tolist() == [[1, 1, 0, 0]]


def test_an_empty_request_fills_nothing():
    ready().fill(np.empty((0, 12), np.float32), [request(0)])
    ready().fill(np.empty((0, 12), np.float32), [])


def test_a_batch_of_images_is_filled_in_place():
    host = HostSampler(1, 12, GAUSSIAN, 0)
    host.load(0, np.zeros((3, 2, 2)), np.zeros((3, 2, 2)), np.ones((3, 2, 2)))
    images, rows = np.empty((5, 3, 2, 2), np.float32), np.empty((5, 12), np.float32)
    host.fill(images, [request(5)])
    host.fill(rows, [request(5)])
    np.testing.assert_array_equal(images.reshape(5, 12), rows)


def test_python_threads_may_share_a_sampler():
    host = ready(dimensions=3000, threads=2)
    expected = np.empty((200, 3000), np.float32)
    host.fill(expected, [request(200)])
    outs = [np.empty_like(expected) for _ in range(6)]
    threads = [threading.Thread(target=host.fill, args=(out, [request(200)])) for out in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for out in outs:
        np.testing.assert_array_equal(out, expected)


def test_a_slot_can_be_loaded_again():
    host = ready()
    out = np.empty((2, 2, 12), np.float32)
    host.fill(out[0], [request(2)])
    host.load(0, np.full(12, 5.0), 0, 1)
    host.fill(out[1], [request(2)])
    np.testing.assert_allclose(out[1] - 5, out[0], atol=1e-6)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x": np.zeros(11)}, r"x.shape = \(11,\) is not valid; this sampler is for inputs of 12 dimensions"),
        ({"mean": np.zeros(11)}, r"mean.shape = \(11,\) is not valid; it must be the shape of x, \(12,\)"),
        ({"scale": np.ones((3, 4))}, r"scale.shape = \(3, 4\) is not valid"),
        ({"scale": np.array([1.0] * 11 + [np.nan])}, "scale = nan is not valid"),
        ({"scale": np.array([1.0] * 11 + [-2.0])}, r"scale = -2.0 is not valid"),
        ({"scale": 0.0}, r"scale = 0.0 is not valid"),
        ({"scale": 1e-60}, r"scale = 0.0 is not valid"),
        ({"x": np.full(12, np.inf)}, "x = inf is not valid"),
        ({"mean": np.nan}, "mean = nan is not valid"),
        ({"slot": 2}, "slot = 2 is not valid; this sampler has 2 slots"),
        ({"slot": -1}, "slot = -1 is not valid"),
        ({"slot": 0.5}, "slot = 0.5 is not valid"),
        ({"x": "abcd"}, "x = str is not valid; it must be a real number or an array of them"),
        ({"x": [[1], [1, 2]]}, "x = list is not valid"),
        ({"x": np.full(12, 3e38), "mean": 3e38}, r"x \+ mean = inf is not valid"),
    ],
)
def test_bad_inputs_are_named_with_their_value(changed, message):
    with pytest.raises(ArgumentError, match=message):
        ready().load(**{"slot": 0, "x": np.zeros(12), "mean": 0.0, "scale": 1.0} | changed)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"slot": 1}, "slot = 1 is not valid; no input is loaded there"),
        ({"slot": 7}, "slot = 7 is not valid"),
        ({"slot": -1}, "slot = -1 is not valid"),
        ({"input_id": 2**32}, "input_id = 4294967296 is not valid"),
        ({"input_id": -1}, "input_id = -1 is not valid"),
        ({"phase": 3}, "phase = 3 is not valid"),
        ({"first_draw": -1}, "first_draw = -1 is not valid"),
        ({"draws": -1}, "draws = -1 is not valid"),
        ({"draws": 2**56 + 1}, r"draws = 72057594037927937 is not valid; an input has between 0 and 2\^56 draws"),
        ({"first_draw": MAX_DRAWS}, "draws = 3 is not valid"),
        ({"first_draw": 2**80}, "first_draw = 1208925819614629174706176 is not valid"),
        ({"first_draw": np.int64(2**63 - 2), "draws": np.int64(2)}, "first_draw = 9223372036854775806 is not valid"),
        ({"first_draw": 0.5}, "first_draw = 0.5 is not valid; it must be a whole number"),
        ({"input_id": 1.7}, "input_id = 1.7 is not valid"),
        ({"draws": "3"}, "draws = '3' is not valid"),
    ],
)
def test_bad_requests_are_named_with_their_value(changed, message):
    for call in (HostSampler.fill, HostSampler.count):
        with pytest.raises(ArgumentError, match=message):
            call(ready(), np.zeros((3, 12), np.float32), [request(**changed)])
        with pytest.raises(ArgumentError, match=message):  # among many, which are checked all at once
            call(ready(), np.zeros((3, 12), np.float32), [*[request(0)] * 20, request(**changed)])


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.zeros((3, 12)), "out = float64 array is not valid"),
        (np.zeros((12, 3), np.float32).T, "out = this array is not valid; it must be C-contiguous"),
        ([[0.0] * 12] * 3, "out = list is not valid; it must be a float32 array"),
        (np.frombuffer(bytearray(145), np.uint8)[1:].view(np.float32).reshape(3, 12), "aligned"),
        (np.frombuffer(bytes(144), np.float32).reshape(3, 12), "writeable"),
        (np.zeros((2, 12), np.float32), r"out.shape = \(2, 12\) is not valid; the requests need 3 rows of 12"),
        (np.zeros((3, 13), np.float32), r"out.shape = \(3, 13\) is not valid"),
        (np.zeros((), np.float32), r"out.shape = \(\) is not valid"),
    ],
)
def test_bad_batches_are_refused(out, message):
    with pytest.raises(ArgumentError, match=message):
        ready().fill(out, [request(3)])


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        (np.zeros((3, 5)), "logits = float64 array is not valid"),
        (np.zeros((5, 3), np.float32).T, "C-contiguous"),
        (np.zeros((4, 5), np.float32), r"logits.shape = \(4, 5\) is not valid; the requests need 3 rows"),
        (np.zeros((3, 0), np.float32), r"logits.shape = \(3, 0\) is not valid"),
        (np.zeros(3, np.float32), r"logits.shape = \(3,\) is not valid"),
    ],
)
def test_bad_logits_are_refused(logits, message):
    with pytest.raises(ArgumentError, match=message):
        ready().count(logits, [request(3)])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"slots": 0}, "slots = 0 is not valid"),
        ({"dimensions": 0}, "dimensions = 0 is not valid"),
        ({"threads": 0}, "threads = 0 is not valid"),
        ({"seed": 2**64}, "seed = 18446744073709551616 is not valid"),
        ({"seed": -1}, "seed = -1 is not valid"),
        ({"seed": 0.5}, "seed = 0.5 is not valid"),
        ({"threads": 2000}, "threads = 2000 is not valid"),
        ({"threads": 1.5}, "threads = 1.5 is not valid"),
        ({"dimensions": 2**40}, "dimensions = 1099511627776 is not valid"),
        ({"family": "gausian"}, "unknown noise family 'gausian'"),
    ],
)
def test_a_sampler_that_cannot_exist_is_refused(changed, message):
    with pytest.raises(InputError, match=message):
        HostSampler(**{"slots": 1, "dimensions": 4, "family": GAUSSIAN, "seed": 0} | changed)


def test_instructions_that_the_processor_lacks_are_refused():
    with pytest.raises(UnknownName, match="unknown set of instructions 'sse9'"):
        HostSampler(1, 4, GAUSSIAN, 0, instructions="sse9")
    assert usable_instructions()[-1] == "scalar"


def test_small_integer_types_in_requests_do_not_overflow():
    """200 + 100 rows are 44 in uint8: the batch must be refused, not overrun."""
    requests = [request(np.uint8(200)), request(np.uint8(100))]
    with pytest.raises(ArgumentError, match="the requests need 300 rows"):
        ready().fill(np.zeros((44, 12), np.float32), requests)
    with pytest.raises(ArgumentError, match="the requests need 18446744073709551616 rows"):
        ready().count(np.zeros((0, 2), np.float32), [request(np.int64(2**56))] * 256)


def test_the_native_module_refuses_what_would_leave_its_arrays():
    center, counts = np.zeros((2, 12), np.float32), np.zeros((1, 3), np.int64)

    def fill(table, out):
        _native.fill_noisy(
            out, np.array([table], np.int64), center, center, None, None, 0, 0, 0, _native.Workers(1), "scalar"
        )

    for table, rows in [((2, 0, 0, 0, 3), 3), ((-1, 0, 0, 0, 3), 3), ((0, 0, 0, 0, 4), 3), ((0, 0, 0, 0, -1), 3)]:
        with pytest.raises(ValueError, match=r"fit the rows|no such slot"):
            fill(table, np.zeros((rows, 12), np.float32))
    with pytest.raises(ValueError, match="fit each other"):
        fill((0, 0, 0, 0, 3), np.zeros((3, 11), np.float32))
    with pytest.raises(ValueError, match="fit the rows"):
        _native.count_votes(np.zeros((3, 2), np.float32), np.array([[0, 0, 0, 0, 4]], np.int64), counts)


def test_the_native_module_refuses_half_a_lattice():
    """Noise stream 2 needs a step, a margin and an exact center, and noise stream 1 has none of them."""
    single, double = np.ones((2, 12), np.float32), np.ones((2, 12))

    def fill(margin, exact_center, step, instructions="scalar"):
        out, table = np.zeros((3, 12), np.float32), np.array([[0, 0, 0, 0, 3]], np.int64)
        workers = _native.Workers(1)
        _native.fill_noisy(out, table, single, single, margin, exact_center, step, 0, 0, workers, instructions)

    fill(single, double, 0.5)
    fill(None, None, 0)
    for margin, exact_center, step in [
        (None, None, 0.5),
        (single, None, 0.5),
        (None, double, 0.5),
        (single, double, 0),
    ]:
        with pytest.raises(ValueError, match="a step needs a margin and an exact center"):
            fill(margin, exact_center, step)
    for margin, exact_center in [(single[:1], double), (single, double[:1]), (single[:, :11].copy(), double)]:
        with pytest.raises(ValueError, match="fit each other"):
            fill(margin, exact_center, 0.5)
    with pytest.raises(ValueError, match="noise stream 1 has no slow path"):
        fill(None, None, 0, "precise")


@pytest.mark.parametrize("lattice", [None, Lattice(2.0**-8)], ids=["stream 1", "stream 2"])
def test_noise_maps_may_be_single_numbers(lattice):
    x, rows = np.linspace(-1, 1, 12, dtype=np.float32), np.empty((2, 5, 12), np.float32)
    for out, mean, scale in zip(rows, (0.25, np.full(12, 0.25)), (0.5, np.full(12, 0.5)), strict=True):
        host = HostSampler(1, 12, GAUSSIAN, 0, lattice=lattice)
        host.load(0, x, mean, scale)
        host.fill(out, [request(5)])
    np.testing.assert_array_equal(*rows)


def test_a_machine_without_memory_or_threads_is_one_sentence():
    program = (
        "import resource; from ars.engine.samplers.host import HostSampler; from ars.noise import GAUSSIAN\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32))\n"
        "for slots, threads in ((2**14, 1), (1, 1024)):\n"
        "    try: HostSampler(slots, 2**20, GAUSSIAN, 0, threads=threads)\n"
        "    except Exception as error: print(type(error).__name__)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout == "NativeError\nNativeError\n", run.stderr
