"""`ars-engine`. Results go to stdout; progress and advice go to stderr."""

import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import click
import numpy as np
from numpy.typing import NDArray

from ars.command_line import Group, version_option
from ars.engine.algorithms import Plan
from ars.engine.certificate import format_radius
from ars.engine.inspection import inspect_model, inspect_store, list_parts
from ars.engine.options import FILE, DataOptions, ModelOptions, data_options, model_options
from ars.engine.progress import RunProgress
from ars.engine.results import FORMATS, write_records
from ars.engine.run import certify_run, environment_of, read_examples, settings_of
from ars.engine.store import Store, read_records, read_settings
from ars.engine.summary import Summary, summarize
from ars.errors import DataError

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
    out: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Certify inputs into a run store. The same command again goes on where a run stopped."""
    plan = Plan(n0, n, alpha, two_sided)
    source, ids = data.open()
    out = out or Path(f"{model.engine.stem}.{source.name.replace(':', '-')}.sqlite")
    on_bad_input = _say_skipped if data.on_error == "skip" else None
    # A run that goes on keeps its batch size: it is one of the settings that decide the result.
    resumes = out.exists() and out.stat().st_size > 0
    batch = model.batch or (int(str(read_settings(out)[0]["batch"])) if resumes else None)
    with model.load(batch) as classifier:
        if classifier.runner.fixed_batch and not quiet:
            advice = "it runs slowly until it is exported with a dynamic batch axis"
            click.echo(f"{model.engine} takes only batches of {classifier.runner.fixed_batch}; {advice}", err=True)
        first = next(read_examples(source, ids, classifier.runner.classes, on_bad_input and _ignore), None)
        if first is not None:
            classifier.prepare(first[1].shape)
        if classifier.measured_rate and not quiet:
            rate = f"{classifier.measured_rate:,.0f} draws/s"
            click.echo(
                f"batch {classifier.batch} with {classifier.threads} threads, the fastest here: {rate}", err=True
            )
        settings = settings_of(classifier, source, plan)
        with Store(out, settings, environment_of(source), source.classes) as store:
            done = store.done()
            left = [idx for idx in ids if idx not in done]
            if len(left) < len(ids) and not quiet:
                click.echo(f"{out}: {len(ids) - len(left)} of {len(ids)} inputs are certified already", err=True)
            examples = read_examples(source, left, classifier.runner.classes, on_bad_input)
            try:
                with RunProgress(len(left), quiet=quiet) as progress:
                    for record in certify_run(classifier, examples, plan, store):
                        progress.add(record.draws, record.correct)
            except KeyboardInterrupt:
                advice = "the same command goes on from there"
                click.echo(f"Stopped: {out} has {len(store.done())} certified inputs; {advice}.", err=True)
                sys.exit(130)
    chosen = set(ids)
    summary = summarize(record for record in read_records(out) if record.idx in chosen)
    _print_summary(summary, out, as_json)


def _say_skipped(error: DataError) -> None:
    click.echo(f"Skipped: {error}", err=True)


def _ignore(error: DataError) -> None:
    """It will be met again, and said then."""


def _print_summary(summary: Summary, out: Path, as_json: bool) -> None:
    if summary.nobody:
        click.echo(f"{summary.nobody} draws had logits that are not finite and voted for nobody", err=True)
    if as_json:
        click.echo(json.dumps({"store": str(out)} | dataclasses.asdict(summary), indent=2))
        return
    click.echo(f"{summary.inputs} inputs certified, {summary.abstained} of them abstained, {summary.draws:,} draws")
    if summary.labelled:
        for radius, share in summary.certified_accuracy.items():
            click.echo(f"certified accuracy at radius {radius:.2f}  {share:6.1%}")
            if share == 0:
                break  # and so for every larger radius
        click.echo(f"average certified radius {format_radius(summary.average_certified_radius)}")
    click.echo(f"every certificate: ars-engine results {out}")


@main.command()
@model_options
@data_options
@click.option("--n", type=click.IntRange(1), default=1000, show_default=True, help="Draws for each input.")
@alpha_option
@json_option
def predict(model: ModelOptions, data: DataOptions, n: int, alpha: float, as_json: bool) -> None:
    """Print the smoothed classifier's answers, -1 where it abstains."""
    source, ids = data.open()
    labels: dict[int, int | None] = {}
    with model.load(model.batch) as classifier:
        on_bad_input = _say_skipped if data.on_error == "skip" else None

        def numbered() -> Iterator[tuple[int, NDArray[np.float32]]]:
            for idx, x, label in read_examples(source, ids, classifier.runner.classes, on_bad_input):
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
@click.option("-o", "--output", type=click.File("w", atomic=True), default="-", help="Where to; - is stdout.")
def results(store: Path, form: str, output: TextIO) -> None:
    """Print the certificates of a run, the field's own columns first."""
    for piece in write_records(read_records(store), form):
        output.write(piece)


@main.command()
@click.argument("file", type=FILE)
@json_option
def inspect(file: Path, as_json: bool) -> None:
    """Say what a model file or a run store is."""
    facts = inspect_store(file) if file.suffix == ".sqlite" else inspect_model(file)
    if as_json:
        click.echo(json.dumps(facts, indent=2))
    else:
        width = max(map(len, facts))
        for name, value in facts.items():
            click.echo(f"{name:<{width}}  {value}")


@main.command()
def devices() -> None:
    """Say what can run here, and for what cannot, why, and what to install."""
    for part, state, what in list_parts():
        click.echo(f"{part:<12} {state:<8} {what}")
