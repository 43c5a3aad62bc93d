"""A classifier for tests, with known class probabilities: the noise in the first dimension decides the class."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ars.noise import Family

__all__ = ["Null"]


class Null:
    """Answers class c with probability probabilities[c], if x + mean is 0 and scale is 1 in the first dimension."""

    name, version = "null", "1"

    def __init__(self, probabilities: Sequence[float], family: Family) -> None:
        self.classes = len(probabilities)
        self._edges = family.distribution.ppf(np.cumsum(probabilities)[:-1])

    def run(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        first = batch.reshape(len(batch), -1)[:, 0]
        return np.eye(self.classes, dtype=np.float32)[np.searchsorted(self._edges, first)]
