"""The progress of an export: a live bar if stderr is a terminal, otherwise a line per step."""

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from ars.printable import printable

__all__ = ["ExportProgress"]


class ExportProgress:
    """Shows one step after another, each with a number of parts."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._console = Console(file=sys.stderr)  # the stream itself, because `silence` redirects sys.stderr later
        live = not quiet and sys.stderr.isatty()
        self._lines = not quiet and not live
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=self._console, transient=True, disable=not live)
        self._task = self._bar.add_task("", total=None)

    def begin(self, step: str, parts: int | None = None) -> None:
        """Start a step. Without a number of parts, the bar only shows that work goes on."""
        self._bar.reset(self._task, total=parts, description=step)
        if self._lines:
            self.say(step)

    def advance(self) -> None:
        self._bar.advance(self._task)

    def set(self, done: int, parts: int) -> None:
        self._bar.update(self._task, completed=done, total=parts)

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        if not self._quiet:
            self._console.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    def warn(self, doubt: str) -> None:
        """Say what may be wrong with the data, also if nothing else is said."""
        self._console.print(printable(f"Warning: {doubt}"), markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> "ExportProgress":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
