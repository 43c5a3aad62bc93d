"""The process of a trial: checks the structure of an ONNX model, loads it and runs it once.

It is started as a program of its own, and imports nothing of ARS, which would take longer than the trial. The only
argument is a JSON object (`Request` in the package's __init__.py); the model is the standard input, unless the request
names a file. The answer is a JSON object on the standard output: {"problem": null}, or what is wrong.
"""

import json
import os
import resource
import sys
from typing import Any


def main() -> None:
    request = json.loads(sys.argv[1])
    sys.path[:] = [os.path.dirname(os.path.abspath(__file__)), *request["path"]]
    _limit(request["seconds"])
    # What a library prints must not be taken for the answer.
    answer, nothing = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.write(answer, json.dumps({"problem": _try(request)}).encode())
    os._exit(0)  # what was loaded need not be taken down in order


def _limit(seconds: int) -> None:
    """Limit what this process may do. What the system does not know is left out; the parent watches time and memory."""
    for name, value in (("RLIMIT_CPU", seconds), ("RLIMIT_FSIZE", 0), ("RLIMIT_CORE", 0)):
        limit = getattr(resource, name, None)
        if limit is not None:
            hard = resource.getrlimit(limit)[1]
            resource.setrlimit(limit, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _try(request: dict[str, Any]) -> str | None:
    try:
        import onnx
    except ImportError:
        return "the package onnx is missing"
    from structure import find_problem  # type: ignore[import-not-found]  # beside this file

    file = request["file"]
    with open(file, "rb") if file else os.fdopen(0, "rb") as source:
        content = source.read()
    try:
        model = onnx.ModelProto.FromString(content)
    except Exception:  # protobuf has errors of its own
        return "it is not an ONNX model"
    problem: str | None = find_problem(model)
    del model
    if problem or request["library"] is None:
        return problem
    try:
        (_run_onnxruntime if request["library"] == "onnxruntime" else _run_openvino)(file or content)
    except MemoryError:
        return "there is not enough memory"
    except Exception as error:  # the libraries' errors have no other base class in common
        return f"{request['library']} cannot load it ({error})"[:2000]
    return None


def _make_input(shape: list[int | None], dtype: str | None) -> Any:
    """Numbers in [0, 1) of this shape, of which the first axis is the batch; None if the shape is not known."""
    import numpy as np

    sides = [side for side in shape[1:] if side is not None]
    if not shape or len(sides) < len(shape) - 1 or dtype not in ("float32", "float16"):
        return None
    return np.random.default_rng(0).random((shape[0] or 1, *sides), np.float32).astype(dtype)


def _run_onnxruntime(model: bytes | str) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.load_model_format", "ONNX")  # the format whose structure was checked
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    inputs = session.get_inputs()
    if len(inputs) == 1 and inputs[0].shape is not None:
        types = {"tensor(float)": "float32", "tensor(float16)": "float16"}
        sides = [side if isinstance(side, int) else None for side in inputs[0].shape]
        x = _make_input(sides, types.get(inputs[0].type))
        if x is not None:
            session.run(None, {inputs[0].name: x})


def _run_openvino(model: bytes | str) -> None:
    import io

    import openvino
    from openvino.frontend import FrontEndManager

    reader = FrontEndManager().load_by_framework("onnx")  # otherwise OpenVINO takes any format that it finds in a file
    file = io.BytesIO(model) if isinstance(model, bytes) else model
    network = reader.convert(reader.load(file, enable_mmap=True))
    settings = {"NUM_STREAMS": 1, "INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(network, "CPU", settings)
    if len(compiled.inputs) == 1 and not compiled.inputs[0].get_partial_shape().rank.is_dynamic:
        port = compiled.inputs[0]
        sides = [None if side.is_dynamic else side.get_length() for side in port.get_partial_shape()]
        x = _make_input(sides, port.get_element_type().to_dtype().name)
        if x is not None:
            compiled.create_infer_request().infer([x])


if __name__ == "__main__":
    main()
