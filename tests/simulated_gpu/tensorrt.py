"""Stands in for tensorrt: the names of it that engines are built and run with. A plan holds the ONNX file that it was
made from."""

import enum
import json

from simulated_gpu.machine import MACHINE, Failure, Stream, current_gpu, driver
from simulated_gpu.models import queue_model, session_of

__version__ = "10.99.0"
MAGIC = b"a simulated plan\n"


def make_plan(onnx: bytes, batches=(1, 64, 256), *, version=__version__, compute_capability=(8, 6)) -> bytes:
    """What stands in for a built engine."""
    facts = {"batches": batches, "version": version, "compute_capability": compute_capability}
    return MAGIC + json.dumps(facts).encode() + b"\n" + onnx


class DataType(enum.Enum):
    FLOAT = 0
    HALF = 1
    INT32 = 3


class TensorIOMode(enum.Enum):
    NONE = 0
    INPUT = 1
    OUTPUT = 2


class ExecutionContextAllocationStrategy(enum.Enum):
    STATIC = 0
    ON_PROFILE_CHANGE = 1
    USER_MANAGED = 2


class DynamicShapesKernelSpecializationStrategy(enum.Enum):
    LAZY = 0
    EAGER = 1
    NONE = 2


class CudaGraphStrategy(enum.Enum):
    DISABLED = 0
    WHOLE_GRAPH_CAPTURE = 1


class IRuntimeConfig:
    """Only tensorrt_rtx has it, for which this module stands in, too."""

    dynamic_shapes_kernel_specialization_strategy = DynamicShapesKernelSpecializationStrategy.LAZY
    cuda_graph_strategy = CudaGraphStrategy.DISABLED
    strategy = ExecutionContextAllocationStrategy.STATIC
    cache = None

    def set_execution_context_allocation_strategy(self, strategy):
        self.strategy = strategy

    def create_runtime_cache(self):
        return IRuntimeCache()

    def set_runtime_cache(self, cache=None):
        self.cache = cache
        return True


class IRuntimeCache:
    """The kernels that were compiled for the shapes of batches, by this version, for this kind of GPU."""

    def __init__(self):
        self.shapes = set()

    def deserialize(self, blob):
        assert current_gpu() >= 0
        try:
            written = json.loads(bytes(blob))
        except ValueError:
            return False
        if written["made by"] != self._maker():
            return False
        self.shapes |= {tuple(shape) for shape in written["shapes"]}
        return True

    def serialize(self):
        return json.dumps({"made by": self._maker(), "shapes": sorted(self.shapes)}).encode()

    def _maker(self):
        return [__version__, *MACHINE.compute_capability]


class ILogger:
    class Severity(enum.Enum):
        INTERNAL_ERROR = 0
        ERROR = 1
        WARNING = 2

    INTERNAL_ERROR, ERROR, WARNING = Severity

    def __init__(self):
        pass

    def log(self, severity, msg):
        raise NotImplementedError


def _say(logger, text):
    logger.log(ILogger.WARNING, "a warning that nobody needs to see")
    logger.log(ILogger.ERROR, text)


def _attempt(logger, name, work):
    """The result, or None, and a word in the log: TensorRT raises nothing."""
    try:
        MACHINE.call(name)
        return work()
    except Failure as failure:
        _say(logger, "out of memory" if failure.kind == "memory" else str(failure))
        return None


class Runtime:
    def __init__(self, logger):
        self._logger = logger

    def deserialize_cuda_engine(self, serialized_engine):
        def load():
            gpu, plan = current_gpu(), bytes(serialized_engine)
            if plan in MACHINE.plans:
                return ICudaEngine(self._logger, gpu, MACHINE.plans[plan], (1, 64, 256))
            if not plan.startswith(MAGIC):
                raise Failure("logic", "the engine plan file has a magic tag that is not a plan's")
            text, onnx = plan[len(MAGIC) :].split(b"\n", 1)
            facts = json.loads(text)
            if facts["version"] != __version__:
                text = f"The engine plan file is not compatible with this version of TensorRT, expecting {__version__}"
                raise Failure("logic", f"{text} got {facts['version']}, please rebuild.")
            if tuple(facts["compute_capability"]) != MACHINE.compute_capability:
                built = ".".join(map(str, facts["compute_capability"]))
                raise Failure("logic", f"The engine plan file is generated on an incompatible device, compute {built}")
            return ICudaEngine(self._logger, gpu, onnx, tuple(facts["batches"]))

        return _attempt(self._logger, "deserialize_cuda_engine", load)


class ICudaEngine:
    def __init__(self, logger, gpu, onnx, batches):
        self._logger, self.gpu, self.onnx, self.batches = logger, gpu, onnx, batches
        session = session_of(onnx)
        self.ports = {port.name: port for port in (*session.get_inputs(), *session.get_outputs())}
        self.inputs = [port.name for port in session.get_inputs()]

    @property
    def num_io_tensors(self):
        return len(self.ports)

    def get_tensor_name(self, index):
        return list(self.ports)[index]

    def get_tensor_mode(self, name):
        return TensorIOMode.INPUT if name in self.inputs else TensorIOMode.OUTPUT

    def get_tensor_dtype(self, name):
        return {"tensor(float)": DataType.FLOAT, "tensor(float16)": DataType.HALF}[self.ports[name].type]

    def get_tensor_shape(self, name):
        return tuple(side if isinstance(side, int) else -1 for side in self.ports[name].shape)

    def get_tensor_profile_shape(self, name, profile_index):
        return [(batch, *self.get_tensor_shape(name)[1:]) for batch in self.batches]

    def create_runtime_config(self):
        return IRuntimeConfig()

    def create_execution_context(self, strategy=ExecutionContextAllocationStrategy.STATIC):
        config = None
        if isinstance(strategy, IRuntimeConfig):
            config, strategy = strategy, strategy.strategy
            MACHINE.runtime_configs.append(config)
        assert strategy is ExecutionContextAllocationStrategy.USER_MANAGED
        return _attempt(self._logger, "create_execution_context", lambda: IExecutionContext(self, config))


class IExecutionContext:
    SCRATCH_A_ROW = 256

    def __init__(self, engine, config):
        self.engine, self._addresses, self._shape, self._scratch = engine, {}, None, (0, 0)
        self._cache, self._is_new = config and config.cache, True
        self._own_graphs = bool(config) and config.cuda_graph_strategy is CudaGraphStrategy.WHOLE_GRAPH_CAPTURE

    def set_input_shape(self, name, shape):
        low, _, high = self.engine.batches
        fits = low <= shape[0] <= high and tuple(shape[1:]) == self.engine.get_tensor_shape(name)[1:]
        self._shape = tuple(shape) if fits else None
        return fits

    def update_device_memory_size_for_shapes(self):
        return self.SCRATCH_A_ROW * self._shape[0]

    def set_device_memory(self, memory, size):
        self._scratch = memory, size

    def set_tensor_address(self, name, memory):
        def check():
            MACHINE.at(self.engine.gpu, memory, 1)
            self._addresses[name] = memory
            return True

        return bool(_attempt(self.engine._logger, "set_tensor_address", check))

    def is_stream_capturable(self, stream):
        return not (self._own_graphs or MACHINE.refuses_capture)

    def execute_async_v3(self, stream_handle):
        def queue():
            stream = Stream(stream_handle)
            memory, size = self._scratch
            if size < self.SCRATCH_A_ROW * self._shape[0]:
                raise Failure("logic", "the context has not enough scratch memory")
            MACHINE.at(self.engine.gpu, memory, size)
            images, logits = self._addresses.values()
            if stream.is_capturing():
                if MACHINE.forgets_capture:
                    return True
                # What is new is set up first, and a graph of its own is launched: neither can be captured.
                if MACHINE.refuses_capture or self._own_graphs or self._is_new:
                    stream.run_all()
            self._is_new = False
            if self._cache is not None and self._shape not in self._cache.shapes:
                MACHINE.calls["compiled for a shape"] += 1
                self._cache.shapes.add(self._shape)
            queue_model(stream, self.engine.onnx, self._shape, images, logits)
            stream.add(lambda: MACHINE.at(self.engine.gpu, memory, size).fill(0xEE))
            return True

        return bool(_attempt(self.engine._logger, "execute_async_v3", queue))


class NetworkDefinitionCreationFlag(enum.IntEnum):
    STRONGLY_TYPED = 1


class BuilderFlag(enum.Enum):
    TF32 = 7


class IProgressMonitor:
    def __init__(self):
        pass


class ITensor:
    def __init__(self, port):
        self.name = port.name
        self.shape = tuple(side if isinstance(side, int) else -1 for side in port.shape)

    name = shape = None


class INetworkDefinition:
    def __init__(self):
        self.onnx, self._inputs = b"", []

    def take(self, onnx):
        self.onnx, self._inputs = onnx, [ITensor(port) for port in session_of(onnx).get_inputs()]

    @property
    def num_inputs(self):
        return len(self._inputs)

    def get_input(self, index):
        return self._inputs[index]


class OnnxParser:
    def __init__(self, network, logger):
        self._network = network

    def parse(self, model):
        self._network.take(bytes(model))
        return True


class IOptimizationProfile:
    def set_shape(self, input, min, opt, max):
        self.batches = min[0], opt[0], max[0]


class IBuilderConfig:
    progress_monitor = None

    def __init__(self):
        self.batches, self.flags = None, {BuilderFlag.TF32}

    def clear_flag(self, flag):
        self.flags.discard(flag)

    def add_optimization_profile(self, profile):
        self.batches = profile.batches
        return 0


class Builder:
    def __init__(self, logger):
        if _attempt(logger, "Builder", lambda: True) is None:
            raise TypeError("pybind11::init(): factory function returned nullptr")
        self._logger = logger
        MACHINE.built_on.append(int(driver().machine_current()))

    def create_network(self, flags=0):
        return INetworkDefinition()

    def create_builder_config(self):
        return IBuilderConfig()

    def create_optimization_profile(self):
        return IOptimizationProfile()

    def build_serialized_network(self, network, config):
        def build():
            if config.progress_monitor is not None:
                config.progress_monitor.phase_start("building", None, 1)
                config.progress_monitor.step_complete("building", 0)
                config.progress_monitor.phase_finish("building")
            batches = config.batches or 3 * network.get_input(0).shape[:1]
            return make_plan(network.onnx, batches, compute_capability=MACHINE.compute_capability)

        return _attempt(self._logger, "build_serialized_network", build)
