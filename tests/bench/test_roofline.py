"""The roofline of docs/gpu.md: its tables are the computed ones, and its networks are ours."""

from pathlib import Path

import pytest
import torch
from torch import nn

from ars.bench.roofline import GPUS, NETWORKS, draw, tables
from ars.train.classifiers import Normalize, make_classifier

DOCUMENT = (Path(__file__).parents[2] / "docs" / "gpu.md").read_text()


def test_the_document_has_the_tables_as_they_are_computed():
    assert tables() in DOCUMENT
    assert "computed, not measured" in DOCUMENT


@pytest.mark.parametrize(("arch", "network"), [("resnet110", NETWORKS[0]), ("resnet50", NETWORKS[1])])
def test_multiplications_and_values_are_those_of_our_networks(arch, network):
    side = int((network.dimensions / 3) ** 0.5)
    model = make_classifier(arch, (3, side, side), network.classes, Normalize([0.5] * 3, [0.5] * 3)).eval()
    multiplications = values = 0

    def count(module, _, output):
        nonlocal multiplications, values
        if isinstance(module, nn.Conv2d):
            multiplications += output.numel() * module.weight[0].numel()
            values += 2 * output.numel()  # written, and read by the next
        elif isinstance(module, nn.Linear):
            multiplications += module.weight.numel()
        elif type(module).__name__ == "_Residual":
            values += output.numel()  # the shortcut

    for module in model.modules():
        module.register_forward_hook(count)
    with torch.no_grad():
        model(torch.zeros(1, 3, side, side))
    assert multiplications / 1e9 == pytest.approx(network.multiplications, rel=0.02)
    assert values / 1e6 == pytest.approx(network.values, rel=0.02)


def test_noise_and_votes_are_small_beside_every_model():
    for gpu in GPUS:
        for network in NETWORKS:
            for precision in gpu.operations:
                one = draw(gpu, network, precision)
                assert one.fill + one.count < 0.08 * one.model
