"""`ars-bench field`: the field's class Smooth against `ars.Smooth`, which takes its place, on the same inputs."""

import math
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.special import betaincinv, ndtri
from scipy.stats import binomtest

from ars.bench.timing import Timings, interleave
from ars.command_line import Command
from ars.errors import ArgumentError, MissingPackage

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["FieldSmooth", "field"]

FIELD, SMOOTH, MODULE, FILE = "the field's Smooth", "ars.Smooth", "ars.load, module", "ars.load, exported file"


class FieldSmooth:
    """What the class Smooth of Cohen et al. (2019) computes, on the CPU: their algorithms CERTIFY and PREDICT."""

    ABSTAIN = -1

    def __init__(self, base_classifier: "nn.Module", num_classes: int, sigma: float) -> None:
        self.base_classifier, self.num_classes, self.sigma = base_classifier.eval(), num_classes, sigma

    def certify(self, x: "Tensor", n0: int, n: int, alpha: float, batch_size: int) -> tuple[int, float]:
        selected = int(np.argmax(self._votes(x, n0, batch_size)))
        votes = int(self._votes(x, n, batch_size)[selected])
        p_a = float(betaincinv(votes, n - votes + 1, alpha)) if votes else 0.0  # Clopper and Pearson's lower bound
        return (self.ABSTAIN, 0.0) if p_a < 0.5 else (selected, self.sigma * float(ndtri(p_a)))

    def predict(self, x: "Tensor", n: int, alpha: float, batch_size: int) -> int:
        votes = self._votes(x, n, batch_size)
        second, first = (int(place) for place in np.argsort(votes)[-2:])
        clear = binomtest(int(votes[first]), int(votes[first] + votes[second])).pvalue <= alpha
        return first if clear else self.ABSTAIN

    def _votes(self, x: "Tensor", n: int, batch_size: int) -> Any:
        from ars.bench.pytorch_path import sample_votes

        return sample_votes(self.base_classifier, self.num_classes, x, 0.0, self.sigma, n, batch_size)


@dataclass(frozen=True)
class Agreement:
    """The certificates of both classes for the same inputs."""

    answers: int
    """Inputs with the same answer, class or abstention."""
    theirs: list[float]
    """The radii, 0 where it abstains."""
    ours: list[float]

    @property
    def difference(self) -> tuple[float, float]:
        """The mean of ours minus theirs, and its standard error."""
        apart = np.subtract(self.ours, self.theirs)
        return float(apart.mean()), float(apart.std(ddof=1) / math.sqrt(len(apart)))


@click.command(
    cls=Command,
    examples=[
        "ars-bench field model.pt --data fashion-mnist:test",
    ],
)
@click.argument("model", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--data", required=True, help="Where the inputs come from, as for `ars-engine certify`.")
@click.option("--inputs", default=20, show_default=True, type=click.IntRange(2), help="How many, spread evenly.")
@click.option("--sigma", type=float, help="The scale of the noise. Default: what the model was trained for.")
@click.option("--n0", default=100, show_default=True, type=click.IntRange(1), help="Draws that select the class.")
@click.option("--n", default=1000, show_default=True, type=click.IntRange(1), help="Draws that bound its share.")
@click.option("--alpha", default=0.001, show_default=True, type=float, help="Probability of a wrong certificate.")
@click.option("--batch", default=400, show_default=True, type=click.IntRange(1), help="The batch of the field's loop.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(3), help="Rounds that count.")
@click.option("--threads", type=click.IntRange(1), help="Cores to use. Default: all.")
def field(
    model: Path,
    data: str,
    inputs: int,
    sigma: float | None,
    n0: int,
    n: int,
    alpha: float,
    batch: int,
    rounds: int,
    threads: int | None,
) -> None:
    """Compare the field's class Smooth with ars.Smooth, which takes its place: radii, and draws a second.

    MODEL is a model.pt of ars-train. Also timed are ars.load with the module, and with the file that it exports to.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingPackage("torch", "train") from error
    from ars.data import ImageSize, image_channels, open_data
    from ars.engine.samplers.host import usable_cores
    from ars.engine.smooth import Smooth
    from ars.engine.smoothed import load
    from ars.engine.statistics.plan import Plan
    from ars.export.modules import FrozenModule
    from ars.train.model_file import load_model
    from ars.train.processes import fixed_threads

    settings, loaded, _ = load_model(model)
    scale, classes = sigma or settings.bounds.sigma0, len(settings.classes)
    source = open_data(data, ImageSize(channels=image_channels(settings.shape)))
    if inputs > len(source):
        raise ArgumentError("inputs", inputs, f"{data} has {len(source)}")
    xs = [torch.from_numpy(source[index * len(source) // inputs].x) for index in range(inputs)]
    plan = Plan(n0, n, alpha, two_sided=False)
    threads = threads or usable_cores()
    module = loaded.classifier
    theirs, ours = FieldSmooth(module, classes, scale), Smooth(module, classes, scale)

    def run_theirs(x: "Tensor") -> tuple[int, float]:
        with fixed_threads(threads):
            return theirs.certify(x, n0, n, alpha, batch)

    with ExitStack() as stack:
        stack.callback(ours.close)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        path = FrozenModule(module, "exported").write(settings.shape, folder)
        in_memory = stack.enter_context(load(module, sigma=scale, threads=threads, shape=settings.shape))
        same = in_memory.prepare(settings.shape).batch  # two measurements could choose two batch sizes
        from_file = stack.enter_context(load(path, sigma=scale, threads=threads, batch=same))
        pairs = [(run_theirs(x), ours.certify(x, n0, n, alpha, batch)) for x in track(xs, "certifying", transient=True)]
        candidates: dict[str, Callable[[], object]] = {
            FIELD: lambda: run_theirs(xs[0]),
            SMOOTH: lambda: ours.certify(xs[0], n0, n, alpha, batch),
            MODULE: lambda: in_memory.certify(xs[0], plan),
            FILE: lambda: from_file.certify(xs[0], plan),
        }
        for candidate in candidates.values():
            candidate()  # the first call chooses the batch size
        timings = interleave(candidates, rounds)
    agreed = sum(one[0] == other[0] for one, other in pairs)
    agreement = Agreement(agreed, [one[1] for one, _ in pairs], [other[1] for _, other in pairs])
    _show(agreement, timings, n0 + n, f"{model.name}, sigma {scale:g}, n0 = {n0}, n = {n}, alpha = {alpha:g}")


def _show(agreement: Agreement, timings: Timings, draws: int, title: str) -> None:
    inputs = len(agreement.ours)
    mean, error = agreement.difference
    click.echo(f"{agreement.answers} of {inputs} inputs have the same answer (class, or abstention)")
    for name, radii in ((FIELD, agreement.theirs), (SMOOTH, agreement.ours)):
        click.echo(f"average certified radius {np.mean(radii):.4f} by {name}")
    click.echo(f"difference {mean:+.4f} ± {error:.4f} (standard error over inputs)")
    table = Table("", "draws a second", "lowest", "highest", title=title)
    for name, seconds in timings.seconds.items():
        rates = draws / np.array(seconds)
        table.add_row(name, *(f"{rate:,.0f}" for rate in (np.median(rates), rates.min(), rates.max())))
    Console().print(table)
    for faster, slower in ((SMOOTH, FIELD), (MODULE, FILE)):
        ratio = timings.ratio(faster, slower)
        spread = f"({ratio.low:.2f} to {ratio.high:.2f})"
        click.echo(f"{faster} is {ratio.median:.2f} times as fast as {slower} {spread}")
    if timings.noisy:
        click.echo("The machine is noisy: stop other work, or ask for more --rounds.", err=True)
