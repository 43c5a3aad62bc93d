"""The lattice of noise stream 2: its step, how an input's noise is written in units of it, and the error that remains.

Noise stream 2 smooths the classifier f(Q(y)), where Q rounds every dimension to the nearest multiple of the step. That
is a function of real numbers, so the theorems hold for it as they stand, and floating-point arithmetic enters at one
point only: the draws have the distribution of Q(x + mean + scale Z) up to a total variation distance `error`, by which
the bounds of a certificate are widened. docs/soundness.md has the proof; the numbers below are its constants.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ars.checks import real_number
from ars.errors import ArgumentError

__all__ = ["Lattice", "LatticeNoise", "choose_step"]

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

IMAGE_STEP = 2.0**-8
"""The step for scales from 0.25 to 4: about that of 8-bit pixels, and exact in float16 for values up to 8."""
_FINEST, _COARSEST = 64, 1024
"""Steps in a scale: the share of values that float32 cannot decide grows with their number."""

# The range of the proof: scale / step, and |x + mean| / step.
LEAST_SCALE, MOST_SCALE, MOST_CENTER = 32, 2.0**15, 2.0**20
_LEAST_STEP, _MOST_STEP = 2.0**-100, 2.0**100

_FAST_ERROR = 2.0**-19
"""A bound on |z - Z| of the fast path (tests/engine/native/fast_path.cpp)."""
_FAST_LARGEST = 8.4
"""The fast path has no larger |z|."""
_SLOW_ERROR = 2.0**-46
"""A bound on |z - Z| of the slow path, with the rounding of scale * z."""


@dataclass(frozen=True)
class LatticeNoise:
    """An input's noise in units of the step, as the native code takes it (engine/native/lattice.h)."""

    center: Floats
    scale: Floats
    margin: Floats
    """If the fast path's number is this close to a whole number, the value is decided."""
    exact_center: Doubles


@dataclass(frozen=True)
class Lattice:
    """The multiples of a step, which is a power of two."""

    step: float

    def __post_init__(self) -> None:
        step = real_number("lattice_step", self.step, _STEP)
        if not _LEAST_STEP <= step <= _MOST_STEP or math.frexp(step)[0] != 0.5:
            raise ArgumentError("lattice_step", step, _STEP)

    def noise(self, x: Floats, mean: Floats, scale: Floats) -> LatticeNoise:
        """The noise of an input, or a refusal where it is beyond the range of the proof."""
        center, scale = self._center(x, mean), np.broadcast_to(scale / np.float32(self.step), x.shape)
        least, most, furthest = float(scale.min()), float(scale.max()), float(np.abs(center).max())
        if not least >= LEAST_SCALE:
            largest = f"at most a {LEAST_SCALE}nd of the smallest scale, {least * self.step:g}"
            raise ArgumentError(
                "lattice_step", self.step, f"it must be {largest}: use {choose_step(least * self.step)}"
            )
        if not most <= MOST_SCALE:
            fix = f"the largest for this lattice step is {MOST_SCALE * self.step:g}: use a larger --lattice-step"
            raise ArgumentError("scale", most * self.step, fix)
        if not furthest <= MOST_CENTER:
            fix = f"the largest for this lattice step is {MOST_CENTER * self.step:g}: use a larger --lattice-step"
            raise ArgumentError("x + mean", furthest * self.step, fix)
        error = scale.astype(np.float64) * (_FAST_ERROR + _FAST_LARGEST * 2.0**-24) + 1.001 * 2.0**-23 * np.abs(center)
        margin = np.nextafter((0.5 - 2.0**-25 - error).astype(np.float32), np.float32(-1))
        return LatticeNoise(center.astype(np.float32), scale, margin, center)

    def error(self, x: Floats, mean: Floats, scale: Floats) -> float:
        """A bound on the total variation distance between one draw and Q(x + mean + scale Z) with ideal Z.

        It is rounded up to a power of two: inputs of nearly the same noise then share the tests of adaptive stopping.
        """
        center = np.abs(self._center(x, mean))
        scale = np.broadcast_to(scale / np.float32(self.step), x.shape).astype(np.float64)
        wrong = 2 * (_SLOW_ERROR * scale + 2.0**-51 * center) * (1 + 1 / scale)
        return float(2.0 ** math.ceil(math.log2(math.fsum(wrong.ravel()) * (1 + 1e-9))))

    def _center(self, x: Floats, mean: Floats) -> Doubles:
        return (x.astype(np.float64) + mean) / self.step


def choose_step(scale_min: float) -> float:
    """The step for noise of this smallest scale: 2^-8 for the usual noise on images, and otherwise the largest power of
    two that is at most a 64th of the scale."""
    if _FINEST * IMAGE_STEP <= scale_min <= _COARSEST * IMAGE_STEP:
        return IMAGE_STEP
    return float(2.0 ** math.floor(math.log2(scale_min / _FINEST)))


_STEP = "it is a power of two, like 0.00390625"
