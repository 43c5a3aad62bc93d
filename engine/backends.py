"""The backends: the libraries that run models. One table drives `--backend`, what `--backend auto` takes, `ars-engine
devices`, `ars-engine selftest` and the candidates of `ars-bench run`.

A new backend is one file in engine/runners/, with a CpuRunner or a GpuRunner in it, and one row of BACKENDS. Another
package adds a backend by an entry point of the group `ars.backends` that names a Backend:

    [project.entry-points."ars.backends"]
    fastnet = "fastnet_ars:BACKEND"
"""

import functools
import importlib
import importlib.metadata
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ars.engine.runners import CpuRunner, Generator, GpuRunner, Runner, is_quantised
from ars.errors import ArsError, InputError, MissingPackage, ModelError, UnknownName, one_line
from ars.external_data import ENGINE_SUFFIXES, TORCH_SUFFIXES
from ars.manifest import Manifest, manifest_beside
from ars.regular import check_regular

if TYPE_CHECKING:
    from ars.engine.gpu import Gpu

__all__ = [
    "BACKENDS",
    "CPU",
    "CUDA",
    "ENGINE_SUFFIXES",
    "TORCH_SUFFIXES",
    "Backend",
    "backend_named",
    "choose_backend",
    "find_backends",
    "list_backends",
    "load_generator",
    "load_gpu_runner",
    "load_runner",
    "manifest_of",
]

CPU, CUDA = "cpu", "cuda"

ONNX_SUFFIX = ".onnx"

_RUNNERS = "ars.engine.runners"


@dataclass(frozen=True)
class Backend:
    """A library that runs classifiers."""

    name: str
    """The name that `--backend` takes."""
    runner: str
    """Its subclass of CpuRunner or GpuRunner, as "module:class". The module imports the library."""
    package: str
    """The package that pip installs."""
    extra: str | None
    """The extra of ARS that installs the package; None if it is installed by its own name."""
    suffixes: tuple[str, ...]
    """The suffixes of the files that it reads."""
    runs_on: str
    """The kind of its devices: CPU, for a CpuRunner, or CUDA, for a GpuRunner."""
    why: str
    """Why `--backend auto` takes it, as the user reads it."""
    fast_at: tuple[str, ...] = ()
    """The precisions for which `auto` prefers it to the backends before it in the table."""
    generator: str | None = None
    """Its subclass of GeneratorRunner, as "module:class", if it can run noise generators."""

    def reads(self, path: Path) -> bool:
        """Whether it reads files with this suffix. A file whose suffix no backend knows is taken for ONNX."""
        known = {suffix for backend in list_backends() for suffix in backend.suffixes}
        return (path.suffix if path.suffix in known else ONNX_SUFFIX) in self.suffixes

    def runs_on_device(self, device: str) -> bool:
        """Whether it runs on a device with this name, like cpu or cuda:0."""
        return device.partition(":")[0] == self.runs_on

    def load(self) -> type[Runner]:
        """The runner's class. Raises an error with the install line if the library is missing or broken."""
        found = self._import(self.runner)
        wanted = CpuRunner if self.runs_on == CPU else GpuRunner
        if not (isinstance(found, type) and issubclass(found, wanted)):
            kind = wanted.__name__ if self.suffixes else "Backend"  # see _read_entry_point
            raise self._broken(f"{self.runner} is not a {kind}")
        return found

    def find_problem(self) -> ArsError | None:
        """Why the backend cannot be used, or None if it can. Imports the library."""
        try:
            self.load()
        except ArsError as error:
            return error
        return None

    def open_on_cpu(self, path: Path, lane_count: int) -> CpuRunner:
        """The classifier of a file, for as many threads as there are lanes."""
        runner = self.load()
        assert issubclass(runner, CpuRunner)
        return runner(path, lane_count)

    def open_on_gpu(self, path: Path, gpu: "Gpu") -> GpuRunner:
        """The classifier of a file, on one GPU."""
        runner = self.load()
        assert issubclass(runner, GpuRunner)
        return runner(path, gpu)

    def open_generator(self, path: Path) -> Generator:
        """The noise generator of a file."""
        assert self.generator is not None
        found: Generator = self._import(self.generator)(path)
        return found

    def _import(self, name: str) -> Any:
        module, _, attribute = name.partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            missing = (error.name or self.package).partition(".")[0]
            if self.extra is not None:
                raise MissingPackage(missing, self.extra) from error
            raise InputError(f"{missing} is not installed; run `pip install {self.package}`") from error
        except ArsError:
            raise
        except Exception as error:  # another package's module may fail in any way
            raise self._broken(one_line(error)) from error

    def _broken(self, reason: str) -> InputError:
        return InputError(f"the backend {self.name} cannot be loaded ({reason}); install {self.package} again")


# `auto` prefers the earlier rows.
BACKENDS = (
    Backend(
        name="onnxruntime",
        runner=f"{_RUNNERS}.onnxruntime:OnnxRuntime",
        generator=f"{_RUNNERS}.onnxruntime:OnnxGenerator",
        package="onnxruntime",
        extra="cpu",
        suffixes=(ONNX_SUFFIX,),
        runs_on=CPU,
        why="no other runs FP32 faster on a processor",
    ),
    Backend(
        name="openvino",
        runner=f"{_RUNNERS}.openvino:OpenVino",
        generator=f"{_RUNNERS}.openvino:OpenVinoGenerator",
        package="openvino",
        extra="openvino",
        suffixes=(ONNX_SUFFIX,),
        runs_on=CPU,
        why="INT8 runs about twice as fast there",
        fast_at=("int8",),
    ),
    Backend(
        name="torch",
        runner=f"{_RUNNERS}.torch:Torch",
        package="torch",
        extra="train",
        suffixes=TORCH_SUFFIXES,
        runs_on=CPU,
        why="it runs a model.pt as it was trained; what ars-export makes of it runs faster",
    ),
    Backend(
        name="onnxruntime-gpu",
        runner=f"{_RUNNERS}.onnxruntime_gpu:OnnxRuntimeGpu",
        package="onnxruntime-gpu",
        extra="gpu",
        suffixes=(ONNX_SUFFIX,),
        runs_on=CUDA,
        why="it runs ONNX files on GPUs; a TensorRT engine runs faster",
    ),
    Backend(
        name="tensorrt",
        runner=f"{_RUNNERS}.tensorrt:TensorRt",
        package="tensorrt",
        extra="gpu",
        suffixes=ENGINE_SUFFIXES,
        runs_on=CUDA,
        why="it runs the engines that it built",
    ),
    Backend(
        name="tensorrt_rtx",
        runner=f"{_RUNNERS}.tensorrt_rtx:TensorRtRtx",
        package="tensorrt_rtx",
        extra="rtx",
        suffixes=ENGINE_SUFFIXES,
        runs_on=CUDA,
        why="it runs the engines that it built",
    ),
)


@functools.cache
def list_backends() -> tuple[Backend, ...]:
    """The rows of BACKENDS, and then the backends that other packages add."""
    return (*BACKENDS, *map(_read_entry_point, importlib.metadata.entry_points(group="ars.backends")))


def _read_entry_point(entry: importlib.metadata.EntryPoint) -> Backend:
    """The Backend that an entry point names.

    If there is none, the result is a backend that reads no files, and whose `runner` is the entry point's own value.
    `load` then fails for the same reason and says so: the user hears of it when the backend is listed or used,
    and the other backends go on working.
    """
    try:
        found = entry.load()
    except Exception:  # another package's module may fail in any way
        found = None
    if isinstance(found, Backend):
        return found
    package = entry.dist.name if entry.dist else entry.module
    return Backend(entry.name, entry.value, package, None, (), CPU, "")


def backend_named(name: str) -> Backend:
    for backend in list_backends():
        if backend.name == name:
            return backend
    raise UnknownName("backend", name, ["auto", *(backend.name for backend in list_backends())])


def manifest_of(path: Path) -> Manifest | None:
    """The manifest beside a model file, if there is one. A model.pt needs none: it holds the same facts itself."""
    check_regular(path, ModelError)
    return None if path.suffix in TORCH_SUFFIXES else manifest_beside(path)


def choose_backend(path: Path, manifest: Manifest | None) -> tuple[str, str]:
    """The backend that `auto` takes for a file on the CPU, and why, as the user reads it."""
    fitting = find_backends(path, CPU, manifest)
    if not fitting:
        raise _refusal(path, CPU)
    preferred, *others = fitting
    problem = preferred.find_problem()
    for other in others if problem else ():
        if other.find_problem() is None:
            return other.name, f"{problem} ({preferred.why})"
    return preferred.name, preferred.why


def load_runner(path: Path, backend: str = "auto", lane_count: int = 1) -> CpuRunner:
    """The classifier of a file on the CPU, for as many threads as there are lanes."""
    if backend == "auto":
        backend = choose_backend(path, manifest_of(path))[0]
    return _named(backend, path, CPU).open_on_cpu(path, lane_count)


def load_gpu_runner(path: Path, gpu: "Gpu", backend: str = "auto") -> GpuRunner:
    """The classifier of a file on a GPU.

    Without a manifest nothing says which TensorRT built an engine, so `auto` tries the backends that read the file in
    turn.
    """
    if backend != "auto":
        return _named(backend, path, gpu.name).open_on_gpu(path, gpu)
    fitting = find_backends(path, gpu.name, manifest_of(path))
    if not fitting:
        raise _refusal(path, gpu.name)
    refusals = []
    for candidate in [one for one in fitting if one.find_problem() is None] or fitting[:1]:
        try:
            return candidate.open_on_gpu(path, gpu)
        except ModelError as error:
            refusals.append(error)
    raise refusals[0]


def load_generator(path: Path) -> Generator:
    """The noise generator of an ONNX file. It runs once for each input, so any backend is fast enough."""
    able = [backend for backend in list_backends() if backend.generator is not None]
    chosen = next((backend for backend in able if backend.find_problem() is None), able[0])
    return chosen.open_generator(path)


def find_backends(path: Path, device: str, manifest: Manifest | None) -> list[Backend]:
    """The backends that can run a file on a device, the one that `auto` prefers first."""
    fitting = [backend for backend in list_backends() if backend.reads(path) and backend.runs_on_device(device)]
    entry = manifest.entry(path.name) if manifest else None
    if entry is not None and entry.build is not None:
        fitting = [backend for backend in fitting if backend.name == entry.build.flavour]
    if entry is not None:
        precision = entry.precision
    else:
        precision = "int8" if path.exists() and is_quantised(path.read_bytes()) else "fp32"
    return sorted(fitting, key=lambda backend: precision not in backend.fast_at)


def _refusal(path: Path, device: str) -> ModelError:
    """The error for a file that no backend runs on the device."""
    other = "cuda:0" if device == CPU else CPU
    return ModelError(path, f"it does not run on {device}", f"use --device {other}, or give the ONNX file instead")


def _named(name: str, path: Path, device: str) -> Backend:
    """The backend of that name. Raises a ModelError unless it reads the file and runs on the device."""
    backend = backend_named(name)
    if not backend.suffixes:
        backend.load()  # its entry point could not be loaded; this says why
    if backend.reads(path) and backend.runs_on_device(device):
        return backend
    fitting = [other.name for other in list_backends() if other.reads(path) and other.runs_on_device(device)]
    fix = f"leave --backend out, or choose {' or '.join(fitting)}" if fitting else "give the ONNX file instead"
    does_not = "read such files" if backend.runs_on_device(device) else f"run on {device}"
    raise ModelError(path, f"{name} does not {does_not}", fix)
