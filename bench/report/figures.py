"""The figures of a report for a paper or a talk: SVG, PNG and PDF, from the same numbers as the page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ars.bench.report.attacks import RunAttacks, attacks_of
from ars.bench.report.pictures import map_pictures, photograph
from ars.bench.report.runs import Run, accuracy_curves, draw_histogram
from ars.bench.report.strips import COPIES, Strips
from ars.bench.run.result import BenchResult
from ars.engine.statistics.certificate import format_radius
from ars.errors import ArgumentError, MissingPackage
from ars.noise import NoiseKind

try:
    import matplotlib as mpl
    from matplotlib.figure import Figure
except ImportError as error:
    raise MissingPackage("matplotlib", "report") from error

__all__ = ["FORMATS", "plot_accuracy", "plot_inputs", "write_figures"]

FORMATS = ("svg", "png", "pdf")
COLORS = ("#0072b2", "#d55e00", "#009e73", "#b0568a", "#2f97cf", "#b07a00", "#4d4d4d")
DASHES = ("-", "--", ":")
STYLE: dict[Any, Any] = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e3dd",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "svg.fonttype": "none",
    "svg.hashsalt": "ars",
    "pdf.fonttype": 42,
}


def write_figures(
    runs: Sequence[Run], strips: Sequence[Strips], benches: Sequence[BenchResult], folder: Path
) -> list[Path]:
    """Write each figure in each format into a folder that exists, and return the paths of the files."""
    with mpl.rc_context(STYLE):
        figures = _accuracy(runs) | {"draws": _draws(runs), "seconds": _seconds(runs)} | _inputs(runs, strips)
        figures |= _attacks(runs)
        figures |= {f"benchmark-{number}": _benchmark(bench) for number, bench in enumerate(benches, 1)}
        written = []
        for name, figure in figures.items():
            for form in FORMATS:
                path = folder / f"{name}.{form}"
                # Without a date, the same runs give the same bytes.
                dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form)
                figure.savefig(path, dpi=200, metadata=dates)
                written.append(path)
    return written


def plot_accuracy(runs: Sequence[Run], path: Path) -> None:
    """Draw certified accuracy by radius, in the norm of the first run, into a file of one of the FORMATS."""
    with mpl.rc_context(STYLE):
        figures = _accuracy(runs)
        name = f"certified-accuracy-{runs[0].norm}"
        if name not in figures:
            raise ArgumentError("plot", path, "without labels there is no accuracy to draw")
        figures[name].savefig(path, dpi=200)


def plot_inputs(runs: Sequence[Run], strips: Sequence[Strips], path: Path) -> None:
    """Draw the paper's Figure 2, with a row for each strip, into a file of one of the FORMATS."""
    with mpl.rc_context(STYLE):
        _inputs(runs, strips)["inputs"].savefig(path, dpi=110)


def _color(number: int) -> str:
    return COLORS[number % len(COLORS)]


def _plain(text: str) -> str:
    """A name as matplotlib shows it unchanged: a bare dollar sign would start a formula."""
    return text.replace("$", r"\$")


def _new(width: float, height: float) -> Any:
    return Figure(figsize=(width, height), layout="constrained")


def _accuracy(runs: Sequence[Run]) -> dict[str, Any]:
    figures = {}
    for curves in accuracy_curves(runs):
        figure = _new(6, 3.6)
        axes = figure.subplots()
        for number, shares in curves.shares.items():
            dash = DASHES[number // len(COLORS) % len(DASHES)]
            digits = 3 if curves.norm <= runs[number].norm else 5
            name = f"{_plain(runs[number].name)}, ACR {format_radius(curves.averages[number], digits)}"
            axes.plot(curves.radii, np.array(shares) * 100, color=_color(number), linestyle=dash, lw=1.8, label=name)
            if number in curves.bands:
                low, high = 100 * np.array(curves.bands[number]).T
                axes.fill_between(curves.radii, low, high, color=_color(number), alpha=0.15, lw=0)
        for best in curves.best:
            percents = np.array(best.shares) * 100
            axes.plot(curves.radii, percents, color="#1d2126", linestyle=(0, (3, 4)), lw=1.2, label="best over sigma")
        norm = curves.norm.removeprefix("l").replace("inf", r"\infty")
        axes.set(xlabel=rf"$\ell_{{{norm}}}$ radius", ylabel="certified accuracy (%)", ylim=(0, 100))
        axes.set_xlim(0, curves.radii[-1])
        axes.legend(frameon=False)
        figures[f"certified-accuracy-{curves.norm}"] = figure
    return figures


def _draws(runs: Sequence[Run]) -> Any:
    histogram = draw_histogram(runs)
    figure = _new(6, 0.9 + 1.1 * len(runs))
    for number, axes in enumerate(figure.subplots(len(runs), 1, sharex=True, squeeze=False)[:, 0]):
        average = runs[number].summary.draws / runs[number].summary.inputs
        axes.stairs(histogram.counts[number], histogram.edges, fill=True, color=_color(number))
        axes.set_title(f"{_plain(runs[number].name)}: {average:,.0f} draws on average")
        axes.set(xscale="log", ylabel="inputs")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.xaxis.set_minor_formatter("{x:,.0f}" if histogram.edges[-1] < 20 * histogram.edges[0] else "")
    axes.set_xlabel("draws of an input")
    return figure


def _attacks(runs: Sequence[Run]) -> dict[str, Any]:
    """Certified radius against smallest attack, for the runs that were attacked; inputs without one are left out."""
    attacks = [(number, found) for number, run in enumerate(runs) if (found := attacks_of(run)) is not None]
    if not attacks:
        return {}
    figure = _new(4.2, 3.8)
    axes = figure.subplots()
    for number, found in attacks:
        _plot_attacks(axes, _plain(runs[number].name), _color(number), found)
    end = max(axes.get_xlim()[1], 0.0)
    axes.plot([0, end], [0, end], color="#1d2126", lw=1)
    axes.set(xlabel="certified radius", ylabel="smallest attack", xlim=(0, end), ylim=(0, None))
    axes.legend(frameon=False)
    return {"attacks": figure}


def _plot_attacks(axes: Any, name: str, color: str, found: RunAttacks) -> None:
    points = [(one.radius, one.upper_radius) for one in found.attacked.values() if one.upper_radius is not None]
    label = f"{name}, median {found.median_ratio} times"
    axes.scatter([x for x, _ in points], [y for _, y in points], s=12, color=color, alpha=0.65, label=label)


def _seconds(runs: Sequence[Run]) -> Any:
    values = [run.summary.seconds / run.summary.inputs for run in runs]
    return _bars([run.name for run in runs], values, [_color(number) for number in range(len(runs))])


def _benchmark(bench: BenchResult) -> Any:
    """A bar for each candidate: ours in one colour, the others in gray, as on the page."""
    ordered = bench.slowest_first()
    names = [one.name + (" *" if one.extrapolated else "") for one in ordered]
    values = [float(np.mean(one.seconds_per_sample)) for one in ordered]
    figure = _bars(names, values, [COLORS[0 if name.startswith("ars ") else -1] for name in names])
    star = " (* extrapolated from a measured rate)" if any(one.extrapolated for one in ordered) else ""
    figure.axes[0].set_title(_plain(bench.network) + star)
    return figure


def _bars(names: Sequence[str], values: Sequence[float], colors: Sequence[str]) -> Any:
    """A bar chart of seconds per sample."""
    figure = _new(6, 0.7 + 0.4 * len(names))
    axes = figure.subplots()
    bars = axes.barh(range(len(names)), values, color=colors, height=0.6)
    axes.bar_label(bars, [f" {value:.3g} s" for value in values])
    axes.set_yticks(range(len(names)), [_plain(name) for name in names])
    axes.set(xlabel="seconds per sample", xlim=(0, 1.15 * max(values)))
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    return figure


def _inputs(runs: Sequence[Run], strips: Sequence[Strips]) -> dict[str, Any]:
    """The paper's Figure 2: a row for each input that is shown of a run whose noise has maps."""
    rows = [
        (run, one)
        for run, of_run in zip(runs, strips, strict=True)
        for one in of_run.strips
        if run.header.settings.kind is not NoiseKind.ISOTROPIC
    ]
    if not rows:
        return {}
    heads = ["input", "mean map", "scale map", *["draw"] * COPIES, *["isotropic"] * COPIES]
    figure = _new(1.05 * len(heads), 0.2 + 1.25 * len(rows))
    cells = figure.subplots(len(rows), len(heads), squeeze=False)
    for axes, head in zip(cells[0], heads, strict=True):
        axes.set_title(head, fontsize=7, fontweight="normal", loc="center")
    for line, (run, one) in zip(cells, rows, strict=True):
        maps = map_pictures(one.mean, one.scale)
        pictures = [
            photograph(one.x),
            maps.mean,
            maps.scale,
            *(photograph(copy, one.x) for copy in (*one.copies, *one.isotropic)),
        ]
        name = f"input {one.record.idx}" if len(runs) == 1 else f"input {one.record.idx}, {run.name}"
        notes = [name, f"±{maps.bound:.2g}", f"{maps.low:.3g} to {maps.high:.3g}"]
        for axes, picture, note in zip(line, pictures, [*notes, *[""] * 2 * COPIES], strict=True):
            axes.imshow(picture, interpolation="nearest")
            axes.set(xticks=[], yticks=[])
            axes.grid(False)
            axes.spines[:].set_visible(False)
            axes.set_xlabel(_plain(note), fontsize=6)
    return {"inputs": figure}
