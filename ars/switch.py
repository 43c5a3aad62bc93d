"""One atomic switch of several files of a folder.

The new files are prepared in a temporary folder inside it. Renaming that folder to the name of a journal is the switch:
before it nothing has changed, and from then on the new files are the valid ones. They are then moved to their places.
If the process dies meanwhile, `finish_switch` moves the rest: the next export calls it, and so does everyone who reads
the manifest.
"""

import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from types import FrameType

from ars.errors import ModelError
from ars.plain_json import parse_json
from ars.regular import check_small
from ars.temporaries import sync

__all__ = ["finish_switch", "switch"]

_LIST = "journal.json"


def _journal(manifest: Path) -> Path:
    return manifest.with_name(f".{manifest.name}.journal")


def switch(prepared: Path, manifest: Path, names: Sequence[str], removed: Mapping[str, str]) -> None:
    """Put the prepared files of these names beside the manifest, which is one of them, and remove the files in
    `removed`, unless their content has changed since: it has their SHA-256."""
    for name in names:
        sync(prepared / name)
    with (prepared / _LIST).open("w", encoding="utf-8") as file:
        json.dump({"move": list(names), "remove": dict(removed)}, file)
        file.flush()
        os.fsync(file.fileno())
    for folder in {(prepared / name).parent for name in names}:
        sync(folder)
    with _signals_deferred():
        os.rename(prepared, _journal(manifest))
        sync(manifest.parent)
        finish_switch(manifest)


def finish_switch(manifest: Path) -> None:
    """Complete the switch of the files that this manifest lists, if it was interrupted. Several processes may do so at
    the same time."""
    journal = _journal(manifest)
    if not journal.is_dir():
        return
    try:
        if (journal / _LIST).exists():
            _finish(manifest, journal)
        shutil.rmtree(journal, ignore_errors=True)  # the list may go first: without it, all files are in their places
        sync(manifest.parent)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        problem = f"an export of {manifest.name} was interrupted, and cannot be completed ({error})"
        raise ModelError(journal, problem, "make the folder writable, or remove it and export again") from error


def _finish(manifest: Path, journal: Path) -> None:
    from ars.external_data import hash_model

    check_small(journal / _LIST, ModelError)
    content = parse_json((journal / _LIST).read_bytes())
    folder = manifest.parent
    for name in content["move"]:
        source, target = _inside(folder, journal.name, name), _inside(folder, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # it is in its place already
            os.replace(source, target)
    for name, sha256 in content["remove"].items():
        path = _inside(folder, name)
        if path.is_file() and not path.is_symlink() and hash_model(path).sha256 == sha256:
            path.unlink(missing_ok=True)
    sync(folder)


def _inside(folder: Path, *parts: str) -> Path:
    """A place in a folder. Whoever made the folder could lead out of it by a name, or by links."""
    path = PurePosixPath(*parts)
    place = folder / path
    if not path.name or ".." in path.parts or not place.parent.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{parts[-1]!r} is not inside its folder")
    return place


@contextmanager
def _signals_deferred() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        arrived.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if arrived:
            signal.raise_signal(arrived[0])
