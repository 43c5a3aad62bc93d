"""`ars-bench stopping`: what adaptive stopping saves against fixed n, and against two published ways to look often.

The rules are compared on the same votes: one run to the end of the budget, looked at wherever a rule may look. So
they differ in their bounds alone; when to stop is the engine's rule for all of them.
"""

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import betaln

from ars.engine.algorithms import Plan
from ars.engine.bounds import lower_confidence_bound, upper_confidence_bound
from ars.engine.certificate import ABSTAIN, Certificate
from ars.engine.progress import RunProgress
from ars.engine.smoothed import SmoothedClassifier
from ars.engine.spending import Look, bounds_at, look_draws
from ars.engine.stopping import RADII, Adaptive, Grid, Question
from ars.engine.store import Record
from ars.noise import family_named

__all__ = ["RULES", "Measured", "Outcome", "Votes", "measure", "replay", "votes_of_run"]

OURS, EQUAL, BETTING = "ars", "equal-alpha looks", "betting"
RULES = (OURS, EQUAL, BETTING)

# Of hits, runner-up and the rest, before any vote. Misses have little weight: of the inputs of a trained Fashion-MNIST
# model that never missed in 10,000 draws, 14 of 19 never did in 100,000, which is what 0.15 expects.
PRIOR = np.array([0.5, 0.1, 0.05])


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
    mean_draws: float
    """Of estimation and selection."""
    lost: float
    """The most certified accuracy that it loses against fixed n at any radius of the grid, as a share of the inputs."""
    lost_at: float
    """That radius."""


class Never:
    """A question that is never settled: all n draws are taken, and every look is recorded."""

    settings: dict[str, str | float] = {}  # noqa: RUF012  nobody writes it

    def settled(self, now: float, best: float) -> bool:
        return False


def replay(inputs: Sequence[Votes], n: int, question: Question | None = None) -> list[Outcome]:
    """What each rule would have made of the same votes."""
    fixed = [_radius(votes, _fixed(votes, n)) for votes in inputs]
    outcomes = []
    for rule in RULES:
        ends = [_stop(votes, n, rule, question or Grid()) for votes in inputs]
        found = [radius for _, radius in ends]
        losses = {radius: _share(fixed, inputs, radius) - _share(found, inputs, radius) for radius in RADII}
        lost_at = max(losses, key=lambda radius: losses[radius])
        draws = [end[0] + votes.certificate.n0 for end, votes in zip(ends, inputs, strict=True)]
        outcomes.append(Outcome(rule, float(np.mean(draws)), losses[lost_at], lost_at))
    return outcomes


def _share(radii: Sequence[float], inputs: Sequence[Votes], radius: float) -> float:
    """Certified accuracy at a radius; without labels, the share of inputs that have a certificate that large."""
    right = [votes.label in (None, votes.certificate.selected) for votes in inputs]
    return sum(ok and found >= radius for found, ok in zip(radii, right, strict=True)) / len(radii)


def _radius(votes: Votes, bounds: tuple[float, float]) -> float:
    made = votes.certificate
    return family_named(made.family).radius(*bounds, made.sigma_min) or ABSTAIN


def _stop(votes: Votes, n: int, rule: str, question: Question) -> tuple[int, float]:
    """The draws at which the rule stops, and the radius that it certifies there."""

    def radius(looks: Sequence[Look]) -> float:
        return _radius(votes, _bounds(votes, looks, n, rule))

    stopping, taken = Adaptive(n, question, radius), 0
    while stopping.more(votes.looks[:taken]):
        taken += 1
    return votes.looks[taken - 1].draws, radius(votes.looks[:taken])


def _fixed(votes: Votes, n: int) -> tuple[float, float]:
    made, last = votes.certificate, votes.looks[-1]
    p_a = lower_confidence_bound(last.hits, n, made.alpha / (1 + made.two_sided))
    if not made.two_sided:
        return p_a, 1 - p_a
    return p_a, min(upper_confidence_bound(last.runner_up, n, made.alpha / 2 / _others(votes)), 1 - p_a)


def _others(votes: Votes) -> int:
    return len(votes.certificate.counts) - 1


def _bounds(votes: Votes, looks: Sequence[Look], n: int, rule: str) -> tuple[float, float]:
    made = votes.certificate
    if rule == OURS:
        return bounds_at(looks, n, made.alpha, two_sided=made.two_sided, others=_others(votes))
    bound = _equal if rule == EQUAL else _betting
    p_a = 1 - min(bound(look.draws - look.hits, look.draws, n, made.alpha / (1 + made.two_sided)) for look in looks)
    if not made.two_sided:
        return p_a, 1 - p_a
    return p_a, min(*(bound(look.runner_up, look.draws, n, made.alpha / 2 / _others(votes)) for look in looks), 1 - p_a)


@lru_cache(maxsize=2**16)
def _equal(count: int, draws: int, n: int, alpha: float) -> float:
    """Clopper-Pearson at every look, with the same part of alpha for each (Bonferroni)."""
    return upper_confidence_bound(count, draws, alpha / len(look_draws(n)))


@lru_cache(maxsize=2**16)
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


def votes_of_run(records: Iterable[Record], n: int, seed: int = 0) -> Iterator[Votes]:
    """The votes of a finished run at every look of a budget of n.

    The order of the run's own draws is simulated, which is exact; where it has fewer than n, those that are missing are
    drawn from the shares that it measured.
    """
    rng = np.random.default_rng(seed)
    for record in records:
        made = record.certificate
        hits = made.counts[made.selected]
        runner_up = max(count for answer, count in enumerate(made.counts) if answer != made.selected)
        left = np.array([hits, runner_up, made.n - hits - runner_up])
        shares = rng.dirichlet(left + PRIOR)
        seen, looks = np.zeros(3, np.int64), []
        for draws in look_draws(n):
            known = min(draws, made.n) - min(int(seen.sum()), made.n)
            taken = rng.multivariate_hypergeometric(left, known) if known else np.zeros(3, np.int64)
            left = left - taken
            seen = seen + taken
            seen = seen + rng.multinomial(draws - int(seen.sum()), shares)
            looks.append(Look(draws, int(seen[0]), int(seen[1])))
        yield Votes(record.label, made, tuple(looks))


@dataclass(frozen=True)
class Measured:
    """Both rules on the real model: their draws, seconds and how full the batches were."""

    fixed_draws: float
    fixed_seconds: float
    adaptive_draws: float
    adaptive_seconds: float
    fullness: float | None

    @property
    def draw_saving(self) -> float:
        return self.fixed_draws / self.adaptive_draws

    @property
    def time_saving(self) -> float:
        return self.fixed_seconds / self.adaptive_seconds


Examples = Sequence[tuple[int, NDArray[np.float32], int | None]]


def measure(
    classifier: SmoothedClassifier, examples: Examples, plan: Plan, *, quiet: bool
) -> tuple[Measured, list[Votes]]:
    """Certify the examples by the plan's question, and to the end of its budget; the votes of the latter."""
    labels = {idx: label for idx, _, label in examples}
    whole = Plan(plan.n0, plan.n, plan.alpha, plan.two_sided, Never())
    classifier.prepare(examples[0][1].shape)
    assert classifier.batch is not None
    taken: list[tuple[float, float, float | None]] = []
    votes: list[Votes] = []
    for chosen in (plan, whole):
        votes.clear()
        start, draws = time.perf_counter(), 0
        with RunProgress(len(examples), None, quiet=quiet) as progress:
            for one in classifier.certify_many(((idx, x) for idx, x, _ in examples), chosen, progress.draws):
                label = labels[one.input_id]
                progress.input(None if label is None else label == one.result.predicted)
                votes.append(Votes(label, one.result, one.result.looks))
                draws += one.draws
            full = progress.fullness(classifier.batch)
        taken.append((draws / len(examples), time.perf_counter() - start, full))
    (adaptive_draws, adaptive_seconds, full), (fixed_draws, fixed_seconds, _) = taken
    return Measured(fixed_draws, fixed_seconds, adaptive_draws, adaptive_seconds, full), votes
