"""What is wrong with the structure of an ONNX model, before a library loads it.

The libraries trust a model's structure: on a graph with a cycle, or with an operator that has too few inputs, some of
them never return, or crash. This module needs only the package onnx, and runs in the process of a trial.
"""

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import onnx

__all__ = ["find_problem"]

_ONNX = ("", "ai.onnx")
_LARGEST_SIDE = 2**31
_DEEPEST = 16
_OTHER_DOMAINS = {"ai.onnx.ml": 5, "com.microsoft": 1}
"""Classical models, and the operators of ONNX Runtime; the largest version of each."""

_PACKED = {  # the types whose values are in a field of their own, and the number of fields for each value
    **dict.fromkeys(("FLOAT", "COMPLEX64"), "float_data"),
    **dict.fromkeys(("DOUBLE", "COMPLEX128"), "double_data"),
    **dict.fromkeys(("UINT32", "UINT64"), "uint64_data"),
    "INT64": "int64_data",
    "STRING": "string_data",
}
_BITS = {
    **dict.fromkeys(("INT2", "UINT2"), 2),
    **dict.fromkeys(("INT4", "UINT4", "FLOAT4E2M1"), 4),
    **dict.fromkeys(("BOOL", "INT8", "UINT8"), 8),
    **dict.fromkeys(("INT16", "UINT16", "FLOAT16", "BFLOAT16"), 16),
    **dict.fromkeys(("INT32", "UINT32", "FLOAT"), 32),
    **dict.fromkeys(("INT64", "UINT64", "DOUBLE", "COMPLEX64"), 64),
    "COMPLEX128": 128,
}


class _Wrong(Exception):
    pass


def find_problem(model: Any) -> str | None:
    """What is wrong with the structure of a model, or None. External files are not looked into."""
    try:
        _check_model(model)
    except _Wrong as problem:
        return str(problem)
    except RecursionError:
        return "it is nested too deeply"
    except (TypeError, UnicodeError):  # where a name is not UTF-8, protobuf gives bytes
        return "it has names that are not UTF-8"
    return None


def _check_model(model: Any) -> None:
    if not 3 <= model.ir_version <= onnx.IR_VERSION:
        raise _Wrong(f"its IR version is {model.ir_version}, and versions 3 to {onnx.IR_VERSION} are known")
    if not model.HasField("graph"):
        raise _Wrong("it has no graph")
    functions = {(function.domain, function.name) for function in model.functions}
    if len(functions) < len(model.functions):
        raise _Wrong("it defines a function twice")
    versions = _check_opsets(model.opset_import)
    if not model.graph.output:
        raise _Wrong("it has no outputs")
    _check_graph(model.graph, versions, functions, frozenset(), 0)
    calls = {}
    for function in model.functions:
        own = _check_opsets(function.opset_import) or versions
        defined = _check_nodes(function.node, own, functions, frozenset(function.input), frozenset(), 1)
        _refuse_missing(set(function.output) - defined, "a function's output")
        calls[function.domain, function.name] = {(node.domain, node.op_type) for node in _all_nodes(function.node)}
    _refuse_cycle({name: called & functions for name, called in calls.items()}, "its functions call each other")


def _check_opsets(opsets: Any) -> dict[str, int]:
    known = {"": onnx.defs.onnx_opset_version(), **_OTHER_DOMAINS}
    found: dict[str, int] = {}
    for opset in opsets:
        domain = "" if opset.domain in _ONNX else opset.domain
        if found.get(domain, opset.version) != opset.version:  # skl2onnx names one twice
            raise _Wrong(f"it names the operator set {domain or 'ai.onnx'!r} twice")
        if domain in known and not 1 <= opset.version <= known[domain]:
            name = domain or "ai.onnx"
            raise _Wrong(f"its operator set {name} {opset.version} is not known, only up to {known[domain]}")
        found[domain] = opset.version
    return found


def _check_graph(graph: Any, versions: dict[str, int], functions: set[Any], outer: frozenset[str], depth: int) -> None:
    if depth > _DEEPEST:
        raise _Wrong(f"its graphs are nested more than {_DEEPEST} deep")
    for value in (*graph.input, *graph.output):
        _check_value(value)
    for tensor in graph.initializer:
        _check_tensor(tensor)
    for sparse in graph.sparse_initializer:
        _check_tensor(sparse.values)
        _check_tensor(sparse.indices)
    inputs = Counter(value.name for value in graph.input)
    weights = Counter(tensor.name for tensor in graph.initializer)
    weights.update(sparse.values.name for sparse in graph.sparse_initializer)
    for names in (inputs, weights, Counter(value.name for value in graph.output)):
        if "" in names or max(names.values(), default=1) > 1:
            raise _Wrong("its inputs, outputs or weights do not have names of their own")
    defined = _check_nodes(graph.node, versions, functions, frozenset(inputs.keys() | weights.keys()), outer, depth)
    _refuse_missing({value.name for value in graph.output} - defined, "the output")


def _refuse_missing(names: set[str], what: str) -> None:
    if names:
        raise _Wrong(f"{what} {min(names)!r} is made by no node")


def _check_nodes(
    nodes: Any,
    versions: dict[str, int],
    functions: set[Any],
    given: frozenset[str],
    outer: frozenset[str],
    depth: int,
) -> frozenset[str]:
    """The names that the nodes may use: those of the graph, of graphs around it, and their own outputs."""
    makers: dict[str, int] = {}
    for number, node in enumerate(nodes):
        for name in filter(None, node.output):
            if name in makers or name in given:
                raise _Wrong(f"two of its nodes or weights are called {name!r}")
            makers[name] = number
    defined = given | outer | makers.keys()
    needs: dict[int, set[int]] = {}
    for number, node in enumerate(nodes):
        _check_operator(node, versions, functions)
        used = set(filter(None, node.input))
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs) if attribute.HasField("g") or attribute.graphs else ():
                _check_graph(graph, versions, functions, defined, depth + 1)
                used |= _free_names(graph)
            for tensor in (attribute.t, *attribute.tensors) if attribute.HasField("t") or attribute.tensors else ():
                _check_tensor(tensor)
        _refuse_missing(set(filter(None, node.input)) - defined, f"the input of {_say(node)}")
        needs[number] = {makers[name] for name in used if name in makers}
    _refuse_cycle(needs, "its graph has a cycle")
    return defined


def _check_operator(node: Any, versions: dict[str, int], functions: set[Any]) -> None:
    domain = "" if node.domain in _ONNX else node.domain
    if not node.op_type or not any(node.output):
        raise _Wrong(f"its node {_say(node)} has no operator or no output")
    if (node.domain, node.op_type) in functions:
        return
    if domain not in versions:
        raise _Wrong(f"its node {_say(node)} is of the operator set {domain or 'ai.onnx'!r}, which it does not name")
    if domain not in ("", "ai.onnx.ml"):
        return  # the library knows, or refuses it
    try:
        schema = onnx.defs.get_schema(node.op_type, versions[domain], domain)
    except onnx.defs.SchemaError:
        raise _Wrong(f"its node {_say(node)} is an operator that version {versions[domain]} does not have") from None
    inputs, outputs = len(node.input), len(node.output)
    if not schema.min_input <= inputs <= schema.max_input or not schema.min_output <= outputs <= schema.max_output:
        raise _Wrong(f"its node {_say(node)} has {inputs} inputs and {outputs} outputs")
    given = {attribute.name for attribute in node.attribute}
    missing = sorted(name for name, one in schema.attributes.items() if one.required and name not in given)
    if missing or len(given) < len(node.attribute):
        found = f"lacks the attribute {missing[0]!r}" if missing else "has an attribute twice"
        raise _Wrong(f"its node {_say(node)} {found}")
    unknown = sorted(given - schema.attributes.keys())
    if unknown:
        raise _Wrong(f"its node {_say(node)} has the attribute {unknown[0]!r}, which {node.op_type} does not have")
    for attribute in node.attribute:
        if not attribute.ref_attr_name and attribute.type != _number(schema.attributes[attribute.name].type):
            raise _Wrong(f"its node {_say(node)} has an attribute {attribute.name!r} of a wrong type")


def _number(kind: Any) -> int:
    """The number of a type of attributes. (onnx's annotations lack it.)"""
    return int(kind.value)


def _say(node: Any) -> str:
    return f"{(node.name or next(iter(node.output), ''))[:60]!r} ({node.op_type[:40]})"


def _free_names(graph: Any) -> set[str]:
    """The names that a graph takes from the graphs around it."""
    used, own = {value.name for value in graph.output}, {value.name for value in (*graph.input, *graph.initializer)}
    for node in graph.node:
        used.update(node.input)
        own.update(node.output)
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs) if attribute.HasField("g") or attribute.graphs else ():
                used |= _free_names(inner)
    return used - own


def _all_nodes(nodes: Any) -> Iterator[Any]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _all_nodes(graph.node)


def _refuse_cycle(needs: dict[Any, set[Any]], problem: str) -> None:
    """Remove what needs nothing until nothing is left, or everything left waits for something else."""
    waiting = {name: len(needed) for name, needed in needs.items()}
    users: dict[Any, list[Any]] = {name: [] for name in needs}
    for name, needed in needs.items():
        for each in needed:
            users[each].append(name)
    ready, done = [name for name, count in waiting.items() if count == 0], 0
    while ready:
        done += 1
        for user in users[ready.pop()]:
            waiting[user] -= 1
            if waiting[user] == 0:
                ready.append(user)
    if done < len(needs):
        raise _Wrong(problem)


def _check_value(value: Any) -> None:
    """The type and the shape of an input or an output."""
    if not value.type.HasField("tensor_type"):
        return  # sequences and maps, which the engine refuses by their type
    sides = [side.dim_value for side in value.type.tensor_type.shape.dim if side.HasField("dim_value")]
    if any(not 0 <= side < _LARGEST_SIDE for side in sides) or math.prod(sides) >= _LARGEST_SIDE:
        raise _Wrong(f"its input or output {value.name!r} has the shape {sides}")


def _check_tensor(tensor: Any) -> None:
    """Whether a tensor has as many values as its shape says."""
    count = math.prod(tensor.dims)
    names = onnx.TensorProto.DataType
    if any(side < 0 for side in tensor.dims) or tensor.data_type not in names.values() or tensor.data_type == 0:
        raise _Wrong(f"its tensor {tensor.name!r} has no type, or a negative size")
    kind = names.Name(tensor.data_type)
    bits = _BITS.get(kind, 8)
    size = -(-count * bits // 8)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        lengths = [entry.value for entry in tensor.external_data if entry.key == "length"]
        if any(length != str(size) for length in lengths):
            raise _Wrong(f"its external tensor {tensor.name!r} should have {size} bytes")
        return
    field = _PACKED.get(kind, "int32_data")
    if tensor.HasField("raw_data"):
        found, wanted = len(tensor.raw_data), size
    else:
        per_value = 2 if kind.startswith("COMPLEX") else 1
        found = len(getattr(tensor, field))
        wanted = -(-count * bits // 8) if bits < 8 else count * per_value
    if found != wanted:
        raise _Wrong(f"its tensor {tensor.name!r} has the shape {list(tensor.dims)}, and data of another size")
