"""TensorRT engines, also called plans, on a GPU. TensorRT comes in two flavours with one interface: the packages
tensorrt and tensorrt_rtx. Each is a backend with a file of its own; what they share is here."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ars.engine.backends import manifest_of
from ars.engine.runners import GpuRunner, Port, gpu_error
from ars.errors import ArsError, DeviceError, ModelError, RunError, one_line
from ars.external_data import HashedModel
from ars.manifest import EngineBuild, Profile

if TYPE_CHECKING:
    from ars.engine.gpu import Gpu

__all__ = ["PlanRunner", "fits", "make_log"]


# TensorRT for RTX supports no data center GPUs of these major compute capabilities, Hopper and Blackwell's.
_NOT_RTX = (9, 10)


def fits(build: EngineBuild, compute_capability: tuple[int, int]) -> bool:
    """Whether an engine runs on GPUs of this compute capability, as far as its manifest can tell."""

    def one(stated: str) -> bool:
        known = re.fullmatch(r"(\d+)\.(\d+)(\+?)", stated)
        if known is None:
            return True
        lowest = int(known[1]), int(known[2])
        return compute_capability >= lowest if known[3] else compute_capability == lowest

    if build.flavour == "tensorrt_rtx" and compute_capability[0] in _NOT_RTX:
        return False
    return any(map(one, build.compute_capabilities or ("unknown",)))


def make_log(trt: Any) -> Any:
    """A logger for TensorRT that keeps the errors, so that they can be shown to the user."""

    class Log(trt.ILogger):  # type: ignore[misc]  # the module comes in two flavours
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []

        def log(self, severity: Any, msg: str) -> None:
            if severity in (trt.ILogger.INTERNAL_ERROR, trt.ILogger.ERROR):
                self.errors.append(one_line(msg))

        def reason(self) -> str:
            return "; ".join(self.errors[-2:]) or "it gives no reason"

    return Log()


class PlanRunner(GpuRunner):
    """A classifier from a TensorRT engine, on one GPU. A subclass says which flavour of TensorRT runs it."""

    trt: ClassVar[Any]
    """The module tensorrt or tensorrt_rtx."""

    def __init__(self, path: Path, gpu: "Gpu") -> None:
        self._engine: Any = None
        self._runtime: Any = None
        self._log = make_log(self.trt)
        super().__init__(path, gpu)

    @classmethod
    def convert(cls, onnx: Path, folder: Path, batch: int) -> Path:
        """An engine for the GPU at hand, with TensorRT's own choices. ars-export builds the engines that users keep."""
        log = make_log(cls.trt)
        try:
            plan = cls._build(onnx, batch, log)
        except Exception as error:  # pybind11 raises TypeError if TensorRT cannot make an object
            log.errors.append(one_line(error))
            plan = None
        if plan is None:
            problem = f"{cls.name} {cls.version} cannot build it ({log.reason()})"
            raise RunError(f"{onnx}: {problem}; install {cls.name} again")
        made = folder / f"{cls.name}.trt"
        made.write_bytes(bytes(plan))
        return made

    @classmethod
    def _build(cls, onnx: Path, batch: int, log: Any) -> Any:
        trt = cls.trt
        builder = trt.Builder(log)
        network = builder.create_network(0)
        parser, config = trt.OnnxParser(network, log), builder.create_builder_config()
        if not parser.parse(onnx.read_bytes()):
            return None
        image = network.get_input(0)
        profile = builder.create_optimization_profile()
        profile.set_shape(image.name, *((size, *tuple(image.shape)[1:]) for size in (1, batch, batch)))
        config.add_optimization_profile(profile)
        return builder.build_serialized_network(network, config)

    def open(self, model: HashedModel) -> tuple[Sequence[Port], Sequence[Port]]:
        manifest = manifest_of(self.path)
        entry = manifest.entry(self.path.name) if manifest else None
        build = entry.build if entry else None
        capability = self.gpu.facts.compute_capability
        here = f"{self.gpu.name} has compute {'.'.join(map(str, capability))}"
        again = "build it for this GPU: ars-export --help says how"
        if build is not None and not fits(build, capability):
            built_for = ", ".join(build.compute_capabilities)
            raise ModelError(self.path, f"it was built for GPUs of compute {built_for}, and {here}", again)
        self._runtime, self._engine = self._deserialize(model.content)
        if self._engine is None:
            built = f"it was built by {build.flavour} {build.version}, and {here}" if build else here
            refusal = f"{self.name} {self.version}: {self._log.reason()}"
            raise ModelError(self.path, f"{built}, where it does not load ({refusal})", again)
        return self._ports()

    def _deserialize(self, content: bytes) -> tuple[Any, Any]:
        try:
            with self.gpu.current():
                runtime = self.trt.Runtime(self._log)
                return runtime, runtime.deserialize_cuda_engine(content)
        except ArsError:
            raise
        except Exception as error:  # pybind11 raises TypeError if TensorRT returns nothing
            self._log.errors.append(one_line(error))
            return None, None

    def _ports(self) -> tuple[list[Port], list[Port]]:
        engine, trt = self._engine, self.trt
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
        # The context works in memory that we allocate for this shape. TensorRT would allocate it for the largest batch
        # of the profile.
        context = self.make_context(self.trt.ExecutionContextAllocationStrategy.USER_MANAGED)
        if context is None:
            raise self._failed("makes no context")
        if not context.set_input_shape(self.image.name, shape):
            raise self._failed(f"takes no batches of shape {shape}")
        size = context.update_device_memory_size_for_shapes()
        with self.gpu.memory(size) as scratch:
            context.set_device_memory(scratch, size)
            for port, address in ((self.image, images), (self.logits, logits)):
                if not context.set_tensor_address(port.name, address):
                    raise self._failed(f"does not take a buffer for {port.name}")
            self.capturable = self.can_capture(context, stream)

            def enqueue() -> None:
                if not context.execute_async_v3(stream):
                    raise self._failed(f"failed on a batch of {shape[0]}")

            yield enqueue

    def make_context(self, strategy: Any) -> Any:
        return self._engine.create_execution_context(strategy)

    def can_capture(self, context: Any, stream: int) -> bool:
        """Whether batches of a context may become part of a CUDA graph, as far as TensorRT can tell before it tries."""
        return True

    def _failed(self, what: str) -> RunError:
        return gpu_error(f"{self.path}: {self.name} {what} on {self.gpu.name}", self._log.reason())

    def close(self) -> None:
        with suppress(DeviceError), self.gpu.current():
            self._engine = None
            self._runtime = None
