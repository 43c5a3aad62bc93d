"""The models of the tables: what each is, and its certificates, made or already there."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ars.bench.report.runs import Run, read_runs
from ars.bench.run.model import open_bench_model
from ars.command_line import call
from ars.engine.cli import certify
from ars.errors import InputError, ModelError, StoreError
from ars.manifest import manifest_beside

__all__ = ["CertifyOptions", "Model", "certify_into", "open_model", "run_of_store"]


@dataclass(frozen=True)
class Model:
    """A classifier with its noise, by the file that is certified."""

    file: Path
    trained: Path | None
    """Its model.pt: attacks need gradients."""
    generator: Path | None
    """Its noise generator, where the noise has maps."""
    arch: str
    kind: str
    sigma0: float

    @property
    def label(self) -> str:
        return self.file.name.partition(".")[0]


@dataclass(frozen=True)
class CertifyOptions:
    """How inputs are certified: the words of `ars-engine certify`."""

    data: Sequence[str]
    how: Sequence[str]


def open_model(path: Path) -> Model:
    """A model with a manifest, by any of its files, or by the manifest."""
    if not path.is_file():
        raise ModelError(path, "there is no such file", "give an exported model or a run store")
    network = open_bench_model(str(path), path.parent)
    if not network.files:
        raise ModelError(path, "it has not been exported", f"run `ars-export {path}` first")
    file = next((file.path for file in network.files if file.path == path), network.files[0].path)
    manifest = manifest_beside(file)
    if manifest is None:
        problem = "it has no manifest, so its noise is not known"
        raise ModelError(path, problem, "certify it with `ars-engine certify --sigma`, and give the run store")
    noise = manifest.noise
    return Model(
        file,
        network.trained,
        manifest.file("noise", file.parent),
        _arch(network.trained) or file.name.partition(".")[0],
        noise.kind.value,
        noise.sigma0,
    )


def _arch(trained: Path | None) -> str | None:
    if trained is None:
        return None
    from ars.train.model_file import read_model_file

    return read_model_file(trained)[0].arch


def certify_into(store: Path, model: Model, options: CertifyOptions) -> Run:
    """The certificates of a model, in a run store that goes on where it was stopped."""
    try:
        call(certify, "--engine", str(model.file), *options.data, *options.how, "--out", str(store))
    except StoreError as error:  # its advice is for `ars-engine certify`; here --folder decides where the store is
        raise InputError(str(error).replace("another --out", "another --folder")) from error
    return run_of_store(store)


def run_of_store(store: Path) -> Run:
    (run,) = read_runs([store])
    return run
