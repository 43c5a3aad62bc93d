"""Models on which libraries crash, hang or take all memory are refused by a trial in a process of its own."""

import os
import stat
import subprocess
import sys
import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support import models

import ars.trial
from ars.engine.runners.onnxruntime import OnnxGenerator, OnnxRuntime
from ars.engine.runners.openvino import OpenVino
from ars.errors import ModelError
from ars.external_data import HashedModel
from ars.trial import Limits, own_models

node, BOOL = helper.make_node, TensorProto.BOOL


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "ars" / "tried"


@pytest.fixture
def no_child(monkeypatch):
    """From now on, no trial may start."""
    return lambda: monkeypatch.setattr(ars.trial, "_run_child", lambda *_: pytest.fail("a trial was started"))


def write(path, nodes, weights=(), outputs=("logits",)):
    made = [models.value(name, "n", 3) for name in outputs]
    inputs = [models.value("x", "n", 1, 4, 4)]
    graph = helper.make_graph(nodes, "g", inputs, made, [numpy_helper.from_array(v, k) for k, v in weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    path.write_bytes(model.SerializeToString())
    return path


W = [("W", np.ones((16, 3), np.float32))]
FLAT = node("Flatten", ["x"], ["f"])
MATMUL = node("MatMul", ["f", "W"], ["logits"])


def changed(change):
    """The bytes of a good model after a change."""
    graph = helper.make_graph(
        [FLAT, MATMUL],
        "g",
        [models.value("x", "n", 1, 4, 4)],
        [models.value("logits", "n", 3)],
        [numpy_helper.from_array(W[0][1], "W")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    change(model)
    return model.SerializeToString()


def subgraph_uses(model):
    """An If whose branch uses what the If makes."""
    branch = helper.make_graph([node("Identity", ["c"], ["inner"])], "b", [], [models.value("inner", 16, 3)])
    model.graph.node.insert(0, node("If", ["yes"], ["c"], then_branch=branch, else_branch=branch))
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "yes"))


def call_itself(model):
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    model.opset_import.append(opsets[1])
    model.functions.append(
        helper.make_function("own", "f", ["a"], ["b"], [node("f", ["a"], ["b"], domain="own")], opsets)
    )


STRUCTURES = {
    "its graph has a cycle": lambda m: m.graph.node[0].input.__setitem__(0, "logits"),
    "its graph has a cycle ": subgraph_uses,
    "its functions call each other": call_itself,
    "the output 'logits' is made by no node": lambda m: m.graph.node.pop(),
    "it has no outputs": lambda m: m.graph.ClearField("output"),
    "it has no graph": lambda m: m.ClearField("graph"),
    "its operator set ai.onnx 1000 is not known": lambda m: setattr(m.opset_import[0], "version", 1000),
    "its operator set ai.onnx 0 is not known": lambda m: setattr(m.opset_import[0], "version", 0),
    "is of the operator set 'ai.onnx', which it does not name": lambda m: m.ClearField("opset_import"),
    "it names the operator set 'ai.onnx' twice": lambda m: m.opset_import.append(helper.make_opsetid("ai.onnx", 3)),
    "its IR version is 99": lambda m: setattr(m, "ir_version", 99),
    r"'f' \(Flaten\) is an operator that version 17 does not have": lambda m: setattr(
        m.graph.node[0], "op_type", "Flaten"
    ),
    r"'f' \(MatMul\) has 1 inputs and 1 outputs": lambda m: setattr(m.graph.node[0], "op_type", "MatMul"),
    r"'f' \(Cast\) lacks the attribute 'to'": lambda m: setattr(m.graph.node[0], "op_type", "Cast"),
    "has the attribute 'axes', which Flatten does not": lambda m: m.graph.node[0].attribute.append(
        helper.make_attribute("axes", [1])
    ),
    "an attribute 'axis' of a wrong type": lambda m: m.graph.node[0].attribute.append(
        helper.make_attribute("axis", 1.5)
    ),
    "two of its nodes or weights are called 'f'": lambda m: m.graph.node.append(node("Relu", ["x"], ["f"])),
    "the input of 'logits' .* 'g' is made by no node": lambda m: m.graph.node[1].input.__setitem__(0, "g"),
    "do not have names of their own": lambda m: m.graph.initializer.append(m.graph.initializer[0]),
    "its tensor 'W' has the shape .*, and data of another size": lambda m: m.graph.initializer[0].dims.__setitem__(
        0, 2**40
    ),
    "has no type, or a negative size": lambda m: m.graph.initializer[0].dims.__setitem__(0, -1),
    "has no type, or a negative size ": lambda m: setattr(m.graph.initializer[0], "data_type", 77),
    r"its input or output 'x' has the shape \[1, 4, 1099511627776\]": lambda m: setattr(
        m.graph.input[0].type.tensor_type.shape.dim[3], "dim_value", 2**40
    ),
    "the input of .* 'far' is made by no node": lambda m: m.graph.node.append(
        node("If", ["far"], ["c"], then_branch=onnx.GraphProto(), else_branch=onnx.GraphProto())
    ),
}


@pytest.mark.parametrize("message", STRUCTURES)
def test_a_structure_that_libraries_may_not_survive_is_refused(tmp_path, message):
    path = tmp_path / "m.onnx"
    path.write_bytes(changed(STRUCTURES[message]))
    with pytest.raises(ModelError, match=f"m.onnx: .*{message.strip()}.*; check it with onnx.checker") as caught:
        HashedModel(path).onnx_source("openvino")
    assert "\n" not in str(caught.value)


def test_what_is_unusual_and_allowed_passes(tmp_path):
    """Nodes out of order, names that a branch uses again, empty optional inputs, functions, weights that are inputs,
    and an operator set that is named twice, as skl2onnx does."""
    branch = helper.make_graph([node("Identity", ["W"], ["f"])], "b", [], [models.value("f", 16, 3)])
    nodes = [
        node("MatMul", ["f", "V"], ["g"]),
        node("If", ["yes"], ["V"], then_branch=branch, else_branch=branch),
        node("Clip", ["g", "", "top"], ["logits"]),
        FLAT,
    ]
    weights = [*W, ("yes", np.array(True)), ("top", np.float32(9))]
    path = write(tmp_path / "m.onnx", nodes, weights)
    HashedModel(path).onnx_source("onnxruntime")
    for place in ("initializer", "constant", "subgraph", "function"):
        (tmp_path / place).mkdir()
        HashedModel(models.external(tmp_path / place / "m.onnx", place=place)).onnx_source()
    model = onnx.load(path)
    model.graph.input.append(models.value("W", 16, 3))
    model.opset_import.append(model.opset_import[0])
    path.write_bytes(model.SerializeToString())
    HashedModel(path).onnx_source()


def endless(path):
    body = helper.make_graph(
        [node("Identity", ["going"], ["on"]), node("Add", ["v", "v"], ["w"])],
        "body",
        [
            models.value("i", kind=TensorProto.INT64),
            models.value("going", kind=TensorProto.BOOL),
            models.value("v", "n", 3),
        ],
        [models.value("on", kind=TensorProto.BOOL), models.value("w", "n", 3)],
    )
    nodes = [FLAT, node("MatMul", ["f", "W"], ["g"]), node("Loop", ["", "yes", "g"], ["logits"], body=body)]
    return write(path, nodes, [*W, ("yes", np.array(True))])


def grows(path):
    """A model of a few bytes that fills memory with a tensor of 16 GB."""
    nodes = [FLAT, node("MatMul", ["f", "W"], ["g"]), node("Expand", ["g", "sides"], ["e"])]
    nodes += [node("Exp", ["e"], ["h"]), node("ReduceMax", ["h"], ["logits"], axes=[0], keepdims=0)]
    return write(path, nodes, [*W, ("sides", np.array([2000, 2_000_000 // 3, 3]))])


def test_a_model_that_never_returns_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(Limits, "of_size", classmethod(lambda cls, size: cls(seconds=6, memory=2**31)))
    start = time.monotonic()
    with pytest.raises(ModelError, match="loading and running it once took more than 6 s, in a trial"):
        OnnxRuntime(endless(tmp_path / "m.onnx"))
    assert time.monotonic() - start < 30


@pytest.mark.skipif(sys.platform != "linux", reason="only /proc tells the memory of another process")
@pytest.mark.parametrize("runner", [OnnxRuntime, OpenVino])
def test_a_model_that_takes_all_memory_is_stopped(tmp_path, runner):
    with pytest.raises(ModelError, match=r"took more than 1\.1 GB of memory|cannot load it"):
        runner(grows(tmp_path / "m.onnx"))


def test_a_crash_is_a_sentence(tmp_path, monkeypatch):
    child = tmp_path / "child.py"
    monkeypatch.setattr(ars.trial, "_CHILD", child)
    for code, message in (
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
            r"onnxruntime crashed on it \(SIGSEGV\), in a trial",
        ),
        ("raise SystemExit(3)", r"onnxruntime ended its process \(status 3\), in a trial of its own"),
        ("import time; print('{', flush=True)", r"onnxruntime ended its process \(status 0\)"),
    ):
        child.write_text(code)
        with pytest.raises(ModelError, match=f"m.onnx: {message}"):
            OnnxRuntime(models.linear(tmp_path / "m.onnx"))


def test_a_model_that_passed_is_remembered_for_its_user_alone(tmp_path, cache, no_child):
    path = models.linear(tmp_path / "m.onnx")
    OnnxRuntime(path)
    (file,) = cache.iterdir()
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    no_child()
    OnnxRuntime(path)
    for change in (lambda: cache.chmod(0o777), file.unlink):
        change()
        with pytest.raises(pytest.fail.Exception, match="a trial was started"):
            OnnxRuntime(path)
        cache.chmod(0o700)


def test_other_libraries_and_other_bytes_have_a_trial_of_their_own(tmp_path, cache):
    path = models.linear(tmp_path / "m.onnx")
    for number, load in enumerate((OnnxRuntime, OpenVino, lambda path: HashedModel(path).onnx_source()), start=1):
        load(path)
        assert len(list(cache.iterdir())) == number
    OnnxRuntime(models.linear(path, seed=1))
    assert len(list(cache.iterdir())) == 4


def test_models_of_this_process_and_failures_are_not_remembered(tmp_path, cache, no_child):
    with pytest.raises(ModelError):
        OnnxRuntime(write(tmp_path / "bad.onnx", [MATMUL], W))
    assert not list(cache.iterdir())
    no_child()
    with own_models():
        OnnxGenerator(models.generator(tmp_path / "m.onnx"))
    assert not list(cache.iterdir())


def test_without_a_cache_folder_a_model_is_tried_each_time(tmp_path, monkeypatch, no_child):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    path = models.linear(tmp_path / "m.onnx")
    OnnxRuntime(path)
    no_child()
    with pytest.raises(pytest.fail.Exception, match="a trial was started"):
        OnnxRuntime(path)


def test_the_command_says_one_sentence_and_exits_with_2(tmp_path, cache):
    (tmp_path / "m.onnx").write_bytes(changed(STRUCTURES["its graph has a cycle"]))
    engine = os.path.join(os.path.dirname(sys.executable), "ars-engine")
    ended = subprocess.run([engine, "inspect", tmp_path / "m.onnx"], capture_output=True, text=True)
    assert ended.returncode == 2
    assert (
        ended.stderr
        == f"Error: {tmp_path}/m.onnx: its graph has a cycle; check it with onnx.checker, or export it again\n"
    )


def test_a_process_that_the_trial_leaves_behind_is_ended_with_it(tmp_path, monkeypatch):
    """Libraries start processes, which may hang and keep the pipe for the answer open."""
    child = tmp_path / "child.py"
    child.write_text(
        "import os, time\nif os.fork() == 0:\n    time.sleep(300)\nos.write(1, b'{\"problem\": null}')\nos._exit(0)\n"
    )
    monkeypatch.setattr(ars.trial, "_CHILD", child)
    started = time.monotonic()
    assert ars.trial._run_child(b"", None, Limits(20, 2**30)) is None
    assert time.monotonic() - started < 60
