"""Run stores of a few certificates, and run stores that somebody alters."""

import sqlite3
from contextlib import closing, contextmanager
from dataclasses import replace

from ars.engine.noise_maps import NoiseSource
from ars.engine.records.checksum import CHECKSUM, checksum
from ars.engine.records.record import Record
from ars.engine.records.settings import Environment, Origin, RunHeader, RunSettings
from ars.engine.records.store import Store
from ars.engine.statistics.certificate import certify_votes
from ars.engine.statistics.plan import Plan
from ars.noise import GAUSSIAN, NoiseKind

SETTINGS = RunSettings(
    engine="abc",
    runner="onnxruntime",
    data="def",
    family="gaussian",
    kind=NoiseKind.ISOTROPIC,
    noise=NoiseSource(sigma=0.5),
    plan=Plan(10, 1000),
    seed=2**64 - 1,
    batch=64,
)
HEADER = RunHeader(SETTINGS, Origin(data_name="data.npz"), Environment(ars="0.1", runner="onnxruntime"), ("a", "b"))


def record(idx, counts=(900, 90, 10), label=0):
    plan = Plan(10, sum(counts))
    made = certify_votes(counts, 0, plan=plan, family=GAUSSIAN, scale=0.5, kind=NoiseKind.INPUT)
    return Record(idx, label, made, 1010, 0.25, "f" * 64)


def open_store(path, **changed):
    return Store(path, replace(HEADER, settings=replace(SETTINGS, **changed)))


@contextmanager
def forged(path):
    """The database of a store, to alter as a forger would: the checksums of its rows are computed again at the end."""
    with closing(sqlite3.connect(path)) as database, database:
        yield database
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            cursor = database.execute(f"SELECT rowid, * FROM {table}")
            names = [name for name, *_ in cursor.description][1:]
            if CHECKSUM in names:
                for number, *values in cursor.fetchall():
                    row = dict(zip(names, values, strict=True))
                    database.execute(f"UPDATE {table} SET {CHECKSUM} = ? WHERE rowid = ?", (checksum(row), number))


def forge(path, statement, *values):
    """Execute one statement in a store, as a forger would."""
    with forged(path) as database:
        database.execute(statement, values)
