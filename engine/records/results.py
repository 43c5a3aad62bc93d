"""The results of a run: its records, with their radii in one norm, as text (tsv, csv, json) with the columns of
columns.py."""

import csv
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ars.engine.records.columns import SHOWN
from ars.engine.records.record import Record
from ars.engine.records.store import read_records
from ars.errors import StoreError
from ars.noise.norms import norm_name

__all__ = ["FORMATS", "Result", "read_results", "write_results"]


@dataclass(frozen=True)
class Result(Record):
    """A record with its radius in one norm."""

    norm: str
    """The name of that norm: l1, l2 or linf."""
    radius: float


def read_results(path: Path, norm: float | None = None) -> Iterator[Result]:
    """The results of a run with radii in this norm (1, 2 or math.inf), by default that of its noise family."""
    for record in read_records(path):
        certificate = record.certificate
        asked = certificate.norm if norm is None else norm
        radius = certificate.radius_in(asked)
        if radius is None:
            problem = f"input {record.idx} is of a version that did not keep what a radius in {norm_name(asked)} needs"
            raise StoreError(path, problem, "certify again, or leave out --norm")
        yield Result(**vars(record), norm=norm_name(asked), radius=radius)


def _separated(results: Iterable[Result], delimiter: str) -> Iterator[str]:
    def line(values: Iterable[object]) -> str:
        text = io.StringIO()
        csv.writer(text, delimiter=delimiter, lineterminator="\n").writerow(values)
        return text.getvalue()

    rows = (line(show(column.value(result)) for column, show in SHOWN) for result in results)
    first = next(rows, "")  # if the store cannot be read, the error comes before the first line
    yield line(column.name for column, _ in SHOWN) + first
    yield from rows


def _json(results: Iterable[Result]) -> Iterator[str]:
    rows = (
        json.dumps({column.name: column.as_json(column.value(result)) for column, _ in SHOWN}) for result in results
    )
    yield "[\n  " + ",\n  ".join(rows) + "\n]\n"


FORMATS = ("tsv", "csv", "json")


def write_results(results: Iterable[Result], form: str) -> Iterator[str]:
    """The results as text, piece by piece."""
    return _json(results) if form == "json" else _separated(results, "\t" if form == "tsv" else ",")
