"""JSON that others wrote. What Python's parser lets through and the rest of ARS could not use is refused here: numbers
that are not finite or too large, text that is not Unicode, and keys that occur twice."""

import json
import math
from typing import Any, NoReturn

__all__ = ["parse_json"]

_DIGITS = 20  # those of 2^64


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text. Raises a ValueError that says what is wrong."""
    try:
        return json.loads(
            text,
            parse_int=_read_integer,
            parse_float=_read_float,
            parse_constant=_refuse_constant,
            object_pairs_hook=_read_object,
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _read_integer(digits: str) -> int:
    if len(digits.lstrip("-")) > _DIGITS:
        raise ValueError(f"the number {digits[:_DIGITS]}... is too large")
    return int(digits)


def _read_float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"the number {digits[:_DIGITS]} is too large")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number that JSON has")


def _read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice")
    for key, value in pairs:
        for text in (key, *(value if isinstance(value, list) else [value])):
            if isinstance(text, str):
                _check_text(text)
    return found


def _check_text(text: str) -> None:
    """Half of a surrogate pair cannot be printed, stored or hashed."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("it has text that is not Unicode") from None
