"""Noise modules, losses and attacks against closed forms and finite differences."""

import math

import pytest
import torch
from scipy import stats
from torch import nn

from ars.errors import ArgumentError, UnknownName
from ars.noise import FAMILIES, GAUSSIAN, NoiseKind
from ars.train.attacks import Attack, clean_loss, noisy_loss, pgd
from ars.train.classifiers import Normalize, make_classifier
from ars.train.noise_models import NoiseGenerator, NoiseShape, make_noise
from ars.train.smoothing import SmoothedModel, standard_noise

BOUNDS = NoiseShape(sigma0=0.5, mean_max=0.3, floor=0.8, ceiling=3.0)
families = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)


class Given(nn.Module):
    """Noise with given maps."""

    def __init__(self, mean, scale):
        super().__init__()
        self.mean, self.scale = nn.Parameter(mean), nn.Parameter(scale)

    def forward(self, x):
        return self.mean.expand_as(x), self.scale.expand_as(x)


@families
def test_standard_noise_has_its_distribution(family):
    """Kolmogorov-Smirnov on 200,000 values; a perfect source fails 1 time in 10^6."""
    z = standard_noise(family, torch.zeros(100, 200), 10, torch.Generator().manual_seed(0)).flatten().double().numpy()
    law = {"gaussian": stats.norm(), "laplace": stats.laplace(), "uniform": stats.uniform(-1, 2)}[family.name]
    assert stats.kstest(z, law.cdf).pvalue > 1e-6


@pytest.mark.parametrize("kind", NoiseKind)
def test_maps_stay_inside_their_bounds_and_start_flat(kind):
    torch.manual_seed(0)
    noise = make_noise(kind, (3, 8, 8), BOUNDS)
    x = torch.rand(5, 3, 8, 8)
    mean, scale = noise(x)
    assert mean.shape == scale.shape == x.shape
    assert mean.abs().max() < 0.01
    assert (scale > 0).all()
    assert scale.max() - scale.min() < 0.05
    for parameter in noise.parameters():
        nn.init.normal_(parameter, std=30.0)
    mean, scale = noise(x)
    assert mean.abs().max() <= 0.3
    if kind is not NoiseKind.ISOTROPIC:
        assert scale.min() >= 0.8 * 0.5 - 1e-6
        assert scale.max() <= 3.0 * 0.5 + 1e-6
    same = torch.equal(noise(x)[1][0], noise(x)[1][1])
    assert same == (kind is not NoiseKind.INPUT), "only a generator's maps depend on the input"


def test_the_generator_is_five_convolutions_deep():
    convolutions = [module for module in NoiseGenerator(3, BOUNDS).modules() if isinstance(module, nn.Conv2d)]
    assert len(convolutions) == 4 + 2
    assert {convolution.kernel_size for convolution in convolutions} == {(3, 3)}


@torch.no_grad()
def test_losses_are_their_closed_forms():
    torch.manual_seed(0)
    scale = torch.full((1, 2, 2), 0.6)
    scale[0, 0, 0] = 0.4
    mean = torch.tensor([[[3.0, 0.0], [0.0, 4.0]]])
    weights = nn.Linear(4, 3)
    model = SmoothedModel(nn.Sequential(nn.Flatten(), weights), Given(mean, scale), sigma0=0.5)
    x, labels, z = torch.rand(6, 1, 2, 2), torch.randint(0, 3, (6,)), torch.randn(5, 6, 1, 2, 2)
    losses = model(x, labels, z)
    assert float(losses.variance) == pytest.approx(abs(0.4 - 0.5) / 0.5, rel=1e-5)
    assert float(losses.mean) == pytest.approx(5.0)
    by_hand = 0.0
    for draw in range(5):
        for row in range(6):
            logits = weights((x[row] + mean + scale * z[draw, row]).flatten())
            by_hand -= float(torch.log_softmax(logits, 0)[labels[row]]) / 30
    assert float(losses.smoothing) == pytest.approx(by_hand, rel=1e-5)
    total = losses.total((2.0, 3.0, 0.1))
    assert float(total) == pytest.approx(2 * by_hand + 3 * 0.2 + 0.1 * 5, rel=1e-5)


def test_gradients_of_mean_and_scale_are_finite_differences():
    torch.manual_seed(1)
    noise = Given(torch.rand(1, 2, 2, dtype=torch.float64), 0.3 + torch.rand(1, 2, 2, dtype=torch.float64))
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    model = SmoothedModel(network, noise, sigma0=0.5)
    x, labels = torch.rand(4, 1, 2, 2, dtype=torch.float64), torch.tensor([0, 1, 2, 0])
    z = torch.randn(3, 4, 1, 2, 2, dtype=torch.float64)

    def loss():
        return model(x, labels, z).total((1.0, 1.0, 0.01))

    loss().backward()
    for parameter in (noise.mean, noise.scale):
        for index in range(4):
            values = []
            for sign in (1, -1):
                with torch.no_grad():
                    parameter.view(-1)[index] += sign * 1e-6
                    values.append(float(loss()))
                    parameter.view(-1)[index] -= sign * 1e-6
            difference = (values[0] - values[1]) / 2e-6
            assert float(parameter.grad.view(-1)[index]) == pytest.approx(difference, rel=1e-4, abs=1e-7)


@pytest.mark.parametrize(
    ("arch", "shape", "parameters"),
    [("cnn", (1, 28, 28), None), ("resnet20", (3, 32, 32), 272_474), ("resnet110", (3, 32, 32), 1_730_714)],
)
def test_classifiers_have_the_published_sizes(arch, shape, parameters):
    """He et al. count 0.27 M and 1.7 M; the shortcuts here are convolutions, which adds a little."""
    model = make_classifier(arch, shape, 10, Normalize([0.5] * shape[0], [0.25] * shape[0]))
    assert model(torch.rand(2, *shape)).shape == (2, 10)
    if parameters:
        count = sum(parameter.numel() for parameter in model.parameters())
        assert parameters <= count <= 1.02 * parameters


def test_resnet50_has_the_published_size():
    model = make_classifier("resnet50", (3, 64, 64), 1000, Normalize([0.5] * 3, [0.25] * 3))
    assert sum(parameter.numel() for parameter in model.parameters()) == 25_557_032


def test_normalisation_is_the_first_layer():
    model = make_classifier("cnn", (1, 28, 28), 10, Normalize([0.3], [0.2]))
    x = torch.rand(2, 1, 28, 28)
    torch.testing.assert_close(model(x), model[1]((x - 0.3) / 0.2))


def test_unknown_architectures_are_refused_with_the_nearest_name():
    normalize = Normalize([0.5], [0.25])
    with pytest.raises(UnknownName, match=r"unknown architecture 'renset20'; did you mean 'resnet20'\?"):
        make_classifier("renset20", (1, 28, 28), 10, normalize)
    with pytest.raises(ArgumentError, match=r"a CIFAR ResNet has 6k .+ 2 layers"):
        make_classifier("resnet21", (1, 28, 28), 10, normalize)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"sigma0": 0}, "sigma = 0"),
        ({"sigma0": -1}, "sigma = -1"),
        ({"mean_max": 0}, "mean-max"),
        ({"ceiling": 1}, "ceiling"),
    ],
)
def test_bounds_that_make_no_sense_are_refused(changed, message):
    with pytest.raises(ArgumentError, match=message):
        NoiseShape(**{"sigma0": 0.5} | changed)


@pytest.mark.parametrize("attack", [Attack(), Attack(norm=2, epsilon=0.5)], ids=["linf", "l2"])
@pytest.mark.parametrize("which", ["clean", "noisy", "generator"])
def test_attacks_raise_the_loss_and_stay_in_their_ball(attack, which):
    torch.manual_seed(0)
    shape = (1, 8, 8)
    classifier = nn.Sequential(nn.Flatten(), nn.Linear(64, 5))
    model = SmoothedModel(classifier, make_noise(NoiseKind.INPUT, shape, BOUNDS), 0.5)
    x, labels = torch.rand(6, *shape), torch.randint(0, 5, (6,))
    losses = {
        "clean": clean_loss(classifier),
        "noisy": noisy_loss(model, GAUSSIAN, 16, through_generator=False),
        "generator": noisy_loss(model, GAUSSIAN, 16, through_generator=True),
    }
    moved = pgd(losses[which], x, labels, attack)
    assert 0 <= moved.min() <= moved.max() <= 1
    size = (moved - x).flatten(1).norm(dim=1, p=attack.norm)
    assert size.max() <= attack.epsilon * (1 + 1e-5)
    assert size.min() > 0.2 * attack.epsilon
    with torch.no_grad():
        assert clean_loss(classifier)(moved, labels) > clean_loss(classifier)(x, labels)


def test_an_attack_on_a_linear_classifier_is_the_known_best_one():
    """With two classes the loss rises fastest along the sign of the weights' difference."""
    linear = nn.Linear(16, 2)
    x, labels = torch.full((3, 16), 0.5), torch.zeros(3, dtype=torch.long)
    moved = pgd(clean_loss(linear), x, labels, Attack(epsilon=0.1))
    best = 0.1 * torch.sign(linear.weight[1] - linear.weight[0])
    torch.testing.assert_close(moved - x, best.expand(3, 16))


@pytest.mark.parametrize("bad", [{"norm": 1}, {"epsilon": -1.0}, {"epsilon": math.inf}])
def test_attacks_that_are_none_are_refused(bad):
    with pytest.raises(ArgumentError):
        Attack(**bad)
