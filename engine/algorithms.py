"""The paper's two algorithms, as procedures: each asks for draws with `yield` and is sent the votes for them.

So an algorithm reads as it stands in the paper, while the scheduler runs the procedures of many inputs at once and
packs their draws into full batches. The noise maps, the paper's mu, Sigma <- g_n(x), are made when the input is loaded.
Votes are counts by class, and last the draws that voted for nobody.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ars.checks import whole_number
from ars.engine.requests import Draws, Phase
from ars.engine.statistics.bounds import MAX_N, check_alpha
from ars.engine.statistics.certificate import Certificate, certify_votes, predict_from_votes
from ars.engine.statistics.looks import Look, take_look
from ars.engine.statistics.plan import Plan
from ars.errors import RunError
from ars.noise import Family, NoiseKind

__all__ = ["Prediction", "Procedure", "certify", "predict"]

Result = TypeVar("Result")
Votes = NDArray[np.int64]
Procedure = Generator[Draws, Votes, Result]


def certify(scale: NDArray[np.float32], plan: Plan, family: Family, kind: NoiseKind) -> Procedure[Certificate]:
    """Algorithm "Anisotropic Randomized Smoothing Certification".

    With probability at least 1 - alpha over the draws, the certificate is right; it may abstain.
    """
    counts_select = yield Draws(Phase.SELECTION, plan.n0)
    if counts_select[-1] == plan.n0:
        raise RunError(f"none of the first {plan.n0} draws has finite logits; check the model for NaN and infinity")
    c_a = int(counts_select[:-1].argmax())

    rule = plan.stopping_rule(family, float(scale.min()))
    counts, looks = np.zeros_like(counts_select), list[Look]()
    while draws := rule.more(looks):
        counts = counts + (yield Draws(Phase.ESTIMATION, draws))
        looks.append(take_look(counts.tolist(), c_a))

    if plan.question is None:
        looks = []  # n was fixed, and the certificate says so
    return certify_votes(counts.tolist(), c_a, plan=plan, family=family, scale=scale, kind=kind, looks=looks)


@dataclass(frozen=True)
class Prediction:
    """The smoothed classifier's answer, or ABSTAIN; a wrong answer has a probability of at most alpha."""

    predicted: int
    counts: tuple[int, ...]
    alpha: float


def predict(*, n: int, alpha: float) -> Procedure[Prediction]:
    """Algorithm "Anisotropic Randomized Smoothing Prediction"."""
    check_alpha(alpha)
    whole_number("n", n, 1, MAX_N, f"predictions are for 1 to {MAX_N} draws")
    counts = yield Draws(Phase.PREDICTION, n)
    return Prediction(predict_from_votes(counts.tolist(), alpha), tuple(counts.tolist()), alpha)
