"""OpenVINO on the CPU: the fast way to run INT8 classifiers.

The model is compiled with one stream for each lane, and each stream has one thread. For each batch, a lane takes an
infer request that is free. The batch axis stays dynamic: shapes that are fixed at compile time are no faster.

A batch is started and waited for. If an allocation fails in the middle of the network, that is an exception. `infer`
reports no such error if there is a single stream: the layers behind it then work on what the batch before has left, and
their logits look like any others. At least two streams are asked for, with which `infer` reports it too; but OpenVINO
makes one on a single processor, whatever is asked for.

Float models are computed in float32, even on processors that offer less, so that nothing is rounded further than the
file says. A processor without VNNI (x86 with AVX2 only) adds products of 8-bit numbers in pairs, in 16 bits. The
largest such sum of unsigned activations and weights, 2 * 255 * 127, does not fit in 16 bits and saturates.
`_use_unsigned_after_relu` rewrites activations after a ReLU so that this cannot happen to them. A quantised layer whose
input may be negative can still saturate there, so exports keep such layers in float.
"""

import io
import queue
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openvino
from openvino import opset13 as ops
from openvino.frontend import FrontEndManager

from ars.engine.runners import CpuRunner, Floats, GeneratorRunner, Port
from ars.external_data import HashedModel

__all__ = ["OpenVino", "OpenVinoGenerator"]


class _Requests:
    """A compiled model, with an infer request for each lane."""

    name, version = "openvino", openvino.__version__.partition("-")[0]
    lane_count: int
    _inputs: Sequence[Port]

    def open(self, model: HashedModel) -> tuple[Sequence[Port], Sequence[Port]]:
        network = _read_onnx(model.onnx_source(self.name))
        _use_unsigned_after_relu(network)
        streams = max(2, self.lane_count)
        settings = {
            "NUM_STREAMS": streams,
            "INFERENCE_NUM_THREADS": streams,
            "ENABLE_CPU_PINNING": False,  # a lane makes its noise on any core that is free
            "INFERENCE_PRECISION_HINT": "f32",
        }
        compiled = openvino.Core().compile_model(network, "CPU", settings)
        self._free: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for _ in range(self.lane_count):
            self._free.put(compiled.create_infer_request())
        return _ports(compiled.inputs), _ports(compiled.outputs)

    def outputs_for(self, x: Floats, names: Sequence[str]) -> list[Floats]:
        request = self._free.get()
        try:
            request.start_async([x][: len(self._inputs)], share_inputs=True)
            request.wait()
            return [request.get_tensor(name).data.copy() for name in names]
        finally:
            self._free.put(request)


def _read_onnx(source: bytes | Path) -> Any:
    """The network of an ONNX file. `Core.read_model` would take any format that it finds in a file, and some ONNX files
    are files of OpenVINO's own format as well, which nobody has checked."""
    reader = FrontEndManager().load_by_framework("onnx")
    file = io.BytesIO(source) if isinstance(source, bytes) else source
    return reader.convert(reader.load(file, enable_mmap=True))


def _ports(ports: Sequence[Any]) -> list[Port]:
    """A Port for each name of each input or output; OpenVINO allows several names."""
    named = []
    for port in ports:
        shape = port.get_partial_shape()
        sides = None if shape.rank.is_dynamic else tuple(None if s.is_dynamic else s.get_length() for s in shape)
        named += [Port(name, port.get_element_type().to_dtype().name, sides) for name in sorted(port.get_names())]
    return named


class OpenVino(_Requests, CpuRunner):
    """A classifier from an ONNX file."""

    single_row_cost = 5  # OpenVINO prepares every layer again if the shape of the batch changes

    def infer(self, batch: Floats) -> Floats:
        return self.outputs_for(batch, [self._outputs[0].name])[0]


class OpenVinoGenerator(_Requests, GeneratorRunner):
    """A noise generator from an ONNX file."""

    def infer(self, x: Floats) -> tuple[Floats, Floats]:
        mean, scale = self.outputs_for(x, ["mean", "scale"])
        return mean, scale


def _use_unsigned_after_relu(model: Any) -> None:
    """Quantise the outputs of ReLUs to unsigned 8 bits, in the range 0..127, if the file quantises them to signed 8
    bits with zero point 0.

    The quantised values stay the same, because none of them is negative: the scale is kept, and a clamp keeps the
    largest value at 127. Unsigned inputs need no correction for their offset, which makes the layer faster, and with
    values of 7 bits no pair of products exceeds 16 bits.
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
        scale = low / -128  # exactly the scale in the file, because 128 is a power of two
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
    """Whether a node is a ReLU, or a maximum pooling of one."""
    while node.get_type_name() == "MaxPool":
        node = node.input_value(0).get_node()
    return bool(node.get_type_name() == "Relu")
