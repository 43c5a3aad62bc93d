"""Convert arguments to numbers and arrays, or raise an ArgumentError that names the argument; check the types of
records that were read from files."""

import dataclasses
import math
import operator
import types
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ars.errors import ArgumentError

__all__ = ["check_types", "float32_array", "real_number", "whole_number"]


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


def check_types(record: Any) -> None:
    """Raise a ValueError that names the first field of a dataclass whose value is not of the type that it declares."""
    for name, kind in get_type_hints(type(record)).items():
        value = getattr(record, name)
        if not _is_of(value, kind):
            raise ValueError(f"{name} is {str(value)[:60]!r}")
        for part in value if isinstance(value, tuple) else (value,):
            if dataclasses.is_dataclass(part):
                check_types(part)


def _is_of(value: object, kind: Any) -> bool:
    parts = get_args(kind)
    if get_origin(kind) is types.UnionType:
        return any(_is_of(value, part) for part in parts)
    if get_origin(kind) is tuple:
        if not isinstance(value, tuple):
            return False
        kinds = parts[:1] * len(value) if parts[-1] is ... else parts
        return len(kinds) == len(value) and all(map(_is_of, value, kinds))
    if kind is float:
        return isinstance(value, float | int) and not isinstance(value, bool) and math.isfinite(value)
    return isinstance(value, get_origin(kind) or kind) and not (kind is int and isinstance(value, bool))
