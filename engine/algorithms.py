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
from ars.engine.bounds import MAX_N, check_alpha
from ars.engine.certificate import Certificate, certificate, prediction
from ars.engine.requests import Draws, Phase
from ars.engine.stopping import Fixed, StoppingRule
from ars.errors import ArgumentError, RunError
from ars.noise import Family, NoiseKind

__all__ = ["Plan", "Prediction", "Procedure", "certify", "predict"]

Result = TypeVar("Result")
Votes = NDArray[np.int64]
Procedure = Generator[Draws, Votes, Result]


# Split over up to 10^5 classes, it stays in the range of the bounds.
MIN_PLAN_ALPHA = 1e-9


@dataclass(frozen=True)
class Plan:
    """How to certify: n0 draws select a class, n draws bound its share, and alpha is the allowed share of errors."""

    n0: int = 100
    n: int = 100_000
    alpha: float = 0.001
    two_sided: bool = False

    def __post_init__(self) -> None:
        for name, draws in (("n0", self.n0), ("n", self.n)):
            whole_number(name, draws, 1, MAX_N, f"certificates are for 1 to {MAX_N} draws")
        if check_alpha(self.alpha) < MIN_PLAN_ALPHA:
            raise ArgumentError("alpha", self.alpha, f"certificates are for alpha of at least {MIN_PLAN_ALPHA}")

    def stopping_rule(self) -> StoppingRule:
        return Fixed(self.n)


def certify(scale: NDArray[np.float32], plan: Plan, family: Family, kind: NoiseKind) -> Procedure[Certificate]:
    """Algorithm "Anisotropic Randomized Smoothing Certification".

    With probability at least 1 - alpha over the draws, the certificate is right; it may abstain.
    """
    counts_select = yield Draws(Phase.SELECTION, plan.n0)
    if counts_select[-1] == plan.n0:
        raise RunError(f"none of the first {plan.n0} draws has finite logits; check the model for NaN and infinity")
    c_a = int(counts_select[:-1].argmax())

    rule, counts = plan.stopping_rule(), np.zeros_like(counts_select)
    while draws := rule.more(counts):
        counts = counts + (yield Draws(Phase.ESTIMATION, draws))

    return certificate(
        counts.tolist(),
        c_a,
        n0=plan.n0,
        alpha=plan.alpha,
        family=family,
        scale=scale,
        kind=kind,
        two_sided=plan.two_sided,
    )


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
    return Prediction(prediction(counts.tolist(), alpha), tuple(counts.tolist()), alpha)
