"""The steps of a reproduction. Each is a command that can also be run by hand, and that resumes if it was stopped."""

import importlib
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ars.bench.reproduce.files import Folder, Progress
from ars.bench.reproduce.presets import ATTACKS, Wanted
from ars.bench.reproduce.rates import Rates
from ars.errors import RunError
from ars.noise import GAUSSIAN

__all__ = ["Step", "make_steps", "run_step"]

# PGD: ten steps of eight draws, forward and backward (bench/paper/attack.py).
ATTACK_PASSES = 10 * 8 * 3


@dataclass(frozen=True)
class Step:
    what: str
    models: tuple[Wanted, ...]
    command: tuple[str, ...]
    progress: Progress
    unit: str
    seconds: float
    """An estimate of the time that is left."""

    @property
    def state(self) -> str:
        if self.progress.finished:
            return "done"
        total = f" of {self.progress.total:,}" if self.progress.total else ""
        return f"{self.progress.done:,}{total} {self.unit}" if self.progress.done else "to do"

    def __str__(self) -> str:
        return shlex.join(self.command)


def make_steps(folder: Folder, data: Path, test: Path, chosen: Sequence[Wanted], rates: Rates) -> Iterator[Step]:
    """The steps for the chosen models, in the order in which they run: all of one model, then the next."""
    preset = folder.preset
    for model in chosen:
        yield _train(folder, model, data, rates)
        once = Progress(int(folder.exported(model) or not folder.needs_classifier(model)), 1)
        export = (
            *("ars-export", str(folder.trained(model)), "--precision", preset.precision),
            *(*preset.exporting, "--tensorrt", "off"),
        )
        yield Step("export", (model,), export, once, "", 0.0 if once.finished else 60.0)
        for certification in preset.certifications:
            progress = folder.certified(model, certification)
            left = (progress.total or preset.inputs) - progress.done
            command = (
                *("ars-engine", "certify", "--engine", str(folder.classifier(model)), "--data", str(test)),
                *(*preset.inputs_options, *certification.options),
                *("--out", str(folder.store(model, certification))),
            )
            seconds = left * (certification.n + 100) * rates.draw
            yield Step(f"certify, {certification.name}", (model,), command, progress, "inputs", seconds)
    if preset.attacked and set(preset.attacked) <= set(chosen):
        for attack in ATTACKS:
            yield _attack(folder, attack, test, rates)


def _train(folder: Folder, model: Wanted, data: Path, rates: Rates) -> Step:
    preset, progress = folder.preset, folder.epochs(model)
    command = (
        *("ars-train", "--dataset", str(data), "--arch", preset.arch, "--noise", model.kind),
        *("--sigma", f"{model.sigma0:g}", "--epochs", str(preset.epochs), "--batch", str(preset.batch)),
        *("--draws", str(preset.draws), *preset.training),
        *(() if model.family == GAUSSIAN.name else ("--family", model.family)),
        *("-o", str(folder.trained(model))),
    )
    if progress.done and not progress.finished:
        command = (*command, "--resume")
    left = (progress.total or 0) - progress.done
    return Step("train", (model,), command, progress, "epochs", left * preset.images * rates.training[model.kind])


def _attack(folder: Folder, attack: str, test: Path, rates: Rates) -> Step:
    """The paper's Table 3 for one attack, by `ars-bench paper`, which resumes its own runs."""
    preset = folder.preset
    command = (
        *("ars-bench", "paper", *(str(folder.classifier(model)) for model in preset.attacked), "--data", str(test)),
        *(*preset.inputs_options, "--limit", str(preset.inputs), "--n", str(preset.attacked_n), "--only-correct"),
        *("--attack", attack, "--folder", str(folder.attacks), "-o", str(folder.table(attack))),
    )
    once = Progress(int(folder.table(attack).exists()), 1)
    draws = 2 * (preset.attacked_n + 100) + ATTACK_PASSES
    seconds = 0.0 if once.finished else len(preset.attacked) * preset.inputs * draws * rates.draw
    return Step(f"attack, {attack}", tuple(preset.attacked), command, once, "", seconds)


COMMANDS = {
    "ars-train": "ars.train.cli",
    "ars-export": "ars.export.cli",
    "ars-engine": "ars.engine.cli",
    "ars-bench": "ars.bench.cli",
}


def run_step(step: Step) -> None:
    """Run the command of a step in this process. The command itself says what goes wrong."""
    name, *arguments = step.command
    main = importlib.import_module(COMMANDS[name]).main
    status = main(arguments, prog_name=name, standalone_mode=False)
    if status:
        raise RunError(f"`{step}` failed with status {status}; run the same command again when that is fixed")
