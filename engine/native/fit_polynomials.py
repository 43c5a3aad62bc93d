"""Prints the polynomial coefficients of distributions.h and the error of each fit.

Run it with mpmath installed: `python engine/native/fit_polynomials.py`. The coefficients are near-minimax
(Chebyshev) fits at 40 digits, rounded to float32; the printed error is that of the rounded polynomial
evaluated exactly. The rounding errors of float32 arithmetic come on top (measured in tests/engine/native/).
"""

from collections.abc import Callable

import mpmath as mp
import numpy as np

mp.mp.dps = 40


def fit(name: str, function: Callable[[mp.mpf], mp.mpf], low: mp.mpf, high: mp.mpf, terms: int) -> None:
    coefficients = mp.chebyfit(function, [low, high], terms)  # highest degree first
    rounded = [np.float32(float(c)) for c in coefficients]
    points = [low + (high - low) * i / 1000 for i in range(1001)]
    worst = max(abs(mp.polyval([mp.mpf(float(c)) for c in rounded], x) - function(x)) for x in points)
    print(f"{name}: largest error {mp.nstr(worst, 3)}")
    for c in rounded:
        print(f"    {float(c).hex()}f  {c!r}")


def minus_two_log_tail(f: mp.mpf) -> mp.mpf:
    """P(f) in -2 log(1 + f) = -2 f + f^2 P(f)."""
    return (-2 * mp.log1p(f) + 2 * f) / f**2 if f else mp.mpf(1)


def sine_per_turn(s: mp.mpf) -> mp.mpf:
    """S(s) in sin(2 pi r) = r S(r^2)."""
    r = mp.sqrt(s)
    return mp.sin(2 * mp.pi * r) / r if s else 2 * mp.pi


def cosine_tail(s: mp.mpf) -> mp.mpf:
    """C(s) in cos(2 pi r) = 1 + s C(s), s = r^2."""
    return (mp.cos(2 * mp.pi * mp.sqrt(s)) - 1) / s if s else -2 * mp.pi**2


if __name__ == "__main__":
    fit("minus_two_log", minus_two_log_tail, mp.sqrt(mp.mpf(1) / 2) - 1, mp.sqrt(2) - 1, 8)
    fit("sine", sine_per_turn, mp.mpf(0), mp.mpf(1) / 16, 5)
    fit("cosine", cosine_tail, mp.mpf(0), mp.mpf(1) / 16, 5)
    print("-2 ln 2:", float(np.float32(-2 * float(mp.log(2)))).hex())
