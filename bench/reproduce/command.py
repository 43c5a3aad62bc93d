"""The command `ars-bench reproduce`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from ars.bench.reproduce.presets import Preset, Wanted, find_preset
from ars.command_line import Command
from ars.errors import RunError, UnknownName

if TYPE_CHECKING:
    from ars.bench.reproduce.steps import Step

PATH = click.Path(path_type=Path)


@click.command(
    cls=Command,
    examples=[
        "ars-bench reproduce cifar10 --data cifar10/ --plan",
        "ars-bench reproduce cifar10 --data cifar10/ --models isotropic-0.5",
    ],
)
@click.argument("experiment", type=click.Choice(["cifar10", "imagenet"]))
@click.option("--preset", "name", default="cpu", show_default=True, help="cpu, or paper for GPUs.")
@click.option("--data", type=PATH, required=True, help="The folder of training and test data.")
@click.option("--test", type=PATH, help="The test data. Default: test, val, test_batch.bin or test.npz in --data.")
@click.option("--folder", type=PATH, help="For models and run stores. Default: EXPERIMENT-PRESET.")
@click.option("--models", help="Only these, like isotropic-0.5,input-0.5. Default: all of the preset.")
@click.option("--plan", "only_plan", is_flag=True, help="Print the plan with its commands, and run nothing.")
@click.option("--page", "only_page", is_flag=True, help="Write the page from what is there, and run nothing.")
@click.option("-o", "--output", type=PATH, help="The page, as Markdown. Default: paper.md in the folder.")
def reproduce(
    experiment: str,
    name: str,
    data: Path,
    test: Path | None,
    folder: Path | None,
    models: str | None,
    only_plan: bool,
    only_page: bool,
    output: Path | None,
) -> None:
    """Train, export and certify the models of the paper's experiments, and write a page with its tables.

    The plan is printed first. The same command again resumes what was stopped, also in the middle of a step. Models
    that are already in the folder, like isotropic-0.5.pt, are used as they are.
    """
    from ars.bench.reproduce.files import Folder, find_test
    from ars.bench.reproduce.page import write_page
    from ars.bench.reproduce.rates import measure_rates
    from ars.bench.reproduce.steps import make_steps, run_step
    from ars.output import make_folder

    preset = find_preset(experiment, name)
    place = Folder(folder or Path(f"{experiment}-{name}"), preset)
    chosen = _choose(models, preset)
    test = test or find_test(data)
    make_folder(place.path, "--folder")
    place.check()
    page = output or place.path / "paper.md"
    command = f"ars-bench reproduce {experiment} --preset {name} --data {data.name}"
    if folder is not None and not folder.is_absolute():  # a page tells nobody where this machine has its files
        command += f" --folder {folder}"
    if not only_page:
        rates = measure_rates(preset)
        steps = list(make_steps(place, data, test, chosen, rates))
        _show(preset, steps, f"{rates.device}, {rates.threads} threads", commands=only_plan)
        if only_plan:
            return
        make_folder(place.attacks, "--folder")
        write_page(place, test, command, page)  # a path that cannot be written fails now, and not after a day
        for number in range(len(steps)):
            step = list(make_steps(place, data, test, chosen, rates))[number]  # as it is after the steps before it
            if step.progress.finished:
                continue
            click.echo(f"\n{number + 1} of {len(steps)}: {step}", err=True)
            run_step(step)
            after = list(make_steps(place, data, test, chosen, rates))[number]
            if not after.progress.finished:
                raise RunError(f"`{step}` ended early ({after.state}); run the same command again")
    write_page(place, test, command, page)
    click.echo(page)


def _choose(models: str | None, preset: Preset) -> list[Wanted]:
    known = {model.name: model for model in [*preset.models, *preset.extension]}
    names = list(known) if models is None else models.split(",")
    for name in names:
        if name not in known:
            raise UnknownName("model of this preset", name, list(known))
    return [known[name] for name in names]


def _show(preset: Preset, steps: "Sequence[Step]", where: str, *, commands: bool) -> None:
    table = Table("model", "step", "state", "time left", title=f"{preset.data}, {preset.network}: {preset.about}")
    for step in steps:
        names = ", ".join(model.name for model in step.models)
        table.add_row(names, step.what, step.state, _show_time(step.seconds))
    console = Console(stderr=True)
    console.print(table)
    total = _show_time(sum(step.seconds for step in steps))
    console.print(
        f"At most about {total} on this machine ({where}), from a short measurement of PyTorch: the engine is "
        "faster, and adaptive stopping takes fewer draws.",
        highlight=False,
    )
    if commands:
        for step in steps:
            if not step.progress.finished:
                click.echo(str(step))


def _show_time(seconds: float) -> str:
    if not seconds:
        return ""
    if seconds < 3600:
        return f"{max(1, round(seconds / 60))} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"
