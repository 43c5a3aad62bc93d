"""A trial of an ONNX model that nobody vouches for: a process of its own checks the model's structure, loads it and
runs it once, within limits of time and memory. Libraries crash on some models, never return from others, and take all
memory for a third kind; then the trial fails, and not the process that holds the results.

A model that passed is remembered by its hash and the versions of the libraries, in the user's cache folder. A model
that this process made itself (`own_models`) needs no trial.
"""

import hashlib
import importlib.metadata
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path

from ars.distribution import VERSION
from ars.errors import MissingPackage, ModelError, one_line

__all__ = ["own_models", "try_model"]

_CHILD = Path(__file__).with_name("child.py")
_POLL = 0.01
_own: ContextVar[bool] = ContextVar("own", default=False)


@dataclass(frozen=True)
class Request:
    """What the process of a trial is asked to do."""

    path: list[str]
    """Where modules are found."""
    library: str | None
    """The library that loads and runs the model; None if only the structure is checked."""
    file: str | None
    """The file of the model, if it is not the standard input."""
    seconds: int
    """The processor time that the process may use."""


@dataclass(frozen=True)
class Limits:
    """What a trial may take; more for larger models."""

    seconds: int
    memory: int
    """The resident bytes, where the system tells them (Linux)."""

    @classmethod
    def of_size(cls, size: int) -> "Limits":
        return cls(seconds=40 + size // 10_000_000, memory=2**30 + 4 * size)


@contextmanager
def own_models() -> Iterator[None]:
    """Models that are opened inside were made by this process, from what it was given, and are not tried."""
    token = _own.set(True)
    try:
        yield
    finally:
        _own.reset(token)


def try_model(path: Path, sha256: str, source: bytes | Path, size: int, library: str | None) -> None:
    """Try an ONNX model, unless it passed before. Raises a ModelError that names `path` if it fails.

    `sha256` identifies the model, `source` is its content, or a copy of its file beside copies of its external files,
    and `size` is that of all of them.
    """
    if _own.get():
        return
    passed = _find_memory(sha256, library)
    if passed is not None and passed.exists():
        return
    problem = _run_child(source, library, Limits.of_size(size))
    if problem == "the package onnx is missing":
        raise MissingPackage("onnx", "cpu")
    if problem is not None:
        raise ModelError(path, one_line(problem), "check it with onnx.checker, or export it again")
    if passed is not None:
        with suppress(OSError):  # without a cache, the next run tries it again
            passed.touch()


def _find_memory(sha256: str, library: str | None) -> Path | None:
    """The file that exists if the model passed; None if there is no folder that only the user can write to."""
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("onnx", library) if name and _has(name)]
    key = hashlib.sha256(" ".join(["1", VERSION, sha256, *versions]).encode()).hexdigest()
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        folder = (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "ars" / "tried"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except (OSError, RuntimeError):  # there is no home, or it cannot be written to
        return None
    private = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022
    return folder / key if private else None


def _has(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _run_child(source: bytes | Path, library: str | None, limits: Limits) -> str | None:
    """What is wrong with a model, or None."""
    by_name = isinstance(source, Path)
    request = Request(sys.path, library, str(source) if by_name else None, limits.seconds)
    with tempfile.TemporaryFile() as content:
        if isinstance(source, bytes):
            content.write(source)
            content.seek(0)
        process = subprocess.Popen(
            # Without site and environment, which the request's path replaces, it starts sooner.
            [sys.executable, "-S", "-E", str(_CHILD), json.dumps(asdict(request))],
            stdin=subprocess.DEVNULL if by_name else content,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        excess = _watch(process, limits)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # processes that it started, too: they could keep the pipe open
        assert process.stdout is not None
        with process.stdout as file:
            answer = file.read()
        status = process.wait()
    what = "loading and running it once" if library else "checking its structure"
    if excess:
        return f"{what} took {excess}, in a trial of its own process"
    if status < 0:
        if -status == signal.SIGXCPU:
            return f"{what} took more than {limits.seconds} s, in a trial of its own process"
        return f"{library or 'onnx'} crashed on it ({signal.Signals(-status).name}), in a trial of its own process"
    try:
        problem = json.loads(answer)["problem"]
    except (ValueError, KeyError, TypeError):
        return f"{library or 'onnx'} ended its process (status {status}), in a trial of its own"
    return None if problem is None else str(problem)


def _watch(process: "subprocess.Popen[bytes]", limits: Limits) -> str | None:
    """Wait for a process; returns what it took too much of."""
    end = time.monotonic() + limits.seconds
    while process.poll() is None:
        if _resident(process.pid) > limits.memory:
            return f"more than {limits.memory / 1e9:.1f} GB of memory"
        if time.monotonic() > end:
            return f"more than {limits.seconds} s"
        with suppress(subprocess.TimeoutExpired):
            process.wait(_POLL)
    return None


def _resident(pid: int) -> int:
    """The resident memory of a process; 0 where the system does not tell it."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0
