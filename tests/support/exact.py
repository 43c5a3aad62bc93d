"""Binomial tails and normal quantiles with 50 digits (mpmath), and the error of a sequential test, computed from their
definitions."""

from collections.abc import Sequence

import mpmath as mp
import numpy as np
from scipy.stats import binom

from ars.engine.statistics.looks import look_draws
from support.tracing import untraced

mp.mp.dps = 50
BITS = 256


@untraced()
def binomial_tail(k: int, n: int, p: mp.mpf) -> mp.mpf:
    """P(at least k hits in n draws), summed term by term; for p near k / n or below.

    The first term has 50 digits. The others are whole numbers of 2^-BITS of it, so that the 200,000 that 10^9 draws
    take are summed in a moment; those below 1e-45 of the sum are left out.
    """
    log_choose = mp.loggamma(n + 1) - mp.loggamma(k + 1) - mp.loggamma(n - k + 1)
    first = mp.exp(log_choose + k * mp.log(p) + (n - k) * mp.log1p(-p))
    odds = int(p / (1 - p) * 2**BITS)
    term = total = 2**BITS
    for hits in range(k, n):
        term = term * odds * (n - hits) // (hits + 1) >> BITS
        if term * 10**45 <= total:
            break
        total += term
    return first * total / 2**BITS


@untraced()
def normal_quantile(p: mp.mpf) -> mp.mpf:
    """Phi^-1(p), by Newton's method on log Phi in the lower tail, where it is concave."""
    if p > mp.mpf(1) / 2:
        return -normal_quantile(1 - p)
    z = -mp.sqrt(-2 * mp.log(p))
    for _ in range(200):
        phi = mp.erfc(-z / mp.sqrt(2)) / 2
        step = (mp.log(phi) - mp.log(p)) * phi / mp.npdf(z)
        z -= step
        if abs(step) < mp.mpf(10) ** -45:
            return z
    raise ArithmeticError(f"no convergence at {p}")


def chance_to_meet(rate: float, n: int, limits: Sequence[int]) -> float:
    """The probability that draws which miss at this rate meet a limit of a test of n draws, in floats, with nothing
    left out but what no float holds."""
    law, met, before = np.ones(1), 0.0, 0
    for draws, most in zip(look_draws(n), limits, strict=True):
        step = draws - before
        law = np.convolve(law, binom.pmf(np.arange(step + 1), step, rate))
        met += float(law[: most + 1].sum())
        law[: most + 1] = 0
        before = draws
    return met
