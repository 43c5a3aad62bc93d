"""The figures of the pages in docs/. `python docs/_site/figures.py` writes them to docs/figures/, from the code that
they are about: the same regions, and the same sequential tests.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Ellipse
from scipy.stats import norm

from ars.engine.statistics.looks import look_draws
from ars.engine.statistics.spending import find_limits
from ars.noise import family_named

FOLDER = Path(__file__).parents[1] / "figures"
BLUE, ORANGE, GREY = "#2f4b9e", "#b3541e", "#555555"


def draw_region(axes: Axes) -> None:
    """The certified region of a scale map, the ball inside of it, and the boundary of a classifier that is as bad as
    the bounds allow."""
    scale, K = np.array([1.5, 0.6]), 1.3
    direction = np.array([0.8, 0.6])  # of the worst half-space, in units of the scale
    axes.add_patch(Ellipse((0, 0), *(2 * K * scale), facecolor=BLUE, alpha=0.15))
    axes.add_patch(Ellipse((0, 0), *(2 * K * scale), fill=False, edgecolor=BLUE, lw=1.5))
    axes.add_patch(Circle((0, 0), K * scale.min(), fill=False, edgecolor=ORANGE, lw=1.5, ls="--"))
    along = np.linspace(-3, 3, 2)
    normal = direction / scale  # the boundary is {delta: normal @ delta = K}
    axes.plot(along, (K - normal[0] * along) / normal[1], color=GREY, lw=1.2)
    axes.plot(0, 0, "o", color="black", ms=4)
    axes.annotate("x", (0, 0), (5, 5), textcoords="offset points")
    axes.annotate("||δ / scale|| < K", (-1.3, -0.05), color=BLUE, ha="center")
    axes.annotate("||δ|| < min(scale) K", (0, -0.45), color=ORANGE, ha="center", fontsize=8)
    axes.annotate("another answer", (1.55, 0.95), color=GREY)
    axes.set(xlim=(-2.4, 2.8), ylim=(-1.2, 1.3), aspect="equal", xlabel="first pixel of δ", ylabel="second pixel of δ")


def draw_shares(axes: Axes) -> None:
    """How far the shares of two classes can have moved after a shift by r, and where they meet."""
    family, p_a, p_b = family_named("gaussian"), 0.9, 0.06
    K = family.region(p_a, p_b)
    r = np.linspace(0, 2.2, 200)
    axes.plot(r, norm.cdf(norm.ppf(p_a) - r), color=BLUE, label="least share of the certified class")
    axes.plot(r, norm.cdf(norm.ppf(p_b) + r), color=ORANGE, label="largest share of any other class")
    axes.axvline(K, color=GREY, lw=1, ls=":")
    axes.annotate(f"K = {K:.2f}", (K, 0.04), (4, 0), textcoords="offset points", color=GREY)
    axes.annotate("pA", (0, p_a), (6, 2), textcoords="offset points", color=BLUE)
    axes.annotate("pB", (0, p_b), (6, 8), textcoords="offset points", color=ORANGE)
    axes.set(xlim=(0, 2.2), ylim=(0, 1), xlabel="||δ / scale||", ylabel="share of the draws")
    axes.legend(frameon=False, loc="center right", fontsize=8)


def draw_lattice(axes: Axes) -> None:
    """Where float32 decides the cell of a value, and where the slow path has to."""
    margin = 0.5 - 0.06
    for cell in range(-1, 3):
        axes.axvspan(cell - margin, cell + margin, ymin=0.2, ymax=0.5, color=BLUE, alpha=0.2, lw=0)
        axes.axvspan(cell + margin, cell + 1 - margin, ymin=0.2, ymax=0.5, color=ORANGE, alpha=0.55, lw=0)
        axes.plot([cell + 0.5] * 2, [0.2, 0.5], color="black", lw=1)
        axes.annotate(f"cell {cell}", (cell, 0.35), ha="center", va="center", color=BLUE)
    axes.errorbar([0.22], [0.62], xerr=0.06, fmt="o", color=BLUE, ms=3, capsize=3)
    axes.annotate("t' ± B: one cell, decided", (0.22, 0.7), ha="center", color=BLUE, fontsize=9)
    axes.errorbar([1.47], [0.62], xerr=0.06, fmt="o", color=ORANGE, ms=3, capsize=3)
    axes.annotate("t' ± B: a boundary, so 64 bits decide", (1.47, 0.7), ha="center", color=ORANGE, fontsize=9)
    axes.annotate("(x + mean + scale z) / h", (0.75, 0.08), ha="center", color=GREY, fontsize=9)
    axes.set(xlim=(-0.9, 2.4), ylim=(0, 0.8))
    axes.axis("off")


def draw_looks(axes: Axes) -> None:
    """The limits of the test of one miss rate, and the misses of inputs with this rate and with a quarter of it."""
    rate, n = 0.02, 10_000
    draws, limits = np.array(look_draws(n)), np.array(find_limits(rate, n, 0.001))
    rng = np.random.default_rng(5)
    for true, color, label in ((rate, ORANGE, "misses at the tested rate, 2 %"), (rate / 4, BLUE, "at 0.5 %")):
        for number in range(8):
            misses = np.cumsum(rng.random(n) < true)
            axes.plot(draws, misses[draws - 1], color=color, lw=0.8, alpha=0.7, label=label if number == 0 else None)
    axes.plot(draws, limits, "k.-", ms=3, lw=0.8, label="limits: this few misses exclude 2 %")
    axes.set(xlim=(0, n), ylim=(0, 230), xlabel="draws", ylabel="misses")
    axes.legend(frameon=False, loc="upper left", fontsize=8)


FIGURES: dict[str, tuple[Callable[[Axes], None], tuple[float, float]]] = {
    "region": (draw_region, (6, 3.2)),
    "shares": (draw_shares, (6, 3)),
    "lattice": (draw_lattice, (7, 1.8)),
    "looks": (draw_looks, (6, 3.4)),
}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    mpl.rcParams.update({"svg.hashsalt": "ars", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    for name, (draw, size) in FIGURES.items():
        figure = Figure(figsize=size, layout="constrained", facecolor="#fcfcfa")
        axes = figure.add_subplot(facecolor="#fcfcfa")
        draw(axes)
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
