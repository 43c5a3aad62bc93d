"""A full batch is one CUDA graph: noise, model and votes. A model that cannot be captured is queued step by step."""

import os
import threading
from pathlib import Path

import numpy as np
import pytest
from simulated_gpu.machine import Failure
from simulated_gpu.tensorrt import make_plan
from support import models
from support.engine_runs import certify, records, refused

import ars
from ars.engine.lanes import graphs
from ars.engine.statistics.plan import Plan

pytestmark = [
    pytest.mark.usefixtures("files", "machine", "plan"),
    pytest.mark.skipif(os.environ.get("ARS_TEST_BINDING") == "pycuda", reason="pycuda has no CUDA graphs"),
]


@pytest.mark.parametrize("stream", ["1", "2"])
@pytest.mark.parametrize("family", ["gaussian", "exponential"])
def test_most_batches_are_graphs_and_the_certificates_are_the_processors(machine, stream, family):
    how = ("--noise-stream", stream, "--family", family, "--limit", "8", "--threads", "2")
    assert certify("--device", "cpu", "--out", "expected.sqlite", *how, n=2000).exit_code == 0
    result = certify(*how, engine="model.trt", n=2000)
    assert result.exit_code == 0, result.output
    assert "CUDA graph" not in result.stderr
    assert records() == records("expected.sqlite")
    assert machine.calls["cuGraphLaunch"] > 0.8 * 8 * 2010 / 64


def test_a_graph_serves_batches_with_other_inputs_and_draws_but_not_another_seed(machine):
    """Each call has slots of its own, which may lie where those of an earlier call lay."""
    x = np.load("data.npz")["x"]
    plan = Plan(n0=64, n=64 * 20, alpha=0.01)
    with ars.load("model.trt", sigma=0.1, batch=64) as gpu, ars.load("model.onnx", sigma=0.1, batch=64) as cpu:
        for seed in (1, 2, 1, 3):
            done = [c.certify_many(enumerate(x[:7]), plan, seed=seed) for c in (gpu, cpu)]
            first, second = ({one.input_id: one.result for one in each} for each in done)
            assert first == second
    assert machine.calls["cuGraphLaunch"] > 4 * 7 * 20 / 2


def test_a_lane_keeps_few_graphs_and_destroys_the_oldest(machine, monkeypatch):
    monkeypatch.setattr(graphs, "_MOST", 3)
    x, plan = np.load("data.npz")["x"][0], Plan(n0=64, n=640, alpha=0.01)
    with ars.load("model.trt", sigma=0.1, batch=64, threads=1) as classifier:
        runs = [classifier.certify_many([(0, x)], plan, seed=seed) for seed in (0, 1, 2, 3, 4, 0)]
        results = [finished.result for run in runs for finished in run]
        assert results[0] == results[-1]
        assert machine.held()["graphs"] <= 3
        assert machine.calls["cuGraphExecDestroy"] > 2


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("refuses_capture", "operation not permitted when stream is capturing"),
        ("forgets_capture", "it gives other logits then"),
    ],
)
def test_a_model_that_cannot_be_captured_is_launched_step_by_step_with_a_note(machine, how, why):
    assert certify("--device", "cpu", "--out", "expected.sqlite").exit_code == 0
    setattr(machine, how, True)
    result = certify(engine="model.trt")
    assert result.exit_code == 0, result.output
    (note,) = (line for line in result.stderr.splitlines() if "CUDA graph" in line)
    assert note.startswith("cuda:0: tensorrt cannot be part of a CUDA graph here (")
    assert why in note
    assert note.endswith("; its kernels are launched one by one, with the same results")
    assert records() == records("expected.sqlite")
    assert machine.calls["execute_async_v3"] > 40 * 210 / 64


def test_a_graph_that_gives_other_votes_ends_the_run(machine):
    """The control: here TensorRT captures nothing, and only after it has been tried."""
    x = np.load("data.npz")["x"][0]
    with ars.load("model.trt", sigma=0.1, batch=64, threads=1) as classifier:
        classifier.predict(x, n=64)
        machine.forgets_capture = True
        with pytest.raises(ars.errors.DeviceError, match="cuda:0: a CUDA graph does not give the votes of the steps"):
            classifier.predict(x, n=640)
        launched = machine.calls["cuGraphLaunch"]
        classifier.predict(x, n=640)
        assert machine.calls["cuGraphLaunch"] == launched, "the lane uses no graph any more"


def test_onnxruntime_is_never_captured(machine):
    assert certify("--device", "cuda:0", engine="model.onnx").exit_code == 0
    assert not machine.calls["cuStreamBeginCapture"]


def test_an_engine_of_one_batch_size_is_captured_too(machine):
    Path("fixed.trt").write_bytes(make_plan(models.linear(Path("fixed.onnx"), batch=32).read_bytes(), (32, 32, 32)))
    result = certify("--batch", "auto", engine="fixed.trt")
    assert result.exit_code == 0, result.output
    assert machine.calls["cuGraphLaunch"] > 100


def test_without_memory_for_a_graph_the_run_goes_on_step_by_step(machine):
    assert certify("--device", "cpu", "--out", "expected.sqlite").exit_code == 0
    machine.faults.only, machine.faults.at = lambda name: name == "cuGraphInstantiate", 2  # after the trial
    machine.faults.kind = "memory"
    result = certify("--threads", "1", engine="model.trt")
    assert result.exit_code == 0, result.output
    assert machine.faults.happened
    assert records() == records("expected.sqlite")
    assert machine.calls["cuGraphLaunch"] == 1, "in the trial"


def test_a_lane_that_fails_while_another_makes_a_graph_ends_the_run_and_the_rest_can_be_certified(machine):
    assert certify("--device", "cpu", "--out", "expected.sqlite").exit_code == 0
    in_capture, failed, call = threading.Event(), threading.Event(), machine.call

    def fail_meanwhile(name):
        call(name)
        if not threading.current_thread().name.startswith("lane"):
            return
        if name == "cuStreamEndCapture" and not in_capture.is_set():
            in_capture.set()
            assert failed.wait(60), "the other lane has failed before this capture ends"
        elif name == "cuEventSynchronize" and in_capture.is_set() and not failed.is_set():
            failed.set()
            raise Failure("error", "this is a test")

    machine.call = fail_meanwhile
    refused(certify("--threads", "2", engine="model.trt"), "cuEventSynchronize failed: this is a test", status=1)
    del machine.call
    assert failed.is_set()
    assert not any(machine.held().values()), "nor is the graph that was made"
    before = records()
    assert certify("--threads", "2", engine="model.trt").exit_code == 0
    assert records() == records("expected.sqlite")
    assert records()[: len(before)] == before


def test_a_graph_that_cannot_be_made_in_a_run_is_one_sentence(machine):
    machine.faults.only, machine.faults.at = lambda name: name == "cuGraphInstantiate", 3  # after one trial a lane
    refused(
        certify("--threads", "2", engine="model.trt"),
        "cuda:0 does not work, or was lost (cuGraphInstantiate failed",
        status=1,
    )
