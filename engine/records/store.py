"""The run store: one SQLite file a run, with every setting that decides the result and a row for each certified input.

Inputs are committed one by one, so a killed run loses only the inputs that were in flight. One process writes a store
at a time; any number may read it meanwhile.
"""

import fcntl
import json
import math
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from ars.engine.statistics.certificate import Certificate
from ars.engine.statistics.looks import Look
from ars.errors import ArsError, RunError, StoreError
from ars.noise import Scope

__all__ = ["Record", "Settings", "Store", "read_records", "read_settings", "stored_batch"]

FORMAT = 2
# Format 1 had no adaptive stopping. Its stores can be read; a run does not go on in one.
READABLE = (1, FORMAT)

Settings = Mapping[str, str | int | float | bool | None]

_SCHEMA = """
CREATE TABLE run (format INTEGER NOT NULL, settings TEXT NOT NULL, environment TEXT NOT NULL, classes TEXT NOT NULL);
CREATE TABLE certificates (
    idx INTEGER PRIMARY KEY, label INTEGER, predict INTEGER NOT NULL, radius REAL NOT NULL, seconds REAL NOT NULL,
    p_a REAL NOT NULL, p_b REAL NOT NULL, selected INTEGER NOT NULL, counts TEXT NOT NULL, n0 INTEGER NOT NULL,
    n INTEGER NOT NULL, draws INTEGER NOT NULL, K REAL NOT NULL, sigma_min REAL NOT NULL, sigma_geomean REAL NOT NULL,
    scope TEXT NOT NULL, alpha REAL NOT NULL, two_sided INTEGER NOT NULL, family TEXT NOT NULL,
    input_sha256 TEXT NOT NULL, budget INTEGER NOT NULL, looks TEXT NOT NULL
);
"""


@dataclass(frozen=True)
class Record:
    """One certified input."""

    idx: int
    label: int | None
    certificate: Certificate
    draws: int
    seconds: float
    input_sha256: str

    @property
    def correct(self) -> bool | None:
        """Whether the certificate is for the right class; unknown without a label."""
        return None if self.label is None else self.certificate.predicted == self.label


# Settings that every reader counts on.
_NEEDED = {"engine": str, "family": str, "kind": str, "n0": int, "n": int, "alpha": float, "seed": int, "batch": int}


class Store:
    """A store open for writing, by this process alone. Opening one that exists goes on with its run."""

    def __init__(self, path: Path, settings: Settings, environment: Settings, classes: list[str] | None) -> None:
        self.path = path
        self._lock = _lock(path)
        self._database = sqlite3.connect(path, timeout=10)
        try:
            exists = _is_store(self._database, path, (FORMAT,))
            if exists and self.done():
                _check_settings(path, self._database, settings)
            else:  # a new one, or one in which nothing was certified yet
                self._database.execute("PRAGMA journal_mode = WAL")
                with self._database:
                    self._database.executescript("BEGIN;" + ("DELETE FROM run;" if exists else _SCHEMA))
                    row = (FORMAT, json.dumps(dict(settings)), json.dumps(dict(environment)), json.dumps(classes))
                    self._database.execute("INSERT INTO run VALUES (?, ?, ?, ?)", row)
            # In WAL mode a killed process loses no commit; only a power failure can lose the last ones.
            self._database.execute("PRAGMA synchronous = NORMAL")
        except sqlite3.Error as error:
            self.close()
            raise StoreError(path, f"it cannot be written ({error})", "choose another --out") from error
        except StoreError:
            self.close()
            raise

    def done(self) -> dict[int, str]:
        """The inputs that are certified already, with the hashes of their contents."""
        return dict(self._database.execute("SELECT idx, input_sha256 FROM certificates"))

    def add(self, record: Record) -> None:
        """Commit one certified input."""
        certificate = record.certificate
        row = {
            "idx": record.idx,
            "label": record.label,
            "predict": certificate.predicted,
            "radius": certificate.radius,
            "seconds": record.seconds,
            "p_a": certificate.p_a,
            "p_b": certificate.p_b,
            "selected": certificate.selected,
            "counts": json.dumps(certificate.counts),
            "n0": certificate.n0,
            "n": certificate.n,
            "draws": record.draws,
            "K": certificate.K,
            "sigma_min": certificate.sigma_min,
            "sigma_geomean": certificate.sigma_geomean,
            "scope": certificate.scope.value,
            "alpha": certificate.alpha,
            "two_sided": certificate.two_sided,
            "family": certificate.family,
            "input_sha256": record.input_sha256,
            "budget": certificate.budget,
            "looks": json.dumps(certificate.looks),
        }
        names = ", ".join(row)
        places = ", ".join(f":{name}" for name in row)
        try:
            with self._database:
                self._database.execute(f"INSERT INTO certificates ({names}) VALUES ({places})", row)
        except sqlite3.Error as error:
            fix = "make room and run the same command again; what is certified is kept"
            raise RunError(f"{self.path}: input {record.idx} cannot be written ({error}); {fix}") from error

    def close(self) -> None:
        self._database.close()
        os.close(self._lock)  # the last: closing it would drop SQLite's own locks on the file

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_settings(path: Path) -> tuple[dict[str, object], dict[str, object], list[str] | None]:
    """The settings of a run, the environment that it started in, and the names of its classes."""
    with _reading(path) as database:
        _, *texts = database.execute("SELECT * FROM run").fetchone()
        settings, environment, classes = map(json.loads, texts)
        if not isinstance(settings, dict) or not isinstance(environment, dict) or not isinstance(classes, list | None):
            raise ValueError("its settings are not settings")
        for name, kind in _NEEDED.items():
            if not isinstance(settings.get(name), kind):
                raise ValueError(f"its setting {name} is {settings.get(name)}")
        return settings, environment, classes


def stored_batch(path: Path) -> int | None:
    """The batch size of the run that a store holds, if it is there and holds one."""
    if not path.exists():
        return None
    with closing(sqlite3.connect(path, timeout=10)) as database:
        if not _is_store(database, path) or not database.execute("SELECT 1 FROM certificates").fetchone():
            return None
    return int(str(read_settings(path)[0]["batch"]))


def read_records(path: Path) -> Iterator[Record]:
    """The certified inputs of a run, in the order of their numbers."""
    with _reading(path) as database:
        (found,) = database.execute("SELECT format FROM run").fetchone()
        columns = "*" if found == FORMAT else "*, n AS budget, '[]' AS looks"
        for row in database.execute(f"SELECT {columns} FROM certificates ORDER BY idx"):
            certificate = Certificate(
                predicted=row["predict"],
                radius=row["radius"],
                K=row["K"],
                p_a=row["p_a"],
                p_b=row["p_b"],
                selected=row["selected"],
                counts=tuple(json.loads(row["counts"])),
                n0=row["n0"],
                n=row["n"],
                alpha=row["alpha"],
                two_sided=bool(row["two_sided"]),
                family=row["family"],
                scope=Scope(row["scope"]),
                sigma_min=row["sigma_min"],
                sigma_geomean=row["sigma_geomean"],
                budget=row["budget"],
                looks=tuple(Look(*look) for look in json.loads(row["looks"])),
            )
            record = Record(row["idx"], row["label"], certificate, row["draws"], row["seconds"], row["input_sha256"])
            _check_record(record)
            yield record


def _check_record(record: Record) -> None:
    """SQLite takes any value in any column; readers count on these."""
    made = record.certificate
    counts = [*made.counts, *(number for look in made.looks for number in look), made.n, made.budget, made.selected]
    numbers = [made.radius, made.K, made.p_a, made.p_b, made.sigma_min, made.sigma_geomean, record.seconds]
    whole = all(isinstance(count, int) and count >= 0 for count in counts) and made.selected < len(made.counts) - 1
    sizes = all(isinstance(number, int | float) and number >= 0 for number in numbers)
    sizes = sizes and made.sigma_min > 0 and 0 < made.alpha < 1
    others = isinstance(record.label, int | None) and isinstance(made.predicted, int) and isinstance(record.draws, int)
    if not (whole and sizes and others and record.draws > 0 and math.isfinite(record.seconds)):
        raise ValueError(f"the certificate of input {record.idx} is not one")


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    """The store, open to be read: also where nothing can be written, and also while a run writes it."""
    if not path.is_file():
        problem = "it is a folder" if path.is_dir() else "there is no such file"
        raise StoreError(path, problem, "`ars-engine certify --out` writes a run store")
    # In WAL mode a reader needs the files beside the store; where they cannot be made, nobody is writing either.
    mode = "mode=ro" if os.access(path.parent, os.W_OK) else "immutable=1"
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=10)) as database:
            if not _is_store(database, path):
                raise StoreError(path, "it is not a run store", "give a file that `ars-engine certify` wrote")
            database.row_factory = sqlite3.Row
            yield database
    except ArsError:
        raise
    except (sqlite3.Error, ValueError, KeyError, IndexError, TypeError) as error:
        raise StoreError(path, f"it is damaged ({error})", "certify again into another store") from error


def _is_store(database: sqlite3.Connection, path: Path, formats: tuple[int, ...] = READABLE) -> bool:
    """Whether the file is a store of these formats; False if it is empty."""
    try:
        names = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not names:
            return False
        if not {"run", "certificates"} <= names:
            raise StoreError(path, "it is a database, but not a run store", "choose another file")
        (found,) = database.execute("SELECT format FROM run").fetchone()
    except (sqlite3.DatabaseError, TypeError) as error:
        raise StoreError(path, f"it is not a run store ({error})", "choose another file") from error
    if not isinstance(found, int):
        raise StoreError(path, "it is damaged (it has no format)", "certify again into another store")
    if found not in formats:
        verb, known = ("reads", READABLE) if found not in READABLE else ("goes on in", formats)
        problem = f"its format is {found}, and this version {verb} {' and '.join(map(str, known))}"
        raise StoreError(path, problem, "use the version that wrote it")
    return True


def _check_settings(path: Path, database: sqlite3.Connection, settings: Settings) -> None:
    (stored_text,) = database.execute("SELECT settings FROM run").fetchone()
    stored, given = json.loads(stored_text), json.loads(json.dumps(dict(settings)))
    for name in [*stored, *given]:
        if stored.get(name) != given.get(name):
            found = f"it holds a run with {name} = {stored.get(name)}, and this one has {given.get(name)}"
            raise StoreError(path, found, "choose another --out, or give the same settings")


def _lock(path: Path) -> int:
    """A lock that goes when the process does, however it ends. SQLite's own locks are of another kind."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise StoreError(path, f"it cannot be written ({error.strerror})", "choose another --out") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise StoreError(path, "another process is writing it", "wait for it, or choose another --out") from error
    return descriptor
