"""The page of a reproduction: our tables with intervals, the published rows beside them, and what is missing."""

import dataclasses
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from ars.bench.paper import published
from ars.bench.paper.tables import markdown_table
from ars.bench.reproduce.attacks import show_attacks
from ars.bench.reproduce.figure2 import draw_inputs
from ars.bench.reproduce.files import Folder
from ars.bench.reproduce.presets import Wanted
from ars.bench.reproduce.verdicts import Certified, best_over_sigma, reasons, verdicts
from ars.bench.stopping.replay import Votes
from ars.engine.decisions.overview import Accuracy, describe_level, overview
from ars.engine.decisions.show import percent, show_interval
from ars.engine.records.record import Record
from ars.engine.records.stored_run import Run
from ars.engine.statistics.accuracy import average_interval
from ars.engine.statistics.certificate import format_radius, format_upper
from ars.engine.statistics.looks import take_look
from ars.output import is_stdout, open_output

__all__ = ["make_page", "write_page"]


def write_page(folder: Folder, test: Path, command: str, output: Path) -> None:
    """Write the page, and beside it its figures, as far as there are runs for them: the curves of all models of the
    tables, and the paper's Figure 2."""
    first = folder.preset.certifications[0]
    runs = [run for model in folder.preset.models if (run := folder.run(model, first)) is not None]
    with open_output(output) as file:
        pictures = dict[str, str]()
        if runs and not is_stdout(output):
            from ars.bench.report.figures import plot_accuracy

            curves, inputs = output.with_suffix(".svg"), output.with_name(f"{output.stem}-inputs.png")
            plot_accuracy(runs, curves)
            pictures["curves"] = curves.name
            draw_inputs(folder, test, inputs)
            if inputs.exists():
                pictures["inputs"] = inputs.name
        file.write(make_page(folder, command, pictures))


def make_page(folder: Folder, command: str, pictures: Mapping[str, str]) -> str:
    """The page as Markdown. `command` makes it, and `pictures` has the paths of the figures that there are, relative to
    the page."""
    preset = folder.preset
    theirs = next(table for table in published.accuracy_tables() if table.data == preset.data)
    certified = list(_certified(folder, folder.preset.models, theirs.radii))
    best = {kind: best_over_sigma([one for one in certified if one.model.kind == kind]) for kind in preset.kinds}
    parts = [
        f"# The paper's experiments on {preset.data}\n",
        f"This page was written by a command, which trains, exports, certifies and resumes:\n\n    {command}\n",
        f"The preset is {preset.about}: {preset.network}, {preset.draws} draws for each image, "
        f"{preset.epochs} epochs. The paper is Hong and Hong, Certified Adversarial Robustness via Anisotropic "
        "Randomized Smoothing, 2022. Certificates of isotropic noise have scope *global*: they are about the deployed "
        "classifier. Those of input-wise noise have scope *frozen*: they are about the classifier whose noise is "
        "frozen at each input's maps, and a comparison of the two compares different guarantees.\n",
        f"## Models\n\n{_models(folder)}\n",
    ]
    missing = [model.name for model in preset.models if model not in {one.model for one in certified}]
    if missing:
        parts.append(f"**Missing: {', '.join(missing)}.** Their rows are not in the tables below.\n")
    others = {one.model: folder.otherwise(one.model) for one in certified if folder.otherwise(one.model)}
    if others:
        named = "; ".join(f"{model.name} ({', '.join(how)})" for model, how in others.items())
        parts.append(f"**Not trained as the preset asks: {named}.** A star marks their rows.\n")
    parts.append(
        f"## {theirs.table}: certified accuracy\n\n{_accuracies(preset.network, certified, others, best, theirs)}\n"
    )
    if "curves" in pictures:
        parts.append(f"![Certified accuracy by radius]({pictures['curves']})\n")
    parts.append(f"## Average certified radius\n\n{_averages(certified, others)}\n")
    parts.append(
        "## What agrees with the paper\n\n" + "\n".join(f"- {line}" for line in verdicts(certified, best, theirs))
    )
    if why := "; ".join(reasons(preset, theirs, incomplete=bool(missing))):
        parts.append(f"\nDifferences are to be expected: {why}.")
    parts.append(f"\n## Table 3: after an attack\n\n{show_attacks(folder)}\n")
    if "inputs" in pictures:
        parts.append(
            "## Figure 2: the noise of five images\n\nThe images, the maps that the generator makes of them, draws "
            "with these maps, and draws with the same noise at the smallest scale of the map everywhere.\n\n"
            f"![Five images, their noise maps, and noisy copies]({pictures['inputs']})\n"
        )
    parts.append(f"## Laplace noise\n\n{_laplace(folder, theirs.radii)}\n")
    return "\n".join(parts)


def _certified(folder: Folder, models: Sequence[Wanted], radii: Sequence[float]) -> Iterator[Certified]:
    first, last = folder.preset.certifications[0], folder.preset.certifications[-1]
    for model in models:
        run = folder.run(model, first)
        if run is not None:
            yield Certified(model, overview(run, radii), folder.run(model, last))


def _models(folder: Folder) -> str:
    heads = ["model", "epochs", "draws", "consistency", "precision", "accuracy under noise", "hours", "state"]
    rows = []
    for model in folder.preset.models:
        training, progress = folder.training(model), folder.epochs(model)
        if training is None:
            rows.append([model.name, *["–"] * (len(heads) - 2), "not trained"])
            continue
        plan, metrics = training.get("plan", {}), training.get("metrics", {})
        state = "trained" if progress.finished else f"epoch {progress.done} of {progress.total}"
        if folder.run(model, folder.preset.certifications[0]) is not None:
            done = folder.certified(model, folder.preset.certifications[0])
            state = "certified" if done.finished else f"{done.done:,} of {done.total:,} inputs certified"
        hours = folder.hours(model)
        rows.append(
            [
                model.name,
                *(str(plan.get(name, "–")) for name in ("epochs", "draws", "consistency", "precision")),
                f"{metrics['accuracy']:.1%}" if "accuracy" in metrics else "–",
                "–" if hours is None else f"{hours:.1f}",
                state,
            ]
        )
    return markdown_table(heads, rows)


def _accuracies(
    network: str,
    certified: Sequence[Certified],
    others: Collection[Wanted],
    best: dict[str, list[Accuracy]],
    theirs: published.AccuracyTable,
) -> str:
    heads = ["", "network", "scope", "inputs", *(f"{radius:.2f}" for radius in theirs.radii)]
    rows = []
    for one in certified:
        found = [f"{percent(at.share)} ({show_interval(at.interval)})" for at in one.table.accuracies]
        rows.append([_starred(one.model, others), network, one.table.scope, f"{one.table.inputs:,}", *found])
    for kind, row in best.items():
        if row:
            rows.append([f"best of {kind}", network, "", "", *(percent(at.share) for at in row)])
    for one_of_theirs in theirs.rows:
        shown = ["–" if value is None else f"{value:g}" for value in one_of_theirs.percent]
        name = f"{one_of_theirs.method}, best over sigma"
        rows.append([name, one_of_theirs.network, one_of_theirs.scope, "", *shown])
    if not certified:
        return f"No model has been certified yet. The published figures:\n\n{markdown_table(heads, rows)}\n"
    plan = certified[0].table
    bounds = "two-sided" if plan.two_sided else "binary"
    how = f"n = {plan.n:,}, alpha = {plan.alpha:g}, {bounds} bounds, {plan.stopping} stopping"
    notes = [f"{one.model.name}: {note}." for one in certified for note in one.table.notes]
    text = [
        f"Certified accuracy in percent by l2 radius ({how}), with the interval over inputs in parentheses. "
        f"{describe_level([one.table for one in certified])} The best over sigma0 is chosen on the same inputs, "
        f"which favours it slightly; the published rows are chosen so too.\n",
        markdown_table(heads, rows),
        *([""] if notes else []),
        *notes,
    ]
    return "\n".join(text) + "\n"


def _starred(model: Wanted, others: Collection[Wanted]) -> str:
    return f"{model.name} \\*" if model in others else model.name


def _averages(certified: Sequence[Certified], others: Collection[Wanted]) -> str:
    runs = [(one.model, one.average) for one in certified if one.average is not None]
    if not runs:
        return "No run at fixed n has been made yet.\n"
    heads = ["model", "scope", "inputs", "n", "ACR, binary bounds", "ACR, two-sided bounds", "of isotropic"]
    found = {model: _average(run, two_sided=False) for model, run in runs}
    rows = []
    for model, run in runs:
        acr, both = found[model][0], _average(run, two_sided=True)[0]
        base = found.get(Wanted("isotropic", model.sigma0))
        ratio = f"{acr / base[0]:.2f}" if base and base[0] and model.kind != "isotropic" else ""
        rows.append(
            [
                _starred(model, others),
                run.scope,
                f"{len(run.records):,}",
                f"{run.header.settings.plan.n:,}",
                _show_average(found[model]),
                format_radius(both),
                ratio,
            ]
        )
    text = (
        "The average radius over all inputs, where wrong answers and abstentions count 0, with a bootstrap interval "
        "over inputs. It needs fixed n; with fewer draws than the paper's 100,000, large radii are out of reach and "
        "the average is lower. Both columns come from the same votes.\n\n"
    )
    return text + markdown_table(heads, rows) + "\n"


def _average(run: Run, *, two_sided: bool) -> tuple[float, float, float]:
    """The average certified radius of the votes of a run at fixed n, and its interval."""
    values = [_radius(record, two_sided=two_sided) for record in run.records]
    interval = average_interval(values, run.header.sampling.data_inputs)
    return math.fsum(values) / len(values), interval.low, interval.high


def _show_average(average: tuple[float, float, float]) -> str:
    acr, low, high = average
    return f"{format_radius(acr)} ({format_radius(low)}–{format_upper(high)})"


def _radius(record: Record, *, two_sided: bool) -> float:
    made = record.certificate
    if made.n == 0 or made.selected != record.label:
        return 0.0
    votes = Votes(record.label, dataclasses.replace(made, two_sided=two_sided), ())
    return max(0.0, votes.radius_at_n(take_look(made.counts, made.selected)))


def _laplace(folder: Folder, radii: Sequence[float]) -> str:
    """The models of the extension, at l1 radii."""
    names = " and ".join(model.name for model in folder.preset.extension)
    found = list(_certified(folder, folder.preset.extension, radii))
    if not found:
        return f"Not made yet: it needs {names}."
    heads = ["", "scope", "inputs", *(f"{radius:.2f}" for radius in radii), "ACR"]
    rows = []
    for one in found:
        shares = [f"{percent(at.share)} ({show_interval(at.interval)})" for at in one.table.accuracies]
        average = "–" if one.average is None else _show_average(_average(one.average, two_sided=False))
        rows.append([one.model.name, one.table.scope, f"{one.table.inputs:,}", *shares, average])
    return (
        "The paper extends its theorem to Laplace noise (Theorem 7.1), with radii in l1, and has no figures for it. "
        "Certified accuracy in percent by l1 radius, with the same draws, bounds and intervals as above.\n\n"
        f"{markdown_table(heads, rows)}\n"
    )
