"""Binomial tails and normal quantiles with 50 digits (mpmath), computed from their definitions."""

import mpmath as mp

mp.mp.dps = 50


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
