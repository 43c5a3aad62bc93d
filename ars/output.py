"""The files that a command writes. They are opened before the work starts, so that a bad path fails at once."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TextIO

from ars.errors import ArgumentError, FileError

__all__ = ["is_stdout", "make_folder", "open_output", "refuse_inputs", "refuse_shared", "replacing"]


def refuse_inputs(output: Path, inputs: Iterable[Path | str]) -> None:
    """Reject an output that would overwrite one of the inputs."""
    for given in inputs:
        if os.path.exists(output) and os.path.exists(given) and os.path.samefile(output, given):
            raise ArgumentError("output", output, f"it is the same file as the input {given}; choose another one")


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
        yield sys.stdout
        return
    direct = path.exists() and not path.is_file() and not path.is_dir()
    with nullcontext(path) if direct else replacing(path) as place:
        try:
            if path.is_dir():
                raise IsADirectoryError(0, "it is a folder")
            file = place.open("w", encoding="utf-8")
        except OSError as error:
            raise FileError(path, f"it cannot be written ({error.strerror})", "choose another path") from error
        with file:
            yield file


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file to write to, beside `path`. At the end it takes the place of `path`, whole; after an error it is removed,
    and `path` is what it was before. If `path` is a link, the link stays and its target is replaced."""
    target = Path(os.path.realpath(path))
    partial = target.with_name(f"{target.name}.partial")
    try:
        yield partial
        os.replace(partial, target)
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def make_folder(folder: Path, option: str) -> None:
    """Make a folder if it does not exist, and check that it can be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(folder, f"it cannot be created ({error.strerror})", f"choose another {option}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise FileError(folder, "it cannot be written to", f"choose another {option}")
