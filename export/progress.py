"""How far an export is: a live bar where stderr is a terminal, a line a step where it is not."""

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

__all__ = ["ExportProgress"]


class ExportProgress:
    """One step after another, each of so many parts."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._console = Console(file=sys.stderr)  # this very one, while the exporters are silenced
        live = not quiet and sys.stderr.isatty()
        self._lines = not quiet and not live
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=self._console, transient=True, disable=not live)
        self._task = self._bar.add_task("", total=None)

    def begin(self, step: str, parts: int | None = None) -> None:
        """A step begins; where its parts are not known, the bar only moves."""
        self._bar.reset(self._task, total=parts, description=step)
        if self._lines:
            self.say(step)

    def advance(self) -> None:
        self._bar.advance(self._task)

    def set(self, done: int, parts: int) -> None:
        self._bar.update(self._task, completed=done, total=parts)

    def say(self, text: str) -> None:
        """A line of its own, above the bar."""
        if not self._quiet:
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> "ExportProgress":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
