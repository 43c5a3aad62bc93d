"""How far a run is: a live bar where stderr is a terminal, plain lines every few seconds where it is not."""

import sys
import time
from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["RunProgress"]

_SECONDS_A_LINE = 5.0


class RunProgress:
    """Inputs done, draws a second, certified accuracy so far, time left."""

    def __init__(self, total: int, *, quiet: bool, stream: TextIO | None = None) -> None:
        stream = stream or sys.stderr
        self._stream, self._total, self._quiet = stream, total, quiet
        self._bar: Progress | None = None
        self._start = self._last_line = time.perf_counter()
        self._inputs = self._draws = self._labelled = self._certified = 0
        if not quiet and stream.isatty():
            self._bar = Progress(
                TextColumn("certifying"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.description}"),
                TimeRemainingColumn(),
                console=Console(file=stream),
                transient=True,
            )
            self._task = self._bar.add_task("", total=total)

    def add(self, draws: int, correct: bool | None) -> None:
        """Count one certified input."""
        self._inputs += 1
        self._draws += draws
        self._labelled += correct is not None
        self._certified += bool(correct)
        now = time.perf_counter()
        if self._bar is not None:
            self._bar.update(self._task, advance=1, description=self._describe(now))
        elif not self._quiet and now - self._last_line > _SECONDS_A_LINE:
            self._last_line = now
            left = (now - self._start) / self._inputs * (self._total - self._inputs)
            print(
                f"{self._inputs}/{self._total} inputs, {self._describe(now)}, {left:.0f} s left",
                file=self._stream,
                flush=True,
            )

    def _describe(self, now: float) -> str:
        rate = f"{self._draws / (now - self._start):,.0f} draws/s"
        return f"{rate}, certified accuracy {self._certified / self._labelled:.1%}" if self._labelled else rate

    def __enter__(self) -> "RunProgress":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
