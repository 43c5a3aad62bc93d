"""Small ONNX models for the tests."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def save(path: Path, nodes, inputs, outputs, weights=()) -> Path:
    graph = helper.make_graph(nodes, "test", inputs, outputs, [numpy_helper.from_array(v, k) for k, v in weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)
    return path


def value(name, *shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def linear(path: Path, shape=(1, 4, 4), classes=3, *, batch="n", kind=TensorProto.FLOAT, nan=False, seed=0) -> Path:
    """logits = flatten(x) W, with weights so that classes are about as likely as each other; or logits that are NaN."""
    rng = np.random.default_rng(seed)
    dtype = np.float16 if kind == TensorProto.FLOAT16 else np.float32
    weights = rng.normal(0, 1, (int(np.prod(shape)), classes)).astype(dtype)
    if nan:
        weights[:] = np.nan
    nodes = [helper.make_node("Flatten", ["x"], ["flat"]), helper.make_node("MatMul", ["flat", "W"], ["logits"])]
    return save(
        path,
        nodes,
        [value("x", batch, *shape, kind=kind)],
        [value("logits", batch, classes, kind=kind)],
        [("W", weights)],
    )


def two_inputs(path: Path) -> Path:
    nodes = [helper.make_node("Add", ["x", "y"], ["logits"])]
    return save(path, nodes, [value("x", "n", 4), value("y", "n", 4)], [value("logits", "n", 4)])


def generator(path: Path, shape=(1, 4, 4), *, floor=0.25) -> Path:
    """mean = x / 10, scale = floor + |x|: a noise generator whose maps depend on the input."""
    nodes = [
        helper.make_node("Mul", ["x", "tenth"], ["mean"]),
        helper.make_node("Abs", ["x"], ["size"]),
        helper.make_node("Add", ["size", "floor"], ["scale"]),
    ]
    weights = [("tenth", np.float32(0.1)), ("floor", np.float32(floor))]
    outputs = [value("mean", "n", *shape), value("scale", "n", *shape)]
    return save(path, nodes, [value("x", "n", *shape)], outputs, weights)
