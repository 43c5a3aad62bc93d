"""A run that stops when its intervals are narrow has intervals that hold; those of a fixed size would not."""

import numpy as np
import pytest

from ars.engine.statistics.accuracy import LEVEL, share_interval
from ars.engine.statistics.target import LOOKS, Target, random_order
from ars.errors import ArgumentError

POPULATION, SHARE, WIDTH = 2000, 0.85, 0.08


def stop(order, interval, looks, width):
    """Where a run stops whose inputs have these outcomes, and its interval there."""
    certified = np.cumsum(order)
    for number in looks:
        found = interval(int(certified[number - 1]), number, len(order))
        if found.width <= width:
            break
    return number, found


def missed(interval, looks, width, runs=1000):
    """How often the interval at which a run stops misses the truth."""
    rng, outcomes = np.random.default_rng(0), np.arange(POPULATION) < SHARE * POPULATION
    known = {}

    def remembered(k, n, population):
        if (k, n) not in known:
            known[k, n] = interval(k, n, population)
        return known[k, n]

    ends = [stop(rng.permutation(outcomes), remembered, looks, width)[1] for _ in range(runs)]
    return sum(not low <= SHARE <= high for low, high in ends) / runs


def test_the_interval_holds_where_the_run_stops():
    """Seed fixed; the rate is far below 5 %, since the looks share it."""
    target = Target(WIDTH, (0.5,))
    assert missed(target.interval, target.looks(POPULATION), WIDTH) <= 1 - LEVEL


def test_intervals_of_fixed_size_looked_at_often_do_not_hold():
    """The negative control: looking after each input, and stopping at the first interval that excludes a wish, misses
    far more often than at a level of 95 %; the intervals of the looks of a target do not."""
    wish, target = SHARE - 1e-9, Target(WIDTH, (0.5,))
    outcomes, rng = np.arange(POPULATION) < SHARE * POPULATION, np.random.default_rng(1)
    looks = target.looks(POPULATION)[:-1]

    def excluded(interval, at):
        runs = [np.cumsum(rng.permutation(outcomes)) for _ in range(200)]
        bounds = {n: {} for n in at}

        def misses(n, k):
            if k not in bounds[n]:
                low, high = interval(k, n, POPULATION)
                bounds[n][k] = not low <= wish <= high
            return bounds[n][k]

        return sum(any(misses(n, int(run[n - 1])) for n in at) for run in runs) / len(runs)

    assert excluded(share_interval, range(20, 1000, 40)) > 0.12
    assert excluded(target.interval, looks) <= 1 - LEVEL


def test_looks_ascend_to_the_whole_population_and_the_last_but_one_is_enough():
    for width, population in ((0.02, 10_000), (0.1, 200), (0.5, 30)):
        target = Target(width, (0.5,))
        *looks, whole = target.looks(population)
        assert whole == population
        assert looks == sorted(set(looks))
        assert len(looks) <= LOOKS
        assert target.interval(0, looks[0], population).width <= width
        assert target.interval(looks[-1] // 2, looks[-1], population).width <= 1.02 * width
        assert target.interval(3, whole, whole).width == 0


def test_the_order_is_a_permutation_that_the_seed_decides():
    ids = list(range(5, 105))
    assert sorted(random_order(ids, 1)) == ids
    assert random_order(ids, 1) == random_order(ids, 1) != random_order(ids, 2)


@pytest.mark.parametrize(("width", "radii"), [(0, (0.5,)), (1, (0.5,)), (0.1, ()), (0.1, (-1,))])
def test_impossible_targets_are_refused(width, radii):
    with pytest.raises(ArgumentError):
        Target(width, radii)
