"""Parity: on which draws it is measured, and what its numbers mean."""

import numpy as np
import pytest

from ars.engine.lattice import Lattice
from ars.engine.requests import Phase, Request
from ars.engine.samplers.host import HostSampler
from ars.export.parity import CALIBRATION_DRAWS, DRAWS, ESTIMATION, SELECTION, NoisyInputs, collect_logits, compare
from ars.manifest import NoiseSettings
from ars.noise import GAUSSIAN, NoiseKind

CLASSES = 3


@pytest.fixture
def inputs():
    rng = np.random.default_rng(0)
    x = rng.random((6, 1, 4, 4), dtype=np.float32)
    scale = np.full_like(x, 0.5)
    labels = np.array([0, 1, 2, 0, 1, 2])
    return NoisyInputs(x, labels, np.zeros_like(x), scale, NoiseSettings("gaussian", NoiseKind.DATASET, 0.5))


def one_hot(votes):
    """Logits whose top class is the vote: [inputs, DRAWS, CLASSES]."""
    return np.eye(CLASSES, dtype=np.float32)[np.broadcast_to(votes, (6, DRAWS))]


def test_the_draws_are_the_engine_s_own(inputs):
    sampler = HostSampler(1, 16, GAUSSIAN, seed=0, lattice=Lattice(2.0**-8))
    sampler.load(0, inputs.x[2], 0, 0.5)
    expected = np.empty((DRAWS, 1, 4, 4), np.float32)
    requests = [Request(0, 2, Phase.SELECTION, 0, SELECTION), Request(0, 2, Phase.ESTIMATION, 0, ESTIMATION)]
    sampler.fill(expected, requests)
    assert np.array_equal(list(inputs.draws())[2], expected)


def test_what_is_calibrated_on_is_not_compared_on(inputs):
    for drawn, other in zip(inputs.draws(), inputs.calibration_draws(), strict=True):
        assert len(other) == CALIBRATION_DRAWS
        assert not {row.tobytes() for row in drawn} & {row.tobytes() for row in other}


def test_a_model_has_all_in_common_with_itself(inputs):
    logits = collect_logits(inputs, lambda batch: batch.reshape(len(batch), -1)[:, :CLASSES])
    parity = compare(inputs, logits, logits.copy(), "torch", "same 1.0")
    assert (parity.largest_difference, parity.agreement, parity.certified_accuracy_difference) == (0, 1, 0)
    assert (parity.inputs, parity.draws, parity.reference, parity.runner) == (6, 6 * DRAWS, "torch", "same 1.0")


def test_a_draw_whose_logits_are_not_finite_agrees_with_none(inputs):
    theirs = one_hot(inputs.labels[:, None])
    ours = theirs.copy()
    ours[0, :16, 0] = np.nan
    parity = compare(inputs, theirs, ours, "torch", "x")
    assert parity.agreement == 1 - 16 / (6 * DRAWS)
    assert np.isnan(parity.largest_difference)


def test_a_difference_is_a_share_of_the_largest_logit(inputs):
    theirs = 10 * one_hot(inputs.labels[:, None])
    ours = theirs.copy()
    ours[3, 5, 1] += 0.5
    assert compare(inputs, theirs, ours, "torch", "x").largest_difference == pytest.approx(0.05)


def test_certified_accuracy_falls_where_votes_are_lost(inputs):
    """One input of six loses its certificate: all of its draws now vote for another class."""
    theirs = one_hot(inputs.labels[:, None])
    ours = theirs.copy()
    ours[0] = one_hot(1)[0]
    parity = compare(inputs, theirs, ours, "torch", "x")
    assert parity.certified_accuracy_difference == pytest.approx(1 / 6)
    assert parity.agreement == pytest.approx(5 / 6)


def test_without_labels_no_accuracy_is_compared(inputs):
    unknown = NoisyInputs(inputs.x, None, inputs.mean, inputs.scale, inputs.noise)
    logits = one_hot(0)
    assert compare(unknown, logits, logits, "torch", "x").certified_accuracy_difference is None
