"""ONNX files that are files of a library's own format as well, where another model stands. The ONNX model is what is
checked, so it must be what is run."""

import struct

import numpy as np
import onnx
import onnxruntime
import openvino
import pytest
from onnx import helper
from openvino import opset13 as ops
from support import models

from ars.engine.runners.onnxruntime import OnnxRuntime
from ars.engine.runners.openvino import OpenVino
from ars.errors import ModelError
from ars.trial import own_models

X = np.random.default_rng(0).random((4, 1, 4, 4), np.float32)


@pytest.fixture(autouse=True)
def _no_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def random_in_format_of_onnxruntime(path):
    """A model that adds random numbers to its logits."""
    model = onnx.load(models.linear(path))
    model.graph.node[-1].output[0] = "linear"
    model.graph.node.append(helper.make_node("RandomNormalLike", ["linear"], ["random"], scale=100.0))
    model.graph.node.append(helper.make_node("Add", ["linear", "random"], ["logits"]))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(path)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return path.read_bytes()


def both(good, other):
    """An ONNX file that begins as one of ONNX Runtime's format does: with the place of the root table, and ORTM. To
    protobuf these are a version, a name of the producer ("ORTM") and a comment, in which the other model stands."""
    (old,) = struct.unpack_from("<I", other)
    table = old - struct.unpack_from("<i", other, old)[0]
    size = struct.unpack_from("<H", other, table)[0]
    members = struct.unpack_from(f"<{(size - 4) // 2}H", other, table + 4)
    start = b"\x08\x0a\x12\x04"
    (root,) = struct.unpack("<I", start)
    base = root + 128
    made = bytearray(base + len(other))
    made[:8] = start + b"ORTM"
    length = len(made) - 13
    made[8:13] = bytes([0x32, *(length >> 7 * part & 0x7F | 0x80 for part in range(3)), length >> 21])
    struct.pack_into(f"<2H{len(members)}H", made, root - 64, size, 4 + 4 * len(members),
                     *(4 + 4 * number if member else 0 for number, member in enumerate(members)))  # fmt: skip
    struct.pack_into("<i", made, root, 64)
    for number, member in enumerate(members, start=1):
        if member:
            target = base + old + member + struct.unpack_from("<I", other, old + member)[0]
            struct.pack_into("<I", made, root + 4 * number, target - root - 4 * number)
    made[base:] = other
    return bytes(made) + good


def test_a_file_of_two_formats_is_the_onnx_model_to_onnxruntime(tmp_path):
    good = OnnxRuntime(models.linear(tmp_path / "good.onnx")).run(X)
    path = tmp_path / "both.onnx"
    content = both((tmp_path / "good.onnx").read_bytes(), random_in_format_of_onnxruntime(tmp_path / "other.onnx"))
    path.write_bytes(content)
    # The negative control: ONNX Runtime takes the other model, unless it is told not to.
    careless = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    assert np.abs(careless.run(None, {"x": X})[0] - good).max() > 10
    del careless
    np.testing.assert_array_equal(OnnxRuntime(path).run(X), good)


def test_a_file_of_two_formats_is_the_onnx_model_to_openvino(tmp_path):
    """OpenVINO's own format is XML, whose reader skips what stands after it."""
    x = ops.parameter([-1, 1, 4, 4], np.float32, name="x")
    other = openvino.Model([ops.relu(x)], [x])
    openvino.save_model(other, tmp_path / "other.xml")
    xml = (tmp_path / "other.xml").read_bytes()
    xml = b" " * 30 + xml[xml.index(b"<net") :].rstrip()
    models.linear(tmp_path / "good.onnx")
    # To protobuf, the XML is a member of a type that no version of ONNX has, which is skipped.
    content = b"\x0a" + bytes([len(xml) % 128 | 128, len(xml) // 128]) + xml + (tmp_path / "good.onnx").read_bytes()
    path = tmp_path / "both.onnx"
    path.write_bytes(content)
    # The negative control: OpenVINO takes the other model, unless it is told not to.
    assert "Relu" in [one.get_type_name() for one in openvino.Core().read_model(content).get_ops()]
    np.testing.assert_array_equal(OpenVino(path).run(X), OpenVino(tmp_path / "good.onnx").run(X))


def test_a_file_of_another_format_alone_is_refused(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(random_in_format_of_onnxruntime(path))
    for runner in (OnnxRuntime, OpenVino):
        with pytest.raises(ModelError, match="it is not an ONNX model"):
            runner(path)
        with own_models(), pytest.raises(ModelError, match=r"cannot load it|not an ONNX model"):  # without a trial
            runner(path)
