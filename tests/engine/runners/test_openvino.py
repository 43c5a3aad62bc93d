"""OpenVINO: INT8 as the file says it, from many threads at once."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime
import pytest
from support import models

from ars.engine.runners import openvino
from ars.engine.runners.onnxruntime import OnnxRuntime
from ars.engine.runners.openvino import OpenVino

# Up to 20: far beyond the largest value that the quantised activations of the model can hold.
X = np.random.default_rng(1).normal(0, 5, (500, 1, 4, 4)).astype(np.float32)


def in_floats(path):
    """The logits of an INT8 file by float arithmetic, node by node as it stands there."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(path.read_bytes(), options).run(None, {"x": X})[0]


def steps_apart(a, b):
    """How far logits are from each other, in steps of the last layer's quantised inputs at the largest weight."""
    return np.abs(a - b) / (4 / 127 * 0.002 * 127)


def test_int8_after_relu_has_no_sum_that_saturates(tmp_path):
    path = models.quantised(tmp_path / "m.onnx")
    runner = OpenVino(path)
    assert runner.precision == "int8"
    apart = steps_apart(runner.run(X), in_floats(path))
    assert apart.max() < 2  # a value in the middle between two steps may be rounded to either
    assert np.mean(apart < 0.01) > 0.99


@pytest.mark.parametrize("symmetric", [True, False])
def test_what_is_rewritten_for_speed_changes_no_value(tmp_path, monkeypatch, symmetric):
    """Weights of 6 bits keep all sums within 16 bits, so both graphs compute what the file says."""
    path = models.quantised(tmp_path / "m.onnx", symmetric=symmetric, largest_weight=31)
    rewritten = OpenVino(path).run(X)
    monkeypatch.setattr(openvino, "_use_unsigned_after_relu", lambda model: None)
    plain = OpenVino(path).run(X)
    assert np.mean(steps_apart(rewritten, plain) < 0.01) > 0.99
    assert steps_apart(rewritten, plain).max() < 2


def test_onnxruntime_and_openvino_agree_on_int8(tmp_path):
    path = models.quantised(tmp_path / "m.onnx")
    ours, theirs = OpenVino(path).run(X), OnnxRuntime(path).run(X)
    assert np.mean(ours.argmax(1) == theirs.argmax(1)) >= 0.995


def test_many_threads_get_the_logits_of_their_own_batches(tmp_path):
    runner = OpenVino(models.quantised(tmp_path / "m.onnx"), lane_count=2)
    batches = [X[first : first + 20 + first % 7] for first in range(0, 400, 10)]
    expected = [runner.run(batch) for batch in batches]
    with ThreadPoolExecutor(5) as pool:
        for ours, theirs in zip(pool.map(runner.run, batches * 5), expected * 5, strict=True):
            np.testing.assert_array_equal(ours, theirs)
