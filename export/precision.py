"""The classifier in other precisions, by ONNX Runtime's tools. Precision lives in the graph: TensorRT wants it so."""

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
from ars.export.onnx_files import silence

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

# The last of them puts its folder there, which has modules of common names.
sys.path[:] = [path for path in sys.path if not path.endswith("onnxruntime/transformers")]

__all__ = ["write_fp16", "write_int8"]

Array = NDArray[np.float32]

_LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def write_fp16(source: Path, target: Path, named: Path) -> None:
    """Half weights, compute and input; the last layer and the logits stay in float32. An error names `named`, the
    user's file."""
    model = _only_logits(onnx.shape_inference.infer_shapes(onnx.load(source)))
    layers = _name_layers(model, named)
    if len(layers) < 2:
        raise ModelError(named, "it has no layer but the last to bring to halves", "leave fp16 out")
    graph = model.graph
    first = [node.name for node in graph.node].index(layers[-1])
    body, head = graph.node[:first], graph.node[first:]
    made = {name for node in body for name in node.output}
    crossing = list(dict.fromkeys(name for node in head for name in node.input if name in made))
    inputs = [value.name for value in graph.input]
    with silence():  # of weights that are too small for a half
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


def write_int8(source: Path, target: Path, batches: Sequence[Array], named: Path) -> None:
    """Symmetric int8 weights (a scale for each channel) and layer inputs, calibrated on the batches, which are noisy.

    Only what goes into a layer is rounded: sums, shortcuts and what a ReLU cuts off stay exact. The range of an input
    leaves out 2 values in 100,000: the few largest would take more from the steps of all others than they lose. The
    first and the last layer stay in float32, which wins back most of what quantising costs. Biases stay too: TensorRT
    wants them so. The bias of the last layer takes up the mean error of the logits (Nagel et al., 2019, section 4.2).
    An error names `named`, the user's file.
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
                "CalibStridedMinMax": 1,  # a batch at a time: all values of all layers would not fit into memory
            },
        )
    model = onnx.load(target)
    if not any(node.op_type == "QuantizeLinear" for node in model.graph.node):
        raise ModelError(named, "it has no layer but the first and the last to quantise", "leave int8 out")
    rounded = load_runner(target)
    _shift_logits(model, np.concatenate([exact.run(batch) - rounded.run(batch) for batch in batches]).mean(0))
    onnx.save(model, target)


def _only_logits(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without its outputs but the first, and without what makes them: the engine reads no other."""
    if len(model.graph.output) == 1:
        return model
    inputs = [value.name for value in model.graph.input]
    return onnx.utils.Extractor(model).extract_model(inputs, [model.graph.output[0].name])


def _cut(draws: Array, size: int) -> list[Array]:
    """Batches of that size; the last is filled up with the first draws again."""
    whole = np.resize(draws, (-(-len(draws) // size) * size, *draws.shape[1:]))
    return [whole[first : first + size] for first in range(0, len(whole), size)]


def _rename_input(nodes: Iterable[onnx.NodeProto], name: str, new: str) -> None:
    for node in nodes:
        node.input[:] = [new if each == name else each for each in node.input]


def _shift_logits(model: onnx.ModelProto, shift: Array) -> None:
    """Add to the bias of the last layer, where that is what the logits come from."""
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
    """The names of the layers with weights, first to last; nodes without a name get one."""
    for number, node in enumerate(model.graph.node):
        node.name = node.name or f"{node.op_type}_{number}"
    layers = [node.name for node in model.graph.node if node.op_type in _LAYERS]
    if not layers:
        raise ModelError(named, f"it has no layer of {', '.join(_LAYERS)}", "leave it in fp32")
    return layers
