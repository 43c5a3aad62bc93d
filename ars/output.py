"""The files that a command writes. They are opened before the work starts, so that a bad path fails at once."""

import io
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TextIO

from ars.errors import ArgumentError, FileError
from ars.temporaries import sync, temporary_file

__all__ = [
    "SIDE_SUFFIXES",
    "is_beside_store",
    "is_stdout",
    "make_folder",
    "open_output",
    "refuse_inputs",
    "refuse_shared",
    "replacing",
]


SIDE_SUFFIXES = ("-wal", "-shm", "-journal")
"""What the names of the files end with that SQLite keeps beside a store: its latest commits are among them."""
# What the data in a folder is made of. Other files in such a folder may be outputs of earlier commands.
_DATA_SUFFIXES = (".png", ".jpg", ".jpeg", ".npz", ".npy", ".parquet", ".bin", ".gz", ".csv", ".zip", ".tar", "")


def refuse_inputs(output: Path, inputs: Iterable[Path | str]) -> None:
    """Reject an output that would overwrite one of the inputs, whatever the two are called: a file, a file of a folder
    of data, or a file that belongs to a store. An input may also be named as data is, with a part: images.npz:x."""
    if is_stdout(output):
        return
    for given in inputs:
        whole = str(given) if os.path.exists(given) else str(given).rpartition(":")[0]
        files = [str(given), whole, *(f"{given}{suffix}" for suffix in SIDE_SUFFIXES)]
        if any(_is_same(output, file) for file in files if file) or _is_data_of(output, whole):
            raise ArgumentError("output", output, f"it belongs to the input {given}; choose another one")


def _is_same(output: Path, file: str) -> bool:
    if os.path.exists(output) and os.path.exists(file):
        return os.path.samefile(output, file)
    return os.path.realpath(output) == os.path.realpath(file)


def _is_data_of(output: Path, folder: str) -> bool:
    if not os.path.isdir(folder) or not output.is_file() or output.suffix.lower() not in _DATA_SUFFIXES:
        return False
    return Path(os.path.realpath(output)).is_relative_to(os.path.realpath(folder))


def refuse_shared(outputs: Iterable[Path]) -> None:
    """Reject outputs that would overwrite each other."""
    places = set()
    for output in outputs:
        place = "-" if is_stdout(output) else os.path.realpath(output)
        if place in places:
            raise ArgumentError("output", output, "it is given twice; choose a different file for each output")
        places.add(place)


def is_stdout(path: Path) -> bool:
    return path in (Path("-"), Path("/dev/stdout"))


@contextmanager
def open_output(path: Path) -> Iterator[TextIO]:
    """A text file that replaces an older one of that name only when all of it is written (`replacing`). Stdout (`-`)
    and what is not a regular file, like /dev/null, are written directly."""
    if is_stdout(path):
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")  # as in a file, whatever the locale says
        yield sys.stdout
        sys.stdout.flush()
        return
    direct = path.exists() and not path.is_file() and not path.is_dir()
    with ExitStack() as stack:
        try:
            if path.is_dir():
                raise IsADirectoryError(0, "it is a folder")
            place = path if direct else stack.enter_context(replacing(path))
            file = stack.enter_context(place.open("w", encoding="utf-8"))
        except OSError as error:
            raise FileError(path, f"it cannot be written ({error.strerror})", "choose another path") from error
        yield file


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file to write to, beside `path`. At the end it takes the place of `path`, whole and on the disk; after an error
    it is removed, and `path` is what it was before. If `path` is a link, the link stays and its target is replaced."""
    target = Path(os.path.realpath(path))
    if is_beside_store(target) or _begins_like_store(target):
        raise FileError(path, "it is a run store, or belongs to one", "choose another output, or remove it")
    with temporary_file(target) as partial:
        yield partial
        sync(partial)
        os.replace(partial, target)
        sync(target.parent)


def is_beside_store(path: Path) -> bool:
    """Whether this is a name that SQLite uses beside a store that is there: it takes such a file for its own."""
    stores = (str(path).removesuffix(suffix) for suffix in SIDE_SUFFIXES if path.name.endswith(suffix))
    return any(map(os.path.exists, stores))


def _begins_like_store(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(15) == b"SQLite format 3"


def make_folder(folder: Path, option: str) -> None:
    """Make a folder if it does not exist, and check that it can be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(folder, f"it cannot be created ({error.strerror})", f"choose another {option}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise FileError(folder, "it cannot be written to", f"choose another {option}")
