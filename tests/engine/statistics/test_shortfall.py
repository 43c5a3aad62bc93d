"""Why an input stopped, and the votes that it lacked: exactly that many are enough, and one fewer is not."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ars.engine.statistics.certificate import certify_votes, end_after_selection
from ars.engine.statistics.looks import look_draws, take_look
from ars.engine.statistics.plan import Plan
from ars.engine.statistics.shortfall import Stop, find_shortfall
from ars.engine.statistics.stopping import RADII, Grid, Tolerance

NOISE = {"family": "gaussian", "scale": 0.5, "kind": "isotropic", "dimensions": 784}


def certify(counts, plan, **changed):
    return certify_votes(counts, 0, plan=plan, **NOISE | changed)


def radii_of(plan):
    return plan.question.radii if plan.question else RADII


def stop_early(counts, plan):
    """A certificate of adaptive stopping after the looks at these shares of votes, up to their sum."""
    draws = list(itertools.takewhile(lambda number: number <= sum(counts), look_draws(plan.n)))
    looks = [take_look(_shares(counts, number), 0) for number in draws]
    return certify(_shares(counts, draws[-1]), plan, looks=looks)


def _shares(counts, draws):
    others = [count * draws // sum(counts) for count in counts[1:]]
    return [draws - sum(others), *others]


def take_votes(counts, number):
    """Give the first answer so many votes, each from the most frequent of the others."""
    counts = list(counts)
    for _ in range(number):
        counts[max(range(1, len(counts)), key=counts.__getitem__)] -= 1
        counts[0] += 1
    return counts


@pytest.mark.parametrize("family", ["gaussian", "laplace", "uniform"])
@pytest.mark.parametrize("two_sided", [False, True])
@settings(deadline=None, max_examples=25)
@given(weights=st.lists(st.floats(0.001, 1), min_size=2, max_size=6), eta=st.sampled_from([0.0, 1e-6]))
def test_that_many_votes_certify_the_next_radius_and_one_fewer_does_not(family, two_sided, weights, eta):
    n = 1000
    shares = np.array([5.0, *weights])
    others = (shares[1:] / shares.sum() * n).astype(int).tolist()
    counts, plan = [n - sum(others), *others], Plan(n=n, two_sided=two_sided)
    made = certify(counts, plan, family=family, eta=eta)
    found = find_shortfall(made, plan, radii_of(plan))
    assert found.stopped is Stop.ALL_DRAWS
    if found.votes_short is None:
        best = certify([n] + [0] * len(weights), plan, family=family, eta=eta)
        assert found.next_radius is None or best.radius < found.next_radius
        return
    assert found.votes_short > 0
    assert found.next_radius == (0 if made.abstained else min(radius for radius in RADII if radius > made.radius))
    enough = certify(take_votes(counts, found.votes_short), plan, family=family, eta=eta)
    assert not enough.abstained
    assert enough.radius >= found.next_radius
    fewer = certify(take_votes(counts, found.votes_short - 1), plan, family=family, eta=eta)
    assert fewer.abstained or fewer.radius < found.next_radius
    assert f"{found.votes_short:,} more vote" in found.explanation


def test_an_abstention_lacks_votes_for_a_radius_above_0():
    found = find_shortfall(certify([4900, 5100, 0], plan := Plan(n=10_000)), plan, radii_of(plan))
    assert (found.stopped, found.next_radius) == (Stop.ALL_DRAWS, 0)
    said = (
        "It abstains: 4,900 of 10,000 votes for its class and 5,100 for the next answer do not prove that its class is "
    )
    said += f"the most likely answer. It took all 10,000 draws. {found.votes_short} more votes of 10,000 would have "
    said += "certified a radius above 0."
    assert found.explanation == said


def test_the_next_radius_is_one_that_was_asked_for():
    plan = Plan(n=10_000, question=Grid((0, 0.3, 0.7)))
    made = stop_early([9000, 1000, 0], plan)
    assert made.n == 10_000
    found = find_shortfall(made, plan, radii_of(plan))
    assert 0.3 < made.radius < found.next_radius == 0.7
    assert f"{found.votes_short} more votes of 10,000 would have certified the l2 radius 0.7." in found.explanation
    best = find_shortfall(stop_early([9990, 10, 0], plan), plan, radii_of(plan))
    assert (best.next_radius, best.votes_short) == (None, None)
    assert best.explanation == "It took all 10,000 draws. Every radius asked for is certified."


def test_an_early_stop_is_extrapolated_to_all_draws():
    plan = Plan(n=100_000, question=Grid())
    made = stop_early([900, 80, 20], plan)
    found, draws = find_shortfall(made, plan, radii_of(plan)), made.n
    assert draws < 2000
    assert (found.stopped, found.next_radius) == (Stop.OUT_OF_REACH, 0.75)
    at_n = certify(_shares(made.counts, 100_000), fixed := Plan(n=100_000))
    assert found.votes_short == pytest.approx(find_shortfall(at_n, fixed, radii_of(fixed)).votes_short, abs=5)
    about = f"About {found.votes_short:,} more votes of 100,000 would have certified the l2 radius 0.75."
    assert (
        found.explanation
        == f"It stopped after {draws:,} of 100,000 draws: the l2 radius 0.75 was out of reach. {about}"
    )


def test_reasons_of_early_stops():
    plan = Plan(n=100_000, question=Grid((0, 0.5, 9)))
    settled = find_shortfall(stop_early([1000, 0, 0], plan), plan, radii_of(plan))
    assert (settled.stopped, settled.next_radius, settled.votes_short) == (Stop.SETTLED, 9, None)
    assert "Not even 100,000 votes for its class would have certified the l2 radius 9." in settled.explanation
    hopeless = find_shortfall(stop_early([300, 700, 0], plan), plan, radii_of(plan))
    assert (hopeless.stopped, hopeless.next_radius) == (Stop.HOPELESS, 0)
    assert hopeless.votes_short == pytest.approx(20_000, rel=0.05)
    tolerant = Plan(n=100_000, question=Tolerance(0.1))
    assert find_shortfall(stop_early([900, 100, 0], tolerant), tolerant, radii_of(tolerant)).stopped is Stop.SETTLED
    wrong = find_shortfall(end_after_selection(0, 2, plan=plan, **NOISE), plan, radii_of(plan))
    assert (wrong.stopped, wrong.next_radius, wrong.votes_short) == (Stop.WRONG_CLASS, None, None)
