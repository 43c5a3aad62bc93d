"""The columns of a certified input, one row each: in the run store, in `ars-engine results`, and in the report's table.

This table drives the store's schema, its insertions and its reader, the printed results, and the report. A new stored
column is a new row, with the value (`older`) that it has in stores that were made before it.
"""

import datetime
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from operator import attrgetter
from typing import Any

from ars.engine.records.record import Record
from ars.engine.records.settings import Environment
from ars.engine.statistics.certificate import ABSTAIN, Certificate, format_radius
from ars.engine.statistics.looks import Look
from ars.noise import Scope
from ars.plain_json import parse_json

__all__ = ["COLUMNS", "REPORTED", "SHOWN", "STORED", "Column", "read_row", "write_row"]

Value = Any  # read_row checks what a store holds


def _same(value: Value) -> Value:
    return value


@dataclass(frozen=True)
class Kind:
    """A kind of stored value."""

    sql: str
    read: Callable[[Value], Value]
    """The value from what is in the store; ValueError if that is not of this kind, because SQLite accepts any value in
    any column."""
    write: Callable[[Value], Value] = _same
    """What the store takes for a value."""


def _checked(types: Any, fits: Callable[[Value], bool]) -> Callable[[Value], Value]:
    def read(value: Value) -> Value:
        if not (isinstance(value, types) and fits(value)):
            raise ValueError(f"it is {value!r}")
        return value

    return read


_count = _checked(int, lambda value: value >= 0)


def _counts(text: Value) -> tuple[int, ...]:
    return tuple(map(_count, parse_json(text)))


def _looks(text: Value) -> tuple[Look, ...]:
    return tuple(Look(*map(_count, look)) for look in parse_json(text))


# Far beyond every radius, which is a float32 times a factor below 10^3, and every time, and safe to calculate with.
_LARGEST_SIZE, _LONGEST = 1e42, 1e9

KEY = Kind("INTEGER PRIMARY KEY", _count)
LABEL = Kind("INTEGER", _checked(int | None, lambda value: value is None or value >= 0))
ANSWER = Kind("INTEGER NOT NULL", _checked(int, lambda value: value >= ABSTAIN))
COUNT = Kind("INTEGER NOT NULL", _count)
DRAWS = Kind("INTEGER NOT NULL", _checked(int, lambda value: value > 0))
FLAG = Kind("INTEGER NOT NULL", lambda value: bool(_count(value)))
SIZE = Kind("REAL NOT NULL", _checked(float, lambda value: 0 <= value <= _LARGEST_SIZE))
SCALE = Kind("REAL NOT NULL", _checked(float, lambda value: 0 < value < math.inf))
DIMENSIONS = Kind("INTEGER", _checked(int | None, lambda value: value is None or value > 0))
INVERSE = Kind("REAL", _checked(float | None, lambda value: value is None or 0 < value < math.inf))
SECONDS = Kind("REAL NOT NULL", _checked(float, lambda value: 0 <= value <= _LONGEST))
SHARE = Kind("REAL NOT NULL", _checked(float, lambda value: 0 < value < 1))
CHANCE = Kind("REAL NOT NULL", _checked(float, lambda value: 0 <= value < 1))
TEXT = Kind("TEXT NOT NULL", _checked(str, lambda value: True))
NAME = Kind("TEXT", _checked(str | None, lambda value: True))
SCOPE = Kind("TEXT NOT NULL", Scope, str)
COUNTS = Kind("TEXT NOT NULL", _counts, json.dumps)
LOOKS = Kind("TEXT NOT NULL", _looks, json.dumps)
ENVIRONMENT = Kind(
    "TEXT",
    lambda text: None if text is None else Environment.from_row(text),
    lambda made_by: None if made_by is None else made_by.to_row(),
)


@dataclass(frozen=True)
class Column:
    name: str
    of: str
    """The attribute of a Record that it holds, like "certificate.radius"; if it is not stored, that of a Result."""
    stored: Kind | None = None
    """How the store holds it; None if it follows from other columns."""
    older: str | None = None
    """Its value in stores that were made before it, as SQL."""
    shown: Callable[[Value], Value] | None = _same
    """What `ars-engine results` prints for a value, as tsv and csv; None if it prints no such column."""
    as_json: Callable[[Value], Value] = _same
    """What `ars-engine results --format json` prints for a value, and what the tables of Arrow have for it."""
    arrow: str | None = None
    """Its type in tables of Arrow, where the values do not say it: all may be missing, or too large."""
    title: str | None = None
    """Its title in the report's table; None if it is not there, or if the page has its own cell for it."""
    reported: Callable[[Value], str] = str
    """What the report's table shows for a value."""

    def value(self, record: Record) -> Value:
        return attrgetter(self.of)(record)


def _time(seconds: float) -> str:
    return str(datetime.timedelta(seconds=seconds))


def _yes(correct: bool | None) -> int | None:
    return None if correct is None else int(correct)


def _spaced(counts: Iterable[int]) -> str:
    return " ".join(map(str, counts))


def _colons(looks: Iterable[Look]) -> str:
    return " ".join(":".join(map(str, look)) for look in looks)


def _members(looks: Iterable[Look]) -> list[dict[str, int]]:
    return [look._asdict() for look in looks]


def _up(p_b: float) -> str:
    return f"{Decimal(p_b).quantize(Decimal('0.0001'), ROUND_CEILING):f}"


def _short(seconds: float) -> str:
    return f"{seconds:,.0f}" if seconds >= 100 else f"{seconds:.3g}"


# The field's own columns come first, so that existing scripts can read the results. The radius has two rows: it is
# stored in the norm of its family, and printed in the norm that is asked for. So has the environment: in older stores
# it is that of the run.
COLUMNS = (
    Column("idx", "idx", KEY),
    Column("label", "label", LABEL, arrow="int64"),
    Column("predict", "certificate.predicted", ANSWER),
    Column("radius", "certificate.radius", SIZE, shown=None),
    Column("radius", "radius"),
    Column("correct", "correct", shown=_yes, as_json=_yes, arrow="int64"),
    Column("time", "seconds", shown=_time, as_json=_time),
    Column("p_a", "certificate.p_a", SIZE, title="pA ≥", reported=lambda p_a: format_radius(p_a, 4)),
    Column("p_b", "certificate.p_b", SIZE, title="pB ≤", reported=_up),
    Column("K", "certificate.K", SIZE),
    Column("sigma_min", "certificate.sigma_min", SCALE, title="min σ", reported="{:.4g}".format),
    Column("sigma_geomean", "certificate.sigma_geomean", SCALE),
    Column("scope", "certificate.scope", SCOPE),
    Column("n0", "certificate.n0", COUNT),
    Column("n", "certificate.n", COUNT),
    Column("draws", "draws", DRAWS, title="draws", reported="{:,}".format),
    Column("seconds", "seconds", SECONDS, title="seconds", reported=_short),
    Column("selected", "certificate.selected", COUNT),
    Column("counts", "certificate.counts", COUNTS, shown=_spaced),
    Column("stopping", "certificate.stopping"),
    Column("budget", "certificate.budget", COUNT, older="n"),
    Column("looks", "certificate.looks", LOOKS, older="'[]'", shown=_colons, as_json=_members),
    Column("noise_stream", "certificate.noise_stream"),
    Column("eta", "certificate.eta", CHANCE, older="0.0"),
    Column("dimensions", "certificate.dimensions", DIMENSIONS, older="NULL"),
    Column("inverse_scale_l1", "certificate.inverse_scale_l1", INVERSE, older="NULL"),
    Column("inverse_scale_l2", "certificate.inverse_scale_l2", INVERSE, older="NULL"),
    Column("norm", "norm"),
    Column("stopped", "stopped"),
    Column("next_radius", "next_radius", arrow="float64"),
    Column("votes_short", "votes_short", arrow="int64"),
    Column("volume_radius", "certificate.volume_radius", title="volume radius", reported=format_radius),
    Column("unit", "unit", arrow="string"),
    Column("alpha", "certificate.alpha", SHARE),
    Column("two_sided", "certificate.two_sided", FLAG, shown=_yes, as_json=_yes),
    Column("family", "certificate.family", TEXT),
    Column("name", "name", NAME, older="NULL", arrow="string", title="file", reported=lambda name: name or ""),
    Column("seed", "seed", arrow="uint64"),
    Column("model_sha256", "model_sha256"),
    Column("input_sha256", "input_sha256", TEXT),
    Column("environment", "made_by", ENVIRONMENT, older="NULL", shown=None),
    Column("environment", "environment"),
    Column("explanation", "explanation", title="why it stopped"),
)


def write_row(record: Record) -> dict[str, Value]:
    """What the store takes for a record, by column."""
    return {column.name: kind.write(column.value(record)) for column, kind in STORED}


def read_row(row: Mapping[str, Value]) -> Record:
    """The record of a row of the store. ValueError or TypeError, naming its input, if there is none in it."""
    of_record: dict[str, Value] = {}
    of_certificate: dict[str, Value] = {}
    for column, kind in STORED:
        part, _, attribute = column.of.rpartition(".")
        try:
            (of_certificate if part else of_record)[attribute] = kind.read(row[column.name])
        except (TypeError, ValueError) as error:
            raise ValueError(f"the {column.name} of input {row['idx']}: {error}") from error
    certificate = Certificate(**of_certificate)
    if sum(certificate.counts) != certificate.n:
        raise ValueError(f"the counts of input {row['idx']} are not {certificate.n} votes")
    if certificate.selected >= len(certificate.counts) - 1:
        raise ValueError(f"input {row['idx']} has no votes for class {certificate.selected}")
    return Record(certificate=certificate, **of_record)


STORED = tuple((column, column.stored) for column in COLUMNS if column.stored)
SHOWN = tuple((column, column.shown) for column in COLUMNS if column.shown)
REPORTED = tuple(column for column in COLUMNS if column.title)
