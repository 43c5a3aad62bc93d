"""`ars-bench gpu-report`, on the simulated GPU."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from simulated_gpu.machine import Faults
from support import models

from ars.bench import timing
from ars.bench.cli import main
from ars.bench.run import candidates, random_model
from ars.bench.run.model import open_bench_model
from ars.manifest import Manifest, ModelFile, NoiseSettings
from ars.noise import NoiseKind


@pytest.fixture
def report(tmp_path, monkeypatch, machine):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(timing, "TURN_SECONDS", 0.01)
    monkeypatch.setattr(candidates, "TURN_SECONDS", 0.01)
    models.linear(Path("model.onnx"))

    def run(*arguments):
        given = ["--engine", "model.onnx", "--rounds", "3", "--n", "1000", *arguments]
        result = CliRunner().invoke(main, ["gpu-report", *given])
        return result, json.loads(Path("gpu-report.json").read_text())

    return run


def test_one_file_has_the_machine_its_checks_and_its_times(report):
    result, content = report()
    assert result.exit_code == 0, result.output
    assert [check["passed"] for check in content["selftest"]] == [True] * 6
    assert {k: content["inventory"][1][k] for k in ("name", "ready")} == {"name": "cuda:0", "ready": True}
    assert content["machine"]["cuda-bindings"]
    (one,) = content["benchmark"]["measurements"]
    assert one["backend"] == "onnxruntime-gpu"
    assert content["problem"] is None


def test_a_gpu_that_fails_a_check_is_not_timed_and_the_file_says_so(report, machine):
    machine.faults = Faults(at=1, only=lambda name: name == "deserialize_cuda_engine")
    result, content = report()
    assert result.exit_code == 1
    assert "cuda:0 failed 1 checks; do not certify with it, and send gpu-report.json" in result.stderr
    assert (content["benchmark"], content["problem"]) == (None, "a check failed")


def test_a_model_that_cannot_be_timed_leaves_the_checks_in_the_file(report):
    result, content = report("--engine", "none.onnx")
    assert result.exit_code == 1
    said = "none.onnx: there is no such file; give a model, or an architecture like resnet20"
    assert f"Error: {said}; gpu-report.json has what was found until then" in result.stderr
    assert (content["problem"], content["traceback"]) == (said, None)
    assert len(content["selftest"]) == 6


def test_a_driver_that_fails_is_in_the_file_too(report, machine):
    machine.faults = Faults(at=1, lasting=True, only=lambda name: name == "cuInit")
    result, content = report()
    assert result.exit_code == 1
    assert "Error: CUDA does not work, or was lost (cuInit failed: " in result.stderr
    assert content["problem"].startswith("CUDA does not work")
    assert (content["selftest"], content["benchmark"]) == ([], None)
    assert "CUDA does not work" in content["inventory"][1]["details"]


def test_an_error_that_nobody_expects_is_one_line_with_its_traceback_in_the_file(report, monkeypatch):
    monkeypatch.setattr("ars.bench.run.measure.interleave", lambda turns, rounds: {}["no such key"])
    result, content = report()
    assert result.exit_code == 1
    assert "Error: KeyError: 'no such key'; gpu-report.json has what was found" in result.stderr
    assert "Traceback" not in result.output
    assert content["traceback"][-1] == "KeyError: 'no such key'"
    assert len(content["selftest"]) == 6


def test_a_device_that_is_not_there_is_refused(tmp_path, monkeypatch, machine):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["gpu-report", "--device", "cuda:3"])
    assert result.exit_code == 2
    assert "device = cuda:3 is not valid; this machine has cuda:0" in result.stderr
    assert not Path("gpu-report.json").exists()


def test_a_network_for_a_gpu_is_exported_in_fp16_too_with_an_engine(tmp_path, monkeypatch):
    """The export is made up; the slow test below does all of it."""

    def export(arch, shape, folder, precisions=("fp32", "int8")):
        files = [ModelFile("classifier", f"{arch}.{one}.onnx", "0" * 64, one) for one in precisions]
        files.append(ModelFile("engine", f"{arch}.trt", "0" * 64, precisions[-1]))
        noise = NoiseSettings("gaussian", NoiseKind.ISOTROPIC, 0.25)
        Manifest(shape, ("a", "b"), noise, tuple(files)).write(folder / f"{arch}.json")
        return folder / f"{arch}.json"

    monkeypatch.setattr(random_model, "export_random", export)
    on_cpu, on_gpu = (tmp_path / name for name in ("cpu", "gpu"))
    on_cpu.mkdir(), on_gpu.mkdir()
    files = [(file.path.name, file.precision) for file in open_bench_model("cnn", on_cpu).files]
    assert files == [("cnn.fp32.onnx", "fp32"), ("cnn.int8.onnx", "int8"), ("cnn.trt", "int8")]
    more = [(file.path.name, file.precision) for file in open_bench_model("cnn", on_gpu, "cuda:0").files]
    assert more == [*files, ("cnn.fp16.onnx", "fp16"), ("cnn.trt", "fp16")]


@pytest.mark.slow
def test_a_network_is_timed_in_each_precision_by_each_library(report):
    result, content = report("--engine", "cnn", "--n", "100")
    assert result.exit_code == 0, result.output
    names = {one["name"] for one in content["benchmark"]["measurements"]}
    of_onnxruntime = {f"ars onnxruntime-gpu {precision}" for precision in ("fp32", "fp16", "int8")}
    assert names == of_onnxruntime | {"ars tensorrt fp16", "ars tensorrt int8"}
