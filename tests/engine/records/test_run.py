"""`ars.certify_run`: a run from Python is the run of the command, resumes, and reports what it does."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support import models
from support.engine_runs import certify, records

import ars
from ars.engine.records.store import read_header
from ars.errors import ArgumentError, DataError, StoreError

pytestmark = pytest.mark.usefixtures("files")

PLAN = ars.Plan(10, 200)


class Noted(ars.RunProgress):
    """Remembers what it is told."""

    def __init__(self):
        self.starts, self.total_draws, self.ids, self.errors = [], 0, [], []

    def start(self, store, prepared, plan, seed, done, left):
        self.starts.append((store, prepared.batch, plan, done, left))

    def draws(self, number):
        self.total_draws += number

    def certified(self, record):
        self.ids.append(record.idx)

    def skipped(self, error):
        self.errors.append(str(error))


def run(data="data.npz", plan=PLAN, *, batch=64, sigma=0.1, **options):
    with ars.load("model.onnx", sigma=sigma, batch=batch) as classifier:
        return ars.certify_run(classifier, data, plan, **options)


def test_it_makes_the_store_of_the_command():
    certify()
    result = run(store="python.sqlite")
    assert records("python.sqlite") == records()
    assert read_header(Path("python.sqlite")) == read_header(Path("run.sqlite"))
    expected = ars.summarize(ars.read_records("run.sqlite"), at=[number / 10 for number in range(15)])
    assert replace(result.summary, seconds=0) == replace(expected, seconds=0)
    assert (result.store, result.batch) == (Path("python.sqlite"), 64)


def test_it_resumes_and_says_so():
    progress = Noted()
    run(ars.Inputs("data.npz", limit=10), store="run.sqlite")
    result = run(store="run.sqlite", progress=progress)
    assert progress.starts == [(Path("run.sqlite"), 64, PLAN, 10, 30)]
    assert sorted(progress.ids) == list(range(10, 40))
    assert progress.total_draws == 30 * 210
    assert result.summary.inputs == 40
    part = run(ars.Inputs("data.npz", only="3,17"), store="run.sqlite")
    assert part.summary.inputs == 2, "the summary is of the chosen inputs"


class Stopped(ars.RunProgress):
    """Is interrupted at the first draws, like a run that is killed before its first certificate."""

    def draws(self, number):
        raise KeyboardInterrupt


@pytest.fixture
def other_seeds(monkeypatch):
    """Each classifier has another seed, as in use."""
    seeds = itertools.count(1)
    monkeypatch.setattr("ars.engine.smoothed.secrets.randbits", lambda bits: next(seeds))


def seed_of(store):
    return read_header(Path(store)).settings.seed


def stopped_seed(store, **options):
    with pytest.raises(KeyboardInterrupt):
        run(ars.Inputs("data.npz", limit=1), store=store, progress=Stopped(), **options)
    assert not records(store)
    return seed_of(store)


@pytest.mark.usefixtures("other_seeds")
def test_a_run_that_is_stopped_before_its_first_certificate_keeps_its_seed():
    """A seed for each start would choose among noises: whether an adaptive run ends in time depends on its noise."""
    first = stopped_seed("run.sqlite", batch=None)
    assert [stopped_seed("run.sqlite", batch=batch) for batch in (None, 32)] == [first, first]
    run(ars.Inputs("data.npz", limit=1), store="run.sqlite")
    assert seed_of("run.sqlite") == first


@pytest.mark.usefixtures("other_seeds")
def test_another_run_that_takes_the_store_of_a_stopped_one_has_a_seed_of_its_own():
    first = stopped_seed("run.sqlite")
    assert stopped_seed("run.sqlite", sigma=0.2) != first
    assert stopped_seed("run.sqlite", plan=ars.Plan(10, 300)) != first


def test_a_resumed_run_keeps_the_batch_of_its_store_and_another_is_refused():
    run(ars.Inputs("data.npz", limit=2), store="run.sqlite", batch=32)
    assert run(store="run.sqlite", batch=None).batch == 32
    with pytest.raises(StoreError, match="it holds a run with batch = 32, and this one has 16; choose another store"):
        run(store="run.sqlite", batch=16)
    with pytest.raises(StoreError, match=r"it holds a run with sigma = 0.1, and this one has 0.2"):
        run(store="run.sqlite", sigma=0.2, batch=None)


def test_one_classifier_certifies_several_runs_with_batches_of_their_own():
    for name, batch in (("a.sqlite", 16), ("b.sqlite", 32)):
        run(ars.Inputs("data.npz", limit=2), store=name, batch=batch)
    with ars.load("model.onnx", sigma=0.1) as classifier:
        batches = [ars.certify_run(classifier, "data.npz", PLAN, store=f"{name}.sqlite").batch for name in "ab"]
        assert batches == [16, 32]
        assert classifier.batch is None, "what was asked for stays as it was"
    assert records("a.sqlite") == records("b.sqlite")


def test_the_store_is_named_after_model_data_and_noise():
    assert run(Path("data.npz")).store == Path("model.onnx.data.npz.gaussian-0.1.sqlite")
    with pytest.raises(StoreError, match="no such folder"):
        run(store="no/run.sqlite")


def test_a_bad_input_ends_the_run_or_is_left_out():
    x, y = np.load("data.npz")["x"], np.load("data.npz")["y"].copy()
    y[3] = 99
    np.savez("bad.npz", x=x, y=y)
    with pytest.raises(DataError, match="input 3 has the label 99"):
        run("bad.npz", store="run.sqlite")
    progress = Noted()
    assert run("bad.npz", store="run.sqlite", skip_bad_inputs=True, progress=progress).summary.inputs == 39
    assert ["input 3 has the label 99" in error for error in progress.errors] == [True]


def test_certify_and_certify_many_take_the_same_plan():
    x = np.load("data.npz")["x"]
    question = ars.Grid((0, 0.05))
    with ars.load("model.onnx", sigma=0.1, batch=64) as classifier:
        for changes in ({"n0": 10, "n": 300}, {"n": 400, "alpha": 0.01, "two_sided": True}, {"question": question}):
            (many,) = classifier.certify_many([(2, x[2])], **changes)
            plan = ars.Plan(**changes)
            assert many.result == classifier.certify(x[2], input_id=2, **changes)
            assert many.result == classifier.certify(x[2], plan, input_id=2)
            assert many.result.n0 == plan.n0
        assert classifier.certify(x[2], PLAN, alpha=0.01).alpha == 0.01
        with pytest.raises(TypeError, match="draws"):
            classifier.certify(x[2], draws=5)
        with pytest.raises(ArgumentError, match=r"plan = ndarray is not valid; .* go with inputs, like \(X, Y\)"):
            list(classifier.certify_many(x, np.zeros(len(x), int)))
        with pytest.raises(ArgumentError, match=r"plan = int is not valid; .*, like ars.Plan\(n=10_000\)"):
            ars.certify_run(classifier, "data.npz", 1000, store="none.sqlite")
        with pytest.raises(ArgumentError, match=r"data = ndarray is not valid; .* certify_many takes inputs in memory"):
            ars.certify_run(classifier, x, PLAN, store="none.sqlite")


def test_a_classifier_decides_its_batch_once_for_each_shape_and_wish():
    x = np.load("data.npz")["x"]
    with ars.load("model.onnx", sigma=0.1, batch=64) as classifier:
        prepared = classifier.prepare((1, 4, 4))
        assert (prepared.batch, prepared.rate, prepared.notes) == (64, None, ())
        assert classifier.prepare((1, 4, 4), 64) is prepared
        assert classifier.prepare((1, 4, 4), 7).batch == 7
        with pytest.raises(ars.ArsError, match="batch = 0"):
            classifier.prepare((1, 4, 4), 0)
    with ars.load("model.onnx", sigma=0.1) as classifier:
        measured = classifier.prepare((1, 4, 4))
        assert measured.rate > 0
        assert next(iter(classifier.certify_many([(0, x[0])], PLAN))).draws == 210


def test_a_model_that_was_refused_is_refused_again():
    from onnx import helper

    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("ReduceMean", ["flat"], ["mean"], axes=[0], keepdims=1),
        helper.make_node("Sub", ["flat", "mean"], ["logits"]),
    ]
    models.save(Path("bn.onnx"), nodes, [models.value("x", "n", 1, 4, 4)], [models.value("logits", "n", 16)])
    with ars.load("bn.onnx", sigma=0.1, batch=8) as classifier:
        for _ in range(2):
            with pytest.raises(ars.ArsError, match="depend on the other rows of its batch"):
                classifier.prepare((1, 4, 4))
