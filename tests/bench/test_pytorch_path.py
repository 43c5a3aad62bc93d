"""The baseline does what the field's loop does."""

import numpy as np
import torch

from ars.bench.pytorch_path import sample_votes


class Larger(torch.nn.Module):
    """Two classes: whether the first value is above 1/2."""

    def forward(self, x):
        first = x.flatten(1)[:, :1]
        return torch.cat([0.5 - first, first - 0.5], dim=1)


def test_every_copy_votes_once_whatever_the_batch():
    torch.manual_seed(0)
    x = torch.full((1, 2, 2), 0.5)
    for batch in (1, 7, 100, 1000):
        counts = sample_votes(Larger(), 2, x, 0.0, 0.25, 500, batch)
        assert counts.sum() == 500
        assert 180 < counts[0] < 320, "six deviations around half of them"


def test_the_mean_and_the_scale_are_maps():
    mean, scale = torch.zeros(1, 2, 2), torch.full((1, 2, 2), 1e-6)
    mean[0, 0, 0] = 1.0
    assert np.array_equal(sample_votes(Larger(), 2, torch.zeros(1, 2, 2), mean, scale, 50, 16), [0, 50])
