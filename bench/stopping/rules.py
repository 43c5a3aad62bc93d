"""The rules that `ars-bench stopping` compares: bounds that hold at every look, ours and two published ways.

All rules stop by the engine's `Adaptive`; they differ only in the bounds that it asks for.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

from scipy.optimize import brentq
from scipy.special import betaln

from ars.engine.statistics.bounds import split_alpha, upper_confidence_bound, widen
from ars.engine.statistics.certificate import Certificate
from ars.engine.statistics.looks import Look, look_draws
from ars.engine.statistics.plan import Plan
from ars.engine.statistics.stopping import Grid

__all__ = ["OURS", "RULES", "Bounds", "bound_by_betting", "bound_with_equal_alpha"]

Bounds = Callable[[Sequence[Look], int, Grid, Certificate, float], tuple[float, float]]
"""A lower bound on pA and an upper bound on pB, from the looks so far, the budget n, the question, a certificate that
has alpha and the noise, and `Plan.max_loss`."""

RateBound = Callable[[int, int, int, float], float]
"""An upper bound on a rate: from a count, the draws so far, the budget n and alpha."""


def _bound_by_plan(
    looks: Sequence[Look], n: int, question: Grid, made: Certificate, max_loss: float
) -> tuple[float, float]:
    plan = Plan(made.n0, n, made.alpha, made.two_sided, question, max_loss)
    return plan.bound(looks, made.noise_family, made.sigma_min, made.eta, closely=False)


def _use_best(bound: RateBound) -> Bounds:
    """The rule that bounds a rate at each look by `bound`, and takes the best of these bounds so far."""

    def bound_both(
        looks: Sequence[Look], n: int, question: Grid, made: Certificate, max_loss: float
    ) -> tuple[float, float]:
        for_p_a, for_p_b = split_alpha(made.alpha, two_sided=made.two_sided)
        p_a = 1 - min(bound(look.draws - look.hits, look.draws, n, for_p_a) for look in looks)
        p_b = 1 - p_a
        if made.two_sided:
            p_b = min(p_b, *(bound(look.runner_up, look.draws, n, for_p_b) for look in looks))
        return widen(p_a, p_b, made.eta)

    return bound_both


@lru_cache(maxsize=2**20)
def bound_with_equal_alpha(count: int, draws: int, n: int, alpha: float, every: int = 1) -> float:
    """The Clopper-Pearson bound, with alpha divided equally among the looks (Bonferroni).

    With every=8, only every 8th look counts, backwards from the last one; the bound at the others is 1.
    """
    looks = look_draws(n)[::-every]
    return upper_confidence_bound(count, draws, alpha / len(looks)) if draws in looks else 1.0


def _bound_at_few_looks(count: int, draws: int, n: int, alpha: float) -> float:
    return bound_with_equal_alpha(count, draws, n, alpha, every=8)


@lru_cache(maxsize=2**20)
def bound_by_betting(count: int, draws: int, n: int, alpha: float) -> float:
    """The bound of a betting confidence sequence, which holds at all numbers of draws together.

    A gambler bets against each rate. If the rate is the true one, the wealth is a martingale and ever exceeds 1 / alpha
    times the stake with probability at most alpha; the bound is the largest rate at which it has not. The bets are the
    mixture with Jeffreys' prior (Robbins, 1970; Krichevsky and Trofimov, 1981), which is the universal portfolio of
    Orabona and Jun, "Tight concentrations and confidence sequences from the regret of universal portfolio", 2023.
    """
    log_mixture = betaln(count + 0.5, draws - count + 0.5) - betaln(0.5, 0.5)

    def log_excess(rate: float) -> float:
        log_likelihood = (count * math.log(rate) if count else 0.0) + (draws - count) * math.log1p(-rate)
        return float(log_mixture - log_likelihood + math.log(alpha))

    return 1.0 if count == draws else float(brentq(log_excess, max(count / draws, 1e-12), 1 - 1e-12, xtol=1e-13))


OURS = "ars"
RULES: dict[str, Bounds] = {
    OURS: _bound_by_plan,
    "equal-alpha, every look": _use_best(bound_with_equal_alpha),
    "equal-alpha, every 8th look": _use_best(_bound_at_few_looks),
    "betting": _use_best(bound_by_betting),
}
"""By the name that the table shows."""
