"""`ars-bench gpu-report`, on the simulated GPU."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from simulated_gpu.machine import Faults
from support import models

from ars.bench import timing
from ars.bench.cli import main
from ars.bench.run import candidates


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
    assert result.exit_code == 0, result.output
    assert "none.onnx" in content["problem"]
    assert len(content["selftest"]) == 6
