"""What a file is: a model, its manifest, or a run store."""

from pathlib import Path

from ars.data.pixels import file_sha256
from ars.engine.backends import (
    ENGINE_SUFFIXES,
    TORCH_SUFFIXES,
    choose_backend,
    load_generator,
    load_runner,
    manifest_of,
)
from ars.engine.records.store import read_header, read_records
from ars.engine.records.summary import summarize
from ars.engine.runners import CpuRunner
from ars.errors import ModelError
from ars.external_data import ExternalFile, hash_model
from ars.manifest import Manifest, ModelFile, Parity
from ars.regular import check_regular

__all__ = ["inspect_file"]

Facts = dict[str, object]


def inspect_file(path: Path) -> Facts:
    """Facts about a model file, a manifest or a run store, by name."""
    if not path.exists():
        raise ModelError(path, "there is no such file", "give a model, its manifest or a run store")
    check_regular(path, ModelError)
    with path.open("rb") as file:
        start = file.read(15)
    if start == b"SQLite format 3":
        return _inspect_store(path)
    if path.suffix == ".json":
        return _inspect_manifest(path)
    manifest = manifest_of(path)
    entry = manifest.entry(path.name) if manifest else None
    if path.suffix in ENGINE_SUFFIXES:
        facts = _inspect_engine(path, entry)
    elif entry.role == "noise" if entry else _gives_maps(path):
        facts = _inspect_generator(path)
    else:
        runner = load_runner(path)
        manifest = manifest or runner.own_manifest
        facts = _inspect_classifier(runner, manifest, entry)
    parity = {"parity": _say_parity(entry.parity)} if entry and entry.parity else {}
    advice = "; give --sigma or --noise to certify it" if facts["role"] == "classifier" else ""
    return facts | parity | (_say_noise(manifest) if manifest else {"manifest": f"none{advice}"})


def _inspect_classifier(runner: CpuRunner, manifest: Manifest | None, entry: ModelFile | None) -> Facts:
    """What a classifier takes and returns, and what runs it here."""
    name, why = choose_backend(runner.path, manifest)
    return {
        "file": str(runner.path),
        "role": "classifier",
        "sha256": runner.sha256,
        "precision": (entry.precision if entry else runner.precision) or "fp32",
        "input": " x ".join(str(side or "any") for side in runner.shape),
        "batch": runner.fixed_batch or "any",
        "classes": runner.classes,
        "backend": f"{name}: {why}",
    } | _say_external(runner.external)


def _inspect_generator(path: Path) -> Facts:
    facts: Facts = {
        "file": str(path),
        "role": "noise",
        "sha256": load_generator(path).sha256,
        "gives": "mean and scale",
    }
    return facts | _say_external(hash_model(path).external)


def _say_external(files: tuple[ExternalFile, ...]) -> Facts:
    """The files that hold weights of the model. The model's hash covers them."""
    return {"external data": ", ".join(file.path for file in files)} if files else {}


def _gives_maps(path: Path) -> bool:
    """Whether a file without a manifest is a noise generator."""
    try:
        return path.suffix not in TORCH_SUFFIXES and load_generator(path) is not None
    except ModelError:
        return False


def _inspect_engine(path: Path, entry: ModelFile | None) -> Facts:
    """What a TensorRT engine was built for. Its manifest says so, which needs no GPU."""
    facts: Facts = {"file": str(path), "role": "engine", "sha256": file_sha256(path)}
    if entry is None or entry.build is None:
        return facts
    build, profile = entry.build, entry.build.profile
    return facts | {
        "precision": entry.precision,
        "built by": f"{build.flavour} {build.version}, from {build.source}",
        "compute capability": ", ".join(build.compute_capabilities),
        "batch": f"{profile.min_batch} to {profile.max_batch}, made for {profile.opt_batch}",
    }


def _inspect_manifest(path: Path) -> Facts:
    """The files of a model, and whether each is unchanged since the manifest was written."""
    manifest = Manifest.read(path)
    facts: Facts = {"file": str(path), "role": "manifest", "input": " x ".join(map(str, manifest.shape))}
    facts |= {"classes": len(manifest.classes)} | _say_noise(manifest)
    for file in manifest.files:
        facts[file.path] = f"{file.role}, {file.precision}, {_compare_file(path.with_name(file.path), file)}"
        for external in file.external:
            found = _compare_external(path.with_name(external.path), external)
            facts[external.path] = f"external data of {file.path}, {found}"
    return facts


def _compare_file(path: Path, file: ModelFile) -> str:
    if not path.exists():
        return "missing"
    try:
        return "as written" if hash_model(path).sha256 == file.sha256 else "CHANGED"
    except ModelError as error:  # of its external data
        return str(error)


def _compare_external(path: Path, file: ExternalFile) -> str:
    if not path.is_file():
        return "missing"
    return "as written" if file_sha256(path) == file.sha256 else "CHANGED"


def _say_noise(manifest: Manifest) -> Facts:
    noise = manifest.noise
    return {
        "names": ", ".join(manifest.classes),
        "noise": f"{noise.family}, {noise.kind}, sigma0 {noise.sigma0}",
        "scope": noise.kind.scope.value,
    }


def _say_parity(parity: Parity) -> str:
    return f"{parity.agreement:.2%} of {parity.draws:,} noisy draws have the top class of {parity.reference}"


def _inspect_store(path: Path) -> Facts:
    """The settings of a run, and how many of its inputs are certified."""
    header, summary = read_header(path), summarize(read_records(path))
    facts: Facts = {"file": str(path), "certified": summary.inputs, "draws": summary.draws}
    return facts | header.origin.to_json() | header.environment.to_json() | header.settings.to_json()
