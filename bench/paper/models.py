"""The models of the tables, and their certificates, which are made or already there."""

from dataclasses import dataclass
from pathlib import Path

from ars.bench.run.model import open_bench_model
from ars.engine.progress import TerminalProgress
from ars.engine.records.inputs import Inputs
from ars.engine.records.run import certify_run
from ars.engine.records.stored_run import Run, read_run
from ars.engine.smoothed import load
from ars.engine.statistics.plan import Plan
from ars.errors import ModelError
from ars.manifest import Manifest, manifest_path

__all__ = ["Certification", "Model", "certify_into", "open_model"]


@dataclass(frozen=True)
class Model:
    """A classifier with its noise, by the file that is certified."""

    file: Path
    trained: Path | None
    """Its model.pt, if it is there: attacks need gradients."""
    generator: Path | None
    """Its noise generator, if its noise has maps."""
    arch: str
    kind: str
    sigma0: float
    label: str
    """Its name in the tables and of its run stores: that of its manifest."""


@dataclass(frozen=True)
class Certification:
    """How models are certified."""

    plan: Plan
    backend: str = "auto"
    batch: int | None = None
    only_correct: bool = False
    """End an input after selection if its class is wrong."""


def open_model(path: Path) -> Model:
    """Open a model that has a manifest, given any of its files or the manifest itself."""
    if not path.is_file():
        raise ModelError(path, "there is no such file", "give an exported model or a run store")
    network = open_bench_model(str(path), path.parent)
    if not network.files:
        raise ModelError(path, "it has not been exported", f"run `ars-export {path}` first")
    file = next((file.path for file in network.files if file.path == path), network.files[0].path)
    described = manifest_path(file)
    if described is None:
        problem = "it has no manifest, so its noise is not known"
        raise ModelError(path, problem, "certify it with `ars-engine certify --sigma`, and give the run store")
    manifest, label = Manifest.read(described), described.stem
    noise = manifest.noise
    return Model(
        file,
        network.trained,
        manifest.file("noise", file.parent),
        _arch(network.trained) or label,
        noise.kind.value,
        noise.sigma0,
        label,
    )


def _arch(trained: Path | None) -> str | None:
    if trained is None:
        return None
    from ars.train.model_file import read_model_file

    return read_model_file(trained)[0].arch


def certify_into(store: Path, model: Model, inputs: Inputs, how: Certification) -> Run:
    """Certify a model into a run store. If the store holds a part of that run, the run is resumed."""
    with (
        load(model.file, backend=how.backend, batch=how.batch) as classifier,
        TerminalProgress(classifier, quiet=False) as progress,
    ):
        progress.describe_model()
        certify_run(classifier, inputs, how.plan, store=store, only_correct=how.only_correct, progress=progress)
    return read_run(store)
