"""Records as text: tsv, csv and json, with the columns of columns.py."""

import csv
import io
import json
from collections.abc import Iterable, Iterator

from ars.engine.records.columns import SHOWN
from ars.engine.records.record import Record

__all__ = ["FORMATS", "write_records"]


def _separated(records: Iterable[Record], delimiter: str) -> Iterator[str]:
    def line(values: Iterable[object]) -> str:
        text = io.StringIO()
        csv.writer(text, delimiter=delimiter, lineterminator="\n").writerow(values)
        return text.getvalue()

    rows = (line(show(column.value(record)) for column, show in SHOWN) for record in records)
    first = next(rows, "")  # if the store cannot be read, the error comes before the first line
    yield line(column.name for column, _ in SHOWN) + first
    yield from rows


def _json(records: Iterable[Record]) -> Iterator[str]:
    rows = (
        json.dumps({column.name: column.as_json(column.value(record)) for column, _ in SHOWN}) for record in records
    )
    yield "[\n  " + ",\n  ".join(rows) + "\n]\n"


FORMATS = ("tsv", "csv", "json")


def write_records(records: Iterable[Record], form: str) -> Iterator[str]:
    """The records as text, piece by piece."""
    return _json(records) if form == "json" else _separated(records, "\t" if form == "tsv" else ",")
