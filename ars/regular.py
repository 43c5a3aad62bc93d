"""Only regular files are read. A pipe may wait for ever, and a device like /dev/zero never ends."""

import os
import stat
from pathlib import Path

from ars.errors import FileError

__all__ = ["check_regular", "check_small"]

LARGEST_TEXT = 2**26
"""More bytes than any manifest, benchmark or journal has."""


def check_regular(path: Path | str, error: type[FileError] = FileError) -> None:
    """Refuse a pipe, a device or a socket. Whether there is anything at the path is for others to say."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise error(path, "it is not a regular file", "give a file, not a pipe or a device")


def check_small(path: Path | str, error: type[FileError] = FileError) -> None:
    """Refuse what is not a regular file, or is larger than any text that is read whole. Holes need no disk."""
    check_regular(path, error)
    if os.path.exists(path) and os.path.getsize(path) > LARGEST_TEXT:
        raise error(path, f"it has {os.path.getsize(path):,} bytes, more than any file of its kind", "give another one")
