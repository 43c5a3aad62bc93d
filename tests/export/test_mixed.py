"""INT8 that keeps in float the layers that cost it its agreement."""

import time
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import helper
from support import models

from ars.engine.backends import load_runner
from ars.engine.runners.onnxruntime import OnnxRuntime
from ars.export.mixed import Target, keep_in_float, time_ratio
from ars.export.precision import write_int8

RNG = np.random.default_rng(0)
WIDTH, LAYERS = 24, 6


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """Dense layers, of which the third, `bad`, gets one value that is far larger than all others, and ignores it: one
    scale for all of them leaves none of the others."""
    nodes, weights, last = [], [], "x"
    for number in range(LAYERS):
        name = "bad" if number == 3 else f"layer{number}"
        matrix = RNG.normal(0, 1.4 / np.sqrt(WIDTH), (WIDTH, 5 if number == LAYERS - 1 else WIDTH)).astype(np.float32)
        if number == 2:
            matrix[:, 0] *= 500
        if number == 3:
            matrix[0] = 0
        weights.append((f"W{number}", matrix))
        nodes.append(helper.make_node("MatMul", [last, f"W{number}"], [f"y{number}"], name))
        last = f"y{number}"
        if number < LAYERS - 1:
            nodes.append(helper.make_node("Relu", [last], [f"r{number}"], f"relu{number}"))
            last = f"r{number}"
    path = tmp_path_factory.mktemp("mixed") / "fp32.onnx"
    return models.save(path, nodes, [models.value("x", "n", WIDTH)], [models.value(last, "n", 5)], weights)


def draws(number, seed):
    return np.random.default_rng(seed).normal(0, 1, (number, WIDTH)).astype(np.float32)


def agreement(one, other, x):
    return (load_runner(one).run(x).argmax(1) == load_runner(other).run(x).argmax(1)).mean()


def test_only_the_layer_that_costs_the_agreement_stays_in_float(network):
    target, batches = network.with_name("mixed.onnx"), [draws(32, seed) for seed in range(4)]
    assert write_int8(network, network.with_name("int8.onnx"), batches, network) is None
    before = agreement(network.with_name("int8.onnx"), network, draws(1000, 9))
    kept = write_int8(network, target, batches, network, Target(0.96, draws(500, 8)))
    after = agreement(target, network, draws(1000, 9))
    assert kept.layers == ("bad",)
    assert (kept.of, before < 0.9, after > 0.95) == (LAYERS - 2, True, True), (before, after)
    assert kept.before < 0.96 < kept.after
    assert "1 of 4 layers stay in float (bad): agreement " in kept.describe()
    assert sorted(path.name for path in network.parent.iterdir()) == ["fp32.onnx", "int8.onnx", "mixed.onnx"]


def test_nothing_stays_in_float_if_the_agreement_is_reached(network):
    batches = [draws(32, seed) for seed in range(4)]
    assert write_int8(network, network.with_name("low.onnx"), batches, network, Target(0.0, draws(100, 8))) is None
    network.with_name("low.onnx").unlink()


def test_with_all_layers_in_float_the_logits_are_the_originals(network):
    path = network.with_name("all.onnx")
    write_int8(network, path, [draws(32, 0)], network)
    original, model = onnx.load(network), onnx.load(path)
    onnx.save(keep_in_float(model, original, {node.name for node in original.graph.node}), path)
    x = draws(50, 1)
    np.testing.assert_allclose(OnnxRuntime(path).run(x), OnnxRuntime(network).run(x), rtol=1e-6)
    assert not any("Quantize" in node.op_type for node in onnx.load(path).graph.node)
    path.unlink()


def test_waiting_for_other_work_on_the_machine_is_not_counted():
    def run(rows):
        sum(range(20_000))

    def wait(rows):
        time.sleep(0.03)
        run(rows)

    def twenty_times(rows):
        for _ in range(20):
            run(rows)

    once, waits, longer = (SimpleNamespace(run=function) for function in (run, wait, twenty_times))
    assert time_ratio(waits, once, draws(1, 0)) < 10  # by the clock it would be about 100
    assert time_ratio(longer, once, draws(1, 0)) > 5
