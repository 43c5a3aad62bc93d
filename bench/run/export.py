"""Writes a benchmark as JSON with every raw time, as CSV, as a Markdown table, or as an HTML page."""

import csv
import io

import numpy as np

from ars.bench.run.result import BenchResult, deviation

__all__ = ["EXPORTERS", "HEADS", "cells", "footnote"]

HEADS = ("what", "s/sample", "± deviation", "lowest", "highest", "draws/s", "draws/sample", "speed-up")


def cells(result: BenchResult) -> list[tuple[str, ...]]:
    """The rows of the table, the fastest last. A star marks seconds that were extrapolated from a measured rate."""
    rows = []
    for one in result.slowest_first():
        values = one.seconds_per_sample
        seconds = [_three(v) for v in (float(np.mean(values)), deviation(values), min(values), max(values))]
        seconds[0] += "*" if one.extrapolated else ""
        draws = f"{one.draws_per_second:,.0f}", f"{one.draws_per_sample:,.0f}"
        rows.append((one.name, *seconds, *draws, f"{result.speed_up(one).median:.2f}"))
    return rows


def _three(value: float) -> str:
    """Three significant digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _csv(result: BenchResult) -> str:
    columns = ("name", "backend", "precision", "stopping", "noise", "batch", "threads", "extrapolated")
    values = ("seconds_per_sample", "deviation", "lowest", "highest", "draws_per_second", "draws_per_sample")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*columns, *values])
    for one in result.measurements:
        seconds = one.seconds_per_sample
        numbers = [float(np.mean(seconds)), deviation(seconds), min(seconds), max(seconds)]
        row = [getattr(one, column) for column in columns]
        writer.writerow([*row, *numbers, one.draws_per_second, one.draws_per_sample])
    return text.getvalue()


def _markdown(result: BenchResult) -> str:
    def line(texts: tuple[str, ...]) -> str:
        return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |\n"

    rule = "|:---|" + "---:|" * (len(HEADS) - 1) + "\n"
    return line(HEADS) + rule + "".join(map(line, cells(result))) + "\n" + footnote(result) + "\n"


def footnote(result: BenchResult) -> str:
    """The line below the table: what was measured, and on what."""
    machine = result.environment
    what = f"{result.network}; a sample is {result.n0:,} + {result.n:,} draws; {result.rounds} rounds"
    star = "; * extrapolated from a measured rate" if any(one.extrapolated for one in result.measurements) else ""
    over = f"speed-up over {result.baseline.name}, median of the rounds"
    return f"{what}; {over}{star}; {machine['cpu']}, {machine['cores']} cores."


def _html(result: BenchResult) -> str:
    from ars.bench.report.page import render_page

    return render_page([], [], [result])


EXPORTERS = {"json": BenchResult.as_json, "csv": _csv, "markdown": _markdown, "html": _html}
