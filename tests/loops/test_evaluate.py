"""The NumPy evaluation against the compiled kernels, and complex numbers."""

import math

import numpy as np
import pytest

from flambeau._src.loops.evaluate import evaluate, interpret

from .calling import NUMPY, Built, from_bf16
from .test_map import decode, values
from .test_rows import layer_norm, softmax

rng = np.random.default_rng(3)


def same(kernel, arrays, params=(), ulp=2):
    """Both ways of running a map kernel agree."""
    got = kernel.map(*arrays, params=params)
    got = got if isinstance(got, list) else [got]
    for g, w, d in zip(got, interpret(kernel.kernel, arrays, params), kernel.outs):
        assert w.dtype == np.dtype(NUMPY[d])
        w = np.broadcast_to(w, g.shape)
        if d == "bfloat16":
            g, w = from_bf16(g), from_bf16(w.copy())
        if d in ("float32", "float64"):
            np.testing.assert_array_max_ulp(g, w, ulp, dtype=d)
        else:
            np.testing.assert_array_equal(g, w)


@pytest.mark.parametrize("to", list(NUMPY))
def test_casts(to):
    for source in NUMPY:
        raw = values(source)
        if NUMPY[to] in (np.uint8, np.uint16, np.uint32, np.uint64) and source != to:
            x = decode(source, raw)
            raw = raw[np.isfinite(x.astype(float))]
        same(Built(lambda k, x: k.cast(x, to), "map", [source], [to]), [raw])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_integers(dtype):
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max, 500, dtype=dtype, endpoint=True)
    y = rng.integers(info.min, info.max, 500, dtype=dtype, endpoint=True)
    y[::7], x[::11] = 0, info.min
    y[::11] = -1 if info.min else 1
    small = (y % 9).astype(dtype)
    k = Built(
        lambda k, x, y, s: (
            x + y,
            x * y,
            k.trunc_divide(x, y),
            k.floor_divide(x, y),
            k.fmod(x, y),
            k.remainder(x, y),
            x << s,
            x >> s,
            k.pow(x, s),
            k.minimum(x, y),
            k.abs(x),
            k.sign(x),
            ~x,
        ),
        "map",
        [dtype] * 3,
        [dtype] * 13,
    )
    same(k, [x, y, small])


def test_floats():
    x = np.concatenate([rng.standard_normal(500) * 3, [0, -0.0, np.nan, np.inf, -np.inf]])
    y = np.concatenate([rng.standard_normal(500), [1, -1, 1, np.inf, 2]])
    x, y = x.astype(np.float32), y.astype(np.float32)
    k = Built(
        lambda k, x, y, a: (
            k.exp(x),
            k.tanh(x),
            k.erf(x),
            k.sigmoid(x),
            x * a + y,
            k.fmod(x, y),
            k.remainder(x, y),
            k.floor_divide(x, y),
            k.maximum(x, y),
            k.fmin(x, y),
            k.round(x),
            k.where(x > y, x, a),
            k.sign(x),
            k.cast(k.cast(x, "bfloat16"), "float32"),
        ),
        "map",
        ["float32"] * 2,
        ["float32"] * 14,
        n_params=1,
    )
    with np.errstate(all="ignore"):
        same(k, [x, y], (0.3,), 4)


def test_rare():
    x = np.concatenate([rng.random(200) * 20, -rng.random(50) * 5, [0, 1, 2, -1]])
    y = np.concatenate([rng.random(100) * 2 - 1, [0, 1, -1, 1e-12, 1 - 1e-10, 2]])
    k = Built(lambda k, x: (k.lgamma(x), k.digamma(x)), "map", ["float64"], ["float64"] * 2)
    with np.errstate(all="ignore"):
        for g, w in zip(k.map(x), interpret(k.kernel, [x])):
            np.testing.assert_allclose(g, w, rtol=1e-12, atol=1e-13)
    k = Built(lambda k, x: k.erfinv(x), "map", ["float64"], ["float64"])
    same(k, [y], ulp=20)
    back = np.array([math.erf(v) for v in k.map(y[:-1])])
    np.testing.assert_allclose(back, y[:-1], rtol=1e-14)
    psi = Built(lambda k, x: k.digamma(x), "map", ["float64"], ["float64"])
    euler = 0.5772156649015329
    got = psi.map(np.array([1.0, 2.0, 0.5, 10.0]))
    want = [-euler, 1 - euler, -euler - 2 * math.log(2), 2.251752589066721107647]
    np.testing.assert_allclose(got, want, rtol=1e-14)


def test_rows():
    x = rng.standard_normal((7, 33)).astype(np.float32)
    (y,) = evaluate(softmax, "row", ["float32"], ["float32"], [x], axis=0)
    np.testing.assert_allclose(y.sum(0), 1, rtol=1e-6)
    w = rng.standard_normal(33).astype(np.float32)
    y, m, r = evaluate(layer_norm, "row", ["float32"] * 3, ["float32"] * 3, [x, w, w], (1e-5,))
    k = Built(layer_norm, "row", ["float32"] * 3, ["float32"] * 3, n_params=1)
    wide = np.broadcast_to(w, x.shape)
    want = k.rows(x, wide, wide, params=(1e-5,))
    for g, v in zip((y, m[:, 0], r[:, 0]), want):
        np.testing.assert_allclose(g, v, rtol=1e-5, atol=1e-6)
    assert m.shape == (7, 1)

    def scans(k, x):
        return (
            k.cumsum(x),
            k.cummax_value(x),
            k.cummax_index(x),
            k.cummin_index(x),
            k.argmax(x),
            k.any(x > 1),
        )

    outs = ["float32", "float32", "int64", "int64", "int64", "bool"]
    x[2, 5] = np.nan
    got = evaluate(scans, "row", ["float32"], outs, [x])
    for g, v in zip(got, Built(scans, "row", ["float32"], outs).rows(x)):
        np.testing.assert_array_equal(g if v.ndim == 2 else g[:, 0], v)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex(dtype):
    z = (rng.standard_normal(20) + 1j * rng.standard_normal(20)).astype(dtype)
    w = (rng.standard_normal(20) + 1j * rng.standard_normal(20)).astype(dtype)
    real = "float32" if dtype == "complex64" else "float64"

    def expr(k, z, w, a):
        return (
            z * w + a,
            z / w,
            k.exp(z),
            k.abs(z),
            k.real(z),
            k.conj(z),
            z == w,
            k.where(k.isnan(z), 0, z),
            z * (1 + 2j),
            k.rsqrt(z),
        )

    outs = [dtype, dtype, dtype, real, real, dtype, "bool", dtype, dtype, dtype]
    got = evaluate(expr, "map", [dtype] * 2, outs, [z, w], (2.0,))
    want = [
        z * w + 2,
        z / w,
        np.exp(z),
        np.abs(z),
        z.real,
        z.conj(),
        z == w,
        z,
        z * (1 + 2j),
        1 / np.sqrt(z),
    ]
    for g, v in zip(got, want):
        np.testing.assert_allclose(g, v, rtol=1e-5)
    got = evaluate(
        lambda k, z: (k.sum(z) / k.count(), k.cumsum(z)), "row", [dtype], [dtype] * 2, [z]
    )
    np.testing.assert_allclose(got[0], z.mean(keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(got[1], z.cumsum(), rtol=1e-5)
    with pytest.raises(TypeError, match="no order"):
        evaluate(lambda k, z: z < 1, "map", [dtype], ["bool"], [z])
