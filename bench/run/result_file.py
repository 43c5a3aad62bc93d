"""Reads a benchmark back from the file that `--export-json` wrote. Every value is checked here, so that a damaged file
fails when it is read, and not later, when it is shown."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ars.bench.run.result import FORMAT, BenchResult, Measurement
from ars.errors import FileError, one_line
from ars.plain_json import parse_json
from ars.regular import check_small

__all__ = ["read_result"]

Fits = Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and 1 <= value <= 2**53


def _is_between(least: float, most: float) -> Fits:
    return lambda value: isinstance(value, int | float) and least <= value <= most  # NaN is not


def _is_list_of(fits: Fits) -> Fits:
    return lambda values: isinstance(values, list) and all(map(fits, values))


# What each value must be. The limits are far beyond anything that can be measured, and safe to calculate with.
_RESULT: dict[str, Fits] = {
    "format": lambda value: value == FORMAT,
    "network": _is_text,
    "n0": _is_count,
    "n": _is_count,
    "rounds": _is_count,
    "measurements": lambda values: isinstance(values, list) and bool(values),
    "left_out": _is_list_of(_is_text),
    "environment": lambda facts: isinstance(facts, dict) and {"cpu", "cores"} <= facts.keys(),
}
_MEASUREMENT: dict[str, Fits] = {
    **dict.fromkeys(("name", "backend", "precision", "stopping", "noise", "sha256"), _is_text),
    **dict.fromkeys(("batch", "threads", "draws", "inputs"), _is_count),
    "extrapolated": lambda value: isinstance(value, bool),
    "draws_per_sample": _is_between(1e-9, 2**53),
    "once": _is_between(0, 1e9),
    "seconds": _is_list_of(_is_between(1e-9, 1e9)),
}


def read_result(path: Path) -> BenchResult:
    """The benchmark in a file. Raises a FileError if the file holds none, or is damaged."""
    fix = "give a file that `ars-bench run --export-json` wrote"
    check_small(path)
    try:
        return _result(parse_json(path.read_bytes()))
    except OSError as error:
        raise FileError(path, f"it cannot be read ({error.strerror})", fix) from error
    except ValueError as error:
        raise FileError(path, f"it is not a benchmark that can be read ({one_line(error)})", fix) from error


def _result(content: object) -> BenchResult:
    if isinstance(content, dict) and content.get("format", FORMAT) != FORMAT:
        raise ValueError(f"its format is {content['format']}, and this version reads {FORMAT}")
    values = _checked(content, _RESULT)
    measurements = [_checked(one, _MEASUREMENT) for one in values["measurements"]]
    if len({one["name"] for one in measurements}) < len(measurements):
        raise ValueError("two of its measurements have one name")
    for one in measurements:
        if len(one["seconds"]) != values["rounds"]:
            raise ValueError(f"{one['name']} has {len(one['seconds'])} times for {values['rounds']} rounds")
    values["measurements"] = tuple(Measurement(**one | {"seconds": tuple(one["seconds"])}) for one in measurements)
    values["left_out"] = tuple(values["left_out"])
    return BenchResult(**values)


def _checked(content: object, conditions: dict[str, Fits]) -> dict[str, Any]:
    """The values that have a condition, each of which meets it."""
    if not isinstance(content, dict):
        raise ValueError("an object is missing")
    for name, fits in conditions.items():
        if name not in content:
            raise ValueError(f"{name} is missing")
        if not fits(content[name]):
            raise ValueError(f"{name} is {str(content[name])[:60]!r}")
    return {name: content[name] for name in conditions}
