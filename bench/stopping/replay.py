"""The votes of a run at fixed n, looked at again as each rule would have looked at them.

The rules (rules.py) are compared at equal certified accuracy. All of them stop by the engine's `Adaptive`, each with
the largest hope that loses at most ALLOWED. What a rule loses depends on few inputs, and so on chance; therefore it is
averaged over ORDERS random orders of the votes.
"""

import bisect
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from ars.bench.stopping.rules import OURS, RULES
from ars.bench.stopping.saving import Answer, find_worst_loss
from ars.engine.records.record import Record
from ars.engine.statistics.bounds import bound_at_fixed_n, widen
from ars.engine.statistics.certificate import Certificate
from ars.engine.statistics.looks import Look, look_draws, take_look
from ars.engine.statistics.stopping import HOPE, NO_RADIUS, Adaptive, Grid

__all__ = ["HOPES", "ORDERS", "Outcome", "Votes", "reorder_votes", "replay", "replay_rule"]

AS_IT_IS = "ars, as it is"
HOPES = (4.0, 3.2, 2.5, 1.8, HOPE, 0.9, 0.5, 0.01)
ALLOWED = 0.005
"""The certified accuracy that a rule may lose at any radius, as a fraction of the inputs."""
ORDERS = 4

# The prior of hits and of all misses together, for draws that a run does not have. Misses have little weight: of the
# inputs of a trained Fashion-MNIST model without a miss in 10,000 draws, 14 of 19 had none in 100,000, which a prior
# weight of 0.15 predicts.
PRIOR_HITS, PRIOR_MISSES = 0.5, 0.15


@dataclass(frozen=True)
class Votes:
    """The votes of one input in one order, at every look of the budget."""

    label: int | None
    certificate: Certificate
    """The certificate at fixed n, which has the class, the noise and alpha."""
    looks: tuple[Look, ...]

    @property
    def right(self) -> bool:
        return self.label in (None, self.certificate.selected)

    def radius(self, bounds: tuple[float, float]) -> float:
        """The radius that bounds on pA and pB certify, or NO_RADIUS."""
        return self.certificate.noise_family.radius(*bounds, self.certificate.sigma_min) or NO_RADIUS

    def radius_at_n(self, look: Look) -> float:
        """The radius that a look certifies if it is the only one, or NO_RADIUS."""
        made = self.certificate
        return self.radius(widen(*bound_at_fixed_n(look, made.alpha, two_sided=made.two_sided), made.eta))


@dataclass(frozen=True)
class Outcome:
    """What a rule does on all inputs."""

    rule: str
    hope: float
    """In place of the engine's HOPE (engine/statistics/stopping.py)."""
    mean_draws: float
    """Of selection and estimation together."""
    lost: float
    """The certified accuracy lost against fixed n at the radius where most is lost, as a fraction of the inputs."""
    lost_at: float
    """That radius."""


def reorder_votes(records: Sequence[Record], n: int, orders: int = ORDERS) -> Iterator[Votes]:
    """The votes of a run at fixed n, in this many random orders, at every look of a budget of n.

    A store keeps counts and no order. Draws are independent, so every order of them is equally likely, and a random
    one is a fair sample of what the run may have seen. Draws that the run does not have are simulated from a random
    distribution over the answers, drawn from the posterior of its counts.
    """
    rng = np.random.default_rng(0)
    for record in [*records] * orders:
        made = record.certificate
        left = np.array(made.counts)
        prior = np.full(len(left), PRIOR_MISSES / (len(left) - 1))
        prior[made.selected] = PRIOR_HITS
        probabilities = rng.dirichlet(left + prior)
        seen, looks = np.zeros_like(left), []
        for draws in look_draws(n):
            known = min(draws - int(seen.sum()), int(left.sum()))
            taken = rng.multivariate_hypergeometric(left, known)
            left = left - taken
            seen = seen + taken + rng.multinomial(draws - int(seen.sum()) - known, probabilities)
            looks.append(take_look(seen.tolist(), made.selected))
        yield Votes(record.label, made, tuple(looks))


def replay(inputs: Sequence[Votes], n: int, question: Grid) -> Iterator[Outcome]:
    """The outcome of the engine's own rule, then that of each rule with the largest of HOPES that loses at most
    ALLOWED, or with the smallest if all lose more."""
    yield dataclasses.replace(replay_rule(inputs, n, question, OURS, HOPE), rule=AS_IT_IS)
    for rule in RULES:
        outcome = lru_cache(partial(replay_rule, inputs, n, question, rule))
        # A smaller hope takes more draws and loses less, so the largest that is allowed is found by bisection.
        largest = bisect.bisect_left(HOPES, True, key=lambda hope: outcome(hope).lost <= ALLOWED)
        yield outcome(HOPES[min(largest, len(HOPES) - 1)])


def replay_rule(inputs: Sequence[Votes], n: int, question: Grid, rule: str, hope: float) -> Outcome:
    """What a rule does on all inputs, with this hope."""
    fixed: list[Answer] = []
    found: list[Answer] = []
    draws: list[int] = []
    for votes in inputs:
        fixed.append((votes.right, votes.radius_at_n(votes.looks[-1])))
        stopped_at, radius = _stop(votes, n, question, rule, hope)
        found.append((votes.right, radius))
        draws.append(votes.certificate.n0 + stopped_at)
    lost, lost_at = find_worst_loss(fixed, found, question)
    return Outcome(rule, hope, float(np.mean(draws)), lost, lost_at)


def _stop(votes: Votes, n: int, question: Grid, rule: str, hope: float) -> tuple[int, float]:
    """The draws after which the rule stops an input, and the radius that it certifies there."""

    def radius(looks: Sequence[Look]) -> float:
        return votes.radius(RULES[rule](looks, n, question, votes.certificate))

    stopping, taken = Adaptive(n, question, radius, votes.radius_at_n, hope), 0
    while stopping.more(votes.looks[:taken]):
        taken += 1
    return votes.looks[taken - 1].draws, radius(votes.looks[:taken])
