"""The votes of a run at fixed n, looked at again as each rule would have looked at them.

The rules (rules.py) are compared at equal certified accuracy. All of them stop by the engine's `Adaptive`, each with
the largest `max_loss` with which it loses at most ALLOWED. What a rule loses depends on few inputs, and so on chance;
therefore it is averaged over ORDERS random orders of the votes.
"""

import bisect
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from ars.bench.stopping.rules import OURS, RULES
from ars.bench.stopping.saving import Answer, find_worst_loss
from ars.engine.records.record import Record
from ars.engine.statistics.bounds import bound_at_fixed_n, widen
from ars.engine.statistics.certificate import Certificate
from ars.engine.statistics.looks import Look, look_draws, take_look
from ars.engine.statistics.losses import LEAST_LOSS, MAX_LOSS
from ars.engine.statistics.stopping import NO_RADIUS, Adaptive, Grid

__all__ = ["LOSSES", "ORDERS", "Outcome", "Votes", "describe_origin", "reorder_votes", "replay", "replay_rule"]

AS_IT_IS = "ars, as it is"
LOSSES = tuple(sorted({2.4, 1.8, 1.4, 1.0, 0.7, MAX_LOSS, 0.3, 0.1, LEAST_LOSS}, reverse=True))
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
    max_loss: float
    """As in the plan of a run (engine/statistics/plan.py)."""
    mean_draws: float
    """Of selection and estimation together."""
    lost: float
    """The certified accuracy lost against fixed n at the radius where most is lost, as a fraction of all inputs."""
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


def describe_origin(store: Path, voted: int, drawn: int, n: int) -> str:
    """Which votes of a store these are, whose inputs have `drawn` votes each."""
    simulated = f", {n - drawn:,} of {n:,} draws simulated from their shares" if drawn < n else ""
    return f"the votes of {voted} inputs of {store} in {ORDERS} orders{simulated}"


def replay(votes: Sequence[Votes], n: int, question: Grid, total: int) -> Iterator[Outcome]:
    """The outcome of the engine's own rule, then that of each rule with the largest of LOSSES that loses at most
    ALLOWED, or with the smallest if all lose more. `total` is as for `replay_rule`."""
    yield dataclasses.replace(replay_rule(votes, n, question, total, OURS, MAX_LOSS), rule=AS_IT_IS)
    for rule in RULES:
        outcome = lru_cache(partial(replay_rule, votes, n, question, total, rule))
        # A smaller one takes more draws and loses less, so the largest that is allowed is found by bisection.
        largest = bisect.bisect_left(LOSSES, True, key=lambda max_loss: outcome(max_loss).lost <= ALLOWED)
        yield outcome(LOSSES[min(largest, len(LOSSES) - 1)])


def replay_rule(votes: Sequence[Votes], n: int, question: Grid, total: int, rule: str, max_loss: float) -> Outcome:
    """What a rule does on all inputs, if it may lose so much.

    `total` is the number of inputs, in all orders, of which the loss is a fraction. It may be larger than the number of
    votes: inputs that ended after selection have none.
    """
    fixed: list[Answer] = []
    found: list[Answer] = []
    draws: list[int] = []
    for one in votes:
        fixed.append((one.right, one.radius_at_n(one.looks[-1])))
        stopped_at, radius = _stop(one, n, question, rule, max_loss)
        found.append((one.right, radius))
        draws.append(one.certificate.n0 + stopped_at)
    lost, lost_at = find_worst_loss(fixed, found, question, total)
    return Outcome(rule, max_loss, float(np.mean(draws)), lost, lost_at)


def _stop(votes: Votes, n: int, question: Grid, rule: str, max_loss: float) -> tuple[int, float]:
    """The draws after which the rule stops an input, and the radius that it certifies there."""

    def radius(looks: Sequence[Look]) -> float:
        return votes.radius(RULES[rule](looks, n, question, votes.certificate, max_loss))

    stopping, taken = Adaptive(n, question, radius, votes.radius_at_n, max_loss), 0
    while stopping.more(votes.looks[:taken]):
        taken += 1
    return votes.looks[taken - 1].draws, radius(votes.looks[:taken])
