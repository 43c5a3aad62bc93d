"""How to certify: the draws, the error probability, and the question that ends an input early."""

from collections.abc import Sequence
from dataclasses import dataclass

from ars.checks import whole_number
from ars.engine.statistics.bounds import MAX_N, check_alpha
from ars.engine.statistics.certificate import ABSTAIN, BOUNDS, ladders_of
from ars.engine.statistics.ladder import bounds_at
from ars.engine.statistics.looks import Look
from ars.engine.statistics.stopping import Adaptive, Fixed, Question, StoppingRule
from ars.errors import ArgumentError
from ars.noise import Family

__all__ = ["Plan"]

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
