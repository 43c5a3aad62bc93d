"""The manifest of a model, model.json: what its files are, what the classifier takes and what noise it was made for."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ars.data.pixels import file_sha256
from ars.errors import ArsError, ModelError
from ars.noise import NoiseKind, family_named

__all__ = ["FORMAT", "Manifest", "ModelFile", "NoiseSettings", "manifest_beside"]

FORMAT = 1


@dataclass(frozen=True)
class ModelFile:
    """One file of the model: its role ("classifier" or "noise"), its path beside the manifest, and its hash."""

    role: str
    path: str
    sha256: str
    precision: str = "fp32"


@dataclass(frozen=True)
class NoiseSettings:
    family: str
    kind: NoiseKind
    sigma0: float


@dataclass(frozen=True)
class Manifest:
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    noise: NoiseSettings
    files: tuple[ModelFile, ...]
    format: int = FORMAT

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(dataclasses.asdict(self), indent=2) + "\n")

    @classmethod
    def read(cls, path: Path) -> "Manifest":
        try:
            data: dict[str, Any] = json.loads(path.read_text())
            if data["format"] != FORMAT:
                fix = "export the model again, or update ARS"
                raise ModelError(path, f"its format is {data['format']}, and this version reads {FORMAT}", fix)
            noise = data["noise"]
            family_named(noise["family"])
            return cls(
                shape=tuple(int(side) for side in data["shape"]),
                classes=tuple(str(name) for name in data["classes"]),
                noise=NoiseSettings(noise["family"], NoiseKind(noise["kind"]), float(noise["sigma0"])),
                files=tuple(ModelFile(**file) for file in data["files"]),
            )
        except ArsError:
            raise
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise ModelError(
                path, f"it is not a manifest ({error!r})", "export the model again, or move it away"
            ) from error

    def check(self, path: Path, shape: tuple[int | None, ...], classes: int) -> None:
        """Refuse a classifier that is not of the shape and the classes that the manifest says."""
        if len(self.classes) != classes:
            problem = f"it has {classes} classes, and its manifest names {len(self.classes)}"
            raise ModelError(path, problem, "export the model again")
        if len(shape) != len(self.shape) or any(a not in (None, b) for a, b in zip(shape, self.shape, strict=True)):
            raise ModelError(path, f"it takes inputs of {shape}, and its manifest says {self.shape}", "export it again")

    def file(self, role: str, folder: Path) -> Path | None:
        """The path of the file with that role, after its hash has been checked."""
        for file in self.files:
            if file.role == role:
                return _checked(folder / file.path, file)
        return None


def manifest_beside(engine: Path) -> Manifest | None:
    """The manifest that lists this file, if there is one in its folder; the file must match its hash."""
    stem = engine.name.partition(".")[0]
    path = engine.with_name(f"{stem}.json")
    if not path.exists():
        return None
    manifest = Manifest.read(path)
    for file in manifest.files:
        if file.path == engine.name:
            _checked(engine, file)
            return manifest
    raise ModelError(path, f"it does not list {engine.name}", "export the model again, or move the manifest away")


def _checked(path: Path, file: ModelFile) -> Path:
    if not path.exists():
        raise ModelError(path, "the manifest lists it, but it is not there", "keep the files of a model together")
    if file_sha256(path) != file.sha256:
        raise ModelError(path, "it is not the file that the manifest was written for", "export the model again")
    return path
