"""ONNX Runtime on the processor."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ars.errors import MissingPackage, ModelError, RunError

try:
    import onnxruntime
except ImportError as error:
    raise MissingPackage("onnxruntime", "cpu") from error

__all__ = ["OnnxGenerator", "OnnxRuntime"]

_FLOATS = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


def _open(path: Path) -> tuple[Any, str]:
    """A session of one thread, and the hash of the file: the engine runs several batches side by side instead.

    The session is made from the very bytes that are hashed, so weights in other files ("external data") do not load.
    """
    if not path.exists():
        raise ModelError(path, "there is no such file", "give the path of an ONNX model")
    if path.suffix in (".trt", ".engine", ".plan"):
        raise ModelError(path, "this version of ARS does not run TensorRT engines", "give the ONNX file instead")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.enable_mem_pattern = False  # one large block a batch costs more than it saves when lanes share a session
    options.log_severity_level = 4
    content = path.read_bytes()
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no other class in common
        fix = "check it with onnx.checker, or export it again, with external_data=False"
        raise ModelError(path, f"onnxruntime cannot load it ({_reason(error)})", fix) from error
    return session, hashlib.sha256(content).hexdigest()


def _reason(error: Exception) -> str:
    """onnxruntime's message in one line."""
    return " ".join(str(error).split())


class OnnxRuntime:
    """A classifier from an ONNX file: one image input, and logits [n, classes] as its first output."""

    name, version = "onnxruntime", onnxruntime.__version__

    def __init__(self, path: Path) -> None:
        self._path = path
        self._session, self.sha256 = _open(path)
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        if len(inputs) != 1:
            names = ", ".join(node.name for node in inputs)
            fix = "export a classifier whose only input is the image"
            raise ModelError(path, f"it has {len(inputs)} inputs ({names})", fix)
        self._input, self._output = inputs[0].name, outputs[0].name
        if not outputs[0].type.startswith("tensor(float"):
            raise ModelError(path, f"its first output is a {outputs[0].type}", "it must be logits of batch x classes")
        if inputs[0].type not in _FLOATS:
            raise ModelError(path, f"its input is a {inputs[0].type}", "export it with a float32 or float16 input")
        self._dtype = _FLOATS[inputs[0].type]
        if len(inputs[0].shape) < 2:
            raise ModelError(path, f"its input has the shape {inputs[0].shape}", "export it with a batch axis first")
        batch, *shape = (side if isinstance(side, int) else None for side in inputs[0].shape)
        self.shape: tuple[int | None, ...] = tuple(shape)
        """The shape of an input; None is a side that may be any."""
        self.fixed_batch = batch
        """The only batch size that the model takes, if it was exported with one."""
        classes = outputs[0].shape[1] if len(outputs[0].shape) == 2 else None
        self.classes = classes if isinstance(classes, int) else self._count_classes()
        if self.classes < 2:
            raise ModelError(path, f"it has {self.classes} class", "a classifier has at least two")

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Refuse inputs that the model does not take."""
        same_axes = len(shape) == len(self.shape)
        if not same_axes or any(want not in (None, has) for want, has in zip(self.shape, shape, strict=True)):
            want = " x ".join(str(side or "any") for side in self.shape)
            found = f"it takes inputs of {want}, and the data has {' x '.join(map(str, shape))}"
            raise ModelError(self._path, found, "use --resize and --crop, or other data")

    def run(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        size = self.fixed_batch or len(batch)
        if len(batch) == size:
            logits = self._run(batch)
        else:
            padded = np.zeros((-(-len(batch) // size) * size, *batch.shape[1:]), np.float32)
            padded[: len(batch)] = batch
            parts = [self._run(padded[first : first + size]) for first in range(0, len(padded), size)]
            logits = np.concatenate(parts)[: len(batch)]
        if logits.shape != (len(batch), self.classes):
            found = f"its output {self._output!r} has the shape {logits.shape} for {len(batch)} inputs"
            raise ModelError(self._path, found, f"it must be logits of batch x {self.classes} classes")
        return logits

    def _run(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        try:
            logits = self._session.run([self._output], {self._input: batch.astype(self._dtype, copy=False)})[0]
        except Exception as error:  # as above
            failed = f"{self._path}: onnxruntime failed on a batch of {len(batch)} ({_reason(error)})"
            raise RunError(f"{failed}; try a smaller --batch, or export the model again") from error
        return np.ascontiguousarray(logits, np.float32)

    def _count_classes(self) -> int:
        """The classes of a model that does not say them: it is asked."""
        if None in self.shape:
            problem = "neither its input nor its number of classes has a fixed size"
            raise ModelError(self._path, problem, "export it with both")
        logits = self._run(np.zeros((self.fixed_batch or 1, *(side or 1 for side in self.shape)), np.float32))
        if logits.ndim != 2:
            found = f"its first output has the shape {logits.shape} for a batch of {len(logits)}"
            raise ModelError(self._path, found, "its first output must be logits of batch x classes")
        return int(logits.shape[1])


class OnnxGenerator:
    """A noise generator from an ONNX file: x [n, ...] to `mean` and `scale` of the same shape."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._session, self.sha256 = _open(path)
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        names = {node.name for node in outputs}
        if len(inputs) != 1 or inputs[0].type not in _FLOATS or not {"mean", "scale"} <= names:
            fix = "a noise generator has one float input, and the outputs mean and scale"
            raise ModelError(path, f"it has the outputs {', '.join(sorted(names))}", fix)
        self._input, self._dtype = inputs[0].name, _FLOATS[inputs[0].type]

    def __call__(self, x: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        try:
            given = x[np.newaxis].astype(self._dtype, copy=False)
            mean, scale = self._session.run(["mean", "scale"], {self._input: given})
        except Exception as error:  # as above
            problem = f"it gives no maps for an input of shape {x.shape} ({_reason(error)})"
            raise ModelError(self._path, problem, "use the classifier's own generator") from error
        if not mean.shape == scale.shape == given.shape:
            found = f"its maps have the shapes {mean.shape} and {scale.shape} for inputs of {given.shape}"
            raise ModelError(self._path, found, "mean and scale must have the shape of x, batch axis included")
        return mean[0].astype(np.float32), scale[0].astype(np.float32)
