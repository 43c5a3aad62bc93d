"""ONNX to a TensorRT engine, by either flavour: `tensorrt`, for the GPU at hand, or `tensorrt_rtx`, which builds for
GPUs that are elsewhere. Precision comes from the graph: half weights, or quantise-dequantise pairs."""

import ctypes
import importlib
import importlib.util
import os
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

__all__ = [
    "API",
    "RTX_API",
    "BuildOptions",
    "Flavour",
    "build_engine",
    "check_capabilities",
    "find_flavour",
    "local_gpu",
]

# Every name of TensorRT that is used here, in both flavours.
API = (
    "__version__",
    "Builder.build_serialized_network",
    "Builder.create_builder_config",
    "Builder.create_network",
    "Builder.create_optimization_profile",
    "BuilderFlag.TF32",
    "IBuilderConfig.add_optimization_profile",
    "IBuilderConfig.builder_optimization_level",
    "IBuilderConfig.clear_flag",
    "IBuilderConfig.create_timing_cache",
    "IBuilderConfig.get_timing_cache",
    "IBuilderConfig.progress_monitor",
    "IBuilderConfig.set_memory_pool_limit",
    "IBuilderConfig.set_timing_cache",
    "ILogger.ERROR",
    "ILogger.INTERNAL_ERROR",
    "ILogger.log",
    "INetworkDefinition.get_input",
    "INetworkDefinition.num_inputs",
    "IOptimizationProfile.set_shape",
    "IProgressMonitor.phase_finish",
    "IProgressMonitor.phase_start",
    "IProgressMonitor.step_complete",
    "ITensor.name",
    "ITensor.shape",
    "ITimingCache.serialize",
    "MemoryPoolType.WORKSPACE",
    "OnnxParser.get_error",
    "OnnxParser.num_errors",
    "OnnxParser.parse",
    "OnnxParser.parse_from_file",
    "ParserError.code",
    "ParserError.desc",
    "ParserError.node_name",
    "ParserError.node_operator",
)
# These only tensorrt_rtx has: a tensorrt engine is for the GPU that it was built on.
RTX_API = (
    "ComputeCapability.__members__",
    "IBuilderConfig.num_compute_capabilities",
    "IBuilderConfig.set_compute_capability",
)

# What tensorrt_rtx builds for where it is not told.
_RTX_DEFAULT = "8.0+"

OnStep = Callable[[str, int, int], None]
"""Is told of a phase, the steps of it that are done, and all of its steps."""


@dataclass(frozen=True)
class Flavour:
    """A TensorRT package that is installed."""

    name: str
    module: Any

    @property
    def version(self) -> str:
        return str(self.module.__version__)

    def known_capabilities(self) -> dict[str, Any]:
        """By name, like "8.6", those that can be asked for."""
        members = self.module.ComputeCapability.__members__ if self.name == "tensorrt_rtx" else {}
        found = {name: re.fullmatch(r"SM(\d+)(\d)", name) for name in members}
        return {f"{match[1]}.{match[2]}": members[name] for name, match in found.items() if match}


@dataclass(frozen=True)
class BuildOptions:
    """How to build; None is TensorRT's own choice."""

    profile: Profile
    compute_capabilities: tuple[str, ...] = ()
    """Like "8.6"; none is the flavour's default."""
    workspace: int | None = None
    """MiB of scratch memory on the GPU."""
    timing_cache: Path | None = None
    optimization_level: int | None = None

    def __post_init__(self) -> None:
        _check_profile(self.profile)
        if self.workspace is not None:
            whole_number("workspace", self.workspace, 1, 2**24, "it is in MiB, at least 1")
        if self.optimization_level is not None:
            whole_number("builder-optimization-level", self.optimization_level, 0, 5, "it lies between 0 and 5")


def _check_profile(profile: Profile) -> None:
    """Refuse sizes that do not go up."""
    if not 1 <= profile.min_batch <= profile.opt_batch <= profile.max_batch:
        sizes = f"{profile.min_batch}, {profile.opt_batch}, {profile.max_batch}"
        raise ArgumentError("min-batch, opt-batch, max-batch", sizes, "give 1 <= min <= opt <= max")


def local_gpu() -> str | None:
    """The compute capability of this machine's first GPU, if the driver finds one."""
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
    """The TensorRT that can build here: `tensorrt` where there is a GPU, otherwise `tensorrt_rtx`, which needs none."""
    installed = [name for name in ("tensorrt", "tensorrt_rtx") if _is_installed(name)]
    if not installed:
        raise MissingPackage("TensorRT", "rtx")
    if local_gpu() is None and "tensorrt_rtx" not in installed:
        problem = "tensorrt builds on the GPU that an engine is for, and there is none here"
        raise InputError(f"{problem}; run `{install_line('rtx')}`, which builds for GPUs elsewhere")
    name = "tensorrt_rtx" if local_gpu() is None else installed[0]
    try:
        return Flavour(name, importlib.import_module(name))
    except (ImportError, OSError) as error:
        raise RunError(f"{name} is installed but does not load ({error}); install it again") from error


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ValueError:  # a module that was put away
        return False


def check_capabilities(flavour: Flavour, names: Sequence[str]) -> None:
    """Refuse a compute capability that the flavour does not build for."""
    if names and flavour.name == "tensorrt":
        fix = "tensorrt builds for the GPU of this machine only: leave it out, or build with tensorrt_rtx"
        raise ArgumentError("compute-capability", ",".join(names), fix)
    known = flavour.known_capabilities()
    for name in names:
        if name not in known:
            fix = f"{flavour.name} {flavour.version} builds for {', '.join(known)}"
            raise ArgumentError("compute-capability", name, fix)


def build_engine(
    source: Path, flavour: Flavour, options: BuildOptions, on_step: OnStep = lambda phase, done, steps: None
) -> tuple[bytes, EngineBuild]:
    """The engine of an ONNX file as bytes, and how it was built."""
    check_capabilities(flavour, options.compute_capabilities)
    trt = flavour.module
    log = make_log(trt)
    builder = trt.Builder(log)
    # TensorRT 10 asks for what all later versions always do: that precision is the graph's.
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
    config.clear_flag(trt.BuilderFlag.TF32)  # on by default, it would round the factors of fp32 to 10 bits
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
        _write_whole(options.timing_cache, bytes(config.get_timing_cache().serialize()))
    usual = _RTX_DEFAULT if flavour.name == "tensorrt_rtx" else local_gpu() or "unknown"
    target = options.compute_capabilities or (usual,)
    build = EngineBuild(flavour.name, flavour.version, target, options.profile, source.name, model.hash.sha256)
    return bytes(plan), build


def _set_profile(source: Path, builder: Any, network: Any, config: Any, profile: Profile) -> None:
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        batch, *sides = tuple(tensor.shape)
        if -1 in sides:
            problem = f"its input {tensor.name!r} has the shape {tuple(tensor.shape)}, where -1 may be any size"
            raise ModelError(source, problem, "export it with a fixed size for all but the batch")
        if batch != -1:
            if (batch, batch, batch) != (profile.min_batch, profile.opt_batch, profile.max_batch):
                fix = f"export it with a dynamic batch, or give --min-batch, --opt-batch and --max-batch {batch}"
                raise ModelError(source, f"it takes batches of {batch} only", fix)
            continue
        shapes = builder.create_optimization_profile()
        sizes = (profile.min_batch, profile.opt_batch, profile.max_batch)
        shapes.set_shape(tensor.name, *((size, *sides) for size in sizes))
        config.add_optimization_profile(shapes)


def _open_timing_cache(config: Any, path: Path | None) -> Any:
    """The cache of that file, new where there is none. tensorrt_rtx keeps none: it times nothing when it builds."""
    if path is None:
        return None
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        cache = config.create_timing_cache(path.read_bytes() if path.exists() else b"")
        if cache is None or not config.set_timing_cache(cache, False):
            raise ModelError(path, "it is not a timing cache of this TensorRT and this GPU", "give another name")
        return cache


def _write_whole(path: Path, content: bytes) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(content)
    os.replace(partial, path)


def _make_monitor(trt: Any, on_step: OnStep) -> Any:
    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]  # the module comes in two flavours
        """Tells how far the outermost phase is. An interrupt ends the build at its next step."""

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
    """What the parser did not like, by node."""
    errors = [parser.get_error(index) for index in range(parser.num_errors)]
    if not errors:
        return ModelError(source, "TensorRT cannot read it", "check it with onnx.checker")
    first, more = errors[0], f", and {len(errors) - 1} more" if len(errors) > 1 else ""
    # The description is the check that failed, as it stands in TensorRT's source: words in quotes, or just "false".
    words = re.search(r'"(.+)"', first.desc())
    reason = one_line(words[1] if words else first.desc())
    if reason == "false":
        reason = first.code().name.replace("_", " ").lower()
    if not first.node_operator():
        return ModelError(source, f"TensorRT cannot read it ({reason})", "check it with onnx.checker")
    node = f"its node {first.node_name()!r}, a {first.node_operator()} ({reason}){more}"
    fix = "replace that operator in the model, or leave the engine out with --tensorrt off"
    return ModelError(source, f"TensorRT cannot take {node}", fix)


def _build_error(source: Path, flavour: Flavour, errors: list[str]) -> RunError:
    reason = errors[0] if errors else "it gives no reason"
    fix = "leave the engine out with --tensorrt off"
    if "workspace" in reason:
        fix = "give a larger --workspace, or leave it out"
    elif "SM75" in reason:
        fix = "build from --precision fp16 or int8, or leave 7.5 out of --compute-capability"
    return RunError(f"{source.name}: {flavour.name} {flavour.version} cannot build it ({reason}); {fix}")
