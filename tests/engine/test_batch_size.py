"""`--batch auto` among rates that are given."""

from types import SimpleNamespace

import pytest

from ars.engine import batch_size


@pytest.fixture
def choose(monkeypatch):
    def choose(rates, shape=(1, 28, 28)):
        monkeypatch.setattr(batch_size, "_measure_rate", lambda lanes, sampler: rates[lanes.batch])
        sampler = SimpleNamespace(load=lambda *arguments: None)
        return batch_size.find_best_batch(lambda size: SimpleNamespace(batch=size, close=lambda: None), sampler, shape)

    return choose


def test_the_smallest_size_near_the_best_rate_is_chosen(choose):
    assert choose({1: 10e3, 4: 30e3, 16: 50e3, 32: 60e3, 64: 70e3, 128: 71e3, 256: 69e3, 512: 40e3}) == (64, 70e3)


def test_a_small_size_that_met_other_work_does_not_end_the_search(choose):
    assert choose({1: 10e3, 4: 2e3, 16: 9e3, 32: 60e3, 64: 70e3, 128: 50e3}) == (64, 70e3)


def test_a_network_that_is_slow_is_not_tried_with_batches_that_take_long(choose):
    assert choose({1: 18, 4: 20, 16: 20}) == (4, 20)


def test_a_network_that_fills_memory_is_not_tried_with_larger_batches(choose, monkeypatch):
    """A row takes a hundredth of the memory: 16 rows take less than a quarter, and 32 rows would take more."""
    peaks = iter([0, 10, 40, 160])
    monkeypatch.setattr(batch_size, "_memory", lambda: 1000)
    monkeypatch.setattr(batch_size, "_peak_memory", lambda: next(peaks))
    assert choose({1: 100, 4: 200, 16: 300}) == (16, 300)
