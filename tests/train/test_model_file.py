"""model.pt: what is written comes back, and a file that is not whole is refused in one sentence."""

import contextlib
import dataclasses
import resource
from pathlib import Path
from random import Random

import pytest
import torch

from ars.errors import ArsError, ModelError, RunError
from ars.noise import NoiseKind
from ars.train.batches import Images
from ars.train.model_file import ModelSettings, build, load_model, write_model_file
from ars.train.noise_models import GeneratorSize, NoiseShape

SHAPE = (1, 12, 12)


@pytest.fixture
def file(tmp_path):
    settings = ModelSettings("cnn", SHAPE, ("a", "b"), (0.5,), (0.25,), "laplace", NoiseKind.INPUT, NoiseShape(0.5))
    torch.manual_seed(0)
    examples = Images(torch.rand(4, *SHAPE), torch.tensor([0, 1, 0, 1]))
    write_model_file(tmp_path / "model.pt", settings, build(settings), {"plan": {}}, examples, {"epoch": 3})
    return tmp_path / "model.pt"


def test_a_model_comes_back_as_it_was_written_ready_to_run(file):
    settings, model, content = load_model(file)
    assert (settings.arch, settings.kind, settings.classes) == ("cnn", NoiseKind.INPUT, ("a", "b"))
    assert not model.training
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, content["weights"][name])
    assert content["state"] == {"epoch": 3}
    assert content["examples"]["x"].shape == (4, *SHAPE)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kind": "inputs"}, r"its settings cannot be read \(unknown noise kind 'inputs'"),
        ({"kind": None}, "its settings cannot be read"),
        ({"bounds": {"sigma0": -1.0}}, r"its settings cannot be read \(sigma = -1.0"),
        ({"bounds": 5}, "its settings cannot be read"),
        ({"generator": {"layers": 0}}, r"its settings cannot be read \(generator-layers = 0"),
        ({"generator": {"growth": 10**9}}, r"generator-growth = 1000000000 is not valid; it must be from 1 to 1024"),
        ({"generator": {"stride": 5}}, r"it must divide the sides of the images, which are 12 x 12"),
        ({"generator": {"depth": 5}}, "its settings cannot be read"),
        ({"width": 3}, "its settings cannot be read"),
        ({"shape": 12}, "its settings cannot be read"),
        ({"shape": ()}, "its examples are not labelled inputs of its shape"),
        ({"shape": (1, -3, 12)}, "its examples are not labelled inputs of its shape"),
        ({"pixel_mean": ("a",)}, "no model can be built from its settings"),
        ({"arch": "renset20"}, "did you mean 'resnet20'"),
        ({"arch": "resnet20"}, "its tensor '.*' is missing"),
        ({"arch": 5}, "no model can be built from its settings"),
    ],
)
def test_settings_that_cannot_be_right_are_refused(file, changed, message):
    content = torch.load(file, weights_only=True)
    content["settings"] |= changed
    torch.save(content, file)
    with pytest.raises(ArsError, match=message):
        load_model(file)


def test_a_generator_of_another_size_comes_back_and_an_older_file_has_the_papers(file):
    content = torch.load(file, weights_only=True)
    del content["settings"]["generator"]
    torch.save(content, file)
    settings, model, content = load_model(file)
    assert settings.generator == GeneratorSize(4, 16, 1)
    settings = dataclasses.replace(settings, generator=GeneratorSize(5, 8, 2))
    examples = Images(**content["examples"])
    write_model_file(file, settings, build(settings), {"plan": {}}, examples)
    again, model, _ = load_model(file)
    assert again == settings
    assert len(model.noise.dense) == 5


@pytest.mark.parametrize("part", ["settings", "weights", "training", "examples", "state"])
def test_a_part_that_is_missing_is_named(file, part):
    content = torch.load(file, weights_only=True)
    del content[part]
    torch.save(content, file)
    with pytest.raises(ModelError, match=rf"model.pt: it has no '{part}'; train it again"):
        load_model(file)


def test_weights_that_are_not_tensors_are_refused(file):
    content = torch.load(file, weights_only=True)
    for weights in ([1, 2], {"classifier.1.0.weight": 3.0}):
        torch.save(content | {"weights": weights}, file)
        with pytest.raises(ModelError, match="its weights are not a dictionary of tensors"):
            load_model(file)


X, LABELS = torch.zeros(4, *SHAPE), torch.zeros(4, dtype=torch.int64)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"format": torch.ones(2)}, "its format is not a number, but this version reads 1; update ARS"),
        ({"format": "1"}, "its format is not a number, but this version reads 1; update ARS"),
        ({"training": [1, 2]}, "its 'training' is not a dictionary of plain data"),
        ({"training": {"loss": torch.ones(2)}}, "its 'training' is not a dictionary of plain data"),
        ({"examples": None}, "its examples are not labelled inputs of its shape"),
        ({"examples": {}}, "its examples are not labelled inputs of its shape"),
        ({"examples": {"x": X.double(), "labels": LABELS}}, "its examples are not labelled inputs of its shape"),
        ({"examples": {"x": X, "labels": LABELS[:3]}}, "its examples are not labelled inputs of its shape"),
        ({"examples": {"x": X, "labels": LABELS + 2}}, "its examples are not labelled inputs of its shape"),
        ({"examples": {"x": X[..., :5], "labels": LABELS}}, "its examples are not labelled inputs of its shape"),
        ({"examples": {"x": X / 0, "labels": LABELS}}, "its examples are not labelled inputs of its shape"),
    ],
)
def test_parts_that_cannot_be_right_are_refused(file, changed, message):
    torch.save(torch.load(file, weights_only=True) | changed, file)
    with pytest.raises(ModelError, match=message):
        load_model(file)


@pytest.mark.parametrize("content", [b"", b"hello", b"# a text\n", b"\x80\x02", b"\x80\x02}q\x01(X"])
def test_a_file_that_is_none_of_pytorch_is_refused_in_plain_words(file, content):
    file.write_bytes(content)
    message = "model.pt: it is not a whole PyTorch file of tensors and plain data; give a model.pt or a state_dict;"
    with pytest.raises(ModelError, match=message):
        load_model(file)


def test_a_file_cut_short_or_with_other_bytes_is_refused_or_read(file):
    whole = file.read_bytes()
    file.write_bytes(whole[:1000])
    with pytest.raises(ModelError, match="it is not a whole PyTorch file"):
        load_model(file)
    random = Random(0)
    for _ in range(60):
        broken = bytearray(whole)
        for place in random.choices(range(2500), k=3):  # the pickle comes first
            broken[place] = random.randrange(256)
        file.write_bytes(broken)
        with contextlib.suppress(ArsError):
            load_model(file)


def test_a_failure_to_write_is_said_and_nothing_else(file, monkeypatch):
    settings, model, _ = load_model(file)
    before = file.read_bytes()

    def fail(content, path):
        raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0")

    def read_only(self, missing_ok):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(torch, "save", fail)
    monkeypatch.setattr(Path, "unlink", read_only)
    for path, end in (
        (file, "use --resume: the earlier checkpoint is intact"),
        (file.with_name("n.pt"), "start again: noth"),
    ):
        message = rf"{path.name}: it cannot be written \(the disk may be full\); free some space and {end}"
        with pytest.raises(RunError, match=message):
            write_model_file(path, settings, model, {}, Images(X, LABELS))
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("changes", "shape", "message"),
    [
        (
            {"generator": {"layers": 64, "growth": 1024}},
            None,
            r"'noise.dense.0.weight' is .*, but the architecture has",
        ),
        ({"arch": "resnet9998"}, None, "layers, up to 1202"),
        (
            {"arch": "resnet101"},
            None,
            r"'classifier.1.0.0.weight' is missing, but the architecture has \(64, 1, 7, 7\)",
        ),
        ({"shape": (1, 16384, 8192)}, (1, 16384, 8192), "its examples are not labelled inputs of its shape"),
    ],
)
def test_networks_that_are_far_larger_than_the_file(file, changes, shape, message):
    """The generator would take 77 GB, and the first layer after the images of that shape 68 GB."""
    content = torch.load(file, weights_only=True)
    content["settings"].update(changes)
    if shape is not None:
        content["examples"] = {"x": torch.zeros(0, *shape), "labels": torch.zeros(0, dtype=torch.int64)}
    torch.save(content, file)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ArsError, match=message) as caught:
        load_model(file)
    assert "\n" not in str(caught.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**20  # kB, or bytes on macOS
