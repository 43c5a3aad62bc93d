"""A benchmark, read back from the file that `--export-json` wrote. All of it is checked here, so that nothing that
shows it fails later."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ars.bench.run.result import FORMAT, BenchResult, Measurement
from ars.errors import FileError

__all__ = ["read_result"]

# Far beyond anything that was ever measured, and safe to calculate with.
LONGEST, MOST = 1e9, 2**53


def read_result(path: Path) -> BenchResult:
    """The result in a file that `--export-json` wrote."""
    fix = "give a file that `ars-bench run --export-json` wrote"
    try:
        return _result(json.loads(path.read_text()))
    except OSError as error:
        raise FileError(path, f"it cannot be read ({error.strerror})", fix) from error
    except (ValueError, RecursionError) as error:
        raise FileError(path, f"it is not a benchmark that can be read ({error})", fix) from error


def _result(content: object) -> BenchResult:
    found = _value(content, "format", lambda value: True)
    if found != FORMAT:
        raise ValueError(f"its format is {found}, and this version reads {FORMAT}")
    environment = _value(content, "environment", lambda value: isinstance(value, dict))
    for name in ("cpu", "cores"):
        _value(environment, name, lambda value: isinstance(value, str | int))
    rounds = _value(content, "rounds", _is_count)
    measurements = _value(content, "measurements", lambda value: isinstance(value, list) and bool(value))
    result = BenchResult(
        network=_value(content, "network", _is_word),
        n0=_value(content, "n0", _is_count),
        n=_value(content, "n", _is_count),
        rounds=rounds,
        measurements=tuple(_measurement(one, rounds) for one in measurements),
        left_out=tuple(_value(content, "left_out", _are_words)),
        environment=environment,
    )
    if len({one.name for one in result.measurements}) < len(result.measurements):
        raise ValueError("two of its measurements have one name")
    return result


def _measurement(content: object, rounds: int) -> Measurement:
    words = ("name", "backend", "precision", "stopping", "noise", "sha256")
    counts = ("batch", "threads", "draws", "inputs")
    return Measurement(
        **{name: _value(content, name, _is_word) for name in words},
        **{name: _value(content, name, _is_count) for name in counts},
        extrapolated=_value(content, "extrapolated", lambda value: isinstance(value, bool)),
        draws_per_sample=_value(content, "draws_per_sample", lambda value: _is_number(value, MOST) and value > 0),
        once=_value(content, "once", lambda value: _is_number(value, LONGEST)),
        seconds=tuple(_value(content, "seconds", lambda value: _are_seconds(value, rounds))),
    )


def _value(content: object, name: str, fits: Callable[[Any], bool]) -> Any:
    if not isinstance(content, dict) or name not in content:
        raise ValueError(f"{name} is missing")
    if not fits(content[name]):
        raise ValueError(f"{name} is {str(content[name])[:60]!r}")
    return content[name]


def _is_word(value: object) -> bool:
    return isinstance(value, str)


def _are_words(values: object) -> bool:
    return isinstance(values, list) and all(map(_is_word, values))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and 1 <= value <= MOST


def _is_number(value: object, most: float) -> bool:
    return isinstance(value, int | float) and 0 <= value <= most  # NaN is not


def _are_seconds(values: object, rounds: int) -> bool:
    """One for each round."""
    return (
        isinstance(values, list)
        and len(values) == rounds
        and all(_is_number(value, LONGEST) and value >= 1 / LONGEST for value in values)
    )
