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

from ars.engine.certificate import Certificate, certificate, prediction
from ars.engine.requests import Draws, Phase
from ars.engine.stopping import StoppingRule
from ars.errors import ArgumentError, RunError
from ars.noise import Family, NoiseKind

__all__ = ["Prediction", "Procedure", "certify", "predict"]

Result = TypeVar("Result")
Votes = NDArray[np.int64]
Procedure = Generator[Draws, Votes, Result]


def certify(
    scale: NDArray[np.float32],
    *,
    n0: int,
    rule: StoppingRule,
    alpha: float,
    family: Family,
    kind: NoiseKind,
    two_sided: bool,
) -> Procedure[Certificate]:
    """Algorithm "Anisotropic Randomized Smoothing Certification".

    With probability at least 1 - alpha over the draws, the certificate is right; it may abstain.
    """
    if n0 < 1:
        raise ArgumentError("n0", n0, "at least one draw selects the class")
    counts_select = yield Draws(Phase.SELECTION, n0)
    if counts_select[-1] == n0:
        raise RunError(f"none of the first {n0} draws has finite logits; check the model for NaN and infinity")
    c_a = int(counts_select[:-1].argmax())

    counts = np.zeros_like(counts_select)
    while draws := rule.more(counts):
        counts = counts + (yield Draws(Phase.ESTIMATION, draws))

    return certificate(
        counts.tolist(), c_a, n0=n0, alpha=alpha, family=family, scale=scale, kind=kind, two_sided=two_sided
    )


@dataclass(frozen=True)
class Prediction:
    """The smoothed classifier's answer, or ABSTAIN; a wrong answer has a probability of at most alpha."""

    predicted: int
    counts: tuple[int, ...]
    alpha: float


def predict(*, n: int, alpha: float) -> Procedure[Prediction]:
    """Algorithm "Anisotropic Randomized Smoothing Prediction"."""
    counts = yield Draws(Phase.PREDICTION, n)
    return Prediction(prediction(counts.tolist(), alpha), tuple(counts.tolist()), alpha)
