"""The host device: noise and votes on the processor, by the native sampler (engine/native/)."""

import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ars.checks import float32_array, whole_number
from ars.engine.requests import MAX_DRAWS, Phase, Request
from ars.errors import ArgumentError, NativeError, UnknownName
from ars.noise import Family, family_named, scale_map

try:
    from ars.engine import _native
except ImportError as error:
    raise NativeError("the native sampler is not installed; run `pip install .` in the checkout") from error

__all__ = ["Host", "usable_cores", "usable_instructions"]


def usable_instructions() -> list[str]:
    """The instruction sets that can make the noise on this processor, the fastest first. All give the same bits."""
    try:
        return _native.instructions()
    except RuntimeError as error:
        raise NativeError(f"{error}; please report this with the processor's name") from error


def usable_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Host:
    """Fills batches with noise stream 1 and counts votes, for the inputs that are loaded in its slots."""

    def __init__(
        self,
        slots: int,
        dimensions: int,
        family: Family,
        seed: int,
        *,
        threads: int = 1,
        instructions: str | None = None,
    ) -> None:
        slots = whole_number("slots", slots, 1, 2**24, "it must lie between 1 and 2^24")
        dimensions = whole_number("dimensions", dimensions, 1, 2**34, "an input has between 1 and 2^34 dimensions")
        threads = whole_number("threads", threads, 1, 1024, "it must lie between 1 and 1024")
        usable = usable_instructions()
        if instructions is not None and instructions not in usable:
            raise UnknownName("set of instructions", instructions, usable)
        self.slots, self.dimensions = slots, dimensions
        self.family = family_named(family)
        self.seed = whole_number("seed", seed, 0, 2**64 - 1, "it must fit 64 bits")
        self.instructions = instructions or usable[0]
        try:
            self._workers = _native.Workers(threads)
            self._center = np.zeros((slots, dimensions), np.float32)
            self._scale = np.zeros((slots, dimensions), np.float32)
        except (RuntimeError, MemoryError) as error:
            raise NativeError(f"there is no room for {slots} slots of {dimensions} values ({error})") from error

    def load(self, slot: int, x: ArrayLike, mean: ArrayLike, scale: ArrayLike) -> None:
        """Put an input and its noise maps in a slot. `mean` and `scale` may be single numbers.

        Not while a batch with draws of this slot is being filled: its rows would be partly of the old input.
        """
        slot = whole_number("slot", slot, 0, self.slots - 1, f"this device has {self.slots} slots")
        x, mean, scale = float32_array("x", x), float32_array("mean", mean), scale_map(scale)
        if x.size != self.dimensions:
            raise ArgumentError("x.shape", x.shape, f"this device is for inputs of {self.dimensions} dimensions")
        for name, values in (("mean", mean), ("scale", scale)):
            if values.shape not in ((), x.shape):
                raise ArgumentError(f"{name}.shape", values.shape, f"it must be the shape of x, {x.shape}")
        with np.errstate(over="ignore"):
            center = x + mean
        for name, values in (("x", x), ("mean", mean), ("x + mean", center)):
            if not np.isfinite(values).all():
                raise ArgumentError(name, values[~np.isfinite(values)].flat[0], "every value must be finite")
        self._center[slot] = center.ravel()
        self._scale[slot] = scale.ravel()  # a slot that was never loaded keeps scale 0, by which `_table` knows it

    def fill(self, out: NDArray[np.float32], requests: Sequence[Request]) -> None:
        """Write x + mean + scale * z into the rows of `out`, a row a draw, request after request."""
        table, rows = self._table(requests)
        _check_array("out", out, writeable=True)
        if out.shape[:1] != (rows,) or out.size != rows * self.dimensions:
            needs = f"the requests need {rows} rows of {self.dimensions} dimensions"
            raise ArgumentError("out.shape", out.shape, needs)
        _native.fill_noisy(
            out.reshape(rows, self.dimensions),
            table,
            self._center,
            self._scale,
            self.family.code,
            self.seed,
            self._workers,
            self.instructions,
        )

    def count(self, logits: NDArray[np.float32], requests: Sequence[Request]) -> NDArray[np.int64]:
        """The votes of each request for each class; a tie goes to the lowest class.

        The last column counts the rows that vote for nobody because a logit is not finite.
        """
        table, rows = self._table(requests)
        _check_array("logits", logits, writeable=False)
        if logits.ndim != 2 or logits.shape[0] != rows or logits.shape[1] < 1:
            raise ArgumentError("logits.shape", logits.shape, f"the requests need {rows} rows of at least one class")
        counts = np.zeros((len(table), logits.shape[1] + 1), np.int64)
        _native.count_votes(logits, table, counts)
        return counts

    def _table(self, requests: Sequence[Request]) -> tuple[NDArray[np.int64], int]:
        """The requests as the native code takes them, and their rows; refused outside noise stream 1 or the slots."""
        table = np.empty((len(requests), 5), np.int64)
        rows = 0
        for number, (slot, input_id, phase, first_draw, draws) in enumerate(requests):
            slot = whole_number("slot", slot, 0, self.slots - 1, "no input is loaded there")
            if self._scale[slot, 0] == 0:
                raise ArgumentError("slot", slot, "no input is loaded there")
            first = whole_number("first_draw", first_draw, 0, MAX_DRAWS, _DRAWS)
            draws = whole_number("draws", draws, 0, MAX_DRAWS - first, _DRAWS)
            input_id = whole_number("input_id", input_id, 0, 2**32 - 1, "it must fit 32 bits")
            number_of_phase = whole_number("phase", phase, 0, max(Phase), f"the phases are {[*Phase]}")
            table[number] = slot, input_id, number_of_phase, first, draws
            rows += draws
        return table, rows


_DRAWS = "an input has between 0 and 2^56 draws in a phase"


def _check_array(name: str, array: NDArray[np.float32], *, writeable: bool) -> None:
    """Refuse what the native code could not read, or write, in place."""
    if not isinstance(array, np.ndarray) or array.dtype != np.float32:
        found = f"{array.dtype} array" if isinstance(array, np.ndarray) else type(array).__name__
        raise ArgumentError(name, found, "it must be a float32 array")
    if not (array.flags.c_contiguous and array.flags.aligned and (array.flags.writeable or not writeable)):
        raise ArgumentError(name, "this array", "it must be C-contiguous, aligned and, to be filled, writeable")
