"""Accuracy of the vector functions: sweeps of the whole range, in units of the last place."""

import math

import numpy as np
import pytest

from .calling import Built, ulps

rng = np.random.default_rng(2)


def sweep32():
    """Every 4,093rd float, both signs, and the special ones."""
    bits = np.arange(0, 0x7F800000, 4093, dtype=np.uint32)
    x = np.concatenate([bits, bits | 0x80000000]).view(np.float32)
    special = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        1,
        -1,
        1e-45,
        -1e-45,
        3.4028235e38,
        0.5,
        88.7228,
        88.7229,
        -87.33,
        -103.97,
        -104,
        0.99999994,
        1.0000001,
        16777216,
        65535.9,
        65536.1,
    ]
    usual = rng.standard_normal(60000) * 4
    return np.concatenate([x, special, usual, np.linspace(-20, 20, 60001)]).astype(np.float32)


def reference(name, x):
    """Of float32 in float64, of float64 in long double."""
    wide = x.astype(np.float64 if x.dtype == np.float32 else np.longdouble)
    with np.errstate(all="ignore"):
        if name == "sigmoid":
            return 1 / (1 + np.exp(-wide))
        if name == "rsqrt":
            return 1 / np.sqrt(wide)
        if name in ("erf", "erfc", "lgamma"):
            f = getattr(math, name)
            out = np.empty(x.shape, np.float64)
            for i, v in enumerate(x.tolist()):
                try:
                    out[i] = f(v)
                except (ValueError, OverflowError):
                    out[i] = np.inf
            return out
        return getattr(
            np,
            {
                "asin": "arcsin",
                "acos": "arccos",
                "atan": "arctan",
                "asinh": "arcsinh",
                "acosh": "arccosh",
                "atanh": "arctanh",
            }.get(name, name),
        )(wide)


# Ours, then glibc's. expm1 is above 1 only at 17 < x < 17.7; rsqrt and sigmoid are the formulas.
LIMITS32 = {"exp": 0.7, "exp2": 1, "expm1": 1.5, "log": 1, "log2": 1, "log10": 1, "log1p": 1,
            "sqrt": 0.5, "rsqrt": 1.5, "sin": 1, "cos": 1, "tanh": 1, "erf": 1, "sigmoid": 2.5,
            "tan": 1.5, "atan": 1, "asin": 1, "acos": 1, "sinh": 2.5, "cosh": 2.5, "asinh": 2.5,
            "acosh": 2.5, "atanh": 2.5, "erfc": 3}  # fmt: skip


@pytest.mark.parametrize("name", LIMITS32)
def test_float32(name):
    x = sweep32()
    if name in ("erf", "erfc"):
        x = x[::4]
    if name == "sigmoid":
        x = x[~(x < -88)]  # as PyTorch: exp(-x) overflows there
    got = Built(lambda k, x: getattr(k, name)(x), "map", ["float32"], ["float32"]).map(x)
    want = reference(name, x)
    error = ulps(got, want)
    worst = int(np.argmax(error))
    assert error[worst] <= LIMITS32[name], (x[worst], got[worst], want[worst], error[worst])
    zero = (x == 0) & (want == 0)
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


LIMITS64 = {"exp": 1, "exp2": 1, "expm1": 2, "log": 1, "log2": 1, "log10": 2, "log1p": 1.5,
            "sqrt": 0.5, "rsqrt": 1.5, "sin": 1, "cos": 1, "tanh": 2.5, "sigmoid": 2.5}  # fmt: skip


def sweep64():
    bits = np.arange(0, 0x7FF0000000000000, 0x7FF0000000000000 // 40000, dtype=np.uint64)
    x = np.concatenate([bits, bits | np.uint64(1 << 63)]).view(np.float64)
    special = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        1,
        -1,
        5e-324,
        1.7e308,
        709.78,
        709.79,
        -745.13,
        -745.14,
        2**20 - 0.5,
        2**20 + 0.5,
        0.1,
        1 - 2**-53,
        1 + 2**-52,
        355 / 113 * 1e5,
    ]
    near = np.pi / 2 * np.arange(-3000, 3000)  # where sine and cosine are small
    usual = rng.standard_normal(40000) * 4
    return np.concatenate([x, special, near, usual, np.linspace(-40, 40, 20001)])


@pytest.mark.parametrize("name", LIMITS64)
def test_float64(name):
    x = sweep64()
    if name == "sigmoid":
        x = x[~(x < -709)]
    got = Built(lambda k, x: getattr(k, name)(x), "map", ["float64"], ["float64"]).map(x)
    want = reference(name, x)
    error = ulps(got, want)
    worst = int(np.argmax(error))
    assert error[worst] <= LIMITS64[name], (x[worst], got[worst], want[worst], error[worst])
    zero = (x == 0) & (want == 0)
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


def test_float32_pow():
    points = """0.0 -0.0 1 -1 2 -2 0.5 -0.5 inf -inf nan 3 -3 1e-40 -1e-40 16777215 16777216
        1e30 -1e30 1e-30 0.99999994 1.0000001"""
    v = np.array(points.split(), np.float32)
    x, y = v.repeat(v.size), np.tile(v, v.size)
    r = np.exp(rng.standard_normal(200000) * 10).astype(np.float32)
    x = np.concatenate([x, r, sweep32()[:200000:3]])
    y = np.concatenate([y, (rng.standard_normal(200000) * 8).astype(np.float32)])
    y = np.resize(y, x.size)
    got = Built(lambda k, x, y: k.pow(x, y), "map", ["float32"] * 2, ["float32"]).map(x, y)
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.float64), y.astype(np.float64))
        error = ulps(got, want)
    worst = int(np.argmax(error))
    assert error[worst] <= 0.51, (x[worst], y[worst], got[worst], want[worst], error[worst])
    zero = want == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))
