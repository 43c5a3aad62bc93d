"""The progress of a run on stderr: a live bar if that is a terminal, else a plain line every few seconds."""

import sys
import time
from pathlib import Path
from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from ars.engine.devices import CPU
from ars.engine.records.record import Record
from ars.engine.records.run import RunProgress
from ars.engine.smoothed import Prepared, SmoothedClassifier
from ars.engine.statistics.plan import Plan
from ars.errors import ArsError
from ars.printable import printable

__all__ = ["TerminalProgress"]

_SECONDS_PER_LINE = 5.0
_CLUSTER_SECONDS_PER_LINE = 60.0


class TerminalProgress(RunProgress):
    """Says what was chosen for a run; then inputs done, draws per second, certified accuracy so far, and time left."""

    def __init__(
        self,
        classifier: SmoothedClassifier,
        *,
        quiet: bool,
        stream: TextIO | None = None,
        on_cluster: bool = False,
    ) -> None:
        self._classifier, self._quiet, self._stream = classifier, quiet, stream or sys.stderr
        self._console = Console(file=self._stream)
        columns = (TextColumn("certifying"), BarColumn(), TaskProgressColumn(), TextColumn("{task.description}"))
        bar = not quiet and self._stream.isatty()
        self._bar = Progress(*columns, TimeRemainingColumn(), console=self._console, transient=True, disable=not bar)
        self._task = self._bar.add_task("")
        self._lines = not quiet and not bar
        self._seconds_per_line = _CLUSTER_SECONDS_PER_LINE if on_cluster else _SECONDS_PER_LINE
        self._workers: str | None = None
        self._start = self._last_line = 0.0
        self._left = self._inputs = self._draws = self._labelled = self._correct = self._draws_each = 0
        self._planned_draws: int | None = None
        self.done: int | None = None
        """The inputs that are certified, in this run and before it was resumed; None before the run has started."""

    def describe_model(self) -> None:
        """Say which backend runs the model, and why."""
        runner = self._classifier.runner
        if self._classifier.why:
            self._say(f"backend {runner.name}: {self._classifier.why}")
        if runner.fixed_batch and all(device.name == CPU for device in self._classifier.devices):
            advice = "export it with a dynamic batch axis to make it faster"
            self._say(f"{runner.path} takes only batches of {runner.fixed_batch}; {advice}")

    def describe_batch(self, prepared: Prepared) -> None:
        """Say which batch size is used."""
        for note in prepared.notes:
            self._say(note)
        for device in self._classifier.devices:
            if device.name != CPU:
                runner = device.runner
                self._say(f"{device.describe()}: {runner.name} {runner.version}, batches of {prepared.batch}")
        if prepared.rate:
            chosen = f"batch {prepared.batch} with {self._classifier.threads} threads"
            self._say(f"{chosen}, the fastest here: {prepared.rate:,.0f} draws/s")

    def describe_seed(self, seed: int) -> None:
        """Say which seed repeats the noise."""
        self._say(f"seed {seed}")

    def start(self, store: Path, prepared: Prepared, plan: Plan, seed: int, done: int, left: int) -> None:
        self.describe_batch(prepared)
        self.describe_seed(seed)
        if done:
            self._say(f"{store}: {done} of {done + left} inputs are certified already")
        self.done, self._left = done, left
        # Adaptive stopping does not know its draws in advance: the time left is then estimated from the inputs.
        self._draws_each = plan.n0 + plan.n
        self._planned_draws = left * self._draws_each if plan.question is None else None
        self._start = self._last_line = time.perf_counter()
        self._bar.update(self._task, total=self._planned_draws or left)
        self._bar.start()

    def draws(self, number: int) -> None:
        self._draws += number
        now = time.perf_counter()
        finished, total = (self._draws, self._planned_draws) if self._planned_draws else (self._inputs, self._left)
        self._bar.update(self._task, completed=finished, total=total, description=self._describe(now))
        if self._lines and now - self._last_line > self._seconds_per_line:
            self._last_line = now
            # On a cluster, an input may have been drawn twice.
            seconds = (now - self._start) / finished * max(total - finished, 0) if finished else 0.0
            left = f", {seconds:.0f} s left" if finished else ""
            print(f"{self._describe(now)}{left}", file=self._stream, flush=True)

    def certified(self, record: Record) -> None:
        self.done = (self.done or 0) + 1
        self._inputs += 1
        if self._planned_draws:  # an input that ended after selection took fewer
            self._planned_draws -= self._draws_each - record.draws
        self._labelled += record.correct is not None
        self._correct += bool(record.correct)

    def warn(self, doubt: str) -> None:
        self._print(f"Warning: {doubt}")

    def workers(self, ready: int, starting: int) -> None:
        self._workers = f"{ready} workers" + (f" ({starting} starting)" if starting else "")
        self.draws(0)  # the time goes on while no worker is there

    def skipped(self, error: ArsError) -> None:
        self._print(f"Skipped: {error}")

    def _say(self, text: str) -> None:
        if not self._quiet:
            self._print(text)

    def _print(self, text: str) -> None:
        """Print a line of its own, above the bar."""
        self._console.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    def _describe(self, now: float) -> str:
        text = f"{self._inputs}/{self._left} inputs, {self._draws / (now - self._start):,.0f} draws/s"
        text += f", {self._workers}" if self._workers else ""
        return f"{text}, certified accuracy {self._correct / self._labelled:.1%}" if self._labelled else text

    def __enter__(self) -> "TerminalProgress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
