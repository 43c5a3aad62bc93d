"""What turns a noisy batch into logits: one file a backend, and the file's name is the backend's name.

A new backend is one file with a CpuRunner in it, and a row of BACKENDS.
"""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ars.engine.runners import CpuRunner, Generator, is_quantised
from ars.errors import MissingPackage, ModelError, UnknownName
from ars.manifest import Manifest, manifest_beside

__all__ = [
    "BACKENDS",
    "ENGINE_SUFFIXES",
    "TORCH_SUFFIXES",
    "Backend",
    "backend_named",
    "choose_backend",
    "load_generator",
    "load_runner",
    "manifest_of",
]

ONNX_SUFFIX = ".onnx"
TORCH_SUFFIXES = (".pt", ".pth")
ENGINE_SUFFIXES = (".trt", ".engine", ".plan")


@dataclass(frozen=True)
class Backend:
    """A library that runs classifiers: its package, the extra that installs it, and the files that it reads."""

    name: str
    package: str
    extra: str
    suffixes: tuple[str, ...]
    runner: Callable[[], type[CpuRunner]]
    """Imports the library."""

    @property
    def installed(self) -> bool:
        return importlib.util.find_spec(self.package) is not None

    @property
    def missing(self) -> MissingPackage:
        """The error that has the install line."""
        return MissingPackage(self.package, self.extra)

    def reads(self, path: Path) -> bool:
        """Whether it is for files of that name; one that says nothing else is taken for ONNX."""
        suffix = path.suffix if path.suffix in (*TORCH_SUFFIXES, *ENGINE_SUFFIXES) else ONNX_SUFFIX
        return suffix in self.suffixes


def _onnxruntime() -> type[CpuRunner]:
    from ars.engine.runners.onnxruntime import OnnxRuntime

    return OnnxRuntime


def _openvino() -> type[CpuRunner]:
    from ars.engine.runners.openvino import OpenVino

    return OpenVino


def _torch() -> type[CpuRunner]:
    from ars.engine.runners.torch import Torch

    return Torch


BACKENDS = (
    Backend("onnxruntime", "onnxruntime", "cpu", (ONNX_SUFFIX,), _onnxruntime),
    Backend("openvino", "openvino", "openvino", (ONNX_SUFFIX,), _openvino),
    Backend("torch", "torch", "train", TORCH_SUFFIXES, _torch),
)


def backend_named(name: str) -> Backend:
    for backend in BACKENDS:
        if backend.name == name:
            return backend
    raise UnknownName("backend", name, ["auto", *(backend.name for backend in BACKENDS)])


def manifest_of(path: Path) -> Manifest | None:
    """The manifest beside a model file that has one; a model.pt says all of it itself."""
    return None if path.suffix in TORCH_SUFFIXES else manifest_beside(path)


def choose_backend(path: Path, manifest: Manifest | None) -> tuple[str, str]:
    """The fastest backend for this file of those that are installed, and why, for the user."""
    if path.suffix in ENGINE_SUFFIXES:
        raise ModelError(path, "TensorRT engines run on GPUs", "use --device cuda:0, or give the ONNX file instead")
    if path.suffix in TORCH_SUFFIXES:
        return "torch", "it runs a model.pt as it was trained; what ars-export makes of it runs faster"
    onnxruntime, openvino = backend_named("onnxruntime"), backend_named("openvino")
    entry = manifest.entry(path.name) if manifest else None
    int8 = entry.precision == "int8" if entry else path.exists() and is_quantised(path.read_bytes())
    if int8 and openvino.installed:
        return "openvino", "INT8 runs about twice as fast there"
    if int8 and onnxruntime.installed:
        return "onnxruntime", f"INT8 is slow there; {openvino.missing}"
    if onnxruntime.installed or not openvino.installed:
        return "onnxruntime", "no other runs FP32 faster on a processor"
    return "openvino", "onnxruntime is not installed"


def load_runner(path: Path, backend: str = "auto", lane_count: int = 1) -> CpuRunner:
    """The classifier of a file, for so many threads that call it at the same time."""
    chosen = backend_named(choose_backend(path, manifest_of(path))[0] if backend == "auto" else backend)
    if not chosen.reads(path):
        fitting = [other.name for other in BACKENDS if other.reads(path)]
        fix = f"leave --backend out, or choose {' or '.join(fitting)}" if fitting else "give the ONNX file instead"
        raise ModelError(path, f"{chosen.name} does not read such files", fix)
    return chosen.runner()(path, lane_count)


def load_generator(path: Path) -> Generator:
    """The noise generator of an ONNX file. It runs once an input, so any backend is fast enough."""
    if backend_named("onnxruntime").installed or not backend_named("openvino").installed:
        from ars.engine.runners.onnxruntime import OnnxGenerator

        return OnnxGenerator(path)
    from ars.engine.runners.openvino import OpenVinoGenerator

    return OpenVinoGenerator(path)
