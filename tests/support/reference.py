"""Independent implementations of the noise streams and of every family's region, slow and exact, to compare with.

The streams are written from their specifications: noise stream 1 (ARCHITECTURE.md) with Python's integers and float64,
noise stream 2 (docs/soundness.md) with 50 digits. Philox is general in its word size, so that numpy's Philox4x64 can
confirm it (test_known_answers.py). The regions have 50 digits.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import mpmath as mp
import numpy as np

from support import exact
from support.tracing import untraced

PHILOX_4X32 = (32, (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85))
PHILOX_4X64 = (64, (0xD2E7470EE14C6C93, 0xCA5A826395121157), (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B))


def philox(counter: Sequence[int], key: Sequence[int], variant: tuple = PHILOX_4X32) -> list[int]:
    bits, (m0, m1), (weyl0, weyl1) = variant
    mask = 2**bits - 1
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        product0, product1 = m0 * c0, m1 * c2
        c0, c1, c2, c3 = product1 >> bits ^ c1 ^ k0, product1 & mask, product0 >> bits ^ c3 ^ k1, product0 & mask
        k0, k1 = k0 + weyl0 & mask, k1 + weyl1 & mask
    return [c0, c1, c2, c3]


def middle(word: int) -> float:
    """The middle of a word's cell of [0, 1]."""
    return (word + 0.5) / 2**32


def gaussian(first: int, second: int) -> tuple[float, float]:
    # The one place where the specification rounds u to float32: for u near 1 the logarithm shows the difference.
    u = np.float32(first) * np.float32(2**-32) + np.float32(2**-33)
    size, angle = math.sqrt(-2 * math.log(u)), 2 * math.pi * middle(second)
    return size * math.cos(angle), size * math.sin(angle)


def laplace(*words: int) -> list[float]:
    sizes = [-math.log(((word & 0x7FFFFFFF) + 0.5) / 2**31) for word in words]
    return [-size if word >> 31 else size for word, size in zip(words, sizes, strict=True)]


def uniform(*words: int) -> list[float]:
    return [2 * middle(word) - 1 for word in words]


def pareto(*words: int) -> list[float]:
    sizes = [(((word & 0x7FFFFFFF) + 0.5) / 2**31) ** -0.25 - 1 for word in words]
    return [-size if word >> 31 else size for word, size in zip(words, sizes, strict=True)]


def ideal_middle(word: int, bits: int = 64) -> mp.mpf:
    return (word + mp.mpf(1) / 2) / 2**bits


def ideal_gaussian(first: int, second: int) -> tuple[mp.mpf, mp.mpf]:
    size, angle = mp.sqrt(-2 * mp.log(ideal_middle(first))), 2 * mp.pi * ideal_middle(second)
    return size * mp.cos(angle), size * mp.sin(angle)


def ideal_laplace(*words: int) -> list[mp.mpf]:
    sizes = [-mp.log(ideal_middle(word % 2**63, 63)) for word in words]
    return [-size if word >> 63 else size for word, size in zip(words, sizes, strict=True)]


def laplace_G(p: mp.mpf) -> mp.mpf:
    return mp.log(2 * p) if p <= mp.mpf(1) / 2 else -mp.log(2 * (1 - p))


def ideal_uniform(*words: int) -> list[mp.mpf]:
    return [2 * ideal_middle(word) - 1 for word in words]


def ideal_pareto(*words: int) -> list[mp.mpf]:
    sizes = [ideal_middle(word % 2**63, 63) ** mp.mpf("-0.25") - 1 for word in words]
    return [-size if word >> 63 else size for word, size in zip(words, sizes, strict=True)]


@cache
@untraced()
def pareto_G(p: mp.mpf) -> mp.mpf:
    """(w / a) 2F1(1, c; 1 + c; w^(1/c)) with a = 4, c = a / (a + 1) and w = 2p - 1, and odd about p = 1/2. Sets of a
    measure q below 1e-60 lose mass at the rate 5q, up to 60 digits, so that G is a logarithm there."""
    if p > mp.mpf(1) / 2:
        return -pareto_G(1 - p)
    if p < (small := mp.mpf("1e-60")):
        return pareto_G(small) + mp.log(p / small) / 5
    with mp.workdps(120):
        a, c, w = 4, mp.mpf(4) / 5, 1 - 2 * p
        return -w / a * mp.hyp2f1(1, c, 1 + c, w ** (1 / c))


@dataclass(frozen=True)
class Reference:
    """What the tests know of a family: two values of standard noise from two words of 32 bits, two values with 50
    digits from two words of 64 bits, and G (docs/families.md); and whether a draw's values share a factor."""

    values: Callable[[int, int], Sequence[float]]
    ideal: Callable[[int, int], Sequence[mp.mpf]]
    G: Callable[[mp.mpf], mp.mpf]
    stretched: bool = False


REFERENCES = {
    "gaussian": Reference(gaussian, ideal_gaussian, exact.normal_quantile),
    "laplace": Reference(laplace, ideal_laplace, laplace_G),
    "uniform": Reference(uniform, ideal_uniform, lambda p: 2 * p - 1),
    "pareto": Reference(pareto, ideal_pareto, pareto_G),
    "exponential": Reference(uniform, ideal_uniform, lambda p: 2 * p - 1, stretched=True),
}


def region(family: str, p_a: mp.mpf, p_b: mp.mpf) -> mp.mpf:
    G = REFERENCES[family].G
    return (G(p_a) - G(p_b)) / 2


def exponential_G(p: mp.mpf, dimensions: int) -> mp.mpf:
    """The integral of dq / min(q, 1 / 2d, 1 - q) from 1/2 to p, divided by d."""
    if p > mp.mpf(1) / 2:
        return -exponential_G(1 - p, dimensions)
    edge = 1 / mp.mpf(2 * dimensions)
    if p >= edge:
        return 2 * p - 1
    return (mp.log(p / edge) + 2 * dimensions * (edge - mp.mpf(1) / 2)) / dimensions


def counter(input_id: int, phase: int, draw: int, block: int) -> tuple[int, int, int, int]:
    return (block, draw & 0xFFFFFFFF, input_id, phase | draw >> 32 << 8)


def stream_words(seed: int, input_id: int, phase: int, draw: int, block: int) -> list[int]:
    return philox(counter(input_id, phase, draw, block), (seed & 0xFFFFFFFF, seed >> 32))


def long_words(seed: int, input_id: int, phase: int, draw: int, block: int) -> list[int]:
    """The words of a block with 64 bits: 32 more come from the counter with phase | 0x80."""
    high = stream_words(seed, input_id, phase, draw, block)
    low = stream_words(seed, input_id, phase | 0x80, draw, block)
    return [a << 32 | b for a, b in zip(high, low, strict=True)]


@lru_cache
@untraced()
def exponential_stretch(seed: int, input_id: int, phase: int, draw: int, dimensions: int) -> mp.mpf:
    """A Gamma variable of shape d + 1 by the method of Marsaglia and Tsang, divided by d."""
    d = dimensions + 1 - mp.mpf(1) / 3
    c = 1 / mp.sqrt(9 * d)
    for trial in range(1000):
        u, v, w, _ = long_words(seed, input_id, phase | 0x40, draw, trial)
        x = ideal_gaussian(u, v)[0]
        cube = (1 + c * x) ** 3
        if cube > 0 and mp.log(ideal_middle(w)) < x**2 / 2 + d - d * cube + d * mp.log(cube):
            return d * cube / dimensions
    raise ArithmeticError("no trial was accepted")


def stretch(family: str, *draw_and_dimensions: int) -> mp.mpf:
    return exponential_stretch(*draw_and_dimensions) if REFERENCES[family].stretched else mp.mpf(1)


def stream_block(
    family: str, seed: int, input_id: int, phase: int, draw: int, block: int, dimensions: int
) -> list[float]:
    words = stream_words(seed, input_id, phase, draw, block)
    factor = float(stretch(family, seed, input_id, phase, draw, dimensions))
    return [factor * value for pair in (words[:2], words[2:]) for value in REFERENCES[family].values(*pair)]


def stream_row(family: str, seed: int, input_id: int, phase: int, draw: int, dimensions: int) -> np.ndarray:
    where, blocks = (seed, input_id, phase, draw), range(-(-dimensions // 4))
    return np.concatenate([stream_block(family, *where, block, dimensions) for block in blocks])[:dimensions]


@untraced()
def lattice_noise(
    family: str, seed: int, input_id: int, phase: int, draw: int, block: int, dimensions: int
) -> list[mp.mpf]:
    """The ideal noise of one block of noise stream 2, from the middles of the cells of its 64-bit words."""
    words = long_words(seed, input_id, phase, draw, block)
    factor = stretch(family, seed, input_id, phase, draw, dimensions)
    return [factor * value for pair in (words[:2], words[2:]) for value in REFERENCES[family].ideal(*pair)]


@untraced()
def lattice_value(z: mp.mpf, x: float, mean: float, scale: float, step: float) -> float:
    """The multiple of the step that is nearest to x + mean + scale z, all of which are exact, up to 2^22 steps."""
    cell = mp.nint((mp.mpf(float(x)) + float(mean) + float(scale) * z) / step)
    return float(min(max(cell, -(2**22)), 2**22) * step)
