"""What turns a noisy batch into logits: one file a runner, and the file's name is the runner's name."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Runner"]


class Runner(Protocol):
    """A classifier, ready to run. `run` may be called from several threads at once."""

    name: str
    version: str
    classes: int

    def run(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        """The logits of each row of the batch."""
        ...
