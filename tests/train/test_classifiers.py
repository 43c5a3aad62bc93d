"""The classifiers by name: their sizes, their first layer, and names that are none."""

import sys
from types import ModuleType

import pytest
import torch
from torch import nn

from ars.errors import ArgumentError, UnknownName
from ars.train.classifiers import Normalize, make_classifier


def make(arch, shape=(3, 32, 32), classes=10):
    return make_classifier(arch, shape, classes, Normalize([0.5] * shape[0], [0.25] * shape[0]))


@pytest.mark.parametrize(
    ("arch", "millions"), [("resnet20", 0.27), ("resnet32", 0.46), ("resnet56", 0.85), ("resnet110", 1.7)]
)
def test_cifar_resnets_have_the_published_sizes(arch, millions):
    """He et al. (2016), table 6. The shortcuts here are convolutions, which adds 2,752 parameters."""
    model = make(arch)
    count = sum(parameter.numel() for parameter in model.parameters()) - 2752
    assert round(count / 1e6, 2 if millions < 1 else 1) == millions
    weighty = [module for name, module in model.named_modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    shortcuts = [module for module in weighty if getattr(module, "kernel_size", None) == (1, 1)]
    assert len(weighty) - len(shortcuts) == int(arch.removeprefix("resnet"))
    assert model(torch.rand(2, 3, 32, 32)).shape == (2, 10)


def test_resnet50_has_the_published_size_and_takes_images_of_224():
    model = make("resnet50", (3, 224, 224), 1000)
    assert sum(parameter.numel() for parameter in model.parameters()) == 25_557_032
    body = model[1]
    stages = [body[:3](torch.zeros(1, 3, 224, 224))]
    for stage in (slice(3, 6), slice(6, 10), slice(10, 16), slice(16, 19)):
        stages.append(body[stage](stages[-1]))
    sizes = [(64, 56, 56), (256, 56, 56), (512, 28, 28), (1024, 14, 14), (2048, 7, 7)]
    assert [tuple(stage.shape[1:]) for stage in stages] == sizes


def test_the_small_network_takes_images_of_28():
    assert make("cnn", (1, 28, 28))(torch.rand(2, 1, 28, 28)).shape == (2, 10)


def test_normalisation_is_the_first_layer():
    model = make_classifier("cnn", (1, 28, 28), 10, Normalize([0.3], [0.2]))
    x = torch.rand(2, 1, 28, 28)
    torch.testing.assert_close(model(x), model[1]((x - 0.3) / 0.2))


def test_unknown_architectures_are_refused_with_the_nearest_name():
    with pytest.raises(UnknownName, match=r"unknown architecture 'renset20'; did you mean 'resnet20'\?"):
        make("renset20")
    with pytest.raises(ArgumentError, match=r"a CIFAR ResNet has 6k .+ 2 layers"):
        make("resnet21")


def test_timm_models_are_made_by_name(monkeypatch):
    """A module that stands in for timm, which the project does not need."""
    timm = ModuleType("timm")
    timm.list_models = lambda: ["vit_tiny", "convnext_nano"]

    def create_model(name, *, pretrained, num_classes, in_chans):
        assert (name, pretrained) == ("vit_tiny", False)
        return nn.Sequential(nn.Conv2d(in_chans, num_classes, 8), nn.AdaptiveAvgPool2d(1), nn.Flatten())

    timm.create_model = create_model
    monkeypatch.setitem(sys.modules, "timm", timm)
    assert make("timm:vit_tiny", (3, 16, 16), 7)(torch.rand(2, 3, 16, 16)).shape == (2, 7)
    with pytest.raises(UnknownName, match=r"unknown timm model 'vit_tny'; did you mean 'vit_tiny'\?"):
        make("timm:vit_tny")
    with pytest.raises(ArgumentError, match=r"arch = timm:vit_tiny .*it does not fit inputs of the shape \(3, 4, 4\)"):
        make("timm:vit_tiny", (3, 4, 4))


def test_a_missing_timm_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ArgumentError, match="timm is not installed; run `pip install timm`"):
        make("timm:vit_tiny")
