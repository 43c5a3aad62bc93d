"""A generator that is said to make the same maps for all inputs, and does so for all that a data set can hold, but not
for others. The scope of its certificates would be `global`, and wrong."""

import dataclasses

import numpy as np
import pytest
from onnx import TensorProto, helper
from support import models

import ars
from ars.data.pixels import file_sha256
from ars.errors import ModelError
from ars.manifest import Manifest, ModelFile, NoiseSettings
from ars.noise import NoiseKind, Scope

SHAPE = (1, 4, 4)


@pytest.fixture
def folder(tmp_path):
    """A generator whose mean is 0 on 8-bit images and 9 elsewhere, so that the classifier answers another class."""
    tiny = np.float32(1e-3)
    nodes = [
        helper.make_node("Mul", ["x", "levels"], ["scaled"]),
        helper.make_node("Round", ["scaled"], ["nearest"]),
        helper.make_node("Sub", ["scaled", "nearest"], ["rest"]),
        helper.make_node("Abs", ["rest"], ["apart"]),
        helper.make_node("Greater", ["apart", "tiny"], ["elsewhere"]),
        helper.make_node("Cast", ["elsewhere"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["mask", "nine"], ["mean"]),
        helper.make_node("Mul", ["x", "zero"], ["none"]),
        helper.make_node("Add", ["none", "half"], ["scale"]),
    ]
    numbers = {"levels": 255, "tiny": tiny, "nine": 9, "zero": 0, "half": 0.5}
    outputs = [models.value("mean", "n", *SHAPE), models.value("scale", "n", *SHAPE)]
    weights = [(name, np.float32(number)) for name, number in numbers.items()]
    models.save(tmp_path / "model.noise.onnx", nodes, [models.value("x", "n", *SHAPE)], outputs, weights)
    direction = np.stack([-np.ones(16), np.ones(16)], 1).astype(np.float32)
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("MatMul", ["flat", "W"], ["product"]),
        helper.make_node("Add", ["product", "b"], ["logits"]),
    ]
    weights = [("W", direction), ("b", np.float32([40, -40]))]  # class 1 if the sum is above 40
    models.save(
        tmp_path / "model.onnx", nodes, [models.value("x", "n", *SHAPE)], [models.value("logits", "n", 2)], weights
    )
    names = [("classifier", "model.onnx"), ("noise", "model.noise.onnx")]
    files = tuple(ModelFile(role, name, file_sha256(tmp_path / name)) for role, name in names)
    noise = NoiseSettings("gaussian", NoiseKind.DATASET, 0.5)
    Manifest(SHAPE, ("a", "b"), noise, files).write(tmp_path / "model.json")
    return tmp_path


def inputs():
    """An 8-bit image, and one that is 0.004 away and is none."""
    x = np.full(SHAPE, 100 / 255, np.float32)
    return x, x + np.float32(0.001)


def test_the_generator_does_differ_between_them(folder):
    """The negative control: as noise for each input, the generator gives the two inputs other classes."""
    with ars.load(folder / "model.onnx", noise=folder / "model.noise.onnx", batch=50) as classifier:
        made = [classifier.certify(x, n=500, n0=10) for x in inputs()]
    assert [one.predicted for one in made] == [0, 1]
    assert {one.scope for one in made} == {Scope.FROZEN}


def test_the_maps_of_a_data_set_are_asked_for_once(folder):
    with ars.load(folder / "model.onnx", batch=50) as classifier:
        made = [classifier.certify(x, n=500, n0=10) for x in inputs()]
    assert [one.predicted for one in made] == [0, 0]
    assert {one.scope for one in made} == {Scope.GLOBAL}
    assert min(one.radius for one in made) > 0.1


def test_the_record_has_the_hash_of_the_maps(folder):
    with ars.load(folder / "model.onnx", batch=50) as classifier:
        assert classifier.noise.source.constant_maps is not None
        assert len(classifier.noise.source.constant_maps) == 64


def test_inputs_of_another_shape_than_the_maps_are_refused(folder):
    with (
        ars.load(folder / "model.onnx", batch=50) as classifier,
        pytest.raises(ModelError, match="have the shape"),
    ):
        classifier.noise.at(0, np.zeros((1, 5, 5), np.float32))


@pytest.mark.parametrize("kind", [NoiseKind.DATASET, NoiseKind.ISOTROPIC])
def test_the_kind_of_the_noise_is_what_the_manifest_says(folder, kind):
    manifest = Manifest.read(folder / "model.json")
    noise = dataclasses.replace(manifest.noise, kind=kind)
    dataclasses.replace(manifest, noise=noise).write(folder / "model.json")
    with ars.load(folder / "model.onnx", batch=50) as classifier:
        assert classifier.noise.kind is kind
