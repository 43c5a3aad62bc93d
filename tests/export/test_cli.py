"""`ars-export`: its files compute what torch does, certify without a further word, and come whole or not at all."""

import importlib.util
import shutil

import numpy as np
import onnx
import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from support import models
from support.export_runs import CLASSES, SHAPE, refused, run, write_model, write_onnx_model

from ars.data.pixels import file_sha256
from ars.engine.backends import load_runner
from ars.engine.cli import main as engine
from ars.engine.records.store import read_records
from ars.engine.runners.onnxruntime import OnnxGenerator
from ars.errors import ModelError
from ars.export import pipeline
from ars.manifest import Profile, manifest_beside
from ars.noise import NoiseKind


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module", params=NoiseKind)
def exported(request, tmp_path_factory):
    """A model of each kind of noise, exported to fp32: its folder, the kind, the model and what was said."""
    home = tmp_path_factory.mktemp(request.param)
    model = write_model(home / "model.pt", request.param)
    result = run(home / "model.pt", "-o", home / "out")
    assert result.exit_code == 0, result.output
    return home / "out", request.param, model, result


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """A ResNet exported to all that there is, beside it."""
    home = tmp_path_factory.mktemp("everything")
    write_model(home / "model.pt", arch="resnet20")
    given = ["--precision", "fp32,fp16,int8", "--min-agreement", "0.9", "--tensorrt", "on", "--max-batch", "512"]
    result = run(home / "model.pt", *given, "--compute-capability", "8.6,12.0")
    assert result.exit_code == 0, result.output
    return home, result


def test_an_engine_can_be_for_batches_of_one_size_only(tmp_path):
    write_model(tmp_path / "model.pt")
    result = run(tmp_path / "model.pt", "--tensorrt", "on", "--static-batch", "48")
    assert result.exit_code == 0, result.output
    assert "and batches of 48 only" in result.stderr
    assert manifest_beside(tmp_path / "model.trt").entry("model.trt").build.profile == Profile(48, 48, 48)


def test_the_files_of_each_kind_compute_what_torch_does(exported):
    out, kind, model, result = exported
    assert result.stdout.splitlines() == [str(out / name) for name in ("model.onnx", "model.noise.onnx", "model.json")]
    assert sorted(path.name for path in out.iterdir()) == ["model.json", "model.noise.onnx", "model.onnx"]
    x = torch.rand(5, *SHAPE)
    with torch.no_grad():
        logits, (mean, scale) = model.classifier(x), model.noise(x)
    np.testing.assert_allclose(load_runner(out / "model.onnx").run(x.numpy()), logits, atol=1e-5)
    generator = OnnxGenerator(out / "model.noise.onnx")
    for row in range(5):
        maps = generator(x[row].numpy())
        np.testing.assert_allclose(maps[0], mean[row], atol=1e-5)
        np.testing.assert_allclose(maps[1], scale[row], atol=1e-5)
    manifest = manifest_beside(out / "model.onnx")
    assert (manifest.shape, manifest.classes) == (SHAPE, CLASSES)
    assert (manifest.noise.kind, manifest.noise.family) == (kind, "laplace")
    assert manifest.training == {"plan": {"epochs": 2}}


def test_what_was_exported_certifies_without_a_further_word(exported):
    out, kind, _, _ = exported
    np.savez("data.npz", x=np.random.default_rng(0).random((4, *SHAPE), dtype=np.float32), y=np.zeros(4, int))
    given = ["--engine", out / "model.onnx", "--data", "data.npz", "--n", "200", "--batch", "50", "--out", "r.sqlite"]
    result = CliRunner().invoke(engine, ["certify", *map(str, given)])
    assert result.exit_code == 0, result.output
    scopes = {record.certificate.scope for record in read_records(out.cwd() / "r.sqlite")}
    assert scopes == {"frozen" if kind is NoiseKind.INPUT else "global"}


def test_the_names_and_shapes_are_the_same_everywhere(exported):
    out, *_ = exported
    ports = {}
    for name in ("model.onnx", "model.noise.onnx"):
        model = onnx.load(out / name)
        assert model.opset_import[0].version == 18
        for value in (*model.graph.input, *model.graph.output):
            sides = value.type.tensor_type.shape.dim
            ports[value.name] = [side.dim_param or side.dim_value for side in sides]
    image = ["n", *SHAPE]
    assert ports == {"x": image, "logits": ["n", 3], "mean": image, "scale": image}


def test_a_file_holds_no_path_of_the_machine_that_made_it(everything):
    home, _ = everything
    for path in home.glob("*.onnx"):
        assert not any(node.metadata_props for node in onnx.load(path).graph.node)
        for word in (str(home).encode(), b"site-packages", b".export-"):
            assert word not in path.read_bytes()


def test_each_precision_is_listed_with_its_parity_and_the_engine_with_its_build(everything):
    home, result = everything
    names = ["model.onnx", "model.noise.onnx", "model.fp16.onnx", "model.int8.onnx", "model.trt", "model.json"]
    assert result.stdout.splitlines() == [str(home / name) for name in names]
    manifest = manifest_beside(home / "model.trt")
    assert {file.path: (file.role, file.precision) for file in manifest.files} == {
        "model.onnx": ("classifier", "fp32"),
        "model.noise.onnx": ("noise", "fp32"),
        "model.pt": ("trained", "fp32"),
        "model.fp16.onnx": ("classifier", "fp16"),
        "model.int8.onnx": ("classifier", "int8"),
        "model.trt": ("engine", "int8"),
    }
    for file in manifest.files:
        assert (file.parity is not None) == (file.role == "classifier")
        if file.parity:
            assert (file.parity.reference, file.parity.inputs, file.parity.draws) == ("torch", 16, 16 * 64)
    assert manifest.entry("model.onnx").parity.largest_difference < 1e-5
    build = manifest.entry("model.trt").build
    assert (build.flavour, build.compute_capabilities, build.profile.max_batch) == (
        "tensorrt_rtx",
        ("8.6", "12.0"),
        512,
    )
    assert (build.source, build.source_sha256) == ("model.int8.onnx", file_sha256(home / "model.int8.onnx"))
    assert "by tensorrt_rtx" in result.stderr


def test_parity_is_measured_with_the_backend_that_auto_takes(everything):
    home, _ = everything
    manifest = manifest_beside(home / "model.onnx")
    for name in ("model.onnx", "model.fp16.onnx", "model.int8.onnx"):
        runner = load_runner(home / name)
        assert manifest.entry(name).parity.runner == f"{runner.name} {runner.version}"


def test_the_manifest_round_trips_and_a_changed_byte_in_any_file_is_caught(everything):
    home, _ = everything
    manifest = manifest_beside(home / "model.onnx")
    for file in manifest.files:
        path = home / file.path
        assert manifest_beside(path) == manifest
        content = path.read_bytes()
        try:
            path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
            with pytest.raises(ModelError, match=f"{file.path}: it is not the file that the manifest was written for"):
                manifest_beside(path)
        finally:
            path.write_bytes(content)


def test_another_model_of_the_same_name_leaves_no_mix(folder):
    given = write_onnx_model(folder)
    assert run(*given, "--precision", "fp16").exit_code == 0
    assert run(*given, "--quiet").stderr == ""
    assert manifest_beside(folder / "mine.fp16.onnx")  # of the same model: it stays
    models.resnet(folder / "mine.onnx", shape=SHAPE, classes=3, seed=1)
    assert refused(*given).startswith("mine.onnx: it is not the file that the manifest was written for")
    result = run(*given, "--sigma", "0.5", "--precision", "int8", "--min-agreement", "0.5")
    assert (
        "mine.fp16.onnx: removed, because it belonged to another model of this name, or to other noise" in result.stderr
    )
    assert {path.name for path in folder.glob("mine*")} == {
        "mine.int8.onnx",
        "mine.json",
        "mine.noise.onnx",
        "mine.onnx",
    }


def test_too_little_agreement_is_refused_with_advice_and_nothing_is_written(folder):
    given = write_onnx_model(folder)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    result = run(*given, "--precision", "int8", "--min-agreement", "1")
    assert (result.exit_code, result.stdout) == (1, "")
    message = result.stderr.splitlines()[-1]
    assert message.startswith("Error: mine.int8.onnx: it agrees with mine.onnx on 9")
    assert message.endswith(
        "of 1280 noisy draws, below --min-agreement 1.0, so nothing was written; "
        "try fp16, or more of the model's own data with --calibration"
    )
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("wrong", ["model.onnx", "model.noise.onnx"])
def test_a_file_that_computes_something_else_is_refused(folder, monkeypatch, wrong):
    write_model(folder / "model.pt")

    def write_another(module, shape, path, outputs, source):
        if outputs == ["logits"]:
            models.linear(path, shape)
        else:
            models.isotropic(path, shape, 0.6 if wrong == path.name else 0.5)

    monkeypatch.setattr("ars.export.onnx_files.write_onnx", write_another)
    result = run("model.pt")
    assert result.exit_code == 1
    assert f"Error: {wrong}: its output differs from that of torch by" in result.stderr
    assert [path.name for path in folder.iterdir()] == ["model.pt"]


def test_an_interrupt_leaves_no_half_written_file(folder, monkeypatch):
    given = write_onnx_model(folder)
    before = {path: path.read_bytes() for path in folder.iterdir()}

    def interrupt(source, target, named):
        target.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline, "write_fp16", interrupt)
    result = run(*given, "--precision", "fp16")
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (130, "Error: stopped")
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_what_the_tools_cannot_bring_to_a_precision_is_said_of_the_users_file(folder, monkeypatch):
    given = write_onnx_model(folder)

    def fail(source, target, named):
        raise IndexError("of\nsome\nkind")

    monkeypatch.setattr(pipeline, "write_fp16", fail)
    for out in ([], ["-o", "out"]):
        assert refused(*given, *out, "--precision", "fp16") == (
            "mine.onnx: it cannot be converted to fp16 (of some kind); omit fp16"
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--precision", "int4"], "precision = int4 is not valid; choose from fp32, fp16, int8"),
        (["--min-agreement", "99"], "min-agreement = 99.0 is not valid; it must be between 0 and 1"),
        (["--min-batch", "8", "--opt-batch", "4"], "min-batch, opt-batch, max-batch = 8, 4, 1024 is not valid; give 1"),
        (
            ["--static-batch", "8", "--opt-batch", "4"],
            "static-batch = 8 is not valid; it takes the place of --opt-batch",
        ),
        (["--static-batch", "0"], "static-batch = 0 is not valid; it must be between 1 and 2147483647"),
        (["--static-batch", str(2**31)], f"static-batch = {2**31} is not valid; it must be between 1 and"),
        (
            ["--max-batch", str(2**70)],
            f"max-batch = {2**70} is not valid; TensorRT takes batches of at most 2147483647",
        ),
        (["--static-batch", "8"], "--static-batch is for an engine, but --tensorrt auto builds none here; omit it"),
        (["--tensorrt", "on", "--compute-capability", "9.0"], "compute-capability = 9.0 is not valid; tensorrt_rtx 1"),
        (["--tensorrt", "off", "--workspace", "64"], "--workspace is for an engine, but --tensorrt off builds none"),
        (
            ["--compute-capability", "8.6"],
            "--compute-capability is for an engine, but --tensorrt auto builds none",
        ),
        (
            ["--max-batch", "1024"],
            "--max-batch is for an engine, but --tensorrt auto builds none here; omit it",
        ),
        (["--crop", "12"], "crop = 12 is not valid; it applies to the images of --calibration; omit it"),
        (["--calibration", "none.npz"], "none.npz: there is no such file or folder"),
        (
            ["--calibration", "wide.npz"],
            "wide.npz: its inputs are 1 x 12 x 13, but the model takes 1 x 12 x 12; cali",
        ),
        (["--calibration", "few.npz"], "few.npz: it has 8 inputs; --calibration needs at least 32"),
        (
            ["--calibration", "odd.npz"],
            "odd.npz: it has the label 7, but the model's classes are 0 to 2; calibrate on the",
        ),
        (["-o", "few.npz/out"], "few.npz/out: it cannot be written to (Not a directory); choose another --output"),
    ],
)
def test_bad_input_is_refused_before_the_work(folder, monkeypatch, arguments, message):
    write_model(folder / "model.pt")
    for name, shape, label in (("wide", (32, 1, 12, 13), 0), ("few", (8, *SHAPE), 0), ("odd", (32, *SHAPE), 7)):
        np.savez(name, x=np.zeros(shape, np.float32), y=np.full(len(np.zeros(shape)), label))
    monkeypatch.setattr(pipeline, "local_gpu", lambda: None)
    monkeypatch.setattr("ars.export.onnx_files.write_onnx", lambda *given: pytest.fail("the work has begun"))
    assert refused("model.pt", *arguments).startswith(message)
    assert not list(folder.glob(".export-*"))


def test_the_parity_of_a_file_stays_when_a_precision_is_added_through_it(exported, folder):
    out, *_ = exported
    shutil.copytree(out, "model")
    np.savez("data.npz", x=np.random.default_rng(0).random((40, *SHAPE), dtype=np.float32))
    given = ["--calibration", "data.npz", "--precision", "fp16", "--min-agreement", "0"]
    before = manifest_beside(folder / "model" / "model.onnx").entry("model.onnx").parity
    assert run("model/model.onnx", *given).exit_code == 0
    assert manifest_beside(folder / "model" / "model.fp16.onnx").entry("model.onnx").parity == before


def test_what_was_made_for_another_sigma_does_not_stay(folder):
    models.resnet(folder / "mine.onnx", shape=SHAPE, classes=3)
    np.savez("data.npz", x=np.random.default_rng(0).random((40, *SHAPE), dtype=np.float32))
    given = ["mine.onnx", "--calibration", "data.npz", "--min-agreement", "0"]
    assert run(*given, "--sigma", "0.25", "--precision", "fp16").exit_code == 0
    result = run(*given, "--sigma", "1")
    assert (
        "mine.fp16.onnx: removed, because it belonged to another model of this name, or to other noise" in result.stderr
    )
    assert [file.path for file in manifest_beside(folder / "mine.onnx").files] == ["mine.onnx", "mine.noise.onnx"]


def test_a_users_own_json_is_not_overwritten(folder, monkeypatch):
    write_model(folder / "model.pt")
    (folder / "model.json").write_text('{"mine": 1}')
    monkeypatch.setattr("ars.export.onnx_files.write_onnx", lambda *given: pytest.fail("the work has begun"))
    assert refused("model.pt").startswith("model.json: it is not a manifest that this version reads, and an export")
    assert (folder / "model.json").read_text() == '{"mine": 1}'


def test_images_of_many_sizes_are_brought_to_the_models(folder):
    write_model(folder / "model.pt")
    for number in range(40):
        (folder / "images" / CLASSES[number % 3]).mkdir(parents=True, exist_ok=True)
        image = Image.new("RGB", (14 + number, 20), (number, 0, 0))
        image.save(folder / "images" / CLASSES[number % 3] / f"{number}.png")
    message = refused("model.pt", "--calibration", "images")
    assert message.endswith("calibrate on inputs of the model's shape; --resize and --crop fit images to it")
    result = run("model.pt", "--calibration", "images", "--resize", "12", "--crop", "12")
    assert result.exit_code == 0, result.output


def test_without_tensorrt_an_engine_that_is_asked_for_is_refused_and_no_other(folder, monkeypatch):
    find = importlib.util.find_spec
    hidden = ("tensorrt", "tensorrt_rtx")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name in hidden else find(name))
    given = write_onnx_model(folder)
    assert refused(*given, "--tensorrt", "on") == "TensorRT is not installed; run `pip install 'ars-certify[rtx]'`"
    for gpu, reason in ((None, "there is no GPU here"), ("8.6", "TensorRT is not installed; run `pip")):
        monkeypatch.setattr(pipeline, "local_gpu", lambda gpu=gpu: gpu)
        result = run(*given)
        assert result.exit_code == 0
        assert f"no TensorRT engine: {reason}" in result.stderr


def test_without_torch_the_error_has_the_install_line(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "torch" else find(name))
    assert refused("model.pt") == "torch is not installed; run `pip install 'ars-certify[train]'`"


@pytest.mark.parametrize(("ratio", "said"), [(0.4, "mine.int8.onnx: a draw takes 0.40"), (1.25, "Warning: mine.int8")])
def test_an_export_says_whether_int8_is_faster(folder, monkeypatch, ratio, said):
    """The time is made up; what is compared is not."""
    compared = []
    monkeypatch.setattr(pipeline, "time_ratio", lambda one, other, draws: compared.append((one, other)) or ratio)
    result = run(*write_onnx_model(folder), "--precision", "int8", "--min-agreement", "0.5", "--tensorrt", "off")
    assert result.exit_code == 0, result.output
    assert [(one.path.name, other.path.name) for one, other in compared] == [("mine.int8.onnx", "mine.onnx")]
    (line,) = [line for line in result.stderr.splitlines() if line.startswith(said)]
    assert line.endswith("INT8 is not faster here, so certify with mine.onnx") == (ratio > 1)
