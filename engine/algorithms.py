"""The paper's two algorithms, written as generators: each yields the draws that it needs and is sent their votes.

So an algorithm reads as in the paper, while the scheduler runs those of many inputs at once and packs their draws into
full batches. The paper's first step, the noise maps mu, Sigma <- g_n(x), is done when the input is loaded. Votes are
counts for each class, and last the number of draws that voted for nobody.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ars.checks import whole_number
from ars.engine.requests import Draws, Phase
from ars.engine.statistics.bounds import MAX_N, check_alpha
from ars.engine.statistics.certificate import (
    Certificate,
    certify_votes,
    end_after_selection,
    predict_from_votes,
)
from ars.engine.statistics.looks import Look, take_look
from ars.engine.statistics.plan import Plan
from ars.errors import RunError
from ars.noise import Family, NoiseKind

__all__ = ["Prediction", "Procedure", "certify", "predict"]

Result = TypeVar("Result")
Votes = NDArray[np.int64]
Procedure = Generator[Draws, Votes, Result]
"""An algorithm at work on one input."""


def certify(
    scale: NDArray[np.float32],
    plan: Plan,
    family: Family,
    kind: NoiseKind,
    eta: float = 0.0,
    label: int | None = None,
) -> Procedure[Certificate]:
    """The paper's algorithm "Anisotropic Randomized Smoothing Certification".

    With probability at least 1 - alpha over the draws, what the certificate claims is true. It may abstain. The total
    variation distance between a draw and the ideal noise is at most `eta`.

    If a `label` is given, an input whose selected class is another one ends there: it can no longer be certified
    correct, whatever the estimation draws would say.
    """
    counts_select = yield Draws(Phase.SELECTION, plan.n0)
    if counts_select[-1] == plan.n0:
        raise RunError(f"none of the first {plan.n0} draws has finite logits; check the model for NaN and infinity")
    c_a = int(counts_select[:-1].argmax())

    if label not in (None, c_a):
        classes = len(counts_select) - 1
        return end_after_selection(c_a, classes, plan=plan, family=family, scale=scale, kind=kind, eta=eta)

    rule = plan.stopping_rule(family.in_dimensions(scale.size), float(scale.min()), eta)
    counts, looks = np.zeros_like(counts_select), list[Look]()
    while draws := rule.more(looks):
        counts = counts + (yield Draws(Phase.ESTIMATION, draws))
        looks.append(take_look(counts.tolist(), c_a))

    if plan.question is None:
        looks = []  # a certificate at fixed n keeps none
    return certify_votes(counts.tolist(), c_a, plan=plan, family=family, scale=scale, kind=kind, looks=looks, eta=eta)


@dataclass(frozen=True)
class Prediction:
    """The answer of the smoothed classifier, or ABSTAIN. It is wrong with probability at most alpha."""

    predicted: int
    counts: tuple[int, ...]
    alpha: float


def predict(*, n: int, alpha: float, eta: float = 0.0) -> Procedure[Prediction]:
    """The paper's algorithm "Anisotropic Randomized Smoothing Prediction"."""
    check_alpha(alpha)
    whole_number("n", n, 1, MAX_N, f"predictions are for 1 to {MAX_N} draws")
    counts = yield Draws(Phase.PREDICTION, n)
    return Prediction(predict_from_votes(counts.tolist(), alpha, eta), tuple(counts.tolist()), alpha)
