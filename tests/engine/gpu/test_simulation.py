"""The simulated GPU is strict: what would be wrong on a real one is an error there."""

import importlib
import threading
from contextlib import closing, suppress

import numpy as np
import pytest
from simulated_gpu import kernels

from ars.errors import DeviceError, OutOfMemory


@pytest.fixture
def gpu(machine):
    with closing(importlib.import_module("ars.engine.gpu").Gpu(0)) as gpu:
        yield gpu
    machine.reset()  # what is left behind after an error is what these tests are about


@pytest.fixture
def space(gpu):
    """A stream and its memory, on a GPU that is current in this thread."""
    space = importlib.import_module("ars.engine.gpu").Workspace(gpu)
    with closing(space), suppress(DeviceError), gpu.current():
        yield space


NUMBERS = np.arange(16, dtype=np.float32)


def test_nothing_happens_before_somebody_waits(space):
    memory, out = space.memory(64), space.pinned((16,), np.float32)
    out[:] = 0
    space.upload(memory, NUMBERS)
    space.download(out, memory)
    assert not out.any()
    space.wait()
    np.testing.assert_array_equal(out, NUMBERS)


def test_a_copy_to_memory_that_is_not_pinned_waits(space):
    memory, out = space.memory(64), np.zeros(16, np.float32)
    space.upload(memory, NUMBERS)
    space.download(out, memory)
    np.testing.assert_array_equal(out, NUMBERS)


def test_memory_starts_as_what_is_not_a_number(space):
    out = np.zeros(16, np.float32)
    space.download(out, space.memory(64))
    assert np.isnan(out).all()


def test_an_address_of_the_host_is_refused(space):
    with pytest.raises(Exception, match="cuMemcpyHtoDAsync failed: invalid argument"):
        space.upload(NUMBERS.ctypes.data, NUMBERS)


def test_more_bytes_than_were_allocated_are_refused(space):
    with pytest.raises(Exception, match="failed: invalid argument"):
        space.upload(space.memory(60), NUMBERS)


def test_memory_that_was_freed_is_refused_to_work_that_was_queued_before_and_the_error_stays(gpu, space):
    with gpu.memory(64) as memory:
        space.zero(memory, 16)
    with pytest.raises(Exception, match="an illegal memory access was encountered"):
        space.wait()
    with pytest.raises(Exception, match="an illegal memory access"):
        space.memory(64)


def test_a_kernel_that_writes_behind_its_memory_is_noticed(space):
    table = np.array([0, 0, 0, 0, 1], np.int64)
    memory, requests, slots = space.memory(64), space.memory(40), space.memory(128)
    space.upload(requests, table)
    space.launch("fill_noisy_float32", (1, 1), 32, memory, requests, 1, 1, slots, slots, 20, 0, 0)
    with pytest.raises(Exception, match="an illegal memory access was encountered"):
        space.wait()


@pytest.mark.parametrize(("grid", "threads"), [((0, 1), 32), ((1, 65536), 32), ((1, 1), 2048)])
def test_grids_that_do_not_exist_are_refused(space, grid, threads):
    memory = space.memory(64)
    with pytest.raises(Exception, match="cuLaunchKernel failed"):
        space.launch("count_votes_float32", grid, threads, memory, 1, memory, 1, 1, memory)


def test_a_kernel_of_another_name_or_with_other_parameters_is_refused():
    assert kernels.parameter_bytes("no_such_kernel") == 0
    with pytest.raises(AssertionError, match="does not fit"):
        kernels.launch("count_votes_float32", (0, 0), (0, 0), "PPPPPPPP", *range(8))


def test_a_thread_without_a_context_can_do_nothing(gpu):
    failed = []

    def work():
        try:
            with gpu.memory(4):
                pass
        except Exception as error:
            failed.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert failed == ["cuMemAlloc failed: invalid device context"]


def test_a_gpu_has_no_more_memory_than_it_has(gpu):
    with pytest.raises(OutOfMemory, match="out of memory"), gpu.current(), gpu.memory(2**40):
        pass


def test_a_context_may_be_released_by_another_thread_and_stays_on_no_stack(machine):
    made = importlib.import_module("ars.engine.gpu").Gpu(0)
    thread = threading.Thread(target=made.close)
    thread.start()
    thread.join()
    assert not any(machine.held().values()), machine.held()
