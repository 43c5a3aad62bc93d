"""The manifest of a model: it comes back as it was written, and a changed file is refused."""

import json

import pytest

from ars.data.pixels import file_sha256
from ars.errors import ModelError, UnknownName
from ars.manifest import EngineBuild, Manifest, ModelFile, NoiseSettings, Parity, Profile, manifest_beside
from ars.noise import NoiseKind

NAMES = {"model.onnx": "classifier", "model.int8.onnx": "classifier", "model.noise.onnx": "noise"}
NAMES |= {"model.trt": "engine", "model.pt": "trained"}


@pytest.fixture
def model(tmp_path):
    """The path of a classifier, whose manifest lists a file of each role."""
    build = EngineBuild("tensorrt_rtx", "1.7", ("8.0+",), Profile(1, 256, 1024), "model.int8.onnx", "ab")
    parity = Parity("torch", "onnxruntime 1.31", 64, 4096, 1e-6, 1.0, None)
    files = []
    for name, role in NAMES.items():
        (tmp_path / name).write_bytes(name.encode())
        precision = "int8" if role == "engine" or "int8" in name else "fp32"
        measured, built = (parity if role == "classifier" else None), (build if role == "engine" else None)
        files.append(ModelFile(role, name, file_sha256(tmp_path / name), precision, measured, built))
    manifest = Manifest(
        shape=(1, 28, 28),
        classes=("a", "b"),
        noise=NoiseSettings("gaussian", NoiseKind.INPUT, 0.5),
        files=tuple(files),
        training={"plan": {"epochs": 6, "weights": [1, 1, 0.01]}},
    )
    manifest.write(tmp_path / "model.json")
    return tmp_path / "model.onnx", manifest


@pytest.mark.parametrize("name", NAMES)
def test_it_comes_back_as_it_was_written_beside_any_of_its_files(model, name):
    path, manifest = model
    assert manifest_beside(path.with_name(name)) == manifest
    assert manifest.entry(name).role == NAMES[name]
    assert manifest.file(NAMES[name], path.parent) is not None


def test_a_file_of_a_role_that_it_does_not_list_is_none(model):
    path, manifest = model
    assert Manifest(manifest.shape, manifest.classes, manifest.noise, ()).file("engine", path.parent) is None
    assert manifest.entry("model.fp16.onnx") is None


def test_a_name_with_dots_has_a_manifest_of_its_own(model):
    path, manifest = model
    path.with_name("model.v2.onnx").write_bytes(b"another")
    file = ModelFile("classifier", "model.v2.onnx", file_sha256(path.with_name("model.v2.onnx")))
    other = Manifest((4,), ("a", "b"), manifest.noise, (file,))
    other.write(path.with_name("model.v2.json"))
    assert manifest_beside(path.with_name("model.v2.onnx")) == other
    assert manifest_beside(path) == manifest


def test_a_model_without_one_has_none(tmp_path):
    assert manifest_beside(tmp_path / "other.onnx") is None


@pytest.mark.parametrize("name", NAMES)
def test_a_changed_byte_in_any_file_is_refused(model, name):
    file = model[0].with_name(name)
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    with pytest.raises(ModelError, match=f"{name}: it is not the file that the manifest was written for"):
        manifest_beside(file)


def test_a_changed_or_lost_generator_is_refused_with_the_classifier(model):
    path, manifest = model
    path.with_name("model.noise.onnx").write_bytes(b"!")
    with pytest.raises(ModelError, match=r"model.noise.onnx: it is not the file that the manifest was written for"):
        manifest.file("noise", path.parent)
    path.with_name("model.noise.onnx").unlink()
    with pytest.raises(ModelError, match="it does not exist"):
        manifest.file("noise", path.parent)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 99}, "its format is 99, but this version reads 1"),
        ({"noise": {"family": "gausian", "kind": "input", "sigma0": 1}}, "unknown noise family 'gausian'"),
        ({"noise": {"family": "gaussian", "kind": "odd", "sigma0": 1}}, "unknown noise kind 'odd'"),
        ({"files": []}, "it does not list model.onnx"),
        ({"shape": None}, "it is not a manifest"),
        ({"range": [0]}, "it is not a manifest"),
        ({"files": [{"role": "odd", "path": "model.onnx", "sha256": ""}]}, "role 'odd' of model.onnx"),
        ({"files": [{"role": "noise", "path": "../x.onnx", "sha256": ""}]}, "which is not in the manifest's folder"),
        ({"files": [{"role": "noise", "path": "x", "sha256": "", "precision": "int4"}]}, "precision 'int4' of x"),
        ({"files": [{"role": "noise", "path": "x", "sha256": "", "build": {"flavour": "x"}}]}, "it is not a manifest"),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(model, change, message):
    path, _ = model
    file = path.with_name("model.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises((ModelError, UnknownName), match=message):
        manifest_beside(path)


def test_a_file_that_is_not_json_is_refused(model):
    path, _ = model
    path.with_name("model.json").write_text("{")
    with pytest.raises(ModelError, match=r"model.json: it is not a manifest"):
        manifest_beside(path)
