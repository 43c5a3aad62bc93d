"""Build a TensorRT engine from an ONNX file, with one of two packages ("flavours"): `tensorrt` builds for the GPU of
this machine, `tensorrt_rtx` also for other GPUs. The graph states the precision: half-precision weights, or pairs of
quantise and dequantise nodes."""

import ctypes
import importlib
import importlib.util
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ars.checks import whole_number
from ars.distribution import install_line
from ars.engine.runners.plans import make_log
from ars.errors import ArgumentError, InputError, MissingPackage, ModelError, RunError, one_line
from ars.external_data import HashedModel
from ars.manifest import EngineBuild, Profile
from ars.output import replacing

__all__ = [
    "LARGEST_BATCH",
    "BuildOptions",
    "Flavour",
    "build_engine",
    "check_capabilities",
    "find_flavour",
    "local_gpu",
]

# TensorRT raises errors of its own for sizes that do not fit into 32 bits.
LARGEST_BATCH = 2**31 - 1

# The compute capabilities that tensorrt_rtx builds for by default.
_RTX_DEFAULT = "8.0+"

OnStep = Callable[[str, int, int], None]
"""Called with a phase of the build, the steps of it that are done, and the number of its steps."""


@dataclass(frozen=True)
class Flavour:
    """An installed TensorRT package."""

    name: str
    module: Any

    @property
    def version(self) -> str:
        return str(self.module.__version__)

    def known_capabilities(self) -> dict[str, Any]:
        """The compute capabilities that can be requested, by name, like "8.6"."""
        members = self.module.ComputeCapability.__members__ if self.name == "tensorrt_rtx" else {}
        found = {name: re.fullmatch(r"SM(\d+)(\d)", name) for name in members}
        return {f"{match[1]}.{match[2]}": members[name] for name, match in found.items() if match}


@dataclass(frozen=True)
class BuildOptions:
    """How to build; None leaves the choice to TensorRT."""

    profile: Profile
    compute_capabilities: tuple[str, ...] = ()
    """Like "8.6"; empty for the flavour's default."""
    workspace: int | None = None
    """MiB of scratch memory on the GPU."""
    timing_cache: Path | None = None
    optimization_level: int | None = None

    def __post_init__(self) -> None:
        _check_profile(self.profile)
        if self.workspace is not None:
            whole_number("workspace", self.workspace, 1, 2**24, "it is in MiB, and at least 1")
        if self.optimization_level is not None:
            whole_number("builder-optimization-level", self.optimization_level, 0, 5, "it must be between 0 and 5")


def _check_profile(profile: Profile) -> None:
    """Reject batch sizes that are not in ascending order."""
    if not 1 <= profile.min_batch <= profile.opt_batch <= profile.max_batch:
        sizes = f"{profile.min_batch}, {profile.opt_batch}, {profile.max_batch}"
        raise ArgumentError("min-batch, opt-batch, max-batch", sizes, "give 1 <= min <= opt <= max")
    if profile.max_batch > LARGEST_BATCH:
        raise ArgumentError("max-batch", profile.max_batch, f"TensorRT takes batches of at most {LARGEST_BATCH}")


def local_gpu() -> str | None:
    """The compute capability of the first GPU of this machine, or None if the driver finds none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
        return None
    for number, value in ((75, major), (76, minor)):  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
        if driver.cuDeviceGetAttribute(ctypes.byref(value), number, device):
            return None
    return f"{major.value}.{minor.value}"


def find_flavour() -> Flavour:
    """The TensorRT package that can build here: `tensorrt` if there is a GPU, else `tensorrt_rtx`, which needs none."""
    installed = [name for name in ("tensorrt", "tensorrt_rtx") if _is_installed(name)]
    if not installed:
        raise MissingPackage("TensorRT", "rtx")
    if local_gpu() is None and "tensorrt_rtx" not in installed:
        problem = "tensorrt builds only for the GPU of this machine, and there is none"
        raise InputError(f"{problem}; run `{install_line('rtx')}`, which builds for other GPUs")
    name = "tensorrt_rtx" if local_gpu() is None else installed[0]
    try:
        return Flavour(name, importlib.import_module(name))
    except (ImportError, OSError) as error:
        raise RunError(f"{name} is installed but does not load ({error}); install it again") from error


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ValueError:  # the module is None in sys.modules
        return False


def check_capabilities(flavour: Flavour, names: Sequence[str]) -> None:
    """Reject compute capabilities that the flavour does not build for."""
    if names and flavour.name == "tensorrt":
        fix = "tensorrt builds only for the GPU of this machine: omit it, or build with tensorrt_rtx"
        raise ArgumentError("compute-capability", ",".join(names), fix)
    known = flavour.known_capabilities()
    for name in names:
        if name not in known:
            fix = f"{flavour.name} {flavour.version} builds for {', '.join(known)}"
            raise ArgumentError("compute-capability", name, fix)


def build_engine(
    source: Path, flavour: Flavour, options: BuildOptions, on_step: OnStep = lambda phase, done, steps: None
) -> tuple[bytes, EngineBuild]:
    """Build the engine of an ONNX file; returns its bytes, and a record of the build."""
    check_capabilities(flavour, options.compute_capabilities)
    trt = flavour.module
    log = make_log(trt)
    try:
        builder = trt.Builder(log)
    except TypeError as error:  # pybind11's, if TensorRT cannot make it: as where the driver is too old for it
        raise _build_error(source, flavour, [*log.errors, one_line(error)]) from error
    # In TensorRT 10 a flag makes the graph determine the precision; later versions always do so.
    flag = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
    network = builder.create_network(0 if flag is None or flavour.name == "tensorrt_rtx" else 1 << int(flag))
    parser = trt.OnnxParser(network, log)
    model = HashedModel(source)
    onnx = model.onnx_source()
    parsed = parser.parse(onnx) if isinstance(onnx, bytes) else parser.parse_from_file(str(onnx))
    model.close()
    if not parsed or not network.num_inputs:
        raise _parser_error(source, parser)
    config = builder.create_builder_config()
    config.clear_flag(trt.BuilderFlag.TF32)  # on by default; it rounds the factors of fp32 products to 10 bits
    if flavour.name == "tensorrt_rtx":
        config.set_flag(trt.BuilderFlag.REQUIRE_USER_ALLOCATION)  # so that the engine can be part of a CUDA graph
    _set_profile(source, builder, network, config, options.profile)
    if options.compute_capabilities:
        config.num_compute_capabilities = len(options.compute_capabilities)
        for index, name in enumerate(options.compute_capabilities):
            config.set_compute_capability(flavour.known_capabilities()[name], index)
    if options.workspace is not None:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, options.workspace << 20)
    if options.optimization_level is not None:
        config.builder_optimization_level = options.optimization_level
    cache = _open_timing_cache(config, options.timing_cache) if flavour.name == "tensorrt" else None
    monitor = _make_monitor(trt, on_step)
    config.progress_monitor = monitor
    plan = builder.build_serialized_network(network, config)
    if monitor.stopped:
        raise KeyboardInterrupt
    if plan is None:
        raise _build_error(source, flavour, log.errors)
    if cache is not None and options.timing_cache is not None:
        with replacing(options.timing_cache) as file:
            file.write_bytes(bytes(config.get_timing_cache().serialize()))
    usual = _RTX_DEFAULT if flavour.name == "tensorrt_rtx" else local_gpu() or "unknown"
    target = options.compute_capabilities or (usual,)
    build = EngineBuild(flavour.name, flavour.version, target, options.profile, source.name, model.hash.sha256)
    return bytes(plan), build


def _set_profile(source: Path, builder: Any, network: Any, config: Any, profile: Profile) -> None:
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        batch, *sides = tuple(tensor.shape)
        if -1 in sides:
            problem = f"its input {tensor.name!r} has the shape {tuple(tensor.shape)}, where -1 is any size"
            raise ModelError(source, problem, "export it with fixed sizes for all dimensions except the batch")
        if batch != -1:
            if (batch, batch, batch) != (profile.min_batch, profile.opt_batch, profile.max_batch):
                fix = f"export it with a dynamic batch, or give --min-batch, --opt-batch and --max-batch {batch}"
                raise ModelError(source, f"it takes only batches of {batch}", fix)
            continue
        sizes = (profile.min_batch, profile.opt_batch, profile.max_batch)
        if len(set(sizes)) == 1:  # TensorRT then knows every shape of the network, and chooses its kernels for these
            tensor.shape = (profile.opt_batch, *sides)
            continue
        shapes = builder.create_optimization_profile()
        shapes.set_shape(tensor.name, *((size, *sides) for size in sizes))
        config.add_optimization_profile(shapes)


def _open_timing_cache(config: Any, path: Path | None) -> Any:
    """The timing cache of this file, or a new one. (tensorrt_rtx has none, because it times nothing when it builds.)"""
    if path is None:
        return None
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        cache = config.create_timing_cache(path.read_bytes() if path.exists() else b"")
        if cache is None or not config.set_timing_cache(cache, False):
            raise ModelError(path, "it is not a timing cache of this TensorRT and this GPU", "choose another file")
        return cache


def _make_monitor(trt: Any, on_step: OnStep) -> Any:
    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]  # the module comes in two flavours
        """Reports the progress of the outermost phase. An interrupt ends the build at its next step."""

        def __init__(self) -> None:
            super().__init__()
            self.stopped = False
            self._outermost, self._steps = "", 0

        def phase_start(self, phase: str, parent: str | None, steps: int) -> None:
            if parent is None:
                self._outermost, self._steps = phase, steps
                on_step(phase, 0, steps)

        def step_complete(self, phase: str, step: int) -> bool:
            try:
                if phase == self._outermost:
                    on_step(phase, step + 1, self._steps)
            except KeyboardInterrupt:
                self.stopped = True
            return not self.stopped

        def phase_finish(self, phase: str) -> None:
            if phase == self._outermost:
                on_step(phase, self._steps, self._steps)

    return Monitor()


def _parser_error(source: Path, parser: Any) -> ModelError:
    """An error that names the first node that the parser rejected."""
    errors = [parser.get_error(index) for index in range(parser.num_errors)]
    if not errors:
        return ModelError(source, "TensorRT cannot read it", "check it with onnx.checker")
    first, more = errors[0], f", and {len(errors) - 1} more" if len(errors) > 1 else ""
    # The description is the failed check from TensorRT's source: a message in quotes, or just "false".
    words = re.search(r'"(.+)"', first.desc())
    reason = one_line(words[1] if words else first.desc())
    if reason == "false":
        reason = first.code().name.replace("_", " ").lower()
    if not first.node_operator():
        return ModelError(source, f"TensorRT cannot read it ({reason})", "check it with onnx.checker")
    node = f"its node {first.node_name()!r}, a {first.node_operator()} ({reason}){more}"
    fix = "replace that operator in the model, or build no engine: --tensorrt off"
    return ModelError(source, f"TensorRT does not support {node}", fix)


def _build_error(source: Path, flavour: Flavour, errors: list[str]) -> RunError:
    reason = errors[0] if errors else "no reason given"
    fix = "build no engine: --tensorrt off"
    if "workspace" in reason:
        fix = "give a larger --workspace, or omit it"
    elif "SM75" in reason:
        fix = "build from --precision fp16 or int8, or omit 7.5 from --compute-capability"
    return RunError(f"{source.name}: {flavour.name} {flavour.version} cannot build it ({reason}); {fix}")
