"""ONNX files: reading them, and what their graphs say of themselves. Torch is not needed."""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import onnx
from onnx import TensorProto

from ars.errors import ModelError, one_line
from ars.external_data import hash_model

__all__ = ["MAX_BYTES", "OPSET", "opset_of", "precision_of", "read_onnx", "silence"]

OPSET = 18
# A protocol buffer holds at most 2 GB. Larger weights are written to a separate file.
MAX_BYTES = 2**31 - 2**20


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Suppress what the exporters log and print, which is of no use to users; their errors say the same."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    with contextlib.ExitStack() as stack:
        stack.callback(logging.disable, before)
        stack.enter_context(warnings.catch_warnings(action="ignore"))
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        yield


def read_onnx(path: Path) -> onnx.ModelProto:
    """Read the graph of an ONNX file. Its external data is checked, but not read into it."""
    if not path.exists():
        raise ModelError(path, "there is no such file", "give the path of an ONNX model")
    if path.stat().st_size > MAX_BYTES:
        raise ModelError(path, "it is larger than 2 GB", "export it with external data")
    try:
        model = onnx.load(path, load_external_data=False)
        # The checker looks for external data beside a path, but in the working directory if it gets a model.
        onnx.checker.check_model(path if hash_model(path).external else model)
    except ModelError:
        raise
    except Exception as error:  # protobuf and onnx raise many types of errors
        raise ModelError(path, f"it is not an ONNX model ({one_line(error)})", "export it again") from error
    return model


def opset_of(model: onnx.ModelProto) -> int:
    """The opset of the model: the version of ONNX's operators that it uses."""
    return max((opset.version for opset in model.opset_import if opset.domain in ("", "ai.onnx")), default=OPSET)


def precision_of(model: onnx.ModelProto) -> str:
    """int8 if the model quantises, fp16 if it has half-precision weights, otherwise fp32."""
    if any(node.op_type == "QuantizeLinear" for node in model.graph.node):
        return "int8"
    halves = any(tensor.data_type == TensorProto.FLOAT16 for tensor in model.graph.initializer)
    return "fp16" if halves else "fp32"
