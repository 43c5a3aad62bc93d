"""Leaving a run before its end (break, Ctrl-C, an error) leaves nothing behind and breaks nothing. On the simulated
GPU, as on a real one, work that starts after its memory was freed is an error that stays with the context."""

import random
from pathlib import Path

import numpy as np
import pytest
from simulated_gpu.tensorrt import make_plan
from support import models

import ars
from ars.engine.scheduler import _Scheduler
from ars.engine.statistics.plan import Plan
from ars.errors import DeviceError

SHAPE, PLAN = (1, 8, 8), Plan(n0=16, n=200, alpha=0.01)


class Interrupted(Exception):
    pass


@pytest.fixture
def classifier(request, tmp_path, monkeypatch, machine):
    monkeypatch.chdir(tmp_path)
    models.linear(Path("model.onnx"), SHAPE)
    Path("model.trt").write_bytes(make_plan(Path("model.onnx").read_bytes()))
    devices = getattr(request, "param", "cuda:0")
    machine.reset(gpus=len(devices.split(",")))
    with ars.load("model.trt", sigma=0.25, batch=32, seed=1, device=devices) as classifier:
        yield classifier


INPUTS = np.random.default_rng(1).random((12, *SHAPE), dtype=np.float32)


def leave(classifier, batches, inputs):
    """Leave a run when it has counted that many batches, or finished that many inputs."""
    seen = 0

    def interrupt(draws):
        nonlocal seen
        seen += 1
        if seen > batches:
            raise Interrupted

    try:
        for number, _ in enumerate(classifier.certify_many(enumerate(INPUTS), PLAN, on_draws=interrupt)):
            if number >= inputs:
                break
    except Interrupted:
        pass


@pytest.mark.parametrize(("classifier", "times"), [("cuda:0", 100), ("cuda:0,cuda:1", 30)], indirect=["classifier"])
def test_a_run_can_be_left_at_any_moment_a_hundred_times(classifier, machine, times):
    expected = classifier.certify(INPUTS[0], PLAN, input_id=0)
    held, moments = machine.held(), random.Random(7)
    del held["graphs"]
    for _ in range(times):
        leave(classifier, moments.randrange(60), moments.randrange(6))
        now = machine.held()
        assert now.pop("graphs") <= machine.gpus * 4 * 16, "a lane keeps a few for the next runs"
        assert now == held
    assert classifier.certify(INPUTS[0], PLAN, input_id=0) == expected


def test_without_waiting_for_the_batches_on_their_way_it_would_break(classifier, machine, monkeypatch):
    """The control: what the test above guards against does happen."""
    monkeypatch.setattr(_Scheduler, "drain", lambda self: None)
    with pytest.raises(DeviceError, match=r"illegal memory access|invalid argument"):  # noqa: PT012
        for batches in range(20):
            leave(classifier, batches, 6)
            classifier.certify(INPUTS[0], PLAN)
    classifier.close()
    machine.reset()
