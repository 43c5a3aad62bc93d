"""The simulated machine: GPUs with memory of their own, and streams that do nothing until somebody waits for them.

Addresses on a simulated GPU are not valid on the host, and the host's are not valid there. New memory is filled with
NaN. Every call of a simulated library passes `Machine.call`, where a test can count it or make it fail.
"""

import threading
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

import numpy as np

GUARD = np.frombuffer(b"\xa5" * 64, np.uint8)


class Failure(Exception):
    """Something went wrong on a GPU. The simulated libraries turn it into the errors of the real ones."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


@dataclass
class Memory:
    """An allocation on a GPU, followed by guard bytes that nothing may overwrite."""

    gpu: int
    address: int
    size: int
    bytes: np.ndarray = field(repr=False)

    @classmethod
    def new(cls, gpu: int, address: int, size: int) -> "Memory":
        content = np.full(size + len(GUARD), 0xFF, np.uint8)  # NaN, read as floats
        content[size:] = GUARD
        return cls(gpu, address, size, content)


@dataclass
class Faults:
    """Which call fails, and how: once, or from then on, as on a GPU that was lost."""

    at: int | None = None
    kind: str = "error"
    lasting: bool = False
    only: Callable[[str], bool] = lambda name: True
    happened: str | None = None
    seen: int = 0


class Machine:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.reset()

    def reset(self, gpus: int = 1, memory: int = 2**30, compute_capability: tuple[int, int] = (8, 6)) -> None:
        """Start again as a machine with this many GPUs, and forget everything about the old one."""
        self.generation = object()
        self.gpus, self.memory_size, self.compute_capability = gpus, memory, compute_capability
        self.calls: Counter[str] = Counter()
        self.faults = Faults()
        self.moved: list[tuple[str, int, bool]] = []
        """Each copy between host and GPU: its direction, its bytes, and whether the host's memory was pinned."""
        self.memory: dict[int, Memory] = {}
        self.pinned: set[int] = set()
        self.contexts = 0
        self.lost_streams = 0
        """Streams that were deleted with work left to do, or that their last owner could not delete."""
        self.plans: dict[bytes, bytes] = {}
        """By a plan of the real TensorRT, the ONNX file that it was built from."""
        self.streams: weakref.WeakValueDictionary[int, Stream] = weakref.WeakValueDictionary()
        self.before_wait: Callable[[], None] = lambda: None
        self.compiled: list[str] = []
        self.refuses_fatbin = False
        self._next_address = count(0x7000_0000_0000, 0x1_0000_0000)
        self._next_stream = count(0x5EA0_0000, 16)

    def call(self, name: str) -> None:
        self.calls[name] += 1
        faults = self.faults
        if faults.lasting and faults.happened:
            raise Failure(faults.kind, "the GPU has fallen off the bus")
        if faults.only(name):
            faults.seen += 1
            if faults.seen == faults.at:
                faults.happened = name
                raise Failure(faults.kind, f"{name} failed: this is a test")

    def used(self, gpu: int) -> int:
        return sum(memory.size for memory in self.memory.values() if memory.gpu == gpu)

    def take(self, gpu: int, size: int) -> int:
        if self.used(gpu) + size > self.memory_size:
            raise Failure("memory", "out of memory")
        memory = Memory.new(gpu, next(self._next_address), size)
        self.memory[memory.address] = memory
        return memory.address

    def give_back(self, address: int) -> None:
        if self.memory.pop(address, None) is None:
            raise Failure("logic", f"0x{address:x} is not allocated")

    def at(self, gpu: int, address: int, size: int) -> np.ndarray:
        """The bytes at an address of that GPU, or a failure: for a host address, freed memory, or too many bytes."""
        for memory in self.memory.values():
            if memory.gpu == gpu and memory.address <= address < memory.address + memory.size:
                if address + size > memory.address + memory.size:
                    raise Failure("launch", f"{size} bytes at 0x{address:x} are more than were allocated")
                return memory.bytes[address - memory.address : memory.size]
        raise Failure("launch", f"0x{address:x} is not memory of cuda:{gpu}")

    def check_guards(self) -> None:
        for memory in self.memory.values():
            if not np.array_equal(memory.bytes[memory.size :], GUARD):
                raise Failure("launch", f"something was written behind 0x{memory.address:x}")

    def held(self) -> dict[str, int]:
        """What has not been released yet."""
        return {
            "memory": len(self.memory),
            "pinned": len(self.pinned),
            "contexts": self.contexts,
            "streams": len(self.streams) + self.lost_streams,
        }


class Stream:
    """Work that is done in order, and only when somebody waits for it."""

    def __init__(self, machine: Machine, gpu: int) -> None:
        self.machine, self.gpu = machine, gpu
        self.generation = machine.generation
        self.handle = next(machine._next_stream)
        self.work: list[Callable[[], None]] = []
        self.done = 0
        machine.streams[self.handle] = self

    def add(self, step: Callable[[], None]) -> int:
        self.work.append(step)
        return self.done + len(self.work)

    def run_to(self, mark: int) -> None:
        while self.done < mark:
            step = self.work.pop(0)
            self.done += 1
            try:
                step()
            except Failure:  # the work queued after it is lost
                self.done += len(self.work)
                self.work.clear()
                raise

    def run_all(self) -> None:
        self.run_to(self.done + len(self.work))


# The machine that the simulated libraries belong to.
MACHINE = Machine()
