"""Networks to measure with, as ONNX with random weights: what a draw costs does not depend on what was learned."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ars.errors import MissingPackage

try:
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    raise MissingPackage("onnx", "train") from error

__all__ = ["noise_generator", "resnet20", "small_cnn"]


class _Graph:
    """An ONNX graph that grows node by node; each method returns the name of its output."""

    def __init__(self, shape: Sequence[int], classes: int = 0) -> None:
        self._rng = np.random.default_rng(0)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._shape, self._classes = shape, classes

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        output = f"v{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def name(self, value: str, output: str) -> None:
        """Make a value an output of the graph."""
        self._nodes.append(helper.make_node("Identity", [value], [output]))

    def weight(self, *shape: int) -> str:
        fan_in = int(np.prod(shape[1:])) or 1
        return self.constant(self._rng.normal(0, np.sqrt(2 / fan_in), shape).astype(np.float32))

    def constant(self, values: NDArray[np.float32]) -> str:
        name = f"w{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(values, name))
        return name

    def convolution(self, x: str, channels_in: int, channels: int, *, size: int = 3, stride: int = 1) -> str:
        weight, bias = self.weight(channels, channels_in, size, size), self.constant(np.zeros(channels, np.float32))
        pads = [size // 2] * 4
        return self.node("Conv", x, weight, bias, strides=[stride] * 2, pads=pads, kernel_shape=[size] * 2)

    def save(self, head: str, features: int, path: Path) -> None:
        """Close the graph with global pooling and a linear layer, and write it."""
        flat = self.node("Flatten", self.node("GlobalAveragePool", head))
        weight, bias = self.weight(self._classes, features), self.constant(np.zeros(self._classes, np.float32))
        self._nodes.append(helper.make_node("Gemm", [flat, weight, bias], ["logits"], transB=1))
        self.write(path, {"logits": (self._classes,)})

    def write(self, path: Path, outputs: dict[str, tuple[int, ...]]) -> None:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *self._shape])
        results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", *shape]) for n, shape in outputs.items()]
        graph = helper.make_graph(self._nodes, "network", [x], results, self._weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
        onnx.checker.check_model(model, full_check=True)
        onnx.save(model, path)


def resnet20(path: Path) -> None:
    """The ResNet-20 of CIFAR-10 (He et al., 2016): three stages of three blocks on 3x32x32."""
    graph = _Graph((3, 32, 32), 10)
    x, channels_in = graph.node("Relu", graph.convolution("x", 3, 16)), 16
    for channels in (16, 32, 64):
        for _ in range(3):
            stride = 1 if channels == channels_in else 2
            y = graph.node("Relu", graph.convolution(x, channels_in, channels, stride=stride))
            y = graph.convolution(y, channels, channels)
            shortcut = x if stride == 1 else graph.convolution(x, channels_in, channels, size=1, stride=2)
            x, channels_in = graph.node("Relu", graph.node("Add", y, shortcut)), channels
    graph.save(x, 64, path)


def small_cnn(path: Path) -> None:
    """Three convolutions on 1x28x28."""
    graph = _Graph((1, 28, 28), 10)
    x = graph.node("Relu", graph.convolution("x", 1, 32))
    x = graph.node("Relu", graph.convolution(x, 32, 64, stride=2))
    x = graph.node("Relu", graph.convolution(x, 64, 64, stride=2))
    graph.save(x, 64, path)


def noise_generator(path: Path, shape: tuple[int, ...]) -> None:
    """The paper's noise generator: a dense block of four convolutions with leaky ReLU, and a branch for each map."""
    graph = _Graph(shape)
    growth, features, channels = 16, "x", shape[0]
    for _ in range(4):
        new = graph.node("LeakyRelu", graph.convolution(features, channels, growth))
        features, channels = graph.node("Concat", features, new, axis=1), channels + growth
    for name, low, high in (("mean", -0.01, 0.01), ("scale", 0.25, 0.5)):
        squashed = graph.node("Sigmoid", graph.convolution(features, channels, shape[0]))
        spread = graph.node("Mul", squashed, graph.constant(np.array([high - low], np.float32)))
        graph.name(graph.node("Add", spread, graph.constant(np.array([low], np.float32))), name)
    graph.write(path, {"mean": shape, "scale": shape})
