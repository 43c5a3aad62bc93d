"""TensorRT: real engines of tensorrt_rtx, which needs no GPU to build, and what it and a missing one say.

`pytest -s tests/export/test_tensorrt.py` prints the engines' sizes and build times.
"""

import importlib.util
import sys
import time
import types
from functools import reduce

import numpy as np
import pytest
from onnx import helper
from support import models

from ars.errors import ArgumentError, InputError, MissingPackage, ModelError, RunError
from ars.export import tensorrt
from ars.export.precision import write_fp16, write_int8
from ars.export.tensorrt import BuildOptions, Flavour, build_engine, find_flavour
from ars.manifest import EngineBuild, Profile

PROFILE = Profile(1, 64, 256)
OPTIONS = BuildOptions(PROFILE)

# Every name of TensorRT that export/tensorrt.py uses. Only tensorrt_rtx has the compute capabilities.
NAMES = (
    "Builder.build_serialized_network",
    "Builder.create_builder_config",
    "Builder.create_network",
    "Builder.create_optimization_profile",
    "BuilderFlag.REQUIRE_USER_ALLOCATION",
    "BuilderFlag.TF32",
    "ComputeCapability.__members__",
    "IBuilderConfig.add_optimization_profile",
    "IBuilderConfig.builder_optimization_level",
    "IBuilderConfig.clear_flag",
    "IBuilderConfig.create_timing_cache",
    "IBuilderConfig.get_timing_cache",
    "IBuilderConfig.num_compute_capabilities",
    "IBuilderConfig.progress_monitor",
    "IBuilderConfig.set_compute_capability",
    "IBuilderConfig.set_flag",
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
    "__version__",
)


@pytest.fixture(scope="module")
def rtx():
    return Flavour("tensorrt_rtx", pytest.importorskip("tensorrt_rtx"))


@pytest.fixture(scope="module")
def classifiers(tmp_path_factory):
    """ResNets of 20 and 110 layers for 32 x 32 images, each in three precisions."""
    folder = tmp_path_factory.mktemp("resnets")
    noisy = np.random.default_rng(0).normal(0.5, 0.5, (8, 3, 32, 32)).astype(np.float32)
    for depth in (20, 110):
        fp32 = models.resnet(folder / f"resnet{depth}.fp32.onnx", depth, (3, 32, 32))
        write_fp16(fp32, folder / f"resnet{depth}.fp16.onnx", fp32)
        write_int8(fp32, folder / f"resnet{depth}.int8.onnx", [noisy], fp32)
    return folder


def _built(name, source, rtx):
    """An engine of the file; says its size and the processor's time, which does not depend on other work."""
    start = time.process_time()
    plan, build = build_engine(source, rtx, OPTIONS)
    seconds = time.process_time() - start
    print(f"\n{name}: {len(plan) / 1e6:.2f} MB, {seconds:.1f} s of processor time, {build.flavour} {build.version}")
    return plan, build


def test_every_name_that_is_used_is_one_of_tensorrt_s(rtx):
    for name in NAMES:
        reduce(getattr, name.split("."), rtx.module)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
@pytest.mark.parametrize("depth", [20, 110])
def test_an_engine_of_each_precision_is_built(rtx, classifiers, depth, precision):
    source = classifiers / f"resnet{depth}.{precision}.onnx"
    plan, build = _built(f"resnet{depth} {precision}", source, rtx)
    assert b"trt" in plan[:4]
    assert (build.flavour, build.compute_capabilities, build.profile) == ("tensorrt_rtx", ("8.0+",), PROFILE)
    assert build.source == source.name


def test_an_engine_of_a_generator_is_built(rtx, tmp_path):
    plan, build = _built("generator", models.generator(tmp_path / "noise.onnx", (3, 32, 32)), rtx)
    assert b"trt" in plan[:4]
    assert build.source == "noise.onnx"


def test_an_engine_is_built_for_the_gpus_that_are_asked_for(rtx, tmp_path):
    source = models.linear(tmp_path / "model.onnx")
    plan, build = build_engine(source, rtx, BuildOptions(PROFILE, ("8.6", "12.0"), 64, None, 0))
    assert plan
    assert build == EngineBuild(
        "tensorrt_rtx", rtx.version, ("8.6", "12.0"), PROFILE, "model.onnx", build.source_sha256
    )


def test_progress_goes_from_none_to_all_of_the_steps(rtx, tmp_path):
    steps = []
    build_engine(models.linear(tmp_path / "model.onnx"), rtx, OPTIONS, lambda phase, done, of: steps.append((done, of)))
    assert steps[0][0] == 0
    assert steps[-1][0] == steps[-1][1] > 0
    assert steps == sorted(steps)


def test_an_interrupt_ends_a_build(rtx, tmp_path):
    def interrupt(phase, done, steps):
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_engine(models.linear(tmp_path / "model.onnx"), rtx, OPTIONS, interrupt)


def test_an_operator_that_tensorrt_lacks_is_named_with_its_node(rtx, tmp_path):
    odd = helper.make_node("Det", ["x"], ["logits"], "measure")
    path = models.save(tmp_path / "m.onnx", [odd], [models.value("x", "n", 4, 4)], [models.value("logits", "n")])
    with pytest.raises(
        ModelError, match=r"m.onnx: TensorRT does not support its node 'measure', a Det \(unsupported node\); "
    ):
        build_engine(path, rtx, OPTIONS)


def test_a_file_that_is_no_onnx_is_refused(rtx, tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"hello")
    with pytest.raises(ModelError, match=r"m.onnx: it is not an ONNX model"):
        build_engine(tmp_path / "m.onnx", rtx, OPTIONS)


def test_what_the_builder_says_is_wrong_is_said(rtx, classifiers):
    with pytest.raises(
        RunError, match=r"cannot build it \(.*FP32 GEMM is not supported.*; build from --precision fp16"
    ):
        build_engine(classifiers / "resnet20.fp32.onnx", rtx, BuildOptions(PROFILE, ("7.5",)))
    with pytest.raises(RunError, match=r"resnet20.fp32.onnx: .*; give a larger --workspace"):
        build_engine(classifiers / "resnet20.fp32.onnx", rtx, BuildOptions(PROFILE, workspace=1))


def test_sizes_that_do_not_fit_are_refused(rtx, tmp_path):
    with pytest.raises(ModelError, match="it takes only batches of 4; export it with a dynamic batch, or give --min-b"):
        build_engine(models.linear(tmp_path / "fixed.onnx", batch=4), rtx, OPTIONS)
    plan, _ = build_engine(tmp_path / "fixed.onnx", rtx, BuildOptions(Profile(4, 4, 4)))
    assert plan
    with pytest.raises(ModelError, match="export it with fixed sizes for all dimensions except the batch"):
        build_engine(models.generator(tmp_path / "any.onnx", (1, "h", 4)), rtx, OPTIONS)


def test_an_engine_for_one_batch_size_has_static_shapes(rtx, tmp_path):
    trt, source = rtx.module, models.linear(tmp_path / "model.onnx")
    shapes = {}
    for profile in (Profile(64, 64, 64), PROFILE):
        builder = trt.Builder(log := tensorrt.make_log(trt))
        network = builder.create_network(0)
        assert trt.OnnxParser(network, log).parse(source.read_bytes())
        tensorrt._set_profile(source, builder, network, builder.create_builder_config(), profile)
        shapes[profile] = tuple(network.get_input(0).shape), tuple(network.get_output(0).shape)
    assert shapes == {Profile(64, 64, 64): ((64, 1, 4, 4), (64, 3)), PROFILE: ((-1, 1, 4, 4), (-1, 3))}
    plan, build = build_engine(source, rtx, BuildOptions(Profile(64, 64, 64)))
    assert b"trt" in plan[:4]
    assert build.profile == Profile(64, 64, 64)


def test_a_compute_capability_that_it_does_not_know_is_refused(rtx, tmp_path):
    with pytest.raises(
        ArgumentError, match=r"compute-capability = 9.0 is not valid; tensorrt_rtx .* builds for 7.5, 8"
    ):
        build_engine(tmp_path / "none.onnx", rtx, BuildOptions(PROFILE, ("9.0",)))


@pytest.mark.parametrize(
    ("profile", "rest", "message"),
    [
        ((8, 4, 16), {}, "give 1 <= min <= opt <= max"),
        ((1, 32, 16), {}, "give 1 <= min <= opt <= max"),
        ((0, 4, 16), {}, "give 1 <= min <= opt <= max"),
        ((1, 2, 4), {"workspace": 0}, "workspace = 0 is not valid"),
        (
            (1, 2, 4),
            {"optimization_level": 6},
            "builder-optimization-level = 6 is not valid; it must be between 0 and 5",
        ),
    ],
)
def test_options_that_make_no_sense_are_refused(profile, rest, message):
    with pytest.raises(ArgumentError, match=message):
        BuildOptions(Profile(*profile), **rest)


def test_a_tensorrt_that_cannot_be_initialised_is_one_sentence(rtx, tmp_path, monkeypatch):
    def fail(log):
        log.log(rtx.module.ILogger.ERROR, "CUDA initialization failure with error: 35")
        raise TypeError("pybind11::init(): factory function returned nullptr")

    monkeypatch.setattr(rtx.module, "Builder", fail)
    with pytest.raises(
        RunError, match=r"model\.onnx: tensorrt_rtx .* cannot build it \(CUDA init.* 35\); build no engine"
    ):
        build_engine(models.linear(tmp_path / "model.onnx"), rtx, OPTIONS)


def hide(monkeypatch, *present):
    """Only these packages are installed."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec",
        lambda name: name in present or None if name in ("tensorrt", "tensorrt_rtx") else find(name),
    )


def test_without_tensorrt_the_error_has_the_install_line(monkeypatch):
    hide(monkeypatch)
    with pytest.raises(MissingPackage) as error:
        find_flavour()
    assert str(error.value) == "TensorRT is not installed; run `pip install 'ars-certify[rtx]'`"


def test_tensorrt_alone_needs_a_gpu(monkeypatch):
    hide(monkeypatch, "tensorrt")
    monkeypatch.setattr(tensorrt, "local_gpu", lambda: None)
    with pytest.raises(InputError, match="run `pip install 'ars-certify\\[rtx\\]'`, which builds for other GPUs"):
        find_flavour()


@pytest.mark.parametrize(("gpu", "chosen"), [(None, "tensorrt_rtx"), ("8.6", "tensorrt")])
def test_with_both_the_gpu_at_hand_decides(monkeypatch, gpu, chosen):
    hide(monkeypatch, "tensorrt", "tensorrt_rtx")
    monkeypatch.setattr(tensorrt, "local_gpu", lambda: gpu)
    module = types.ModuleType(chosen)
    module.__version__ = "1.2"
    monkeypatch.setitem(sys.modules, chosen, module)
    flavour = find_flavour()
    assert (flavour.name, flavour.module, flavour.version) == (chosen, module, "1.2")


def test_tensorrt_builds_for_its_own_gpu_only():
    flavour = Flavour("tensorrt", types.SimpleNamespace(__version__="10.9"))
    with pytest.raises(
        ArgumentError, match=r"compute-capability = 8.6 is not valid; tensorrt builds only for the GPU of thi"
    ):
        tensorrt.check_capabilities(flavour, ("8.6",))


def test_a_timing_cache_is_no_matter_to_tensorrt_rtx(rtx, tmp_path):
    options = BuildOptions(PROFILE, timing_cache=tmp_path / "timing.cache")
    assert build_engine(models.linear(tmp_path / "model.onnx"), rtx, options)
    assert not (tmp_path / "timing.cache").exists()
