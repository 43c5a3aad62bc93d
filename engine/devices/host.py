"""The host device: noise and votes on the processor, by the native sampler (engine/native/)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ars.engine.requests import MAX_DRAWS, Phase, Request
from ars.errors import ArgumentError, NativeError, UnknownName
from ars.noise import Family, check_scale

try:
    from ars.engine import _native
except ImportError as error:
    raise NativeError("the native sampler is not installed; run `pip install .` in the checkout") from error

__all__ = ["Host", "usable_instructions"]


def usable_instructions() -> list[str]:
    """The instruction sets that can make the noise on this processor, the fastest first. All give the same bits."""
    try:
        return _native.instructions()
    except RuntimeError as error:
        raise NativeError(f"{error}; please report this with the processor's name") from error


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
        for name, value in (("slots", slots), ("dimensions", dimensions), ("threads", threads)):
            if value < 1:
                raise ArgumentError(name, value, "it must be at least 1")
        if not 0 <= seed < 2**64:
            raise ArgumentError("seed", seed, "it must fit 64 bits")
        usable = usable_instructions()
        if instructions is not None and instructions not in usable:
            raise UnknownName("set of instructions", instructions, usable)
        self.slots, self.dimensions = slots, dimensions
        self.family = family
        self.seed = seed
        self.instructions = instructions or usable[0]
        self._workers = _native.Workers(threads)
        self._center = np.zeros((slots, dimensions), np.float32)
        self._scale = np.zeros((slots, dimensions), np.float32)

    def load(self, slot: int, x: ArrayLike, mean: ArrayLike, scale: ArrayLike) -> None:
        """Put an input and its noise maps in a slot. `mean` and `scale` may be single numbers."""
        if not 0 <= slot < len(self._center):
            raise ArgumentError("slot", slot, f"this device has {len(self._center)} slots")
        x, mean, scale = (np.asarray(values, np.float32) for values in (x, mean, scale))
        if x.size != self.dimensions:
            raise ArgumentError("x.shape", x.shape, f"this device is for inputs of {self.dimensions} dimensions")
        for name, values in (("mean", mean), ("scale", scale)):
            if values.shape not in ((), x.shape):
                raise ArgumentError(f"{name}.shape", values.shape, f"it must be the shape of x, {x.shape}")
        for name, values in (("x", x), ("mean", mean)):
            if not np.isfinite(values).all():
                raise ArgumentError(name, values[~np.isfinite(values)].flat[0], "every value must be finite")
        check_scale(scale)
        self._center[slot] = (x + mean).ravel()
        self._scale[slot] = scale.ravel()
        # A slot that was never loaded keeps scale 0, by which `fill` knows it.

    def fill(self, out: NDArray[np.float32], requests: Sequence[Request]) -> None:
        """Write x + mean + scale * z into the rows of `out`, a row a draw, request after request."""
        rows = self._check(requests)
        if out.dtype != np.float32 or not (out.flags.c_contiguous and out.flags.writeable):
            raise ArgumentError("out", f"{out.dtype} array", "it must be float32, C-contiguous and writeable")
        if out.shape[:1] != (rows,) or out.size != rows * self.dimensions:
            needs = f"the requests need {rows} rows of {self.dimensions} dimensions"
            raise ArgumentError("out.shape", out.shape, needs)
        _native.fill_noisy(
            out.reshape(rows, self.dimensions),
            _table(requests),
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
        rows = self._check(requests)
        if logits.dtype != np.float32 or not logits.flags.c_contiguous:
            raise ArgumentError("logits", f"{logits.dtype} array", "it must be float32 and C-contiguous")
        if logits.ndim != 2 or logits.shape[0] != rows or logits.shape[1] < 1:
            raise ArgumentError("logits.shape", logits.shape, f"the requests need {rows} rows of at least one class")
        counts = np.zeros((len(requests), logits.shape[1] + 1), np.int64)
        _native.count_votes(logits, _table(requests), counts)
        return counts

    def _check(self, requests: Sequence[Request]) -> int:
        """Refuse requests outside noise stream 1 or outside the slots; the number of rows that they take."""
        rows = 0
        for request in requests:
            if not 0 <= request.slot < len(self._center) or self._scale[request.slot, 0] == 0:
                raise ArgumentError("slot", request.slot, "no input is loaded there")
            if not 0 <= request.input_id < 2**32:
                raise ArgumentError("input_id", request.input_id, "it must fit 32 bits")
            if request.phase not in Phase.__members__.values():
                raise ArgumentError("phase", request.phase, f"the phases are {', '.join(map(repr, Phase))}")
            if request.first_draw < 0:
                raise ArgumentError("first_draw", request.first_draw, "draws are counted from 0")
            if request.draws < 0 or request.first_draw + request.draws > MAX_DRAWS:
                raise ArgumentError("draws", request.draws, "an input has between 0 and 2^56 draws in a phase")
            rows += request.draws
        return rows


def _table(requests: Sequence[Request]) -> NDArray[np.int64]:
    return np.array(requests, np.int64).reshape(len(requests), 5)
