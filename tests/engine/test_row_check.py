"""The check of rows against the same rows alone: its evidence, its false alarms, its power, and what it costs."""

import math

import mpmath
import numpy as np
import pytest
from support import models

import ars
from ars.engine import row_check
from ars.engine.requests import Phase, Request
from ars.engine.row_check import HONEST_RATE, RowCheck, Tally
from ars.errors import DependentRows

SHAPE = (1, 4, 4)


def requests(draws, input_id=0):
    return [Request(0, input_id, Phase.ESTIMATION, 0, draws)]


def batch_of(rows, votes, inputs=1):
    """Noisy copies whose first value is their number, logits with the given votes, and requests of equal length."""
    copies = np.zeros((rows, *SHAPE), np.float32)
    copies[:, 0, 0, 0] = np.arange(rows)
    requests = [Request(i, i, Phase.ESTIMATION, 0, rows // inputs) for i in range(inputs)]
    return copies, np.eye(3, dtype=np.float32)[votes], requests


def always(vote):
    return lambda batch: np.tile(np.eye(3, dtype=np.float32)[vote], (len(batch), 1))


@pytest.mark.parametrize("k", [0, 1, 3, 7, 30, 64])
@pytest.mark.parametrize("m", [64, 1000, 100_000])
def test_the_evidence_is_the_averaged_likelihood_ratio(m, k):
    p = mpmath.mpf(HONEST_RATE)
    with mpmath.workdps(50):
        inside = mpmath.betainc(k + 1, m - k + 1, p, 1) / (1 - p)
        exact = mpmath.log(inside / (p**k * (1 - p) ** (m - k)))
    if k <= HONEST_RATE * m:
        assert Tally(m, k).log_evidence() == 0 >= exact
    else:
        assert Tally(m, k).log_evidence() == pytest.approx(float(exact), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("m", "enough"), [(4, 4), (16, 5), (64, 7), (1000, 15), (100_000, 185), (1_000_000, 1255)])
def test_so_many_rows_that_vote_differently_are_enough_and_one_fewer_is_not(m, enough):
    Tally(m, enough - 1).check("rows")
    with pytest.raises(DependentRows, match=f"{enough} of {m} rows"):
        Tally(m, enough).check("rows")


def test_false_alarms_are_as_rare_as_promised_however_long_a_run_is(monkeypatch):
    """At a level of 1/50 instead of 10^-9, and with rows that vote differently as often as an honest model's may. By
    Ville's inequality at most 1/50 of the runs ever raises the alarm; 70 of 2000 is 4.8 standard deviations more."""
    monkeypatch.setattr(row_check, "FALSE_ALARM", 1 / 50)
    rng, alarms = np.random.default_rng(3), 0
    for _ in range(2000):
        tally = Tally()
        for row in np.flatnonzero(rng.random(20_000) < HONEST_RATE):  # the evidence only grows at these
            tally.rows, tally.otherwise = int(row) + 1, tally.otherwise + 1
            if tally.log_evidence() > math.log(50):
                alarms += 1
                break
    assert 0 < alarms <= 70


def test_a_model_that_treats_all_rows_alike_passes():
    check = RowCheck(64, 1)
    for _ in range(200):
        check.check(always(1), *batch_of(64, [1] * 64), np.arange(64))
    assert check.alone.rows == 200 * 64
    assert check.in_company.rows > 0, "67 times are expected"
    assert (check.alone.otherwise, check.in_company.otherwise) == (0, 0)


def test_four_rows_in_a_row_that_vote_differently_end_it_and_it_stays_ended():
    check = RowCheck(64, 1)
    with pytest.raises(DependentRows, match="4 of 4 rows voted differently when they were run again alone"):
        check.check(always(1), *batch_of(64, [0] * 64), np.array([5, 9, 60]))
    with pytest.raises(DependentRows, match="4 of 4 rows"):
        check.choose(requests(64))


def test_a_closer_look_finds_one_input_among_many_rows_that_are_right():
    check = RowCheck(64, 1)
    for tally in (check.alone, check.in_company):
        tally.add(np.zeros(10**6, bool))
    votes = [1] * 32 + [0] * 32
    check.check(always(1), *batch_of(64, votes, inputs=2), np.arange(32))
    with pytest.raises(DependentRows, match="4 of 4 rows of input 1 voted differently when they were run again alone"):
        check.check(always(1), *batch_of(64, votes, inputs=2), np.array([40]))


def test_company_is_checked_apart_from_rows_alone():
    """A model that votes differently among strangers, but votes alone as it did in its batch."""

    def run(batch):
        known = batch.reshape(len(batch), -1)[:, 1:].sum(1) == 0
        return always(1 if known.all() else 2)(batch)

    check = RowCheck(4, 4)  # a fixed batch, for which company is as cheap as being alone
    copies, logits, requests = batch_of(4, [1] * 4)
    with pytest.raises(DependentRows, match=r"rows voted differently when they were run again among other rows"):
        check.check(run, copies, logits, requests, np.repeat(np.arange(4), 100))
    assert check.alone.otherwise == 0


def test_rows_that_are_not_finite_vote_for_nobody_alone_too():
    copies, logits, requests = batch_of(64, [1] * 64)
    logits[:, 2] = np.nan
    check = RowCheck(64, 1)
    check.check(lambda batch: np.full((len(batch), 3), np.inf, np.float32), copies, logits, requests, np.arange(64))
    assert (check.alone.rows, check.alone.otherwise) == (64, 0)
    with pytest.raises(DependentRows):
        check.check(always(1), copies, logits, requests, np.arange(64))


@pytest.mark.parametrize(("batch", "row_cost"), [(64, 1), (7, 1), (64, 64), (256, 16)])
def test_so_many_rows_are_run_again(batch, row_cost):
    """The expected number, within 6 standard deviations; the first of them in the first few batches."""
    check, chosen, batches = RowCheck(batch, row_cost), 0, 40_000
    for number in range(batches):
        chosen += len(check.choose(requests(batch)))
        if number == 20 * row_cost:
            assert chosen > 0
    units = batch * batches / row_cost
    expected = units / 768 + 4 * math.log(1 + units / 4)
    assert abs(chosen - expected) < 6 * math.sqrt(expected)


def test_no_two_runs_choose_the_same_rows():
    checks = RowCheck(64, 1), RowCheck(64, 1)
    chosen = [tuple(np.concatenate([check.choose(requests(64)) for _ in range(500)])) for check in checks]
    assert chosen[0] != chosen[1]


def test_the_choice_does_not_change_a_certificate(tmp_path, monkeypatch):
    path = models.linear(tmp_path / "model.onnx")
    x = np.random.default_rng(1).random(SHAPE, dtype=np.float32)
    counts = []
    for share in (row_check.SHARE, 0.5):
        monkeypatch.setattr(row_check, "SHARE", share)
        with ars.load(path, sigma=0.1, batch=64, seed=3) as classifier:
            counts.append(classifier.certify(x, n0=10, n=2000, input_id=0).counts)
    assert counts[0] == counts[1]


def write_torch(path):
    torch = pytest.importorskip("torch")
    from ars.noise import NoiseKind
    from ars.train.batches import Images
    from ars.train.model_file import ModelSettings, build, write_model_file
    from ars.train.noise_models import NoiseShape

    torch.manual_seed(0)
    noise = ("gaussian", NoiseKind.ISOTROPIC, NoiseShape(0.5))
    settings = ModelSettings("cnn", (1, 12, 12), ("a", "b", "c"), (0.5,), (0.25,), *noise)
    examples = Images(torch.rand(32, 1, 12, 12), torch.arange(32) % 3)
    write_model_file(path, settings, build(settings), {}, examples, None)
    return path


HONEST = {
    "onnxruntime": lambda folder: models.resnet(folder / "model.onnx"),
    "openvino": lambda folder: models.resnet(folder / "model.onnx"),
    "onnxruntime, INT8": lambda folder: models.quantised(folder / "model.onnx"),
    "openvino, INT8": lambda folder: models.quantised(folder / "model.onnx", symmetric=False),
    "torch": lambda folder: write_torch(folder / "model.pt"),
}


def run_every_row_again(folder, name, rows, monkeypatch):
    monkeypatch.setattr(row_check, "SHARE", 5.0)  # OpenVINO has a fifth of it
    path = HONEST[name](folder)
    with ars.load(path, sigma=0.5, batch=64, backend=name.partition(",")[0]) as classifier:
        shape = tuple(side or 1 for side in classifier.runner.shape)
        x = np.random.default_rng(1).random(shape, dtype=np.float32)
        classifier.predict(x, n=rows)
        (lanes,) = classifier.prepare(shape).lanes
    check = lanes._row_check
    assert check.alone.rows >= rows
    assert check.in_company.rows > 0
    print(f"\n{name}: {check.alone}, in company {check.in_company}")


@pytest.mark.parametrize("name", HONEST)
def test_honest_models_pass(tmp_path, name, monkeypatch):
    pytest.importorskip(name.partition(",")[0])
    run_every_row_again(tmp_path, name, 3000, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("name", HONEST)
def test_honest_models_pass_with_a_hundred_thousand_rows(tmp_path, name, monkeypatch):
    pytest.importorskip(name.partition(",")[0])
    run_every_row_again(tmp_path, name, 100_000, monkeypatch)


def test_a_fixed_batch_is_checked_from_the_start_of_every_run_of_an_input():
    """However often an input of the same number was certified before, 2 log(1 + 10,000 / 64) = 10.1 of its rows are
    expected: fewer than 300 in 50 runs has a probability below 1e-12."""
    check, chosen = RowCheck(64, 64, fixed=True), 0
    for _ in range(50):
        for first in range(0, 10_000, 64):
            chosen += len(check.choose([Request(0, 7, Phase.ESTIMATION, first, 64)]))
    assert 300 < chosen < 720
