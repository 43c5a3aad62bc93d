"""OpenVINO: INT8 as the file says it, from many threads at once."""

import subprocess
import sys
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


def test_constant_maps_are_read_again_and_again(tmp_path):
    """The outputs are marked as unwritten before each run, and a constant must survive that."""
    maps = [("m", np.full((1, 4), 0.5, np.float32)), ("s", np.full((1, 4), 2, np.float32))]
    nodes = [
        models.helper.make_node("Identity", ["m"], ["mean"]),
        models.helper.make_node("Identity", ["s"], ["scale"]),
    ]
    outputs = [models.value("mean", 1, 4), models.value("scale", 1, 4)]
    path = models.save(tmp_path / "maps.onnx", nodes, [models.value("x", 1, 4)], outputs, maps)
    generator = openvino.OpenVinoGenerator(path)
    for _ in range(3):
        mean, scale = generator(np.zeros(4, np.float32))
        assert (mean == 0.5).all()
        assert (scale == 2).all()


STARVED = """
import os, resource, sys
if sys.argv[3] == "one":
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import numpy as np
from pathlib import Path
from ars.engine.runners.openvino import OpenVino
from ars.errors import ArsError

path, spare = Path(sys.argv[1]), int(sys.argv[2])
rows = np.random.default_rng(0).normal(size=(3, 4, 8, 64, 64)).astype(np.float32)
large = np.zeros((256, 8, 64, 64), np.float32)
right = [OpenVino(path, 1).run(batch) for batch in rows]
runner = OpenVino(path, 1)
runner.run(rows[0])
in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (in_use + spare, resource.RLIM_INFINITY))
for batch, expected in [(large, np.zeros((256, 8))), *zip(rows[::-1], right[::-1], strict=True)]:
    try:
        print("right" if np.allclose(runner.run(batch), expected, atol=1e-4) else "wrong")
    except ArsError as error:
        print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space by what /proc says is in use")
@pytest.mark.parametrize("processors", ["all", "one"])
def test_a_batch_for_which_memory_is_lacking_is_an_error_and_never_the_logits_of_another(tmp_path, processors):
    """With one stream, which is all that it makes on one processor, OpenVINO's `infer` swallows such errors, and later
    batches are wrong."""
    weights = np.random.default_rng(0).normal(size=(8, 8, 3, 3)).astype(np.float32)
    nodes = [
        models.helper.make_node("Conv", ["x", "W"], ["a"], pads=[1] * 4),
        models.helper.make_node("Relu", ["a"], ["b"]),
        models.helper.make_node("Conv", ["b", "W"], ["c"], pads=[1] * 4),
        models.helper.make_node("GlobalAveragePool", ["c"], ["d"]),
        models.helper.make_node("Flatten", ["d"], ["logits"]),
    ]
    inputs, outputs = [models.value("x", "n", 8, 64, 64)], [models.value("logits", "n", 8)]
    path = models.save(tmp_path / "m.onnx", nodes, inputs, outputs, [("W", weights)])

    def run(spare):
        command = [sys.executable, "-c", STARVED, str(path), str(spare), processors]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()

    for spare in (0, 2**20, 2**23):
        first, *later = run(spare)
        assert "openvino failed on a batch of 256 x 8 x 64 x 64" in first
        assert len(later) == 3
        for answer in later:
            assert answer == "right" or "openvino failed on a batch of 4 x 8 x 64 x 64" in answer
    assert run(2**28) == ["right"] * 4
