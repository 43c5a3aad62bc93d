"""How much certified accuracy adaptive stopping may lose against n draws, in exchange for draws.

`max_loss` is in points of certified accuracy, at any radius of the grid, averaged over random orders of the votes. It
scales what the tests give up at the last look (spending.py) and how readily an input is stopped (stopping.py). It is
calibrated on the models of docs/adaptive.md, and not proved; validity does not depend on it.
"""

import math

from ars.engine.statistics.looks import FULL

__all__ = ["LEAST_LOSS", "MAX_LOSS", "MOST_LOSS", "OLDER_LOSS", "allowance"]

MAX_LOSS = 0.5
"""What may be lost if nobody asks for another number."""
LEAST_LOSS, MOST_LOSS = 0.01, 5.0

OLDER_LOSS = 0.7
"""What may be lost in older runs, which do not say it: with this number, bounds and stopping are what they were."""


def allowance(max_loss: float, n: int) -> float:
    """How much may be given up with a budget of n draws, where 1 is as much as in older runs of FULL draws.

    With fewer draws the radii of more inputs are in doubt, so the same loss allows less, in proportion to sqrt(n).
    """
    return max_loss / OLDER_LOSS * min(1.0, math.sqrt(n / FULL))
