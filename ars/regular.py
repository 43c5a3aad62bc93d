"""Only regular files are read. A pipe may wait for ever, a device like /dev/zero never ends, and a file of holes takes
no disk, but all memory when it is read."""

import os
import stat
from pathlib import Path

from ars.errors import FileError

__all__ = ["check_regular", "check_small"]

LARGEST_TEXT = 2**26
"""More bytes than any manifest, benchmark or journal has."""
LEAST_FILLED = 64
"""A file beyond that size is refused if less than this part of it is on the disk, and the rest are holes."""


def check_regular(path: Path | str, error: type[FileError] = FileError) -> None:
    """Refuse a pipe, a device, a socket, or a large file of holes. Whether there is anything at the path is for others
    to say."""
    try:
        status = os.stat(path)
    except OSError:
        return
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise error(path, "it is not a regular file", "give a file, not a pipe or a device")
    if stat.S_ISREG(status.st_mode) and _is_hollow(path, status):
        raise error(path, f"it has {status.st_size:,} bytes, nearly all of them holes", "give a whole file")


def _is_hollow(path: Path | str, status: os.stat_result) -> bool:
    """Whether a file is large and nearly all holes. A file system that compresses, or does not say what is on the disk,
    has no holes to show."""
    if status.st_size <= max(LARGEST_TEXT, LEAST_FILLED * 512 * status.st_blocks):
        return False
    try:
        with open(path, "rb") as file:
            return os.lseek(file.fileno(), 0, os.SEEK_HOLE) < status.st_size
    except (OSError, AttributeError):  # it cannot be read, or the system knows no holes
        return False


def check_small(path: Path | str, error: type[FileError] = FileError) -> None:
    """Refuse what is not a regular file, or is larger than any text that is read whole. Holes need no disk."""
    check_regular(path, error)
    if os.path.exists(path) and os.path.getsize(path) > LARGEST_TEXT:
        raise error(path, f"it has {os.path.getsize(path):,} bytes, more than any file of its kind", "give another one")
