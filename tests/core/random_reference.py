"""The random streams once more, in plain Python: what the C must give on any machine.

Slow and direct. Fused multiply-adds are done in exact fractions and rounded once, so the block
normals of float32 need no hardware for them. The functions of the C library (`log1p`, `sin`, ...)
are Python's, which are the same library's.
"""

from __future__ import annotations

import math
import struct
from fractions import Fraction

WORDS, SHIFT = 624, 397


def f32(x: float | Fraction) -> float:
    """x rounded once to single precision, to nearest even (normal range)."""
    x = Fraction(x)
    if x == 0:
        return 0.0
    size = abs(x)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent  # now 2**exponent <= size < 2**(exponent + 1)
    unit = Fraction(2) ** (max(exponent, -126) - 23)
    return float(round(x / unit) * unit)  # round() of a Fraction: half to even


def fma(a: float, b: float, c: float) -> float:
    """a * b + c rounded once to double precision."""
    return float(Fraction(a) * Fraction(b) + Fraction(c))


def fmaf(a: float, b: float, c: float) -> float:
    """a * b + c rounded once to single precision."""
    return f32(Fraction(a) * Fraction(b) + Fraction(c))


class Stream:
    """MT19937 seeded with the low 32 bits of `seed`, and the distributions drawn from it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed % 2**64
        word = seed % 2**32
        self.state = [word]
        for j in range(1, WORDS):
            word = (1812433253 * (word ^ (word >> 30)) + j) % 2**32
            self.state.append(word)
        self.left, self.next = 1, 0
        self.second: float | None = None

    # ---- words ----

    def word(self) -> int:
        self.left -= 1
        if self.left == 0:
            self._advance()
        y = self.state[self.next]
        self.next += 1
        y ^= y >> 11
        y ^= (y << 7) & 0x9D2C5680
        y ^= (y << 15) & 0xEFC60000
        return y ^ (y >> 18)

    def _advance(self) -> None:
        s = self.state
        for j in range(WORDS):
            pair = (s[j] & 0x80000000) | (s[(j + 1) % WORDS] & 0x7FFFFFFF)
            s[j] = s[(j + SHIFT) % WORDS] ^ (pair >> 1) ^ (0x9908B0DF if pair & 1 else 0)
        self.left, self.next = WORDS, 0

    def word64(self) -> int:
        high = self.word()
        return high << 32 | self.word()

    # ---- distributions ----

    def unit(self) -> float:
        """Uniform in [0, 1), 24 bits of one word."""
        return (self.word() % 2**24) * 2.0**-24

    def unit64(self) -> float:
        """Uniform in [0, 1), 53 bits of two words."""
        return (self.word64() % 2**53) * 2.0**-53

    def uniform(self, low: float, high: float) -> float:
        """Single precision in [low, high); the bounds are single already."""
        x = fmaf(self.unit(), f32(Fraction(high) - Fraction(low)), low)
        return low if x == high else x

    def uniform64(self, low: float, high: float) -> float:
        """Double precision in [low, high)."""
        x = fma(self.unit64(), high - low, low)
        return low if x == high else x

    def integer(self, base: int, size: int) -> int:
        """base + draw % size; from 2**28 on a draw has two words; size 0 is 2**64."""
        wide = size == 0 or size >= 2**28
        draw = self.word64() if wide else self.word()
        return base + (draw % size if size else draw)

    def bernoulli(self, p: float) -> bool:
        return self.unit64() < p

    def normal(self, mean: float, std: float) -> float:
        """One normal in double precision; each second one was drawn with the one before."""
        if self.second is not None:
            z, self.second = self.second, None
            return fma(z, std, mean)
        u1, u2 = self.unit64(), self.unit64()
        radius, angle = math.sqrt(-2.0 * math.log1p(-u2)), 2.0 * math.pi * u1
        self.second = radius * math.sin(angle)
        return fma(radius * math.cos(angle), std, mean)

    def normals(self, n: int, mean: float, std: float) -> list[float]:
        """n >= 16 normals in single precision, as a contiguous float32 tensor takes them."""
        x = [self.unit() for _ in range(n)]
        for i in range(0, n - 15, 16):
            x[i : i + 16] = block(x[i : i + 16], mean, std)
        if n % 16:
            x[-16:] = block([self.unit() for _ in range(16)], mean, std)
        return x

    def permutation(self, n: int) -> list[int]:
        """0 ... n - 1 shuffled from the front (n below 2**32 / 20)."""
        x = list(range(n))
        for i in range(n - 1):
            j = i + self.word() % (n - i)
            x[i], x[j] = x[j], x[i]
        return x

    # ---- state ----

    def state_bytes(self) -> bytes:
        """torch's 5,056 bytes."""
        second = self.second or 0.0
        return (
            struct.pack("<QiiQ", self.seed, self.left, 1, self.next)
            + struct.pack(f"<{WORDS}Q", *self.state)
            + struct.pack("<dddi4x", 0.0, second, 0.0, self.second is not None)
            + bytes(8)
        )


def block(u: list[float], mean: float, std: float) -> list[float]:
    """Sixteen uniforms to sixteen normals: Box and Muller with Cephes' logf, sinf and cosf."""
    cosines, sines = [], []
    for radius_u, angle_u in zip(u[:8], u[8:]):
        radius = f32(math.sqrt(f32(-2 * log_unit(f32(1 - radius_u)))))
        s, c = sincos_turn(f32(Fraction(f32(6.283185307179586)) * Fraction(angle_u)))
        cosines.append(fmaf(f32(Fraction(radius) * Fraction(c)), std, mean))
        sines.append(fmaf(f32(Fraction(radius) * Fraction(s)), std, mean))
    return cosines + sines


LOG = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
SIN = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
COS = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
QUARTER = (-0.78515625, -2.4187564849853515625e-4, -3.77489497744594108e-8)


def _mul(a: float, b: float) -> float:
    return f32(Fraction(a) * Fraction(b))


def _horner(coefficients: tuple[float, ...], x: float) -> float:
    y = f32(coefficients[0])
    for c in coefficients[1:]:
        y = fmaf(y, x, f32(c))
    return y


def log_unit(x: float) -> float:
    """Natural logarithm in (0, 1], single precision."""
    m, e = math.frexp(x)
    if m < f32(0.707106781186547524):
        m, e = 2 * m, e - 1
    r = m - 1
    z = _mul(r, r)
    y = _mul(_horner(LOG, r), r)
    y = fmaf(y, z, _mul(e, f32(-2.12194440e-4)))
    y = fmaf(z, -0.5, y)
    return fmaf(e, 0.693359375, f32(Fraction(r) + Fraction(y)))


def sincos_turn(x: float) -> tuple[float, float]:
    """Sine and cosine in [0, 2 pi), single precision."""
    j = int(_mul(x, f32(1.27323954473516))) + 1 & ~1
    for part in QUARTER:
        x = fmaf(j, f32(part), x)
    z = _mul(x, x)
    c = _mul(_horner(COS, z), z)
    c = f32(1 + Fraction(fmaf(c, z, -z / 2)))
    s = fmaf(_mul(_horner(SIN, z), z), x, x)
    if j & 2:
        s, c = c, s
    return (-s if j & 4 else s), (c if j - 2 & 4 else -c)
