"""What a file is, and what this machine can run."""

from pathlib import Path

from ars.engine.devices.host import usable_cores, usable_instructions
from ars.engine.runners import BACKENDS, load_runner, manifest_of
from ars.engine.store import read_records, read_settings
from ars.engine.summary import summarize
from ars.errors import ArsError

__all__ = ["inspect_file", "list_parts"]

Facts = dict[str, object]


def inspect_file(path: Path) -> Facts:
    """What a model file or a run store is."""
    if path.exists() and path.read_bytes()[:15] == b"SQLite format 3":
        return _inspect_store(path)
    return _inspect_model(path)


def _inspect_model(path: Path) -> Facts:
    """What a classifier takes and gives, and what its manifest says of it."""
    runner = load_runner(path)
    facts: Facts = {
        "file": str(path),
        "sha256": runner.sha256,
        "input": " x ".join(str(side or "any") for side in runner.shape),
        "batch": runner.fixed_batch or "any",
        "classes": runner.classes,
    }
    manifest = manifest_of(path) or runner.own_manifest
    if manifest is None:
        return facts | {"manifest": "none: give --sigma or --noise to certify"}
    noise = manifest.noise
    return facts | {
        "names": ", ".join(manifest.classes),
        "noise": f"{noise.family}, {noise.kind}, sigma0 {noise.sigma0}",
        "scope": noise.kind.scope.value,
    }


def _inspect_store(path: Path) -> Facts:
    """The settings of a run and how far it is."""
    settings, environment, _ = read_settings(path)
    summary = summarize(read_records(path))
    return {"file": str(path), "certified": summary.inputs, "draws": summary.draws, **environment, **settings}


def list_parts() -> list[tuple[str, str, str]]:
    """Each device and runner: its name, whether it is ready, and details or what to do."""
    parts = []
    try:
        fastest, *others = usable_instructions()
        also = f" (also here: {', '.join(others)})" if others else ""
        parts.append(("host", "ready", f"{usable_cores()} cores, noise by {fastest}{also}"))
    except ArsError as error:
        parts.append(("host", "missing", str(error)))
    for backend in BACKENDS:
        try:
            parts.append((backend.name, "ready", f"version {backend.runner().version}"))
        except ArsError as error:
            parts.append((backend.name, "missing", str(error)))
    return parts
