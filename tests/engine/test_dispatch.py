"""Inputs are neither lost nor counted twice, in whatever order workers come, die, hang and answer."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ars.engine.dispatch import CHUNK_SECONDS, MOST_INPUTS, STRIKES, Dispatch


def finish(dispatch, worker, chunk, seconds=0.1):
    return dispatch.receive(worker, chunk, chunk.inputs, seconds)


def test_each_worker_holds_two_chunks_and_no_more():
    dispatch = Dispatch(range(100))
    for name in "ab":
        dispatch.join(name)
        assert [dispatch.take(name) is None for _ in range(3)] == [False, False, True]


def test_chunks_last_about_as_long_as_they_should_and_are_small_at_the_end():
    dispatch = Dispatch(range(10_000))
    dispatch.join("a")
    sizes = []
    while not dispatch.finished:
        chunk = dispatch.take("a")
        sizes.append(len(chunk.inputs))
        finish(dispatch, "a", chunk, seconds=0.1 * sizes[-1])
    assert sizes[0] == 1, "the pace is not known yet"
    assert max(sizes) == CHUNK_SECONDS / 0.1 < MOST_INPUTS
    assert sizes[-4:] == [1, 1, 1, 1]


def test_what_a_dead_worker_held_goes_to_others_and_a_second_certificate_is_dropped():
    dispatch = Dispatch(range(2))
    for name in "ab":
        dispatch.join(name)
    first, second = dispatch.take("a"), dispatch.take("a")
    copy = dispatch.take("b")
    assert copy.inputs == second.inputs, "an idle worker gets a copy of what waits elsewhere"
    assert finish(dispatch, "b", copy) == [1]
    assert finish(dispatch, "a", second) == []
    assert dispatch.lose("a", "died", blame=False) == []
    again = dispatch.take("b")
    assert again.inputs == first.inputs
    assert finish(dispatch, "b", again) == [0]
    assert dispatch.finished


def test_an_input_that_kills_three_workers_is_given_up_and_its_neighbours_are_not():
    dispatch, deaths, finished = Dispatch(range(50)), 0, set()
    for number in range(1000):
        dispatch.join(number)
        while not dispatch.finished and (chunk := dispatch.take(number)):
            if 17 in chunk.inputs:
                deaths += 1
                assert dispatch.lose(number, "signal 9", blame=True) == ([17] if deaths == STRIKES else [])
                break
            finished.update(finish(dispatch, number, chunk, 0.01))
        else:
            dispatch.lose(number, "", blame=False)
        if dispatch.finished:
            break
    assert deaths == STRIKES
    assert dispatch.given_up == {17: "signal 9"}
    assert finished == set(range(50)) - {17}


def test_a_node_that_leaves_is_no_strike():
    dispatch = Dispatch([5])
    for number in range(10):
        dispatch.join(number)
        assert dispatch.take(number).inputs == (5,)
        assert dispatch.lose(number, "node left", blame=False) == []
    assert not dispatch.given_up
    assert not dispatch.finished


def test_after_stop_only_what_is_held_is_waited_for():
    dispatch = Dispatch(range(100))
    for name in "ab":
        dispatch.join(name)
    held, lost = dispatch.take("a"), dispatch.take("b")
    dispatch.stop()
    assert dispatch.take("a") is None
    dispatch.lose("b", "died", blame=True)
    assert not dispatch.finished
    assert finish(dispatch, "a", held) == list(held.inputs)
    assert dispatch.finished
    assert lost.inputs == (1,)


def run_randomly(rng, inputs, *, deadly=frozenset(), stop=False):
    """A run with workers that join, answer, die and leave at random. Returns what was committed, in order."""
    dispatch, committed, workers, next_worker = Dispatch(range(inputs)), [], {}, 0
    deaths = {}
    for step in range(100_000):
        if dispatch.finished:
            return dispatch, committed, deaths
        if stop and step == 40:
            dispatch.stop()
        event = rng.random()
        if not workers or event < 0.05:
            dispatch.join(next_worker)
            workers[next_worker] = []
            next_worker += 1
        name = rng.choice(list(workers))
        if event < 0.10:  # its node leaves
            dispatch.lose(name, "left", blame=False)
            del workers[name]
        elif event < 0.13:  # killed
            dispatch.lose(name, "killed", blame=True)
            del workers[name]
        elif event < 0.6:
            if chunk := dispatch.take(name):
                workers[name].append(chunk)
        elif workers[name]:
            chunk = workers[name][0]
            guilty = deadly.intersection(chunk.inputs)
            if guilty:
                for idx in guilty:
                    deaths[idx] = deaths.get(idx, 0) + 1
                dispatch.lose(name, "poison", blame=True)
                del workers[name]
            else:
                workers[name].pop(0)
                committed += finish(dispatch, name, chunk, rng.random())
    raise AssertionError("the run does not end")


@settings(max_examples=300)
@given(st.integers(0, 2**32).map(random.Random), st.integers(1, 60))
def test_nothing_is_lost_and_nothing_is_counted_twice(rng, inputs):
    dispatch, committed, _ = run_randomly(rng, inputs)
    assert len(committed) == len(set(committed))
    assert set(committed) | dispatch.given_up.keys() == set(range(inputs))
    assert not set(committed) & dispatch.given_up.keys()


@settings(max_examples=200)
@given(st.integers(0, 2**32).map(random.Random), st.integers(5, 60))
def test_deadly_inputs_are_given_up_and_the_run_ends(rng, inputs):
    deadly = frozenset(rng.sample(range(inputs), 3))
    dispatch, committed, deaths = run_randomly(rng, inputs, deadly=deadly)
    assert deadly <= dispatch.given_up.keys()
    assert len(committed) == len(set(committed)) == inputs - len(dispatch.given_up)
    assert max(deaths.values(), default=0) <= STRIKES


@settings(max_examples=200)
@given(st.integers(0, 2**32).map(random.Random), st.integers(5, 60))
def test_an_input_is_not_given_up_for_its_successors_even_if_its_replies_are_lost(rng, inputs):
    """What kills a worker at once may take along the reply to the chunk before."""
    deadly, committed = frozenset(rng.sample(range(inputs), rng.randint(1, 3))), []
    dispatch, workers = Dispatch(range(inputs)), {name: [] for name in "abc"}
    for name in workers:
        dispatch.join(name)
    while not dispatch.finished:
        name = rng.choice(list(workers))
        held = workers[name]
        while chunk := dispatch.take(name):
            held.append(chunk)
        if held:
            first, *others = held
            kills, next_kills = (bool(deadly.intersection(chunk.inputs)) for chunk in (first, (others or [first])[0]))
            if kills or (next_kills and rng.random() < 0.9):
                dispatch.lose(name, "poison", blame=True)
                dispatch.join(name)
                held.clear()
            else:
                committed += finish(dispatch, name, held.pop(0), rng.random())
    assert dispatch.given_up.keys() == deadly
    assert sorted(committed) == sorted(set(range(inputs)) - deadly)


@settings(max_examples=200)
@given(st.integers(0, 2**32).map(random.Random), st.integers(5, 200))
def test_a_run_that_is_stopped_ends(rng, inputs):
    _, committed, _ = run_randomly(rng, inputs, stop=True)
    assert len(committed) == len(set(committed)) <= inputs


@pytest.mark.slow
def test_a_hundred_thousand_random_runs():
    for seed in range(100_000):
        rng = random.Random(seed)
        inputs = rng.randint(1, 40)
        deadly = frozenset(rng.sample(range(inputs), min(inputs, rng.randint(0, 2))))
        dispatch, committed, _ = run_randomly(rng, inputs, deadly=deadly)
        assert len(committed) == len(set(committed))
        assert set(committed) | dispatch.given_up.keys() == set(range(inputs))
