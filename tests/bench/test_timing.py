"""Interleaved timings and their ratios."""

from types import SimpleNamespace

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


@pytest.fixture
def clock(monkeypatch):
    """A clock that only candidates move, so that no other work on the machine does."""

    class Clock:
        now = 0.0

        def takes(self, seconds, log, name):
            def candidate():
                log.append(name)
                self.now += seconds

            return candidate

    clock = Clock()
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    return clock


def test_each_candidate_has_a_turn_in_each_round(clock):
    order = []
    timings = interleave({"a": clock.takes(1.0, order, "a"), "b": clock.takes(2.0, order, "b")}, rounds=3)
    assert order == ["a", "b"] * 4, "a warm-up and three rounds"
    assert timings.seconds == {"a": [1.0] * 3, "b": [2.0] * 3}


def test_a_short_call_is_repeated_until_a_turn_is_long_enough(clock):
    calls = []
    timings = interleave({"a": clock.takes(0.01, calls, "a")}, rounds=2)
    assert len(calls) == 1 + 2 * 15, "turns of 0.15 seconds"
    assert timings.seconds["a"] == pytest.approx([0.01, 0.01])
