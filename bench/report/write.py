"""From run stores to a page and its figures."""

from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from ars.bench.report.page import render_page
from ars.bench.report.runs import Run, read_runs
from ars.bench.report.strips import Strips, choose_inputs, make_strips
from ars.bench.run.result_file import read_result
from ars.data import open_data, parse_ranges
from ars.engine.records.reopen import find_noise, reopen_data
from ars.errors import ArgumentError, ModelError
from ars.external_data import hash_model
from ars.output import make_folder

__all__ = ["write_report"]


def write_report(
    paths: Sequence[Path],
    page: TextIO,
    *,
    benches: Sequence[Path] = (),
    data: Sequence[str] = (),
    noise: Sequence[Path] = (),
    only: str | None = None,
    figures: Path | None = None,
) -> list[Run]:
    """Write the page of these runs and benchmarks, and its figures into the folder `figures`, if one is given."""
    if figures is not None:
        make_folder(figures, "--figures")
    runs, results = read_runs(paths), [read_result(path) for path in benches]
    strips = strips_of(runs, data, noise, only)
    if figures is not None:
        from ars.bench.report.figures import write_figures

        write_figures(runs, strips, results, figures)
    page.write(render_page(runs, strips, results))
    return runs


def strips_of(runs: Sequence[Run], specs: Sequence[str], noise_files: Sequence[Path], only: str | None) -> list[Strips]:
    """The strips of each run. Data and noise files that belong to no run are refused, as mistakes."""
    given = {spec: [reopen_data(run.header, run.path, spec) for run in runs] for spec in specs}
    for spec, found in given.items():
        if all(data is None for data in found):
            raise ArgumentError("data", open_data(spec).name, "no run was made with it as it is now")
    for path in noise_files:
        if not path.exists():
            raise ModelError(path, "there is no such file", "give the noise generator or the maps of a run")
        if hash_model(path).sha256 not in [run.header.settings.noise.file for run in runs]:
            raise ModelError(path, "no run was made with it as it is now", "give the file that the run was made with")
    strips = []
    for number, run in enumerate(runs):
        data = next((found[number] for found in given.values() if found[number] is not None), None)
        if data is None:
            data = reopen_data(run.header, run.path)
        noise = [path for path in (*noise_files, find_noise(run.header, run.path)) if path is not None]
        if only is None:
            same_data = run.header.settings.data
            chosen = choose_inputs([other for other in runs if other.header.settings.data == same_data])
        else:
            certified = [record.idx for record in run.records]
            chosen = list(dict.fromkeys(idx for part in parse_ranges(only, 2**32) for idx in certified if idx in part))
        strips.append(make_strips(run, chosen, data, noise))
    if only is not None and not any(of_run.strips or of_run.missing for of_run in strips):
        raise ArgumentError("only", only, "none of them is certified in these runs")
    return strips
