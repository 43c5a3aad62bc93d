"""The simulated machine, as tests see it. The machine itself is a stand-in for CUDA's driver in C++ (host/libcuda.cpp),
which the real bindings load as they would load the real one.

Every call of the driver, and of the simulated libraries, passes `Machine.call`, where a test can count it or make it
fail.
"""

import ctypes
import functools
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from simulated_gpu import kernels

_HOOK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)
_STEP = ctypes.CFUNCTYPE(ctypes.c_int)
# What a failure is in CUDA's numbers: out of memory, launch failed, invalid value, unknown.
_CODES = {"memory": 2, "launch": 719, "logic": 1, "error": 999}
_HELD = ("memory", "pinned", "streams", "events", "modules", "graphs", "contexts", "current", "left")


class Failure(Exception):
    """Something went wrong on a GPU. The simulated libraries turn it into the errors of the real ones."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


@dataclass
class Faults:
    """Which call fails, and how: once, or from then on, as on a GPU that was lost."""

    at: int | None = None
    kind: str = "error"
    lasting: bool = False
    only: Callable[[str], bool] = lambda name: True
    announce: Callable[[str], object] = lambda name: None
    """What is told the call, before it fails."""
    happened: str | None = None
    seen: int = 0


@functools.cache
def driver() -> ctypes.CDLL:
    """The stand-in. Its soname is the real one's, so whoever asks for libcuda.so.1 from now on gets this library."""
    found = kernels.compiled(kernels.HOST / "libcuda.cpp", "-Wl,-soname,libcuda.so.1", name="libcuda.so.1")
    found.machine_at.restype = ctypes.c_void_p
    found.machine_at.argtypes = [ctypes.c_int, ctypes.c_uint64, ctypes.c_size_t]
    found.machine_enqueue.argtypes = [ctypes.c_void_p, _STEP]
    found.machine_gpu_of.argtypes = found.machine_is_capturing.argtypes = [ctypes.c_void_p]
    found.machine_reset.argtypes = [ctypes.c_int, ctypes.c_size_t, ctypes.c_int, ctypes.c_int]
    found.machine_log.restype = ctypes.c_long
    found.machine_log.argtypes = [ctypes.c_void_p, ctypes.c_long]
    return found


class Stream:
    """A stream of the driver's, for libraries that queue work on it."""

    def __init__(self, handle: int) -> None:
        self.handle, self.gpu = handle, driver().machine_gpu_of(handle)
        if self.gpu < 0:
            raise Failure("logic", f"{handle} is not a stream")

    def add(self, step: Callable[[], None]) -> None:
        work = _STEP(lambda: MACHINE.code_of(step))
        MACHINE.steps.append(work)
        if driver().machine_enqueue(self.handle, work):
            raise Failure("logic", f"nothing can be queued on {self.handle}")

    def is_capturing(self) -> bool:
        return bool(driver().machine_is_capturing(self.handle))

    def run_all(self) -> None:
        error = driver().cuStreamSynchronize(ctypes.c_void_p(self.handle))
        if error:
            text = ctypes.c_char_p()
            driver().cuGetErrorString(error, ctypes.byref(text))
            raise Failure("logic", (text.value or b"").decode())


class Machine:
    def __init__(self) -> None:
        self.lock = threading.RLock()

    def reset(
        self,
        gpus: int = 1,
        memory: int = 2**30,
        compute_capability: tuple[int, int] = (8, 6),
        driver_version: int = 13000,
    ) -> None:
        """Start again as a machine with this many GPUs, and forget everything about the old one."""
        self.gpus, self.compute_capability = gpus, compute_capability
        self.calls: Counter[str] = Counter()
        self.faults = Faults()
        self.plans: dict[bytes, bytes] = {}
        """By a plan of the real TensorRT, the ONNX file that it was built from."""
        self.sessions: list[dict[str, str]] = []
        """The options of each session of onnxruntime-gpu."""
        self.runtime_configs: list[object] = []
        """The configuration of each context of tensorrt_rtx."""
        self.built_on: list[int] = []
        """The current GPU when an engine was built; -1 for none, when TensorRT takes the first."""
        self.lacks_libraries = False
        """Whether CUDA's and cuDNN's libraries are missing, without which onnxruntime-gpu falls back to the CPU."""
        self.refuses_capture = self.forgets_capture = False
        """Whether the work of TensorRT cannot be captured: it says so, or captures nothing without a word."""
        self.before_wait: Callable[[], None] = lambda: None
        self.steps: list[object] = []
        """The work of other libraries, which streams hold by its address."""
        driver().machine_reset(gpus, memory, 10 * compute_capability[0] + compute_capability[1], driver_version)
        driver().machine_kernels(kernels.library().launch)
        self._hook = _HOOK(self._before_call)
        driver().machine_hook(self._hook)

    def refuse_images(self) -> None:
        """From now on, no compiled kernel fits the GPUs."""
        driver().machine_refuse_images(1)

    def idle(self, batch_microseconds: int = 0) -> None:
        """From now on, kernels compute nothing, and no call can be counted or fail: what takes time is the host, and
        the GPU only as long for each batch as is said here."""
        driver().machine_idle(ctypes.c_long(batch_microseconds))
        driver().machine_hook(_HOOK(0))

    def _before_call(self, name: bytes) -> int:
        def call() -> None:
            if name == b"cuEventSynchronize":
                self.before_wait()
            self.call(name.decode())

        return self.code_of(call)

    def code_of(self, step: Callable[[], None]) -> int:
        """CUDA's number for how a step ended."""
        try:
            step()
        except Exception as error:  # none may leave a function that C++ calls
            code = _CODES[error.kind if isinstance(error, Failure) else "error"]
            driver().machine_text(code, (str(error) or repr(error)).encode())
            return code
        return 0

    def call(self, name: str) -> None:
        with self.lock:
            self.calls[name] += 1
            faults = self.faults
            if faults.lasting and faults.happened:
                raise Failure(faults.kind, "the GPU has fallen off the bus")
            if faults.only(name):
                faults.seen += 1
                if faults.seen == faults.at:
                    faults.happened = name
                    faults.announce(name)
                    raise Failure(faults.kind, "this is a test")

    @property
    def log(self) -> list[tuple[str, int, int, bool]]:
        """Each copy ("down" to the GPU, "up" to the host) and each allocation ("taken"): the GPU, the bytes, and
        whether the host's memory was pinned."""
        most = driver().machine_log(None, 0)
        entries = (ctypes.c_long * 4 * most)()
        driver().machine_log(entries, most)
        return [(("down", "up", "taken")[kind], gpu, size, bool(pinned)) for kind, gpu, size, pinned in entries]

    def forget_log(self) -> None:
        driver().machine_forget_log()

    def at(self, gpu: int, address: int, size: int) -> np.ndarray:
        """The bytes at an address of that GPU, or a failure: for a host address, freed memory, or too many bytes."""
        found = driver().machine_at(gpu, address, size)
        if not found:
            raise Failure("launch", f"{size} bytes at 0x{address:x} are not memory of cuda:{gpu}")
        return np.frombuffer((ctypes.c_uint8 * size).from_address(found), np.uint8)

    def busy_streams(self) -> int:
        return sum(driver().machine_waiting(gpu) for gpu in range(self.gpus))

    def held(self) -> dict[str, int]:
        """What has not been released yet; and, as "left", what was released only because its context ended."""
        total: Counter[str] = Counter()
        out = (ctypes.c_long * len(_HELD))()
        for gpu in range(self.gpus):
            driver().machine_held(gpu, out)
            total.update(dict(zip(_HELD, out, strict=True)))
        return dict(total)


def current_gpu() -> int:
    """The GPU that this thread's calls go to."""
    number = int(driver().machine_current())
    if number < 0:
        raise Failure("logic", "no context is current in this thread")
    return number


# The machine that the simulated libraries belong to.
MACHINE = Machine()
