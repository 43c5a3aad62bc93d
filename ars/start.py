"""How the four commands start. Nothing heavy is imported before the standard streams and Ctrl-C are in order."""

import importlib
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

__all__ = ["bench", "engine", "export", "train"]


def engine() -> NoReturn:
    _run("ars.engine.cli")


def train() -> NoReturn:
    _run("ars.train.cli")


def export() -> NoReturn:
    _run("ars.export.cli")


def bench() -> NoReturn:
    _run("ars.bench.cli")


def _run(module: str) -> NoReturn:
    # A shell starts background jobs with SIGINT ignored; so it stays then.
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        signal.signal(signal.SIGINT, _end)
    _open_streams()
    command = importlib.import_module(module).main
    if interruptible:
        signal.signal(signal.SIGINT, _interrupt)
    status: int | str | None = 0
    try:
        command()
    except SystemExit as end:
        status = end.code
    sys.exit(_flush(status))


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """Nothing has begun yet."""
    os.write(2, b"Error: stopped\n")
    os._exit(130)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """The first Ctrl-C stops the command in good order; a second one ends it at once."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    raise KeyboardInterrupt


def _open_streams() -> None:
    """Fill in the standard streams that are closed, because the next file that is opened would get their number.
    Writing to a closed stdout remains an error; what is said on a closed stderr is lost."""
    for number, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # they are of this kind


def _flush(status: int | str | None) -> int | str | None:
    """The exit status, after all output is written."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that the interpreter does not fail at its end
        if not status and not isinstance(error, BrokenPipeError):  # or else the command has said what was wrong
            print(f"Error: stdout: it cannot be written ({error.strerror}); give a file or a pipe", file=sys.stderr)
        return status or 1
    return status
