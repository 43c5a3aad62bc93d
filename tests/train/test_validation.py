"""The scores of an epoch against what they must be."""

import pytest
import torch
from torch import nn

from ars.noise import FAMILIES
from ars.train.batches import Images
from ars.train.noise_models import IsotropicNoise
from ars.train.smoothing import SmoothedModel
from ars.train.validation import validate


class Constant(nn.Module):
    """Says class 0, whatever it sees."""

    def forward(self, x):
        return torch.tensor([1.0, 0.0]).expand(len(x), 2)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_scores_are_those_of_the_family(family):
    """Of a constant classifier every draw is right on class 0 and wrong on class 1: the radius is that of the family at
    a share of 16.5 / 17, or nothing."""
    model = SmoothedModel(Constant(), IsotropicNoise(0.25), 0.25)
    images = Images(torch.rand(100, 1, 4, 4), torch.arange(100) % 4 // 3)
    scores = validate(model, family, images, torch.device("cpu"))
    assert scores.accuracy == 0.75
    assert (scores.sigma_min, scores.mean_norm) == (0.25, 0.0)
    assert scores.sigma_geomean == pytest.approx(0.25)
    share = 16.5 / 17
    assert scores.radius == pytest.approx(0.75 * family.in_dimensions(16).radius(share, 1 - share, 0.25))
    assert not model.training


def test_large_images_are_scored_a_few_at_a_time(monkeypatch):
    sizes = []

    class Recorder(Constant):
        def forward(self, x):
            sizes.append(len(x))
            return super().forward(x)

    monkeypatch.setattr("ars.train.validation.NUMBERS", 3 * 16 * 64)
    model = SmoothedModel(Recorder(), IsotropicNoise(0.25), 0.25)
    images = Images(torch.rand(7, 1, 8, 8), torch.zeros(7, dtype=torch.long))
    assert validate(model, FAMILIES["gaussian"], images, torch.device("cpu")).accuracy == 1
    assert sizes == [3 * 16, 3 * 16, 16]
