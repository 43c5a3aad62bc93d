"""The command `ars-bench run`."""

import tempfile
from contextlib import ExitStack
from pathlib import Path

import click

from ars.command_line import Command
from ars.engine.backends import list_backends
from ars.engine.statistics.plan import Plan
from ars.output import is_stdout, open_output, refuse_inputs, refuse_shared

PATH = click.Path(path_type=Path)
NAMES = ("loop", "compiled", *(backend.name for backend in list_backends()))


@click.command(
    cls=Command,
    examples=[
        "ars-bench run --engine model.onnx --data test.npz",
        "ars-bench run --engine resnet50 --device cuda:0 --export-json bench.json",
    ],
)
@click.option("--engine", required=True, help="A file of a model; or resnet20 and the like, with random weights.")
@click.option("--data", help="Real inputs, which adaptive stopping needs. Default: fixed stopping only.")
@click.option("--inputs", default=20, show_default=True, type=click.IntRange(1), help="How many, spread evenly.")
@click.option("--only-correct", is_flag=True, help="Also measure adaptive stopping that ends inputs of a wrong class.")
@click.option("--backend", "backends", multiple=True, help=f"Only these: {', '.join(NAMES)}. Again for more.")
@click.option("--precision", "precisions", multiple=True, help="Only these: fp32, fp16, int8. Again for more.")
@click.option("--rounds", default=7, show_default=True, type=click.IntRange(3), help="Rounds that count.")
@click.option("--n0", default=Plan.n0, show_default=True, type=click.IntRange(1), help="Draws that select the class.")
@click.option("--n", default=Plan.n, show_default=True, type=click.IntRange(1), help="Draws that bound its share.")
@click.option(
    "--noise",
    type=click.Choice(["own", "isotropic", "both"]),
    default="own",
    show_default=True,
    help="With the model's noise generator, without it, or both.",
)
@click.option("--sigma", type=float, default=0.25, show_default=True, help="Noise of a model without a manifest.")
@click.option("--batch", type=click.IntRange(1), help="Draws in a batch. Default: the fastest for each, measured.")
@click.option("--threads", type=click.IntRange(1), help="Cores to use. Default: all.")
@click.option("--device", default="cpu", show_default=True, help="Where: cpu, cuda:0, or several: cuda:0,cuda:1.")
@click.option("--export-json", type=PATH, help="All raw times, what follows from them, and the machine.")
@click.option("--export-csv", type=PATH, help="The same as CSV.")
@click.option("--export-markdown", type=PATH, help="The table as Markdown.")
@click.option("--export-html", type=PATH, help="The table as a page.")
def run(
    engine: str,
    data: str | None,
    inputs: int,
    only_correct: bool,
    backends: tuple[str, ...],
    precisions: tuple[str, ...],
    rounds: int,
    n0: int,
    n: int,
    noise: str,
    sigma: float,
    batch: int | None,
    threads: int | None,
    device: str,
    **exports: Path | None,
) -> None:
    """Time a model's certification against the field's PyTorch loop: seconds per sample and draws a second.

    Candidates take turns, round after round. A sample is n0 + n draws of one input; where that takes long, its time is
    extrapolated from the rate of a shorter turn, and marked so.
    """
    from ars.bench.run.export import EXPORTERS
    from ars.bench.run.measure import Wanted, measure
    from ars.bench.run.show import show
    from ars.engine.samplers.host import usable_cores

    wanted = Wanted(backends, precisions)
    outputs = {form: path for form in EXPORTERS if (path := exports[f"export_{form}"]) is not None}
    refuse_shared(outputs.values())
    for path in outputs.values():
        refuse_inputs(path, [engine, *([data] if data else [])])
    with ExitStack() as stack:
        files = {form: stack.enter_context(open_output(path)) for form, path in outputs.items()}
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        result = measure(
            engine,
            wanted,
            folder,
            data=data,
            inputs=inputs,
            only_correct=only_correct,
            plan=Plan(n0, n),
            rounds=rounds,
            sigma=sigma,
            noise=noise,
            batch=batch,
            threads=threads or usable_cores(),
            device=device,
        )
        show(result, to_stderr=any(map(is_stdout, outputs.values())))
        for form, file in files.items():
            file.write(EXPORTERS[form](result))
