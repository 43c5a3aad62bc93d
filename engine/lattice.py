"""The lattice of noise stream 2: its step, how an input's noise is written in units of it, and the error that remains.

Noise stream 2 smooths the classifier f(Q(y)), where Q rounds every dimension to the nearest multiple of the step. That
is a function of real numbers, so the theorem of docs/families.md holds for it as it stands, and floating-point
arithmetic enters at one point only: the draws have the distribution of Q(x + mean + scale Z) up to a total variation
distance `error`, by which the bounds of a certificate are widened. docs/soundness.md has the proof; the numbers below
are its constants.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ars.checks import real_number
from ars.errors import ArgumentError
from ars.noise import Family

__all__ = ["Lattice", "LatticeNoise", "choose_step"]

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

UNKNOWN_STEP = 2.0**-10
"""The step where the scale is not known before the inputs are: fit for scales from 1/32 to 32."""
IMAGE_STEP = 2.0**-8
"""The step for scales from 0.25 to 4: about that of 8-bit pixels, and exact in float16 for values up to 8."""
_FINEST, _COARSEST = 64, 1024
"""Steps in a scale: the share of values that float32 cannot decide grows with their number."""

# The range of the proof: scale / step, and |x + mean| / step.
LEAST_SCALE, MOST_SCALE, MOST_CENTER = 32, 2.0**15, 2.0**20
_LEAST_STEP, _MOST_STEP = 2.0**-100, 2.0**100

FAST_ERROR = 2.0**-19
"""A bound on |z - Z| of the fast path (tests/engine/native/fast_path.cpp)."""
FAST_LARGEST = 8.4
"""A bound on |z| of the fast path (tests/engine/native/fast_path.cpp)."""
_SLOW_ERROR = 2.0**-46
"""A bound on |z - Z| of the slow path, with the rounding of scale * z. For Pareto noise, whose error grows with |z|,
docs/soundness.md proves the same eta."""


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
        if not _LEAST_STEP <= step <= _MOST_STEP or _power_of_two_below(step) != step:
            raise ArgumentError("lattice_step", step, _STEP)
        object.__setattr__(self, "step", step)

    def noise(self, x: Floats, mean: Floats, scale: Floats) -> LatticeNoise:
        """The noise of an input, or a refusal where it is beyond the range of the proof."""
        center, scale = self._in_steps(x, mean, scale)
        error = scale.astype(np.float64) * (FAST_ERROR + FAST_LARGEST * 2.0**-24) + 1.001 * 2.0**-23 * np.abs(center)
        margin = np.nextafter((0.5 - 2.0**-25 - error).astype(np.float32), np.float32(-1))
        return LatticeNoise(center.astype(np.float32), scale, margin, center)

    def error(self, x: Floats, mean: Floats, scale: Floats, family: Family) -> float:
        """A bound on the total variation distance between one draw and Q(x + mean + scale Z) with ideal Z.

        This is the eta of docs/soundness.md, rounded up to a power of two: inputs of nearly the same noise then share
        the tests of adaptive stopping.
        An input beyond the range of the proof is refused.
        """
        center, scale = self._in_steps(x, mean, scale)
        s = scale.astype(np.float64)
        wrong = 2 * (_SLOW_ERROR * s + 2.0**-51 * np.abs(center)) * (1 + max(1, family.variation) / s)
        return float(2.0 ** math.ceil(math.log2(math.fsum(wrong.ravel()) * (1 + 1e-9))))

    def _in_steps(self, x: Floats, mean: Floats, scale: Floats) -> tuple[Doubles, Floats]:
        """x + mean and the scale in units of the step, or a refusal where they are beyond the range of the proof."""
        center = (x.astype(np.float64) + mean) / self.step
        self._check_range(float(scale.min()), float(scale.max()), float(np.abs(center).max()) * self.step)
        return center, np.broadcast_to(scale / np.float32(self.step), x.shape)

    def _check_range(self, least: float, most: float, furthest: float) -> None:
        """Refuse an input whose smallest or largest scale or largest |x + mean| is beyond the range of the proof."""
        if not least >= LEAST_SCALE * self.step:
            allowed = f"it must be at most a {LEAST_SCALE}nd of the smallest scale, {least:g}"
            raise ArgumentError("lattice_step", self.step, f"{allowed}: {_other_step(least, most, furthest)}")
        for name, value, limit in (("scale", most, MOST_SCALE), ("x + mean", furthest, MOST_CENTER)):
            if not value <= limit * self.step:
                allowed = f"the largest for a lattice step of {self.step:g} is {limit * self.step:g}"
                raise ArgumentError(name, value, f"{allowed}: {_other_step(least, most, furthest)}")


def choose_step(scale_min: float, argument: str = "scale") -> float:
    """The step for noise of this smallest scale: 2^-8 for the usual noise on images, and otherwise the largest power of
    two that is at most a 64th of the scale. `argument` is the name of the scale in a refusal."""
    least, most = _FINEST * _LEAST_STEP, _FINEST * _MOST_STEP
    if not least <= scale_min <= most:
        raise ArgumentError(argument, scale_min, f"noise stream 2 covers scales from {least:.3g} to {most:.3g}")
    return _preferred_step(scale_min)


def _preferred_step(scale_min: float) -> float:
    if _FINEST * IMAGE_STEP <= scale_min <= _COARSEST * IMAGE_STEP:
        return IMAGE_STEP
    return _power_of_two_below(scale_min / _FINEST)


def _other_step(least: float, most: float, furthest: float) -> str:
    """The advice to use a step that fits these scales and this largest |x + mean|, if there is one."""
    largest = min(_power_of_two_below(least / LEAST_SCALE), _MOST_STEP)
    needed = max(most / MOST_SCALE, furthest / MOST_CENTER, _LEAST_STEP)
    if largest >= needed:
        preferred = _preferred_step(least)
        return f"use a lattice step of {preferred if needed <= preferred <= largest else largest}"
    if needed > _MOST_STEP:
        limits = f"scales up to {MOST_SCALE * _MOST_STEP:.3g} and values up to {MOST_CENTER * _MOST_STEP:.3g}"
        return f"no lattice step fits this input, as noise stream 2 covers {limits}"
    return f"no lattice step fits this input, unless its smallest scale is at least {2 * LEAST_SCALE * needed:g}"


def _power_of_two_below(value: float) -> float:
    """The largest power of two that is at most this positive number."""
    return math.ldexp(0.5, math.frexp(value)[1])


_STEP = "it must be a power of two between 2^-100 and 2^100, like 0.00390625"
