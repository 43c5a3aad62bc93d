"""Samplers: they hold the inputs of a run, make noisy copies of them, and count votes. There is one for the host's
memory (host.py) and one for a GPU's (cuda.py)."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ars.checks import float32_array, whole_number
from ars.engine.lattice import Lattice
from ars.engine.requests import MAX_DRAWS, Phase, Request
from ars.errors import ArgumentError
from ars.noise import Family, family_named, scale_map

__all__ = ["Sampler"]

# From this number of requests on, it is faster to look at all of them at once.
_MANY = 6
_DRAWS = "an input has between 0 and 2^56 draws in a phase"


class Sampler(ABC):
    """The inputs that a run is working on, each in a numbered slot together with its noise maps.

    A subclass keeps the slots in the memory where its batches are made. This class checks the arguments.
    """

    def __init__(
        self, slots: int, dimensions: int, family: Family, seed: int, *, lattice: Lattice | None = None
    ) -> None:
        """With a lattice, the noise is that of noise stream 2; without one, it is that of noise stream 1."""
        self.slots = whole_number("slots", slots, 1, 2**24, "it must lie between 1 and 2^24")
        what = "an input has between 1 and 2^34 dimensions"
        self.dimensions = whole_number("dimensions", dimensions, 1, 2**34, what)
        self.family = family_named(family)
        self.seed = whole_number("seed", seed, 0, 2**64 - 1, "it must fit 64 bits")
        self.lattice = lattice
        self._loaded = np.zeros(self.slots, bool)
        self._most = np.array([self.slots - 1, 2**32 - 1, max(Phase), MAX_DRAWS, MAX_DRAWS])

    @property
    def table_types(self) -> tuple[type[np.floating], ...]:
        """The types of the tables that hold the inputs, each with one row for each slot: center and scale, and for
        noise stream 2 margin and exact center (engine/native/stream.h)."""
        return (np.float32, np.float32, np.float32, np.float64) if self.lattice else (np.float32, np.float32)

    @abstractmethod
    def put(self, slot: int, rows: Sequence[NDArray[np.floating]]) -> None:
        """Store an input: its row of each table, an array with one axis that may have a single element."""

    def load(self, slot: int, x: ArrayLike, mean: ArrayLike, scale: ArrayLike) -> None:
        """Put an input and its noise maps in a slot. `mean` and `scale` may be single numbers.

        This must not happen while a batch with draws of this slot is being filled: some of its rows would be copies of
        the old input, and some of the new one.
        """
        slot = whole_number("slot", slot, 0, self.slots - 1, f"this sampler has {self.slots} slots")
        x, mean, scale = float32_array("x", x), float32_array("mean", mean), scale_map(scale)
        if x.size != self.dimensions:
            raise ArgumentError("x.shape", x.shape, f"this sampler is for inputs of {self.dimensions} dimensions")
        for name, values in (("mean", mean), ("scale", scale)):
            if values.shape not in ((), x.shape):
                raise ArgumentError(f"{name}.shape", values.shape, f"it must be the shape of x, {x.shape}")
        with np.errstate(over="ignore"):
            center = x + mean
        for name, values in (("x", x), ("mean", mean), ("x + mean", center)):
            if not np.isfinite(values).all():
                raise ArgumentError(name, values[~np.isfinite(values)].flat[0], "every value must be finite")
        if self.lattice:
            noise = self.lattice.noise(x.ravel(), mean.ravel(), scale.ravel())
            self.put(slot, (noise.center, noise.scale, noise.margin, noise.exact_center))
        else:
            self.put(slot, (center.ravel(), scale.ravel()))
        self._loaded[slot] = True

    def table(self, requests: Sequence[Request]) -> tuple[NDArray[np.int64], int]:
        """The requests as the table that the native code reads, and the number of rows that they need.

        Raises an ArgumentError for draws that the noise streams do not have, and for empty slots.
        """
        if len(requests) < _MANY:
            return self._check_one_by_one(requests)
        try:
            table = np.array(requests).reshape(-1, 5)
            if table.dtype == np.int64 and self._is_valid(table):
                return table, sum(table[:, 4].tolist())
        except (ValueError, OverflowError):
            pass
        return self._check_one_by_one(requests)

    def _is_valid(self, table: NDArray[np.int64]) -> bool:
        """Whether all requests of a table can be met. To look at all of them at once takes a fraction of
        the time that the host would otherwise spend between two batches of a GPU."""
        return bool(
            table.min() >= 0
            and (table <= self._most).all()
            and (table[:, 3] + table[:, 4]).max() <= MAX_DRAWS
            and self._loaded[table[:, 0]].all()
        )

    def _check_one_by_one(self, requests: Sequence[Request]) -> tuple[NDArray[np.int64], int]:
        """As `table`; says which number of which request is wrong."""
        table = np.empty((len(requests), 5), np.int64)
        rows = 0
        for number, (slot, input_id, phase, first_draw, draws) in enumerate(requests):
            slot = whole_number("slot", slot, 0, self.slots - 1, "no input is loaded there")
            if not self._loaded[slot]:
                raise ArgumentError("slot", slot, "no input is loaded there")
            first = whole_number("first_draw", first_draw, 0, MAX_DRAWS, _DRAWS)
            draws = whole_number("draws", draws, 0, MAX_DRAWS - first, _DRAWS)
            input_id = whole_number("input_id", input_id, 0, 2**32 - 1, "it must fit 32 bits")
            number_of_phase = whole_number("phase", phase, 0, max(Phase), f"the phases are {[*Phase]}")
            table[number] = slot, input_id, number_of_phase, first, draws
            rows += draws
        return table, rows

    def close(self) -> None:
        """Release what the sampler holds."""
        return
