"""The sampler on the CPU: noise and votes are computed by the native module (engine/native/)."""

import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ars.checks import whole_number
from ars.engine.lattice import Lattice
from ars.engine.requests import Request
from ars.engine.samplers import Sampler
from ars.errors import ArgumentError, NativeError, UnknownName
from ars.noise import Family

try:
    from ars.engine import _native
except ImportError as error:
    raise NativeError("the native sampler is not installed; run `pip install .` in the checkout") from error

__all__ = ["HostSampler", "usable_cores", "usable_instructions"]


def usable_instructions() -> list[str]:
    """The instruction sets that can make the noise on this CPU, the fastest first. All of them give the same bits."""
    try:
        return _native.instructions()
    except RuntimeError as error:
        raise NativeError(f"{error}; please report this with the processor's name") from error


def usable_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class HostSampler(Sampler):
    """Fills batches with noise and counts votes, for the inputs that are loaded in its slots.

    The instructions may be one of `usable_instructions`, or "precise": noise stream 2 by its slow path alone.
    """

    def __init__(
        self,
        slots: int,
        dimensions: int,
        family: Family,
        seed: int,
        *,
        lattice: Lattice | None = None,
        threads: int = 1,
        instructions: str | None = None,
    ) -> None:
        super().__init__(slots, dimensions, family, seed, lattice=lattice)
        threads = whole_number("threads", threads, 1, 1024, "it must lie between 1 and 1024")
        usable = [*usable_instructions(), *(["precise"] if lattice else [])]
        if instructions is not None and instructions not in usable:
            raise UnknownName("set of instructions", instructions, usable)
        self.instructions = instructions or usable[0]
        try:
            self._workers = _native.Workers(threads)
            self._tables = [np.zeros((self.slots, self.dimensions), kind) for kind in self.table_types]
        except (RuntimeError, MemoryError) as error:
            raise NativeError(f"there is no room for {slots} slots of {dimensions} values ({error})") from error

    def put(self, slot: int, rows: Sequence[NDArray[np.floating]]) -> None:
        for table, row in zip(self._tables, rows, strict=True):
            table[slot] = row

    def fill(self, out: NDArray[np.float32], requests: Sequence[Request]) -> None:
        """Write noisy copies to `out`, one row for each draw, request after request."""
        table, rows = self.table(requests)
        _check_array("out", out, writeable=True)
        if out.shape[:1] != (rows,) or out.size != rows * self.dimensions:
            needs = f"the requests need {rows} rows of {self.dimensions} dimensions"
            raise ArgumentError("out.shape", out.shape, needs)
        center, scale, *more = self._tables
        margin, exact_center = more or (None, None)
        _native.fill_noisy(
            out.reshape(rows, self.dimensions),
            table,
            center,
            scale,
            margin,
            exact_center,
            self.lattice.step if self.lattice else 0.0,
            self.family.code,
            self.seed,
            self._workers,
            self.instructions,
        )

    def count(self, logits: NDArray[np.float32], requests: Sequence[Request]) -> NDArray[np.int64]:
        """The votes of each request for each class. A tie goes to the lowest class.

        The last column counts the rows that vote for no class because one of their logits is not finite.
        """
        table, rows = self.table(requests)
        _check_array("logits", logits, writeable=False)
        if logits.ndim != 2 or logits.shape[0] != rows or logits.shape[1] < 1:
            raise ArgumentError("logits.shape", logits.shape, f"the requests need {rows} rows of at least one class")
        counts = np.zeros((len(table), logits.shape[1] + 1), np.int64)
        _native.count_votes(logits, table, counts)
        return counts


def _check_array(name: str, array: NDArray[np.float32], *, writeable: bool) -> None:
    """Raise an ArgumentError for an array that the native code cannot read, or write, in place."""
    if not isinstance(array, np.ndarray) or array.dtype != np.float32:
        found = f"{array.dtype} array" if isinstance(array, np.ndarray) else type(array).__name__
        raise ArgumentError(name, found, "it must be a float32 array")
    if not (array.flags.c_contiguous and array.flags.aligned and (array.flags.writeable or not writeable)):
        raise ArgumentError(name, "this array", "it must be C-contiguous, aligned and, to be filled, writeable")
