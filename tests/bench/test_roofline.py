"""The roofline of docs/gpu.md: its tables are the computed ones, and its networks are ours."""

from pathlib import Path

import pytest
import torch
from simulated_gpu import instructions, ptx
from torch import nn

from ars.bench.roofline import (
    COUNT_INSTRUCTIONS,
    FILL_INSTRUCTIONS,
    GPUS,
    NETWORKS,
    draw,
    int8_input_gain,
    tables,
)
from ars.engine.lattice import Lattice
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
                assert one.fill + one.count < 0.1 * one.model


def test_an_int8_input_would_save_little():
    gains = [f"{int8_input_gain(gpu, network):.1%}" for gpu in GPUS for network in NETWORKS]
    assert gains == ["0.3%", "1.5%", "0.0%", "0.0%"]
    for network, gain in (("ResNet-110, 3x32x32", "0.3 %"), ("ResNet-50, 3x224x224", "1.5 %")):
        assert any(line.startswith(f"| {network} |") and line.endswith(f"| {gain} |") for line in DOCUMENT.splitlines())


@pytest.mark.skipif(not ptx.NVCC, reason="nvcc is not installed")
def test_the_instructions_are_those_of_the_kernels():
    assert instructions.fill_instructions(lattice=Lattice(2.0**-8)) == pytest.approx(FILL_INSTRUCTIONS, rel=0.01)
    for classes, expected in COUNT_INSTRUCTIONS.items():
        assert instructions.count_instructions(classes) == pytest.approx(expected, rel=0.01)
