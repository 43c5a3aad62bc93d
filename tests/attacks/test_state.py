"""Models that keep a state: a node that draws random numbers is a clock, even with a seed.

Such a model can answer one thing while it is checked and another later, so what it says of a row is not a function of
the row. No test of its votes would find this; therefore these models are refused when they are opened.
"""

import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from support import models

from ars import random_nodes
from ars.engine.backends import load_generator
from ars.engine.runners.onnxruntime import OnnxGenerator, OnnxRuntime
from ars.engine.runners.openvino import OpenVino
from ars.errors import ModelError
from ars.external_data import HashedModel

RANDOM = {
    "RandomNormal": {"shape": [1, 4]},
    "RandomUniform": {"shape": [1, 4]},
    "RandomNormalLike": {},
    "RandomUniformLike": {},
    "Bernoulli": {},
    "Multinomial": {"sample_size": 4, "dtype": TensorProto.INT32},
}
SAYS = "so its votes are not a function of its input; export it for inference"


def drawing_nodes(op):
    """What turns x [n, 4] into y [n, 4] with random numbers."""
    inputs = [] if op in ("RandomNormal", "RandomUniform") else ["x"]
    made = helper.make_node(op, inputs, ["drawn"], name="clock", seed=1.0, **RANDOM[op])
    cast = helper.make_node("Cast", ["drawn"], ["float"], to=TensorProto.FLOAT)
    return [made, cast, helper.make_node("Add", ["x", "float"], ["y"])]


def save(path, nodes, weights=(), *, functions=(), outputs=("y",), checked=True):
    ports = [models.value(name, "n", 4) for name in outputs]
    initializers = [numpy_helper.from_array(array, name) for name, array in weights]
    graph = helper.make_graph(nodes, "test", [models.value("x", "n", 4)], ports, initializers)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=functions)
    if checked:
        onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def in_branch(nodes):
    """The nodes in a subgraph of a subgraph."""
    for name in ("inner", "outer"):
        then = helper.make_graph(nodes, name, [], [models.value("y", "n", 4)])
        other = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "else", [], [models.value("y", "n", 4)])
        nodes = [helper.make_node("If", ["always"], ["y"], then_branch=then, else_branch=other, name=name)]
    return nodes


def in_function(nodes):
    function = helper.make_function("own", "Layer", ["x"], ["y"], nodes, [helper.make_opsetid("", 17)])
    return [helper.make_node("Layer", ["x"], ["y"], domain="own")], [function]


def refused(path, says, runners=(OnnxRuntime, OpenVino, OnnxGenerator)):
    for runner in runners:
        with pytest.raises(ModelError) as error:
            runner(path)
        assert str(error.value).startswith(f"{path}: {says}"), error.value
        assert str(error.value).endswith(SAYS)


def test_a_random_node_with_a_seed_counts_the_calls(tmp_path):
    """The negative control: the same input has another answer at each call, and the same ones in each session."""
    path = save(tmp_path / "model.onnx", drawing_nodes("RandomUniform"))
    x, seen = np.zeros((1, 4), np.float32), []
    for _ in range(2):
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        seen.append([session.run(None, {"x": x})[0].tobytes() for _ in range(5)])
    assert seen[0] == seen[1]
    assert len(set(seen[0])) == 5


@pytest.mark.parametrize("op", RANDOM)
@pytest.mark.parametrize("place", ["graph", "branch", "function"])
def test_a_model_that_draws_random_numbers_is_refused(tmp_path, op, place):
    nodes, functions, weights = drawing_nodes(op), (), ()
    if place == "branch":
        nodes, weights = in_branch(nodes), [("always", np.array(True))]
    elif place == "function":
        nodes, functions = in_function(nodes)
    path = save(tmp_path / "model.onnx", nodes, weights, functions=functions)
    refused(path, f"its node 'clock' draws random numbers ({op}), ")
    with pytest.raises(ModelError, match=f"draws random numbers .{op}."):
        HashedModel(path).onnx_source()  # what ars-export builds TensorRT engines from


def test_a_noise_generator_that_draws_random_numbers_is_refused(tmp_path):
    nodes = [*drawing_nodes("RandomUniform"), helper.make_node("Identity", ["y"], ["mean"])]
    path = save(tmp_path / "noise.onnx", [*nodes, helper.make_node("Exp", ["y"], ["scale"])], outputs=("mean", "scale"))
    with pytest.raises(ModelError, match="its node 'clock' draws random numbers"):
        load_generator(path)


def dropout(mode):
    return helper.make_node("Dropout", ["x", "ratio", mode] if mode else ["x", "ratio"], ["y"], name="drop")


def constant(value):
    return helper.make_node("Constant", [], ["mode"], value=numpy_helper.from_array(np.array(value)))


RATIO = ("ratio", np.float32(0.5))


@pytest.mark.parametrize("place", ["initializer", "constant", "computed", "hidden"])
def test_dropout_that_is_or_may_be_in_training_mode_is_refused(tmp_path, place):
    nodes, weights = [dropout("mode")], [RATIO]
    if place == "initializer":
        weights.append(("mode", np.array(True)))
    elif place == "constant":
        nodes.insert(0, constant(True))
    elif place == "computed":
        nodes.insert(0, helper.make_node("Not", ["no"], ["mode"]))
        weights.append(("no", np.array(False)))
    else:  # the name of a False outside stands for another value in the subgraph
        nodes = in_branch([helper.make_node("Not", ["mode"], ["m"]), helper.make_node("Not", ["no"], ["mode"]), *nodes])
        weights += [("mode", np.array(False)), ("always", np.array(True)), ("no", np.array(False))]
    refused(save(tmp_path / "model.onnx", nodes, weights, checked=place != "hidden"), "its node 'drop' is or may be in")


def batch_normalization(**attributes):
    outputs = ["y", "a", "b"] if attributes else ["y"]
    node = helper.make_node("BatchNormalization", ["x", "s", "b0", "m", "v"], outputs, name="bn", **attributes)
    return [node], [(name, np.ones(4, np.float32)) for name in ("s", "b0", "m", "v")]


def test_batch_normalization_in_training_mode_is_refused(tmp_path):
    path = save(tmp_path / "model.onnx", *batch_normalization(training_mode=1))
    refused(path, "its node 'bn' is or may be in training mode (BatchNormalization), ")


HARMLESS = {
    "dropout without a mode": ([dropout("")], [RATIO]),
    "dropout with an initializer": ([dropout("mode")], [RATIO, ("mode", np.array(False))]),
    "dropout with a constant": ([constant(False), dropout("mode")], [RATIO]),
    "dropout in a branch": (
        in_branch([dropout("mode")]),
        [RATIO, ("mode", np.array(False)), ("always", np.array(True))],
    ),
    "batch normalization": batch_normalization(),
    "a node of that name": ([helper.make_node("Relu", ["x"], ["y"], name="RandomUniform")], ()),
    "a value of that name": (
        [helper.make_node("Relu", ["x"], ["Bernoulli"]), helper.make_node("Relu", ["Bernoulli"], ["y"])],
        (),
    ),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless_models_load(tmp_path, name):
    path = save(tmp_path / "model.onnx", *HARMLESS[name])
    # OpenVINO takes a name that is used in a graph and in its subgraph for an input.
    for runner in (OnnxRuntime,) if "branch" in name else (OnnxRuntime, OpenVino):
        assert runner(path).classes == 4


def test_many_subgraphs_see_the_names_outside_without_copies_of_them(tmp_path, monkeypatch):
    """Copies for each subgraph took minutes for a file of a few megabytes."""
    inner = helper.make_graph([helper.make_node("Identity", ["x"], ["z"])], "inner", [], [])
    nodes = [constant(True)] + [helper.make_node("If", ["mode"], [], then_branch=inner) for _ in range(2000)]
    weights = [(f"w{number}", np.array(True)) for number in range(2000)]
    path = save(tmp_path / "model.onnx", [*nodes, dropout("")], [RATIO, *weights], checked=False)
    seen = []
    monkeypatch.setattr(random_nodes, "_find_problem", lambda node, constants: seen.append(constants.maps[-2]))
    random_nodes.refuse_random_nodes(path, path.read_bytes())
    assert len(seen) == 4002
    assert len({id(names) for names in seen}) == 1


def test_an_ordinary_model_is_not_parsed(tmp_path, monkeypatch):
    path = models.linear(tmp_path / "model.onnx")
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert OnnxRuntime(path).classes == 3
