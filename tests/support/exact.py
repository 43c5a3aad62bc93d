"""The statistics and the geometry again, with 50 digits (mpmath), from their definitions."""

import functools
import sys

import mpmath as mp

mp.mp.dps = 50


def untraced(function):
    """The function, out of sight of coverage, which would make mpmath three times as slow."""

    @functools.wraps(function)
    def call(*arguments):
        trace = sys.gettrace()
        sys.settrace(None)
        try:
            return function(*arguments)
        finally:
            sys.settrace(trace)

    return call


@untraced
def binomial_tail(k: int, n: int, p: mp.mpf) -> mp.mpf:
    """P(at least k hits in n draws), summed term by term; for p below k / n."""
    log_choose = mp.loggamma(n + 1) - mp.loggamma(k + 1) - mp.loggamma(n - k + 1)
    term = mp.exp(log_choose + k * mp.log(p) + (n - k) * mp.log1p(-p))
    total, hits = mp.mpf(0), k
    while hits <= n and term > total * mp.mpf(10) ** -45:
        total += term
        term *= p / (1 - p) * (n - hits) / (hits + 1)
        hits += 1
    return total


@untraced
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


@untraced
def region(family: str, p_a: mp.mpf, p_b: mp.mpf) -> mp.mpf:
    """K, from the theorems."""
    if family == "gaussian":
        return (normal_quantile(p_a) - normal_quantile(p_b)) / 2
    if family == "laplace":
        return max(mp.log(p_a / p_b) / 2, -mp.log(1 - p_a + p_b))
    return p_a - p_b
