"""A folder of runs as a site: a page for each run, and an index that can be searched and that compares any two."""

import datetime
import os
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

from ars.bench.report.attacks import attacks_of
from ars.bench.report.page import render_page, render_template
from ars.bench.report.runs import read_runs
from ars.bench.report.write import strips_of
from ars.distribution import VERSION
from ars.engine.decisions.comparison import compare_runs
from ars.engine.decisions.overview import Overview, find_radii, overview
from ars.engine.decisions.sample import describe_unfinished
from ars.engine.decisions.show import percent, show_interval
from ars.engine.records.stored_run import Run
from ars.engine.statistics.certificate import format_radius, name_radius
from ars.errors import FileError, StoreError
from ars.output import make_folder, open_output
from ars.printable import printable

__all__ = ["write_site"]

# File names have at most 255 bytes, and a character has up to four.
LONGEST = 50


def write_site(folder: Path, site: Path) -> list[Run]:
    """Write the pages of all run stores in a folder and its subfolders into another folder, with an index.html."""
    paths = _find_stores(folder)
    if not paths:
        raise FileError(folder, "it has no run stores (*.sqlite)", "give a folder with stores of `ars-engine certify`")
    make_folder(site, "--output")
    runs = read_runs(paths)
    pages = _name_pages(folder, runs)
    for run, page in zip(runs, pages, strict=True):
        with open_output(site / page) as file:
            file.write(render_page([run], strips_of([run], [], [], None)))
    with open_output(site / "index.html") as file:
        file.write(_render_index(folder, runs, pages))
    return runs


def _find_stores(folder: Path) -> list[Path]:
    def fail(error: OSError) -> None:
        raise FileError(error.filename, f"it cannot be read ({error.strerror})", "make it readable, or move it away")

    found = (Path(place, name) for place, _, names in os.walk(folder, onerror=fail) for name in names)
    return sorted(path for path in found if path.suffix == ".sqlite")


def _name_pages(folder: Path, runs: Sequence[Run]) -> list[str]:
    """A file name for each page: the path of the store in the folder, in one word that no other page has."""
    pages: list[str] = []
    for run in runs:
        name = "-".join(run.path.relative_to(folder).with_suffix("").parts)
        name = printable(name).replace("\\", "_")[-LONGEST:]  # browsers take a backslash for a slash
        same = (f"{name}{number}.run.html" for number in ("", *(f"-{again}" for again in range(2, len(runs) + 2))))
        pages.append(next(page for page in same if page not in pages))
    return pages


def _render_index(folder: Path, runs: Sequence[Run], pages: Sequence[str]) -> str:
    radii = find_radii(runs)
    overviews = [overview(run, radii) for run in runs]
    content = {
        "version": VERSION,
        "made": datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M"),
        "radii": [name_radius(radius) for radius in radii],
        "runs": [_row(run, one, page) for run, one, page in zip(runs, overviews, pages, strict=True)],
        "pairs": _pairs(runs, radii),
    }
    title = f"Runs in {folder.absolute().name}"
    return render_template("index.html", ("elements.js", "index.js"), title, content)


def _row(run: Run, one: Overview, page: str) -> dict[str, object]:
    attacks = attacks_of(run)
    return {
        "name": one.name,
        "page": page,
        "model": Path(one.model).name if one.model else "",
        "data": one.data or "",
        "noise": f"{one.family} {one.kind}",
        "sigma": f"{one.sigma:.4g}",
        "scope": one.scope,
        "n": f"{one.n:,}",
        "inputs": f"{one.inputs:,}" + ("" if one.population in (None, one.inputs) else f" of {one.population:,}"),
        "norm": one.norm,
        "unfinished": describe_unfinished(run),
        "shares": [percent(found.share) for found in one.accuracies],
        "intervals": ["exact" if one.exact else show_interval(found.interval) for found in one.accuracies],
        "acr": ("≥ " if one.at_least else "") + format_radius(one.acr) if one.labelled else "–",
        "attack": attacks and attacks.median_ratio,
    }


def _pairs(runs: Sequence[Run], radii: Sequence[float]) -> dict[str, object]:
    """The comparison of each two runs, by their numbers; for those that cannot be compared, the reason."""
    pairs: dict[str, object] = {}
    for first, second in combinations(range(len(runs)), 2):
        try:
            found = compare_runs(runs[first], runs[second], radii)
        except StoreError as error:
            pairs[f"{first},{second}"] = {"refused": str(error)}
            continue
        pairs[f"{first},{second}"] = {
            "verdict": found.verdict,
            "rows": [pair.cells for pair in found.pairs],
            "settings": found.setting_lines,
            "notes": found.notes,
        }
    return pairs
