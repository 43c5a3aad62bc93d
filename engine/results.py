"""Records as text: tsv, csv and json. The field's own columns come first, so that existing scripts read them."""

import csv
import datetime
import io
import json
from collections.abc import Iterable, Iterator

from ars.engine.store import Record

__all__ = ["FORMATS", "write_records"]


def _columns(record: Record) -> dict[str, object]:
    certificate = record.certificate
    return {
        "idx": record.idx,
        "label": record.label,
        "predict": certificate.predicted,
        "radius": certificate.radius,
        "correct": None if record.correct is None else int(record.correct),
        "time": str(datetime.timedelta(seconds=record.seconds)),
        "p_a": certificate.p_a,
        "p_b": certificate.p_b,
        "K": certificate.K,
        "sigma_min": certificate.sigma_min,
        "sigma_geomean": certificate.sigma_geomean,
        "scope": certificate.scope.value,
        "n0": certificate.n0,
        "n": certificate.n,
        "draws": record.draws,
        "seconds": record.seconds,
        "selected": certificate.selected,
        "counts": " ".join(map(str, certificate.counts)),
    }


def _separated(records: Iterable[Record], delimiter: str) -> Iterator[str]:
    for number, record in enumerate(records):
        columns = _columns(record)
        line = io.StringIO()
        writer = csv.DictWriter(line, columns, delimiter=delimiter, lineterminator="\n")
        if number == 0:
            writer.writeheader()
        writer.writerow(columns)
        yield line.getvalue()


def _json(records: Iterable[Record]) -> Iterator[str]:
    rows = (json.dumps(_columns(record) | {"counts": record.certificate.counts}) for record in records)
    yield "[\n  " + ",\n  ".join(rows) + "\n]\n"


FORMATS = ("tsv", "csv", "json")


def write_records(records: Iterable[Record], form: str) -> Iterator[str]:
    """The records as text, piece by piece."""
    return _json(records) if form == "json" else _separated(records, "\t" if form == "tsv" else ",")
