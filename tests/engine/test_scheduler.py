"""Many inputs at once: the votes are those of one at a time, the batches are full, and the statistics hold."""

import contextlib
import itertools
import time

import numpy as np
import pytest
from scipy import stats

from ars.engine import algorithms
from ars.engine.lanes.host import host_lanes
from ars.engine.requests import Draws, Phase
from ars.engine.runners.null import Null
from ars.engine.samplers.host import HostSampler
from ars.engine.scheduler import Job, run
from ars.engine.statistics.plan import Plan
from ars.engine.statistics.stopping import Grid
from ars.errors import ArgumentError, DataError, RunError
from ars.noise import FAMILIES, GAUSSIAN, NoiseKind

SHAPE = (5,)


@contextlib.contextmanager
def lanes_for(runner, batch=64, lane_count=2):
    made = host_lanes(runner.run, SHAPE, batch, lane_count)
    try:
        yield made
    finally:
        made.close()


def certify_all(runner, ids, *, n0=10, n=100, alpha=0.05, two_sided=True, family=GAUSSIAN, slots=16, seed=0, **how):
    x, mean, scale = np.zeros(SHAPE, np.float32), np.zeros(SHAPE, np.float32), np.ones(SHAPE, np.float32)
    plan = Plan(n0, n, alpha, two_sided)
    jobs = (Job(idx, x, mean, scale, algorithms.certify(scale, plan, family, NoiseKind.ISOTROPIC)) for idx in ids)
    with lanes_for(runner, **how) as lanes:
        sampler = HostSampler(slots, 5, family, seed)
        return {finished.input_id: finished.result for finished in run(lanes, sampler, jobs)}


class Recording:
    """A null runner that remembers the sizes of its batches."""

    name, classes = "recording", 2

    def __init__(self, probability=0.8):
        self._null = Null([probability, 1 - probability], GAUSSIAN)
        self.sizes = []

    def run(self, batch):
        self.sizes.append(len(batch))
        return self._null.run(batch)


def test_certificates_do_not_depend_on_lanes_batches_slots_or_order():
    runner = Null([0.6, 0.3, 0.1], GAUSSIAN)
    expected = certify_all(runner, range(30), lane_count=1, slots=2, batch=1000)
    for lane_count, batch, slots, ids in [(2, 64, 16, range(30)), (3, 7, 5, reversed(range(30))), (2, 1, 2, range(30))]:
        assert certify_all(runner, ids, lane_count=lane_count, batch=batch, slots=slots) == expected


def test_the_seed_and_the_input_decide_the_votes():
    runner = Null([0.6, 0.4], GAUSSIAN)
    one = certify_all(runner, range(6))
    assert one != certify_all(runner, range(6), seed=1)
    assert len({certificate.counts for certificate in one.values()}) > 1


def test_batches_are_full_even_when_each_input_needs_few_draws():
    runner = Recording()
    certify_all(runner, range(200), n0=10, n=90, batch=64, slots=64)
    assert sum(runner.sizes) == 200 * 100
    full = [size == 64 for size in runner.sizes]
    assert np.mean(full[:-4]) > 0.97


def test_batches_stay_full_while_inputs_stop_at_different_looks():
    """A thousand inputs of all kinds. Only the batches after the last input was taken count less than 95 %."""
    runner, sizes = Recording(), []
    plan = Plan(10, 1000, 0.05, question=Grid())

    def jobs():
        for idx, share in enumerate(np.random.default_rng(0).uniform(0.4, 1, 1000)):
            x, ones = np.zeros(SHAPE, np.float32), np.ones(SHAPE, np.float32)
            x[0] = stats.norm.ppf(0.8) - stats.norm.ppf(share)  # class 0 is where the noise leaves x below that of 0.8
            yield Job(idx, x, 0 * ones, ones, algorithms.certify(ones, plan, GAUSSIAN, NoiseKind.ISOTROPIC))
        sizes.extend(runner.sizes)

    with lanes_for(runner, batch=128) as lanes:
        draws = [one.draws for one in run(lanes, HostSampler(2 * 2 * 128 // 16, 5, GAUSSIAN, 0), jobs())]
    assert len(draws) == 1000
    assert len(set(draws)) > 5, "they do stop at different looks"
    assert sum(runner.sizes) == sum(draws), "no draw that nobody asked for"
    assert np.mean(sizes) >= 0.95 * 128
    assert len(sizes) > 0.9 * len(runner.sizes)


def test_the_end_of_a_run_is_shared_out_among_the_lanes():
    runner = Recording()
    certify_all(runner, [0], n0=10, n=100, batch=64, lane_count=2)
    assert sorted(runner.sizes) == [5, 5, 50, 50]


def test_slots_bound_how_many_inputs_are_loaded_at_once():
    loaded = []

    def jobs():
        x = np.zeros(SHAPE, np.float32)
        for idx in range(50):
            loaded.append(idx)
            yield Job(idx, x, x, x + 1, algorithms.predict(n=1000, alpha=0.05))

    with lanes_for(Null([0.9, 0.1], GAUSSIAN)) as lanes:
        for done, _ in enumerate(run(lanes, HostSampler(8, 5, GAUSSIAN, 0), jobs())):
            assert len(loaded) <= done + 1 + 8


@pytest.mark.parametrize("two_sided", [False, True])
@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_certified_probabilities_exceed_the_truth_no_more_often_than_alpha(family, two_sided):
    """2,000 inputs at alpha = 0.05. The share of wrong pA is compared with a binomial; it fails 1 time in 10^6."""
    alpha, inputs, p_a = 0.05, 2000, 0.7
    certificates = certify_all(
        Null([p_a, 0.2, 0.1], family.in_dimensions(5)),
        range(inputs),
        n=200,
        alpha=alpha,
        two_sided=two_sided,
        family=family,
        batch=512,
    )
    right_class = [made for made in certificates.values() if made.selected == 0]
    assert len(right_class) > 0.9 * inputs
    wrong = sum(made.p_a > p_a for made in right_class)
    assert wrong <= stats.binom.isf(1e-6, len(right_class), alpha)
    assert wrong > 0 or two_sided, "the bound is not so loose that it is never wrong"
    if two_sided:
        wrong = sum(made.p_a > p_a or made.p_b < 0.2 for made in right_class)
        assert wrong <= stats.binom.isf(1e-6, len(right_class), alpha)


def test_a_broken_bound_would_fail_that_check():
    """The plain share of hits, taken for a lower bound, is above the truth about half of the time."""
    certificates = certify_all(Null([0.7, 0.3], GAUSSIAN), range(500), n=200)
    wrong = sum(made.counts[0] / made.n > 0.7 for made in certificates.values())
    assert wrong > stats.binom.isf(1e-6, 500, 0.05)


def test_an_input_on_the_boundary_abstains_as_often_as_it_must():
    certificates = certify_all(Null([0.5, 0.5], GAUSSIAN), range(1000), n=200, alpha=0.05)
    answered = sum(not made.abstained for made in certificates.values())
    assert answered <= stats.binom.isf(1e-6, 1000, 0.05)
    assert all(made.radius == 0 and made.K == 0 for made in certificates.values() if made.abstained)


def test_two_sided_radii_are_at_least_the_binary_ones_where_the_runner_up_is_small():
    probabilities = [0.7, *[0.03] * 10]
    binary = certify_all(Null(probabilities, GAUSSIAN), range(50), n=5000, alpha=0.001, two_sided=False)
    two_sided = certify_all(Null(probabilities, GAUSSIAN), range(50), n=5000, alpha=0.001)
    assert all(two_sided[idx].radius > binary[idx].radius for idx in binary)


def test_a_failing_runner_fails_the_run_and_never_votes():
    class Failing(Recording):
        def run(self, batch):
            if len(self.sizes) > 3:
                raise RunError("the model is gone")
            return super().run(batch)

    with pytest.raises(RunError, match="the model is gone"):
        certify_all(Failing(), range(20))


def test_a_bad_job_ends_the_run_after_those_under_way_are_finished():
    x = np.zeros(SHAPE, np.float32)

    def jobs():
        for idx in range(5):
            yield Job(idx, x, x, x + 1, algorithms.predict(n=100, alpha=0.05))
        raise DataError("data.npz", "input 5 is bad", "mend it")

    finished = []

    def run_all():
        with lanes_for(Null([0.9, 0.1], GAUSSIAN), batch=1000) as lanes:
            finished.extend(run(lanes, HostSampler(16, 5, GAUSSIAN, 0), jobs()))

    with pytest.raises(DataError, match="input 5 is bad"):
        run_all()
    assert sorted(one.input_id for one in finished) == [0, 1, 2, 3, 4]


def test_runs_that_share_lanes_do_not_disturb_each_other():
    runner = Null([0.6, 0.4], GAUSSIAN)
    expected = certify_all(runner, range(12))
    x = np.zeros(SHAPE, np.float32)
    plan = Plan(10, 100, 0.05)

    def jobs():
        for idx in range(12):
            yield Job(idx, x, x, x + 1, algorithms.certify(x + 1, plan, GAUSSIAN, NoiseKind.ISOTROPIC))

    with lanes_for(runner) as lanes:
        one = run(lanes, HostSampler(16, 5, GAUSSIAN, 0), jobs())
        two = run(lanes, HostSampler(16, 5, GAUSSIAN, 0), jobs())
        for a, b in zip(one, two, strict=True):
            assert a.result == expected[a.input_id]
            assert b.result == expected[b.input_id]


def test_logits_that_are_not_finite_end_an_input_in_one_sentence():
    class Broken(Recording):
        def run(self, batch):
            return np.full((len(batch), 2), np.nan, np.float32)

    with pytest.raises(RunError, match=r"input \d: none of the first 10 draws has finite logits"):
        certify_all(Broken(), range(3))


def test_some_draws_that_are_not_finite_vote_for_nobody_and_counts_add_up():
    class SometimesBroken(Recording):
        def run(self, batch):
            logits = super().run(batch)
            logits[batch[:, 1] > 1] = np.inf
            return logits

    (made,) = certify_all(SometimesBroken(0.9), [0], n=1000).values()
    assert sum(made.counts) == made.n == 1000
    assert 100 < made.counts[-1] < 230


def test_votes_that_go_missing_are_noticed():
    class Forgetful(HostSampler):
        def count(self, logits, requests):
            return super().count(logits, requests) // 2

    x = np.zeros(SHAPE, np.float32)
    jobs = iter([Job(0, x, x, x + 1, algorithms.predict(n=100, alpha=0.05))])
    with (
        lanes_for(Null([1.0], GAUSSIAN), lane_count=1) as lanes,
        pytest.raises(RunError, match="input 0: 64 draws gave 32 votes"),
    ):
        list(run(lanes, Forgetful(1, 5, GAUSSIAN, 0), jobs))


def test_a_procedure_may_ask_again_and_again_and_gets_fresh_draws():
    asked = []

    def procedure():
        first = yield Draws(Phase.ESTIMATION, 5)
        second = yield Draws(Phase.ESTIMATION, 201)
        asked.extend([first.sum(), second.sum()])
        return "done"

    class Noting(HostSampler):
        seen = []  # noqa: RUF012

        def fill(self, out, requests):
            self.seen += requests
            super().fill(out, requests)

    x = np.zeros(SHAPE, np.float32)
    with lanes_for(Null([1.0], GAUSSIAN)) as lanes:
        (finished,) = run(lanes, Noting(1, 5, GAUSSIAN, 0), iter([Job(7, x, x, x + 1, procedure())]))
    assert (finished.result, finished.draws, asked) == ("done", 206, [5, 201])
    taken = sorted(draw for r in Noting.seen for draw in range(r.first_draw, r.first_draw + r.draws))
    assert taken == list(range(206)), "each draw once"


@pytest.mark.parametrize(("argument", "value"), [("n", 0), ("n", 2**56 + 1), ("n0", 0), ("alpha", 0.0), ("alpha", 1.0)])
def test_an_impossible_plan_is_refused(argument, value):
    with pytest.raises(ArgumentError, match=f"{argument} = {value} is not valid"):
        Plan(**{argument: value})


def test_no_batch_uses_the_sampler_after_a_run_has_failed():
    class Failing(Recording):
        def run(self, batch):
            raise RunError("the model is gone")

    class Slow(HostSampler):
        """Its first batch is filled at once, and the others later."""

        calls, over, late = itertools.count(), False, 0

        def fill(self, out, requests):
            if next(self.calls):
                time.sleep(0.3)
            self.late += self.over
            super().fill(out, requests)

    x = np.zeros(SHAPE, np.float32)
    jobs = iter([Job(0, x, x, x + 1, algorithms.predict(n=1000, alpha=0.05))])
    with lanes_for(Failing()) as lanes:
        sampler = Slow(8, 5, GAUSSIAN, 0)
        with pytest.raises(RunError, match="the model is gone"):
            list(run(lanes, sampler, jobs))
        sampler.over = True
    assert sampler.late == 0
