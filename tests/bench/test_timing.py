"""Interleaved timings and their ratios."""

import time

import pytest

from ars.bench import timing
from ars.bench.timing import Timings, interleave


def test_ratios_are_taken_within_rounds():
    timings = Timings({"quick": [1.0, 2.0, 4.0], "slow": [3.0, 6.0, 12.0]})  # a machine that slows down
    ratio = timings.ratio("quick", "slow")
    assert (ratio.low, ratio.median, ratio.high) == (3, 3, 3)
    assert timings.ratio("slow", "quick").median == pytest.approx(1 / 3)


def test_a_machine_whose_typical_round_is_far_from_its_best_is_called_noisy():
    assert Timings({"a": [1.0, 2.0, 2.0]}).noisy
    assert not Timings({"a": [1.0, 1.1, 5.0]}).noisy


def test_each_candidate_has_a_turn_in_each_round(monkeypatch):
    monkeypatch.setattr(timing, "TURN_SECONDS", 0.004)
    order = []
    candidates = {name: lambda name=name: (order.append(name), time.sleep(0.01)) for name in ("a", "b")}
    timings = interleave(candidates, rounds=3)
    assert order == ["a", "b"] * 4, "a warm-up and three rounds"
    assert {name: len(seconds) for name, seconds in timings.seconds.items()} == {"a": 3, "b": 3}
    assert min(timings.seconds["a"]) >= 0.01


def test_a_short_call_is_repeated_until_a_turn_is_long_enough(monkeypatch):
    monkeypatch.setattr(timing, "TURN_SECONDS", 0.05)
    calls = []
    timings = interleave({"a": lambda: (calls.append(1), time.sleep(0.005))}, rounds=2)
    assert len(calls) >= 1 + 2 * 5
    assert 0.004 < timings.seconds["a"][0] < 0.02
