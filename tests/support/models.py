"""Small ONNX models for the tests."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, external_data_helper, helper, numpy_helper


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


def external(path: Path, location="weights.data", *, seed=0, place="initializer", offset=None, length=None) -> Path:
    """The classifier `linear`, whose weights are in a file of their own. `place` is where the model names that file."""
    inside = onnx.load(linear(path, seed=seed)).graph
    weights = numpy_helper.to_array(inside.initializer[0])
    data = path.parent / location
    data.parent.mkdir(parents=True, exist_ok=True)
    data.write_bytes(bytes(offset or 0) + weights.tobytes())
    model = external_model(location, weights.shape, place, offset=offset, length=length)
    path.write_bytes(model.SerializeToString())
    return path


def external_model(location, shape=(16, 3), place="initializer", **entries) -> onnx.ModelProto:
    """logits = flatten(x) W, where W is an external tensor."""
    tensor = TensorProto(name="W", data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
    for key, entry in {"location": location, **entries}.items():
        if entry is not None:
            tensor.external_data.add(key=key, value=str(entry))
    body = [helper.make_node("Flatten", ["x"], ["flat"]), helper.make_node("MatMul", ["flat", "W"], ["logits"])]
    initializers, functions, opsets = [tensor], [], [helper.make_opsetid("", 17)]
    if place == "constant":
        body, initializers = [helper.make_node("Constant", [], ["W"], value=tensor), *body], []
    elif place == "subgraph":
        tensor.name = "V"
        branch = helper.make_graph([helper.make_node("Identity", ["V"], ["w"])], "branch", [], [value("w", *shape)])
        branch.initializer.append(tensor)
        body = [helper.make_node("If", ["yes"], ["W"], then_branch=branch, else_branch=branch), *body]
        initializers = [numpy_helper.from_array(np.array(True), "yes")]
    elif place == "function":
        constant = helper.make_node("Constant", [], ["w"], value=tensor)
        functions = [helper.make_function("own", "weights", [], ["w"], [constant], opsets)]
        body, initializers = [helper.make_node("weights", [], ["W"], domain="own"), *body], []
        opsets = [*opsets, helper.make_opsetid("own", 1)]
    inputs, outputs = [value("x", "n", 1, 4, 4)], [value("logits", "n", shape[1])]
    graph = helper.make_graph(body, "test", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10)


def move_weights(path: Path, location: str) -> Path:
    """Move the weights of a model to a file of their own."""
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        external_data_helper.set_external_data(tensor, location)
    (path.parent / location).unlink(missing_ok=True)
    onnx.save(model, path)
    return path


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


def quantised(path: Path, *, symmetric=True, largest_weight=127, seed=0) -> Path:
    """Two convolutions on 8 channels and a linear layer, INT8 in QDQ form: the first convolution in float, then each
    ReLU quantised with zero point 0, or with another one."""
    rng = np.random.default_rng(seed)
    zero, largest = (0, 127) if symmetric else (-128, 255)
    weights = [
        ("W0", rng.normal(0, 0.5, (8, 1, 3, 3)).astype(np.float32)),
        ("W1", rng.integers(-largest_weight, largest_weight + 1, (8, 8, 3, 3)).astype(np.int8)),
        ("W2", rng.integers(-largest_weight, largest_weight + 1, (8 * 16, 3)).astype(np.int8)),
        ("s", np.float32(4 / largest)),
        ("s1", np.full(8, 0.0017123, np.float32)),
        ("s2", np.float32(0.002)),
        ("z", np.int8(zero)),
        ("z1", np.zeros(8, np.int8)),
        ("z2", np.int8(0)),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "W0"], ["a"], pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("QuantizeLinear", ["b", "s", "z"], ["c"]),
        helper.make_node("DequantizeLinear", ["c", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["W1", "s1", "z1"], ["V1"], axis=0),
        helper.make_node("Conv", ["d", "V1"], ["e"], pads=[1] * 4),
        helper.make_node("Relu", ["e"], ["relu"]),
        helper.make_node("MaxPool", ["relu"], ["f"], kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("QuantizeLinear", ["f", "s", "z"], ["g"]),
        helper.make_node("DequantizeLinear", ["g", "s", "z"], ["h"]),
        helper.make_node("Flatten", ["h"], ["i"]),
        helper.make_node("DequantizeLinear", ["W2", "s2", "z2"], ["V2"]),
        helper.make_node("MatMul", ["i", "V2"], ["logits"]),
    ]
    return save(path, nodes, [value("x", "n", 1, 4, 4)], [value("logits", "n", 3)], weights)


def isotropic(path: Path, shape=(1, 4, 4), sigma=0.5) -> Path:
    """mean = 0, scale = sigma."""
    nodes = [helper.make_node("Mul", ["x", "none"], ["mean"]), helper.make_node("Add", ["mean", "sigma"], ["scale"])]
    weights = [("none", np.float32(0)), ("sigma", np.float32(sigma))]
    outputs = [value("mean", "n", *shape), value("scale", "n", *shape)]
    return save(path, nodes, [value("x", "n", *shape)], outputs, weights)


def resnet(path: Path, depth=8, shape=(3, 16, 16), classes=10, seed=0) -> Path:
    """A CIFAR ResNet without normalisation: three stages of (depth - 2) / 6 blocks, random weights."""
    rng = np.random.default_rng(seed)
    nodes, weights = [], []

    def convolve(x, channels_in, channels, size, stride, gain=2.0):
        name = f"conv{len(weights)}"
        values = rng.normal(0, np.sqrt(gain / (channels_in * size * size)), (channels, channels_in, size, size))
        weights.append((f"{name}.weight", values.astype(np.float32)))
        sides = {"kernel_shape": [size, size], "strides": [stride, stride], "pads": [size // 2] * 4}
        nodes.append(helper.make_node("Conv", [x, f"{name}.weight"], [name], name, **sides))
        return name

    def relu(x):
        nodes.append(helper.make_node("Relu", [x], [f"{x}.relu"], f"{x}.relu"))
        return f"{x}.relu"

    x, channels_in = relu(convolve("x", shape[0], 16, 3, 1)), 16
    for channels in (16, 32, 64):
        for _ in range((depth - 2) // 6):
            stride = 1 if channels == channels_in else 2
            body = convolve(relu(convolve(x, channels_in, channels, 3, stride)), channels, channels, 3, 1, gain=0.1)
            shortcut = x if stride == 1 else convolve(x, channels_in, channels, 1, stride, gain=1.0)
            nodes.append(helper.make_node("Add", [body, shortcut], [f"{body}.sum"], f"{body}.sum"))
            x, channels_in = relu(f"{body}.sum"), channels
    nodes.append(helper.make_node("GlobalAveragePool", [x], ["pooled"], "pool"))
    nodes.append(helper.make_node("Flatten", ["pooled"], ["flat"], "flatten"))
    nodes.append(helper.make_node("Gemm", ["flat", "head.weight", "head.bias"], ["logits"], "head"))
    weights.append(("head.weight", rng.normal(0, 1, (64, classes)).astype(np.float32)))
    weights.append(("head.bias", rng.normal(0, 1, classes).astype(np.float32)))
    return save(path, nodes, [value("x", "n", *shape)], [value("logits", "n", classes)], weights)


def selftest(path: Path) -> Path:
    """The small network that `ars-engine selftest` runs: engine/selftest.onnx."""
    rng = np.random.default_rng(6)
    weights = {
        "K": rng.normal(0, 0.3, (8, 3, 3, 3)),
        "W": rng.normal(0, 0.2, (128, 10)),
        "b": rng.normal(0, 0.1, 10),
    }
    nodes = [
        helper.make_node("Conv", ["x", "K"], ["features"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["features"], ["positive"]),
        helper.make_node("Flatten", ["positive"], ["flat"]),
        helper.make_node("Gemm", ["flat", "W", "b"], ["logits"]),
    ]
    named = [(name, values.astype(np.float32)) for name, values in weights.items()]
    return save(path, nodes, [value("x", "n", 3, 8, 8)], [value("logits", "n", 10)], named)
