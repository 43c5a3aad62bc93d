"""Write the classifier in other precisions, with ONNX Runtime's tools. The graph itself states the precision, as
TensorRT requires."""

import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from ars.engine.backends import load_runner
from ars.engine.runners.onnxruntime import OnnxRuntime
from ars.errors import MissingPackage, ModelError
from ars.export.graphs import silence
from ars.export.mixed import Kept, Target, reach

try:
    from onnxruntime.quantization import (
        CalibrationDataReader,
        CalibrationMethod,
        QuantFormat,
        QuantType,
        quantize_static,
    )
    from onnxruntime.quantization.shape_inference import quant_pre_process
    from onnxruntime.transformers.float16 import convert_float_to_float16
except ImportError as error:
    raise MissingPackage("onnxruntime", "cpu") from error

# The last import adds its own folder to the path, where modules with common names would be found.
sys.path[:] = [path for path in sys.path if not path.endswith("onnxruntime/transformers")]

__all__ = ["write_fp16", "write_int8"]

Array = NDArray[np.float32]

_LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def write_fp16(source: Path, target: Path, named: Path) -> None:
    """Write the classifier with half-precision input, weights and arithmetic; the last layer and the logits stay in
    float32. Errors name `named`, the user's file."""
    model = _only_logits(onnx.shape_inference.infer_shapes(onnx.load(source)))
    layers = _name_layers(model, named)
    if len(layers) < 2:
        raise ModelError(named, "it has no layer except the last, which stays in fp32", "omit fp16")
    graph = model.graph
    first = [node.name for node in graph.node].index(layers[-1])
    body, head = graph.node[:first], graph.node[first:]
    made = {name for node in body for name in node.output}
    crossing = list(dict.fromkeys(name for node in head for name in node.input if name in made))
    inputs = [value.name for value in graph.input]
    with silence():  # warnings of weights that are too small for half precision
        half = convert_float_to_float16(
            onnx.utils.Extractor(model).extract_model(inputs, crossing), keep_io_types=crossing
        )
    for name in inputs:
        if any(name in node.input for node in head):
            half.graph.node.append(helper.make_node("Cast", [name], [f"{name}.head"], to=TensorProto.FLOAT))
            _rename_input(head, name, f"{name}.head")
    taken = {tensor.name for tensor in half.graph.initializer}
    for tensor in graph.initializer:
        if any(tensor.name in node.input for node in head):
            name = f"{tensor.name}.head" if tensor.name in taken else tensor.name
            _rename_input(head, tensor.name, name)
            half.graph.initializer.add().CopyFrom(tensor)
            half.graph.initializer[-1].name = name
    half.graph.node.extend(head)
    del half.graph.output[:]
    half.graph.output.extend(graph.output)
    onnx.checker.check_model(half, full_check=True)
    onnx.save(half, target)


def write_int8(
    source: Path, target: Path, batches: Sequence[Array], named: Path, wanted: Target | None = None
) -> Kept | None:
    """Write the classifier with symmetric int8 weights (one scale per channel) and layer inputs, calibrated on batches
    of noisy draws.

    Only the inputs and weights of layers are rounded; their outputs, and so sums and shortcuts, stay exact. The range
    of an input excludes 2 values in 100,000: including the few largest would cost all others more in resolution than
    clipping costs these. The first and the last layer stay in float32, which recovers most of the lost accuracy, and so
    do biases, as TensorRT requires. If the agreement that is wanted needs it, more layers do, which are returned
    (`mixed.py`). The bias of the last layer absorbs the mean error of the logits (Nagel et al., 2019, section 4.2).
    Errors name `named`, the user's file.
    """
    exact = OnnxRuntime(source)
    if exact.fixed_batch is not None:
        batches = _cut(np.concatenate(batches), exact.fixed_batch)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder, silence():
        prepared = Path(folder) / "prepared.onnx"
        onnx.save(_only_logits(onnx.load(source)), prepared)
        quant_pre_process(prepared, prepared, skip_symbolic_shape=True)
        model = onnx.load(prepared)
        layers = _name_layers(model, named)
        onnx.save(model, prepared)
        quantize_static(
            prepared,
            target,
            _Batches(exact.image.name, batches),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
            op_types_to_quantize=list(_LAYERS),
            nodes_to_exclude=[layers[0], layers[-1]],
            calibrate_method=CalibrationMethod.Percentile,
            extra_options={
                "ActivationSymmetric": True,
                "WeightSymmetric": True,
                "QuantizeBias": False,
                "OpTypesToExcludeOutputQuantization": list(_LAYERS),
                "CalibPercentile": 99.998,
                "CalibStridedMinMax": 1,  # batch by batch: the values of all layers together would not fit into memory
            },
        )
        original = onnx.load(prepared)
    model = onnx.load(target)
    if not any(node.op_type == "QuantizeLinear" for node in model.graph.node):
        raise ModelError(named, "it has no layers between the first and the last to quantise", "omit int8")
    kept = None
    if wanted is not None:
        model, kept = reach(model, original, wanted, exact.run, _shift_logits, target.parent)
        onnx.save(model, target)
    rounded = load_runner(target)
    _shift_logits(model, np.concatenate([exact.run(batch) - rounded.run(batch) for batch in batches]).mean(0))
    onnx.save(model, target)
    return kept


def _only_logits(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its first output alone, which is the only one that the engine reads."""
    if len(model.graph.output) == 1:
        return model
    inputs = [value.name for value in model.graph.input]
    return onnx.utils.Extractor(model).extract_model(inputs, [model.graph.output[0].name])


def _cut(draws: Array, size: int) -> list[Array]:
    """Batches of the given size; the last one is filled up with the first draws."""
    whole = np.resize(draws, (-(-len(draws) // size) * size, *draws.shape[1:]))
    return [whole[first : first + size] for first in range(0, len(whole), size)]


def _rename_input(nodes: Iterable[onnx.NodeProto], name: str, new: str) -> None:
    for node in nodes:
        node.input[:] = [new if each == name else each for each in node.input]


def _shift_logits(model: onnx.ModelProto, shift: Array) -> None:
    """Add `shift` to the bias of the last layer, if the logits come directly from it."""
    head = next(node for node in model.graph.node if model.graph.output[0].name in node.output)
    beta = next((attribute.f for attribute in head.attribute if attribute.name == "beta"), 1.0)
    for tensor in model.graph.initializer:
        if head.op_type == "Gemm" and tensor.name in head.input[2:] and beta:
            bias = numpy_helper.to_array(tensor) + shift / beta
            tensor.CopyFrom(numpy_helper.from_array(bias.astype(np.float32), tensor.name))


class _Batches(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no annotations
    def __init__(self, name: str, batches: Sequence[Array]) -> None:
        self._name, self._all = name, batches

    def __len__(self) -> int:
        return len(self._all)

    def set_range(self, start_index: int, end_index: int) -> None:
        self._batches = iter(self._all[start_index:end_index])

    def get_next(self) -> dict[str, Array] | None:
        batch = next(self._batches, None)
        return None if batch is None else {self._name: batch}


def _name_layers(model: onnx.ModelProto, named: Path) -> list[str]:
    """The names of the layers with weights, first to last. Nodes without a name get one."""
    for number, node in enumerate(model.graph.node):
        node.name = node.name or f"{node.op_type}_{number}"
    layers = [node.name for node in model.graph.node if node.op_type in _LAYERS]
    if not layers:
        raise ModelError(named, f"it has no layer of type {', '.join(_LAYERS)}", "leave it in fp32")
    return layers
