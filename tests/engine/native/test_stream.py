"""The noise is a pure function: no bit of it depends on how a batch is split, ordered or computed."""

import faulthandler
import itertools
import os
import posix
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import reference
from support.stream import standard_noise

from ars.engine.lattice import Lattice
from ars.engine.requests import Phase, Request
from ars.engine.samplers.host import HostSampler, usable_instructions
from ars.noise import FAMILIES, GAUSSIAN

families = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
streams = pytest.mark.parametrize("lattice", [None, Lattice(2.0**-9)], ids=["stream 1", "stream 2"])


@families
@streams
@pytest.mark.parametrize("instructions", usable_instructions())
@pytest.mark.parametrize("dimensions", [1, 2, 3, 4, 5, 7, 31, 63, 64, 65, 127, 783, 1025, 4099])
def test_every_number_of_dimensions_is_a_prefix_of_the_same_row(family, lattice, instructions, dimensions):
    """Unless that number decides the stretch of a draw: such noise is the same with all instructions."""
    whole = standard_noise(
        family, dimensions=dimensions if family.stretched else 8192, draws=2, lattice=lattice, instructions="scalar"
    )
    part = standard_noise(family, dimensions=dimensions, draws=2, lattice=lattice, instructions=instructions)
    np.testing.assert_array_equal(part, whole[:, :dimensions])


@families
def test_rows_agree_with_the_reference(family):
    where = {"seed": 2**40 + 5, "input_id": 9, "phase": Phase.SELECTION}
    noise = standard_noise(family, **where, dimensions=203, draws=200)
    exact = [reference.stream_row(family.name, **where, draw=draw, dimensions=203) for draw in range(200)]
    np.testing.assert_allclose(noise, exact, atol=1e-6)


@families
@streams
@pytest.mark.parametrize("threads", [2, 3, 8])
def test_every_thread_count_gives_the_same_bits(family, lattice, threads):
    where = {"dimensions": 1003, "draws": 301, "lattice": lattice}
    np.testing.assert_array_equal(standard_noise(family, **where, threads=threads), standard_noise(family, **where))


@families
@streams
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_every_batch_split_and_request_order_gives_the_same_bits(family, lattice, data):
    dimensions = data.draw(st.sampled_from([5, 64, 130]))
    inputs = data.draw(st.integers(1, 4))
    draws = data.draw(st.integers(1, 60))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    x, mean = rng.random((2, inputs, dimensions), np.float32)
    scale = 0.1 + rng.random((inputs, dimensions), np.float32)
    host = HostSampler(inputs, dimensions, family, seed=12, lattice=lattice, threads=data.draw(st.integers(1, 3)))
    for slot in range(inputs):
        host.load(slot, x[slot], mean[slot], scale[slot])

    def fill(requests):
        out = np.empty((sum(request.draws for request in requests), dimensions), np.float32)
        host.fill(out, requests)
        return out

    whole = fill([Request(slot, 100 + slot, Phase.ESTIMATION, 0, draws) for slot in range(inputs)])
    pieces = []
    for slot in range(inputs):
        cuts = sorted({0, draws, *data.draw(st.lists(st.integers(0, draws), max_size=4))})
        starts = itertools.pairwise(cuts)
        pieces += [Request(slot, 100 + slot, Phase.ESTIMATION, first, end - first) for first, end in starts]
    pieces = data.draw(st.permutations(pieces))
    mixed, row = fill(pieces), 0
    for piece in pieces:
        start = piece.slot * draws + piece.first_draw
        np.testing.assert_array_equal(mixed[row : row + piece.draws], whole[start : start + piece.draws])
        row += piece.draws


def test_a_noisy_value_is_one_rounding_of_x_plus_mean_plus_scale_times_z():
    rng = np.random.default_rng(0)
    x, mean, scale = rng.random((3, 500), np.float32)
    host = HostSampler(1, 500, GAUSSIAN, seed=4)
    host.load(0, x, mean, scale)
    out = np.empty((3, 500), np.float32)
    host.fill(out, [Request(0, 0, Phase.ESTIMATION, 0, 3)])
    z = standard_noise(GAUSSIAN, seed=4, dimensions=500, draws=3).astype(np.float64)
    exact = (x + mean).astype(np.float64) + scale.astype(np.float64) * z
    np.testing.assert_array_equal(out, exact.astype(np.float32))


@streams
def test_seed_input_phase_and_draw_each_change_the_noise(lattice):
    base = {"seed": 1, "input_id": 1, "phase": Phase.SELECTION, "first_draw": 1}
    other = {"seed": 2, "input_id": 2, "phase": Phase.ESTIMATION, "first_draw": 2}
    rows = [standard_noise(GAUSSIAN, dimensions=64, lattice=lattice, **base | {name: other[name]}) for name in other]
    rows += [standard_noise(GAUSSIAN, dimensions=64, lattice=lattice, **base | {"first_draw": 1 + 2**32})]
    rows += [standard_noise(GAUSSIAN, dimensions=64, lattice=lattice, **base | {"seed": 1 + 2**32})]
    assert len({row.tobytes() for row in rows}) == len(rows)


@streams
def test_a_process_that_is_forked_in_the_middle_of_a_fill_makes_the_same_noise(lattice):
    """Threads do not survive a fork, and locks may stay locked; the child must neither hang nor fail."""
    host = HostSampler(1, 4096, GAUSSIAN, seed=3, lattice=lattice, threads=2)
    host.load(0, np.zeros(4096), 0, 1)
    requests = [Request(0, 0, Phase.ESTIMATION, 0, 400)]
    expected = np.empty((400, 4096), np.float32)
    host.fill(expected, requests)
    busy = threading.Event()

    def keep_filling():
        out = np.empty_like(expected)
        while not busy.is_set():
            host.fill(out, requests)

    filling = threading.Thread(target=keep_filling)
    filling.start()
    try:
        for _ in range(10):
            child = os.fork()
            if child == 0:
                faulthandler.dump_traceback_later(60, exit=True, file=2)  # a child that hangs says where
                out = np.empty_like(expected)
                host.fill(out, requests)
                posix._exit(0 if np.array_equal(out, expected) else 1)  # os._exit would write the coverage of all tests
            assert os.waitpid(child, 0)[1] == 0
    finally:
        busy.set()
        filling.join()
