"""Records as text: tsv, csv and json. The field's own columns come first, so that existing scripts read them."""

import csv
import datetime
import io
import json
from collections.abc import Iterable, Iterator

from ars.engine.records.store import Record

__all__ = ["FORMATS", "write_records"]


COLUMNS = (
    *("idx", "label", "predict", "radius", "correct", "time", "p_a", "p_b", "K", "sigma_min", "sigma_geomean"),
    *("scope", "n0", "n", "draws", "seconds", "selected", "counts", "stopping", "budget", "looks"),
)


def _columns(record: Record) -> dict[str, object]:
    certificate = record.certificate
    values = (
        record.idx,
        record.label,
        certificate.predicted,
        certificate.radius,
        None if record.correct is None else int(record.correct),
        str(datetime.timedelta(seconds=record.seconds)),
        certificate.p_a,
        certificate.p_b,
        certificate.K,
        certificate.sigma_min,
        certificate.sigma_geomean,
        certificate.scope.value,
        certificate.n0,
        certificate.n,
        record.draws,
        record.seconds,
        certificate.selected,
        " ".join(map(str, certificate.counts)),
        certificate.stopping,
        certificate.budget,
        " ".join(":".join(map(str, look)) for look in certificate.looks),
    )
    return dict(zip(COLUMNS, values, strict=True))


def _separated(records: Iterable[Record], delimiter: str) -> Iterator[str]:
    def line(values: Iterable[object]) -> str:
        text = io.StringIO()
        csv.writer(text, delimiter=delimiter, lineterminator="\n").writerow(values)
        return text.getvalue()

    rows = (line(_columns(record).values()) for record in records)
    first = next(rows, "")  # a store that cannot be read shows before the first line
    yield line(COLUMNS) + first
    yield from rows


def _json(records: Iterable[Record]) -> Iterator[str]:
    def whole(record: Record) -> dict[str, object]:
        lists = {"counts": record.certificate.counts, "looks": [look._asdict() for look in record.certificate.looks]}
        return _columns(record) | lists

    rows = (json.dumps(whole(record)) for record in records)
    yield "[\n  " + ",\n  ".join(rows) + "\n]\n"


FORMATS = ("tsv", "csv", "json")


def write_records(records: Iterable[Record], form: str) -> Iterator[str]:
    """The records as text, piece by piece."""
    return _json(records) if form == "json" else _separated(records, "\t" if form == "tsv" else ",")
