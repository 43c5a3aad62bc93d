"""How far a run is: a live bar where stderr is a terminal, plain lines every few seconds where it is not."""

import sys
import time
from collections import deque
from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

__all__ = ["RunProgress"]

_SECONDS_A_LINE = 5.0
_END_SECONDS = 2.0


class RunProgress:
    """Inputs done, draws a second, certified accuracy so far, time left.

    Where nobody knows the draws of an input beforehand, they are None, and the time left goes by inputs.
    """

    def __init__(self, inputs: int, draws_an_input: int | None, *, quiet: bool, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._total_inputs, self._by_draws = inputs, draws_an_input is not None
        self._total = inputs * (1 if draws_an_input is None else draws_an_input)
        self._start = self._last_line = time.perf_counter()
        self._inputs = self._draws = self._labelled = self._certified = 0
        self._last: deque[tuple[float, int]] = deque()
        self._earlier_rows = self._earlier_batches = 0
        self._console = Console(file=self._stream)
        columns = (TextColumn("certifying"), BarColumn(), TaskProgressColumn(), TextColumn("{task.description}"))
        shown = not quiet and self._stream.isatty()
        self._bar = Progress(*columns, TimeRemainingColumn(), console=self._console, transient=True, disable=not shown)
        self._task = self._bar.add_task("", total=self._total)
        self._lines = not quiet and not shown

    def draws(self, number: int) -> None:
        """Count draws, batch by batch."""
        self._draws += number
        now = time.perf_counter()
        self._last.append((now, number))
        while self._last[0][0] < now - _END_SECONDS:
            self._earlier_rows += self._last.popleft()[1]
            self._earlier_batches += 1
        done = self._draws if self._by_draws else self._inputs
        self._bar.update(self._task, completed=done, description=self._describe(now))
        if self._lines and now - self._last_line > _SECONDS_A_LINE:
            self._last_line = now
            left = f", {(now - self._start) / done * (self._total - done):.0f} s left" if done else ""
            print(f"{self._describe(now)}{left}", file=self._stream, flush=True)

    def fullness(self, batch: int) -> float | None:
        """How full the batches were, of so many draws each. Those of the last two seconds do not count: then there is
        nothing left to fill them with. None for a run so short."""
        return self._earlier_rows / (batch * self._earlier_batches) if self._earlier_batches else None

    def input(self, correct: bool | None) -> None:
        """Count one certified input."""
        self._inputs += 1
        self._labelled += correct is not None
        self._certified += bool(correct)

    def say(self, text: str) -> None:
        """A line of its own, above the bar."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _describe(self, now: float) -> str:
        text = f"{self._inputs}/{self._total_inputs} inputs, {self._draws / (now - self._start):,.0f} draws/s"
        return f"{text}, certified accuracy {self._certified / self._labelled:.1%}" if self._labelled else text

    def __enter__(self) -> "RunProgress":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
