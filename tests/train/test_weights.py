"""Weights that people have: the field's checkpoints, torchvision's names, safetensors, and what does not fit."""

import argparse
import os
import re
import sys
import zipfile

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from support.field_networks import NormalizeLayer, ResNet, cifar_resnet, randomize
from torch import nn

from ars.errors import ArgumentError, MissingPackage, ModelError
from ars.train.classifiers import Normalize, make_classifier, usual_pixels
from ars.train.weights import read_torch_file, start_from

PIXELS = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)


def ours(arch, shape=(3, 32, 32), classes=10):
    return make_classifier(arch, shape, classes, Normalize(*PIXELS)).eval()


def theirs(network):
    """The network behind the field's normalisation layer."""
    return nn.Sequential(NormalizeLayer(*map(torch.tensor, PIXELS)), network)


def same(classifier, module, shape=(3, 32, 32)):
    x = torch.rand(2, *shape)
    with torch.no_grad():
        torch.testing.assert_close(classifier(x), module(x), rtol=1e-4, atol=1e-4)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    return tmp_path


@pytest.fixture(scope="module")
def network():
    return randomize(cifar_resnet(20))


def checkpoint(module, **more):
    """What the field's train.py saves."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    content = {"epoch": 90, "arch": "cifar_resnet20", "state_dict": module.state_dict(), **more}
    torch.save(content | {"optimizer": optimizer.state_dict()}, "checkpoint.pth.tar")


def test_a_checkpoint_of_the_field(network, folder):
    checkpoint(theirs(network))
    classifier = ours("cifar_resnet20")
    loaded = start_from(folder / "checkpoint.pth.tar", classifier)
    assert (loaded.normalised, loaded.note) == (True, None)
    same(classifier, theirs(network))


def test_a_checkpoint_of_data_parallel_with_numbers_of_numpy_and_arguments(network, folder):
    more = {"best": np.float64(0.91), "epochs": np.int64(3), "args": argparse.Namespace(lr=0.1, arch="x")}
    checkpoint(theirs(nn.DataParallel(network)), **more)
    classifier = ours("resnet20")
    assert start_from(folder / "checkpoint.pth.tar", classifier).normalised
    same(classifier, theirs(network))


def test_numbers_that_an_older_numpy_pickled_are_read(folder):
    torch.save({"best": np.float64(0.5), "state_dict": {}}, "new.pth")
    with zipfile.ZipFile("new.pth") as new, zipfile.ZipFile("old.pth", "w") as old:
        for name in new.namelist():
            old.writestr(name, new.read(name).replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))
    assert read_torch_file(folder / "old.pth")["best"] == 0.5


@pytest.mark.parametrize("wrap", [lambda net: net, nn.DataParallel])
def test_a_state_dict_without_a_normalisation_layer(network, folder, wrap):
    torch.save({"model": wrap(network).state_dict()}, "weights.pth")
    classifier = ours("resnet20")
    assert not start_from(folder / "weights.pth", classifier).normalised
    same(classifier, theirs(network))


def test_a_state_dict_of_an_older_torch_lacks_the_counters_of_batch_normalisation(network, folder):
    torch.save({k: v for k, v in network.state_dict().items() if "num_batches" not in k}, "old.pth")
    classifier = ours("resnet20")
    start_from(folder / "old.pth", classifier)
    same(classifier, theirs(network))


@pytest.mark.parametrize(
    ("arch", "blocks", "bottleneck"), [("resnet18", (2, 2, 2, 2), False), ("resnet50", (3, 4, 6, 3), True)]
)
def test_the_names_of_torchvision_in_safetensors(folder, arch, blocks, bottleneck):
    network = randomize(ResNet((64, 128, 256, 512), blocks, 7, bottleneck=bottleneck, large=True))
    save_file(network.state_dict(), "weights.safetensors")
    classifier = ours(arch, (3, 64, 64), 7)
    assert start_from(folder / "weights.safetensors", classifier).note is None
    same(classifier, theirs(network), (3, 64, 64))


class Renamed(nn.Module):
    """A network whose tensors have names of their own."""

    def __init__(self, network):
        super().__init__()
        self.body = nn.ModuleList([layer for layer in network.modules() if not list(layer.children())])


def test_other_names_are_matched_in_the_order_of_the_file(network, folder):
    torch.save(Renamed(network).state_dict(), "renamed.pth")
    classifier = ours("resnet20")
    assert "matched by order, shape and kind" in start_from(folder / "renamed.pth", classifier).note
    same(classifier, theirs(network))
    save_file(Renamed(network).state_dict(), "renamed.safetensors")
    with pytest.raises(ModelError, match=r"its names are not those of the architecture .*safetensors keeps no order"):
        start_from(folder / "renamed.safetensors", classifier)


def test_our_own_state_dict_and_model_keep_their_names(folder):
    classifier, again = ours("resnet20"), ours("resnet20")
    save_file(classifier[1].state_dict(), "ours.safetensors")
    torch.save(classifier.state_dict(), "whole.pth")
    for name in ("ours.safetensors", "whole.pth"):
        loaded = start_from(folder / name, again)
        assert (loaded.normalised, loaded.note) == (False, None)
        same(again, classifier)


@pytest.mark.parametrize(
    ("made", "arch", "problem"),
    [
        (
            lambda: cifar_resnet(20, classes=7),
            "resnet20",
            "'fc.weight' is (7, 64), but the architecture has '13.weight'",
        ),
        (lambda: cifar_resnet(26), "resnet20", "'layer1.3.conv1.weight' is (16, 16, 3, 3), but the architecture has"),
        (lambda: cifar_resnet(14), "resnet20", "'layer2.0.conv1.weight' is (32, 16, 3, 3), but the architecture has"),
        (
            lambda: nn.Sequential(nn.Conv2d(3, 16, 3, bias=False)),
            "resnet20",
            "only the architecture has the tensor '0.1.",
        ),
    ],
)
def test_a_mismatch_names_the_first_tensor(folder, made, arch, problem):
    torch.save(made().state_dict(), "weights.pth")
    with pytest.raises(ModelError, match=re.escape(problem)):
        start_from(folder / "weights.pth", ours(arch))


def test_two_tensors_of_one_shape_in_another_order_are_not_mixed_up(network, folder):
    """Batch normalisation has four tensors of one shape; a file with other kinds in their places is refused."""
    weights = network.state_dict()
    names = [name for name in weights if not name.startswith("bn1.")]
    reordered = {"conv1.weight": None, "bn1.bias": None, "bn1.weight": None} | dict.fromkeys(names)
    reordered |= {"bn1.running_mean": None, "bn1.running_var": None}
    torch.save({f"net.{name}": weights[name] for name in reordered}, "reordered.pth")
    with pytest.raises(
        ModelError, match=re.escape("its tensor 'net.bn1.bias' is (16,), but the architecture has '0.1.w")
    ):
        start_from(folder / "reordered.pth", ours("resnet20"))


class Harmful:
    def __reduce__(self):
        return (os.mkdir, ("it-ran",))


def test_a_checkpoint_with_code_is_refused_and_nothing_runs(network, folder):
    checkpoint(network, callback=Harmful())
    with pytest.raises(
        ModelError, match=r"it holds an object of posix.mkdir\); save model.state_dict\(\) instead; code"
    ):
        start_from(folder / "checkpoint.pth.tar", ours("resnet20"))
    assert not (folder / "it-ran").exists()


def test_files_without_weights_are_refused(folder, monkeypatch):
    (folder / "text.safetensors").write_text("hello")
    torch.save({}, "empty.pth")
    torch.save({"state_dict": [1]}, "list.pth")
    for name, problem in {
        "text.safetensors": "it is not a whole safetensors file",
        "none.safetensors": "there is no such file",
        "empty.pth": "it holds no tensors",
        "list.pth": "it is neither a model.pt nor a state_dict, nor a checkpoint with one",
    }.items():
        with pytest.raises(ModelError, match=f"{name}: {problem}"):
            start_from(folder / name, ours("resnet20"))
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with pytest.raises(MissingPackage, match=r"safetensors is not installed; run `pip install 'ars-certify\[train\]'`"):
        start_from(folder / "text.safetensors", ours("resnet20"))


def test_a_missing_torchvision_is_named_and_not_timm(folder, monkeypatch):
    (folder / "timm.py").write_text("import torchvision_that_is_missing")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    problem = "torchvision_that_is_missing, which timm needs, is not installed"
    with pytest.raises(ArgumentError, match=problem):
        ours("timm:resnet18")
    (folder / "timm.py").write_text(
        "raise RuntimeError('operator torchvision::nms does not exist')  # as torch says it"
    )
    with pytest.raises(ArgumentError, match=r"timm cannot be imported \(operator torchvision::nms does not exist\)"):
        usual_pixels("timm:resnet18", 3)
