"""`ars-bench`."""

import dataclasses
import json
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from ars.bench.attack.command import attack
from ars.bench.bounds import bounds
from ars.bench.field import field
from ars.bench.gpu_report import gpu_report
from ars.bench.paper.command import paper
from ars.bench.report.command import report
from ars.bench.reproduce.command import reproduce
from ars.bench.run.command import run
from ars.bench.stopping.command import stopping
from ars.bench.sweep import sweep
from ars.bench.timing import Ratio, Timings
from ars.command_line import Group, version_option


@click.group(
    cls=Group,
    examples=[
        "ars-bench run --engine model.onnx --data test.npz",
        "ars-bench report run.sqlite",
    ],
)
@version_option
def main() -> None:
    """Measure ARS on this machine, against what people use now."""


main.add_command(run)
main.add_command(paper)
main.add_command(stopping)
main.add_command(bounds)
main.add_command(field)
main.add_command(report)
main.add_command(reproduce)
main.add_command(gpu_report)
main.add_command(sweep)
main.add_command(attack)


@main.command(
    examples=[
        "ars-bench sampler",
    ],
)
@click.option(
    "--dimensions", default=3072, show_default=True, type=click.IntRange(1, 2**24), help="Values in an input."
)
@click.option("--batch", default=1000, show_default=True, type=click.IntRange(1), help="Noisy copies at a time.")
@click.option("--rounds", default=20, show_default=True, type=click.IntRange(3), help="Rounds that count.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def sampler(dimensions: int, batch: int, rounds: int, as_json: bool) -> None:
    """Time the native sampler, by noise streams 2 and 1, against noisy copies made with PyTorch and with numpy."""
    from ars.bench.micro.sampler import NUMPY, ONE_THREAD, STREAM_1, TORCH, TWO_THREADS, time_samplers

    timings = time_samplers(dimensions, batch, rounds)
    values = dimensions * batch
    pairs = [(ONE_THREAD, TORCH), (ONE_THREAD, NUMPY), (TWO_THREADS, ONE_THREAD), (STREAM_1, ONE_THREAD)]
    ratios = [(faster, slower, timings.ratio(faster, slower)) for faster, slower in pairs]
    if as_json:
        click.echo(json.dumps({"dimensions": dimensions, "batch": batch} | _report(timings, ratios), indent=2))
        return
    title = f"{batch} noisy copies of {dimensions} values"
    _print_table(title, "ns a value", {name: np.array(s) / values * 1e9 for name, s in timings.seconds.items()})
    _print_ratios(ratios, timings)


# The batches for each lane in a turn: enough that the start and the end of a run do not matter.
BATCHES = 16


@main.command(
    examples=[
        "ars-bench overhead --rounds 20",
    ],
)
@click.option("--rounds", default=9, show_default=True, type=click.IntRange(3), help="Rounds that count.")
@click.option("--batch", default=128, show_default=True, type=click.IntRange(1), help="Draws in a batch.")
@click.option("--threads", type=click.IntRange(1), help="Cores to use. Default: all.")
@click.option(
    "--engine",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Time the noise streams with this classifier instead.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def overhead(rounds: int, batch: int, threads: int | None, engine: Path | None, as_json: bool) -> None:
    """Time the engine against bare session.run loops on a prepared batch, and one noise stream against the other."""
    from ars.bench.micro.overhead import BARE, BARE_LANES, ENGINE, STREAM_1, time_overhead, time_streams
    from ars.bench.networks import resnet20, small_cnn
    from ars.engine.backends import load_runner
    from ars.engine.samplers.host import usable_cores

    threads = threads or usable_cores()
    networks = {}

    def show(name: str, timings: Timings, pairs: list[tuple[str, str]]) -> None:
        draws = BATCHES * threads * batch
        ratios = [(faster, slower, timings.ratio(faster, slower)) for faster, slower in pairs]
        networks[name] = {"batch": batch, "threads": threads} | _report(timings, ratios)
        if not as_json:
            rates = {candidate: draws / np.array(seconds) for candidate, seconds in timings.seconds.items()}
            _print_table(f"{name}, batch {batch}, {threads} threads", "draws a second", rates)
            _print_ratios(ratios, timings)

    if engine:
        shape = tuple(side or 32 for side in load_runner(engine).shape)
        show(engine.name, time_streams(engine, shape, batch, threads, BATCHES, rounds), [(ENGINE, STREAM_1)])
    with tempfile.TemporaryDirectory() as folder:
        for network, shape in ((resnet20, (3, 32, 32)), (small_cnn, (1, 28, 28))) if engine is None else ():
            model = Path(folder) / f"{network.__name__}.onnx"
            network(model)
            timings = time_overhead(model, shape, batch, threads, BATCHES, rounds)
            show(network.__name__, timings, [(ENGINE, BARE), (ENGINE, BARE_LANES)])
    if as_json:
        click.echo(json.dumps(networks, indent=2))


@main.command(
    examples=[
        "ars-bench generator --json",
    ],
)
@click.option("--rounds", default=9, show_default=True, type=click.IntRange(3), help="Rounds that count.")
@click.option("--n", default=20_000, show_default=True, type=click.IntRange(1), help="Draws that bound the share.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def generator(rounds: int, n: int, as_json: bool) -> None:
    """Time certification with a noise generator against isotropic noise."""
    from ars.bench.micro.overhead import GENERATOR, ISOTROPIC, time_generator
    from ars.bench.networks import noise_generator, small_cnn

    shape = (1, 28, 28)
    with tempfile.TemporaryDirectory() as folder:
        model, maps = Path(folder) / "small_cnn.onnx", Path(folder) / "generator.onnx"
        small_cnn(model)
        noise_generator(maps, shape)
        timings = time_generator(model, maps, shape, batch=128, n=n, rounds=rounds)
    ratios = [(ISOTROPIC, GENERATOR, timings.ratio(ISOTROPIC, GENERATOR))]
    if as_json:
        click.echo(json.dumps({"n": n} | _report(timings, ratios), indent=2))
        return
    _print_table(f"small_cnn, n = {n}", "seconds an input", {name: np.array(s) for name, s in timings.seconds.items()})
    _print_ratios(ratios, timings)


@main.command(
    examples=[
        "ars-bench cluster --workers 8",
    ],
)
@click.option("--workers", default=4, show_default=True, type=click.IntRange(1), help="Workers, which sleep.")
@click.option("--inputs", default=2000, show_default=True, type=click.IntRange(10), help="Inputs that they take.")
@click.option("--seconds", default=0.05, show_default=True, type=float, help="How long a worker sleeps for each.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def cluster(workers: int, inputs: int, seconds: float, as_json: bool) -> None:
    """Measure what the driver of a Ray cluster costs, with workers that sleep instead of certifying."""
    from ars.bench.micro.cluster import measure_cluster

    with redirect_stdout(sys.stderr):  # what Ray prints
        found = measure_cluster(workers, inputs, seconds)
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(found), indent=2))
        return
    click.echo(
        f"{workers} workers, {inputs} inputs of {seconds} s: the workers were busy {found.efficiency:.1%} of the time"
    )
    click.echo(f"the driver spent {found.driver_seconds * 1e3:.2f} ms of processor time on a certificate")
    shared = "" if found.store_growth is None else f", and Ray's shared memory by {found.store_growth / 2**20:.1f} MiB"
    click.echo(f"in the last four fifths of the run, the driver grew by {found.memory_growth / 2**20:.1f} MiB{shared}")


@main.command(
    examples=[
        "ars-bench workers",
    ],
)
@click.option("--inputs", default=40, show_default=True, type=click.IntRange(4), help="Inputs in a run.")
@click.option("--n", default=20_000, show_default=True, type=click.IntRange(1), help="Draws that bound the share.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="Rounds that count.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def workers(inputs: int, n: int, rounds: int, as_json: bool) -> None:
    """Time two workers of a Ray cluster, each with one core, against one process with two threads."""
    from ars.bench.micro.workers import CLUSTER, PROCESS, time_workers

    with redirect_stdout(sys.stderr):  # what Ray prints
        cost = time_workers(inputs, n, rounds)
    found = {"time": cost.wall, "processor time": cost.processor}
    ratios = {name: [(CLUSTER, PROCESS, timings.ratio(CLUSTER, PROCESS))] for name, timings in found.items()}
    if as_json:
        click.echo(json.dumps({name: _report(timings, ratios[name]) for name, timings in found.items()}, indent=2))
        return
    for name, timings in found.items():
        rows = {label: 1e6 * np.array(seconds) for label, seconds in timings.seconds.items()}
        _print_table(f"small_cnn, {inputs} inputs, n = {n}: {name}", "µs a draw", rows)
        _print_ratios(ratios[name], timings)


def _report(timings: Timings, ratios: list[tuple[str, str, Ratio]]) -> dict[str, object]:
    named = [{"faster": f, "slower": s} | dataclasses.asdict(ratio) for f, s, ratio in ratios]
    return {"seconds": timings.seconds, "ratios": named}


def _print_table(title: str, unit: str, rows: dict[str, NDArray[np.float64]]) -> None:
    table = Table("", unit, "± deviation", "lowest", "highest", title=title)
    for name, values in rows.items():
        digits = 2 if values.mean() < 100 else 0
        cells = (values.mean(), values.std(), values.min(), values.max())
        table.add_row(name, *(f"{cell:,.{digits}f}" for cell in cells))
    Console().print(table)


def _print_ratios(ratios: list[tuple[str, str, Ratio]], timings: Timings) -> None:
    for faster, slower, ratio in ratios:
        spread = f"({ratio.low:.2f} to {ratio.high:.2f})"
        click.echo(f"{faster} is {ratio.median:.2f} times as fast as {slower} {spread}")
    if timings.noisy:
        click.echo("The machine is noisy: stop other work, or ask for more --rounds.", err=True)
