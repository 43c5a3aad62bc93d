"""Noise modules and losses against closed forms and finite differences."""

import math

import pytest
import torch
from scipy import stats
from torch import nn

from ars.errors import ArgumentError, UnknownName
from ars.noise import FAMILIES, NoiseKind
from ars.train.noise_models import Attenuation, DatasetNoise, GeneratorSize, NoiseGenerator, NoiseShape, make_noise
from ars.train.plan import TrainingPlan
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
    """Kolmogorov-Smirnov on 100,000 values, one of each image; a perfect source fails 1 time in 10^6."""
    z = standard_noise(family, torch.zeros(1000, 2, 3), 100, torch.Generator().manual_seed(0))
    assert z.shape == (100, 1000, 2, 3)
    law = family.in_dimensions(6).distribution
    for values in (z[..., 0, 0], z[..., 1, 2]):
        assert stats.kstest(values.flatten().double().numpy(), law.cdf).pvalue > 1e-6


def test_the_values_of_an_image_share_the_stretch_of_exponential_noise_and_no_others_do():
    z = standard_noise("exponential", torch.zeros(1000, 2, 3), 100, torch.Generator().manual_seed(0))
    largest = z.abs().amax((2, 3)).double().numpy()
    assert stats.kstest(6 * largest.flatten(), stats.gamma(6).cdf).pvalue > 1e-6
    for other in (largest[1:].flatten(), largest[:, 1:].flatten()):
        first = largest[:-1].flatten() if other.size == 99_000 else largest[:, :-1].flatten()
        assert stats.spearmanr(first, other).pvalue > 1e-6


def test_standard_noise_of_an_unknown_family_is_refused():
    with pytest.raises(UnknownName, match="unknown noise family 'cauchy'; choose one of gaussian, laplace, uniform"):
        standard_noise("cauchy", torch.zeros(2), 1)


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
    growth = (math.log(0.4 / 0.5) + 3 * math.log(0.6 / 0.5)) / 4
    assert float(losses.growth) == pytest.approx(growth, rel=1e-4)
    assert float(losses.total((2.0, 3.0, 0.1), 0.5)) == pytest.approx(float(total) - 0.5 * growth, rel=1e-5)


def consistency_of_the_field(logits, weight, eta=0.5):
    """The loss as Jeong and Shin state it, in the most literal way, for a list with the logits of each draw."""
    answers = [torch.softmax(one, 1) for one in logits]
    average = sum(answers) / len(answers)
    divergences = [(average * (average.log() - one.log())).sum(1) for one in answers]
    return (weight * sum(divergences) / len(answers) - eta * (average * average.log()).sum(1)).mean()


@torch.no_grad()
def test_consistency_is_the_loss_of_jeong_and_shin():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    model = SmoothedModel(network, Given(torch.zeros(1, 2, 2), torch.ones(1, 2, 2)), sigma0=0.5)
    x, labels, z = torch.rand(6, 1, 2, 2), torch.randint(0, 3, (6,)), torch.randn(5, 6, 1, 2, 2)
    losses = model(x, labels, z)
    added = float(losses.total((1, 1, 1), consistency=10.0) - losses.total((1, 1, 1)))
    assert added == pytest.approx(float(consistency_of_the_field([network(x + draw) for draw in z], 10.0)), rel=1e-5)
    assert float(losses.divergence) > 0
    same = model(x, labels, z[:1].repeat(5, 1, 1, 1, 1))
    assert float(same.divergence) == pytest.approx(0, abs=1e-6), "equal draws get equal answers"


def test_consistency_stays_finite_where_the_classifier_is_certain():
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    nn.init.constant_(network[1].weight, 0.0)
    network[1].bias = nn.Parameter(torch.tensor([500.0, 0.0, -500.0]))
    model = SmoothedModel(network, Given(torch.zeros(1, 2, 2), torch.ones(1, 2, 2)), sigma0=0.5)
    total = model(torch.rand(2, 1, 2, 2), torch.tensor([0, 1]), torch.randn(2, 2, 1, 2, 2)).total((1, 1, 1), 0.0, 10.0)
    total.backward()
    assert torch.isfinite(total)
    assert all(torch.isfinite(parameter.grad).all() for parameter in network.parameters())


def test_in_bf16_losses_maps_and_batch_statistics_are_float32():
    torch.manual_seed(0)
    normalization = nn.BatchNorm2d(8)
    network = nn.Sequential(nn.Conv2d(3, 8, 3), normalization, nn.ReLU(), nn.Flatten(), nn.Linear(288, 3))
    model = SmoothedModel(network, NoiseGenerator(3, BOUNDS), sigma0=0.5)
    x, labels, z = torch.rand(16, 3, 8, 8), torch.randint(0, 3, (16,)), torch.randn(2, 16, 3, 8, 8)
    seen = []
    normalization.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    with torch.autocast("cpu", torch.bfloat16):
        losses = model(x, labels, z)
        assert all(one.dtype == torch.float32 for one in model.noise(x))
    assert seen[0].dtype == torch.bfloat16, "otherwise this test tests nothing"
    assert all(value.dtype == torch.float32 for value in vars(losses).values())
    assert normalization.running_mean.dtype == normalization.running_var.dtype == torch.float32
    mean = seen[0].double().mean((0, 2, 3))
    # Sums in 8 bits would be wrong by more than a hundredth; the running mean is a tenth of the first batch's mean.
    torch.testing.assert_close(normalization.running_mean.double(), 0.1 * mean, rtol=1e-4, atol=1e-6)


@torch.no_grad()
def test_the_generator_is_its_dense_block_and_two_branches():
    torch.manual_seed(0)
    generator = NoiseGenerator(3, BOUNDS)
    for parameter in generator.parameters():
        nn.init.normal_(parameter, std=0.1)
    x = torch.rand(2, 3, 8, 8)
    features = x
    for convolution in generator.dense:
        features = torch.cat([features, nn.functional.leaky_relu(convolution(features), 0.2)], 1)
    mean, scale = generator(x)
    torch.testing.assert_close(mean, BOUNDS.mean(generator.mean_branch(features)))
    torch.testing.assert_close(scale, BOUNDS.scale(generator.scale_branch(features)))


@torch.no_grad()
def test_a_larger_generator_sees_further_and_a_stride_multiplies_what_it_sees():
    """A pixel of the maps depends on the pixels within layers + 1 steps of the grid that the generator works on."""
    torch.manual_seed(0)
    for size, reach in ((GeneratorSize(), 5), (GeneratorSize(6, 4), 7), (GeneratorSize(2, 4, 2), 6)):
        generator = make_noise(NoiseKind.INPUT, (1, 32, 32), BOUNDS, size)
        for branch in (generator.mean_branch, generator.scale_branch):
            nn.init.normal_(branch.weight, std=0.5)
        x = torch.rand(1, 1, 32, 32)
        moved = x.clone()
        moved[..., 16, 16] += 1
        for before, after in zip(generator(x), generator(moved), strict=True):
            assert before.shape == x.shape
            rows = (before != after).any(-1).flatten().nonzero().flatten()
            # With a stride, the pixels of a square share what they see.
            assert (int(rows.min()), int(rows.max())) == (16 - reach, 16 + reach + size.stride - 1)


def test_the_size_of_a_generator_is_counted_in_channels():
    wide = NoiseGenerator(3, BOUNDS, GeneratorSize(5, 24, 2))
    assert [(one.in_channels, one.out_channels) for one in wide.dense] == [(12 + 24 * k, 24) for k in range(5)]
    assert (wide.scale_branch.in_channels, wide.scale_branch.out_channels) == (132, 12)


@torch.no_grad()
def test_attenuation_leaves_noise_of_one_scale():
    noise = DatasetNoise((1, 2, 2), BOUNDS)
    noise.raw_scale.copy_(torch.tensor([[[0.0, 1.0], [2.0, 5.0]]]))
    x, z = torch.rand(3, 1, 2, 2), torch.randn(3, 1, 2, 2)
    _, scale = noise(x)
    attenuation = Attenuation(noise)
    torch.testing.assert_close(attenuation(scale * z), BOUNDS.sigma0 * z)
    torch.testing.assert_close(attenuation(x + scale * z), x * BOUNDS.sigma0 / scale + BOUNDS.sigma0 * z)
    assert attenuation.raw_scale is noise.raw_scale


def test_the_weight_of_the_volume_grows_over_the_first_half_of_training():
    plan = TrainingPlan(volume_weight=0.4)
    assert [plan.volume_weight_at(step, 100) for step in (0, 25, 50, 75, 100)] == [0.0, 0.2, 0.4, 0.4, 0.4]
    assert TrainingPlan().volume_weight_at(80, 100) == 0


def finite_differences_match(loss, parameters):
    """The gradient of the loss, at up to four places of each parameter, against central differences."""
    loss().backward()
    for name, parameter in parameters.items():
        places = torch.randperm(parameter.numel())[:4].tolist()
        for place in places:
            values = []
            for sign in (1, -1):
                with torch.no_grad():
                    parameter.view(-1)[place] += sign * 1e-6
                    values.append(float(loss()))
                    parameter.view(-1)[place] -= sign * 1e-6
            difference = (values[0] - values[1]) / 2e-6
            assert float(parameter.grad.view(-1)[place]) == pytest.approx(difference, rel=1e-4, abs=1e-7), name


@families
@pytest.mark.parametrize("kind", ["given", NoiseKind.DATASET, NoiseKind.INPUT])
def test_gradients_through_the_sampling_are_finite_differences(family, kind):
    torch.manual_seed(1)
    shape = (1, 4, 4)
    if kind == "given":
        noise = Given(torch.rand(shape), 0.3 + torch.rand(shape))
    else:
        noise = make_noise(kind, shape, BOUNDS)
        for parameter in noise.parameters():  # away from where the maps are flat, and their smallest scale is not one
            nn.init.normal_(parameter, std=0.5)
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3))
    model = SmoothedModel(network, noise, sigma0=0.5).double()
    x, labels = torch.rand(4, *shape).double(), torch.tensor([0, 1, 2, 0])
    z = standard_noise(family, x, 3).double()
    losses = {"smoothing": (1, 0, 0), "variance": (0, 1, 0), "mean": (0, 0, 1), "all": (1.0, 1.0, 0.01)}
    for weights in losses.values():
        model.zero_grad()
        finite_differences_match(
            lambda weights=weights: model(x, labels, z).total(weights), dict(noise.named_parameters())
        )


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
