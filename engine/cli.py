"""`ars-engine`. Results go to stdout; progress and advice go to stderr."""

import dataclasses
import itertools
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, redirect_stdout
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from ars.command_line import Group, version_option
from ars.engine.cluster import Cluster
from ars.engine.decisions.commands import check, compare, summary
from ars.engine.decisions.show import radius_head
from ars.engine.devices import CPU
from ars.engine.examples import FromData
from ars.engine.inspection import inspect_file
from ars.engine.inventory import find_devices_for, take_inventory
from ars.engine.options import (
    FILE,
    ClusterOptions,
    ModelOptions,
    StoppingOptions,
    cluster_options,
    inputs_options,
    model_options,
    stopping_options,
)
from ars.engine.progress import TerminalProgress
from ars.engine.records.audit import audit as check_run
from ars.engine.records.covers import check_coverage
from ars.engine.records.inputs import Inputs, doubts, find_shape, read_inputs
from ars.engine.records.merge import merge_runs
from ars.engine.records.reopen import refuse_runs
from ars.engine.records.results import FORMATS, TABLE_FORMATS, read_results, write_results, write_table
from ars.engine.records.run import RunResult, certify_run
from ars.engine.records.store import read_header
from ars.engine.selftest import run_checks
from ars.engine.smoothed import PREDICTION_N, SmoothedClassifier
from ars.engine.statistics.certificate import REAL_ARITHMETIC, format_radius
from ars.engine.statistics.plan import Plan
from ars.engine.statistics.stopping import Grid
from ars.engine.statistics.target import Target
from ars.errors import ArgumentError, RunError, StoreError
from ars.noise import NoiseKind
from ars.noise.norms import norm_name
from ars.output import is_stdout, open_output, replacing
from ars.printable import printable

quiet_option = click.option("--quiet", is_flag=True, help="No progress and no advice.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
on_error_option = click.option(
    "--on-error", type=click.Choice(["fail", "skip"]), default="fail", show_default=True, help="At a bad input."
)
alpha_option = click.option(
    "--alpha", type=float, default=Plan.alpha, show_default=True, help="Allowed probability of an error."
)


@click.group(
    cls=Group,
    examples=[
        "ars-engine certify --engine model.onnx --data cifar10:test --sigma 0.25",
        "ars-engine results run.sqlite",
    ],
)
@version_option
def main() -> None:
    """Certify classifiers by anisotropic randomized smoothing."""


main.add_command(summary)
main.add_command(compare)
main.add_command(check)


@main.command(
    examples=[
        "ars-engine certify --engine model.onnx --data test.npz --sigma 0.25",
        "ars-engine certify --engine exported/model.onnx --data photos/ --skip 20",
        "ars-engine certify --engine model.onnx --data test.npz --stopping adaptive",
    ],
)
@model_options
@inputs_options
@on_error_option
@click.option("--n0", type=click.IntRange(1), default=Plan.n0, show_default=True, help="Draws that select the class.")
@click.option("--n", type=click.IntRange(1), default=Plan.n, show_default=True, help="Draws that bound its share.")
@alpha_option
@click.option(
    "--bounds",
    type=click.Choice(["two-sided", "binary"]),
    default="two-sided",
    show_default=True,
    help="Bound the runner-up's share too, or use 1 - pA for it (the paper's algorithm).",
)
@stopping_options
@click.option("--only-correct", is_flag=True, help="End an input after selection if its class is wrong.")
@click.option(
    "--target-width", type=float, help="Take inputs in random order until certified accuracy is known this closely."
)
@click.option("--target-radii", help="At these radii, like 0.5,1. Default: all that the summary shows.")
@cluster_options
@click.option("--out", type=FILE, help="The run store. Default: named after engine, data and noise.")
@json_option
@quiet_option
def certify(
    model: ModelOptions,
    inputs: Inputs,
    on_error: str,
    n0: int,
    n: int,
    alpha: float,
    bounds: str,
    stop: StoppingOptions,
    only_correct: bool,
    target_width: float | None,
    target_radii: str | None,
    on: ClusterOptions,
    out: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Certify inputs into a run store. The same command again resumes a run that was stopped."""
    fixed = Plan(n0, n, alpha, bounds == "two-sided")
    stop.apply(fixed, Grid)  # says what is wrong with the options before the model is opened
    if out == Path("-"):
        raise StoreError(out, "a run store is a file", "give --out a name, and print it with `ars-engine results`")
    with ExitStack() as owned:
        cluster = on.make()
        if cluster is not None:
            if model.threads is not None:
                raise ArgumentError("threads", model.threads, "on a cluster, --worker-cpus says it")
            model = dataclasses.replace(model, threads=cluster.threads(model.device))
            owned.enter_context(redirect_stdout(sys.stderr))  # Ray prints there what it says of dead workers
            owned.enter_context(cluster)
        classifier = owned.enter_context(model.load())
        progress = owned.enter_context(TerminalProgress(classifier, quiet=quiet, on_cluster=cluster is not None))
        progress.describe_model()
        plan = stop.apply(fixed, classifier.usual_question)
        target = _make_target(target_width, target_radii, plan, classifier)
        try:
            result = certify_run(
                classifier,
                inputs,
                plan,
                store=out,
                skip_bad_inputs=on_error == "skip",
                only_correct=only_correct,
                target=target,
                cluster=cluster,
                progress=progress,
            )
        except KeyboardInterrupt:
            if progress.done is None:
                raise
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second Ctrl-C does not wait for the batches under way
            click.echo(f"Stopped: {progress.done} inputs are certified; the same command resumes the run.", err=True)
            owned.close()
            sys.exit(130)
    if result.fullness and not quiet:
        click.echo(f"batches of {result.batch} were {result.fullness:.1%} full", err=True)
    if classifier.noise_stream == 1:
        click.echo(REAL_ARITHMETIC, err=as_json)
    norm, kind = norm_name(classifier.family.norm), classifier.noise.kind
    _print_summary(result, as_json, norm, kind, target, settled_early=plan.question is not None)


def _make_target(width: float | None, radii: str | None, plan: Plan, classifier: SmoothedClassifier) -> Target | None:
    if width is None:
        if radii is not None:
            raise ArgumentError("target_radii", radii, "it is for --target-width")
        return None
    if radii is not None:
        return Target(width, Grid.parse(radii).radii)
    return Target(width, (plan.question or classifier.usual_question()).radii)


def _print_summary(
    result: RunResult, as_json: bool, norm: str, kind: NoiseKind, target: Target | None, *, settled_early: bool
) -> None:
    summary = result.summary
    if summary.nobody:
        click.echo(f"{summary.nobody} draws had logits that are not finite and voted for nobody", err=True)
    if as_json:
        click.echo(json.dumps({"store": str(result.store), "norm": norm} | dataclasses.asdict(summary), indent=2))
        return
    if target is not None:
        enough = f"{summary.inputs} inputs in random order were enough for intervals of the width {target.width:g}"
        click.echo(f"{enough}: ars-engine summary {result.store}")
    click.echo(f"{summary.inputs} inputs certified, {summary.abstained} of them abstained, {summary.draws:,} draws")
    if ended := summary.ended_after_selection:
        what = "1 input ended after selection: its" if ended == 1 else f"{ended} inputs ended after selection: their"
        click.echo(f"{what} class was wrong")
    if summary.labelled:
        for radius, share in summary.certified_accuracy.items():
            click.echo(f"certified accuracy at radius {radius_head(radius)}  {share:6.1%}")
            if share == 0:
                break  # it is 0 at every larger radius too
        least = "at least " if settled_early else ""  # more draws would have proved larger radii
        click.echo(
            f"average certified radius {least}{format_radius(summary.average_certified_radius)} in the {norm} norm"
        )
        if kind is not NoiseKind.ISOTROPIC:
            volume = format_radius(summary.average_volume_radius)
            click.echo(f"average volume-equivalent radius {least}{volume}, scope {kind.scope}")
    click.echo(f"every certificate: ars-engine results {result.store}")


@main.command(
    examples=[
        "ars-engine predict --engine model.onnx --data test.npz --sigma 0.25 --limit 10",
    ],
)
@model_options
@inputs_options
@on_error_option
@click.option("--n", type=click.IntRange(1), default=PREDICTION_N, show_default=True, help="Draws for each input.")
@alpha_option
@json_option
@quiet_option
def predict(
    model: ModelOptions, inputs: Inputs, on_error: str, n: int, alpha: float, as_json: bool, quiet: bool
) -> None:
    """Print the smoothed classifier's answers, -1 where it abstains."""
    labels: dict[int, int | None] = {}
    skip = on_error == "skip"
    with model.load() as classifier, TerminalProgress(classifier, quiet=quiet) as progress:
        source, ids = inputs.open(classifier.channels)
        progress.describe_model()
        for doubt in doubts(source, classifier.runner.classes):
            progress.warn(doubt)
        shape = find_shape(source, ids, classifier.runner.classes, skip_bad_inputs=skip)
        progress.describe_batch(classifier.prepare(shape))
        progress.describe_seed(classifier.seed)

        def numbered() -> Iterator[tuple[int, NDArray[np.float32]]]:
            on_bad_input = progress.skipped if skip else None
            for one in read_inputs(source, ids, classifier.runner.classes, on_bad_input, shape):
                labels[one.idx] = one.label
                yield one.idx, one.x

        if not as_json:
            click.echo("idx\tlabel\tpredict\tcorrect")
        for finished in classifier.predict_many(FromData(numbered()), n=n, alpha=alpha):
            label, answer = labels.pop(finished.input_id), finished.result
            correct = None if label is None else int(answer.predicted == label)
            row = {"idx": finished.input_id, "label": label, "predict": answer.predicted, "correct": correct}
            if as_json:
                click.echo(json.dumps(row | {"counts": answer.counts}))
            else:
                click.echo("\t".join("" if value is None else str(value) for value in row.values()))


@main.command(
    examples=[
        "ars-engine results run.sqlite",
        "ars-engine results run.sqlite --norm inf --format csv -o run.csv",
    ],
)
@click.argument("store", type=FILE)
@click.option(
    "--norm", type=click.Choice(["1", "2", "inf"]), help="The norm of the radii. Default: the noise family's."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS + TABLE_FORMATS),
    default="tsv",
    show_default=True,
    help="The form of the table.",
)
@click.option("-o", "--output", type=FILE, default=Path("-"), help="The output file; - is stdout.")
def results(store: Path, form: str, norm: str | None, output: Path) -> None:
    """Print the certificates of a run, with the field's usual columns first."""
    refuse_runs(output, [store])
    if read_header(store).settings.noise_stream == 1:
        click.echo(REAL_ARITHMETIC, err=True)
    found = read_results(store, None if norm is None else float(norm))
    if form in TABLE_FORMATS:
        if is_stdout(output):
            raise ArgumentError("format", form, "it is not text; say with --output which file to write")
        with replacing(output) as place:
            write_table(found, form, place)
        return
    with open_output(output) as file:
        for piece in write_results(found, form):
            file.write(piece)


@main.command(
    examples=[
        "ars-engine merge shard-*.sqlite -o run.sqlite",
    ],
)
@click.argument("stores", type=FILE, nargs=-1, required=True)
@click.option("-o", "--output", type=FILE, required=True, help="The new run store.")
def merge(stores: tuple[Path, ...], output: Path) -> None:
    """Join stores of one run, like the shards of `certify --shard`, into a new one."""
    number = merge_runs(stores, output)
    click.echo(f"{output}: {number} certified inputs of {len(stores)} stores")


@main.command(
    examples=[
        "ars-engine audit run.sqlite",
        "ars-engine audit run.sqlite --sample 100 --data elsewhere/test.npz",
    ],
)
@click.argument("store", type=FILE)
@click.option("--sample", type=click.IntRange(1), default=20, show_default=True, help="Inputs to draw again.")
@click.option("--engine", type=FILE, help="Where the classifier is now. Default: where the run had it.")
@click.option("--data", help="Where the data is now. Default: where the run had it.")
@click.option("--device", help="Draw again there: cpu, cuda:0. Default: as certify chooses it.")
@quiet_option
def audit(store: Path, sample: int, engine: Path | None, data: str | None, device: str | None, quiet: bool) -> None:
    """Check a run: that each certificate follows from its votes, and that a sample votes the same when drawn again."""
    done = itertools.count(1)

    def say_input() -> None:
        if not quiet:
            click.echo(f"{next(done)} inputs drawn again", err=True)

    found = check_run(store, sample=sample, engine=engine, data=data, device=device, on_input=say_input)
    for part in found.machine:
        click.echo(f"different environment: {printable(part)}")
    for difference in found.differences:
        click.echo(f"difference: {printable(difference)}")
    click.echo(f"{found.recomputed} certificates computed again from their votes, {found.redrawn} drawn again")
    if found.differences:
        raise RunError(f"{store}: the record does not hold; what differs is listed above")
    click.echo("the record holds")


@main.command(
    examples=[
        "ars-engine covers run.sqlite --input 3 --perturbed adversarial.png",
    ],
)
@click.argument("store", type=FILE)
@click.option("--input", "idx", type=click.IntRange(0), required=True, help="The number of a certified input.")
@click.option(
    "--perturbed", type=FILE, required=True, help="This input, perturbed: an image, an .npy, or x in an .npz file."
)
@click.option("--engine", type=FILE, help="Where the classifier is now. Default: where the run had it.")
@click.option("--noise", type=FILE, help="Where the noise generator or the maps are now. Default: as the run had them.")
@click.option("--data", help="Where the data is now. Default: where the run had it.")
@click.pass_context
def covers(
    context: click.Context,
    store: Path,
    idx: int,
    perturbed: Path,
    engine: Path | None,
    noise: Path | None,
    data: str | None,
) -> None:
    """Say whether a perturbed input is inside the certified region of a run's input. Exit status: 0 if it is, 1 if it
    is not, 2 if the question cannot be answered."""
    found = check_coverage(store, idx, perturbed, engine=engine, noise=noise, data=data)
    if assumption := found.record.certificate.assumption:
        click.echo(assumption, err=True)
    click.echo(printable(found.describe(perturbed)))
    context.exit(0 if found.covered else 1)


@main.command(
    examples=[
        "ars-engine inspect model.onnx",
        "ars-engine inspect run.sqlite --json",
    ],
)
@click.argument("file", type=FILE)
@json_option
def inspect(file: Path, as_json: bool) -> None:
    """Say what a model file or a run store is."""
    facts = inspect_file(file)
    if as_json:
        click.echo(json.dumps(facts, indent=2))
    else:
        shown = {printable(name): printable(value) for name, value in facts.items()}
        width = max(map(len, shown))
        for name, value in shown.items():
            click.echo(f"{name:<{width}}  {value}")


@main.command(
    examples=[
        "ars-engine devices",
        "ars-engine devices --engine model.onnx",
    ],
)
@click.option("--engine", type=FILE, help="Say also where this model loads.")
@click.option("--cluster", help="List the computers of this Ray cluster instead.")
def devices(engine: Path | None, cluster: str | None) -> None:
    """List what can run here; for what cannot, say why and what to install."""
    if cluster is not None:
        with Cluster(cluster) as opened:
            for node in opened.nodes():
                click.echo(f"{node.name:<25} {node.cores} cores, {node.gpus} GPUs, {node.memory / 2**30:.1f} GiB")
        return
    for item in take_inventory():
        click.echo(f"{item.name:<15} {'ready' if item.ready else 'missing':<8} {item.details}")
    for item in find_devices_for(engine) if engine else ():
        click.echo(f"{item.name:<15} {'fits' if item.ready else 'refuses':<8} {item.details}")


@main.command(
    examples=[
        "ars-engine selftest",
        "ars-engine selftest --device cuda:0",
    ],
)
@click.option("--device", default=CPU, show_default=True, help="cpu, or a GPU like cuda:0.")
def selftest(device: str) -> None:
    """Check that a device computes noise, votes, a model and a certificate as it must."""
    failed = 0
    for done in run_checks(device):
        click.echo(f"{device:<8} {done.name:<28} {'ok' if done.passed else 'FAILED':<7} {done.said}")
        failed += not done.passed
    if failed:
        raise RunError(f"{device} failed {failed} checks; do not certify with it")
