"""The other precisions: what is in their graphs, and that every runner takes them."""

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support import models

from ars.engine.backends import load_runner
from ars.errors import ModelError
from ars.export.graphs import precision_of
from ars.export.precision import write_fp16, write_int8

SHAPE = (3, 16, 16)


def noisy(number, seed=0):
    return np.random.default_rng(seed).normal(0.5, 0.5, (number, *SHAPE)).astype(np.float32)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("precision")
    fp32 = models.resnet(folder / "fp32.onnx", 14)
    write_fp16(fp32, folder / "fp16.onnx", fp32)
    write_int8(fp32, folder / "int8.onnx", [noisy(4, seed) for seed in range(8)], fp32)
    return folder


def tensors(path):
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer}


def test_each_says_its_precision(files):
    for precision in ("fp32", "fp16", "int8"):
        assert precision_of(onnx.load(files / f"{precision}.onnx")) == precision


def test_nothing_else_is_left_behind(files):
    assert sorted(path.name for path in files.iterdir()) == ["fp16.onnx", "fp32.onnx", "int8.onnx"]
    assert not any("onnxruntime/transformers" in path for path in sys.path)


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
@pytest.mark.parametrize(("precision", "most"), [("fp16", 0.01), ("int8", 0.1)])
def test_each_runner_computes_about_the_same(files, backend, precision, most):
    x = noisy(64, seed=99)
    expected = load_runner(files / "fp32.onnx", "onnxruntime").run(x)
    logits = load_runner(files / f"{precision}.onnx", backend).run(x)
    assert logits.dtype == np.float32
    assert np.abs(logits - expected).max() < most * np.abs(expected).max()


def test_fp16_takes_halves_and_gives_float32_from_a_head_that_was_not_rounded(files):
    model = onnx.load(files / "fp16.onnx")
    types = [value.type.tensor_type.elem_type for value in (*model.graph.input, *model.graph.output)]
    assert types == [TensorProto.FLOAT16, TensorProto.FLOAT]
    before, after = tensors(files / "fp32.onnx"), tensors(files / "fp16.onnx")
    assert np.array_equal(after["head.weight"], before["head.weight"])
    assert {after[name].dtype.name for name in after if name.startswith("conv")} == {"float16"}


def test_fp16_weights_that_head_and_body_share_stay_whole_in_the_head(tmp_path):
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["hidden"], "first"),
        helper.make_node("MatMul", ["hidden", "W"], ["logits"], "last"),
    ]
    weights = np.random.default_rng(0).normal(0, 1, (4, 4)).astype(np.float32)
    ports = [models.value("x", "n", 4)], [models.value("logits", "n", 4)]
    path = models.save(tmp_path / "m.onnx", nodes, *ports, [("W", weights)])
    write_fp16(path, tmp_path / "half.onnx", path)
    after = tensors(tmp_path / "half.onnx")
    assert np.array_equal(after["W.head"], weights)
    assert np.array_equal(after["W"], weights.astype(np.float16))


def test_int8_is_symmetric_by_channel_and_spares_the_ends(files):
    model, values = onnx.load(files / "int8.onnx"), tensors(files / "int8.onnx")
    pairs = [node for node in model.graph.node if node.op_type in ("QuantizeLinear", "DequantizeLinear")]
    for node in pairs:
        assert values[node.input[2]].dtype == np.int8
        assert not values[node.input[2]].any()
    weights = {name: value for name, value in values.items() if value.ndim == 4}
    whole = {name for name, value in weights.items() if value.dtype == np.float32}
    assert whole == {"conv0.weight"}
    assert values["head.weight"].dtype == np.float32
    (scales,) = [values[node.input[1]] for node in pairs if node.input[0] == "conv1.weight_quantized"]
    assert scales.shape == weights["conv1.weight_quantized"].shape[:1]


def test_int8_logits_are_right_on_the_average(files):
    exact, rounded = load_runner(files / "fp32.onnx"), load_runner(files / "int8.onnx")
    batches = [noisy(4, seed) for seed in range(8)]
    errors = np.concatenate([rounded.run(batch) - exact.run(batch) for batch in batches])
    assert np.abs(errors.mean(0)).max() < 1e-4 * np.abs(exact.run(batches[0])).max()
    assert not np.array_equal(tensors(files / "int8.onnx")["head.bias"], tensors(files / "fp32.onnx")["head.bias"])


@pytest.mark.parametrize(
    "write", [write_fp16, lambda a, b, named: write_int8(a, b, [np.zeros((2, 1, 4, 4), np.float32)], named)]
)
def test_a_model_with_too_few_layers_is_refused(tmp_path, write):
    with pytest.raises(ModelError, match=r"^mine.pt: it has no layers? .* the last.*; omit (fp16|int8)"):
        write(models.linear(tmp_path / "m.onnx"), tmp_path / "out.onnx", Path("mine.pt"))


def test_a_model_without_layers_is_refused(tmp_path):
    nodes = [helper.make_node("Relu", ["x"], ["logits"])]
    path = models.save(tmp_path / "m.onnx", nodes, [models.value("x", "n", 4)], [models.value("logits", "n", 4)])
    with pytest.raises(ModelError, match="it has no layer of type Conv, ConvTranspose, Gemm, MatMul; leave it in fp32"):
        write_fp16(path, tmp_path / "out.onnx", path)


def three_layers(path, *, batch="n", more=(), outputs=(), beta=1.0):
    """Three layers; `more` nodes make the logits of the last one, "gemm"."""
    rng = np.random.default_rng(0)
    weights = [(name, rng.normal(0, 1, (4, 4)).astype(np.float32)) for name in ("W0", "W1", "W2")]
    nodes = [
        helper.make_node("Gemm", ["x", "W0"], ["a"]),
        helper.make_node("Relu", ["a"], ["hidden"]),
        helper.make_node("Gemm", ["hidden", "W1"], ["b"]),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Gemm", ["c", "W2", "bias"], ["gemm" if more else "logits"], beta=beta),
        *more,
    ]
    ports = [models.value("x", batch, 4)], [models.value("logits", batch, 4), *outputs]
    return models.save(path, nodes, *ports, [*weights, ("bias", np.ones(4, np.float32))])


def draws(number, seed=0):
    return np.random.default_rng(seed).normal(0.5, 0.5, (number, 4)).astype(np.float32)


def nearly_the_same(path, other, backend="onnxruntime"):
    expected = load_runner(path, backend).run(draws(64, 9))
    return np.abs(load_runner(other, backend).run(draws(64, 9)) - expected).max() < 0.1 * np.abs(expected).max()


@pytest.mark.parametrize("batch", [1, 3, 8, 100])
def test_int8_of_a_model_for_one_batch_size_is_calibrated_in_that_size(tmp_path, batch):
    path = three_layers(tmp_path / "m.onnx", batch=batch)
    write_int8(path, tmp_path / "int8.onnx", [draws(4, seed) for seed in range(8)], path)
    assert nearly_the_same(path, tmp_path / "int8.onnx")


@pytest.mark.parametrize("write", [write_fp16, lambda a, b, named: write_int8(a, b, [draws(32)], named)])
def test_further_outputs_are_left_out_with_the_layers_that_only_they_need(tmp_path, write):
    more = [
        helper.make_node("Softmax", ["gemm"], ["logits"]),
        helper.make_node("Identity", ["hidden"], ["features"]),
        helper.make_node("MatMul", ["hidden", "W1"], ["aside"], "last"),
    ]
    outputs = [models.value("features", "n", 4), models.value("aside", "n", 4)]
    path = three_layers(tmp_path / "m.onnx", more=more, outputs=outputs)
    write(path, tmp_path / "out.onnx", path)
    graph = onnx.load(tmp_path / "out.onnx").graph
    assert [value.name for value in graph.output] == ["logits"]
    assert "last" not in {node.name for node in graph.node}
    assert nearly_the_same(path, tmp_path / "out.onnx")


def test_fp16_takes_a_model_whose_head_reads_the_input_too(tmp_path):
    path = three_layers(tmp_path / "m.onnx", more=[helper.make_node("Add", ["gemm", "x"], ["logits"])])
    write_fp16(path, tmp_path / "half.onnx", path)
    types = [value.type.tensor_type.elem_type for value in onnx.load(tmp_path / "half.onnx").graph.input]
    assert types == [TensorProto.FLOAT16]
    assert nearly_the_same(path, tmp_path / "half.onnx")


@pytest.mark.parametrize("beta", [0.0, 0.5, 4.0])
def test_int8_logits_are_right_on_the_average_where_the_bias_is_scaled(tmp_path, beta):
    path = three_layers(tmp_path / "m.onnx", beta=beta)
    write_int8(path, tmp_path / "int8.onnx", [draws(64)], path)
    exact, rounded = load_runner(path), load_runner(tmp_path / "int8.onnx")
    error = np.abs((rounded.run(draws(64)) - exact.run(draws(64))).mean(0)).max()
    assert (error < 1e-5) == (beta != 0)
