"""Files and folders in progress, beside the place that they will take.

Their names cannot be guessed and are never those of existing files, so nobody can put a link in their place. Each is
locked by the process that writes it. What a killed process left is recognised by its free lock, and removed by the next
one that writes to the same place.
"""

import fcntl
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

__all__ = ["sync", "temporary_file", "temporary_folder"]

# File names have at most 255 bytes. Of a longer name, this much of the start is kept.
_START = 48


@contextmanager
def temporary_file(target: Path) -> Iterator[Path]:
    """An empty file beside `target`, with its mode if it exists. It is removed at the end, if it is still there."""
    mode = target.stat().st_mode & 0o777 if target.exists() else None

    def make(path: Path) -> int:
        descriptor = os.open(
            path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666 if mode is None else mode & 0o600
        )
        if mode is not None:
            os.fchmod(descriptor, mode)
        return descriptor

    with _locked(target.parent, f".{target.name[:_START]}.", ".partial", make) as path:
        try:
            yield path
        finally:
            with suppress(OSError):
                path.unlink(missing_ok=True)


@contextmanager
def temporary_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """An empty folder in `parent`, which only the user can enter. It is removed at the end, if it is still there."""

    def make(path: Path) -> int:
        path.mkdir(mode=0o700)
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY)

    with _locked(parent, prefix, "", make) as path:
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _locked(parent: Path, prefix: str, suffix: str, make: Callable[[Path], int]) -> Iterator[Path]:
    """A file or folder with a random name, made by `make`, which returns a descriptor of it."""
    _sweep(parent, prefix, suffix)
    while True:
        path = parent / f"{prefix}{secrets.token_hex(8)}{suffix}"
        descriptor = make(path)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if _is_at(path, descriptor):  # or else it was taken for one that a killed process left
            break
        os.close(descriptor)
    try:
        yield path
    finally:
        os.close(descriptor)


def _sweep(parent: Path, prefix: str, suffix: str) -> None:
    """Remove what killed processes of this user left."""
    names: list[str] = []
    with suppress(OSError):  # a folder that can be written but not listed
        names = os.listdir(parent)
    for name in names:
        random = name.removeprefix(prefix).removesuffix(suffix)
        if name != f"{prefix}{random}{suffix}" or len(random) != 16 or set(random) - set("0123456789abcdef"):
            continue
        path = parent / name
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(descriptor).st_uid == os.geteuid() and _is_at(path, descriptor):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            finally:
                os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk. Some file systems cannot do so for folders, and a
    folder may be one that can only be written to."""
    with suppress(OSError) if path.is_dir() else nullcontext():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
