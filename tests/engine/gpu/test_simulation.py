"""The simulated GPU is strict: what would be wrong on a real one is an error there."""

import ctypes
import importlib
import os
import threading
from contextlib import closing, suppress

import numpy as np
import pytest
from simulated_gpu import kernels
from simulated_gpu.machine import driver as machine_driver

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


def launch(space, kernel, grid, threads, *parameters):
    space.launch(importlib.import_module("ars.engine.gpu").Launch(kernel, grid, threads, parameters))


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
        space.set_words(memory, 0, 16)
    with pytest.raises(Exception, match="an illegal memory access was encountered"):
        space.wait()
    with pytest.raises(Exception, match="an illegal memory access"):
        space.memory(64)


def test_a_kernel_that_writes_behind_its_memory_is_noticed(space):
    table = np.array([0, 0, 0, 0, 1], np.int64)
    memory, requests, slots = space.memory(64), space.memory(40), space.memory(128)
    space.upload(requests, table)
    launch(space, "fill_noisy_float32", (1, 1), 32, memory, requests, 1, 1, slots, slots, 20, 0, 0)
    with pytest.raises(Exception, match="an illegal memory access was encountered"):
        space.wait()


@pytest.mark.parametrize(("grid", "threads"), [((0, 1), 32), ((1, 65536), 32), ((1, 1), 2048)])
def test_grids_that_do_not_exist_are_refused(space, grid, threads):
    memory = space.memory(64)
    with pytest.raises(Exception, match="cuLaunchKernel failed"):
        launch(space, "count_votes_float32", grid, threads, memory, 1, memory, 1, 1, memory)


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


with_graphs = pytest.mark.skipif(os.environ.get("ARS_TEST_BINDING") == "pycuda", reason="pycuda has no CUDA graphs")


@with_graphs
def test_a_graph_does_what_was_captured_as_often_as_it_is_launched(machine, space):
    memory, given, out = space.memory(64), space.pinned((16,), np.float32), space.pinned((16,), np.float32)
    out[:] = 0

    def work():
        space.upload(memory, given)
        space.download(out, memory)

    graph = space.capture(work)
    space.wait()
    assert not out.any(), "nothing runs while it is captured"
    for factor in (1, 2):  # what is copied is what lies there when the graph runs
        given[:] = factor * NUMBERS
        space.launch_graph(graph)
        space.wait()
        np.testing.assert_array_equal(out, factor * NUMBERS)
    assert machine.held()["graphs"] == 1
    graph.close()
    assert machine.held()["graphs"] == 0


@with_graphs
@pytest.mark.parametrize("what", ["wait", "allocate", "free", "copy from pageable memory", "launch a graph"])
def test_what_is_not_allowed_while_a_stream_is_captured_fails_and_ends_the_capture(machine, gpu, space, what):
    memory, pinned, room = space.memory(64), space.pinned((16,), np.float32), gpu.memory(4)
    graph = space.capture(lambda: space.set_words(memory, 0, 16))
    room.__enter__()
    forbidden = {
        "wait": space.wait,
        "allocate": lambda: space.memory(4),
        "free": lambda: room.__exit__(None, None, None),
        "copy from pageable memory": lambda: space.upload(memory, NUMBERS),
        "launch a graph": lambda: space.launch_graph(graph),
    }

    def work():
        space.set_words(memory, 0, 16)
        with suppress(Exception):  # even if the library that did it says nothing
            forbidden[what]()

    with pytest.raises(Exception, match="operation failed due to a previous error during capture"):
        space.capture(work)
    assert machine.held()["graphs"] == 1
    space.upload(memory, NUMBERS)  # the stream is as it was before
    space.download(pinned, memory)
    space.wait()
    np.testing.assert_array_equal(pinned, NUMBERS)
    graph.close()


@with_graphs
def test_another_thread_may_allocate_while_a_stream_is_captured_and_may_not_end_the_capture(gpu, space):
    driver, memory, failed = machine_driver(), space.memory(64), []

    def elsewhere():
        with gpu.current(), gpu.memory(4):
            failed.append(driver.cuStreamEndCapture(ctypes.c_void_p(space.handle), ctypes.byref(ctypes.c_void_p())))

    def work():
        space.set_words(memory, 0, 16)
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()

    space.capture(work).close()
    assert failed == [908]  # CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD


@with_graphs
def test_a_graph_whose_memory_was_freed_is_an_error_that_stays(gpu, space):
    with gpu.memory(64) as memory:
        graph = space.capture(lambda: space.set_words(memory, 0, 16))
    space.launch_graph(graph)
    with pytest.raises(Exception, match="an illegal memory access was encountered"):
        space.wait()
    with pytest.raises(Exception, match="an illegal memory access"):
        space.memory(64)


@with_graphs
def test_work_that_fails_while_it_is_captured_leaves_no_graph(machine, space):
    memory = space.memory(64)

    def work():
        space.set_words(memory, 0, 16)
        raise RuntimeError("this is a test")

    with pytest.raises(RuntimeError, match="this is a test"):
        space.capture(work)
    assert machine.held()["graphs"] == 0
    space.set_words(memory, 0, 16)
    space.wait()
