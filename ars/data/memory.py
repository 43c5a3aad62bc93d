"""How much memory a file may ask for. Small files can declare gigabytes, so sizes are checked before anything of that
size is allocated."""

import os
from pathlib import Path

from ars.errors import DataError, FileError

__all__ = ["LARGEST_INPUT", "check_memory", "largest_unpacked"]

LARGEST_INPUT = 2**27
"""The most values that an input may have, about those of a photograph of 44 million pixels."""

ALWAYS_ALLOWED = 2**30
"""The bytes that a compressed file may unpack to, however small it is."""

LARGEST_RATIO = 64
"""The ratio beyond which a compressed file is not one of images; that of MNIST, half of which is black, is 5."""


def largest_unpacked(packed: int) -> int:
    """The most bytes that a compressed file of this size may unpack to."""
    return max(ALWAYS_ALLOWED, LARGEST_RATIO * packed)


def check_memory(
    path: Path, needed: int, what: str = "it", *, packed: int | None = None, error: type[FileError] = DataError
) -> None:
    """Refuse content that needs more memory than the machine has, or that unpacks to far more than it holds."""
    if packed is not None and needed > largest_unpacked(packed):
        problem = f"{what} unpacks from {_say_size(packed)} to {_say_size(needed)}, far more than images do"
        raise error(path, problem, "do not use this file, or store it uncompressed")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > memory:
        problem = f"{what} has {_say_size(needed)}, and this machine has {_say_size(memory)} of memory"
        raise error(path, problem, "divide it into parts, or use images in folders")


def _say_size(size: int) -> str:
    """A number of bytes as people read it."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000  # type: ignore[assignment]  # only shown from here on
    return f"{size:,.3g} TB"
