"""`ars-bench stopping`: what adaptive stopping saves against fixed n, and against two published ways to look often.

What was saved is a matter of two runs with the same seed, one at fixed n and one that stopped adaptively. The rules are
compared on the votes of the fixed run, looked at wherever a rule may look, and at equal certified accuracy: they differ
in their bounds, and when they stop is the engine's rule for all of them, each with the most hope that loses no more
than ALLOWED. What a rule loses is a matter of few inputs, and so of chance: it is the average over ORDERS orders of the
votes.
"""

import bisect
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaln

from ars.engine.records.record import Record
from ars.engine.statistics.bounds import bound_at_fixed_n, upper_confidence_bound
from ars.engine.statistics.certificate import Certificate
from ars.engine.statistics.ladder import bound_at_looks, choose_ladders
from ars.engine.statistics.looks import Look, look_draws, take_look
from ars.engine.statistics.stopping import HOPE, NO_RADIUS, Adaptive, Grid
from ars.noise import family_named

__all__ = ["ORDERS", "RULES", "Outcome", "Saving", "Votes", "compare", "replay", "votes_of_run"]

OURS, EQUAL, FEW, BETTING = "ars", "equal-alpha, every look", "equal-alpha, every 8th look", "betting"
RULES = (OURS, EQUAL, FEW, BETTING)
AS_IT_IS = "ars, as it is"
HOPES = (4.0, 3.2, 2.5, HOPE, 1.3, 0.9, 0.5, 0.01)
ALLOWED = 0.005
"""Certified accuracy at any radius, as a share of the inputs."""
ORDERS = 4

# Of hits and of all misses, before any vote. Misses have little weight: of the inputs of a trained Fashion-MNIST model
# that never missed in 10,000 draws, 14 of 19 never did in 100,000, which is what 0.15 expects.
PRIOR_HITS, PRIOR_MISSES = 0.5, 0.15

BoundOfRate = Callable[[int, int, int, float], float]


@dataclass(frozen=True)
class Votes:
    """One input, with its votes at every look up to the budget."""

    label: int | None
    certificate: Certificate
    """For its class, noise and level; of its votes only `looks` counts here."""
    looks: tuple[Look, ...]


@dataclass(frozen=True)
class Outcome:
    """A rule, on all inputs."""

    rule: str
    hope: float
    """How much hope it had (engine/statistics/stopping.py)."""
    mean_draws: float
    """Of estimation and selection."""
    lost: float
    """The most certified accuracy that it loses against fixed n at any radius of the grid, as a share of the inputs."""
    lost_at: float
    """That radius."""


@dataclass(frozen=True)
class Saving:
    """An adaptive run beside a fixed one."""

    inputs: int
    fixed_draws: float
    """The draws of an input, on average."""
    adaptive_draws: float
    lost: float
    """The most certified accuracy that is lost at any radius, as a share of the inputs."""
    lost_at: float

    @property
    def times(self) -> float:
        return self.fixed_draws / self.adaptive_draws


def compare(fixed: Mapping[int, Record], adaptive: Mapping[int, Record], question: Grid) -> Saving:
    """What an adaptive run saved, and lost at the radii of a question. The fixed run may lack inputs whose selected
    class is wrong: nobody certifies these."""
    both = [fixed[idx] for idx in adaptive if idx in fixed]
    lost, lost_at = _most_lost([_answer(one) for one in both], [_answer(one) for one in adaptive.values()], question)
    fixed_draws = float(np.mean([record.draws for record in both]))
    adaptive_draws = float(np.mean([record.draws for record in adaptive.values()]))
    return Saving(len(adaptive), fixed_draws, adaptive_draws, lost, lost_at)


def _answer(record: Record) -> tuple[bool, float]:
    """Whether the class is right, as far as one knows, and the radius."""
    made = record.certificate
    return record.label in (None, made.selected), NO_RADIUS if made.abstained else made.radius


def _most_lost(
    fixed: Sequence[tuple[bool, float]], found: Sequence[tuple[bool, float]], question: Grid
) -> tuple[float, float]:
    """The most certified accuracy lost at a radius of the question, and that radius. `found` has the answers of all
    inputs, `fixed` those of all that anybody certifies."""

    def certified(answers: Sequence[tuple[bool, float]], at: float) -> int:
        return sum(right and radius >= at for right, radius in answers)

    losses = {at: (certified(fixed, at) - certified(found, at)) / len(found) for at in question.radii}
    worst = max(losses, key=lambda at: losses[at])
    return losses[worst], worst


def replay(inputs: Sequence[Votes], n: int, question: Grid) -> Iterator[Outcome]:
    """What the engine's own rule would have made of the same votes; and then what each rule would have, with the most
    hope of HOPES that loses no more than ALLOWED, or with the least, if all lose more."""
    yield dataclasses.replace(_outcome(inputs, n, question, OURS, HOPE), rule=AS_IT_IS)
    for rule in RULES:
        outcome = lru_cache(partial(_outcome, inputs, n, question, rule))
        # Who hopes for less goes on longer and loses less, so bisection finds the most.
        most = bisect.bisect_left(HOPES, True, key=lambda hope: outcome(hope).lost <= ALLOWED)
        yield outcome(HOPES[min(most, len(HOPES) - 1)])


def _outcome(inputs: Sequence[Votes], n: int, question: Grid, rule: str, hope: float) -> Outcome:
    right = [votes.label in (None, votes.certificate.selected) for votes in inputs]
    ends = [_stop(votes, n, question, rule, hope) for votes in inputs]
    fixed = [(ok, _radius(votes, *_at_the_end(votes))) for ok, votes in zip(right, inputs, strict=True)]
    found = [(ok, radius) for ok, (_, radius) in zip(right, ends, strict=True)]
    lost, lost_at = _most_lost(fixed, found, question)
    draws = [end[0] + votes.certificate.n0 for end, votes in zip(ends, inputs, strict=True)]
    return Outcome(rule, hope, float(np.mean(draws)), lost, lost_at)


def _at_the_end(votes: Votes) -> tuple[float, float]:
    made = votes.certificate
    return bound_at_fixed_n(votes.looks[-1], made.alpha, two_sided=made.two_sided)


def _radius(votes: Votes, p_a: float, p_b: float) -> float:
    made = votes.certificate
    return family_named(made.family).radius(p_a, p_b, made.sigma_min) or NO_RADIUS


def _stop(votes: Votes, n: int, question: Grid, rule: str, hope: float) -> tuple[int, float]:
    """The draws at which the rule stops, and the radius that it certifies there."""
    radius, taken = _radius_rule(votes, n, question, rule), 0
    stopping = Adaptive(n, question, radius, hope)
    while stopping.more(votes.looks[:taken]):
        taken += 1
    return votes.looks[taken - 1].draws, radius(votes.looks[:taken])


def _radius_rule(votes: Votes, n: int, question: Grid, rule: str) -> Callable[[Sequence[Look]], float]:
    """The radius that looks certify, by the bounds of this rule."""
    made = votes.certificate
    if rule == OURS:
        ladders = choose_ladders(question, family_named(made.family), made.sigma_min, two_sided=made.two_sided)

        def ours(looks: Sequence[Look]) -> float:
            return _radius(votes, *bound_at_looks(looks, n, made.alpha, ladders, two_sided=made.two_sided))

        return ours
    published_bounds: dict[str, BoundOfRate] = {EQUAL: _equal, FEW: _few, BETTING: _betting}
    bound = published_bounds[rule]

    def published(looks: Sequence[Look]) -> float:
        p_a = 1 - min(bound(look.draws - look.hits, look.draws, n, made.alpha / (1 + made.two_sided)) for look in looks)
        if not made.two_sided:
            return _radius(votes, p_a, 1 - p_a)
        p_b = min(bound(look.runner_up, look.draws, n, made.alpha / 2) for look in looks)
        return _radius(votes, p_a, min(p_b, 1 - p_a))

    return published


@lru_cache(maxsize=2**20)
def _equal(count: int, draws: int, n: int, alpha: float, every: int = 1) -> float:
    """Clopper-Pearson at every look, or at some of them, with the same part of alpha for each (Bonferroni)."""
    looks = look_draws(n)[::-every]
    return upper_confidence_bound(count, draws, alpha / len(looks)) if draws in looks else 1.0


def _few(count: int, draws: int, n: int, alpha: float) -> float:
    return _equal(count, draws, n, alpha, every=8)


@lru_cache(maxsize=2**20)
def _betting(count: int, draws: int, n: int, alpha: float) -> float:
    """The rate from which on the mixture of all bets has not yet made 1 / alpha of its money: valid at every draw.

    The mixture is Jeffreys' (Krichevsky and Trofimov; Robbins, 1970), the universal portfolio that Orabona and Jun,
    "Tight concentrations and confidence sequences from the regret of universal portfolio", 2023, bet with.
    """
    money = betaln(count + 0.5, draws - count + 0.5) - betaln(0.5, 0.5)

    def gain(rate: float) -> float:
        likelihood = (count * math.log(rate) if count else 0.0) + (draws - count) * math.log1p(-rate)
        return float(money - likelihood + math.log(alpha))

    return 1.0 if count == draws else float(brentq(gain, max(count / draws, 1e-12), 1 - 1e-12, xtol=1e-13))


def votes_of_run(records: Sequence[Record], n: int, orders: int = ORDERS) -> Iterator[Votes]:
    """The votes of a finished run at every look of a budget of n, in so many orders.

    The order of the run's own draws is simulated, which is exact; where it has fewer than n, those that are missing are
    drawn from the shares that it measured.
    """
    rng = np.random.default_rng(0)
    for record in [*records] * orders:
        made = record.certificate
        left = np.array(made.counts)
        prior = np.full(len(left), PRIOR_MISSES / (len(left) - 1))
        prior[made.selected] = PRIOR_HITS
        shares = rng.dirichlet(left + prior)
        seen, looks = np.zeros_like(left), []
        for draws in look_draws(n):
            known = min(draws - int(seen.sum()), int(left.sum()))
            taken = rng.multivariate_hypergeometric(left, known)
            left = left - taken
            seen = seen + taken + rng.multinomial(draws - int(seen.sum()) - known, shares)
            looks.append(take_look(seen.tolist(), made.selected))
        yield Votes(record.label, made, tuple(looks))
