"""TensorRT engines on a GPU, of either flavour: tensorrt, or tensorrt_rtx."""

import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ars.engine.backends import manifest_of
from ars.engine.gpu import Gpu
from ars.engine.runners import GpuRunner, Port
from ars.errors import ArsError, DeviceError, MissingPackage, ModelError, OutOfMemory, RunError
from ars.manifest import EngineBuild, Profile

__all__ = ["API", "FLAVOURS", "TensorRT", "build_plan", "fits", "installed_flavours"]

FLAVOURS = ("tensorrt", "tensorrt_rtx")

# Every name of TensorRT that the project runs engines with, and what it is called with.
API = {
    "Builder": ("logger",),
    "Builder.build_serialized_network": ("network", "config"),
    "Builder.create_builder_config": (),
    "Builder.create_network": ("flags",),
    "Builder.create_optimization_profile": (),
    "DataType.FLOAT": None,
    "DataType.HALF": None,
    "ExecutionContextAllocationStrategy.USER_MANAGED": None,
    "IBuilderConfig.add_optimization_profile": ("profile",),
    "ICudaEngine.create_execution_context": ("strategy",),
    "ICudaEngine.get_tensor_dtype": ("name",),
    "ICudaEngine.get_tensor_mode": ("name",),
    "ICudaEngine.get_tensor_name": ("index",),
    "ICudaEngine.get_tensor_profile_shape": ("name", "profile_index"),
    "ICudaEngine.get_tensor_shape": ("name",),
    "ICudaEngine.num_io_tensors": None,
    "IExecutionContext.execute_async_v3": ("stream_handle",),
    "IExecutionContext.set_device_memory": ("memory", "size"),
    "IExecutionContext.set_input_shape": ("name", "shape"),
    "IExecutionContext.set_tensor_address": ("name", "memory"),
    "IExecutionContext.update_device_memory_size_for_shapes": (),
    "ILogger.ERROR": None,
    "ILogger.INTERNAL_ERROR": None,
    "ILogger.log": ("severity", "msg"),
    "INetworkDefinition.get_input": ("index",),
    "IOptimizationProfile.set_shape": ("input", "min", "opt", "max"),
    "ITensor.name": None,
    "ITensor.shape": None,
    "OnnxParser": ("network", "logger"),
    "OnnxParser.parse": ("model",),
    "Runtime": ("logger",),
    "Runtime.deserialize_cuda_engine": ("serialized_engine",),
    "TensorIOMode.INPUT": None,
    "__version__": None,
}


def installed_flavours() -> dict[str, Any]:
    """The flavours of TensorRT that are installed, by name."""
    found = {}
    for flavour in FLAVOURS:
        try:
            found[flavour] = importlib.import_module(flavour)
        except ImportError:
            continue
    return found


def fits(build: EngineBuild, compute_capability: tuple[int, int]) -> bool:
    """Whether an engine was built for GPUs of that compute capability, as far as that is known."""

    def one(stated: str) -> bool:
        known = re.fullmatch(r"(\d+)\.(\d+)(\+?)", stated)
        if known is None:
            return True
        lowest = int(known[1]), int(known[2])
        return compute_capability >= lowest if known[3] else compute_capability == lowest

    return any(map(one, build.compute_capabilities or ("unknown",)))


def _make_log(trt: Any) -> Any:
    class Log(trt.ILogger):  # type: ignore[misc]
        """Keeps what TensorRT says of an error, for the user."""

        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.said: list[str] = []

        def log(self, severity: Any, msg: str) -> None:
            if severity in (trt.ILogger.INTERNAL_ERROR, trt.ILogger.ERROR):
                self.said.append(" ".join(msg.split()))

        def reason(self) -> str:
            return "; ".join(self.said[-2:]) or "it does not say why"

    return Log()


def build_plan(trt: Any, source: Path, batches: tuple[int, int, int]) -> bytes:
    """An engine for this GPU with TensorRT's own choices, for a check. ars-export builds those that are kept."""
    log = _make_log(trt)
    builder = trt.Builder(log)
    network = builder.create_network(0)
    parser, config = trt.OnnxParser(network, log), builder.create_builder_config()
    if parser.parse(source.read_bytes()):
        image = network.get_input(0)
        profile = builder.create_optimization_profile()
        profile.set_shape(image.name, *((batch, *tuple(image.shape)[1:]) for batch in batches))
        config.add_optimization_profile(profile)
        plan = builder.build_serialized_network(network, config)
        if plan is not None:
            return bytes(plan)
    raise RunError(f"{source}: TensorRT {trt.__version__} cannot build it ({log.reason()}); install TensorRT again")


class TensorRT(GpuRunner):
    """A classifier from a TensorRT engine (a plan), on one GPU."""

    name = "tensorrt"
    """The flavour that runs it, once it is open."""

    def __init__(self, path: Path, gpu: Gpu) -> None:
        self._gpu = gpu
        self._engine: Any = None
        self._runtime: Any = None
        manifest = manifest_of(path)
        entry = manifest.entry(path.name) if manifest else None
        self._build = entry.build if entry else None
        super().__init__(path)

    def open(self, content: bytes, lane_count: int) -> tuple[Sequence[Port], Sequence[Port]]:
        gpu, build = self._gpu, self._build
        capability = gpu.facts.compute_capability
        here = f"{gpu.name} has compute {'.'.join(map(str, capability))}"
        again = "build it for this GPU: ars-export --help says how"
        if build is not None and not fits(build, capability):
            for_these = ", ".join(build.compute_capabilities)
            raise ModelError(self.path, f"it was built for GPUs of compute {for_these}, and {here}", again)
        flavours = installed_flavours()
        if build is not None:
            flavours = {name: module for name, module in flavours.items() if name == build.flavour}
        if not flavours:
            raise MissingPackage(
                build.flavour if build else "tensorrt", "rtx" if build and "rtx" in build.flavour else "gpu"
            )
        refused = []
        for name, trt in flavours.items():
            self._trt, self._log = trt, _make_log(trt)
            self._runtime, self._engine = self._deserialize(content)
            if self._engine is not None:
                self.name, self.version = name, trt.__version__
                return self._ports()
            refused.append(f"{name} {trt.__version__}: {self._log.reason()}")
        built = f"it was built by {build.flavour} {build.version}, and {here}" if build else here
        raise ModelError(self.path, f"{built}, where it does not load ({'; '.join(refused)})", again)

    def _deserialize(self, content: bytes) -> tuple[Any, Any]:
        try:
            with self._gpu.current():
                runtime = self._trt.Runtime(self._log)
                return runtime, runtime.deserialize_cuda_engine(content)
        except ArsError:
            raise
        except Exception as error:  # of pybind11, where the library gives back nothing
            self._log.said.append(" ".join(str(error).split()))
            return None, None

    def _ports(self) -> tuple[list[Port], list[Port]]:
        engine, trt = self._engine, self._trt
        types = {trt.DataType.FLOAT: "float32", trt.DataType.HALF: "float16"}
        inputs: list[Port] = []
        outputs: list[Port] = []
        for index in range(engine.num_io_tensors):
            name = engine.get_tensor_name(index)
            shape = tuple(side if side >= 0 else None for side in engine.get_tensor_shape(name))
            kind = engine.get_tensor_dtype(name)
            port = Port(name, types.get(kind, str(kind)), shape)
            (inputs if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT else outputs).append(port)
        if len(outputs) != 1:
            fix = "export a classifier whose only output is the logits"
            raise ModelError(self.path, f"it has {len(outputs)} outputs", fix)
        if len(inputs) == 1 and inputs[0].shape:
            batch = inputs[0].shape[0]
            limits = [shape[0] for shape in engine.get_tensor_profile_shape(inputs[0].name, 0)]
            self.profile = Profile(*limits) if batch is None else Profile(batch, batch, batch)
        return inputs, outputs

    @contextmanager
    def bind(self, stream: int, shape: tuple[int, ...], images: int, logits: int) -> Iterator[Callable[[], None]]:
        # The memory that the context works in is ours, for this shape, not TensorRT's for the largest of the profile.
        context = self._engine.create_execution_context(self._trt.ExecutionContextAllocationStrategy.USER_MANAGED)
        if context is None:
            raise self._failed("makes no context")
        if not context.set_input_shape(self.image.name, shape):
            raise self._failed(f"takes no batches of shape {shape}")
        size = context.update_device_memory_size_for_shapes()
        with self._gpu.memory(size) as scratch:
            context.set_device_memory(scratch, size)
            for port, address in ((self.image, images), (self.logits, logits)):
                if not context.set_tensor_address(port.name, address):
                    raise self._failed(f"does not take a buffer for {port.name}")

            def enqueue() -> None:
                if not context.execute_async_v3(stream):
                    raise self._failed(f"failed on a batch of {shape[0]}")

            yield enqueue

    def _failed(self, what: str) -> RunError:
        reason = self._log.reason()
        kind = OutOfMemory if "memory" in reason.lower() else RunError
        return kind(f"{self.path}: {self.name} {what} on {self._gpu.name} ({reason}); try a smaller --batch")

    def close(self) -> None:
        with suppress(DeviceError), self._gpu.current():
            self._engine = None
            self._runtime = None
