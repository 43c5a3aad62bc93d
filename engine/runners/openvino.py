"""OpenVINO on the processor: the fast way to run INT8 classifiers.

One model is compiled with as many streams as there are lanes, and a stream has one thread. A lane takes a free infer
request for each batch. The batch stays a dynamic axis: shapes fixed at compile time are no faster.

Float models are computed in float32, whatever the processor offers: nothing is rounded further than the file says. A
processor without VNNI (x86 with AVX2 only) adds products of 8-bit numbers in pairs in 16 bits. The largest pair of
unsigned activations and weights, 2 * 255 * 127, does not fit, and the sum saturates. Activations after a ReLU are
rewritten (`_use_unsigned_after_relu`) so that it cannot happen to them. A quantised layer whose input may be negative
is still at risk there, and is better left in float at export.
"""

import queue
from collections.abc import Sequence
from typing import Any

import numpy as np
import openvino
from openvino import opset13 as ops

from ars.engine.runners import CpuRunner, Floats, GeneratorRunner, Port

__all__ = ["OpenVino", "OpenVinoGenerator"]


class _Requests:
    """A compiled model, and an infer request for each lane."""

    name, version = "openvino", openvino.__version__.partition("-")[0]
    lane_count: int
    _inputs: Sequence[Port]

    def open(self, content: bytes) -> tuple[Sequence[Port], Sequence[Port]]:
        core = openvino.Core()
        model = core.read_model(model=content)
        _use_unsigned_after_relu(model)
        settings = {
            "NUM_STREAMS": self.lane_count,
            "INFERENCE_NUM_THREADS": self.lane_count,
            "ENABLE_CPU_PINNING": False,  # a lane makes its noise on whichever core is free
            "INFERENCE_PRECISION_HINT": "f32",
        }
        compiled = core.compile_model(model, "CPU", settings)
        self._free: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for _ in range(self.lane_count):
            self._free.put(compiled.create_infer_request())
        return _ports(compiled.inputs), _ports(compiled.outputs)

    def outputs_for(self, x: Floats, names: Sequence[str]) -> list[Floats]:
        request = self._free.get()
        try:
            request.infer([x][: len(self._inputs)], share_inputs=True)
            return [request.get_tensor(name).data.copy() for name in names]
        finally:
            self._free.put(request)


def _ports(ports: Sequence[Any]) -> list[Port]:
    """The ports by name; one may have several."""
    named = []
    for port in ports:
        shape = port.get_partial_shape()
        sides = None if shape.rank.is_dynamic else tuple(None if s.is_dynamic else s.get_length() for s in shape)
        named += [Port(name, port.get_element_type().to_dtype().name, sides) for name in sorted(port.get_names())]
    return named


class OpenVino(_Requests, CpuRunner):
    """A classifier from an ONNX file."""

    def infer(self, batch: Floats) -> Floats:
        return self.outputs_for(batch, [self._outputs[0].name])[0]


class OpenVinoGenerator(_Requests, GeneratorRunner):
    """A noise generator from an ONNX file."""

    def infer(self, x: Floats) -> tuple[Floats, Floats]:
        mean, scale = self.outputs_for(x, ["mean", "scale"])
        return mean, scale


def _use_unsigned_after_relu(model: Any) -> None:
    """Quantise what a ReLU gives to 0..127 in unsigned 8 bits, where the file says signed ones with zero point 0.

    The quantised values are the same, as none of them is negative: the scale stays, and a clamp keeps the largest at
    127. Unsigned inputs of a layer need no correction for their offset, which is faster, and with values of 7 bits no
    pair of products exceeds 16 bits.
    """
    for quantize in model.get_ordered_ops():
        if quantize.get_type_name() != "FakeQuantize" or not _is_never_negative(quantize.input_value(0).get_node()):
            continue
        limits = [quantize.input_value(index).get_node() for index in range(1, 5)]
        users = list(quantize.output(0).get_target_inputs())
        if any(limit.get_type_name() != "Constant" or limit.data.size != 1 for limit in limits) or len(users) != 1:
            continue
        low, high, *codes = (float(limit.data.item()) for limit in limits)
        cast = users[0].get_node()
        scale = low / -128  # exactly the file's: a power of two is taken off
        symmetric = scale > 0 and codes == [-128, 127] and abs(high - 127 * scale) <= 1e-6 * high
        if not symmetric or cast.get_type_name() != "Convert":
            continue
        clamped = ops.clamp(quantize.input_value(0), 0.0, high)
        quantize.input(0).replace_source_output(clamped.output(0))
        for index, value in enumerate((0.0, 255 * scale, 0.0, 255.0), start=1):
            constant = ops.constant(np.full(limits[0].data.shape, value, np.float32))
            quantize.input(index).replace_source_output(constant.output(0))
        unsigned = ops.convert(quantize.output(0), "u8")
        for user in list(cast.output(0).get_target_inputs()):
            user.replace_source_output(unsigned.output(0))
    model.validate_nodes_and_infer_types()


def _is_never_negative(node: Any) -> bool:
    """Whether a node is a ReLU, or the largest values of one."""
    while node.get_type_name() == "MaxPool":
        node = node.input_value(0).get_node()
    return bool(node.get_type_name() == "Relu")
