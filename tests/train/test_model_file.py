"""model.pt: what is written comes back, and a file that is not whole is refused in one sentence."""

import pytest
import torch

from ars.errors import ArsError, ModelError
from ars.noise import NoiseKind
from ars.train.batches import Images
from ars.train.model_file import ModelSettings, build, load_model, write_model_file
from ars.train.noise_models import NoiseShape

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
        ({"width": 3}, "its settings cannot be read"),
        ({"shape": 12}, "its settings cannot be read"),
        ({"shape": ()}, "its settings make no model"),
        ({"shape": (1, -3, 12)}, "it does not fit inputs of the shape"),
        ({"pixel_mean": ("a",)}, "its settings make no model"),
        ({"arch": "renset20"}, "did you mean 'resnet20'"),
        ({"arch": "resnet20"}, "its tensor '.*' is missing"),
        ({"arch": 5}, "its settings make no model"),
    ],
)
def test_settings_that_cannot_be_right_are_refused(file, changed, message):
    content = torch.load(file, weights_only=True)
    content["settings"] |= changed
    torch.save(content, file)
    with pytest.raises(ArsError, match=message):
        load_model(file)


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
        with pytest.raises(ModelError, match="its weights are not tensors by name"):
            load_model(file)


def test_a_file_cut_short_is_refused(file):
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(ModelError, match="it is not a PyTorch file"):
        load_model(file)
