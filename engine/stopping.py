"""When an input has had enough draws. Whatever the rule, the bound that a certificate reports must be valid for it."""

from dataclasses import dataclass
from typing import Protocol

from numpy import int64
from numpy.typing import NDArray

__all__ = ["Fixed", "StoppingRule"]


class StoppingRule(Protocol):
    def more(self, counts: NDArray[int64]) -> int:
        """How many more draws to take after these votes; 0 ends the input."""
        ...


@dataclass(frozen=True)
class Fixed:
    """The paper's rule: n draws, whatever they say. The Clopper-Pearson bound is valid for it as it is."""

    n: int

    def more(self, counts: NDArray[int64]) -> int:
        return self.n - int(counts.sum())
