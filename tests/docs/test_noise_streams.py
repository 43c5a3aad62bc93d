"""An implementation of docs/noise-streams.md, which knows nothing but that page: its constants are read from there, and
it uses no code of ARS. It gives all known answers, so the page is complete and right."""

import re
import struct
from fractions import Fraction
from math import isqrt
from pathlib import Path

import numpy as np
import pytest

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "noise-streams.md").read_text()
ANSWERS = [line.split(" : ") for line in (REPOSITORY / "tests" / "known_answers.txt").read_text().splitlines()]


def number(text):
    if "x" in text:
        return int(text, 16) if "." not in text and "p" not in text else Fraction(float.fromhex(text))
    return Fraction(text)


CONSTANTS = {
    name: [number(value) for value in values.split()]
    for block in re.findall(r"^```text\n(.*?)^```", PAGE, re.M | re.S)
    for name, values in re.findall(r"^(\w+) = (.*)$", block, re.M)
}


# Floats are exact fractions, rounded after each operation: to 24 bits for float32, and to 53 for double.
def nearest(value, digits):
    if value == 0:
        return Fraction(0)
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length() - digits
    while size >= Fraction(2) ** (exponent + digits):
        exponent += 1
    while size < Fraction(2) ** (exponent + digits - 1):
        exponent -= 1
    unit = Fraction(2) ** exponent
    return round(value / unit) * unit  # Python rounds halves to even


class Arithmetic:
    def __init__(self, digits, letters):
        self.digits, self.letters = digits, letters

    def __call__(self, value):
        return nearest(Fraction(value), self.digits)

    def add(self, a, b):
        return self(a + b)

    def multiply(self, a, b):
        return self(a * b)

    def divide(self, a, b):
        return self(a / b)

    def fma(self, a, b, c):
        return self(a * b + c)

    def sqrt(self, a):
        """Rounded to odd with many more digits first, which is as good as exact."""
        shift = 2**200
        root = isqrt(a.numerator * shift * shift // a.denominator)
        exact = root * root * a.denominator == a.numerator * shift * shift
        return self(Fraction(2 * root + (0 if exact else 1), 2 * shift))

    def bits(self, a):
        return struct.unpack(self.letters[1], struct.pack(self.letters[0], float(a)))[0]

    def frombits(self, word):
        return Fraction(struct.unpack(self.letters[0], struct.pack(self.letters[1], word))[0])

    def horner(self, name, x):
        first, *others = (self(c) for c in CONSTANTS[name])
        for coefficient in others:
            first = self.fma(first, x, coefficient)
        return first


F, D = Arithmetic(24, ("<f", "<I")), Arithmetic(53, ("<d", "<Q"))
HALF = Fraction(1, 2)


def signed(word, width):
    return word - (word >> (width - 1) << width)


# 1. Words
def philox(c, k):
    (m0,), (m1,), (w0,), (w1,) = (CONSTANTS[name] for name in ("M0", "M1", "W0", "W1"))
    for _ in range(10):
        one, other = m0 * c[0], m1 * c[2]
        c = (other >> 32 ^ c[1] ^ k[0], other % 2**32, one >> 32 ^ c[3] ^ k[1], one % 2**32)
        k = ((k[0] + w0) % 2**32, (k[1] + w1) % 2**32)
    return c


def words(seed, number, phase, draw, b):
    return philox((b, draw % 2**32, number, phase | draw >> 32 << 8), (seed % 2**32, seed >> 32))


def long(seed, number, phase, draw, b):
    upper, lower = words(seed, number, phase, draw, b), words(seed, number, phase | 0x80, draw, b)
    return [a << 32 | c for a, c in zip(upper, lower, strict=True)]


# 2. Standard noise in float32
def log32(u):
    e = signed((F.bits(u) - 0x3F3504F3) % 2**32, 32) >> 23
    f = F.add(F.frombits((F.bits(u) - (e << 23)) % 2**32), -1)
    return F.fma(F(e), CONSTANTS["LOG32_E"][0], F.multiply(F.horner("LOG32", f), f))


def gaussian(w, v):
    u = F.fma(F(w), Fraction(2) ** -32, Fraction(2) ** -33)
    low = (v << 1) % 2**32
    r = F.fma(F(signed(low, 32)), Fraction(2) ** -33, Fraction(2) ** -33)
    radius, s = F.sqrt(log32(u)), F.multiply(r, r)
    radius = -radius if (v ^ low) >> 31 else radius
    return F.multiply(radius, F.horner("COS32", s)), F.multiply(radius, F.multiply(F.horner("SIN32", s), r))


def size_number(w):
    return F.fma(F(w % 2**31), Fraction(2) ** -31, Fraction(2) ** -32)


def laplace(w):
    return (-1) ** (w >> 31) * F.multiply(log32(size_number(w)), HALF)


def uniform(w):
    return F.fma(F(signed(w ^ 2**31, 32)), Fraction(2) ** -31, Fraction(2) ** -32)


def pareto(w):
    return (-1) ** (w >> 31) * F.add(F.sqrt(F.sqrt(F.divide(1, size_number(w)))), -1)


def standard(family, four, stretch):
    if family == "gaussian":
        return [*gaussian(*four[:2]), *gaussian(*four[2:])]
    one = {"laplace": laplace, "uniform": uniform, "pareto": pareto, "exponential": uniform}[family]
    return [F.multiply(F(stretch), one(w)) for w in four]


# 3. Standard noise in double precision
def series(e, f):
    s = D.divide(f, D.add(f, 2))
    product = D.multiply(D.multiply(s, -4), D.horner("LOG64", D.multiply(s, s)))
    return D.fma(D(e), CONSTANTS["LOG64_E"][0], product)


def log64(u):
    e = signed((D.bits(u) - 0x3FE6A09E667F3BCD) % 2**64, 64) >> 52
    return series(e, D.add(D.frombits((D.bits(u) - (e << 52)) % 2**64), -1))


def logword(w, m):
    top = 2**m - 1
    if w > top // 4 * 3:
        return series(0, D.multiply(D.add(D(top - w), HALF), -(Fraction(2) ** -m)))
    return log64(D.multiply(D.add(D(w), HALF), Fraction(2) ** -m))


def turn(v, k):
    q = (v + 2**61) % 2**64 >> 62
    r = D.multiply(D.add(D(signed((v - (q << 62)) % 2**64, 64)), HALF), Fraction(2) ** -64)
    a = D.multiply(r, CONSTANTS["TWO_PI"][0])
    y, t = D.multiply(a, a), (q - k) % 4
    c = -D.multiply(D.horner("SIN64", y), a) if t % 2 else D.horner("COS64", y)
    return -c if t in (2, 3) else c


def precise(family, pair, k):
    if family == "gaussian":
        return D.multiply(D.sqrt(logword(pair[0], 64)), turn(pair[1], k))
    w = pair[k]
    if family in ("uniform", "exponential"):
        return D.multiply(D.add(D(signed(w ^ 2**63, 64)), HALF), Fraction(2) ** -63)
    if family == "laplace":
        size = D.multiply(logword(w % 2**63, 63), HALF)
    else:
        u = D.multiply(D.add(D(w % 2**63), HALF), Fraction(2) ** -63)
        size = D.add(D.sqrt(D.sqrt(D.divide(1, u))), -1)
    return (-1) ** (w >> 63) * size


# 4. The stretch
def stretch_of(family, seed, number, phase, draw, d):
    if family != "exponential":
        return 1
    g = D.add(D(d), D(Fraction(2, 3)))
    c = D.divide(1, D.multiply(3, D.sqrt(g)))
    trial = 0
    while True:
        u, v, w, _ = long(seed, number, phase | 0x40, draw, trial)
        x = precise("gaussian", (u, v), 0)
        r = D.fma(c, x, 1)
        if r > 0:
            y = D.multiply(D.multiply(r, r), r)
            limit = D.fma(g, D.add(D.multiply(2, D.add(y, -1)), log64(y)), -D.multiply(x, x))
            if logword(w, 64) > limit:
                return D.divide(D.multiply(g, y), D(d))
        trial += 1


# 6. Noise stream 2
def prepare(x, mean, scale, h):
    exact = D.divide(D.add(x, mean), h)
    s = F.divide(scale, h)
    a = D.add(Fraction(2) ** -19, D.multiply(D(Fraction("8.4")), Fraction(2) ** -24))
    b = D.multiply(D(Fraction("1.001")), Fraction(2) ** -23)
    error = D.add(D.multiply(s, a), D.multiply(b, abs(exact)))
    margin = np.nextafter(np.float32(float(F(D.add(HALF - Fraction(2) ** -25, -error)))), np.float32(-1))
    return s, Fraction(float(margin)), exact


def is_bounded(family, pair, k, stretch):
    if family == "gaussian":
        return 0x00040000 <= pair[0] <= 0xFFF3FFFF
    least = {"laplace": 0x00080000, "pareto": 0x00100000}.get(family, 0)
    return pair[k] % 2**31 >= least and F(stretch) <= 8


def whole(arithmetic, t, magic):
    magic = Fraction(float.fromhex(magic))
    return arithmetic.add(arithmetic.add(t, magic), -magic)


def lattice_block(family, draw, dimensions, b, tables, h):
    """Four values of stream 2, and how many of them float32 decided."""
    stretch, four, eight = stretch_of(family, *draw, dimensions), words(*draw, b), long(*draw, b)
    values, fast = [], 0
    for k, (z, (s, margin, exact)) in enumerate(zip(standard(family, four, stretch), tables, strict=True)):
        pair = slice(k // 2 * 2, k // 2 * 2 + 2)
        t = F.fma(s, z, F(exact))
        cell = whole(F, t, "0x1.8p+23")
        if is_bounded(family, four[pair], k % 2, stretch) and abs(F.add(t, -cell)) <= margin:
            fast += 1
        else:
            factor = D.multiply(s, stretch) if family == "exponential" else s
            cell = whole(D, D.fma(factor, precise(family, eight[pair], k % 2), exact), "0x1.8p+52")
            cell = min(max(cell, -(2**22)), 2**22)
        values.append(F.multiply(F(cell), h))
    return values, fast


def expected(line):
    return [int(word, 16) for word in line[1].split()]


def lines(kind):
    return [(line[0].split(), expected(line)) for line in ANSWERS if len(line) == 2 and kind(line[0].split()[0])]


def test_the_words_are_those_of_random123():
    vectors = lines("philox4x32_10".__eq__)
    assert len(vectors) == 3
    for given, answer in vectors:
        c = [int(word, 16) for word in given[1:]]
        assert list(philox(c[:4], c[4:])) == answer


FAMILIES = ["gaussian", "laplace", "uniform", "pareto", "exponential"]


@pytest.mark.parametrize("family", FAMILIES)
def test_standard_noise_has_the_known_bits(family):
    answers = lines(family.__eq__)
    assert len(answers) >= 10
    for given, answer in answers:
        *draw, b = (int(word, 16) for word in given[1:])
        values = standard(family, words(*draw, b), stretch_of(family, *draw, 4 * b + 4))
        assert [F.bits(value) for value in values] == answer, given


@pytest.mark.parametrize("name", ["LOG32", "SIN32", "COS32"])
def test_a_wrong_digit_on_the_page_would_be_found(name, monkeypatch):
    wrong = [*CONSTANTS[name][:-2], CONSTANTS[name][-2] * (1 + Fraction(2) ** -18), CONSTANTS[name][-1]]
    monkeypatch.setitem(CONSTANTS, name, wrong)
    with pytest.raises(AssertionError):
        test_standard_noise_has_the_known_bits("gaussian")


@pytest.mark.parametrize("family", FAMILIES)
def test_stream_2_has_the_known_bits(family):
    answers = [line for line in lines("lattice".__eq__) if line[0][1] == family]
    assert len(answers) >= 10
    decided = 0
    for given, answer in answers:
        *draw, b, h, s, margin, exact = (int(word, 16) for word in given[2:])
        tables = [(F.frombits(s), F.frombits(margin), D.frombits(exact))] * 4
        values, fast = lattice_block(family, draw, 4 * b + 4, b, tables, F.frombits(h))
        assert [F.bits(value) for value in values] == answer, given
        decided += fast
    assert 0 < decided < 4 * len(answers), "both paths were taken"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_noisy_copy_follows_from_the_page(family):
    """From x, mean and scale to the copy that the engine's sampler makes."""
    from support.stream import noisy_copies

    from ars.engine.lattice import Lattice, choose_step
    from ars.noise import FAMILIES as KNOWN

    rng = np.random.default_rng(0)
    x, mean = rng.random(6, np.float32), rng.normal(0, 0.3, 6).astype(np.float32)
    scale = rng.uniform(0.3, 1.2, 6).astype(np.float32)
    assert choose_step(float(scale.min())) == 2.0**-8
    draw, h = (1234567890123456789, 17, 1, 5), Fraction(2) ** -8
    where = {"seed": draw[0], "input_id": draw[1], "phase": draw[2], "first_draw": draw[3]}
    copies = noisy_copies(KNOWN[family], x, mean, scale, lattice=Lattice(2.0**-8), **where)
    exact = [[Fraction(float(value)) for value in row] for row in zip(x, mean, scale, strict=True)]
    tables = [prepare(*row, h) for row in exact]
    tables += [tables[-1]] * 2  # of the last block, two dimensions are not used
    values = [value for b in (0, 1) for value in lattice_block(family, draw, 6, b, tables[4 * b : 4 * b + 4], h)[0]]
    assert [float(value) for value in values[:6]] == copies[0].tolist()

    # 5. Noise stream 1
    copies = noisy_copies(KNOWN[family], x, mean, scale, **where)
    stretch = stretch_of(family, *draw, 6)
    z = [value for b in (0, 1) for value in standard(family, words(*draw, b), stretch)]
    copy = [F.fma(s, z, F.add(x, m)) for (x, m, s), z in zip(exact, z, strict=False)]
    assert [float(value) for value in copy] == copies[0].tolist()
