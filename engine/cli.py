"""`ars-engine`. Results go to stdout; progress and advice go to stderr."""

import dataclasses
import itertools
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from ars.command_line import Group, version_option
from ars.engine.devices import CPU
from ars.engine.inspection import inspect_file
from ars.engine.inventory import find_devices_for, take_inventory
from ars.engine.options import (
    FILE,
    DataOptions,
    ModelOptions,
    StoppingOptions,
    data_options,
    model_options,
    stopping_options,
)
from ars.engine.progress import RunProgress
from ars.engine.records.audit import audit as check_run
from ars.engine.records.results import FORMATS, write_records
from ars.engine.records.run import certify_run, check_unchanged, environment_of, read_examples, settings_of
from ars.engine.records.store import Store, read_records, stored_batch
from ars.engine.records.summary import Summary, summarize
from ars.engine.selftest import run_checks
from ars.engine.smoothed import SmoothedClassifier
from ars.engine.statistics.certificate import format_radius
from ars.engine.statistics.plan import Plan
from ars.engine.statistics.stopping import RADII, Grid
from ars.errors import DataError, RunError, StoreError
from ars.output import open_output, refuse_inputs

quiet_option = click.option("--quiet", is_flag=True, help="No progress and no advice.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
alpha_option = click.option("--alpha", type=float, default=0.001, show_default=True, help="Allowed share of errors.")


@click.group(cls=Group)
@version_option
def main() -> None:
    """Certify classifiers by anisotropic randomized smoothing."""


@main.command()
@model_options
@data_options
@click.option("--n0", type=click.IntRange(1), default=100, show_default=True, help="Draws that select the class.")
@click.option("--n", type=click.IntRange(1), default=100_000, show_default=True, help="Draws that bound its share.")
@alpha_option
@click.option("--two-sided", is_flag=True, help="Bound the runner-up's share too, instead of using 1 - pA.")
@stopping_options
@click.option("--out", type=FILE, help="The run store. Default: named after engine and data.")
@json_option
@quiet_option
def certify(
    model: ModelOptions,
    data: DataOptions,
    n0: int,
    n: int,
    alpha: float,
    two_sided: bool,
    stop: StoppingOptions,
    out: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Certify inputs into a run store. The same command again goes on where a run stopped."""
    plan = Plan(n0, n, alpha, two_sided, stop.question())
    with model.load(None) as classifier:
        source, ids = data.open(classifier)
        out = out or Path(f"{model.engine.name}.{source.name.replace(':', '-')}.sqlite")
        if out == Path("-"):
            raise StoreError(out, "a run store is a file", "give --out a name, and print it with `ars-engine results`")
        if not out.parent.is_dir():
            raise StoreError(out, "it cannot be written (there is no such folder)", "choose another --out")
        # A run that goes on keeps its batch size: it is one of the settings that decide the result.
        classifier.batch = model.batch or stored_batch(out)
        first = next(read_examples(source, ids, classifier.runner.classes, data.skipper(lambda error: None)), None)
        if first is None:
            raise DataError(source.name, "none of the chosen inputs can be read", "choose others")
        _prepare(classifier, model.engine, first[1].shape, quiet)
        settings = settings_of(classifier, source, plan)
        environment = environment_of(classifier, source) | data.origin(model)
        with Store(out, settings, environment, source.classes) as store:
            done = store.done()
            check_unchanged(source, {idx: done[idx] for idx in ids if idx in done}, out)
            left = [idx for idx in ids if idx not in done]
            if len(left) < len(ids) and not quiet:
                click.echo(f"{out}: {len(ids) - len(left)} of {len(ids)} inputs are certified already", err=True)
            try:
                with RunProgress(len(left), None if plan.question else n0 + n, quiet=quiet) as progress:
                    on_bad_input = data.skipper(lambda error: progress.say(f"Skipped: {error}"))
                    shape = first[1].shape
                    examples = read_examples(source, left, classifier.runner.classes, on_bad_input, shape)
                    for record in certify_run(classifier, examples, plan, store, progress.draws):
                        progress.input(record.correct)
                if classifier.batch and (full := progress.fullness(classifier.batch)) and not quiet:
                    click.echo(f"batches of {classifier.batch} were {full:.1%} full", err=True)
            except KeyboardInterrupt:
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # the batches at work are finished, and then it ends
                advice = "the same command goes on from there"
                click.echo(f"Stopped: {out} has {len(store.done())} certified inputs; {advice}.", err=True)
                classifier.close()
                sys.exit(130)
    chosen = set(ids)
    asked = plan.question.radii if isinstance(plan.question, Grid) else RADII
    summary = summarize((record for record in read_records(out) if record.idx in chosen), asked)
    _print_summary(summary, out, as_json, settled_early=isinstance(plan.question, Grid))


def _prepare(classifier: SmoothedClassifier, engine: Path, shape: tuple[int, ...], quiet: bool) -> None:
    """Get the classifier ready for inputs of that shape, and say what was found."""

    def say(text: str) -> None:
        if not quiet:
            click.echo(text, err=True)

    on_gpus = [device for device in classifier.devices if device.name != CPU]
    if classifier.why:
        say(f"backend {classifier.runner.name}: {classifier.why}")
    if classifier.runner.fixed_batch and not on_gpus:
        advice = "it runs slowly until it is exported with a dynamic batch axis"
        say(f"{engine} takes only batches of {classifier.runner.fixed_batch}; {advice}")
    classifier.prepare(shape)
    for note in classifier.notes:
        say(note)
    for device in on_gpus:
        say(f"{device.describe()}: {device.runner.name} {device.runner.version}, batches of {classifier.batch}")
    if classifier.measured_rate:
        chosen = f"batch {classifier.batch} with {classifier.threads} threads"
        say(f"{chosen}, the fastest here: {classifier.measured_rate:,.0f} draws/s")


def _print_summary(summary: Summary, out: Path, as_json: bool, *, settled_early: bool) -> None:
    if summary.nobody:
        click.echo(f"{summary.nobody} draws had logits that are not finite and voted for nobody", err=True)
    if as_json:
        click.echo(json.dumps({"store": str(out)} | dataclasses.asdict(summary), indent=2))
        return
    click.echo(f"{summary.inputs} inputs certified, {summary.abstained} of them abstained, {summary.draws:,} draws")
    if summary.labelled:
        for radius, share in summary.certified_accuracy.items():
            number = f"{radius:.2f}" if radius == round(radius, 2) < 1e6 else str(radius)
            click.echo(f"certified accuracy at radius {number}  {share:6.1%}")
            if share == 0:
                break  # and so for every larger radius
        least = "at least " if settled_early else ""  # inputs have stopped before their radius was all that it could be
        click.echo(f"average certified radius {least}{format_radius(summary.average_certified_radius)}")
    click.echo(f"every certificate: ars-engine results {out}")


@main.command()
@model_options
@data_options
@click.option("--n", type=click.IntRange(1), default=1000, show_default=True, help="Draws for each input.")
@alpha_option
@json_option
@quiet_option
def predict(model: ModelOptions, data: DataOptions, n: int, alpha: float, as_json: bool, quiet: bool) -> None:
    """Print the smoothed classifier's answers, -1 where it abstains."""
    labels: dict[int, int | None] = {}
    with model.load(model.batch) as classifier:
        source, ids = data.open(classifier)
        on_bad_input = data.skipper(lambda error: click.echo(f"Skipped: {error}", err=True))
        examples = read_examples(source, ids, classifier.runner.classes, on_bad_input)
        first = next(examples, None)
        if first is None:
            raise DataError(source.name, "none of the chosen inputs can be read", "choose others")
        _prepare(classifier, model.engine, first[1].shape, quiet)

        def numbered() -> Iterator[tuple[int, NDArray[np.float32]]]:
            for idx, x, label in itertools.chain([first], examples):
                labels[idx] = label
                yield idx, x

        if not as_json:
            click.echo("idx\tlabel\tpredict\tcorrect")
        for finished in classifier.predict_many(numbered(), n=n, alpha=alpha):
            label, answer = labels.pop(finished.input_id), finished.result
            correct = None if label is None else int(answer.predicted == label)
            row = {"idx": finished.input_id, "label": label, "predict": answer.predicted, "correct": correct}
            if as_json:
                click.echo(json.dumps(row | {"counts": answer.counts}))
            else:
                click.echo("\t".join("" if value is None else str(value) for value in row.values()))


@main.command()
@click.argument("store", type=FILE)
@click.option("--format", "form", type=click.Choice(FORMATS), default="tsv", show_default=True)
@click.option("-o", "--output", type=FILE, default=Path("-"), help="Where to; - is stdout.")
def results(store: Path, form: str, output: Path) -> None:
    """Print the certificates of a run, the field's own columns first."""
    refuse_inputs(output, [store])
    with open_output(output) as file:
        for piece in write_records(read_records(store), form):
            file.write(piece)


@main.command()
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
        click.echo(f"another machine part: {part}")
    for difference in found.differences:
        click.echo(f"difference: {difference}")
    click.echo(f"{found.recomputed} certificates computed again from their votes, {found.redrawn} drawn again")
    if found.differences:
        raise RunError(f"{store}: the record does not hold; what differs is listed above")
    click.echo("the record holds")


@main.command()
@click.argument("file", type=FILE)
@json_option
def inspect(file: Path, as_json: bool) -> None:
    """Say what a model file or a run store is."""
    facts = inspect_file(file)
    if as_json:
        click.echo(json.dumps(facts, indent=2))
    else:
        width = max(map(len, facts))
        for name, value in facts.items():
            click.echo(f"{name:<{width}}  {value}")


@main.command()
@click.option("--engine", type=FILE, help="Say also where this model loads.")
def devices(engine: Path | None) -> None:
    """Say what can run here, and for what cannot, why, and what to install."""
    for item in take_inventory():
        click.echo(f"{item.name:<15} {'ready' if item.ready else 'missing':<8} {item.details}")
    for item in find_devices_for(engine) if engine else ():
        click.echo(f"{item.name:<15} {'fits' if item.ready else 'refuses':<8} {item.details}")


@main.command()
@click.option("--device", default=CPU, show_default=True, help="cpu, or a GPU like cuda:0.")
def selftest(device: str) -> None:
    """Check that a device computes what it must: noise, votes, a model, a certificate."""
    failed = 0
    for check in run_checks(device):
        click.echo(f"{device:<8} {check.name:<24} {'ok' if check.passed else 'FAILED':<7} {check.said}")
        failed += not check.passed
    if failed:
        raise RunError(f"{device} failed {failed} checks; do not certify with it")
