"""Smooth, which takes the place of the field's class: its interface, its guarantee, and the classifier as it is now."""

import numpy as np
import pytest
import torch
from scipy.stats import beta, norm
from support.modules import CLASSES, SHAPE, AlwaysDropout, Bessel, Branches, Linear, Net
from torch import nn

from ars import ABSTAIN, Smooth
from ars.bench.pytorch_path import sample_votes
from ars.errors import ArgumentError, DataError, ModelError, RunError

X = torch.rand(SHAPE, generator=torch.Generator().manual_seed(1))
SIGMA, N0, N, ALPHA = 0.25, 100, 4000, 0.001


class Halves(nn.Module):
    """Two classes, divided by a plane: class 0 where the mean of the pixels exceeds a threshold."""

    def __init__(self, threshold):
        super().__init__()
        self.threshold = nn.Parameter(torch.tensor(float(threshold)))

    def forward(self, x):
        score = x.flatten(1).mean(1) - self.threshold
        return torch.stack([score, -score], 1)


@pytest.fixture(scope="module")
def smooth():
    """Of a module in training mode, which always votes for class 2."""
    module = Net().train()
    with torch.no_grad():
        module.head.bias[2] += 1000
    return Smooth(module, CLASSES, SIGMA)


def test_the_answers_are_those_of_the_field(smooth):
    predicted, radius = smooth.certify(X, N0, N, ALPHA, 1000)
    assert type(predicted) is int
    assert type(radius) is float
    assert predicted == smooth.predict(X, N, ALPHA, 1000) == 2
    assert Smooth.ABSTAIN == ABSTAIN == -1
    assert smooth.base_classifier.training


def test_radii_are_statistically_those_of_the_field():
    """One classifier, whose probabilities are known: both loops give radii around the same value. The mean of 12 radii
    is off by four standard errors with a probability of 1e-4."""
    classifier = Halves(X.mean() - 0.02)
    p = norm.cdf(0.02 * np.sqrt(X.numel()) / SIGMA)

    def bound(votes):
        return SIGMA * norm.ppf(beta.ppf(ALPHA, votes, N - votes + 1))

    spread = np.std(bound(np.random.default_rng(0).binomial(N, p, 10_000)))
    expected = bound(round(N * p))
    torch.manual_seed(0)
    theirs = [bound(sample_votes(classifier, 2, X, 0.0, SIGMA, N, 1000)[0]) for _ in range(12)]
    smooth = Smooth(lambda x: classifier(x), 2, SIGMA)
    ours = [smooth.certify(X, N0, N, ALPHA, 1000) for _ in range(12)]
    assert {predicted for predicted, _ in ours} == {0}
    for radii in (theirs, [radius for _, radius in ours]):
        assert abs(np.mean(radii) - expected) < 4 * spread / np.sqrt(12) + 1e-3


def test_the_bound_is_binary_and_takes_all_of_alpha():
    smooth = Smooth(Halves(0.0), 2, SIGMA)  # every draw votes for class 0
    assert smooth.certify(X, N0, N, ALPHA, 1000) == (0, pytest.approx(SIGMA * norm.ppf(ALPHA ** (1 / N)), rel=1e-6))


def test_a_close_call_abstains():
    smooth = Smooth(lambda x: Halves(X.mean())(x), 2, SIGMA)
    assert smooth.certify(X, N0, N, ALPHA, 1000) == (ABSTAIN, 0.0)
    assert smooth.predict(X, N, ALPHA, 1000) == ABSTAIN


def test_inputs_may_be_of_any_float_type_need_a_gradient_or_be_a_batch_of_one(smooth):
    predicted, radius = smooth.certify(X, N0, N, ALPHA, 1000)
    for x in (X.double(), X.clone().requires_grad_(), X[None], X.numpy(), X.bfloat16()):
        assert smooth.certify(x, N0, N, ALPHA, 1000) == (predicted, pytest.approx(radius, rel=1e-6))


def test_a_batch_is_refused(smooth):
    with pytest.raises(DataError, match=r"its shape \(2, 3, 8, 8\) is that of a batch of 2"):
        smooth.certify(torch.stack([X, X]), N0, N, ALPHA, 1000)


def test_training_between_two_calls_is_seen(smooth):
    """The negative control: a copy that was kept would go on certifying the class of before."""
    module = Halves(0.0)
    smooth = Smooth(module, 2, SIGMA)
    assert smooth.certify(X, N0, N, ALPHA, 1000)[0] == 0
    with torch.no_grad():
        module.threshold += 1
    assert smooth.certify(X, N0, N, ALPHA, 1000)[0] == 1
    smooth.sigma = 0.125
    assert smooth.certify(X, N0, N, ALPHA, 1000)[1] < SIGMA * norm.ppf(ALPHA ** (1 / N)) * 0.51


def test_wrong_arguments_are_said(smooth):
    with pytest.raises(ArgumentError, match="num_classes = 7 is not valid; the base classifier has 4 classes"):
        Smooth(lambda x: Linear()(x), 7, SIGMA).certify(X, N0, N, ALPHA, 1000)
    with pytest.raises(ArgumentError, match="sigma"):
        Smooth(Linear(), CLASSES, -1.0)
    for wrong in ((0, N, ALPHA, 1000), (N0, 0, ALPHA, 1000), (N0, N, 2.0, 1000), (N0, N, ALPHA, 0)):
        with pytest.raises(ArgumentError):
            smooth.certify(X, *wrong)


@pytest.mark.parametrize("kind", [Bessel, Branches])
def test_a_module_that_cannot_be_exported_is_run_by_torch_with_a_warning(kind):
    """The field's class runs it, and Smooth has no argument for a backend."""
    module = kind()
    smooth = Smooth(module, CLASSES, SIGMA)
    with pytest.warns(UserWarning, match=f"{kind.__name__}: its .*, so torch runs it as it is, which may be slower"):
        predicted, radius = smooth.certify(X, N0, N, ALPHA, 1000)
    as_it_is = Smooth(lambda x: module(x), CLASSES, SIGMA).certify(X, N0, N, ALPHA, 1000)
    assert predicted == as_it_is[0]
    assert radius == pytest.approx(as_it_is[1], abs=0.1)
    assert smooth.predict(X, N, ALPHA, 1000) == predicted  # it is not exported again
    with torch.no_grad():
        module.head.bias[predicted] -= 1000
    with pytest.warns(UserWarning, match="torch runs it as it is"):
        assert smooth.certify(X, N0, N, ALPHA, 1000)[0] != predicted


def test_a_module_that_draws_random_numbers_is_refused_nevertheless():
    with pytest.raises(ModelError, match="its forward must neither draw random numbers nor train"):
        Smooth(AlwaysDropout(), CLASSES, SIGMA).certify(X, N0, N, ALPHA, 1000)


def test_an_input_has_no_number(smooth):
    with pytest.raises(RunError, match=r"^the input: none of the first 100 draws has finite logits"):
        Smooth(lambda x: torch.full((len(x), 4), torch.nan), CLASSES, SIGMA).certify(X, N0, N, ALPHA, 1000)
