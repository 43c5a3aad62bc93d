"""Convert arguments to numbers and arrays, or raise an ArgumentError that names the argument."""

import math
import operator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ars.errors import ArgumentError

__all__ = ["float32_array", "real_number", "whole_number"]


def whole_number(name: str, value: object, low: int, high: int, requirement: str) -> int:
    """A Python int in [low, high], from any integer type. True and False are not numbers here."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]  # a TypeError is expected
    except TypeError:
        raise ArgumentError(name, repr(value), "it must be a whole number") from None
    if not low <= number <= high:
        raise ArgumentError(name, number, requirement)
    return number


def real_number(name: str, value: object, requirement: str) -> float:
    """A Python float that is not NaN, from any real number type. True and False are not numbers here."""
    if isinstance(value, str | bytes | bool | np.bool_):
        raise ArgumentError(name, repr(value), "it must be a number")
    try:
        number = float(value)  # type: ignore[arg-type]  # a TypeError is expected
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(name, repr(value), "it must be a number") from None
    if math.isnan(number):
        raise ArgumentError(name, number, requirement)
    return number


def float32_array(name: str, values: ArrayLike) -> NDArray[np.float32]:
    """The values as float32, the type that the noise is computed in."""
    try:
        array = np.asarray(values)
        if not (np.issubdtype(array.dtype, np.floating) or np.issubdtype(array.dtype, np.integer)):
            raise TypeError
        with np.errstate(over="ignore"):
            return array.astype(np.float32)
    except (TypeError, ValueError):
        raise ArgumentError(name, type(values).__name__, "it must be a real number or an array of them") from None
