"""`ars-bench run --device cuda:0`, on the simulated GPU: what takes part there."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from simulated_gpu.tensorrt import make_plan
from support import models

from ars.bench import timing
from ars.bench.cli import main
from ars.bench.run import candidates


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(("engine", "runner"), [("model.trt", "tensorrt"), ("model.onnx", "onnxruntime-gpu")])
def test_a_model_is_timed_on_the_gpu(tmp_path, monkeypatch, machine, engine, runner):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(timing, "TURN_SECONDS", 0.01)
    monkeypatch.setattr(candidates, "TURN_SECONDS", 0.01)
    models.linear(Path("model.onnx"))
    Path("model.trt").write_bytes(make_plan(Path("model.onnx").read_bytes()))
    given = ["--rounds", "3", "--n", "1000", "--device", "cuda:0", "--export-json", "bench.json"]
    result = CliRunner().invoke(main, ["run", "--engine", engine, *given])
    assert result.exit_code == 0, result.output
    content = json.loads(Path("bench.json").read_text())
    (one,) = content["measurements"]
    assert (one["name"], one["backend"]) == (f"ars {runner} fp32", runner)
    assert content["environment"]["device"] == "cuda:0"
    assert machine.calls["cuLaunchKernel"] > 0
