"""Stands in for pycuda.driver: the names of it that the project uses, with pycuda's signatures."""

import builtins
import functools
import struct
import threading

import numpy as np

from simulated_gpu import kernels
from simulated_gpu.machine import MACHINE, Failure
from simulated_gpu.machine import Stream as Queue


class Error(Exception):
    pass


class LogicError(Error):
    pass


class LaunchError(Error):
    pass


class MemoryError(Error, builtins.MemoryError):
    pass


class CompileError(Error):
    pass


_KINDS = {"memory": MemoryError, "launch": LaunchError, "logic": LogicError, "error": LogicError}
_threads = threading.local()


def _stack() -> list:
    if not hasattr(_threads, "contexts"):
        _threads.contexts = []
    return _threads.contexts


def current_gpu() -> int:
    """The GPU that this thread's calls go to."""
    if not _stack():
        raise Failure("logic", "no context is current in this thread")
    return _stack()[-1].gpu


def _calls(name):
    """A call of CUDA: one at a time, counted, and its failures in pycuda's classes."""

    def decorate(function):
        @functools.wraps(function)
        def called(*arguments, **named):
            try:
                with MACHINE.lock:
                    MACHINE.call(name)
                    return function(*arguments, **named)
            except Failure as failure:
                raise _KINDS[failure.kind](f"{name} failed: {failure}") from None

        return called

    return decorate


class Context:
    def __init__(self, gpu):
        self.gpu, self.valid, self.thread = gpu, True, threading.get_ident()
        MACHINE.contexts += 1

    @_calls("cuCtxPushCurrent")
    def push(self):
        if not self.valid:
            raise Failure("logic", "this context has ended")
        _stack().append(self)

    @staticmethod
    def pop():
        if not _stack():
            raise LogicError("no context is current in this thread")
        _stack().pop()  # also where the call fails, or the thread could not go on
        Context._popped()

    @staticmethod
    @_calls("cuCtxPopCurrent")
    def _popped():
        pass

    def detach(self):
        if not self.valid:
            raise LogicError("this context has ended")
        self.valid = False
        MACHINE.contexts -= 1
        self._detached()

    @_calls("cuDevicePrimaryCtxRelease")
    def _detached(self):
        pass


class Device:
    @_calls("cuDeviceGet")
    def __init__(self, number):
        if not 0 <= number < MACHINE.gpus:
            raise Failure("logic", "invalid device ordinal")
        self.number = number

    @staticmethod
    @_calls("cuDeviceGetCount")
    def count():
        return MACHINE.gpus

    def name(self):
        return "Simulated GPU"

    def compute_capability(self):
        return MACHINE.compute_capability

    def total_memory(self):
        return MACHINE.memory_size

    @_calls("cuDevicePrimaryCtxRetain")
    def retain_primary_context(self):
        return Context(self.number)


class _Owned:
    """What belongs to a context. As pycuda's own, it goes only where the context is current, or can be made so."""

    def __init__(self):
        current_gpu()
        self.context = _stack()[-1]

    def _may_go(self):
        here = self.context in _stack() or self.context.thread == threading.get_ident()
        return self.context.valid and here

    def _go(self):
        if not self._may_go():
            raise LogicError("cannot activate a dead or out-of-thread context")


class DeviceAllocation(_Owned):
    def __init__(self, address):
        super().__init__()
        self._address = address

    def __int__(self):
        return self._address

    def free(self):
        # The memory of a call that fails is gone all the same: what must not happen is that nobody tries.
        self._go()
        with MACHINE.lock:
            try:
                MACHINE.give_back(self._address)
            except Failure as failure:
                raise LogicError(str(failure)) from None
        self._freed()

    @_calls("cuMemFree")
    def _freed(self):
        pass


class PagelockedHostAllocation(_Owned):
    def __init__(self, shape, dtype):
        super().__init__()
        self._array = np.empty(shape, dtype)
        self._array.view(np.uint8)[...] = 0xFF
        self.__array_interface__ = self._array.__array_interface__
        MACHINE.pinned.add(id(self))

    def free(self):
        self._go()
        MACHINE.pinned.remove(id(self))
        self._freed()

    @_calls("cuMemFreeHost")
    def _freed(self):
        pass


def _is_pinned(array):
    while array is not None and not isinstance(array, PagelockedHostAllocation):
        array = getattr(array, "base", None)
    if array is not None and id(array) not in MACHINE.pinned:
        raise Failure("logic", "this pinned memory was freed")
    return array is not None


class Stream(_Owned):
    @_calls("cuStreamCreate")
    def __init__(self, flags=0):
        super().__init__()
        assert flags in (0, 1)
        self.queue = Queue(MACHINE, current_gpu())

    def __del__(self):
        # A context that has ended took its streams with it.
        if hasattr(self, "queue") and self.queue.generation is MACHINE.generation:
            MACHINE.lost_streams += bool(self.queue.work or (self.context.valid and not self._may_go()))

    @property
    def handle(self):
        return self.queue.handle

    @_calls("cuStreamSynchronize")
    def synchronize(self):
        self.queue.run_all()


class Event:
    @_calls("cuEventCreate")
    def __init__(self, flags=0):
        current_gpu()
        self._mark = None

    @_calls("cuEventRecord")
    def record(self, stream=None):
        self._mark = stream.queue, stream.queue.add(lambda: None)
        return self

    def synchronize(self):
        MACHINE.before_wait()
        self._synchronize()
        return self

    @_calls("cuEventSynchronize")
    def _synchronize(self):
        if self._mark is not None:
            queue, mark = self._mark
            queue.run_to(mark)


class Function:
    def __init__(self, name):
        self.name, self.form = name, None

    def prepare(self, arg_types):
        self.form = arg_types
        assert struct.calcsize(arg_types) == kernels.parameter_bytes(self.name)
        return self

    @_calls("cuLaunchKernel")
    def prepared_async_call(self, grid, block, stream, *arguments):
        gpu = current_gpu()
        assert isinstance(block, tuple)
        if not (0 < grid[0] < 2**31 and 0 < grid[1] <= 65535 and 0 < block[0] <= 1024):
            raise Failure("launch", f"a grid of {grid} with blocks of {block} cannot be launched")
        if stream.queue.gpu != gpu:
            raise Failure("logic", "the stream is of another GPU")
        assert len(arguments) == len(self.form)

        def addresses():
            pairs = zip(self.form, arguments, strict=True)
            return [MACHINE.at(gpu, value, 1).ctypes.data if letter == "P" else value for letter, value in pairs]

        addresses()

        def run():
            kernels.launch(self.name, grid, block, self.form, *addresses())
            MACHINE.check_guards()

        stream.queue.add(run)


class Module:
    @_calls("cuModuleGetFunction")
    def get_function(self, name):
        if not kernels.parameter_bytes(name):
            raise Failure("logic", f"there is no kernel {name}")
        return Function(name)


class event_flags:  # noqa: N801
    BLOCKING_SYNC = 1


@_calls("cuInit")
def init(flags=0):
    if MACHINE.gpus == 0:
        raise Failure("error", "no CUDA-capable device is detected")


@_calls("cuMemAlloc")
def mem_alloc(size):
    assert size > 0
    return DeviceAllocation(MACHINE.take(current_gpu(), size))


@_calls("cuMemHostAlloc")
def pagelocked_empty(shape, dtype, order="C", mem_flags=0):
    current_gpu()
    return np.asarray(PagelockedHostAllocation(shape, dtype))


@_calls("cuMemcpyHtoDAsync")
def memcpy_htod_async(dest, src, stream=None):
    gpu, pinned = current_gpu(), _is_pinned(src)
    assert src.flags.c_contiguous
    MACHINE.at(gpu, dest, src.nbytes)
    source = src if pinned else src.copy()

    def copy():
        _is_pinned(source)
        MACHINE.at(gpu, dest, src.nbytes)[: src.nbytes] = np.frombuffer(source.tobytes(), np.uint8)

    stream.queue.add(copy)
    MACHINE.moved.append(("down", src.nbytes, pinned))


@_calls("cuMemcpyDtoHAsync")
def memcpy_dtoh_async(dest, src, stream=None):
    gpu, pinned = current_gpu(), _is_pinned(dest)
    assert dest.flags.c_contiguous
    MACHINE.at(gpu, src, dest.nbytes)

    def copy():
        _is_pinned(dest)
        dest.reshape(-1).view(np.uint8)[...] = MACHINE.at(gpu, src, dest.nbytes)[: dest.nbytes]

    stream.queue.add(copy)
    MACHINE.moved.append(("up", dest.nbytes, pinned))


@_calls("cuMemsetD32Async")
def memset_d32_async(dest, data, count, stream=None):
    gpu = current_gpu()
    MACHINE.at(gpu, dest, 4 * count)
    stream.queue.add(lambda: MACHINE.at(gpu, dest, 4 * count)[: 4 * count].view(np.uint32).fill(data))


@_calls("cuMemGetInfo")
def mem_get_info():
    return MACHINE.memory_size - MACHINE.used(current_gpu()), MACHINE.memory_size


@_calls("cuModuleLoadDataEx")
def module_from_buffer(buffer):
    current_gpu()
    fatbin = buffer[:4] == b"\x50\xed\x55\xba"
    if not (fatbin or buffer == b"compiled kernels") or (fatbin and MACHINE.refuses_fatbin):
        raise Failure("logic", "no kernel image is available for execution on the device")
    return Module()


def get_driver_version():
    return 13000
