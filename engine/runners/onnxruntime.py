"""ONNX Runtime on the CPU."""

from collections.abc import Sequence
from typing import Any

import onnxruntime

from ars.engine.runners import CpuRunner, Floats, GeneratorRunner, Port
from ars.external_data import HashedModel

__all__ = ["OnnxGenerator", "OnnxRuntime"]

_TYPES = {"tensor(float)": "float32", "tensor(float16)": "float16"}


class _Session:
    """A session that uses one thread, because the engine runs several batches in parallel instead."""

    name, version = "onnxruntime", onnxruntime.__version__

    def open(self, model: HashedModel) -> tuple[Sequence[Port], Sequence[Port]]:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.enable_mem_pattern = False  # one large block per batch costs more than it saves if lanes share it
        options.log_severity_level = 4
        # Some ONNX files are files of ONNX Runtime's own format as well, which nobody has checked.
        options.add_session_config_entry("session.load_model_format", "ONNX")
        # Without this, sums of INT8 products saturate at 16 bits on processors without VNNI.
        options.add_session_config_entry("session.x64quantprecision", "1")
        self._session = onnxruntime.InferenceSession(
            model.onnx_source(self.name), options, providers=["CPUExecutionProvider"]
        )
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        self._input, self._output = inputs[0].name if inputs else "", outputs[0].name
        return [_port(node) for node in inputs], [_port(node) for node in outputs]


def _port(node: Any) -> Port:
    shape = None if node.shape is None else tuple(side if isinstance(side, int) else None for side in node.shape)
    return Port(node.name, _TYPES.get(node.type, node.type.removeprefix("tensor(").removesuffix(")")), shape)


class OnnxRuntime(_Session, CpuRunner):
    """A classifier from an ONNX file."""

    def infer(self, batch: Floats) -> Floats:
        logits: Floats = self._session.run([self._output], {self._input: batch})[0]
        return logits


class OnnxGenerator(_Session, GeneratorRunner):
    """A noise generator from an ONNX file."""

    def infer(self, x: Floats) -> tuple[Floats, Floats]:
        mean, scale = self._session.run(["mean", "scale"], {self._input: x})
        return mean, scale
