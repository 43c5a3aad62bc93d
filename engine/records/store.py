"""The run store: one SQLite file for each run, with every setting that decides the result and a row for each certified
input.

Inputs are committed one by one, so a killed run loses only the inputs that were in flight. One process at a time writes
to a store; any number may read it meanwhile.
"""

import fcntl
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType

from ars.engine.records.columns import STORED, read_row, write_row
from ars.engine.records.record import Record
from ars.engine.records.settings import Environment, Origin, RunHeader, RunSettings, Sampling, differences
from ars.errors import RunError, StoreError

__all__ = ["Store", "read_header", "read_records", "stored_settings"]

FORMAT = 3
# Format 1 had no adaptive stopping, and formats 1 and 2 no noise stream 2. Such stores can be read, but not resumed.
READABLE = (1, 2, FORMAT)

# What `Store.refuse` calls the table of certificates. No version of ARS reads it.
_REFUSED = "refused_certificates"

_RUN = """CREATE TABLE run
    (format INTEGER NOT NULL, settings TEXT NOT NULL, environment TEXT NOT NULL, classes TEXT NOT NULL)"""
_CERTIFICATES = f"CREATE TABLE certificates ({', '.join(f'{column.name} {kind.sql}' for column, kind in STORED)})"
_INSERT = "INSERT INTO certificates ({}) VALUES ({})".format(
    ", ".join(column.name for column, _ in STORED), ", ".join(f":{column.name}" for column, _ in STORED)
)


class Store:
    """A store open for writing, by this process alone. Opening a store that holds certificates resumes its run."""

    def __init__(self, path: Path, header: RunHeader) -> None:
        self.path = path
        self._lock = _lock(path)
        self._database = sqlite3.connect(path, timeout=10)
        try:
            exists = _is_store(self._database, path, (FORMAT,))
            if exists and self.done():
                _check_resumable(self._database, path, header)
                self.note_sampling(header.sampling)
            else:  # a new store, or one in which nothing has been certified yet
                self._database.execute("PRAGMA journal_mode = WAL")
                with self._database:
                    self._database.execute("BEGIN")
                    self._database.execute("DROP TABLE IF EXISTS run")
                    self._database.execute("DROP TABLE IF EXISTS certificates")
                    self._database.execute(_RUN)
                    self._database.execute(_CERTIFICATES)
                    self._database.execute("INSERT INTO run VALUES (?, ?, ?, ?)", (FORMAT, *_to_json(header)))
            # In WAL mode a killed process loses no commit; only a power failure can lose the last ones.
            self._database.execute("PRAGMA synchronous = NORMAL")
        except sqlite3.Error as error:
            self.close()
            raise StoreError(path, f"it cannot be written ({error})", "choose another store") from error
        except StoreError:
            self.close()
            raise

    def done(self) -> dict[int, str]:
        """The inputs that are certified already, with the hashes of their contents."""
        return dict(self._database.execute("SELECT idx, input_sha256 FROM certificates"))

    def add(self, record: Record) -> None:
        """Commit one certified input."""
        try:
            with self._database:
                self._database.execute(_INSERT, write_row(record))
        except sqlite3.Error as error:
            fix = "make room and run the same command again; what is certified is kept"
            raise RunError(f"{self.path}: input {record.idx} cannot be written ({error}); {fix}") from error

    def note_sampling(self, sampling: Sampling) -> None:
        """Keep which inputs this command asks for, and what a target has looked at."""
        (text,) = self._database.execute("SELECT environment FROM run").fetchone()
        around = json.loads(text) | sampling.to_json()
        with self._database:
            self._database.execute("UPDATE run SET environment = ?", (json.dumps(around),))

    def refuse(self) -> None:
        """Take all certificates out of use, because the model turned out not to be a function of single rows. They
        stay in the file, in a table of another name, and the store cannot be read or resumed any more."""
        if self.done():
            with self._database:
                self._database.execute(f"ALTER TABLE certificates RENAME TO {_REFUSED}")

    def close(self) -> None:
        self._database.close()
        os.close(self._lock)  # the last: closing it would drop SQLite's own locks on the file

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_header(path: Path) -> RunHeader:
    """The settings of a run, where model and data came from, what ran it, and the names of its classes."""
    with _reading(path) as database:
        return _from_json(*database.execute("SELECT settings, environment, classes FROM run").fetchone())


def read_records(path: str | Path) -> Iterator[Record]:
    """The certified inputs of a run, in the order of their numbers."""
    with _reading(Path(path)) as database:
        there = _columns_of(database)
        names = ", ".join(
            column.name if column.older is None or column.name in there else f"{column.older} AS {column.name}"
            for column, _ in STORED
        )
        for row in database.execute(f"SELECT {names} FROM certificates ORDER BY idx"):
            yield read_row(row)


def stored_settings(path: Path) -> RunSettings | None:
    """The settings of the run in a store; None if there is no store, or nothing is certified in it yet."""
    if not path.exists():
        return None
    with closing(sqlite3.connect(path, timeout=10)) as database:
        if not _is_store(database, path) or not database.execute("SELECT 1 FROM certificates").fetchone():
            return None
    return read_header(path).settings


def _to_json(header: RunHeader) -> tuple[str, str, str]:
    """The columns settings, environment and classes of the table `run`."""
    environment = header.environment.to_json() | header.origin.to_json() | header.sampling.to_json()
    return json.dumps(header.settings.to_json()), json.dumps(environment), json.dumps(header.classes)


def _from_json(settings: str, environment: str, classes: str) -> RunHeader:
    decided, around, names = map(json.loads, (settings, environment, classes))
    if not isinstance(decided, dict) or not isinstance(around, dict) or not isinstance(names, list | None):
        raise ValueError("its settings are not settings")
    read = RunSettings.from_json(decided)
    origin, ran = Origin.from_json(around), Environment.from_json(around, read.runner)
    return RunHeader(read, origin, ran, None if names is None else tuple(map(str, names)), Sampling.from_json(around))


def _columns_of(database: sqlite3.Connection) -> set[str]:
    return {name for (name,) in database.execute("SELECT name FROM pragma_table_info('certificates')")}


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    """The store, open for reading: also in a folder that cannot be written, and while a run is writing to it."""
    if not path.is_file():
        problem = "it is a folder" if path.is_dir() else "there is no such file"
        raise StoreError(path, problem, "`ars-engine certify --out` writes a run store")
    # In WAL mode a reader needs two files beside the store. Where they cannot be made, no run is writing either.
    mode = "mode=ro" if os.access(path.parent, os.W_OK) else "immutable=1"
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=10)) as database:
            if not _is_store(database, path):
                raise StoreError(path, "it is not a run store", "give a file that `ars-engine certify` wrote")
            database.row_factory = sqlite3.Row
            yield database
    except StoreError:
        raise
    except (sqlite3.Error, ValueError, KeyError, IndexError, TypeError) as error:
        raise StoreError(path, f"it is damaged ({error})", "certify again into another store") from error


def _is_store(database: sqlite3.Connection, path: Path, formats: tuple[int, ...] = READABLE) -> bool:
    """Whether the file is a store of these formats; False if it is empty."""
    try:
        names = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not names:
            return False
        if {"run", _REFUSED} <= names:
            problem = "its certificates are refused, because the model's votes depended on the rest of their batch"
            raise StoreError(path, problem, "export the model for inference, and certify into another store")
        if not {"run", "certificates"} <= names:
            raise StoreError(path, "it is a database, but not a run store", "choose another file")
        (found,) = database.execute("SELECT format FROM run").fetchone()
    except (sqlite3.DatabaseError, TypeError) as error:
        raise StoreError(path, f"it is not a run store ({error})", "choose another file") from error
    if not isinstance(found, int):
        raise StoreError(path, "it is damaged (it has no format)", "certify again into another store")
    if found not in formats:
        verb, known = ("reads", READABLE) if found not in READABLE else ("resumes runs of", formats)
        problem = f"its format is {found}, and this version {verb} {' and '.join(map(str, known))}"
        raise StoreError(path, problem, "use the version that wrote it")
    return True


def _check_resumable(database: sqlite3.Connection, path: Path, header: RunHeader) -> None:
    """Refuse to resume a run that has other settings, another target, or other columns."""
    row = database.execute("SELECT settings, environment, classes FROM run").fetchone()
    try:
        stored = _from_json(*row)
        had, wanted = stored.sampling.target, header.sampling.target
    except (ValueError, TypeError) as error:
        raise StoreError(path, f"it is damaged ({error})", "choose another store") from error
    if (had or wanted) and (had, stored.sampling.asked) != (wanted, header.sampling.asked):
        problem = "its inputs were not chosen by the same --target-width and --target-radii among the same inputs"
        raise StoreError(path, problem, "choose another store, or give the same ones")
    for name, found, given in differences(stored.settings, header.settings):
        match name:
            case "engine":
                problem = f"it holds certificates of another model (SHA-256 {str(found)[:12]}...)"
            case "data":
                problem = "it holds certificates of other data"
            case "two_sided":
                problem = f"it holds a run with --bounds {'two-sided' if found else 'binary'}"
            case "only_correct":
                problem = f"it holds a run {'with' if found else 'without'} --only-correct"
            case _:
                problem = f"it holds a run with {name} = {found}, and this one has {given}"
        raise StoreError(path, problem, "choose another store, or give the same settings")
    if missing := {column.name for column, _ in STORED} - _columns_of(database):
        problem = f"its certificates have no {', '.join(sorted(missing))}, and those of this version have"
        raise StoreError(path, problem, "choose another store, or use the version that wrote it")


def _lock(path: Path) -> int:
    """Lock the store until the process ends, however it ends. SQLite's own locks are of another kind (fcntl)."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise StoreError(path, f"it cannot be written ({error.strerror})", "choose another store") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise StoreError(path, "another process is writing it", "wait for it, or choose another store") from error
    return descriptor
