"""Every name of a library that the GPU path calls: listed once, in the real library and simulated."""

import ast
import inspect
import itertools
import os
import re
import sys
from pathlib import Path

import onnxruntime
import pytest
import simulated_gpu
from simulated_gpu import onnxruntime as simulated_onnxruntime
from simulated_gpu import tensorrt as simulated_tensorrt
from support.engine_runs import certify, records

from ars.engine.backends import backend_named
from ars.engine.records.store import read_header
from ars.engine.selftest import MODEL

try:
    import tensorrt_rtx as rtx
except ImportError:
    rtx = None

ENGINE = Path(__file__).parents[3] / "engine"

# Every name of TensorRT that engine/runners/plans.py uses, with the names of its arguments.
TENSORRT = {
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


def found(root, dotted):
    for part in dotted.split("."):
        assert hasattr(root, part), dotted
        root = getattr(root, part)
    return root


def test_each_binding_is_called_from_one_file():
    callers = {"pycuda": "bindings/pycuda.py", "cuda": "bindings/cuda_python.py"}
    for path, (package, caller) in itertools.product(ENGINE.rglob("*.py"), callers.items()):
        imports = re.search(rf"^ *(import|from) {package}\b", path.read_text(), re.M)
        assert bool(imports) == (path == ENGINE / caller), path


def offered(function):
    """The names in a function's signatures: pybind11 writes them, overloads included, in the docstring."""
    try:
        return [[name for name in inspect.signature(function).parameters if name != "self"]]
    except ValueError:
        signatures = re.findall(r"\w+\(self: [\w.]+(?:, )?(.*)\) -> ", function.__doc__)
        return [re.findall(r"(\w+): ", signature) for signature in signatures]


@pytest.mark.skipif(rtx is None, reason="tensorrt_rtx is not installed")
def test_every_listed_name_of_tensorrt_is_in_the_real_one_with_these_parameters_and_simulated():
    for name, expected in TENSORRT.items():
        for root in (rtx, simulated_tensorrt):
            thing = found(root, name)
            if expected is not None:
                signatures = offered(thing.__init__ if inspect.isclass(thing) else thing)
                assert list(expected) in [one[: len(expected)] for one in signatures], (root, name, signatures)


def test_tensorrt_is_called_by_the_names_that_are_listed():
    source = (ENGINE / "runners" / "plans.py").read_text()
    used = set(re.findall(r"\btrt\.([A-Za-z_.]+)", source)) - {"ILogger", "ILogger.__init__"}
    assert used <= set(TENSORRT)
    attributes = {node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)}
    assert {name.split(".")[-1] for name in TENSORRT} <= attributes | {"log", "__version__"}


@pytest.mark.skipif(rtx is None, reason="tensorrt_rtx is not installed")
def test_the_names_that_only_tensorrt_rtx_has_are_in_the_real_one_and_simulated():
    for name in (
        "CudaGraphStrategy.DISABLED",
        "CudaGraphStrategy.WHOLE_GRAPH_CAPTURE",
        "DynamicShapesKernelSpecializationStrategy.EAGER",
        "ICudaEngine.create_runtime_config",
        "IExecutionContext.is_stream_capturable",
        "IRuntimeCache.deserialize",
        "IRuntimeCache.serialize",
        "IRuntimeConfig.create_runtime_cache",
        "IRuntimeConfig.cuda_graph_strategy",
        "IRuntimeConfig.dynamic_shapes_kernel_specialization_strategy",
        "IRuntimeConfig.set_execution_context_allocation_strategy",
        "IRuntimeConfig.set_runtime_cache",
    ):
        real, simulated = found(rtx, name), found(simulated_tensorrt, name)
        if callable(simulated) and not isinstance(simulated, type):
            ((theirs,), (ours,)) = offered(real), offered(simulated)
            assert theirs[: len(ours)] == ours, name  # pybind11 also writes the values that arguments have by default


def test_engines_of_tensorrt_rtx_fit_no_hopper_and_no_data_center_blackwell():
    from ars.engine.runners.plans import fits
    from ars.manifest import EngineBuild, Profile

    build = EngineBuild("tensorrt_rtx", "1.7", ("8.0+",), Profile(1, 1, 1), "model.onnx", "")
    fitting = [major for major in (7, 8, 9, 10, 12) if fits(build, (major, 0))]
    assert fitting == [8, 12]


def test_onnxruntimes_names_are_the_real_ones_with_these_parameters():
    for name in ("InferenceSession.run_with_iobinding", "IOBinding.bind_input", "IOBinding.bind_output"):
        assert offered(found(onnxruntime, name)) == offered(found(simulated_onnxruntime, name))
    for name in (
        "SessionOptions.add_session_config_entry",
        "RunOptions.add_run_config_entry",
        "InferenceSession.get_providers",
        "get_available_providers",
    ):
        found(onnxruntime, name)
        found(simulated_onnxruntime, name)
    session = onnxruntime.InferenceSession
    assert offered(session.__init__)[0][:3] == offered(simulated_onnxruntime.InferenceSession.__init__)[0][:3]


@pytest.mark.skipif(rtx is None, reason="tensorrt_rtx is not installed")
def test_the_real_one_builds_the_network_of_the_selftest(tmp_path):
    plan = backend_named("tensorrt_rtx").load().convert(MODEL, tmp_path, 64)
    assert plan.stat().st_size > MODEL.stat().st_size


@pytest.fixture
def built(files, monkeypatch):
    """An engine that the real tensorrt_rtx built, on a machine with a simulated one that runs it from its ONNX file."""
    from ars.export.tensorrt import BuildOptions, Flavour, build_engine
    from ars.manifest import Profile

    if rtx is None:
        pytest.skip("tensorrt_rtx is not installed")
    plan, build = build_engine(Path("model.onnx"), Flavour("tensorrt_rtx", rtx), BuildOptions(Profile(1, 64, 256)))
    assert build.compute_capabilities == ("8.0+",)
    Path("model.trt").write_bytes(plan)
    with simulated_gpu.installed() as machine:
        machine.plans[plan] = Path("model.onnx").read_bytes()
        monkeypatch.setitem(sys.modules, "tensorrt_rtx", simulated_tensorrt)
        monkeypatch.setitem(sys.modules, "tensorrt", None)
        yield machine
        monkeypatch.undo()


def test_an_engine_that_was_built_for_real_runs_from_its_onnx(built):
    result = certify("--out", "gpu.sqlite", engine="model.trt")
    assert result.exit_code == 0, result.output
    assert "CUDA graph" not in result.stderr
    assert certify().exit_code == 0
    assert records() == records("gpu.sqlite")
    assert read_header(Path("gpu.sqlite")).settings.runner == "tensorrt_rtx"
    graphs = "WHOLE_GRAPH_CAPTURE" if os.environ.get("ARS_TEST_BINDING") == "pycuda" else "DISABLED"
    for config in built.runtime_configs:
        assert config.dynamic_shapes_kernel_specialization_strategy.name == "EAGER"
        assert config.cuda_graph_strategy.name == graphs, "a graph cannot be launched while one is captured"
    assert built.runtime_configs
    assert (built.calls["cuGraphLaunch"] > 0) == (graphs == "DISABLED")


def test_kernels_that_were_compiled_are_kept_beside_the_engine(built):
    def compiled():
        built.calls.clear()
        assert (
            certify("--max", "1", "--out", f"{len(list(Path().glob('*.sqlite')))}.sqlite", engine="model.trt").exit_code
            == 0
        )
        return built.calls["compiled for a shape"]

    cache = Path("model.trt.cache")
    assert compiled() == 1
    kept = cache.read_bytes()
    assert compiled() == 0
    assert cache.read_bytes() == kept
    cache.write_bytes(kept[:-3])
    assert compiled() == 1, "what TensorRT does not take is compiled again"
    cache.write_bytes(bytes(32) + kept[32:])
    assert compiled() == 1, "so is what another engine left there"
    assert cache.read_bytes() == kept
    store = b"SQLite format 3\0"
    cache.write_bytes(store)
    assert compiled() == 1, "a file that must not be overwritten is no error"
    assert cache.read_bytes() == store
    cache.unlink()
    os.mkfifo(cache)
    assert compiled() == 1, "nobody waits for what is no file"
    assert cache.read_bytes() == kept
    cache.unlink()
    cache.mkdir()
    assert compiled() == 1, "a cache that cannot be written is no error"
