"""Where adaptive stopping looks at the votes, and looks that no input can have had."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ars.engine.statistics.looks import FIRST_LOOK, LEAST_APART, Look, check_looks, look_draws, look_number, next_look
from ars.errors import ArgumentError


@settings(deadline=None)
@given(st.integers(1, 10**9))
def test_looks_go_up_to_the_budget(n):
    looks = look_draws(n)
    assert looks[-1] == n
    assert looks[0] >= min(n, FIRST_LOOK)
    assert len(looks) <= 130
    for number, (before, after) in enumerate(itertools.pairwise(looks), 1):
        assert after - before >= LEAST_APART
        assert after - before <= max(LEAST_APART, after * 0.05)
        assert next_look(before, n) == after
        assert look_number(after, n) == number


@pytest.mark.parametrize(
    "change",
    [
        lambda looks: looks[1:],
        lambda looks: [*looks[:2], looks[1], *looks[2:]],
        lambda looks: [looks[0]._replace(draws=looks[0].draws + 1), *looks[1:]],
        lambda looks: [looks[0]._replace(hits=looks[1].hits + 1), *looks[1:]],
        lambda looks: [looks[0]._replace(hits=0), *looks[1:]],
        lambda looks: [looks[0]._replace(runner_up=looks[1].runner_up + 1), *looks[1:]],
        lambda looks: [*looks[:-1], looks[-1]._replace(runner_up=looks[-1].draws)],
        lambda looks: [looks[0]._replace(runner_up=0), *looks[1:]],
        lambda looks: [*looks[:3], *(look._replace(runner_up=look.draws // 4) for look in looks[3:])],
    ],
    ids=[
        "left out",
        "twice",
        "elsewhere",
        "hits taken back",
        "misses taken back",
        "runner-up",
        "too many",
        "too few",
        "too many new ones",
    ],
)
def test_looks_that_no_input_can_have_had_are_refused(change):
    looks = [Look(draws, draws * 3 // 4, draws // 5) for draws in look_draws(10_000)[:5]]
    check_looks(looks, 10_000, 3)
    with pytest.raises(ArgumentError, match="looks"):
        check_looks(change(looks), 10_000, 3)
