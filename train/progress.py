"""The progress of training: a line per epoch, and a live bar if stderr is a terminal."""

import sys
from types import TracebackType

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ars.train.loop import EpochMetrics
from ars.train.plan import TrainingPlan

__all__ = ["TrainingProgress"]


class TrainingProgress:
    def __init__(self, plan: TrainingPlan, *, quiet: bool = False) -> None:
        self._plan, self._quiet = plan, quiet
        columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
        console = Console(stderr=True)
        hidden = quiet or not sys.stderr.isatty()
        self._bar = Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=hidden)
        self._task = self._bar.add_task("", total=None)

    def step(self, done: int, total: int, loss: float) -> None:
        """Report that the optimizer has taken `done` of `total` steps."""
        self._bar.update(self._task, completed=done, total=total, description=f"loss {loss:.3f}")

    def epoch(self, metrics: EpochMetrics) -> None:
        if self._quiet:
            return
        grown = f"geometric mean {metrics.sigma_geomean:.3f}, " if self._plan.volume_weight else ""
        click.echo(
            f"epoch {metrics.epoch}/{self._plan.epochs}: loss {metrics.loss:.3f} (smoothing {metrics.smoothing:.3f}, "
            f"variance {metrics.variance:.4f}, mean {metrics.mean:.2f}), accuracy under noise {metrics.accuracy:.1%}, "
            f"radius about {metrics.radius:.2f}, min(sigma) {metrics.sigma_min:.3f}, "
            f"{grown}{metrics.seconds:.0f} s",
            err=True,
        )

    def __enter__(self) -> "TrainingProgress":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
