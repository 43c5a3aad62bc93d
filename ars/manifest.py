"""The manifest of a model, model.json: its files, the inputs that it takes, and the noise that it was trained for."""

import dataclasses
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ars.checks import check_types, real_number
from ars.data.memory import LARGEST_INPUT
from ars.errors import ArgumentError, ArsError, ModelError, UnknownName, one_line
from ars.external_data import ExternalFile, hash_model
from ars.noise import NoiseKind, family_named
from ars.plain_json import parse_json
from ars.regular import check_small
from ars.switch import finish_switch

__all__ = [
    "FORMAT",
    "PRECISIONS",
    "ROLES",
    "EngineBuild",
    "Manifest",
    "ModelFile",
    "NoiseSettings",
    "Parity",
    "Profile",
    "manifest_beside",
]

FORMAT = 1
ROLES = ("classifier", "noise", "engine", "trained")
PRECISIONS = ("fp32", "fp16", "int8")


@dataclass(frozen=True)
class Parity:
    """How a classifier compares with the one that it was exported from, on the same noisy draws."""

    reference: str
    """What it was compared with: torch, or another file of the model."""
    runner: str
    """The backend that ran it, with its version."""
    inputs: int
    draws: int
    """The total over all inputs."""
    largest_difference: float
    """The largest difference of two logits, relative to the reference's largest logit."""
    agreement: float
    """The fraction of draws with the same top class."""
    certified_accuracy_difference: float | None
    """The largest difference over a few radii, estimated from these draws; None if the inputs have no labels."""


@dataclass(frozen=True)
class Profile:
    """The range of batch sizes that an engine takes, and the size that it is optimised for."""

    min_batch: int
    opt_batch: int
    max_batch: int


@dataclass(frozen=True)
class EngineBuild:
    """How a TensorRT engine was built."""

    flavour: str
    """The package that built it and must run it: tensorrt or tensorrt_rtx."""
    version: str
    compute_capabilities: tuple[str, ...]
    """Of the GPUs that it was built for; "8.0+" means 8.0 and later."""
    profile: Profile
    source: str
    """The name of the ONNX file that it was built from."""
    source_sha256: str


@dataclass(frozen=True)
class ModelFile:
    """One file of the model: its role (one of ROLES), its path beside the manifest, and its hash (`hash_model`), which
    covers its external files too.

    A classifier or an engine maps `x` to `logits`; a noise generator maps `x` to `mean` and `scale`. The trained file
    is the model.pt that the others were exported from.
    """

    role: str
    path: str
    sha256: str
    precision: str = "fp32"
    parity: Parity | None = None
    build: EngineBuild | None = None
    external: tuple[ExternalFile, ...] = ()
    """The files that hold its weights, if they are not in the file itself."""
    given: bool = False
    """Whether it is the user's own file, which no export removes."""

    def __post_init__(self) -> None:
        for name, value, known in (("role", self.role, ROLES), ("precision", self.precision, PRECISIONS)):
            if value not in known:
                raise ValueError(f"{name} {value!r} of {self.path}")
        if self.path != Path(self.path).name or self.path in ("", ".", ".."):
            raise ValueError(f"the path {self.path!r}, which is not in the manifest's folder")


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
    dtype: str = "float32"
    """The type of the inputs as the engine makes them; for a float16 file they are rounded."""
    range: tuple[float, float] = (0.0, 1.0)
    """The range of the inputs without noise."""
    training: dict[str, Any] = field(default_factory=dict)
    """A record of how the model was trained."""
    format: int = FORMAT

    def write(self, path: Path) -> None:
        data = dataclasses.asdict(self)
        for file in data["files"]:
            for name in ("external", "given"):  # older versions know neither
                if not file[name]:
                    del file[name]
        path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "Manifest":
        finish_switch(path)
        check_small(path, ModelError)
        try:
            data: dict[str, Any] = parse_json(path.read_bytes())
            if data["format"] != FORMAT:
                fix = "export the model again, or update ARS"
                raise ModelError(path, f"its format is {data['format']}, but this version reads {FORMAT}", fix)
            noise = data["noise"]
            family_named(noise["family"])
            low, high = data.get("range", cls.range)
            read = cls(
                shape=tuple(data["shape"]),
                classes=tuple(data["classes"]),
                noise=NoiseSettings(noise["family"], NoiseKind(noise["kind"]), _positive("sigma0", noise["sigma0"])),
                files=tuple(_read_file(file) for file in data["files"]),
                dtype=data.get("dtype", cls.dtype),
                range=(_finite("range", low), _finite("range", high)),
                training=dict(data.get("training", {})),
            )
            check_types(read)
            if any(side < 1 for side in read.shape) or math.prod(read.shape) > LARGEST_INPUT:
                raise ValueError(f"its shape is {read.shape}")
            return read
        except (ModelError, UnknownName):
            raise
        except (OSError, ArsError, ValueError, TypeError, KeyError, AttributeError) as error:
            reason = repr(error) if isinstance(error, KeyError) else str(error)
            fix = "export the model again, or move it away"
            raise ModelError(path, f"it is not a manifest ({one_line(reason)})", fix) from error

    def check(self, path: Path, sha256: str, shape: tuple[int | None, ...], classes: int) -> None:
        """Reject a loaded classifier whose hash, shape or number of classes is not that of the manifest.

        The hash is checked once more here, because the file may have changed since `manifest_beside` read it.
        """
        listed = self.entry(path.name)
        if listed is not None and listed.sha256 != sha256:
            raise _changed(path)
        if len(self.classes) != classes:
            problem = f"it has {classes} classes, but its manifest names {len(self.classes)}"
            raise ModelError(path, problem, "export the model again")
        if len(shape) != len(self.shape) or any(a not in (None, b) for a, b in zip(shape, self.shape, strict=True)):
            raise ModelError(path, f"it takes inputs of {shape}, but its manifest says {self.shape}", "export it again")

    def file(self, role: str, folder: Path) -> Path | None:
        """The path of the first file with this role, if there is one. Its hash is checked."""
        for file in self.files:
            if file.role == role:
                return _checked(folder / file.path, file)
        return None

    def entry(self, name: str) -> ModelFile | None:
        """The entry of the file of this name, if it is listed."""
        return next((file for file in self.files if file.path == name), None)


def manifest_beside(engine: Path) -> Manifest | None:
    """The manifest in the folder of this file, if there is one. It must list the file with its hash."""
    path = manifest_path(engine)
    if path is None:
        return None
    manifest = Manifest.read(path)
    file = manifest.entry(engine.name)
    if file is not None:
        _checked(engine, file)
    return manifest


def manifest_path(engine: Path) -> Path | None:
    """The file of the manifest of a model, if there is one. The manifest of a.b.onnx is a.b.json or a.json."""
    parts = engine.name.split(".")
    stems = [".".join(parts[:end]) for end in range(len(parts) - 1, 0, -1)]
    possible = [engine.with_name(f"{stem}.json") for stem in stems]
    for path in possible:
        finish_switch(path)
    found = [path for path in possible if path.exists()]
    for path in found:
        if Manifest.read(path).entry(engine.name) is not None:
            return path
    if not found:
        return None
    raise ModelError(found[0], f"it does not list {engine.name}", "export the model again, or move the manifest away")


def _finite(name: str, value: object) -> float:
    requirement = "it must be finite"
    number = real_number(name, value, requirement)
    if not math.isfinite(number):
        raise ArgumentError(name, number, requirement)
    return number


def _positive(name: str, value: object) -> float:
    number = _finite(name, value)
    if number <= 0:
        raise ArgumentError(name, number, "it must be positive")
    return number


def _read_file(data: dict[str, Any]) -> ModelFile:
    parity, build = data.get("parity"), data.get("build")
    if build is not None:
        capabilities = tuple(str(each) for each in build["compute_capabilities"])
        build = EngineBuild(**build | {"profile": Profile(**build["profile"]), "compute_capabilities": capabilities})
    external = tuple(ExternalFile(**file) for file in data.get("external", ()))
    parity = None if parity is None else Parity(**parity)
    return ModelFile(**data | {"parity": parity, "build": build, "external": external})


def _checked(path: Path, file: ModelFile) -> Path:
    if not path.exists():
        raise ModelError(path, "the manifest lists it, but it does not exist", "keep the files of a model together")
    found = hash_model(path)
    if found.sha256 != file.sha256:
        listed = {external.path: external.sha256 for external in file.external}
        others = (one.path for one in found.external if listed.get(one.path, one.sha256) != one.sha256)
        raise _changed(path.parent / next(others, path.name))
    return path


def _changed(path: Path) -> ModelError:
    return ModelError(path, "it is not the file that the manifest was written for", "export the model again")
