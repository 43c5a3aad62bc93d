"""Bounds on pA and pB that hold at every look together, for inputs that may stop at any look.

A *miss* is a draw that does not vote for the selected class, and its probability p is the miss rate; pA = 1 - p. A
*ladder* is a decreasing sequence of rates. Each rate r on it can be tested: the looks taken so far *exclude* r if at
any of them the misses are few enough (the limits of spending.py), and otherwise they *keep* it. If p >= r, then r is
excluded at any look of the whole schedule with probability at most alpha. A bisection over the ladders narrows the gap
between a rate that is kept and a higher one that is excluded, and the latter is the upper bound on p. It may end before
the two are neighbours, for whatever reason.

The bisection tests many rates, and it runs again at each look. Still, with probability at least 1 - alpha, the bound is
at least p at all looks together. docs/adaptive-validity.md has the proof, which needs that each test's limits are at
least those of the test before it, which `find_limits` is given as a `floor`.

**The bound on pB** comes from a second search, with the votes of the most frequent other answer in place of the misses.
Alpha need not be divided among the answers; it is divided between pA and pB (`split_alpha`).

**Rare misses.** How alpha is divided may depend on the rate that is tested. Where misses are rare, a bound on pB adds
little, and the bound on pA gets nearly all of alpha. Let h > l be the levels of the tests of a miss rate up to a rate d
and above it, l' < h' those of the tests of the likeliest other answer's rate below a rate e and from e on, with h + l'
and l + h' at most alpha, and 1 - e <= (1 - d)^c for c = log l / log h. Then, still, both bounds are right at all looks
together with probability at least 1 - alpha (Theorem 3 of that page).

**Two-sided certificates.** A region of size K follows from pA and pB together, and many pairs of them give the same K.
So both searches go on only until it is settled which of the sizes in question the looks prove: K is proved if the
excluded rates give it, and it is not if even the kept ones do not. At most looks this takes few tests.

The looks, the budget n, alpha, the ladders, the sizes and `max_loss` decide a bound, and nothing else does; so a
certificate can be computed again from its record.
"""

import bisect
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import le, neg

from scipy.special import ndtr

from ars.engine.statistics.bounds import split_alpha, upper_confidence_bound
from ars.engine.statistics.looks import FULL, Look, look_number
from ars.engine.statistics.losses import MAX_LOSS, OLDER_LOSS
from ars.engine.statistics.spending import choose_given_up, find_limits
from ars.noise import Family, hits_at

__all__ = [
    "STEPS",
    "Ladder",
    "bound_at_looks",
    "bound_both_at_looks",
    "divide_alpha",
    "fine_ladder",
    "make_ladder",
    "rare_rate",
]

Ladder = tuple[float, ...]
Level = Callable[[float], float]
"""The error probability that the test of a rate may have."""

RARE_SHARE = 0.99
"""Where misses are rare, the bound on pA gets this share of alpha. Then an input without a miss is certified after as
many draws as with a one-sided bound; with 0.9 of alpha it would take 1.5 % more, which is often one look more."""

STEPS: Ladder = tuple(float(ndtr(-K / 32)) for K in range(1, 5 * 32, 2))
"""The coarse ladder of one-sided certificates, searched first for every question. With it, a certificate between two
radii of the question gets its own, tighter bound."""


@lru_cache
def make_ladder(family: Family, regions: tuple[float, ...], eta: float = 0.0) -> Ladder:
    """For each region size K, from small to large, the largest miss rate at which K is certified if pB = 1 - pA and
    the bounds are widened by eta."""
    rates = (_largest_rate(family, K) - eta for K in regions)
    return tuple(dict.fromkeys(rate for rate in rates if rate > 0))


_largest_rate = lru_cache(maxsize=2**14)(Family.largest_rate)


@lru_cache
def fine_ladder(n: int) -> Ladder:
    """Rates in steps of a quarter of the standard deviation of the share of n votes, whatever the rate: that of
    arcsin(sqrt(share)) is 1 / (2 sqrt(n)) everywhere. Below FULL draws the steps are those of FULL: a quarter of the
    standard deviation of fewer votes is a larger part of a radius, and would lose certified accuracy."""
    step = 1 / (8 * math.sqrt(max(n, FULL)))
    return tuple(math.sin(number * step) ** 2 for number in range(int(math.pi / 2 / step), 0, -1))


class _Search:
    """The search for an upper bound on one rate, a test at a time."""

    def __init__(
        self,
        numbers: Sequence[int],
        counts: Sequence[int],
        ladders: Sequence[Ladder],
        n: int,
        level: Level,
        given_up: float,
    ):
        """The counts are those at the looks of these numbers; `given_up` is as for `find_limits`."""
        self.excluded, self.kept = 1.0, 0.0
        self._numbers, self._counts = numbers, counts
        self._n, self._level, self._given_up = n, level, given_up
        self._ladders = list(ladders)
        self._rates: Sequence[float] = ()
        self._floor: tuple[int, ...] = ()
        self._find_gap()

    def _find_gap(self) -> None:
        while not self._rates and self._ladders:
            ladder = self._ladders.pop(0)
            first = bisect.bisect_right(ladder, -self.excluded, key=neg)
            self._rates = ladder[first : bisect.bisect_left(ladder, -self.kept, lo=first, key=neg)]
        self.gap = math.asin(math.sqrt(self.excluded)) - math.asin(math.sqrt(self.kept)) if self._rates else 0.0
        """How far the kept and the excluded rate are apart, in arcsin(sqrt(rate)); 0 at the end of the search."""

    def test(self) -> None:
        """Test the middle one of the rates that are left."""
        middle = len(self._rates) // 2
        rate = self._rates[middle]
        limits = find_limits(rate, self._n, self._level(rate), self._floor, self._given_up)
        if any(map(le, self._counts, map(limits.__getitem__, self._numbers))):
            self.excluded, self._rates = rate, self._rates[middle + 1 :]
        else:
            self.kept, self._floor, self._rates = rate, limits, self._rates[:middle]
        self._find_gap()


def bound_at_looks(
    looks: Sequence[Look], n: int, alpha: float, ladders: Sequence[Ladder], max_loss: float = MAX_LOSS
) -> tuple[float, float]:
    """A lower bound on pA after these looks, for a budget of n draws; and 1 minus that, an upper bound on pB.

    `max_loss` is as for a plan.
    """
    numbers, misses, _ = _counts(looks, n)
    search = _Search(numbers, misses, ladders, n, lambda rate: alpha, choose_given_up(max_loss, n))
    while search.gap:
        search.test()
    p_a = hits_at(search.excluded)
    return p_a, 1 - p_a


def bound_both_at_looks(
    looks: Sequence[Look],
    n: int,
    alpha: float,
    ladder: Ladder,
    sizes: Sequence[float],
    region: Callable[[float, float], float],
    max_loss: float = MAX_LOSS,
) -> tuple[float, float]:
    """A lower bound on pA and an upper bound on pB after these looks, for a budget of n draws.

    `region` gives K from the bounds, and `sizes` are those, from small to large, of which it matters whether they are
    proved. The `ladder` has the miss rates that prove them if pB = 1 - pA. `max_loss` is as for a plan.
    """
    numbers, misses, others = _counts(looks, n)
    for_misses, for_others = divide_alpha(alpha, rare_rate(n, max_loss))
    given_up = choose_given_up(max_loss, n)
    miss = _Search(numbers, misses, (ladder, fine_ladder(n)), n, for_misses, given_up)
    other = _Search(numbers, others, (fine_ladder(n),), n, for_others, given_up)
    # No test excludes a rate below the bound that would hold if its look were the only one, at the highest level.
    least_miss, least_other = _least(looks, misses, for_misses(0.0)), _least(looks, others, for_others(1.0))
    # Before the last look, a quarter of a standard deviation of the votes so far is near enough.
    near = 1 / (8 * math.sqrt(looks[-1].draws)) if looks[-1].draws < n else 0.0
    while max(miss.gap, other.gap) > near:
        proved = region(*_pair(miss.excluded, other.excluded))
        reachable = region(*_pair(max(miss.kept, least_miss), max(other.kept, least_other)))
        if bisect.bisect_right(sizes, proved) == bisect.bisect_right(sizes, reachable):
            break
        (miss if miss.gap >= other.gap else other).test()
    return _pair(miss.excluded, other.excluded)


def rare_rate(n: int, max_loss: float) -> float:
    """The miss rate up to which misses are rare: n draws have 25 of them, or 20 where each counts for more and less may
    be lost. Up to about this rate, inputs that never miss decide the number of draws; above it, a weak bound on pB
    would lose certified accuracy."""
    return min(0.1, (25 if n >= FULL or max_loss >= OLDER_LOSS else 20) / n)


def divide_alpha(alpha: float, rare: float) -> tuple[Level, Level]:
    """The levels of the tests of a miss rate, which change above the rate `rare`, and those of the tests of the rate of
    the likeliest other answer, as in Theorem 3 of docs/adaptive-validity.md."""
    usual_a, usual_b = split_alpha(alpha, two_sided=True)
    rare_a, rare_b = split_alpha(alpha, two_sided=True, share=RARE_SHARE)
    power = math.log(usual_a) / math.log(rare_a) * (1 + 1e-9)
    edge = -math.expm1(power * math.log1p(-rare))
    return (lambda rate: rare_a if rate <= rare else usual_a), (lambda rate: rare_b if rate < edge else usual_b)


def _least(looks: Sequence[Look], counts: Sequence[int], alpha: float) -> float:
    return min(_bound_at_once(count, look.draws, alpha) for look, count in zip(looks, counts, strict=True))


_bound_at_once = lru_cache(maxsize=2**16)(upper_confidence_bound)


def _counts(looks: Sequence[Look], n: int) -> tuple[list[int], list[int], list[int]]:
    """The numbers of the looks, and at each of them the misses and the votes for the most frequent other answer."""
    return (
        [look_number(look.draws, n) for look in looks],
        [look.draws - look.hits for look in looks],
        [look.runner_up for look in looks],
    )


def _pair(miss_rate: float, other_rate: float) -> tuple[float, float]:
    """The bounds on pA and pB of these upper bounds on the miss rate and on the rate of the likeliest other answer."""
    p_a = hits_at(miss_rate)
    return p_a, min(other_rate, 1 - p_a)
