"""ONNX models that draw random numbers. Their votes are not a function of their input, so they have no certificates.

A node with a seed is no exception: ONNX Runtime draws another number at each call, so the model knows how often it was
called. No test of the votes finds a model that misbehaves only after many calls.
"""

from collections import ChainMap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ars.errors import ModelError
from ars.onnx_proto import parse_onnx

__all__ = ["refuse_random_nodes"]

RANDOM = ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli")
"""The operators of ONNX that always draw random numbers."""

_TRAINING_MODE = {"Dropout": 2, "BitmaskDropout": 2, "BiasDropout": 4}
"""The place of the input that puts an operator into training mode. (The last two are ONNX Runtime's own.)"""

# Protobuf writes the names of operators and attributes as they are.
_SIGNS = (b"RandomNormal", b"RandomUniform", b"Multinomial", b"Bernoulli", b"Dropout", b"training_mode")


_FIX = "export it for inference"


def refuse_random_nodes(path: Path, content: bytes, fix: str = _FIX) -> None:
    """Refuse an ONNX model with a node that draws random numbers or is in training mode.

    The model is parsed only if its bytes have the name of such an operator somewhere.
    """
    if not any(sign in content for sign in _SIGNS):
        return
    model = parse_onnx(content)
    if model is None:
        raise ModelError(path, "it is not an ONNX model", "export it again")
    for scope in (model.graph, *model.functions):
        for node, constants in _walk(scope, ChainMap()):
            if problem := _find_problem(node, constants):
                found = f"its node {node.name or ','.join(node.output)!r} {problem} ({node.op_type})"
                raise ModelError(path, f"{found}, so its votes are not a function of its input", fix)


def _walk(scope: Any, outer: ChainMap[str, bool]) -> Iterator[tuple[Any, ChainMap[str, bool]]]:
    """Every node of a graph or a function, subgraphs included, with the constants that it sees: whether the value of
    that name is False."""
    # An inner name hides an outer one. The outer ones are not copied: a model may have very many subgraphs.
    constants = outer.new_child(dict.fromkeys(_inner_names(scope), False))
    # A caller may override an initializer that is an input as well.
    inputs = {value if isinstance(value, str) else value.name for value in scope.input}
    for tensor in getattr(scope, "initializer", ()):
        if tensor.name not in inputs:
            constants[tensor.name] = _is_false(tensor)
    for node in scope.node:
        if node.op_type == "Constant" and node.domain in _ONNX and len(node.output) == 1:
            values = [attribute for attribute in node.attribute if attribute.name == "value"]
            constants[node.output[0]] = len(values) == 1 and _is_false(values[0].t)
    for node in scope.node:
        yield node, constants
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _walk(graph, constants)


def _inner_names(scope: Any) -> Iterator[str]:
    for value in scope.input:
        yield value if isinstance(value, str) else value.name
    for node in scope.node:
        yield from node.output


def _is_false(tensor: Any) -> bool:
    """Whether a tensor is a single False."""
    import onnx

    if tensor.data_type != onnx.TensorProto.BOOL or tensor.data_location == onnx.TensorProto.EXTERNAL:
        return False
    return [tensor.raw_data, *tensor.int32_data] in ([b"\0"], [b"", 0])


def _find_problem(node: Any, constants: ChainMap[str, bool]) -> str | None:
    """What is wrong with a node, or None."""
    if node.op_type in RANDOM and node.domain in _ONNX:
        return "draws random numbers"
    place = _TRAINING_MODE.get(node.op_type, len(node.input))
    mode = node.input[place] if place < len(node.input) else ""
    training = (mode and not constants.get(mode, False)) or any(
        attribute.name == "training_mode" and (attribute.i or attribute.ref_attr_name) for attribute in node.attribute
    )
    return "is or may be in training mode" if training else None


_ONNX = ("", "ai.onnx")
