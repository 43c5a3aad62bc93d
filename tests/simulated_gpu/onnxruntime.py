"""Stands in for onnxruntime-gpu, where the project binds a GPU's memory to a session's input and output."""

from onnxruntime import __version__  # noqa: F401

from simulated_gpu.machine import MACHINE, Failure, Stream
from simulated_gpu.models import queue_model, session_of


def get_available_providers():
    return ["CUDAExecutionProvider", "CPUExecutionProvider"]


def preload_dlls():
    print("Failed to load a library that nobody needs to know of")


class SessionOptions:
    def add_session_config_entry(self, key, value):
        assert (key, value) == ("session.load_model_format", "ONNX")


class RunOptions:
    def __init__(self):
        self.entries = {}

    def add_run_config_entry(self, key, value):
        self.entries[key] = value


class IOBinding:
    def __init__(self):
        self.bound = {}

    def bind_input(self, name, device_type, device_id, element_type, shape, buffer_ptr):
        self.bound["input"] = name, device_type, device_id, element_type, tuple(shape), buffer_ptr

    def bind_output(self, name, device_type="cpu", device_id=0, element_type=None, shape=None, buffer_ptr=None):
        self.bound["output"] = name, device_type, device_id, element_type, tuple(shape), buffer_ptr


class InferenceSession:
    def __init__(self, path_or_bytes, sess_options=None, providers=None):
        _call("InferenceSession")
        self._content = path_or_bytes
        ((name, self._options),) = providers
        assert name == "CUDAExecutionProvider"
        MACHINE.sessions.append(self._options)

    def get_providers(self):
        return get_available_providers()[MACHINE.lacks_libraries :]

    def io_binding(self):
        if MACHINE.lacks_libraries:
            raise RuntimeError("There's no data transfer registered for copying tensors from CPU MemoryType to GPU")
        return IOBinding()

    def run_with_iobinding(self, iobinding, run_options=None):
        _call("run_with_iobinding")
        stream = Stream(int(self._options["user_compute_stream"]))
        session = session_of(self._content)
        image, logits = iobinding.bound["input"], iobinding.bound["output"]
        assert (image[0], logits[0]) == (session.get_inputs()[0].name, session.get_outputs()[0].name)
        assert image[1:3] == logits[1:3] == ("cuda", stream.gpu) == ("cuda", int(self._options["device_id"]))
        try:
            if stream.is_capturing():  # it waits at the end of a run that is captured
                stream.run_all()
            queue_model(stream, self._content, image[4], image[5], logits[5])
        except Failure as failure:
            raise RuntimeError(str(failure)) from None
        if run_options is None or run_options.entries.get("disable_synchronize_execution_providers") != "1":
            stream.run_all()


def _call(name):
    try:
        MACHINE.call(name)
    except Failure as failure:
        raise RuntimeError("CUDA out of memory" if failure.kind == "memory" else str(failure)) from None
