"""The results of a run: its records, with their radii in one norm and with what their draws went for, as text (tsv,
csv, json) with the columns of columns.py."""

import csv
import dataclasses
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ars.engine.records.columns import SHOWN
from ars.engine.records.record import Record
from ars.engine.records.settings import RunHeader
from ars.engine.records.store import read_header, read_records
from ars.engine.records.summary import radii_of_run
from ars.engine.statistics.shortfall import Stop, find_shortfall
from ars.errors import MissingPackage, StoreError
from ars.noise.norms import norm_name
from ars.printable import cell

__all__ = [
    "FORMATS",
    "TABLE_FORMATS",
    "Result",
    "make_result",
    "make_results",
    "read_results",
    "tabulate",
    "write_results",
    "write_table",
]


@dataclass(frozen=True, kw_only=True)
class Result(Record):
    """A record with its radii in one norm, and what follows from the plan of its run."""

    norm: str
    """The name of that norm: l1, l2 or linf."""
    unit: str | None
    """The unit of the radius; None if the run is of a version that did not say."""
    radius: float
    stopped: Stop
    next_radius: float | None
    votes_short: int | None
    explanation: str
    """Why it stopped or abstains and what it lacked, in words. Its radius is in the norm of the noise family."""
    seed: int
    model_sha256: str
    environment: str
    """What ran the model: versions, precision, device."""


def read_results(path: Path, norm: float | None = None) -> Iterator[Result]:
    """The results of a run with radii in this norm (1, 2 or math.inf), by default that of its noise family."""
    return make_results(path, read_header(path), list(read_records(path)), norm)


def make_results(
    path: Path, header: RunHeader, records: Sequence[Record], norm: float | None = None
) -> Iterator[Result]:
    """The results of these records of the run in a store."""
    radii = radii_of_run(header.settings.plan, records)
    for record in records:
        result = make_result(record, header, radii, record.certificate.norm if norm is None else norm)
        if result is None:
            problem = f"input {record.idx} is of a version that did not keep what a radius in l{norm:g} needs"
            raise StoreError(path, problem, "certify again, or leave out --norm")
        yield result


def make_result(record: Record, header: RunHeader, radii: Sequence[float], norm: float) -> Result | None:
    """The result of a record of a run, with what it lacked to the next of these radii; None if the record is of a
    version that did not keep what its radius in this norm needs."""
    certificate, settings, plan = record.certificate, header.settings, header.settings.plan
    radius, lacked = certificate.radius_in(norm), find_shortfall(certificate, plan, radii)
    if radius is None:
        return None
    if settings.bounds != plan.bounds_version:  # the bounds of an older version give other numbers
        lacked = dataclasses.replace(lacked, votes_short=None, explanation="")
    next_radius = None if lacked.next_radius is None else certificate.convert_radius(lacked.next_radius, norm)
    return Result(
        **vars(record),
        norm=norm_name(norm),
        unit=header.origin.unit,
        radius=radius,
        stopped=lacked.stopped,
        next_radius=next_radius,
        votes_short=lacked.votes_short,
        explanation=lacked.explanation,
        seed=settings.seed,
        model_sha256=settings.engine,
        environment=(record.made_by or header.environment).describe(),
    )


def _separated(results: Iterable[Result], delimiter: str) -> Iterator[str]:
    def line(values: Iterable[object]) -> str:
        text = io.StringIO()
        csv.writer(text, delimiter=delimiter, lineterminator="\n").writerow(values)
        return text.getvalue()

    rows = (line(cell(show(column.value(result))) for column, show in SHOWN) for result in results)
    first = next(rows, "")  # if the store cannot be read, the error comes before the first line
    yield line(column.name for column, _ in SHOWN) + first
    yield from rows


def _json(results: Iterable[Result]) -> Iterator[str]:
    rows = (
        json.dumps({column.name: column.as_json(column.value(result)) for column, _ in SHOWN}) for result in results
    )
    yield "[\n  " + ",\n  ".join(rows) + "\n]\n"


def tabulate(results: Iterable[Result]) -> Any:
    """The results as a table of pyarrow, with the columns and values of the text."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise MissingPackage("pyarrow", "parquet") from error
    results = list(results)
    columns = {}
    for column, _ in SHOWN:
        kind = None if column.arrow is None else pa.type_for_alias(column.arrow)
        columns[column.name] = pa.array([column.as_json(column.value(result)) for result in results], kind)
    return pa.table(columns)


def write_table(results: Iterable[Result], form: str, path: Path) -> None:
    """Write the results into a file of this form, parquet or arrow (the format of Arrow files, also called Feather)."""
    table = tabulate(results)
    if form == "parquet":
        from pyarrow import parquet

        parquet.write_table(table, path)
    else:
        from pyarrow import feather

        feather.write_feather(table, str(path))


FORMATS = ("tsv", "csv", "json")
TABLE_FORMATS = ("parquet", "arrow")


def write_results(results: Iterable[Result], form: str) -> Iterator[str]:
    """The results as text, piece by piece."""
    return _json(results) if form == "json" else _separated(results, "\t" if form == "tsv" else ",")
