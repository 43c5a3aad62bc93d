"""The lines of progress where stderr is no terminal."""

import io
from pathlib import Path
from types import SimpleNamespace

import pytest

import ars
from ars.engine import progress as module
from ars.engine.progress import TerminalProgress
from ars.engine.smoothed import Prepared


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(module.time, "perf_counter", lambda: clock.now)
    return clock


def begin(plan, *, on_cluster):
    stream = io.StringIO()
    progress = TerminalProgress(SimpleNamespace(devices=[]), quiet=False, stream=stream, on_cluster=on_cluster)
    progress.start(Path("run.sqlite"), Prepared(16, (), None, ()), plan, 3, 0, 10)
    return progress, stream


def record(draws):
    return SimpleNamespace(draws=draws, correct=True)


def test_on_a_cluster_there_is_a_line_a_minute_with_inputs_draws_workers_and_the_time_left(clock):
    progress, stream = begin(ars.Plan(100, 900), on_cluster=True)
    for second in range(1, 122):
        clock.now = 100 + second
        progress.workers(4, second % 2)
        progress.draws(50)
        if second % 20 == 0:
            progress.certified(record(1000))
    assert stream.getvalue().splitlines()[1:] == [
        "3/10 inputs, 49 draws/s, 4 workers (1 starting), certified accuracy 100.0%, 142 s left",
    ]


def test_the_time_left_is_never_negative_even_if_inputs_were_drawn_twice(clock):
    progress, stream = begin(ars.Plan(100, 900), on_cluster=False)
    clock.now += 10
    progress.draws(12_000)
    assert stream.getvalue().splitlines()[-1] == "0/10 inputs, 1,200 draws/s, 0 s left"


def test_with_adaptive_stopping_the_time_left_follows_from_the_inputs(clock):
    progress, stream = begin(ars.Plan(100, 900, question=ars.Grid((0.0, 0.5))), on_cluster=False)
    progress.certified(record(300))
    clock.now += 10
    progress.draws(300)
    assert stream.getvalue().splitlines()[-1].endswith("1/10 inputs, 30 draws/s, certified accuracy 100.0%, 90 s left")
