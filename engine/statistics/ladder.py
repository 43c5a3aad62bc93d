"""Bounds on pA and pB that hold at every look together, for inputs that may stop at any look.

A *miss* is a draw that does not vote for the selected class, and its probability p is the miss rate; pA = 1 - p. A
*ladder* is a decreasing sequence of rates. Each rate r on it can be tested: the looks taken so far *exclude* r if at
any of them the misses are few enough (the limits of spending.py), and otherwise they *keep* it. If p >= r, then r is
excluded at any look of the whole schedule with probability at most alpha. A bisection over the ladders finds an
excluded rate whose lower neighbour among the tested rates is kept, and that rate is the upper bound on p.

The bisection tests many rates, and it runs again at each look. Still:

**Theorem.** With probability at least 1 - alpha, the bound is at least p at all looks together.

*Proof.* Let p be the true rate. The bound is wrong only if the search excludes some tested rate r <= p. If any tested
rate above p is kept, the search stays above it and the bound is right; so a search that goes wrong excludes every rate
above p that it tests. Until it first excludes a rate r <= p, it also keeps every rate up to p that it tests. Hence its
path up to that point is fixed in advance: it does not depend on the votes, nor on the look. On that path the tested
rates r1 < ... < rm <= p rise, because the search goes up from a rate that is kept; and each test's limits are at least
those of the one before, which `find_limits` is given as a `floor`. Whatever excludes any ri therefore excludes rm, and
P(rm is ever excluded) <= alpha. QED.

**The bound on pB** comes from the same search, with the votes of the most frequent other answer in place of the misses.
Let b be the likeliest other answer and p = pB its probability. At no look has b more votes than the most frequent other
answer. By the proof above, a wrong bound means that the votes of the latter met a limit of rm; then those of b met it
too, which happens with probability at most alpha. So alpha need not be divided among the answers.

The looks, the budget n, alpha and the ladders decide a bound, and nothing else does; so a certificate can be computed
again from its record.
"""

from collections.abc import Sequence
from functools import lru_cache

from scipy.special import ndtr

from ars.engine.statistics.looks import Look, look_number
from ars.engine.statistics.spending import find_limits
from ars.engine.statistics.stopping import Question
from ars.noise import Family, hits_at

__all__ = ["STEPS", "TWO_SIDED", "Ladder", "bound_at_looks", "choose_ladders", "make_ladder"]

Ladder = tuple[float, ...]

STEPS: Ladder = tuple(float(ndtr(-K / 32)) for K in range(1, 5 * 32, 2))
"""The coarse ladder, searched first for every question. With it, a certificate between two radii of the question
gets its own, tighter bound."""

TWO_SIDED: Ladder = tuple(float(ndtr(-K / 128)) for K in range(-3 * 128, 6 * 128))
"""The only ladder of two-sided certificates. Their radius depends on the bounds of pA and pB together, so no single
rate belongs to a radius. A step is about one standard deviation of 100,000 votes; with finer steps the limits would
take longer to compute than many a run."""


@lru_cache(maxsize=2**12)
def choose_ladders(
    question: Question, family: Family, sigma_min: float, eta: float, *, two_sided: bool
) -> tuple[Ladder, ...]:
    """The ladders that answer a question, in the order in which they are searched, if the bounds that they give are
    then widened by eta (bounds.widen)."""
    return (TWO_SIDED,) if two_sided else (STEPS, make_ladder(family, question.regions(sigma_min), eta))


@lru_cache
def make_ladder(family: Family, regions: tuple[float, ...], eta: float = 0.0) -> Ladder:
    """For each region size K, from small to large, the largest miss rate at which K is certified if pB = 1 - pA and
    the bounds are widened by eta."""
    rates = (_largest_rate(family, K) - eta for K in regions)
    return tuple(dict.fromkeys(rate for rate in rates if rate > 0))


_largest_rate = lru_cache(maxsize=2**14)(Family.largest_rate)


def bound_at_looks(
    looks: Sequence[Look], n: int, alpha: float, ladders: Sequence[Ladder], *, two_sided: bool
) -> tuple[float, float]:
    """A lower bound on pA and an upper bound on pB after these looks, for a budget of n draws.

    If `two_sided`, each bound has half of alpha; otherwise pB is 1 - pA, and the bound on pA has all of it.
    """
    numbers = [look_number(look.draws, n) for look in looks]
    misses = [look.draws - look.hits for look in looks]
    p_a = hits_at(_bound_rate(numbers, misses, ladders, n, alpha / (1 + two_sided)))
    if not two_sided:
        return p_a, 1 - p_a
    p_b = _bound_rate(numbers, [look.runner_up for look in looks], ladders, n, alpha / 2)
    return p_a, min(p_b, 1 - p_a)


def _bound_rate(
    numbers: Sequence[int], counts: Sequence[int], ladders: Sequence[Ladder], n: int, alpha: float
) -> float:
    """The upper bound on a rate from its counts at the looks of these numbers; 1 if no tested rate is excluded."""
    excluded, kept = 1.0, 0.0
    floor: tuple[int, ...] = ()
    for ladder in ladders:
        rates = [rate for rate in ladder if kept < rate < excluded]
        while rates:
            middle = len(rates) // 2
            limits = find_limits(rates[middle], n, alpha, floor)
            if any(count <= limits[number] for number, count in zip(numbers, counts, strict=True)):
                excluded, rates = rates[middle], rates[middle + 1 :]
            else:
                kept, rates, floor = rates[middle], rates[:middle], limits
    return excluded
