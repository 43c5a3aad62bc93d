"""The paper's Figure 2, for five images of a reproduction."""

from pathlib import Path

from ars.bench.report.strips import make_strips
from ars.bench.reproduce.files import Folder
from ars.engine.records.reopen import reopen_data
from ars.engine.records.stored_run import Run
from ars.noise import NoiseKind

__all__ = ["draw_inputs"]


def draw_inputs(folder: Folder, test: Path, picture: Path) -> None:
    """Draw the figure for the input-wise model of the largest sigma0. Without its noise generator or the test data, an
    older picture stays."""
    from ars.bench.report.figures import plot_inputs

    first = folder.preset.certifications[0]
    for model in sorted(folder.preset.models, key=lambda model: -model.sigma0):
        run, noise = folder.run(model, first), folder.path / f"{model.name}.noise.onnx"
        if model.kind == NoiseKind.INPUT and run is not None and noise.exists():
            strips = make_strips(run, _choose_inputs(run), reopen_data(run.header, run.path, str(test)), [noise])
            if strips.strips:
                plot_inputs([run], [strips], picture)
                return


def _choose_inputs(run: Run) -> list[int]:
    """The first certified input of each of the first five classes."""
    by_class: dict[int, int] = {}
    for record in run.records:
        if record.correct and not record.certificate.abstained:
            by_class.setdefault(record.certificate.selected, record.idx)
    return [by_class[label] for label in sorted(by_class)[:5]]
