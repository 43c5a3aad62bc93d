"""The SQLite file of a run store, opened so that nothing in it runs, and nothing that was committed is overlooked.

A store may come from anywhere. Therefore its schema must be that of a store: a trigger, a view or a computed column
would run inside our own statements. An authorizer lets through only what these statements need.

SQLite keeps recent commits in a file beside the store (its WAL or its journal) until they are moved into it. A reader
that ignored this file would lose them. Where a reader cannot work beside the store, because the folder is read-only or
the file system is full, it reads private copies of both. Whoever made the store could make these files too, so they are
checked before SQLite opens them.
"""

import fcntl
import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from ars.errors import StoreError
from ars.output import SIDE_SUFFIXES
from ars.regular import check_regular

__all__ = ["check_schema", "check_structure", "guard", "lock", "open_to_read", "open_to_write", "unlock"]

# What a reader or a writer needs beside the store, at least: SQLite maps half as much as shared memory at once. Writing
# to a part of it that the file system has no room for would kill the process (SIGBUS).
_ROOM = 2**16

# The stores that this process is writing, by device and inode. Closing another descriptor of such a file would drop
# SQLite's locks on it.
_written_here: set[tuple[int, int]] = set()

# A journal that ends with these bytes names another file, which SQLite deletes when it has rolled the journal back.
# Only a transaction over several databases needs that, and ARS has none.
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")

_FUNCTIONS = ("count", "max", "min")
_WRITES = (
    sqlite3.SQLITE_INSERT,
    sqlite3.SQLITE_UPDATE,
    sqlite3.SQLITE_DELETE,
    sqlite3.SQLITE_CREATE_TABLE,
    sqlite3.SQLITE_DROP_TABLE,
)


def open_to_write(path: Path, tables: Collection[str]) -> sqlite3.Connection:
    """The store, open for writing. It must be locked."""
    _check_beside(path)
    if _is_full(path.parent):
        raise StoreError(path, "it cannot be written (no space left on its file system)", "make room, and run it again")
    database = sqlite3.connect(path, timeout=10)
    guard(database, tables)
    return database


@contextmanager
def open_to_read(path: Path, tables: Collection[str]) -> Iterator[sqlite3.Connection]:
    """The store, open for reading: also in a folder that cannot be written, and while a run is writing to it."""
    _check_beside(path)
    with _readable(path) as (place, mode), closing(_connect(place, mode)) as database:
        guard(database, tables)
        database.execute("PRAGMA query_only = ON")
        yield database


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=10)


@contextmanager
def _readable(path: Path) -> Iterator[tuple[Path, str]]:
    """Where SQLite can read all that was committed to the store, and how it must open it there."""
    path = Path(os.path.realpath(path))
    log, memory, journal = _beside(path)
    writable = os.access(path.parent, os.W_OK)
    room = not (writable and _is_full(path.parent))
    # In a read-only folder, SQLite can use both files of a WAL without writing to them.
    if _is_written_here(path) or (room and (writable or (log.exists() and memory.exists()))):
        # Only a connection that may write can remove SQLite's files beside the store when it is the last one.
        yield path, "mode=rw" if writable and os.access(path, os.W_OK) else "mode=ro"
        return
    with _nobody_writing(path):
        pending = [file for file in (log, journal) if file.exists() and file.stat().st_size]
        if not pending:
            yield path, "immutable=1"
            return
        with tempfile.TemporaryDirectory(prefix="ars-") as folder:
            for file in (path, *pending):
                shutil.copyfile(file, Path(folder) / file.name)
            yield Path(folder) / path.name, "mode=rw"


def _beside(path: Path) -> tuple[Path, ...]:
    """The files that SQLite keeps beside a store: beside the file itself, if the path is a link."""
    real = Path(os.path.realpath(path))
    return tuple(real.with_name(real.name + suffix) for suffix in SIDE_SUFFIXES)


def _check_beside(path: Path) -> None:
    """Refuse files beside a store that make SQLite write to, wait for, or delete other files."""
    for file in filter(os.path.lexists, _beside(path)):
        try:
            if not stat.S_ISREG(file.lstat().st_mode):
                problem = "it is not a regular file, and SQLite would take it for its own"
                raise StoreError(file, problem, f"remove it; nothing that {path.name} holds is in it")
            if file.name.endswith("-journal") and _ends_as_journal(file):  # SQLite has no locks on it to lose
                problem = f"it is a journal that would delete another file when {path.name} is opened"
                raise StoreError(file, problem, f"trust nothing in {path.name}, and certify again into another store")
        except FileNotFoundError:  # SQLite has removed it
            continue


def _ends_as_journal(file: Path) -> bool:
    with file.open("rb") as content:
        size = content.seek(0, os.SEEK_END)
        content.seek(max(0, size - len(_JOURNAL_MAGIC)))
        return content.read() == _JOURNAL_MAGIC


@contextmanager
def _nobody_writing(path: Path) -> Iterator[None]:
    """Keep writers out while the files of a store are copied."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise StoreError(path, "a run is writing it, and its file system is full", "make room") from error
    except OSError:
        pass  # a file system without locks
    try:
        yield
    finally:
        os.close(descriptor)


def _is_full(folder: Path) -> bool:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize < _ROOM


def _is_written_here(path: Path) -> bool:
    found = path.stat()
    return (found.st_dev, found.st_ino) in _written_here


def lock(path: Path) -> int:
    """Lock a store, which is made if it does not exist, until `unlock` or the end of the process, however it ends.
    SQLite's own locks are of another kind (fcntl)."""
    check_regular(path, StoreError)
    if path.name.endswith(SIDE_SUFFIXES):
        problem = "a store of this name would be taken for what SQLite keeps beside another one"
        raise StoreError(path, problem, "choose a name that ends otherwise")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o644)
    except OSError as error:
        raise StoreError(path, f"it cannot be written ({error.strerror})", "choose another store") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise StoreError(path, "another process is writing it", "wait for it, or choose another store") from error
    except OSError as error:
        os.close(descriptor)
        problem = f"it cannot be locked ({error.strerror}), so a second writer could not be kept out"
        raise StoreError(path, problem, "choose a store on a file system with locks") from error
    found = os.fstat(descriptor)
    _written_here.add((found.st_dev, found.st_ino))
    return descriptor


def unlock(descriptor: int) -> None:
    found = os.fstat(descriptor)
    _written_here.discard((found.st_dev, found.st_ino))
    os.close(descriptor)


def guard(database: sqlite3.Connection, tables: Collection[str]) -> None:
    """Let through only what the store's own statements need: these tables, transactions, and settings of SQLite."""
    database.execute("PRAGMA trusted_schema = OFF")
    if set_option := getattr(database, "setconfig", None):  # from Python 3.12 on
        set_option(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)  # type: ignore[attr-defined]
    database.set_authorizer(_authorizer({*tables, "sqlite_master", "sqlite_temp_master"}))


def _authorizer(tables: Collection[str]) -> Callable[..., int]:
    def allow(action: int, one: str | None, two: str | None, schema: str | None, source: str | None) -> int:
        if source is not None:  # a trigger or a view
            return sqlite3.SQLITE_DENY
        if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_PRAGMA):
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION:
            return sqlite3.SQLITE_OK if two in _FUNCTIONS else sqlite3.SQLITE_DENY
        known = action in (sqlite3.SQLITE_READ, *_WRITES) and one in tables
        return sqlite3.SQLITE_OK if known else sqlite3.SQLITE_DENY

    return allow


def check_schema(database: sqlite3.Connection, path: Path, definitions: Mapping[str, Collection[str]]) -> None:
    """Refuse a store with anything but these tables, each made of these definitions of columns."""
    for kind, name, sql in database.execute("SELECT type, name, sql FROM sqlite_master"):
        start, inside, end = (" ".join(str(sql).split()), "", "")
        if kind == "table" and name in definitions:
            start, _, inside = start.partition("(")
            inside, end = inside[:-1].strip(), inside[-1:]
        columns = inside.split(", ")
        if (start.strip(), end) != (f"CREATE TABLE {name}", ")") or not set(columns) <= set(definitions[name]):
            problem = f"its {kind} {name!r} is not one that ARS makes, and might run code"
            raise StoreError(path, problem, "trust nothing in it, and certify again into another store")


def check_structure(database: sqlite3.Connection) -> None:
    """Raise sqlite3.DatabaseError if pages of the file do not fit together, so that rows may be missing."""
    (said,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if said != "ok":
        raise sqlite3.DatabaseError(" ".join(said.split()))
