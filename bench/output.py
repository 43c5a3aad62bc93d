"""Files that a command writes: opened before the work, so that a bad path fails at once."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from ars.errors import ArgumentError, FileError

__all__ = ["open_output", "refuse_inputs"]


def refuse_inputs(output: Path, inputs: Iterable[Path | str]) -> None:
    """Refuse an output that is the same file as one of the inputs, which it would overwrite."""
    for given in inputs:
        if os.path.exists(output) and os.path.exists(given) and os.path.samefile(output, given):
            raise ArgumentError("output", output, f"it is the same file as the input {given}: give another one")


@contextmanager
def open_output(path: Path) -> Iterator[TextIO]:
    """A text file that takes its name, and the place of an older one, when all of it is written; `-` is stdout."""
    if path == Path("-"):
        yield sys.stdout
        return
    partial = path.with_name(f"{path.name}.partial")
    try:
        if path.is_dir():
            raise IsADirectoryError(0, "it is a folder")
        file = partial.open("w", encoding="utf-8")
    except OSError as error:
        raise FileError(path, f"it cannot be written ({error.strerror})", "give another path") from error
    try:
        with file:
            yield file
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
