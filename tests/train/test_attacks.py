"""PGD against closed forms: the best attack on a linear classifier, balls, and fresh noise."""

import math

import pytest
import torch
from torch import nn

from ars.errors import ArgumentError
from ars.noise import GAUSSIAN, NoiseKind
from ars.train.attacks import Attack, clean_loss, noisy_loss, pgd, vote_loss
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


ATTACKS = [Attack(), Attack(norm=2, epsilon=0.5), Attack(norm=1, epsilon=2.0)]


@pytest.mark.parametrize("attack", ATTACKS, ids=["linf", "l2", "l1"])
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


@pytest.mark.parametrize("norm", [1, 2, math.inf])
def test_an_attack_on_a_linear_classifier_is_the_known_best_one(norm):
    """Two classes: the loss rises fastest along the weights' difference w (l2), along its signs (l-inf), or along its
    largest value (l1), so the attacked margin is the clean one less epsilon ||w||, in the dual norm."""
    torch.manual_seed(0)
    linear = nn.Linear(16, 2)
    x, labels = torch.full((3, 16), 0.5) + 0.1 * torch.rand(3, 16), torch.zeros(3, dtype=torch.long)
    attack = Attack(norm=norm, epsilon=0.1)
    with torch.no_grad():  # a caller that evaluates need not think of gradients
        moved = pgd(clean_loss(linear), x, labels, attack)
    w = (linear.weight[1] - linear.weight[0]).detach()
    largest = torch.where(w.abs() == w.abs().max(), w.sign(), 0)
    best = 0.1 * {1: largest, 2: w / w.norm(), math.inf: w.sign()}[norm]
    torch.testing.assert_close(moved - x, best.expand(3, 16), atol=1e-6, rtol=1e-4)
    margins = [(linear(each)[:, 0] - linear(each)[:, 1]).detach() for each in (x, moved)]
    dual = w.norm(p={1: math.inf, 2: 2, math.inf: 1}[norm])
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


@pytest.mark.parametrize("bad", [{"norm": 3}, {"epsilon": -1.0}, {"epsilon": math.inf}, {"steps": 0}])
def test_attacks_that_are_none_are_refused(bad):
    with pytest.raises(ArgumentError):
        Attack(**bad)


@pytest.mark.parametrize("norm", [1, 2, math.inf])
def test_a_scale_stretches_the_ball_and_pixels_need_not_bound_it(norm):
    """The best attack on a linear classifier in ||delta / s||: in l2 it is along s^2 w."""
    torch.manual_seed(0)
    linear = nn.Linear(16, 2)
    scale = torch.linspace(0.1, 2, 16)
    x, labels = torch.full((2, 16), 0.9), torch.zeros(2, dtype=torch.long)
    moved = pgd(clean_loss(linear), x, labels, Attack(norm=norm, epsilon=1.0), scale=scale, pixels=False)
    size = ((moved - x) / scale).norm(dim=1, p=norm)
    torch.testing.assert_close(size, torch.ones(2), atol=1e-4, rtol=1e-4)
    stretched = scale * (linear.weight[1] - linear.weight[0]).detach()
    largest = torch.where(stretched.abs() == stretched.abs().max(), stretched.sign(), 0)
    best = scale * {1: largest, 2: stretched / stretched.norm(), math.inf: stretched.sign()}[norm]
    torch.testing.assert_close(moved - x, best.expand(2, 16), atol=1e-3, rtol=1e-3)


def test_an_ascent_starts_where_it_is_told_to():
    """Without a gradient it stays there, but for the way back into the ball."""
    x, labels = torch.full((2, 4), 0.5), torch.zeros(2, dtype=torch.long)
    start = x + torch.tensor([[0.1, 0, 0, 0], [3.0, 4.0, 0, 0]])
    nowhere = pgd(lambda x, labels: 0 * x.sum(), x, labels, Attack(norm=2, epsilon=1.0), start=start, pixels=False)
    torch.testing.assert_close(nowhere - x, torch.tensor([[0.1, 0, 0, 0], [0.6, 0.8, 0, 0]]))


def test_the_nearest_point_of_an_l1_ball_is_that_of_a_search():
    """All sizes are reduced by one amount, found here by bisection."""
    from ars.train.attacks import _project

    torch.manual_seed(0)
    delta = torch.randn(20, 3, 5) * torch.linspace(0.01, 2, 20)[:, None, None]
    projected = _project(delta, 1, 1.0)
    for one, found in zip(delta.double(), projected, strict=True):
        low, high = 0.0, float(one.abs().max())
        if one.abs().sum() <= 1:
            high = 0.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if (one.abs() - middle).clamp_min(0).sum() > 1 else (low, middle)
        expected = one.sign() * (one.abs() - high).clamp_min(0)
        torch.testing.assert_close(found, expected.float(), atol=1e-5, rtol=1e-4)


def test_the_vote_loss_is_the_log_ratio_of_mean_probabilities():
    """Without a scale every draw is the same, so it is a difference of logits."""
    torch.manual_seed(0)
    linear, random = nn.Linear(6, 3), torch.Generator().manual_seed(0)
    x, labels = torch.rand(4, 6), torch.tensor([0, 1, 2, 0])
    loss = vote_loss(linear, lambda x: (torch.zeros_like(x), torch.zeros_like(x)), GAUSSIAN, 5, random)
    logits = linear(x)
    own = logits.gather(1, labels[:, None])[:, 0]
    others = logits.scatter(1, labels[:, None], -math.inf).amax(1)
    torch.testing.assert_close(loss(x, labels), (others - own).sum())
