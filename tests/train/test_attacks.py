"""PGD against closed forms: the best attack on a linear classifier, balls, and fresh noise."""

import math

import pytest
import torch
from torch import nn

from ars.errors import ArgumentError
from ars.noise import GAUSSIAN, NoiseKind
from ars.train.attacks import Attack, clean_loss, noisy_loss, pgd
from ars.train.noise_models import NoiseShape, make_noise
from ars.train.smoothing import SmoothedModel

SHAPE = (1, 8, 8)
BOUNDS = NoiseShape(sigma0=0.5, mean_max=0.3, floor=0.8, ceiling=3.0)


def losses(classifier):
    model = SmoothedModel(classifier, make_noise(NoiseKind.INPUT, SHAPE, BOUNDS), 0.5)
    return {
        "clean": clean_loss(classifier),
        "noisy": noisy_loss(model, GAUSSIAN, 16, through_generator=False),
        "generator": noisy_loss(model, GAUSSIAN, 16, through_generator=True),
    }


@pytest.mark.parametrize("attack", [Attack(), Attack(norm=2, epsilon=0.5)], ids=["linf", "l2"])
@pytest.mark.parametrize("which", ["clean", "noisy", "generator"])
def test_attacks_raise_the_loss_and_stay_in_their_ball(attack, which):
    torch.manual_seed(0)
    classifier = nn.Sequential(nn.Flatten(), nn.Linear(64, 5))
    x, labels = torch.rand(6, *SHAPE), torch.randint(0, 5, (6,))
    moved = pgd(losses(classifier)[which], x, labels, attack)
    assert 0 <= moved.min() <= moved.max() <= 1
    size = (moved - x).flatten(1).norm(dim=1, p=attack.norm)
    assert size.max() <= attack.epsilon * (1 + 1e-5)
    assert size.min() > 0.2 * attack.epsilon
    with torch.no_grad():
        assert clean_loss(classifier)(moved, labels) > clean_loss(classifier)(x, labels)


@pytest.mark.parametrize("norm", [2, math.inf])
def test_an_attack_on_a_linear_classifier_is_the_known_best_one(norm):
    """Two classes: the loss rises fastest along the weights' difference w (l2), or along its signs (l-inf), so the
    attacked margin is the clean one less epsilon ||w||, in the dual norm."""
    torch.manual_seed(0)
    linear = nn.Linear(16, 2)
    x, labels = torch.full((3, 16), 0.5) + 0.1 * torch.rand(3, 16), torch.zeros(3, dtype=torch.long)
    attack = Attack(norm=norm, epsilon=0.1)
    with torch.no_grad():  # a caller that evaluates need not think of gradients
        moved = pgd(clean_loss(linear), x, labels, attack)
    w = (linear.weight[1] - linear.weight[0]).detach()
    best = 0.1 * (torch.sign(w) if norm == math.inf else w / w.norm())
    torch.testing.assert_close(moved - x, best.expand(3, 16), atol=1e-6, rtol=1e-4)
    margins = [(linear(each)[:, 0] - linear(each)[:, 1]).detach() for each in (x, moved)]
    dual = w.norm(p=1 if norm == math.inf else 2)
    torch.testing.assert_close(margins[1], margins[0] - 0.1 * dual, atol=1e-5, rtol=1e-4)


def test_the_default_attack_lowers_accuracy():
    """A classifier that asks which half is brighter, and images whose halves differ by less than twice epsilon."""
    linear = nn.Linear(64, 2, bias=False)
    with torch.no_grad():
        linear.weight[0] = torch.cat([torch.ones(32), -torch.ones(32)])
        linear.weight[1] = -linear.weight[0]
    classifier = nn.Sequential(nn.Flatten(), linear)
    labels = torch.arange(10) % 2
    x = torch.full((10, *SHAPE), 0.5)
    x[labels == 0, :, :4] += 0.1
    x[labels == 1, :, 4:] += 0.1
    moved = pgd(clean_loss(classifier), x, labels, Attack())
    assert (classifier(x).argmax(1) == labels).all()
    assert not (classifier(moved).argmax(1) == labels).any()


@pytest.mark.parametrize("through_generator", [False, True])
def test_each_step_on_the_noisy_loss_draws_fresh_noise(through_generator):
    seen = []

    class Recorder(nn.Module):
        def forward(self, x):
            seen.append(x.detach().clone())
            return x.flatten(1)[:, :2]

    torch.manual_seed(0)
    model = SmoothedModel(Recorder(), make_noise(NoiseKind.ISOTROPIC, SHAPE, BOUNDS), 0.5)
    x = torch.full((2, *SHAPE), 0.5)
    loss = noisy_loss(model, GAUSSIAN, 3, through_generator=through_generator)
    pgd(loss, x, torch.tensor([0, 1]), Attack(epsilon=0.0, steps=4))  # x stays: what differs is the noise
    assert len(seen) == 4
    assert len(torch.stack(seen).unique(dim=0)) == 4
    assert len(seen[0].unique(dim=0)) == 6


def test_the_gradient_through_the_generator_has_a_part_that_the_frozen_one_lacks():
    torch.manual_seed(0)
    noise = make_noise(NoiseKind.INPUT, SHAPE, BOUNDS)
    for parameter in noise.parameters():
        nn.init.normal_(parameter, std=0.3)
    model = SmoothedModel(nn.Sequential(nn.Flatten(), nn.Linear(64, 5)), noise, 0.5)
    x, labels = torch.rand(2, *SHAPE, requires_grad=True), torch.tensor([0, 1])
    gradients = []
    for through in (False, True):
        torch.manual_seed(1)
        loss = noisy_loss(model, GAUSSIAN, 4, through_generator=through)(x, labels)
        gradients.append(torch.autograd.grad(loss, x)[0])
    assert not torch.allclose(*gradients)


@pytest.mark.parametrize("bad", [{"norm": 1}, {"epsilon": -1.0}, {"epsilon": math.inf}, {"steps": 0}])
def test_attacks_that_are_none_are_refused(bad):
    with pytest.raises(ArgumentError):
        Attack(**bad)
