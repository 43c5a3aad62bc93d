"""ONNX Runtime on the processor."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ars.engine.runners import ModelRunner, Port, one_line, read_model
from ars.errors import MissingPackage, ModelError

try:
    import onnxruntime
except ImportError as error:
    raise MissingPackage("onnxruntime", "cpu") from error

__all__ = ["OnnxGenerator", "OnnxRuntime"]

_TYPES = {"tensor(float)": "float32", "tensor(float16)": "float16"}


def _session(content: bytes) -> Any:
    """A session of one thread: the engine runs several batches side by side instead."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.enable_mem_pattern = False  # one large block a batch costs more than it saves when lanes share a session
    options.log_severity_level = 4
    # Without VNNI, sums of int8 products saturate at 16 bits unless the weights give up a bit, or this is set.
    options.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def _port(node: Any) -> Port:
    shape = None if node.shape is None else tuple(side if isinstance(side, int) else None for side in node.shape)
    return Port(node.name, _TYPES.get(node.type, node.type.removeprefix("tensor(").removesuffix(")")), shape)


class OnnxRuntime(ModelRunner):
    """A classifier from an ONNX file."""

    name, version = "onnxruntime", onnxruntime.__version__

    def open(self, content: bytes, lanes: int) -> tuple[Sequence[Port], Sequence[Port]]:
        self._session = _session(content)
        inputs, outputs = map(_port, self._session.get_inputs()), map(_port, self._session.get_outputs())
        return list(inputs), list(outputs)

    def infer(self, batch: NDArray[np.floating]) -> NDArray[np.floating]:
        outputs, image = self._session.get_outputs(), self._session.get_inputs()[0]
        logits: NDArray[np.floating] = self._session.run([outputs[0].name], {image.name: batch})[0]
        return logits


class OnnxGenerator:
    """A noise generator from an ONNX file: x [n, ...] to `mean` and `scale` of the same shape."""

    def __init__(self, path: Path) -> None:
        self._path = path
        content, self.sha256 = read_model(path)
        try:
            self._session = _session(content)
        except Exception as error:  # onnxruntime's errors have no other class in common
            fix = "check it with onnx.checker, or export it again, with external_data=False"
            raise ModelError(path, f"onnxruntime cannot load it ({one_line(error)})", fix) from error
        inputs = [_port(node) for node in self._session.get_inputs()]
        names = {node.name for node in self._session.get_outputs()}
        if len(inputs) != 1 or inputs[0].dtype not in _TYPES.values() or not {"mean", "scale"} <= names:
            fix = "a noise generator has one float input, and the outputs mean and scale"
            raise ModelError(path, f"it has the outputs {', '.join(sorted(names))}", fix)
        self._input, self._dtype = inputs[0].name, np.dtype(inputs[0].dtype)

    def __call__(self, x: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        try:
            given = x[np.newaxis].astype(self._dtype, copy=False)
            mean, scale = self._session.run(["mean", "scale"], {self._input: given})
        except Exception as error:  # as above
            problem = f"it gives no maps for an input of shape {x.shape} ({one_line(error)})"
            raise ModelError(self._path, problem, "use the classifier's own generator") from error
        if not mean.shape == scale.shape == given.shape:
            found = f"its maps have the shapes {mean.shape} and {scale.shape} for inputs of {given.shape}"
            raise ModelError(self._path, found, "mean and scale must have the shape of x, batch axis included")
        return mean[0].astype(np.float32), scale[0].astype(np.float32)
