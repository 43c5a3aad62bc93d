"""From models and run stores to the paper's tables."""

from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import numpy as np

from ars.bench.micro.overhead import GENERATOR, ISOTROPIC, time_generator
from ars.bench.paper.models import Certification, Model, certify_into, open_model
from ars.bench.paper.tables import Attacked, Certified, Timed, accuracy_table, attack_table, runtime_table
from ars.bench.run.environment import describe_machine
from ars.engine.backends import load_runner
from ars.engine.records.inputs import Inputs
from ars.engine.records.stored_run import read_run
from ars.engine.smoothed import load
from ars.errors import ArgumentError, StoreError
from ars.noise import NoiseKind
from ars.output import make_folder

__all__ = ["write_tables"]

RUNTIME_N = 20_000


def write_tables(
    paths: Sequence[Path],
    inputs: Inputs | None,
    how: Certification,
    attack: str,
    rounds: int,
    folder: Path,
    out: TextIO,
) -> None:
    """Certify the models, attack their inputs and certify those too, time their generators, and write the tables."""
    stores = [path for path in paths if path.suffix == ".sqlite"]
    models = [open_model(path) for path in paths if path.suffix != ".sqlite"]
    _check_names(stores, models)
    certified = [_read_store(store) for store in stores]
    attacked = []
    if models:
        if inputs is None:
            raise ArgumentError("data", None, "say what to certify the models on")
        make_folder(folder, "--folder")
        for model in models:
            run = certify_into(folder / f"{model.label}.sqlite", model, inputs, how)
            one = Certified(model.label, model.arch, model.sigma0, run)
            certified.append(one)
            if attack != "none":
                attacked.append(Attacked(one, _certify_attacked(model, inputs, how, attack, folder)))
    out.write("## Certified accuracy\n\n" + accuracy_table(certified))
    if attacked:
        out.write("\n## After an attack\n\n" + attack_table(attacked, attack))
    if models:
        out.write("\n## The noise generator's time\n\n" + runtime_table(_time_generators(models, rounds)))


def _check_names(stores: Sequence[Path], models: Sequence[Model]) -> None:
    labels = [model.label for model in models]
    for label in labels:
        if labels.count(label) > 1:
            raise ArgumentError("models", label, "give each model once, and models of different names")
    for store in stores:
        if not store.exists():
            raise StoreError(store, "there is no such file", "`ars-engine certify --out` writes one")


def _read_store(store: Path) -> Certified:
    run = read_run(store)
    return Certified(run.name, "?", run.header.settings.noise.sigma, run)


def _certify_attacked(model: Model, inputs: Inputs, how: Certification, attack: str, folder: Path) -> Certified:
    from ars.bench.paper.attack import attack_inputs

    path = folder / f"{model.label}.{attack}.npz"
    with load(model.file) as classifier:
        source, ids = inputs.open(classifier.channels)
    attack_inputs(model, source, ids, attack, path)
    run = certify_into(folder / f"{model.label}.{attack}.sqlite", model, Inputs(str(path)), how)
    return Certified(model.label, model.arch, model.sigma0, run)


def _time_generators(models: Sequence[Model], rounds: int) -> list[Timed]:
    machine = f"{describe_machine()['cpu']}, {describe_machine()['cores']} cores"
    timed = []
    for model in models:
        if model.kind == NoiseKind.INPUT and model.generator is not None:
            shape = tuple(side or 1 for side in load_runner(model.file).shape)
            times = time_generator(model.file, model.generator, shape, 128, RUNTIME_N, rounds).seconds
            both = (float(np.median(times[name])) for name in (GENERATOR, ISOTROPIC))
            timed.append(Timed(model.arch, RUNTIME_N + 100, machine, *both))
    return timed
