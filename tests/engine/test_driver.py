"""The driver of a cluster, with workers that do what a test says, on a clock that a test can turn. Nothing here needs
Ray; test_cluster.py does the same with real workers, and takes much longer."""

import itertools
import random
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ars
from ars.engine import driver
from ars.engine.dispatch import STRIKES, Dispatch
from ars.engine.driver import FAILURES, LONELY_SECONDS, OPENING_SECONDS, SILENCE_SECONDS, Driver, Node, WorkerLost
from ars.engine.worker import Reply
from ars.errors import DataError, DependentRows, RunError


@dataclass(eq=False)
class FakeWorker:
    without: set
    node: str | None = None
    dead: str | None = None
    draws: int = 0
    held: list = field(default_factory=list)


def works(worker, idx):
    """The seconds that a worker needs for an input."""
    return 1.0


class FakeCrew:
    """Workers of computers with so many cores each. `at(worker, idx)` gives the seconds that an input takes, or None if
    the worker hangs, and may raise WorkerLost. `refuse` says why a computer is not fit for work."""

    def __init__(self, cores, *, at=works, refuse=None, opening=lambda worker: 1.0, batch_seconds=0.1):
        self.cores = dict(cores)
        self.at, self.refuse, self.opening = at, refuse or {}, opening
        self.batch_seconds = batch_seconds
        self.broken = set()  # computers on which no process can be started
        self.workers, self.now, self.asked, self.plans = [], 0.0, {}, []
        self._numbers = itertools.count()

    def clock(self):
        return self.now

    def plan(self, at, action):
        self.plans.append((at, action))

    def count_draws(self, every):
        """Have a draw of each worker end after every so many seconds."""
        for worker in self.workers:
            worker.draws += 1
        self.plan(self.now + every, lambda: self.count_draws(every))

    def nodes(self):
        return [Node(name, name, cores, 0, 0) for name, cores in self.cores.items()]

    def room(self, node):
        return node.cores

    def hire(self, without):
        self.workers.append(FakeWorker(without=set(without)))
        return self.workers[-1]

    def _find_places(self):
        for worker in self.workers:
            used = [other.node for other in self.workers if other.dead is None]
            free = [
                name for name, cores in self.cores.items() if name not in worker.without and used.count(name) < cores
            ]
            if worker.node is None and worker.dead is None and free:
                if free[0] in self.broken:
                    worker.dead = "its process could not be started"
                else:
                    worker.node = free[0]

    def ask(self, worker, question, *given):
        ticket, start = next(self._numbers), max([self.now, *(end for end, _ in worker.held if end is not None)])
        if question == "certify":
            answer = self._certify(worker, start, *given)
            worker.held.append(answer)
        elif question == "open":
            seconds = self.opening(worker)
            answer = (
                None if seconds is None else self.now + seconds,
                (self.refuse.get(worker.node), self.batch_seconds),
            )
        else:
            answer = (self.now, question)
        self.asked[ticket] = worker, answer
        return ticket

    def _certify(self, worker, start, inputs):
        reply = Reply()
        for one in inputs:
            if any(end is None for end, _ in worker.held):
                return None, None
            try:
                seconds = self.at(worker, one)
            except WorkerLost as lost:
                return start, lost
            if seconds is None:
                return None, None
            start += seconds
            reply.seconds += seconds
            reply.records.append(SimpleNamespace(idx=one, draws=210))
        return start, reply

    def _is_answered(self, ticket):
        worker, (end, answer) = self.asked[ticket]
        here = worker.node is not None or answer != "place"
        return worker.dead is not None or (end is not None and end <= self.now and here)

    def wait(self, tickets, seconds):
        self._find_places()
        if not any(map(self._is_answered, tickets)):
            self.now += seconds
            assert self.now < 1e6, "the run does not end"
            for at, action in [plan for plan in self.plans if plan[0] <= self.now]:
                self.plans.remove((at, action))
                action()
        return [ticket for ticket in tickets if self._is_answered(ticket)]

    def answer(self, ticket):
        worker, (_, answer) = self.asked.pop(ticket)
        if worker.dead:
            raise WorkerLost(worker.dead)
        if answer in ("place", "draws"):
            return worker.node if answer == "place" else worker.draws
        if isinstance(answer, WorkerLost):
            worker.dead = str(answer)
            raise answer
        if isinstance(answer, Reply):
            worker.held.pop(0)
            worker.draws += sum(record.draws for record in answer.records)
        return answer

    def dismiss(self, worker):
        worker.dead = worker.dead or "dismissed"

    def remove(self, node):
        del self.cores[node]
        for worker in self.workers:
            if worker.node == node:
                worker.dead = worker.dead or "its node left"


class Told(ars.RunProgress):
    def __init__(self):
        self.warnings, self.counted, self.ready = [], 0, []

    def warn(self, doubt):
        self.warnings.append(doubt)

    def draws(self, number):
        self.counted += number

    def workers(self, ready, starting):
        self.ready.append(ready)


def drive(crew, inputs=40, *, on_record=lambda idx: None, skip=None, **given):
    """The inputs that are certified, those that were given up, and what was told."""
    told, given_up, done = Told(), {}, []
    options = {"workers": None, "wait": False} | given
    made = Driver(
        crew=crew,
        task="task",
        data_on_workers=True,
        work=SimpleNamespace(on_bad_input=skip),
        progress=told,
        on_given_up=given_up.__setitem__,
        dispatch=Dispatch(range(inputs)),
        clock=crew.clock,
        **options,
    )
    for record in made.run():
        done.append(record.idx)
        on_record(record.idx)
    assert all(worker.dead for worker in crew.workers), "no worker outlives the run"
    assert len(done) == len(set(done))
    return done, given_up, told


def test_all_inputs_are_certified_by_as_many_workers_as_fit_or_as_were_asked_for():
    crew = FakeCrew({"a": 2, "b": 1})
    done, given_up, told = drive(crew)
    assert (sorted(done), given_up) == (list(range(40)), {})
    assert max(told.ready) == len(crew.workers) == 3
    assert crew.now < 40 / 3 * 1.5
    crew = FakeCrew({"a": 2, "b": 1})
    assert sorted(drive(crew, workers=1)[0]) == list(range(40))
    assert len(crew.workers) == 1
    crew = FakeCrew({"a": 20})
    drive(crew, inputs=3)
    assert len(crew.workers) <= 3, "there are no more workers than inputs"


def test_a_worker_that_hangs_is_replaced_and_its_inputs_are_certified():
    begun = []

    def at(worker, idx):
        begun.append(idx)
        return None if idx == 5 and begun.count(5) == 1 else 1.0

    crew = FakeCrew({"a": 1, "b": 1}, at=at)
    done, given_up, _ = drive(crew)
    assert (sorted(done), given_up) == (list(range(40)), {})


def test_an_input_that_takes_long_is_no_hanging_worker_as_long_as_draws_are_counted():
    crew = FakeCrew({"a": 1}, at=lambda worker, idx: 20 * SILENCE_SECONDS)
    crew.count_draws(every=10)
    done, given_up, _ = drive(crew, inputs=2)
    assert (sorted(done), given_up, len(crew.workers)) == ([0, 1], {}, 1)
    silent = FakeCrew({"a": 1}, at=lambda worker, idx: 20 * SILENCE_SECONDS)
    done, given_up, _ = drive(silent, inputs=2)
    assert (done, sorted(given_up), len(silent.workers)) == ([], [0, 1], 2 * STRIKES), "the control"


def test_the_time_that_a_batch_takes_decides_what_silence_is():
    crew = FakeCrew({"a": 1}, at=lambda worker, idx: 5 * SILENCE_SECONDS, batch_seconds=SILENCE_SECONDS)
    assert sorted(drive(crew, inputs=2)[0]) == [0, 1]


@pytest.mark.parametrize("longest_step", [driver._LONGEST_STEP, 1e9])
def test_a_driver_that_was_stopped_for_a_while_blames_no_worker(monkeypatch, longest_step):
    monkeypatch.setattr(driver, "_LONGEST_STEP", longest_step)
    crew = FakeCrew({"a": 1, "b": 1}, at=lambda worker, idx: 10.7 if worker.node == "a" else 300.0)
    crew.count_draws(every=5)

    def stop(idx):
        crew.now += SILENCE_SECONDS + 5

    done, given_up, _ = drive(crew, inputs=20, on_record=stop)
    assert sorted([*done, *given_up]) == list(range(20))
    assert (len(crew.workers) == 2) == (longest_step < 1e9), "the control loses workers"


def test_an_input_that_kills_three_workers_is_given_up_and_all_others_are_certified():
    def at(worker, idx):
        if idx == 17:
            raise WorkerLost("signal 9")
        return 0.1

    done, given_up, _ = drive(FakeCrew({"a": 2}, at=at))
    assert given_up == {17: "signal 9"}
    assert sorted(done) == [idx for idx in range(40) if idx != 17]


def test_a_node_that_leaves_is_not_blamed_on_its_inputs_and_one_that_comes_gets_workers():
    crew = FakeCrew({"a": 1})
    for k in range(1, 9):
        crew.plan(3.0 * k, lambda k=k: (crew.remove("a"), crew.cores.__setitem__("a", 1)))
    crew.plan(30, lambda: crew.cores.__setitem__("b", 2))
    done, given_up, told = drive(crew)
    assert (sorted(done), given_up) == (list(range(40)), {})
    assert max(told.ready) == 3


def test_a_node_that_is_not_fit_is_left_out_by_name_and_the_rest_go_on():
    crew = FakeCrew({"a": 1, "b": 2}, refuse={"b": "its version of ars is 0.0.1"})
    done, _, told = drive(crew)
    assert sorted(done) == list(range(40))
    assert told.warnings == ["b is left out of the run: its version of ars is 0.0.1"]
    alone = FakeCrew({"b": 2}, refuse={"b": "its version of ars is 0.0.1"})
    with pytest.raises(RunError, match=r"no worker for this run \(b: its version of ars is 0.0.1\); the same command"):
        drive(alone)


def test_a_node_on_which_workers_never_open_the_model_is_left_out():
    crew = FakeCrew({"a": 1, "b": 3}, opening=lambda worker: None if worker.node == "b" else 1.0)
    done, _, told = drive(crew, inputs=4000)
    assert len(done) == 4000
    (warning,) = told.warnings
    assert warning.startswith(f"b is left out of the run: it did not open the model within {OPENING_SECONDS:.0f}"[:-2])
    assert [worker.node for worker in crew.workers].count("b") < FAILURES + 3


def test_a_node_on_which_no_process_starts_ends_the_run_only_if_there_is_no_other():
    crew = FakeCrew({"b": 1, "a": 1}, opening=lambda worker: 20.0)
    crew.broken.add("a")
    done, given_up, _ = drive(crew)
    assert (sorted(done), given_up) == (list(range(40)), {})
    assert sum(worker.node is None for worker in crew.workers) > 2 * FAILURES
    alone = FakeCrew({"a": 1})
    alone.broken.add("a")
    with pytest.raises(RunError, match=r"no worker can be started \(its process could not be started\)"):
        drive(alone)
    assert len(alone.workers) == FAILURES


def test_a_run_without_workers_waits_for_some_and_ends_unless_it_is_told_to_wait():
    crew = FakeCrew({})
    with pytest.raises(RunError, match=r"no worker for this run \(none for 10 minutes\)"):
        drive(crew)
    assert LONELY_SECONDS < crew.now < LONELY_SECONDS + 10
    waiting = FakeCrew({})
    waiting.plan(5 * LONELY_SECONDS, lambda: waiting.cores.__setitem__("a", 2))
    done, _, told = drive(waiting, wait=True, workers=2)
    assert sorted(done) == list(range(40))
    assert max(told.ready) == 2


def test_dependent_rows_end_the_run_at_once_and_another_error_after_what_is_held(monkeypatch):
    def failing(error):
        crew = FakeCrew({"a": 2})
        certify = crew._certify

        def wrong(worker, start, inputs):
            end, reply = certify(worker, start, inputs)
            if 7 in inputs:
                reply.error = error
                reply.records = [record for record in reply.records if record.idx < 7]
            return end, reply

        crew._certify = wrong
        return crew

    with pytest.raises(DependentRows):
        drive(failing(DependentRows("row 3")))
    seen = []
    with pytest.raises(DataError, match="input 7"):
        drive(failing(DataError("data", "input 7 is bad", "leave it out")), on_record=seen.append)
    assert set(range(7)) <= set(seen) < set(range(40))
    assert 7 not in seen


@pytest.mark.parametrize("skip", [False, True])
def test_an_input_that_a_worker_cannot_read_ends_the_run_or_is_left_out(skip):
    crew, skipped = FakeCrew({"a": 2}), []
    certify = crew._certify

    def cannot_read(worker, start, inputs):
        end, reply = certify(worker, start, inputs)
        if 3 in inputs:
            reply.records = [record for record in reply.records if record.idx != 3]
            reply.bad[3] = DataError("data", "input 3 is bad", "leave it out")
        return end, reply

    crew._certify = cannot_read
    if skip:
        done, given_up, _ = drive(crew, skip=skipped.append)
        assert (sorted(done), given_up) == ([idx for idx in range(40) if idx != 3], {})
        assert {str(error) for error in skipped} == {"data: input 3 is bad; leave it out"}
    else:
        with pytest.raises(DataError, match="input 3 is bad"):
            drive(crew)


def test_a_reply_that_forgets_an_input_ends_the_run():
    crew = FakeCrew({"a": 1})
    certify = crew._certify

    def forgetful(worker, start, inputs):
        end, reply = certify(worker, start, inputs)
        reply.records = [record for record in reply.records if record.idx != 3]
        return end, reply

    crew._certify = forgetful
    with pytest.raises(RunError, match="does not mention input 3"):
        drive(crew)


def test_a_reply_with_an_input_that_was_not_asked_for_ends_the_run():
    crew = FakeCrew({"a": 1})
    certify = crew._certify

    def eager(worker, start, inputs):
        end, reply = certify(worker, start, inputs)
        reply.records.append(SimpleNamespace(idx=39, draws=210))
        return end, reply

    crew._certify = eager
    with pytest.raises(RunError, match="a worker's reply has input 39, which it was not sent"):
        drive(crew)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32).map(random.Random))
def test_whatever_happens_nothing_is_lost_and_the_run_ends(rng):
    deadly = set(rng.sample(range(40), rng.randint(0, 2)))

    def at(worker, idx):
        if idx in deadly or rng.random() < 0.02:
            raise WorkerLost("signal 9")
        return None if rng.random() < 0.02 else rng.uniform(0.01, 5)

    crew = FakeCrew({"a": 2, "b": 1}, at=at, opening=lambda worker: rng.uniform(0, 9))
    for number in range(rng.randint(0, 6)):
        when = rng.uniform(0, 60)
        crew.plan(when, lambda number=number: crew.cores.__setitem__(f"new {number}", 1))
        crew.plan(when + rng.uniform(0, 60), lambda number=number: crew.remove(f"new {number}"))
    done, given_up, _ = drive(crew)
    assert sorted([*done, *given_up]) == list(range(40))
    assert deadly <= given_up.keys()


def test_the_defaults_are_those_of_the_docs():
    assert (driver.SILENCE_SECONDS, driver.SILENT_BATCHES, FAILURES, LONELY_SECONDS) == (60, 10, 5, 600)
