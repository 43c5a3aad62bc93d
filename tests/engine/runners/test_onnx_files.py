"""ONNX files on each backend that reads them: the logits, and the models that are refused."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support import models

from ars.engine.runners.onnxruntime import OnnxGenerator, OnnxRuntime
from ars.engine.runners.openvino import OpenVino, OpenVinoGenerator
from ars.errors import ModelError, RunError

every_runner = pytest.mark.parametrize("runner_of", [OnnxRuntime, OpenVino])
every_generator = pytest.mark.parametrize("generator_of", [OnnxGenerator, OpenVinoGenerator])
X = np.random.default_rng(0).normal(0, 1, (10, 1, 4, 4)).astype(np.float32)


def exact(path):
    weights = onnx.numpy_helper.to_array(onnx.load(path).graph.initializer[0]).astype(np.float64)
    return X.reshape(10, 16).astype(np.float64) @ weights


@every_runner
def test_logits_are_the_models(tmp_path, runner_of):
    runner = runner_of(models.linear(tmp_path / "m.onnx"))
    assert (runner.shape, runner.classes, runner.fixed_batch) == ((1, 4, 4), 3, None)
    np.testing.assert_allclose(runner.run(X), exact(tmp_path / "m.onnx"), atol=1e-5)
    assert runner.run(X).dtype == np.float32


@every_runner
@pytest.mark.parametrize("batch", [1, 3, 10, 64])
def test_a_model_with_a_fixed_batch_gives_the_same_logits(tmp_path, batch, runner_of):
    free, fixed = models.linear(tmp_path / "free.onnx"), models.linear(tmp_path / "fixed.onnx", batch=batch)
    runner = runner_of(fixed)
    assert runner.fixed_batch == batch
    np.testing.assert_allclose(runner.run(X), runner_of(free).run(X), atol=1e-6)


@every_runner
def test_a_half_precision_model_takes_float32_batches(tmp_path, runner_of):
    runner = runner_of(models.linear(tmp_path / "m.onnx", kind=TensorProto.FLOAT16))
    logits = runner.run(X)
    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits, exact(tmp_path / "m.onnx"), atol=0.05)


@every_runner
def test_a_model_that_does_not_say_its_classes_is_asked(tmp_path, runner_of):
    path = models.linear(tmp_path / "m.onnx")
    model = onnx.load(path)
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_param = "classes"
    onnx.save(model, path)
    assert runner_of(path).classes == 3


def truncated(path):
    models.linear(path)
    path.write_bytes(path.read_bytes()[:-30])
    return path


def integer_input(path):
    nodes = [helper.make_node("Cast", ["x"], ["logits"], to=TensorProto.FLOAT)]
    return models.save(
        path, nodes, [models.value("x", "n", 4, kind=TensorProto.INT64)], [models.value("logits", "n", 4)]
    )


def images_out(path):
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    return models.save(path, nodes, [models.value("x", "n", 1, 4, 4)], [models.value("y", "n", 1, 4, 4)])


def no_batch(path):
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    return models.save(path, nodes, [models.value("x", 4)], [models.value("y", 4)])


@every_runner
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: p, "there is no such file"),
        (lambda p: p.write_bytes(b"this is not ONNX") and p, "it is not an ONNX model"),
        (truncated, "it is not an ONNX model"),
        (models.two_inputs, r"it has 2 inputs \(x, y\)"),
        (integer_input, "its input is of int64"),
        (images_out, r"has the shape \(1, 1, 4, 4\) for a batch of 1; run `ars-export"),
        (lambda p: models.linear(p, classes=1), "it has 1 class; run `ars-export"),
        (no_batch, "export it with a batch axis first"),
    ],
)
def test_a_file_that_is_no_classifier_is_refused_with_its_name(tmp_path, make, message, runner_of):
    path = make(tmp_path / "m.onnx")
    with pytest.raises(ModelError, match=message) as refused:
        runner_of(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


@every_runner
def test_a_model_that_gives_other_classes_than_it_says_is_refused(tmp_path, runner_of):
    nodes = [helper.make_node("Flatten", ["x"], ["logits"])]
    inputs, outputs = [models.value("x", "n", 1, "height", "width")], [models.value("logits", "n", 7)]
    path = models.save(tmp_path / "m.onnx", nodes, inputs, outputs)
    of_7 = r"has the shape \(10, 16\) for 10 inputs; it must be logits of batch x 7"
    unknown = "neither its input nor its number of classes has a fixed size"  # openvino does not take its word
    with pytest.raises(ModelError, match=of_7 if runner_of is OnnxRuntime else unknown):
        runner_of(path).run(X)


@every_runner
def test_data_of_another_shape_is_refused(tmp_path, runner_of):
    runner = runner_of(models.linear(tmp_path / "m.onnx"))
    runner.check_shape((1, 4, 4))
    for shape in ((1, 4, 5), (4, 4), (3, 4, 4)):
        with pytest.raises(ModelError, match="it takes inputs of 1 x 4 x 4, and the data has"):
            runner.check_shape(shape)


@every_runner
def test_a_model_that_fails_while_running_is_one_sentence(tmp_path, runner_of):
    runner = runner_of(models.linear(tmp_path / "m.onnx"))
    with pytest.raises(RunError, match="failed on a batch of 2") as failed:
        runner.run(np.zeros((2, 1, 5, 5), np.float32))
    assert "\n" not in str(failed.value)


@every_generator
def test_a_generator_gives_the_maps_of_an_input(tmp_path, generator_of):
    mean, scale = generator_of(models.generator(tmp_path / "g.onnx"))(X[0])
    np.testing.assert_allclose(mean, X[0] / 10, rtol=1e-6)
    np.testing.assert_allclose(scale, 0.25 + abs(X[0]), rtol=1e-6)


@every_generator
def test_a_generator_without_maps_or_for_other_inputs_is_refused(tmp_path, generator_of):
    with pytest.raises(ModelError, match="it has the outputs logits; a noise generator has"):
        generator_of(models.linear(tmp_path / "m.onnx"))
    with pytest.raises(ModelError, match=r"it gives no maps for an input of shape \(1, 5, 5\)"):
        generator_of(models.generator(tmp_path / "g.onnx"))(np.zeros((1, 5, 5), np.float32))
    nodes = [helper.make_node("Identity", ["one"], ["mean"]), helper.make_node("Identity", ["one"], ["scale"])]
    outputs = [models.value("mean", 1, 4, 4), models.value("scale", 1, 4, 4)]
    weights = [("one", np.ones((1, 4, 4), np.float32))]
    without_batch = models.save(tmp_path / "w.onnx", nodes, [models.value("x", "n", 1, 4, 4)], outputs, weights)
    with pytest.raises(ModelError, match="mean and scale must have the shape of x, batch axis included"):
        generator_of(without_batch)(X[0])
