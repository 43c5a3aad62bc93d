"""The folder of a reproduction: where each file is, and what is already there."""

import json
import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from ars.bench.reproduce.presets import ATTACKS, Certification, Preset, Wanted
from ars.engine.records.store import read_records
from ars.engine.records.stored_run import Run, read_run
from ars.errors import ArgumentError, ModelError
from ars.external_data import hash_model
from ars.manifest import Manifest

__all__ = ["Folder", "Progress", "find_test"]


class Progress(NamedTuple):
    """How much of a step is done, in epochs or inputs."""

    done: int
    total: int | None
    """None if it is not known before the step has begun."""

    @property
    def finished(self) -> bool:
        return self.done == self.total


@dataclass(frozen=True)
class Folder:
    """Models, run stores and tables of one preset. Models that were trained elsewhere may be put into it."""

    path: Path
    preset: Preset

    def trained(self, model: Wanted) -> Path:
        return self.path / f"{model.name}.pt"

    def classifier(self, model: Wanted) -> Path:
        suffix = "onnx" if self.preset.precision == "fp32" else f"{self.preset.precision}.onnx"
        return self.path / f"{model.name}.{suffix}"

    def store(self, model: Wanted, certification: Certification) -> Path:
        return self.path / f"{model.name}.{certification.name}.sqlite"

    @property
    def attacks(self) -> Path:
        return self.path / "attacks"

    def table(self, attack: str) -> Path:
        return self.attacks / f"{attack}.md"

    def check(self) -> None:
        """Reject models that are not what their names say."""
        for model in [*self.preset.models, *self.preset.extension]:
            manifest, trained = self.manifest(model), self.trained(model)
            if manifest is not None:
                noise = manifest.noise
                _check(self.path / f"{model.name}.json", (noise.kind, noise.sigma0, noise.family), model)
            if trained.exists():
                from ars.train.model_file import read_model_file

                settings = read_model_file(trained)[0]
                _check(trained, (settings.kind, settings.bounds.sigma0, settings.family), model)
                if settings.arch != self.preset.arch:
                    problem = f"it is a {settings.arch}, but this preset has {self.preset.arch}"
                    raise ModelError(trained, problem, "choose another --folder")

    def training(self, model: Wanted) -> dict[str, Any] | None:
        """How a model is trained, as its files say; None if there is no model yet."""
        if self.trained(model).exists():
            return dict(_read_training(self.trained(model), self.trained(model).stat().st_mtime_ns))
        manifest = self.manifest(model)
        return None if manifest is None else manifest.training

    def epochs(self, model: Wanted) -> Progress:
        """The epochs of a model. What was exported without its model.pt counts as trained."""
        training = self.training(model)
        if training is None:
            return Progress(0, self.preset.epochs)
        planned = training.get("plan", {}).get("epochs", 0)
        return Progress(training.get("metrics", {}).get("epoch", planned), planned)

    def otherwise(self, model: Wanted) -> list[str]:
        """How the training of a model differs from the preset's."""
        plan = (self.training(model) or {}).get("plan", {})
        wanted = self.preset.plan.items()
        return [
            f"{name} {plan.get(name, 'unknown')}, not {value:g}" for name, value in wanted if plan.get(name) != value
        ]

    def hours(self, model: Wanted) -> float | None:
        """The hours that training took so far; None if its metrics are not there."""
        metrics = self.path / f"{model.name}.metrics.jsonl"
        if not metrics.exists():
            return None
        return math.fsum(json.loads(line)["seconds"] for line in metrics.read_text().splitlines()) / 3600

    def manifest(self, model: Wanted) -> Manifest | None:
        path = self.path / f"{model.name}.json"
        return Manifest.read(path) if path.exists() else None

    def exported(self, model: Wanted) -> bool:
        """Whether the classifier is there, exported from the model.pt that is there, if there is one."""
        manifest, trained = self.manifest(model), self.trained(model)
        if manifest is None or not self.classifier(model).exists():
            return False
        if manifest.entry(self.classifier(model).name) is None:
            return False
        entry = manifest.entry(trained.name)
        return not trained.exists() or (entry is not None and entry.sha256 == hash_model(trained).sha256)

    def needs_classifier(self, model: Wanted) -> bool:
        """Whether a step that is left asks the classifier. Manifest and stores are enough for the page."""
        if model in self.preset.attacked and not all(self.table(attack).exists() for attack in ATTACKS):
            return True
        return not all(self.certified(model, one).finished for one in self.preset.certifications)

    def run(self, model: Wanted, certification: Certification) -> Run | None:
        """The run in a store; None if it has no certificates yet."""
        store = self.store(model, certification)
        begun = store.exists() and next(iter(read_records(store)), None) is not None
        return read_run(store) if begun else None

    def certified(self, model: Wanted, certification: Certification) -> Progress:
        run = self.run(model, certification)
        if run is None:
            return Progress(0, None)
        asked = set(run.header.sampling.asked or ())
        return Progress(len(asked & {record.idx for record in run.records}), len(asked))


@lru_cache
def _read_training(path: Path, changed: int) -> dict[str, Any]:
    """The record of a model.pt; `changed` tells its versions apart."""
    from ars.train.model_file import read_model_file

    training: dict[str, Any] = read_model_file(path)[1]["training"]
    return training


def _check(path: Path, found: tuple[str, float, str], model: Wanted) -> None:
    if found != tuple(model):
        problem = f"it has {found[0]} noise with sigma0 = {found[1]:g} ({found[2]}), which its name does not say"
        raise ModelError(path, problem, "rename it, or choose another --folder")


def find_test(data: Path) -> Path:
    """The test data in a folder of training and test data."""
    for name in ("test", "val", "test_batch.bin", "test.npz"):
        if (data / name).exists():
            return data / name
    raise ArgumentError("data", data, "it has no test, val, test_batch.bin or test.npz; name the test data with --test")
