"""The simulated GPU is strict: what would be wrong on a real one is an error there."""

import threading
import types

import numpy as np
import pytest
from simulated_gpu import driver, kernels


@pytest.fixture
def gpu(machine):
    """One GPU, current in this thread, with a stream and 64 bytes; all given back at the end."""
    context = driver.Device(0).retain_primary_context()
    context.push()
    memory = driver.mem_alloc(64)
    held = types.SimpleNamespace(stream=driver.Stream(1), memory=memory)
    yield held
    held.stream.queue.work.clear()
    held.stream = None
    if int(memory) in machine.memory:
        memory.free()
    context.pop()
    context.detach()


def test_nothing_happens_before_somebody_waits(gpu):
    stream, memory = gpu.stream, gpu.memory
    out = np.zeros(16, np.float32)
    driver.memcpy_htod_async(int(memory), np.arange(16, dtype=np.float32), stream)
    driver.memcpy_dtoh_async(out, int(memory), stream)
    assert not out.any()
    event = driver.Event().record(stream)
    driver.memset_d32_async(int(memory), 0, 16, stream)
    event.synchronize()
    np.testing.assert_array_equal(out, np.arange(16))
    driver.memcpy_dtoh_async(out, int(memory), stream)
    stream.synchronize()
    assert not out.any()


def test_memory_starts_as_what_is_not_a_number(gpu):
    stream, memory = gpu.stream, gpu.memory
    out = np.zeros(16, np.float32)
    driver.memcpy_dtoh_async(out, int(memory), stream)
    stream.synchronize()
    assert np.isnan(out).all()


def test_an_address_of_the_host_is_refused(gpu):
    stream = gpu.stream
    host = np.zeros(16, np.float32)
    with pytest.raises(driver.LaunchError, match="is not memory of cuda:0"):
        driver.memcpy_htod_async(host.ctypes.data, host, stream)


def test_memory_that_was_freed_is_refused_even_by_work_that_was_queued_before(gpu):
    stream, memory = gpu.stream, gpu.memory
    driver.memset_d32_async(int(memory), 0, 16, stream)
    memory.free()
    with pytest.raises(driver.LaunchError, match="is not memory of cuda:0"):
        stream.synchronize()
    with pytest.raises(driver.LogicError, match="is not allocated"):
        memory.free()


def test_more_bytes_than_were_allocated_are_refused(gpu):
    stream, memory = gpu.stream, gpu.memory
    with pytest.raises(driver.LaunchError, match="more than were allocated"):
        driver.memcpy_htod_async(int(memory), np.zeros(17, np.float32), stream)


def test_a_kernel_that_writes_behind_its_memory_is_noticed(gpu):
    stream, memory = gpu.stream, gpu.memory
    table, slots = driver.mem_alloc(40), driver.mem_alloc(128)
    driver.memcpy_htod_async(int(table), np.array([0, 0, 0, 0, 1], np.int64), stream)
    fill = driver.module_from_buffer(b"compiled kernels").get_function("fill_noisy_float32").prepare("PPiqPPqIQ")
    where = (int(memory), int(table), 1, 1, int(slots), int(slots))
    fill.prepared_async_call((1, 1), (32, 1, 1), stream, *where, 20, 0, 0)
    with pytest.raises(driver.LaunchError, match="written behind"):
        stream.synchronize()
    table.free()
    slots.free()


def test_parameters_that_do_not_fit_a_kernel_and_grids_that_do_not_exist_are_refused(gpu):
    stream, memory = gpu.stream, gpu.memory
    count = driver.module_from_buffer(b"compiled kernels").get_function("count_votes_float32")
    with pytest.raises(AssertionError):
        count.prepare("PPPP")
    count.prepare("PiPiqP")
    where = (int(memory), 1, int(memory), 1, 1, int(memory))
    for grid, block in [((0, 1), (32, 1, 1)), ((1, 65536), (32, 1, 1)), ((1, 1), (2048, 1, 1))]:
        with pytest.raises(driver.LaunchError, match="cannot be launched"):
            count.prepared_async_call(grid, block, stream, *where)
    assert kernels.parameter_bytes("no_such_kernel") == 0


def test_a_thread_without_a_context_can_do_nothing_and_free_nothing(gpu):
    memory = gpu.memory
    failed = []

    def work():
        for call in (lambda: driver.mem_alloc(4), memory.free):
            try:
                call()
            except driver.LogicError as error:
                failed.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(failed) == 2


def test_a_gpu_has_no_more_memory_than_it_has(gpu):
    with pytest.raises(driver.MemoryError, match="out of memory"):
        driver.mem_alloc(2**40)
