"""The search for the smallest attack on one certified input.

An attack of size s is a perturbation with ||delta / scale|| = s, the measure of the certified region: the certificate
says that no size below K changes the answer. The search begins just inside of K, goes on to larger sizes until an
attack succeeds, and then halves the distance between the largest size that failed and the smallest that succeeded.
"""

from collections.abc import Callable
from typing import TypeVar

from ars.bench.attack.attack_file import Success

__all__ = ["find_smallest"]

Found = TypeVar("Found")

INSIDE = 0.999
"""The first size, as a share of K."""
GROWTH, LEAST_GROWTH = 1.4, 0.1
"""From one size to the next: by this factor, and by at least this many scales of the noise."""
TOLERANCE = 0.02
"""The search ends if the smallest success exceeds the largest failure by no more than this share."""


def find_smallest(
    K: float,
    limit: float,
    propose: Callable[[float, Found | None], tuple[Found, bool]],
    confirm: Callable[[Found], Success | None],
) -> tuple[Found, Success] | None:
    """The smallest success that was found, of a size up to `limit`, with its perturbation; None if there was none.

    `propose` makes the best perturbation of a size that it can, from an earlier one, and says whether it looks like a
    success. Only `confirm` decides.
    """
    size, failed = INSIDE * K, 0.0
    earlier: Found | None = None
    smallest: tuple[Found, Success] | None = None
    while True:
        proposed, promising = propose(size, smallest[0] if smallest else earlier)
        earlier, success = proposed, confirm(proposed) if promising else None
        if success is None:
            failed = size
        elif smallest is None or success.measure < smallest[1].measure:
            smallest = proposed, success
        if smallest is None:
            if size >= limit:
                return None
            size = min(max(GROWTH * size, size + LEAST_GROWTH), limit)
        elif smallest[1].measure - failed <= TOLERANCE * smallest[1].measure:
            return smallest
        else:
            size = (failed + smallest[1].measure) / 2
