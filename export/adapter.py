"""Adapt an ONNX classifier, as it comes, to what the engine takes: one float32 input in pixel units with its channels
first, and logits as its only output.

The adapted model is the original graph with a few nodes before and after it. What is certified is the adapted model: a
function of the noisy input like any other, also if it rounds its input to bytes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from ars.errors import ModelError, UnknownName, one_line
from ars.export.source import OwnModel

__all__ = ["Adapted", "adapt"]

Array = NDArray[np.float32]
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)


@dataclass(frozen=True)
class Adapted:
    """A model that was changed to fit the engine."""

    model: onnx.ModelProto
    shape: tuple[int, ...]
    classes: tuple[str, ...] | None
    """The names of the classes, if the file has them."""
    count: int
    """The number of classes."""
    run: Callable[[Array], Array]
    """The original model, with the changes made in numpy: the reference for the adapted one."""
    changes: tuple[str, ...]
    """What was changed, each in a few words."""


def adapt(path: Path, model: onnx.ModelProto, own: OwnModel) -> Adapted | None:
    """The model as the engine takes it, or None if it is so already. `model` has its external data loaded."""
    labels = _unzip(model)
    given = _find_input(path, model.graph)
    takes = _Input(path, given, own)
    session, outputs = _try(path, model, takes)
    gives = _Output(path, model, outputs, own)
    changes = (*takes.changes, *gives.changes, *(("the table of probabilities became an array",) if labels else ()))
    if not changes:
        return None

    def run(batch: Array) -> Array:
        return gives.in_numpy(session.run([gives.name], {given.name: takes.in_numpy(batch)})[0])

    logits = run(np.zeros((takes.batch or 2, *takes.shape), np.float32))
    adapted = _rewrite(model, given, takes, gives, logits.shape[1])
    return Adapted(adapted, takes.shape, labels, logits.shape[1], run, changes)


def _unzip(model: onnx.ModelProto) -> tuple[str, ...] | None:
    """Replace the table of probabilities that skl2onnx makes by its array; returns the labels that it had."""
    graph, labels = model.graph, None
    for node in [node for node in graph.node if node.op_type == "ZipMap"]:
        for output in graph.output:
            if output.name == node.output[0]:
                labels = tuple(
                    value.decode() if isinstance(value, bytes) else str(value)
                    for attribute in node.attribute
                    for value in helper.get_attribute_value(attribute)
                )
                node.output[0] = f"{output.name}.table"
                graph.node.append(helper.make_node("Identity", [node.input[0]], [output.name]))
                output.CopyFrom(helper.make_tensor_value_info(output.name, TensorProto.FLOAT, [None, len(labels)]))
        graph.node.remove(node)
    return labels


def _find_input(path: Path, graph: onnx.GraphProto) -> onnx.ValueInfoProto:
    weights = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in weights]
    if len(inputs) != 1:
        names = ", ".join(value.name for value in inputs) or "none"
        raise ModelError(path, f"it has {len(inputs)} inputs ({names})", "export a classifier with a single input")
    return inputs[0]


def _sides(value: onnx.ValueInfoProto) -> list[int | None]:
    return [
        side.dim_value if side.HasField("dim_value") and side.dim_value > 0 else None
        for side in value.type.tensor_type.shape.dim
    ]


class _Input:
    """How an input of the engine becomes one of the model."""

    def __init__(self, path: Path, given: onnx.ValueInfoProto, own: OwnModel) -> None:
        self.kind = given.type.tensor_type.elem_type
        if self.kind not in (*_FLOATS, TensorProto.UINT8):
            name = TensorProto.DataType.Name(self.kind).lower()
            fix = "export it with an input of float32, or of uint8 for pixels from 0 to 255"
            raise ModelError(path, f"its input {given.name!r} is of {name}", fix)
        self.batch, *sides = _sides(given) or [None]
        if not sides:
            raise ModelError(path, f"its input {given.name!r} has no batch axis", "export it with a batch axis first")
        self._last = len(sides) == 3 and sides[2] in (1, 3) and sides[0] not in (1, 3)
        known = (sides[2], sides[0], sides[1]) if self._last else tuple(sides)
        self.shape = _fix_shape(path, known, own.shape)
        self.changes: list[str] = []
        self._normalisation = own.pixels(self.shape)
        if self._normalisation is not None:
            self.changes.append("normalisation is inside")
        if self._normalisation is not None and self.kind == TensorProto.UINT8:
            fix = "omit --pixel-mean and --pixel-deviation: it normalises its bytes itself"
            raise ModelError(path, "it takes pixels as bytes from 0 to 255", fix)
        if self.kind == TensorProto.UINT8:
            self.changes.append("pixels from 0 to 1 become bytes")
        if self.kind == TensorProto.DOUBLE:
            self.changes.append("the input became float32")
        if self._last:
            self.changes.append("channels come first")
        if None in sides:
            self.changes.append(f"the input has the fixed shape {' x '.join(map(str, self.shape))}")

    @property
    def own_sides(self) -> list[int]:
        """The shape of the original model's input."""
        return [*self.shape[1:], self.shape[0]] if self._last else [*self.shape]

    def in_numpy(self, x: Array) -> NDArray[Any]:
        if self._normalisation is not None:
            x = (x - self._normalisation[0]) / self._normalisation[1]
        if self.kind == TensorProto.UINT8:
            x = np.clip(np.floor(x * np.float32(255) + np.float32(0.5)), 0, 255)
        x = x.transpose(0, 2, 3, 1) if self._last else x
        return np.ascontiguousarray(x, helper.tensor_dtype_to_np_dtype(self.kind))

    def in_onnx(self, chain: "_Chain") -> None:
        if self._normalisation is not None:
            chain.apply("Sub", self._normalisation[0])
            chain.apply("Div", self._normalisation[1])
        if self.kind == TensorProto.UINT8:
            chain.apply("Mul", np.float32(255))
            chain.apply("Add", np.float32(0.5))
            chain.apply("Floor")
            chain.apply("Max", np.float32(0))
            chain.apply("Min", np.float32(255))
        if self._last:
            chain.apply("Transpose", perm=[0, 2, 3, 1])
        if self.kind != TensorProto.FLOAT:
            chain.apply("Cast", to=self.kind)


def _fix_shape(path: Path, known: tuple[int | None, ...], asked: tuple[int, ...] | None) -> tuple[int, ...]:
    """The shape of the inputs, channels first: what the file says, and --shape where it says nothing."""
    says = ", ".join(str(side or "any") for side in known)
    if asked is None:
        if None in known:
            usual = ",".join(str(side or 224) for side in known)
            raise ModelError(path, f"its input shape is not fixed: {says}", f"say which one, like --shape {usual}")
        return tuple(side for side in known if side is not None)
    if len(asked) != len(known) or any(side not in (None, new) for side, new in zip(known, asked, strict=True)):
        given = ",".join(map(str, asked))
        raise ModelError(
            path, f"it takes inputs of shape {says}, but --shape is {given}", "give the shape that it takes"
        )
    return asked


def _try(path: Path, model: onnx.ModelProto, takes: _Input) -> tuple[Any, dict[str, Any]]:
    """Run the model once; returns its session, and what each output gives."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.load_model_format", "ONNX")
    zeros = takes.in_numpy(np.zeros((takes.batch or 2, *takes.shape), np.float32))
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        found = session.run(names, {session.get_inputs()[0].name: zeros})
    except Exception as error:  # onnxruntime has errors of its own
        fix = "check it with onnx.checker, or give the --shape that it takes"
        raise ModelError(path, f"onnxruntime cannot run it ({one_line(error)})", fix) from error
    return session, dict(zip(names, found, strict=True))


class _Output:
    """Which output has the logits, and how they become batch x classes."""

    def __init__(self, path: Path, model: onnx.ModelProto, outputs: dict[str, Any], own: OwnModel) -> None:
        first = next(iter(outputs))
        self.name = self._choose(path, outputs, own.logits)
        self.changes: list[str] = []
        if self.name != first:
            self.changes.append(f"the output {self.name!r} is the logits, and not {first!r}")
        value = outputs[self.name]
        self._flat = value.ndim != 2
        self._cast = value.dtype != np.float32
        self._single = value.size == len(value)
        self._probability = self._single and _is_probability(model.graph, self.name)
        if self._single:
            what = "probability" if self._probability else "logit"
            self.changes.append(f"the single {what} of class 1 became two classes")
        elif self._flat:
            self.changes.append("logits are batch x classes")
        if value.dtype == np.float64:
            self.changes.append("logits became float32")

    @staticmethod
    def _choose(path: Path, outputs: dict[str, Any], asked: str | None) -> str:
        if asked is not None and asked not in outputs:
            raise UnknownName(f"output of {path}", asked, outputs)
        first = next(iter(outputs))
        fitting = {name: _width(value) for name, value in outputs.items() if _width(value)}
        if asked is None and fitting.get(first, 0) > 1:
            return first
        names = ", ".join(outputs)
        if asked is None and len(fitting) > 1:
            fitting = {name: width for name, width in fitting.items() if width > 1} or fitting
            if len(fitting) > 1:
                fix = f"say which has the logits, like --logits {next(iter(fitting))}"
                raise ModelError(path, f"several of its outputs could be the logits ({', '.join(fitting)})", fix)
        chosen = asked or next(iter(fitting), None)
        if chosen is None or chosen not in fitting:
            found = np.shape(outputs[chosen or first])
            problem = f"its output {chosen or first!r} has the shape {found} for a batch of {found[0] if found else 0}"
            raise ModelError(path, problem, f"logits are floats of batch x classes; its outputs are {names}")
        return chosen

    def in_numpy(self, values: NDArray[Any]) -> Array:
        values = values.astype(np.float32).reshape(len(values), -1)
        if not self._single:
            return values
        return np.concatenate([1 - values if self._probability else np.zeros_like(values), values], 1)

    def in_onnx(self, chain: "_Chain") -> None:
        if self._cast:
            chain.apply("Cast", to=TensorProto.FLOAT)
        if self._flat and self._single:
            chain.apply("Reshape", np.array([-1, 1], np.int64))
        elif self._flat:
            chain.apply("Flatten", axis=1)
        if self._single:
            one = chain.tensor
            chain.apply("Mul", np.float32(-1 if self._probability else 0))
            if self._probability:
                chain.apply("Add", np.float32(1))
            chain.apply("Concat", one, axis=1)


def _width(value: Any) -> int:
    """How many numbers an output has for each input, if they are floats along one axis; otherwise 0."""
    if not isinstance(value, np.ndarray) or not np.issubdtype(value.dtype, np.floating) or not value.ndim:
        return 0
    sides = [side for side in value.shape[1:] if side > 1]
    return int(np.prod(sides)) if len(sides) < 2 and value.size else 0


def _is_probability(graph: onnx.GraphProto, name: str) -> bool:
    """Whether a tensor comes directly from a sigmoid."""
    made = {output: node for node in graph.node for output in node.output}
    while name in made and made[name].op_type in ("Identity", "Reshape", "Squeeze", "Flatten", "Cast", "Unsqueeze"):
        name = made[name].input[0]
    return name in made and made[name].op_type in ("Sigmoid", "HardSigmoid")


class _Chain:
    """Nodes in sequence, from one tensor on."""

    def __init__(self, prefix: str, tensor: str) -> None:
        self.tensor, self._prefix = tensor, prefix
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def apply(self, operator: str, other: Any = None, **attributes: Any) -> None:
        """Append a node that takes the last tensor, and another tensor's name or values."""
        name = f"{self._prefix}.{len(self.nodes)}"
        inputs = [self.tensor]
        if isinstance(other, str):
            inputs.append(other)
        elif other is not None:
            self.weights.append(numpy_helper.from_array(np.asarray(other), f"{name}.value"))
            inputs.append(f"{name}.value")
        self.nodes.append(helper.make_node(operator, inputs, [name], name=name, **attributes))
        self.tensor = name

    def end(self, name: str) -> None:
        """Call the last tensor this."""
        self.nodes.append(helper.make_node("Identity", [self.tensor], [name], name=f"{self._prefix}.end"))


def _rewrite(
    model: onnx.ModelProto, given: onnx.ValueInfoProto, takes: _Input, gives: _Output, classes: int
) -> onnx.ModelProto:
    """The model with nodes before its input and after one output, and no other output."""
    adapted = onnx.ModelProto()
    adapted.CopyFrom(model)
    graph = adapted.graph
    taken = {name for node in graph.node for name in (*node.input, *node.output)} | {given.name}
    x, logits = (name if name not in taken else f"ars.{name}" for name in ("x", "logits"))
    before, after = _Chain("ars.before", x), _Chain("ars.after", gives.name)
    takes.in_onnx(before)
    before.end(given.name)
    gives.in_onnx(after)
    after.end(logits)
    nodes = [*before.nodes, *graph.node, *after.nodes]
    del graph.node[:], graph.input[:], graph.output[:], graph.value_info[:]
    graph.node.extend(nodes)
    batch = takes.batch or "n"
    graph.input.append(helper.make_tensor_value_info(x, TensorProto.FLOAT, [batch, *takes.shape]))
    graph.output.append(helper.make_tensor_value_info(logits, TensorProto.FLOAT, [batch, classes]))
    graph.initializer.extend([*before.weights, *after.weights])
    # The checker wants a graph in order: skl2onnx's array is made before the node that was appended for it.
    onnx.checker.check_model(adapted)
    return adapted
