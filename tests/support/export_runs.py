"""Small models to export, and `ars-export` as the tests call it."""

import numpy as np
import torch
from click.testing import CliRunner

from ars.data.pixels import file_sha256
from ars.export.cli import main
from ars.manifest import Manifest, ModelFile, NoiseSettings
from ars.noise import NoiseKind
from ars.train.batches import Images
from ars.train.model_file import ModelSettings, build, write_model_file
from ars.train.noise_models import NoiseShape
from support import models

SHAPE = (1, 12, 12)
CLASSES = ("a", "b", "c")


def write_model(path, kind="isotropic", *, seed=0, arch="cnn", state=None, examples=32):
    """A model.pt with random weights, whose noise is laplace; the model, ready to run. One with a map for the data set
    is attenuated by it."""
    torch.manual_seed(seed)
    bounds = NoiseShape(0.5)
    noise, attenuated = NoiseKind(kind), kind == NoiseKind.DATASET
    settings = ModelSettings(arch, SHAPE, CLASSES, (0.5,), (0.25,), "laplace", noise, bounds, attenuated)
    model = build(settings)
    for parameter in model.noise.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    images = Images(torch.rand(examples, *SHAPE), torch.arange(examples) % len(CLASSES))
    write_model_file(path, settings, model, {"plan": {"epochs": 2}}, images, state)
    return model.eval()


def write_onnx_model(folder, seed=0):
    """mine.onnx, as an earlier export left it with its generator and its manifest, and data.npz to calibrate on: no
    torch is needed to export it."""
    models.resnet(folder / "mine.onnx", shape=SHAPE, classes=3, seed=seed)
    models.generator(folder / "mine.noise.onnx", SHAPE)
    files = (("classifier", "mine.onnx"), ("noise", "mine.noise.onnx"))
    listed = tuple(ModelFile(role, name, file_sha256(folder / name)) for role, name in files)
    Manifest(SHAPE, CLASSES, NoiseSettings("gaussian", NoiseKind.INPUT, 0.25), listed).write(folder / "mine.json")
    rng = np.random.default_rng(0)
    np.savez(folder / "data.npz", x=rng.random((40, *SHAPE), dtype=np.float32), y=np.arange(40) % 3)
    return ["mine.onnx", "--calibration", "data.npz"]


def run(*arguments):
    return CliRunner().invoke(main, list(map(str, arguments)))


def refused(*arguments):
    """What a run that must fail says, in one line."""
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert (result.stdout, "Traceback" in result.stderr) == ("", False)
    return result.stderr.splitlines()[-1].removeprefix("Error: ")
