"""The model that is measured: its files in each precision, and the model.pt that they were exported from."""

from dataclasses import dataclass, replace
from pathlib import Path

from ars.engine.devices import CPU
from ars.errors import MissingPackage, ModelError, UnknownName
from ars.external_data import hash_model
from ars.manifest import Manifest, manifest_beside

__all__ = ["BenchModel", "BenchModelFile", "open_bench_model"]


@dataclass(frozen=True)
class BenchModelFile:
    path: Path
    precision: str
    sha256: str


@dataclass(frozen=True)
class BenchModel:
    name: str
    files: tuple[BenchModelFile, ...]
    """Its classifiers and engines, in every precision that it has."""
    trained: Path | None
    """The model.pt, which the PyTorch loop runs."""
    noise: str | None
    """The kind of its own noise; None if it has none, so that a sigma must be given."""
    sigma0: float | None = None
    """The scale that its noise aims at."""
    family: str = "gaussian"


def open_bench_model(engine: str, folder: Path, device: str = CPU) -> BenchModel:
    """Open a model by the name of one of its files (.onnx, .trt, .pt, or the manifest .json), together with the files
    beside it. The name of an architecture makes a model with random weights in `folder`, in the precisions that are
    worth timing on the device: the cost of a draw does not depend on the weights."""
    path = Path(engine)
    if path.suffix == "" and not path.is_file():
        return _make(engine, folder, device)
    if not path.exists():
        raise ModelError(path, "there is no such file", "give a model, or an architecture like resnet20")
    if path.suffix == ".json":
        return _of_manifest(path.stem, Manifest.read(path), path.parent)
    if path.suffix == ".pt":
        beside = path.with_suffix(".json")
        if not beside.exists():
            return _of_model_file(path)
        return replace(_of_manifest(path.stem, Manifest.read(beside), path.parent), trained=path)
    manifest = manifest_beside(path)
    if manifest is not None:
        return _of_manifest(path.name.partition(".")[0], manifest, path.parent)
    return BenchModel(path.stem, (BenchModelFile(path, "fp32", hash_model(path).sha256),), None, None)


def _of_model_file(path: Path) -> BenchModel:
    try:
        from ars.train.model_file import read_model_file
    except ModuleNotFoundError as error:
        raise MissingPackage("torch", "train") from error
    settings, _ = read_model_file(path)
    return BenchModel(path.stem, (), path, settings.kind.value, settings.bounds.sigma0, settings.family)


def _of_manifest(name: str, manifest: Manifest, folder: Path) -> BenchModel:
    files = tuple(
        BenchModelFile(folder / file.path, file.precision, file.sha256)
        for file in manifest.files
        if file.role in ("classifier", "engine")
    )
    noise = manifest.noise
    return BenchModel(name, files, manifest.file("trained", folder), noise.kind.value, noise.sigma0, noise.family)


# The shape of an input, by the beginning of the architecture's name.
_LARGE = ("resnet18", "resnet34", "resnet50", "resnet101", "timm:")
_SHAPES = {"cnn": (1, 28, 28), **dict.fromkeys(_LARGE, (3, 224, 224)), "resnet": (3, 32, 32)}


def _make(arch: str, folder: Path, device: str) -> BenchModel:
    shape = next((shape for start, shape in _SHAPES.items() if arch.startswith(start)), None)
    if shape is None:
        raise UnknownName("file or architecture", arch, ["cnn", "resnet20", "resnet56", "resnet110", "resnet50"])
    try:
        from ars.bench.run.random_model import export_random
    except ModuleNotFoundError as error:
        raise MissingPackage((error.name or "torch").partition(".")[0], "train") from error
    made = open_bench_model(str(export_random(arch, shape, folder)), folder)
    if device == CPU:  # where FP16 is slower than FP32
        return made
    # An export has one engine, of its smallest precision; so FP16 and its engine are an export of their own.
    half_folder = folder / "fp16"
    half_folder.mkdir()
    half = open_bench_model(str(export_random(arch, shape, half_folder, ("fp32", "fp16"))), half_folder)
    return replace(made, files=(*made.files, *(file for file in half.files if file.precision == "fp16")))
