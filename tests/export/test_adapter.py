"""ONNX files as they come: adapted to what the engine takes, or refused with the right advice. The adapted file is
compared with the original, run by onnxruntime."""

import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from PIL import Image
from support import models
from support.engine_runs import certify
from support.engine_runs import refused as engine_refused
from support.export_runs import refused, run

from ars.data import ImageSize
from ars.engine.backends import load_runner
from ars.engine.records.results import read_results
from ars.export.examples import read_examples
from ars.export.source import OwnModel
from ars.manifest import manifest_beside

MINE, ADAPTED = Path("mine.onnx"), Path("mine-ars.onnx")
OWN = ["--sigma", "0.25", "--calibration", "data.npz", "--tensorrt", "off"]
RNG = np.random.default_rng(0)
X = RNG.random((40, 3, 6, 5), dtype=np.float32)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("data.npz", x=X, y=np.arange(40) % 3)
    return tmp_path


def exported(*arguments):
    """The adapted file of an export that must succeed, and what was said about it."""
    result = run("mine.onnx", *OWN, *arguments)
    assert result.exit_code == 0, result.output
    (said,) = [line for line in result.stderr.splitlines() if ", adapted: " in line]
    return load_runner(ADAPTED), said.partition(", adapted: ")[2]


def original(x, output=None):
    session = onnxruntime.InferenceSession("mine.onnx", providers=["CPUExecutionProvider"])
    return session.run(None if output is None else [output], {session.get_inputs()[0].name: x})[0]


def graph(nodes, inputs, outputs, weights=()):
    return models.save(MINE, nodes, inputs, outputs, weights)


def dense(width, classes=3):
    return ("W", RNG.normal(0, 1, (width, classes)).astype(np.float32))


FLAT = helper.make_node("Flatten", ["x"], ["flat"])
DENSE = helper.make_node("MatMul", ["flat", "W"], ["z"])


def test_normalisation_is_folded_into_the_file():
    models.linear(MINE, X[0].shape)
    given = ["--pixel-mean", "0.5,0.4,0.3", "--pixel-deviation", "0.2,0.25,0.5", "--classes", "a,b,c"]
    runner, said = exported(*given)
    mean, deviation = (np.array(v, np.float32).reshape(3, 1, 1) for v in ((0.5, 0.4, 0.3), (0.2, 0.25, 0.5)))
    np.testing.assert_allclose(runner.run(X), original((X - mean) / deviation), atol=1e-5)
    assert said == "normalisation is inside"
    manifest = manifest_beside(ADAPTED)
    assert (manifest.classes, manifest.shape) == (("a", "b", "c"), X[0].shape)
    assert manifest.entry("mine-ars.onnx").parity.reference == "mine.onnx"
    assert refused("mine.onnx", *OWN, "--pixel-mean", "0.5") == (
        "pixel-mean = 0.5 is not valid; give one number for each of the 3 channels"
    )


def test_channels_last_and_bytes_as_tensorflow_has_them():
    nodes = [helper.make_node("Cast", ["x"], ["f"], to=TensorProto.FLOAT), helper.make_node("Flatten", ["f"], ["flat"])]
    weights = ("W", (RNG.normal(0, 1, (90, 3)) / 255).astype(np.float32))
    image = models.value("x", "n", 6, 5, 3, kind=TensorProto.UINT8)
    graph([*nodes, DENSE], [image], [models.value("z", "n", 3)], [weights])
    engine_refused(
        certify("--limit", "1", engine="mine.onnx"), "its input is of uint8; run `ars-export mine.onnx --sigma"
    )
    runner, said = exported()
    assert said == "pixels from 0 to 1 become bytes; channels come first"
    noisy = X + RNG.normal(0, 0.5, X.shape).astype(np.float32)
    as_bytes = np.clip(np.floor(noisy * np.float32(255) + np.float32(0.5)), 0, 255).astype(np.uint8)
    np.testing.assert_allclose(runner.run(noisy), original(as_bytes.transpose(0, 2, 3, 1)), atol=1e-5)
    assert "omit --pixel-mean" in refused("mine.onnx", *OWN, "--pixel-mean", "0,0,0")
    assert certify("--limit", "2", engine="mine-ars.onnx").exit_code == 0


def test_channels_last_is_not_a_matter_of_resizing():
    models.linear(MINE, (6, 5, 3))
    result = certify("--limit", "1", engine="mine.onnx")
    engine_refused(result, "it takes inputs of 6 x 5 x 3, and the data has 3 x 6 x 5; run `ars-export mine.onnx")
    assert "--resize" not in result.stderr


@pytest.mark.parametrize(("sigmoid", "flat"), [(False, False), (True, False), (True, True)])
def test_a_single_output_becomes_two_classes(sigmoid, flat):
    nodes, last = [FLAT, DENSE], "z"
    if flat:
        nodes.append(helper.make_node("Squeeze", ["z"], ["s"]))
        last = "s"
    if sigmoid:
        nodes.append(helper.make_node("Sigmoid", [last], ["p"]))
        last = "p"
    shape = ["n"] if flat else ["n", 1]
    np.savez("data.npz", x=X, y=np.arange(40) % 2)
    graph(nodes, [models.value("x", "n", 3, 6, 5)], [models.value(last, *shape)], [dense(90, 1)])
    if not flat:
        engine_refused(certify("--limit", "1", engine="mine.onnx"), "it has 1 class; run `ars-export mine.onnx")
    runner, said = exported()
    assert said == f"the single {'probability' if sigmoid else 'logit'} of class 1 became two classes"
    np.testing.assert_array_equal(runner.run(X).argmax(1), original(X).ravel() > (0.5 if sigmoid else 0))


def test_logits_that_are_not_first_are_found_or_named():
    nodes = [FLAT, DENSE, helper.make_node("ArgMax", ["z"], ["label"], axis=1, keepdims=0)]
    outputs = [models.value("label", "n", kind=TensorProto.INT64), models.value("z", "n", 3)]
    graph(nodes, [models.value("x", "n", 3, 6, 5)], outputs, [dense(90)])
    result = certify("--limit", "1", engine="mine.onnx")
    engine_refused(result, "its first output, label, is of int64, and the others are z; run `ars-export mine.onnx")
    runner, said = exported()
    assert said == "the output 'z' is the logits, and not 'label'"
    np.testing.assert_allclose(runner.run(X), original(X, "z"), atol=1e-5)
    assert "did you mean 'z'" in refused("mine.onnx", *OWN, "--logits", "zz")
    problem = refused("mine.onnx", *OWN, "--logits", "label")
    assert problem.startswith("mine.onnx: its output 'label' has the shape (2,) for a batch of 2; logits are floats")


def test_among_several_candidates_the_user_chooses():
    nodes = [
        FLAT,
        helper.make_node("Reshape", ["flat", "S"], ["maps"]),
        DENSE,
        helper.make_node("Softmax", ["z"], ["p"]),
    ]
    outputs = [models.value("maps", "n", 9, 10), models.value("z", "n", 3), models.value("p", "n", 3)]
    shape = ("S", np.array([-1, 9, 10]))
    graph(nodes, [models.value("x", "n", 3, 6, 5)], outputs, [dense(90), shape])
    assert refused("mine.onnx", *OWN) == (
        "mine.onnx: several of its outputs could be the logits (z, p); say which has the logits, like --logits z"
    )
    runner, _ = exported("--logits", "p")
    np.testing.assert_allclose(runner.run(X), original(X, "p"), atol=1e-5)


def test_a_symbolic_height_and_width_are_fixed_by_the_shape():
    nodes = [helper.make_node("GlobalAveragePool", ["x"], ["pooled"]), helper.make_node("Conv", ["pooled", "K"], ["z"])]
    kernel = ("K", RNG.normal(0, 1, (3, 3, 1, 1)).astype(np.float32))
    graph(nodes, [models.value("x", "n", 3, "h", "w")], [models.value("z", "n", 3, 1, 1)], [kernel])
    problem = "mine.onnx: its input shape is not fixed: 3, any, any; say which one, like --shape 3,224,224"
    assert refused("mine.onnx", *OWN) == problem
    assert "--shape is 1,6,5; give the shape that it takes" in refused("mine.onnx", *OWN, "--shape", "1,6,5")
    runner, said = exported("--shape", "3,6,5")
    assert said == "the input has the fixed shape 3 x 6 x 5; logits are batch x classes"
    assert (runner.shape, runner.classes) == ((3, 6, 5), 3)
    np.testing.assert_allclose(runner.run(X), original(X)[:, :, 0, 0], atol=1e-5)


@pytest.mark.parametrize("kind", ["logistic", "forest", "network"])
def test_models_of_scikit_learn_with_their_table_of_probabilities(kind):
    skl2onnx = pytest.importorskip("skl2onnx")
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier

    x, y = RNG.normal(0, 2, (200, 6)).astype(np.float32), RNG.integers(0, 3, 200)
    x[:, 0] += 3 * y
    made = {
        "logistic": LogisticRegression(),
        "forest": RandomForestClassifier(5, random_state=0),
        "network": MLPClassifier((8,), max_iter=30, random_state=0),
    }[kind]
    with warnings.catch_warnings(action="ignore"):  # so few iterations do not converge
        made.fit(x, np.array(["ant", "bee", "cow"])[y])
    model = skl2onnx.to_onnx(made, x[:1])
    onnx.save(model, "mine.onnx")
    np.savez("data.npz", features=x, species=y)
    runner, said = exported()
    assert "the table of probabilities became an array" in said
    np.testing.assert_allclose(runner.run(x), made.predict_proba(x), atol=1e-4)
    assert manifest_beside(ADAPTED).classes == ("ant", "bee", "cow")
    result = certify("--limit", "3", engine="mine-ars.onnx")
    assert result.exit_code == 0, result.output
    assert "Warning: data.npz has values from " in result.stderr
    assert {one.unit.split(",")[0] for one in read_results(Path("run.sqlite"))} == {"data values"}


def test_models_of_scikit_learn_with_an_array_of_scores():
    """skl2onnx names ONNX's operator set twice in these."""
    skl2onnx = pytest.importorskip("skl2onnx")
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    x, y = RNG.normal(0, 2, (200, 6)).astype(np.float32), RNG.integers(0, 3, 200)
    x[:, 0] += 3 * y
    np.savez("data.npz", features=x, species=y)
    for made, options in ((LogisticRegression(), {"zipmap": False}), (LinearSVC(), {})):
        model = skl2onnx.to_onnx(made.fit(x, y), x[:1], options=options)
        assert [opset.domain for opset in model.opset_import].count("") == 2
        onnx.save(model, "mine.onnx")
        runner, _ = exported("--overwrite")
        scores = made.predict_proba(x) if options else made.decision_function(x)
        np.testing.assert_allclose(runner.run(x), scores, atol=1e-4)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([models.value("x", "n", 4), models.value("y", "n", 4)], "it has 2 inputs (x, y); export a classifier with a"),
        ([models.value("x", 4)], "its input 'x' has no batch axis"),
    ],
)
def test_inputs_that_cannot_be_adapted_are_refused(inputs, message):
    last = helper.make_node("Add", [inputs[0].name, inputs[-1].name], ["z"])
    graph([last], inputs, [models.value("z", *([4] if len(inputs) == 1 else ["n", 4]))])
    assert message in refused("mine.onnx", *OWN)


def test_integers_that_are_not_pixels_are_refused():
    nodes = [helper.make_node("Cast", ["x"], ["flat"], to=TensorProto.FLOAT), DENSE]
    image = models.value("x", "n", 4, kind=TensorProto.INT64)
    graph(nodes, [image], [models.value("z", "n", 3)], [dense(4)])
    assert "its input 'x' is of int64; export it with an input of float32" in refused("mine.onnx", *OWN)


def test_an_onnx_file_is_exported_without_torch():
    models.linear(MINE, X[0].shape)
    hidden = "import importlib.abc, sys\nclass Hidden(importlib.abc.MetaPathFinder):\n"
    hidden += (
        "    def find_spec(self, name, *rest):\n        if name.split('.')[0] == 'torch': raise ImportError(name)\n"
    )
    code = f"{hidden}sys.meta_path.insert(0, Hidden())\nfrom ars.export.cli import main; main()"
    given = ["mine.onnx", *OWN, "--pixel-mean", "0.5,0.5,0.5"]
    done = subprocess.run([sys.executable, "-c", code, *given], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["mine-ars.onnx", "mine-ars.noise.onnx", "mine-ars.json"]


def test_folders_are_numbered_by_the_names_of_the_models_classes(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(16):
            Image.new("RGB", (4, 4)).save(tmp_path / "images" / name / f"{number}.png")
    said = []
    spec = str(tmp_path / "images")
    examples = read_examples(spec, (3, 4, 4), ("dog", "bird", "cat"), ImageSize(), said.append)
    assert (sorted(set(examples.labels.tolist())), examples.labels[0], said) == ([0, 2], 2, [])
    (tmp_path / "names.txt").write_text("dog\nbird\ncat\n")
    assert OwnModel(classes=(str(tmp_path / "names.txt"),)).names(MINE, 3) == ("dog", "bird", "cat")
    read_examples(spec, (3, 4, 4), ("a", "b", "c"), ImageSize(), said.append)
    assert said[0].startswith("images has 2 classes, and the model has 3: ")
