"""Noise stream 1 written again, slowly, from its specification in ARCHITECTURE.md: integers and float64.

Philox here is general in its word size, so that numpy's Philox4x64 can vouch for it (test_stream.py).
"""

import math
from collections.abc import Sequence

import numpy as np

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


def stream_block(family: str, seed: int, input_id: int, phase: int, draw: int, block: int) -> list[float]:
    counter = (block, draw & 0xFFFFFFFF, input_id, phase | draw >> 32 << 8)
    w = philox(counter, (seed & 0xFFFFFFFF, seed >> 32))
    u = [(word + 0.5) / 2**32 for word in w]
    if family == "gaussian":
        values = []
        for word, turn in ((w[0], u[1]), (w[2], u[3])):
            # The one place where the specification rounds u: near 1 the logarithm would show the difference.
            rounded = np.float32(word) * np.float32(2**-32) + np.float32(2**-33)
            size = math.sqrt(-2 * math.log(rounded))
            values += [size * math.cos(2 * math.pi * turn), size * math.sin(2 * math.pi * turn)]
        return values
    if family == "laplace":  # the top bit is the sign, the other 31 are the size
        sizes = [-math.log(((word & 0x7FFFFFFF) + 0.5) / 2**31) for word in w]
        return [-size if word >> 31 else size for word, size in zip(w, sizes, strict=True)]
    return [2 * value - 1 for value in u]


def stream_row(family: str, seed: int, input_id: int, phase: int, draw: int, dimensions: int) -> np.ndarray:
    blocks = [stream_block(family, seed, input_id, phase, draw, block) for block in range(-(-dimensions // 4))]
    return np.concatenate(blocks)[:dimensions]
