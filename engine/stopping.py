"""When an input has had enough draws. Whatever the rule, the bound that a certificate reports must be valid for it."""

from dataclasses import dataclass
from typing import Protocol

from numpy import int64
from numpy.typing import NDArray

from ars.engine.requests import MAX_DRAWS
from ars.errors import ArgumentError

__all__ = ["Fixed", "StoppingRule"]


class StoppingRule(Protocol):
    def more(self, counts: NDArray[int64]) -> int:
        """How many more draws to take after these votes; 0 ends the input."""
        ...


@dataclass(frozen=True)
class Fixed:
    """The paper's rule: n draws, whatever they say. The Clopper-Pearson bound is valid for it as it is."""

    n: int

    def __post_init__(self) -> None:
        if not 1 <= self.n <= MAX_DRAWS:
            raise ArgumentError("n", self.n, "an input has between 1 and 2^56 draws")

    def more(self, counts: NDArray[int64]) -> int:
        return self.n - int(counts.sum())
