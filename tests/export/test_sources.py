"""Models of the user's own: what is taken, and what is refused, with the fix."""

import copy
import os
import sys
import warnings
import zipfile
from types import ModuleType, SimpleNamespace

import numpy as np
import onnx
import pytest
import torch
from safetensors.torch import save_file
from support import models
from support.export_runs import CLASSES, SHAPE, refused, run, write_model
from support.field_networks import NormalizeLayer, cifar_resnet, randomize
from torch import nn

from ars.engine.backends import load_runner
from ars.export.onnx_files import write_onnx
from ars.export.precision import write_int8
from ars.export.torchscript import convert_script
from ars.manifest import manifest_beside
from ars.noise import NoiseKind
from ars.train.classifiers import Normalize, make_classifier

OWN = ["--sigma", "0.25", "--calibration", "data.npz", "--tensorrt", "off"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.savez("data.npz", x=rng.random((40, *SHAPE), dtype=np.float32), y=np.arange(40) % 3)
    return tmp_path


@pytest.fixture(scope="module")
def body():
    """A classifier without normalisation."""
    torch.manual_seed(0)
    return make_classifier("cnn", SHAPE, 3, Normalize((0.0,), (1.0,))).eval()[1]


def same_logits(path, module, x=None):
    x = torch.rand(5, *SHAPE) if x is None else x
    with torch.no_grad():
        np.testing.assert_allclose(load_runner(path).run(x.numpy()), module(x), atol=1e-4)


def test_an_architecture_with_its_weights(folder, body):
    torch.save(body.state_dict(), "weights.pth")
    given = ["--arch", "cnn", "--weights", "weights.pth", "--shape", "1,12,12", "--classes", "a,b,c"]
    result = run(*given, "--pixel-mean", "0.5", "--pixel-deviation", "0.25", "-o", "out", "--family", "laplace", *OWN)
    assert result.exit_code == 0, result.output
    same_logits(folder / "out" / "weights.onnx", nn.Sequential(Normalize((0.5,), (0.25,)), body))
    manifest = manifest_beside(folder / "out" / "weights.onnx")
    assert (manifest.shape, manifest.classes) == (SHAPE, CLASSES)
    noise = manifest.noise
    assert (noise.family, noise.kind, noise.sigma0) == ("laplace", NoiseKind.ISOTROPIC, 0.25)


def test_what_torchscript_becomes_carries_no_notes_into_the_next_export(body):
    """torch.export refuses a module whose notes are others than its own, as it did for a traced ResNet."""
    with warnings.catch_warnings(action="ignore"):  # TorchScript is deprecated
        module = convert_script(torch.jit.script(body), SHAPE, "script.pt", "")
    nodes = [node for part in module.modules() for node in getattr(getattr(part, "graph", None), "nodes", ())]
    assert len(nodes) > 3
    assert not any("custom" in node.meta for node in nodes)


def test_a_torchscript_file(folder, body):
    with warnings.catch_warnings(action="ignore"):  # TorchScript is deprecated
        torch.jit.save(torch.jit.script(body), "script.pt")
    assert refused("script.pt", *OWN) == "script.pt: it does not state its input shape; give --shape, like 3,32,32"
    message = refused("script.pt", "--shape", "3,12,12", *OWN)
    assert message.startswith("script.pt: it does not take a batch of inputs of shape 3, 12, 12 (")
    assert message.endswith("but got 3 channels instead); give the --shape that it takes")
    result = run("script.pt", "--shape", "1,12,12", *OWN)
    assert result.exit_code == 0, result.output
    same_logits(folder / "script.onnx", body)
    assert manifest_beside(folder / "script.onnx").classes == ("0", "1", "2")


class WithFeatures(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x):
        return self.body(x), x


def test_a_program_that_gives_more_than_logits_is_refused(body):
    message = "it returns a tuple; it must return only the logits, batch x classes"
    with warnings.catch_warnings(action="ignore"):
        torch.jit.save(torch.jit.trace(WithFeatures(body), torch.zeros(2, *SHAPE)), "script.pt")
    assert refused("script.pt", "--shape", "1,12,12", *OWN) == f"script.pt: {message}"
    dynamic = ({0: torch.export.Dim("n")},)
    program = torch.export.export(WithFeatures(body), (torch.zeros(2, *SHAPE),), dynamic_shapes=dynamic)
    torch.export.save(program, "program.pt2")
    assert refused("program.pt2", *OWN) == f"program.pt2: {message}"


@pytest.mark.parametrize("batch", [1, 2])
def test_a_torch_export_file_for_one_batch_size_is_refused(body, batch):
    torch.export.save(torch.export.export(body, (torch.zeros(batch, *SHAPE),)), "program.pt2")
    assert refused("program.pt2", *OWN) == (
        "program.pt2: it takes batches of one size only; export it with a dynamic batch, torch.export.Dim('n')"
    )


def test_a_torch_export_file_for_images_of_any_size_is_taken_in_the_size_that_is_said(folder):
    torch.manual_seed(0)
    parts = (nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))
    dynamic = ({0: torch.export.Dim("n"), 2: torch.export.Dim("h", min=4), 3: torch.export.Dim("w", min=4)},)
    body = nn.Sequential(*parts).eval()
    torch.export.save(torch.export.export(body, (torch.zeros(2, 1, 9, 10),), dynamic_shapes=dynamic), "any.pt2")
    assert refused("any.pt2", "--shape", "3,12,12", *OWN) == (
        "any.pt2: it takes inputs of shape (1, any, any), but --shape is (3, 12, 12); give the shape that it takes"
    )
    result = run("any.pt2", "--shape", "1,12,12", *OWN)
    assert result.exit_code == 0, result.output
    same_logits(folder / "any.onnx", body)


def test_a_program_is_taken_only_from_a_file_whose_name_says_so(body):
    """The targets of its nodes may name any function of Python, and torch.export falls back to unsafe pickles."""
    torch.export.save(torch.export.export(body, (torch.zeros(2, *SHAPE),)), "program.pt2")
    os.rename("program.pt2", "weights.pt")
    assert refused("weights.pt", *OWN) == (
        "weights.pt: it is a torch.export file, whose program can do whatever you can; give it the suffix .pt2 if you "
        "trust its source"
    )


def test_a_torchscript_file_that_writes_to_files_is_refused(folder):
    class Writes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            mapped = torch.from_file("notes.txt", True, 4, dtype=torch.uint8)
            return x.flatten(1)[:, :3] + mapped.fill_(88).sum()

    (folder / "notes.txt").write_text("mine")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces a successor of TorchScript
        torch.jit.save(torch.jit.script(Writes()), "script.pt")
        assert refused("script.pt", "--shape", "1,12,12", *OWN) == (
            "script.pt: its program reads or writes files (torch.from_file); save a module that only computes logits"
        )
        assert (folder / "notes.txt").read_text() == "mine"
        torch.jit.load("script.pt")(torch.zeros(1, *SHAPE))
    assert (folder / "notes.txt").read_text() == "XXXX"  # the negative control


def test_what_is_wrong_with_a_file_is_said_before_options_that_are_not_for_it(folder, body):
    with warnings.catch_warnings(action="ignore"):
        torch.jit.save(torch.jit.script(body), "script.pt")
    (folder / "cut.pt").write_bytes((folder / "script.pt").read_bytes()[:3000])
    torch.save(nn.Linear(2, 2), "code.pt")
    torch.save(body.state_dict(), "state.pt")
    for name, message in {
        "cut.pt": "cut.pt: it is not a whole PyTorch file",
        "code.pt": "code.pt: it is not a whole PyTorch file of tensors and plain data",
        "state.pt": "state.pt: it was not written by ars-train; give weights to ars-train with --init, or to",
    }.items():
        assert refused(name, "--shape", "1,12,12", *OWN).startswith(message)


def test_a_torch_export_file_and_normalisation(folder, body):
    dynamic = ({0: torch.export.Dim("n")},)
    torch.export.save(torch.export.export(body, (torch.zeros(2, *SHAPE),), dynamic_shapes=dynamic), "program.pt2")
    assert refused("program.pt2", "--shape", "1,8,8", *OWN) == (
        "program.pt2: it takes inputs of shape (1, 12, 12), but --shape is (1, 8, 8); give the shape that it takes"
    )
    result = run("program.pt2", "--classes", "3", "--pixel-mean", "0.5", *OWN)
    assert result.exit_code == 0, result.output
    same_logits(folder / "program.onnx", nn.Sequential(Normalize((0.5,), (1.0,)), body))


def test_an_onnx_file_is_kept_as_it_is_and_gets_the_rest(folder):
    models.resnet(folder / "mine.onnx", shape=SHAPE, classes=3)
    before = (folder / "mine.onnx").read_bytes()
    result = run("mine.onnx", "--precision", "fp16,int8", "--min-agreement", "0.5", *OWN)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == ["mine.noise.onnx", "mine.fp16.onnx", "mine.int8.onnx", "mine.json"]
    assert (folder / "mine.onnx").read_bytes() == before
    manifest = manifest_beside(folder / "mine.int8.onnx")
    assert [file.path for file in manifest.files] == ["mine.onnx", *result.stdout.splitlines()[:-1]]
    assert manifest.entry("mine.onnx").parity is None
    assert manifest.entry("mine.int8.onnx").parity.reference == "mine.onnx"

    # What its manifest says need not be said again, wherever the files go.
    again = ["mine.onnx", "-o", "copy", "--calibration", "data.npz", "--tensorrt", "off"]
    assert run(*again).stdout.splitlines() == ["copy/mine.onnx", "copy/mine.noise.onnx", "copy/mine.json"]
    assert manifest_beside(folder / "copy" / "mine.onnx").noise == manifest.noise
    assert refused(*again, "--family", "laplace") == (
        "mine.onnx: --family does not apply, because the file itself determines it; omit --family"
    )


def test_an_int8_file_is_labelled_by_what_is_in_it(folder):
    models.resnet(folder / "fp32.onnx", shape=SHAPE, classes=3)
    x = np.random.default_rng(0).random((8, *SHAPE), dtype=np.float32)
    write_int8(folder / "fp32.onnx", folder / "small.int8.onnx", [x], folder / "fp32.onnx")
    fix = "it is int8 already, but fp32 is made from fp32; use the fp32 model, or --precision int8"
    assert refused("small.int8.onnx", "--precision", "fp32", *OWN) == f"small.int8.onnx: {fix}"
    assert run("small.int8.onnx", *OWN).exit_code == 0
    assert manifest_beside(folder / "small.int8.onnx").entry("small.int8.onnx").precision == "int8"


def test_int8_of_an_old_opset_is_refused_before_the_work(folder):
    model = onnx.load(models.resnet(folder / "mine.onnx", shape=SHAPE, classes=3))
    model.opset_import[0].version = 11
    onnx.save(model, "mine.onnx")
    assert refused("mine.onnx", "--precision", "int8", *OWN) == (
        "mine.onnx: its opset is 11, but int8 needs 13; export it again with a newer opset, or omit int8"
    )
    assert run("mine.onnx", "--precision", "fp16", *OWN).exit_code == 0


def test_onnx_files_that_are_no_classifiers_are_refused(folder):
    (folder / "text.onnx").write_text("hello")
    assert refused("text.onnx", *OWN).startswith("text.onnx: it is not an ONNX model;")
    assert refused("none.onnx", *OWN) == "none.onnx: there is no such file; give the path of an ONNX model"
    models.generator(folder / "g.noise.onnx")
    assert refused("g.noise.onnx", *OWN).startswith("g.noise.onnx: its output 'mean' has the shape")
    models.linear(folder / "mine.onnx", SHAPE)
    assert refused("mine.onnx", "--shape", "1,2,2", *OWN) == (
        "mine.onnx: it takes inputs of shape 1, 12, 12, but --shape is 1,2,2; give the shape that it takes"
    )
    assert refused("mine.onnx", "--classes", "4", *OWN) == (
        "mine.onnx: it has 3 classes, but --classes names 4; name each class"
    )
    assert refused("mine.onnx", "--calibration", "data.npz") == (
        "sigma = None is not valid; a model of your own needs --sigma, the scale of its noise"
    )
    assert refused("mine.onnx", "--sigma", "0.5", "--tensorrt", "off") == (
        "mine.onnx: it has 0 examples, but the comparison needs at least 32; "
        "give the model's own kind of data with --calibration"
    )
    assert refused("mine.onnx", "--sigma", "-1") == "sigma = -1.0 is not valid; it must be positive and finite"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "model = None is not valid; give a file, or --arch and --weights"),
        (["--arch", "cnn"], "arch = cnn is not valid; it needs --weights, --shape and --classes"),
        (["x.pt", "--weights", "w.pth"], "weights = w.pth is not valid; they need --arch"),
        (["x.pt", "--arch", "cnn"], "arch = cnn is not valid; it needs --weights instead of the file x.pt"),
    ],
)
def test_half_of_an_architecture_is_refused(arguments, message):
    assert refused(*arguments, *OWN) == message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--arch": "cnnn"}, "unknown architecture 'cnnn'; did you mean 'cnn'?"),
        ({"--classes": "1"}, "classes = 1 is not valid; a classifier has at least two"),
        ({"--classes": "4"}, "weights.pth: its tensor '9.weight' is (3, 128), but the architecture has (4, 128)"),
        ({"--pixel-mean": "0.5,0.5"}, "pixel-mean = 0.5,0.5 is not valid; give one number for each of the 1 channels"),
        ({"--classes": "\u00b2"}, "classes = 1 is not valid; a classifier has at least two"),
        ({"--classes": "99999999999"}, "classes = 99999999999 is not valid; that is too many"),
        ({"--arch": "resnet\u00b2"}, "unknown architecture 'resnet\u00b2'; did you mean 'resnet"),
        ({"--pixel-mean": "nan"}, "pixel-mean = nan is not valid; each must be finite"),
        ({"--pixel-deviation": "0"}, "pixel-deviation = 0.0 is not valid; each must be positive and finite"),
        ({"--pixel-deviation": "inf"}, "pixel-deviation = inf is not valid; each must be positive and finite"),
        ({"--weights": "none.pth"}, "none.pth: there is no such file"),
    ],
)
def test_an_architecture_that_does_not_fit_is_refused(body, change, message):
    torch.save(body.state_dict(), "weights.pth")
    given = {"--arch": "cnn", "--weights": "weights.pth", "--shape": "1,12,12", "--classes": "3"} | change
    assert refused(*(part for pair in given.items() for part in pair), *OWN).startswith(message)


def test_lists_that_are_none_are_refused_by_name():
    for option, value in (("--shape", "1,x"), ("--shape", "1,0"), ("--pixel-mean", "a")):
        assert f"Invalid value for '{option}'" in refused("model.pt", option, value)


class Bessel(nn.Module):
    def forward(self, x):
        return torch.special.bessel_j0(x)


class Branch(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x * 2
        return x


class FixedBatch(nn.Module):
    def forward(self, x):
        return x.reshape(2, 16)


def written(folder, module):
    with pytest.raises(Exception) as error:  # noqa: PT011  # the tests look at its message
        write_onnx(module, (1, 4, 4), folder / "out.onnx", ["logits"], folder / "model.pt")
    assert not (folder / "out.onnx").exists()
    return str(error.value).removeprefix(f"{folder}/")


def test_an_operator_that_onnx_lacks_is_named_with_its_module(folder, capfd):
    message = written(folder, nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(16, 3), Bessel())))
    assert message == (
        "model.pt: its operator prims.bessel_j0, in the module '1.1', has no counterpart in ONNX; "
        "replace it in the model with operators that have one"
    )
    assert capfd.readouterr() == ("", "")


def test_control_flow_that_depends_on_the_input_is_shown(folder, capfd):
    message = written(folder, nn.Sequential(nn.Flatten(), Branch()))
    assert message.startswith("model.pt: its control flow depends on the values of its input (test_sources.py:")
    fix = "rewrite that `if` or loop with torch.where or torch.cond"
    assert message.endswith(f"if x.sum() > 0:); {fix}")
    assert capfd.readouterr() == ("", "")


def test_a_model_for_one_batch_size_is_refused(folder):
    assert written(folder, FixedBatch()) == (
        "model.pt: it takes batches of one size only; export it with a dynamic batch, torch.export.Dim('n')"
    )


def test_a_file_that_is_of_no_kind_is_refused(folder):
    (folder / "text.pt").write_text("hello")
    torch.save({"weights": torch.zeros(1)}, "other.pt")
    torch.save({"format": 99}, "newer.pt")
    torch.save(nn.Linear(2, 2), "code.pt")
    write_model(folder / "half.pt", state={"epoch": 1})
    write_model(folder / "good.pt")
    write_model(folder / "few.pt", examples=8)
    for name, message in {
        "none.pt": "none.pt: there is no such file",
        "text.pt": "text.pt: it is not a whole PyTorch file",
        "other.pt": "other.pt: it was not written by ars-train",
        "newer.pt": "newer.pt: its format is 99, but this version reads 1; update ARS",
        "code.pt": "code.pt: it is not a whole PyTorch file of tensors and plain data",
        "half.pt": "half.pt: its training has not finished; resume it with `ars-train --resume`",
        "few.pt": "few.pt: it has 8 examples, but the comparison needs at least 32; give the model's own kind of data",
    }.items():
        assert refused(name).startswith(message)
    assert refused("good.pt", "--sigma", "1").startswith(
        "good.pt: --sigma does not apply, because the file itself determines it"
    )
    assert not list(folder.glob("*.onnx"))


def test_no_architecture_of_timm_without_timm(monkeypatch, body):
    torch.save(body.state_dict(), "weights.pth")
    monkeypatch.setitem(sys.modules, "timm", None)
    given = ["--arch", "timm:resnet18", "--weights", "weights.pth", "--shape", "1,12,12", "--classes", "3"]
    assert refused(*given, *OWN) == ("arch = timm:resnet18 is not valid; timm is not installed; run `pip install timm`")


def test_a_checkpoint_of_the_field_needs_the_numbers_of_its_normalisation(folder):
    network = randomize(cifar_resnet(8, classes=3, channels=1))
    whole = nn.Sequential(NormalizeLayer(torch.tensor([0.5]), torch.tensor([0.25])), nn.DataParallel(network))
    torch.save({"arch": "cifar_resnet8", "state_dict": whole.state_dict(), "epoch": 90}, "checkpoint.pth.tar")
    given = ["--arch", "cifar_resnet8", "--weights", "checkpoint.pth.tar", "--shape", "1,12,12", "--classes", "3", *OWN]
    assert refused(*given).startswith(
        "checkpoint.pth.tar: its network was behind a layer that normalised pixels, whose numbers it does not hold; "
        "give --pixel-mean and --pixel-deviation (in the field's scripts: 0.4914,0.4822,0.4465 and"
    )
    result = run(*given, "--pixel-mean", "0.5", "--pixel-deviation", "0.25")
    assert result.exit_code == 0, result.output
    same_logits(folder / "checkpoint.pth.onnx", whole.eval())
    refusal = refused("checkpoint.pth.tar", *OWN)
    assert refusal.endswith("or to ars-export with --arch cifar_resnet8 and --weights")


def test_timm_says_how_its_weights_expect_pixels(folder, body, monkeypatch):
    """A module that stands in for timm, which needs a torchvision."""
    timm = ModuleType("timm")
    timm.list_models = lambda: ["small_net"]
    timm.create_model = lambda name, **options: copy.deepcopy(body)
    timm.get_pretrained_cfg = lambda name: SimpleNamespace(mean=(0.5,), std=(0.25,))
    monkeypatch.setitem(sys.modules, "timm", timm)
    save_file(body.state_dict(), "weights.safetensors")
    given = ["--arch", "timm:small_net", "--weights", "weights.safetensors", "--shape", "1,12,12", "--classes", "3"]
    result = run(*given, *OWN)
    assert result.exit_code == 0, result.output
    assert "pixels are normalised with 0.5 and 0.25, as timm's weights of timm:small_net expect" in result.output
    same_logits(folder / "weights.onnx", nn.Sequential(Normalize((0.5,), (0.25,)), body))


def test_an_export_of_transformers_gets_the_right_advice(folder):
    with zipfile.ZipFile("hf.pt2", "w") as archive:
        archive.writestr("hf/models/model.json", '{"type": "transformers.modeling_outputs.ImageClassifierOutput"}')
    assert refused("hf.pt2", *OWN) == (
        "hf.pt2: it returns an object of transformers, and not only logits; export a module that returns "
        "model(x).logits, or give the model itself to ars.load in Python"
    )


@pytest.mark.parametrize("name", ["pipe.pt", "pipe.onnx", "pipe"])
def test_a_pipe_is_refused_at_once(name):
    """Telling TorchScript from other files waited for ever."""
    os.mkfifo(name)
    assert "it is not a regular file" in refused(name, *OWN)
