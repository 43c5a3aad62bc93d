"""The run store: one SQLite file for each run, with every setting that decides the result and a row for each certified
input.

Inputs are committed one by one, so a killed run loses only the inputs that were in flight. One process at a time writes
to a store; any number may read it meanwhile.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from ars.engine.records.checksum import CHECKSUM, check_row, checksum
from ars.engine.records.columns import STORED, read_row, write_row
from ars.engine.records.database import check_schema, check_structure, lock, open_to_read, open_to_write, unlock
from ars.engine.records.file_system import place_of_lock, set_journal
from ars.engine.records.record import Record
from ars.engine.records.settings import Environment, Origin, RunHeader, RunSettings, Sampling, differences
from ars.errors import RunError, StoreError
from ars.plain_json import parse_json

__all__ = ["Begun", "Store", "find_begun", "read_header", "read_records"]

FORMAT = 4
# Format 1 had no adaptive stopping, formats 1 and 2 no noise stream 2, and formats 1 to 3 no checksums. Such stores can
# be read, but not resumed.
READABLE = (1, 2, 3, FORMAT)
_WITHOUT_CHECKSUMS = (1, 2, 3)

# What `Store.refuse` calls the table of certificates. No version of ARS reads it.
_REFUSED = "refused_certificates"

# The columns of each table, as SQL.
_SCHEMA = {
    "run": [
        "format INTEGER NOT NULL",
        "settings TEXT NOT NULL",
        "environment TEXT NOT NULL",
        "classes TEXT NOT NULL",
        f"{CHECKSUM} TEXT NOT NULL",
    ],
    "certificates": [*(f"{column.name} {kind.sql}" for column, kind in STORED), f"{CHECKSUM} TEXT NOT NULL"],
}
_TABLES = (*_SCHEMA, _REFUSED)


class Store:
    """A store open for writing, by this process alone. Opening a store that holds certificates resumes its run."""

    def __init__(self, path: Path, header: RunHeader) -> None:
        self.path = path
        self._lock = lock(place_of_lock(path))
        self.note: str | None = None
        """What the user should know about the store's file system."""
        try:
            self._database = open_to_write(path, _TABLES)
        except BaseException:
            unlock(self._lock)
            raise
        try:
            self._open(header)
        except sqlite3.Error as error:
            self.close()
            raise StoreError(path, f"it cannot be written ({error})", "choose another store") from error
        except StoreError:
            self.close()
            raise

    def _open(self, header: RunHeader) -> None:
        exists = _is_store(self._database, self.path, (FORMAT,))
        self.note = set_journal(self._database, self.path)
        if exists and self.done():
            _check_resumable(self._database, self.path, header)
            self.note_sampling(header.sampling)
        else:  # a new store, or one in which nothing has been certified yet
            with self._database:
                self._database.execute("BEGIN")
                for name, columns in _SCHEMA.items():
                    self._database.execute(f"DROP TABLE IF EXISTS {name}")
                    self._database.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
                self._insert("run", {"format": FORMAT, **_to_json(header)})

    def _insert(self, table: str, row: dict[str, Any]) -> None:
        row = row | {CHECKSUM: checksum(row)}
        places = ", ".join(f":{name}" for name in row)
        self._database.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})", row)

    def done(self) -> dict[int, str]:
        """The inputs that are certified already, with the hashes of their contents."""
        return dict(self._database.execute("SELECT idx, input_sha256 FROM certificates"))

    def add(self, *records: Record) -> None:
        """Commit certified inputs: all of them, or none."""
        try:
            with self._database:
                for record in records:
                    self._insert("certificates", write_row(record))
        except sqlite3.Error as error:
            fix = "make room and run the same command again; what is certified is kept"
            numbers = ", ".join(str(record.idx) for record in records[:3])
            raise RunError(f"{self.path}: input {numbers} cannot be written ({error}); {fix}") from error

    def note_sampling(self, sampling: Sampling) -> None:
        """Keep which inputs this command asks for, and what a target has looked at."""
        row = _read_run(self._database)
        row["environment"] = json.dumps(json.loads(row["environment"]) | sampling.to_json())
        with self._database:
            changed = (row["environment"], checksum(row))
            self._database.execute(f"UPDATE run SET environment = ?, {CHECKSUM} = ?", changed)

    def refuse(self) -> None:
        """Take all certificates out of use, because the model turned out not to be a function of single rows. They
        stay in the file, in a table of another name, and the store cannot be read or resumed any more."""
        if self.done():
            self._database.set_authorizer(None)  # it knows no renaming
            with self._database:
                self._database.execute(f"ALTER TABLE certificates RENAME TO {_REFUSED}")

    def close(self) -> None:
        self._database.close()
        unlock(self._lock)  # the last: closing it would drop SQLite's own locks on the file

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_header(path: Path) -> RunHeader:
    """The settings of a run, where model and data came from, what ran it, and the names of its classes."""
    with _reading(path) as database:
        return _from_json(_read_run(database))


def read_records(path: str | Path) -> Iterator[Record]:
    """The certified inputs of a run, in the order of their numbers."""
    with _reading(Path(path)) as database:
        check_structure(database)
        for row in _read_rows(database):
            yield read_row(row)


class Begun(NamedTuple):
    """A run that a store holds already."""

    settings: RunSettings
    certified: bool
    """Whether it has certificates. If not, another run may take the store."""


def find_begun(path: Path) -> Begun | None:
    """The run in a store; None if there is no store, or no run in it."""
    if not path.exists():
        return None
    with _reading(path, may_be_empty=True) as database:
        if not _tables_of(database):
            return None
        certified = database.execute("SELECT 1 FROM certificates").fetchone() is not None
        return Begun(_from_json(_read_run(database)).settings, certified)


def _read_run(database: sqlite3.Connection) -> dict[str, Any]:
    """The row of the run. ValueError if it is not what was written."""
    (row,) = _select(database, "SELECT * FROM run")
    if CHECKSUM in row:
        check_row(row, "its settings")
    return row


def _read_rows(database: sqlite3.Connection) -> Iterator[dict[str, Any]]:
    """The rows of the certificates in the order of their inputs. ValueError if one is not what was written."""
    there = _columns_of(database)
    later = [
        f"{column.older} AS {column.name}"
        for column, _ in STORED
        if column.name not in there and column.older is not None
    ]
    for row in _select(database, f"SELECT {', '.join(('*', *later))} FROM certificates ORDER BY idx"):
        if CHECKSUM in there:
            check_row({name: row[name] for name in there}, f"input {row['idx']}")
        yield row


def _select(database: sqlite3.Connection, statement: str) -> Iterator[dict[str, Any]]:
    cursor = database.execute(statement)
    names = [name for name, *_ in cursor.description]
    return (dict(zip(names, row, strict=True)) for row in cursor)


def _to_json(header: RunHeader) -> dict[str, str]:
    """The columns settings, environment and classes of the table `run`."""
    environment = header.environment.to_json() | header.origin.to_json() | header.sampling.to_json()
    content = {"settings": header.settings.to_json(), "environment": environment, "classes": header.classes}
    return {name: json.dumps(value) for name, value in content.items()}


def _from_json(row: Mapping[str, str]) -> RunHeader:
    decided, around, names = (parse_json(row[name]) for name in ("settings", "environment", "classes"))
    if not isinstance(decided, dict) or not isinstance(around, dict) or not isinstance(names, list | None):
        raise ValueError("its settings are not settings")
    read = RunSettings.from_json(decided)
    origin, ran = Origin.from_json(around), Environment.from_json(around, read.runner)
    return RunHeader(read, origin, ran, None if names is None else tuple(map(str, names)), Sampling.from_json(around))


def _tables_of(database: sqlite3.Connection) -> set[str]:
    return {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def _columns_of(database: sqlite3.Connection) -> set[str]:
    return {name for _, name, *_ in database.execute("PRAGMA table_info(certificates)")}


@contextmanager
def _reading(path: Path, *, may_be_empty: bool = False) -> Iterator[sqlite3.Connection]:
    """The store, open for reading (`open_to_read`)."""
    if not path.is_file():
        found = "there is no such file" if not path.exists() else "it is not a regular file"
        problem = "it is a folder" if path.is_dir() else found
        raise StoreError(path, problem, "`ars-engine certify --out` writes a run store")
    try:
        with open_to_read(path, _TABLES) as database:
            if not _is_store(database, path) and not may_be_empty:
                raise StoreError(path, "it is not a run store", "give a file that `ars-engine certify` wrote")
            yield database
    except StoreError:
        raise
    except sqlite3.OperationalError as error:
        raise _unusable(path, error) from error
    except (sqlite3.Error, ValueError, KeyError, IndexError, TypeError, OverflowError) as error:
        raise StoreError(path, f"it is damaged ({error})", "certify again into another store") from error
    except OSError as error:  # its copy
        raise StoreError(path, f"it cannot be read ({error.strerror})", "make room for a copy in TMPDIR") from error


def _is_store(database: sqlite3.Connection, path: Path, formats: tuple[int, ...] = READABLE) -> bool:
    """Whether the file is a store of these formats; False if it is empty."""
    try:
        names = _tables_of(database)
        if not names:
            return False
        if {"run", _REFUSED} <= names:
            problem = "its certificates are refused, because the model's votes depended on the rest of their batch"
            raise StoreError(path, problem, "export the model for inference, and certify into another store")
        if not _SCHEMA.keys() <= names:
            raise StoreError(path, "it is a database, but not a run store", "choose another file")
        check_schema(database, path, _SCHEMA)
        (found,) = database.execute("SELECT format FROM run").fetchone()
    except sqlite3.OperationalError as error:
        raise _unusable(path, error) from error
    except (sqlite3.DatabaseError, TypeError) as error:
        raise StoreError(path, f"it is not a run store ({error})", "choose another file") from error
    if not isinstance(found, int):
        raise StoreError(path, "it is damaged (it has no format)", "certify again into another store")
    if found not in formats:
        verb, known = ("reads", READABLE) if found not in READABLE else ("resumes runs of", formats)
        problem = f"its format is {found}, and this version {verb} {' and '.join(map(str, known))}"
        raise StoreError(path, problem, "use the version that wrote it")
    if found not in _WITHOUT_CHECKSUMS and CHECKSUM not in _columns_of(database):
        raise StoreError(path, "it is damaged (its rows have no checksums)", "certify again into another store")
    return True


def _unusable(path: Path, error: sqlite3.OperationalError) -> StoreError:
    """What to say when SQLite cannot work on a file, although it may be a good store."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF  # Python's own errors have none
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreError(path, "another process has locked it", "wait for it, and try again")
    if code == sqlite3.SQLITE_ERROR:  # a table or a column is not there, or a text is none
        return StoreError(path, f"it is damaged ({error})", "certify again into another store")
    return StoreError(path, f"it cannot be read ({error})", "check the file, its folder and the disk")


def _check_resumable(database: sqlite3.Connection, path: Path, header: RunHeader) -> None:
    """Refuse to resume a run that has other settings, another target, or other columns."""
    try:
        check_structure(database)
        stored = _from_json(_read_run(database))
        had, wanted = stored.sampling.target, header.sampling.target
        for _ in _read_rows(database):
            pass  # their checksums
    except (sqlite3.DatabaseError, ValueError, TypeError) as error:
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
