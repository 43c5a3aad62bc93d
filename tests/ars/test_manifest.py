"""The manifest of a model: it comes back as it was written, and a changed file is refused."""

import json

import pytest

from ars.data.pixels import file_sha256
from ars.errors import ModelError, UnknownName
from ars.manifest import Manifest, ModelFile, NoiseSettings, manifest_beside
from ars.noise import NoiseKind


@pytest.fixture
def model(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"classifier")
    (tmp_path / "model.noise.onnx").write_bytes(b"generator")
    files = [("classifier", "model.onnx"), ("noise", "model.noise.onnx")]
    manifest = Manifest(
        shape=(1, 28, 28),
        classes=("a", "b"),
        noise=NoiseSettings("gaussian", NoiseKind.INPUT, 0.5),
        files=tuple(ModelFile(role, path, file_sha256(tmp_path / path)) for role, path in files),
    )
    manifest.write(tmp_path / "model.json")
    return tmp_path / "model.onnx", manifest


def test_it_comes_back_as_it_was_written(model):
    path, manifest = model
    assert manifest_beside(path) == manifest
    assert manifest.file("noise", path.parent) == path.parent / "model.noise.onnx"
    assert manifest.file("engine", path.parent) is None


def test_a_model_without_one_has_none(tmp_path):
    assert manifest_beside(tmp_path / "other.onnx") is None


def test_a_changed_byte_in_any_file_is_refused(model):
    path, manifest = model
    for name in ("model.onnx", "model.noise.onnx"):
        file = path.parent / name
        before = file.read_bytes()
        file.write_bytes(before[:-1] + b"!")
        check = manifest_beside if name == "model.onnx" else lambda path: manifest.file("noise", path.parent)
        with pytest.raises(ModelError, match=f"{name}: it is not the file that the manifest was written for"):
            check(path)
        file.write_bytes(before)
    (path.parent / "model.noise.onnx").unlink()
    with pytest.raises(ModelError, match="it is not there"):
        manifest.file("noise", path.parent)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 99}, "its format is 99, and this version reads 1"),
        ({"noise": {"family": "gausian", "kind": "input", "sigma0": 1}}, "unknown noise family 'gausian'"),
        ({"noise": {"family": "gaussian", "kind": "odd", "sigma0": 1}}, "unknown noise kind 'odd'"),
        ({"files": []}, "it does not list model.onnx"),
        ({"shape": None}, "it is not a manifest"),
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
