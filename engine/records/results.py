"""The results of a run: its records, with their radii in one norm and with what their draws went for, as text (tsv,
csv, json) with the columns of columns.py."""

import csv
import dataclasses
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ars.engine.records.columns import IN_JSON, SHOWN
from ars.engine.records.record import Record
from ars.engine.records.settings import RunHeader
from ars.engine.records.store import read_header, read_records
from ars.engine.records.summary import radii_of_run
from ars.engine.statistics.shortfall import Stop, find_shortfall
from ars.errors import StoreError
from ars.noise.norms import norm_name

__all__ = ["FORMATS", "Result", "make_result", "read_results", "write_results"]


@dataclass(frozen=True)
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
    """Why it stopped and what it lacked, in words. Its radius is in the norm of the noise family."""


def read_results(path: Path, norm: float | None = None) -> Iterator[Result]:
    """The results of a run with radii in this norm (1, 2 or math.inf), by default that of its noise family."""
    header, records = read_header(path), list(read_records(path))
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
    )


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
        json.dumps({column.name: as_json(column.value(result)) for column, as_json in IN_JSON}) for result in results
    )
    yield "[\n  " + ",\n  ".join(rows) + "\n]\n"


FORMATS = ("tsv", "csv", "json")


def write_results(results: Iterable[Result], form: str) -> Iterator[str]:
    """The results as text, piece by piece."""
    return _json(results) if form == "json" else _separated(results, "\t" if form == "tsv" else ",")
