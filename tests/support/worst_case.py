"""The exact worst case of a classifier under shifted noise, from the Neyman-Pearson lemma alone.

Space is cut into cells, and the probability of each is computed for the noise z and for z + t from the distribution
function. Of all unions of cells that z hits with probability p, z + t hits the one with the smallest likelihood ratios
least often. Cells are fine where the noise is; unions of coarser cells are no worse, so a region that one partition
refutes is refuted.
"""

from collections.abc import Sequence

import numpy as np
from scipy.special import gamma, gammainc

from ars.noise import Family


def _cells(family: Family, t: float, number: int) -> tuple[np.ndarray, np.ndarray]:
    """The probabilities of the cells of a line, for the noise and for the noise shifted by t."""
    law, levels = family.distribution, (np.arange(number) + 0.5) / number
    ends = np.unique([*law.ppf(levels), *(law.ppf(levels) + t), 0, t])
    ends = np.array([-np.inf, *ends, np.inf])

    def between(low, high):
        return np.where(low > 0, law.sf(low) - law.sf(high), law.cdf(high) - law.cdf(low))

    return between(ends[:-1], ends[1:]), between(ends[:-1] - t, ends[1:] - t)


class WorstCase:
    """The least probability with which z + t hits a set, as a function of the probability with which z does. The noise
    has independent coordinates, one for each of t's. Each axis is cut into `number` to 2 `number` cells."""

    def __init__(self, family: Family, t: Sequence[float], number: int):
        before = after = np.ones(1)
        for part in t:
            p, q = _cells(family, part, number)
            before, after = np.outer(before, p).ravel(), np.outer(after, q).ravel()
        self._sort(before, after)

    def _sort(self, before: np.ndarray, after: np.ndarray) -> None:
        order = np.argsort(after / np.maximum(before, 1e-300), kind="stable")
        self._before = np.array([0, *np.cumsum(before[order])])
        self._after = np.array([0, *np.cumsum(after[order])])

    def least(self, p: float) -> float:
        return float(np.interp(p, self._before, self._after))

    def most(self, p: float) -> float:
        return 1 - self.least(1 - p)


def answer_stays(family: Family, t: Sequence[float], p_a: float, p_b: float, number: int) -> bool:
    """Whether no class of probability p_b can catch up with one of probability p_a if the noise is shifted by t."""
    worst = WorstCase(family, t, number)
    return worst.least(p_a) > worst.most(p_b)


def exponential_cells(dimensions: int, width: float, number: int) -> np.ndarray:
    """The probabilities of exponential noise for |z_1| (rows) and the largest of the other |z_i| (columns) to be in
    each of `number` cells of this width from 0 on."""
    d, ends = dimensions, width * np.arange(number + 1)
    x = np.exp(-d * ends[:-1]) * -np.expm1(-d * width) / d  # the integrals of exp(-dx), over each cell
    lower, higher = (gamma(k) / d**k * np.diff(gammainc(k, d * ends)) for k in (d - 1, d))  # of x^(k-1) exp(-dx)
    cells = np.where(
        np.tri(number, k=-1, dtype=bool), np.outer(x, np.diff(ends ** (d - 1))), width * (d - 1) * lower[None, :]
    )
    a = ends[:-1]
    np.fill_diagonal(cells, higher - a ** (d - 1) * x + (d - 1) * (higher - a * lower))
    return cells * d**d / gamma(d + 1)


class ExponentialWorstCase(WorstCase):
    """The same for exponential noise in two or more dimensions, shifted along the first axis by `steps` cells. In two
    dimensions, the shift may also have `other_steps` along the second axis. There are `number` cells on each side of
    0."""

    def __init__(self, dimensions: int, width: float, number: int, steps: int, other_steps: int = 0):
        cells = exponential_cells(dimensions, width, number)
        cells = np.vstack([cells[::-1], cells]) / 2  # both signs of z_1
        if other_steps:
            cells = np.hstack([cells[:, ::-1], cells]) / 2
        around = np.pad(cells, ((0, steps), (0, other_steps)))
        shifted = np.pad(cells, ((steps, 0), (other_steps, 0)))
        self._sort(around.ravel(), shifted.ravel())


def exponential_answer_stays(
    dimensions: int, t: float, p_a: float, p_b: float, direction: tuple[int, int] = (1, 0), cells: int = 24
) -> bool:
    """Whether no class of probability p_b can catch up with one of probability p_a if exponential noise is shifted by a
    vector of this direction and l1 norm t, which this number of cells divides."""
    steps, other_steps = np.array(direction) * cells // sum(direction)
    reach = 1 + 14 / dimensions**0.75  # the noise is larger with a probability below 1e-6
    worst = ExponentialWorstCase(dimensions, t / cells, int(reach * cells / t), steps, other_steps)
    return worst.least(p_a) > worst.most(p_b)


def exact_region(family: Family, direction: Sequence[float], p_a: float, p_b: float, number: int) -> float:
    """The K up to which no shift in a direction, given by a vector of norm 1, changes the answer, to four digits."""
    unit = np.asarray(direction, float)
    low, high = 0.0, 0.05
    while answer_stays(family, high * unit, p_a, p_b, number):  # in small steps, to find the first change
        low, high = high, high * 1.2
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if answer_stays(family, middle * unit, p_a, p_b, number) else (low, middle)
    return high
