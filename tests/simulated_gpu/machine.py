"""The simulated machine: GPUs with memory of their own, and streams that do nothing until somebody waits for them.

Addresses on a simulated GPU mean nothing to the host, and the host's mean nothing there. Memory starts with bytes that
are not numbers. Every call of the stand-ins passes `Machine.call`, where a test can count it or make it fail.
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
    """What goes wrong on a GPU; the stand-ins raise it in the words of what they stand in for."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


@dataclass
class Memory:
    """An allocation on a GPU, with bytes after its end that nobody may write."""

    gpu: int
    address: int
    size: int
    bytes: np.ndarray = field(repr=False)

    @classmethod
    def new(cls, gpu: int, address: int, size: int) -> "Memory":
        content = np.full(size + len(GUARD), 0xFF, np.uint8)  # as floats: not a number
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
        """Start again, as a machine with so many GPUs; what is left of the old one is forgotten."""
        self.generation = object()
        self.gpus, self.memory_size, self.compute_capability = gpus, memory, compute_capability
        self.calls: Counter[str] = Counter()
        self.faults = Faults()
        self.moved: list[tuple[str, int, bool]] = []
        """Each copy between host and GPU: its direction, its bytes, and whether it was to or from pinned memory."""
        self.memory: dict[int, Memory] = {}
        self.pinned: set[int] = set()
        self.contexts = 0
        self.lost_streams = 0
        """Streams that ended with work to do, or could not be ended where their last owner was."""
        self.plans: dict[bytes, bytes] = {}
        """The ONNX files that plans of the real TensorRT were built from."""
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
        """What is not given back yet."""
        return {
            "memory": len(self.memory),
            "pinned": len(self.pinned),
            "contexts": self.contexts,
            "streams": len(self.streams) + self.lost_streams,
        }


class Stream:
    """Work in order, done only when somebody waits."""

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
            except Failure:  # what comes after it is lost
                self.done += len(self.work)
                self.work.clear()
                raise

    def run_all(self) -> None:
        self.run_to(self.done + len(self.work))


# The one that the stand-ins belong to.
MACHINE = Machine()
