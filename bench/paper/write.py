"""From models and run stores to the paper's tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np

from ars.bench.micro.overhead import GENERATOR, ISOTROPIC, time_generator
from ars.bench.paper.models import CertifyOptions, Model, certify_into, open_model, run_of_store
from ars.bench.paper.tables import Attacked, Certified, Timed, accuracy_table, attack_table, runtime_table
from ars.bench.run.environment import describe_machine
from ars.data import Dataset, ImageSize, image_channels, open_data, select
from ars.engine.backends import load_runner
from ars.errors import ArgumentError, StoreError
from ars.noise import NoiseKind
from ars.output import make_folder

__all__ = ["Inputs", "write_tables"]

RUNTIME_N = 20_000


@dataclass(frozen=True)
class Inputs:
    """The inputs that models are certified on, as the command line says them."""

    data: str | None
    most: int
    only: str | None

    @property
    def words(self) -> list[str]:
        return ["--data", str(self.data), "--max", str(self.most), *(["--only", self.only] if self.only else [])]

    def open(self, shape: Sequence[int | None]) -> tuple[Dataset, list[int]]:
        source = open_data(str(self.data), ImageSize(channels=image_channels(shape)))
        return source, select(len(source), most=self.most, only=self.only)


def write_tables(
    paths: Sequence[Path], inputs: Inputs, how: Sequence[str], attack: str, rounds: int, folder: Path, out: TextIO
) -> None:
    """Certify the models, attack their inputs and certify these, time their generators; and write the tables."""
    stores = [path for path in paths if path.suffix == ".sqlite"]
    models = [open_model(path) for path in paths if path.suffix != ".sqlite"]
    if models and inputs.data is None:
        raise ArgumentError("data", None, "say what to certify the models on")
    _check_names(stores, models)
    certified = [_of_store(store) for store in stores]
    attacked = []
    if models:
        make_folder(folder, "--folder")
    for model in models:
        run = certify_into(folder / f"{model.label}.sqlite", model, CertifyOptions(inputs.words, how))
        one = Certified(model.label, model.arch, model.sigma0, run)
        certified.append(one)
        if attack != "none":
            attacked.append(Attacked(one, _attacked(model, inputs, how, attack, folder)))
    out.write("## Certified accuracy\n\n" + accuracy_table(certified))
    if attacked:
        out.write("\n## After an attack\n\n" + attack_table(attacked, attack))
    if models:
        out.write("\n## The noise generator's time\n\n" + runtime_table(_times(models, rounds)))


def _check_names(stores: Sequence[Path], models: Sequence[Model]) -> None:
    labels = [model.label for model in models]
    for label in labels:
        if labels.count(label) > 1:
            raise ArgumentError("models", label, "give each model once, and models of different names")
    for store in stores:
        if not store.exists():
            raise StoreError(store, "there is no such file", "`ars-engine certify --out` writes one")


def _of_store(store: Path) -> Certified:
    run = run_of_store(store)
    sigma = run.settings.get("sigma")
    return Certified(run.name, "?", None if sigma is None else float(str(sigma)), run)


def _attacked(model: Model, inputs: Inputs, how: Sequence[str], attack: str, folder: Path) -> Certified:
    from ars.bench.paper.attack import attack_inputs

    path = folder / f"{model.label}.{attack}.npz"
    source, ids = inputs.open(load_runner(model.file).shape)
    attack_inputs(model, source, ids, attack, path)
    store = folder / f"{model.label}.{attack}.sqlite"
    run = certify_into(store, model, CertifyOptions(["--data", str(path)], how))
    return Certified(model.label, model.arch, model.sigma0, run)


def _times(models: Sequence[Model], rounds: int) -> list[Timed]:
    machine = f"{describe_machine()['cpu']}, {describe_machine()['cores']} cores"
    timed = []
    for model in models:
        if model.kind == NoiseKind.INPUT and model.generator is not None:
            shape = tuple(side or 1 for side in load_runner(model.file).shape)
            times = time_generator(model.file, model.generator, shape, 128, RUNTIME_N, rounds).seconds
            both = (float(np.median(times[name])) for name in (GENERATOR, ISOTROPIC))
            timed.append(Timed(model.arch, RUNTIME_N + 100, machine, *both))
    return timed
