"""The paper's two algorithms, as procedures: each asks for draws with `yield` and is sent the votes for them.

So an algorithm reads as it stands in the paper, while the scheduler runs the procedures of many inputs at once and
packs their draws into full batches. The noise maps, the paper's mu, Sigma <- g_n(x), are made when the input is loaded.
Votes are counts by class, and last the draws that voted for nobody.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ars.checks import whole_number
from ars.engine.bounds import MAX_N, check_alpha
from ars.engine.certificate import ABSTAIN, BOUNDS, Certificate, certificate, ladders_of, look_at, prediction
from ars.engine.ladder import bounds_at
from ars.engine.looks import Look
from ars.engine.requests import Draws, Phase
from ars.engine.stopping import Adaptive, Fixed, Question, StoppingRule
from ars.errors import ArgumentError, RunError
from ars.noise import Family, NoiseKind

__all__ = ["Plan", "Prediction", "Procedure", "certify", "predict"]

Result = TypeVar("Result")
Votes = NDArray[np.int64]
Procedure = Generator[Draws, Votes, Result]


# Its halves, and the parts that `ars-bench stopping` makes of it, stay in the range of the bounds.
MIN_PLAN_ALPHA = 1e-9
MIN_ADAPTIVE_ALPHA = 1e-5


@dataclass(frozen=True)
class Plan:
    """How to certify: n0 draws select a class, n draws bound its share, and alpha is the allowed share of errors.

    With a question, an input stops as soon as that is settled, and n is the budget that none exceeds.
    """

    n0: int = 100
    n: int = 100_000
    alpha: float = 0.001
    two_sided: bool = False
    question: Question | None = None

    def __post_init__(self) -> None:
        for name, draws in (("n0", self.n0), ("n", self.n)):
            whole_number(name, draws, 1, MAX_N, f"certificates are for 1 to {MAX_N} draws")
        least = MIN_PLAN_ALPHA if self.question is None else MIN_ADAPTIVE_ALPHA
        if check_alpha(self.alpha) < least:
            kind = "certificates" if self.question is None else "adaptive certificates"
            raise ArgumentError("alpha", self.alpha, f"{kind} are for alpha of at least {least}")

    @property
    def settings(self) -> dict[str, str | float]:
        """The plan, for the record."""
        plan: dict[str, str | float] = {"n0": self.n0, "n": self.n, "alpha": self.alpha, "two_sided": self.two_sided}
        if self.question is None:
            return plan | {"stopping": "fixed"} | ({"bounds": BOUNDS} if self.two_sided else {})
        return plan | {"stopping": "adaptive"} | self.question.settings | {"bounds": BOUNDS}

    def stopping_rule(self, family: Family, sigma_min: float) -> StoppingRule:
        """When an input with this noise has had enough draws."""
        if self.question is None:
            return Fixed(self.n)
        ladders = ladders_of(self.question, family, sigma_min, two_sided=self.two_sided)

        def radius(looks: Sequence[Look]) -> float:
            p_a, p_b = bounds_at(looks, self.n, self.alpha, ladders, two_sided=self.two_sided)
            return family.radius(p_a, p_b, sigma_min) or ABSTAIN

        return Adaptive(self.n, self.question, radius)


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
        looks.append(look_at(counts.tolist(), c_a))

    return certificate(
        counts.tolist(),
        c_a,
        n0=plan.n0,
        alpha=plan.alpha,
        family=family,
        scale=scale,
        kind=kind,
        two_sided=plan.two_sided,
        question=plan.question,
        looks=looks if plan.question else (),
        budget=plan.n,
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
