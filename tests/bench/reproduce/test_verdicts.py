"""The sentences about the published figures follow from intervals, at each radius."""

from types import SimpleNamespace

import pytest

from ars.bench.paper.published import AccuracyRow, AccuracyTable
from ars.bench.reproduce.presets import Wanted
from ars.bench.reproduce.verdicts import Certified, best_over_sigma, verdicts
from ars.engine.decisions.overview import Accuracy
from ars.engine.statistics.accuracy import Interval

RADII = (0.0, 0.5, 1.0)
THEIRS = AccuracyTable(
    "Table 1",
    "CIFAR-10",
    RADII,
    (
        AccuracyRow("Cohen", "isotropic", "ResNet-110", "global", (80, 50, 10)),
        AccuracyRow("Hong", "input", "ResNet-110", "frozen", (84, None, 40)),
    ),
)


def certified(kind, sigma0, *percent):
    """A model with these certified accuracies, and intervals of five points to each side."""
    at = [
        Accuracy(radius, value / 100, Interval(value / 100 - 0.05, value / 100 + 0.05))
        for radius, value in zip(RADII, percent, strict=True)
    ]
    return Certified(Wanted(kind, sigma0), SimpleNamespace(accuracies=tuple(at)), None)


def say(*models):
    best = {kind: best_over_sigma([one for one in models if one.model.kind == kind]) for kind in ("isotropic", "input")}
    return list(verdicts(models, best, THEIRS))


def test_the_best_over_sigma_is_taken_at_each_radius_with_its_interval():
    best = best_over_sigma([certified("isotropic", 0.25, 70, 40, 0), certified("isotropic", 1.0, 50, 45, 20)])
    assert [at.share for at in best] == [0.7, 0.45, 0.2]
    assert best[2].interval == Interval(pytest.approx(0.15), pytest.approx(0.25))
    assert best_over_sigma([]) == []


def test_each_radius_is_inside_below_or_above_and_radii_without_a_published_figure_are_left_out():
    isotropic, inputs, claim, crossing = say(
        certified("isotropic", 0.25, 70, 40, 0),
        certified("isotropic", 1.0, 50, 48, 20),
        certified("input", 0.5, 76, 70, 42),
    )
    assert isotropic == (
        "Isotropic noise (scope global), against Cohen's ResNet-110: our interval contains the published figure at "
        "0.5; ours is lower at 0; ours is higher at 1."
    )
    assert inputs.endswith("our interval contains the published figure at 1; ours is lower at 0.")
    assert "is confirmed at 0.5, 1: there the intervals" in claim
    assert crossing == "With isotropic noise, sigma0 = 1 certifies more than 0.25 from radius 0.5 on."


def test_what_is_not_certified_is_said_and_nothing_is_claimed_of_it():
    assert say() == [
        "No model of isotropic noise (scope global) has been certified yet.",
        "No model of input-wise noise (scope frozen) has been certified yet.",
    ]
    assert len(say(certified("isotropic", 0.5, 70, 40, 0))) == 2
    claim = say(certified("isotropic", 0.5, 70, 40, 0), certified("input", 0.5, 71, 41, 0))[2]
    assert claim.endswith("is confirmed at no radius: the intervals of the best models overlap everywhere.")
