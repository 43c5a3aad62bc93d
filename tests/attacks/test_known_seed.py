"""A model that was built from the noise of a known seed. No program can certify it rightly with that seed, so seeds are
random, and whoever makes the model must not know the seed beforehand."""

import numpy as np
import pytest
from onnx import helper
from support import models

import ars
from ars.engine.requests import Phase, Request
from ars.engine.samplers.host import HostSampler
from ars.noise import GAUSSIAN

SHAPE, SIGMA, N = (1, 32, 32), 0.5, 1000
KNOWN = 7


@pytest.fixture
def classifier_file(tmp_path):
    """A linear classifier of x = 0 whose two classes have the same probability, 1/2, under Gaussian noise. Its weights
    are the sum of the known noise, so they point to where that noise is."""
    d = int(np.prod(SHAPE))
    sampler = HostSampler(1, d, GAUSSIAN, KNOWN)
    sampler.load(0, np.zeros(d), 0, SIGMA)
    y = np.empty((N, d), np.float32)
    sampler.fill(y, [Request(0, 0, Phase.ESTIMATION, 0, N)])
    direction = y.sum(0)
    nodes = [helper.make_node("Flatten", ["x"], ["flat"]), helper.make_node("MatMul", ["flat", "W"], ["logits"])]
    weights = np.stack([direction, -direction], 1) / np.linalg.norm(direction)
    inputs, outputs = [models.value("x", "n", *SHAPE)], [models.value("logits", "n", 2)]
    return models.save(tmp_path / "model.onnx", nodes, inputs, outputs, [("W", weights.astype(np.float32))])


@pytest.mark.parametrize("noise_stream", [1, 2])
def test_a_known_seed_certifies_a_coin_toss(classifier_file, noise_stream):
    """The negative control. Noise stream 2 rounds the same noise, so this seed fools it, too."""
    with ars.load(classifier_file, sigma=SIGMA, seed=KNOWN, noise_stream=noise_stream, batch=100) as classifier:
        certificate = classifier.certify(np.zeros(SHAPE), n=N, n0=10, input_id=0)
    assert certificate.predicted == 0
    assert certificate.radius > 0.1


def test_a_random_seed_does_not(classifier_file):
    with ars.load(classifier_file, sigma=SIGMA, batch=100) as classifier:
        assert classifier.certify(np.zeros(SHAPE), n=N, n0=10, input_id=0).abstained


def test_seeds_are_random_and_calls_have_noise_of_their_own(classifier_file):
    x = np.zeros(SHAPE)
    with ars.load(classifier_file, sigma=SIGMA, batch=100) as one, ars.load(classifier_file, sigma=SIGMA) as other:
        assert one.seed != other.seed
        assert one.certify(x, n=N, n0=10).counts != one.certify(x, n=N, n0=10).counts
        assert one.predict(x, n=N).counts != one.predict(x, n=N).counts
        same = [one.certify(x, n=N, n0=10, input_id=3).counts for _ in range(2)]
        assert same[0] == same[1]
