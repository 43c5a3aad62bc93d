"""Only regular files are read. A pipe may wait for ever, and a device like /dev/zero never ends."""

import os
import stat
from pathlib import Path

from ars.errors import FileError

__all__ = ["check_regular"]


def check_regular(path: Path | str, error: type[FileError] = FileError) -> None:
    """Refuse a pipe, a device or a socket. Whether there is anything at the path is for others to say."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise error(path, "it is not a regular file", "give a file, not a pipe or a device")
