"""Row kernels in both layouts: reductions, softmax, norms, scans, against NumPy."""

import math

import numpy as np
import pytest

from .calling import Built, from_bf16, to_bf16

rng = np.random.default_rng(1)
SHAPES = [(1, 1), (1, 5), (3, 16), (5, 17), (40, 3), (200, 7), (33, 100), (70, 64), (4, 5000),
          (20, 1030), (2, 100000), (1000, 2)]  # fmt: skip


def both(k, x, params=()):
    """The result with rows contiguous, across, and with gaps: all three."""
    yield "along", k.rows(np.ascontiguousarray(x), params=params)
    yield "across", k.rows(np.ascontiguousarray(x.T), axis=0, params=params)
    wide = np.zeros((x.shape[0], 2 * x.shape[1] + 1), x.dtype)[:, : 2 * x.shape[1] : 2]
    wide[:] = x
    yield "strided", k.rows(wide, params=params)


def turn(name, y):
    return y.T if name == "across" and y.ndim == 2 else y


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int8", "bool", "bfloat16"])
def test_reductions(dtype):
    out = {"float32": "float32", "float64": "float64", "bfloat16": "float32"}.get(dtype, "int64")
    k = Built(lambda k, x: k.sum(x), "row", [dtype], [out])
    extreme = Built(
        lambda k, x: (k.max(x), k.min(x), k.argmax(x), k.argmin(x), k.any(x), k.all(x)),
        "row",
        [dtype],
        [dtype, dtype, "int64", "int64", "bool", "bool"],
    )
    for shape in SHAPES:
        x = rng.integers(-9, 9, shape)
        raw = to_bf16(x) if dtype == "bfloat16" else x.astype(dtype)
        x = from_bf16(raw) if dtype == "bfloat16" else raw
        for name, y in both(k, raw):
            np.testing.assert_array_equal(y, x.sum(1, dtype=np.float64), f"{shape} {name}")
        for name, (mx, mn, ax, an, any_, all_) in both(extreme, raw):
            if dtype == "bfloat16":
                mx, mn = from_bf16(mx), from_bf16(mn)
            where = f"{shape} {name}"
            np.testing.assert_array_equal(mx, x.max(1), where)
            np.testing.assert_array_equal(mn, x.min(1), where)
            np.testing.assert_array_equal(ax, x.argmax(1), where)
            np.testing.assert_array_equal(an, x.argmin(1), where)
            np.testing.assert_array_equal(any_, (x != 0).any(1), where)
            np.testing.assert_array_equal(all_, (x != 0).all(1), where)


def test_few_elements_are_summed_in_twice_the_precision():
    """Terms that cancel leave the exact sum, rounded; infinities and NaN stay what they are."""

    def limit(result, terms):
        """One rounding to float, and those of a sum in 48 bits."""
        return 2**-24 * np.abs(result) + terms.shape[1] * 2**-47 * np.abs(terms).sum(1)

    k = Built(lambda k, x: k.sum(x), "row", ["float32"], ["float32"])
    dot = Built(lambda k, x, y: k.dot(x, y), "row", ["float32", "float32"], ["float32"])
    for rows, n in [(1, 3), (40, 5), (33, 15), (1, 50), (3, 64)]:
        x = (rng.standard_normal((rows, n)) * 10.0 ** rng.integers(-3, 6, (rows, n))).astype("f4")
        x[:, -1] = -x[:, :-1].sum(1, dtype=np.float64)
        exact = np.array([math.fsum(row) for row in x.astype(np.float64)])
        for name, got in both(k, x):
            if name == "across" and n > 15:  # there many rows are read at once: not so exact
                continue
            assert (np.abs(got - exact) <= limit(exact, x)).all(), (rows, n, name)
        y = rng.standard_normal((rows, n)).astype("f4")
        products = [
            math.fsum(float(a) * float(b) for a, b in zip(p, q, strict=True))
            for p, q in zip(x, y, strict=True)
        ]
        got = dot.rows(x, y)
        assert (np.abs(got - products) <= limit(np.array(products), x * y)).all(), (rows, n)
    odd = np.array([[np.inf, 1, 2], [np.inf, -np.inf, 1], [np.nan, 1, 1], [3e38, 3e38, 3e38]], "f4")
    with np.errstate(all="ignore"):
        wanted = np.array([np.inf, np.nan, np.nan, np.inf], "f4")
    for name, got in both(k, odd):
        np.testing.assert_array_equal(got, wanted, name)


def test_empty_row():
    k = Built(
        lambda k, x: (k.sum(x), k.prod(x), k.any(x), k.all(x)),
        "row",
        ["float32"],
        ["float32", "float32", "bool", "bool"],
    )
    for axis in (1, 0):
        x = np.empty((3, 0) if axis == 1 else (0, 3), np.float32)
        s, p, a, b = k.rows(x, axis=axis)
        assert s.tolist() == [0] * 3 and p.tolist() == [1] * 3
        assert not a.any() and b.all()


def test_nan_in_extremes():
    k = Built(
        lambda k, x: (k.max(x), k.min(x), k.argmax(x), k.argmin(x), k.nanmax(x), k.nanmin(x)),
        "row",
        ["float32"],
        ["float32"] * 2 + ["int64"] * 2 + ["float32"] * 2,
    )
    for n in (3, 20, 67, 300):
        x = rng.standard_normal((50, n)).astype(np.float32)
        for i in range(40):
            x[i, rng.integers(0, n, 1 + i % 3)] = np.nan
        x[41], x[42], x[43] = -np.inf, np.inf, np.nan
        with np.errstate(all="ignore"):
            for name, (mx, mn, ax, an, fx, fn) in both(k, x):
                np.testing.assert_array_equal(mx, x.max(1), name)
                np.testing.assert_array_equal(mn, x.min(1), name)
                np.testing.assert_array_equal(ax, x.argmax(1), name)
                np.testing.assert_array_equal(an, x.argmin(1), name)
                np.testing.assert_array_equal(fx, np.fmax.reduce(x, 1), name)
                np.testing.assert_array_equal(fn, np.fmin.reduce(x, 1), name)


def test_sum_is_accurate():
    k = Built(lambda k, x: k.sum(x), "row", ["float32"], ["float32"])
    x = rng.random((3, 1 << 20)).astype(np.float32)
    want = x.sum(1, dtype=np.float64)
    for name, y in both(k, x):
        assert (np.abs(y - want) / want).max() < 4e-7, name
    ones = np.full((16, 1 << 21), np.float32(0.1))
    want = ones.sum(1, dtype=np.float64)
    assert (np.abs(k.rows(ones) - want) / want).max() < 1e-6
    across = np.full((1 << 18, 16), np.float32(0.1))
    assert (np.abs(k.rows(across, axis=0) / across.sum(0, dtype=np.float64) - 1)).max() < 1e-6


def test_sum_of_bfloat16_is_in_float32():
    k = Built(lambda k, x: k.sum(x), "row", ["bfloat16"], ["bfloat16"])
    x = to_bf16(np.ones((2, 4096), np.float32))
    assert from_bf16(k.rows(x)).tolist() == [4096, 4096]


def softmax(k, x):
    e = k.exp(x - k.max(x))
    return e / k.sum(e)


def test_softmax():
    k = Built(softmax, "row", ["float32"], ["float32"])
    for shape in SHAPES:
        x = (rng.standard_normal(shape) * 5).astype(np.float32)
        e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
        want = e / e.sum(1, keepdims=True)
        for name, y in both(k, x):
            np.testing.assert_allclose(turn(name, y), want, rtol=4e-6, err_msg=f"{shape} {name}")
        copy = x.copy()
        k.rows(copy, out=[copy])
        np.testing.assert_allclose(copy, want, rtol=4e-6)
        copy = x.T.copy()
        k.rows(copy, axis=0, out=[copy])
        np.testing.assert_allclose(copy.T, want, rtol=4e-6)


def test_softmax_output_in_another_layout():
    k = Built(softmax, "row", ["float32"], ["float32"])
    x = rng.standard_normal((50, 40)).astype(np.float32)
    want = k.rows(x)
    out = np.empty((40, 50), np.float32)
    k.rows(x, out=[out.T])
    np.testing.assert_allclose(out.T, want, rtol=4e-6)
    gaps = np.empty((50, 80), np.float32)[:, ::2]
    k.rows(x, out=[gaps])
    np.testing.assert_allclose(gaps, want, rtol=4e-6)


def layer_norm(k, x, w, b, eps):
    mean = k.sum(x) / k.count()
    d = x - mean
    rstd = k.rsqrt(k.sum(d * d) / k.count() + eps)
    return d * rstd * w + b, mean, rstd


@pytest.mark.parametrize("shape", SHAPES)
def test_layer_norm(shape):
    k = Built(layer_norm, "row", ["float32"] * 3, ["float32"] * 3, n_params=1)
    x = rng.standard_normal(shape).astype(np.float32)
    w, b = rng.standard_normal((2, shape[1])).astype(np.float32)
    wide = [np.broadcast_to(v, shape) for v in (w, b)]
    d = x.astype(np.float64)
    mean = d.mean(1, keepdims=True)
    rstd = 1 / np.sqrt(d.var(1, keepdims=True) + 1e-5)
    want = (d - mean) * rstd * w + b
    for axis in (1, 0):
        y, m, r = k.rows(
            *([x, *wide] if axis == 1 else [x.T.copy(), *[v.T for v in wide]]),
            axis=axis,
            params=(1e-5,),
        )
        np.testing.assert_allclose(y if axis == 1 else y.T, want, atol=3e-5, rtol=1e-4)
        np.testing.assert_allclose(m, mean[:, 0], atol=1e-6)
        np.testing.assert_allclose(r, rstd[:, 0], rtol=2e-5)


def test_scans():
    k = Built(
        lambda k, x: (
            k.cumsum(x),
            k.cumprod(x * 0.125),
            k.cummax_value(x),
            k.cummax_index(x),
            k.cummin_value(x),
            k.cummin_index(x),
        ),
        "row",
        ["float32"],
        ["float32"] * 3 + ["int64", "float32", "int64"],
    )
    for shape in SHAPES:
        x = rng.integers(-9, 9, shape).astype(np.float32)
        x[0, shape[1] // 2] = np.nan
        v = x.astype(np.float64)
        index = np.zeros(shape, np.int64)
        low = np.zeros(shape, np.int64)
        for i in range(shape[0]):
            best = worst = 0
            for j in range(shape[1]):
                if np.isnan(x[i, j]) or x[i, j] >= x[i, best]:
                    best = j
                if np.isnan(x[i, j]) or x[i, j] <= x[i, worst]:
                    worst = j
                index[i, j], low[i, j] = best, worst
        for name, results in both(k, x):
            s, p, mx, ix, mn, im = [turn(name, y) for y in results]
            with np.errstate(all="ignore"):
                np.testing.assert_array_equal(s, v.cumsum(1).astype(np.float32), name)
                np.testing.assert_allclose(p, (v * 0.125).cumprod(1), rtol=1e-6, atol=1e-30)
            np.testing.assert_array_equal(mx, np.maximum.accumulate(x, 1), name)
            np.testing.assert_array_equal(mn, np.minimum.accumulate(x, 1), name)
            np.testing.assert_array_equal(ix, index, name)
            np.testing.assert_array_equal(im, low, name)


def test_logcumsumexp():
    k = Built(lambda k, x: k.logcumsumexp(x), "row", ["float32"], ["float32"])
    x = (rng.standard_normal((40, 50)) * 10).astype(np.float32)
    x[0, 0], x[1, 3], x[2] = -np.inf, np.inf, -np.inf
    with np.errstate(all="ignore"):
        want = np.logaddexp.accumulate(x.astype(np.float64), 1)
    for name, y in both(k, x):
        np.testing.assert_allclose(turn(name, y), want, rtol=2e-6, atol=1e-6, err_msg=name)


def test_integer_scan():
    k = Built(lambda k, x: k.cumsum(x), "row", ["int8"], ["int64"])
    x = rng.integers(-100, 100, (33, 70), dtype=np.int8)
    for name, y in both(k, x):
        np.testing.assert_array_equal(turn(name, y), x.astype(np.int64).cumsum(1), name)


def test_three_passes_and_index():
    def expr(k, x):
        m = k.max(x)
        s = k.sum(k.where(x == m, 1.0, 0.0))
        return k.sum(k.cast(k.index(), "float32") * k.where(x == m, 1.0, 0.0)) / s, m

    k = Built(expr, "row", ["float32"], ["float32", "float32"])
    x = rng.integers(0, 5, (37, 90)).astype(np.float32)
    for _name, (y, m) in both(k, x):
        hit = x == x.max(1, keepdims=True)
        np.testing.assert_allclose(y, (hit * np.arange(90)).sum(1) / hit.sum(1), rtol=1e-6)
        np.testing.assert_array_equal(m, x.max(1))


def test_row_conditions():
    def expr(k, x):
        bad = k.any(k.isnan(x))
        return k.where(bad, 0.0, x / k.sum(x)), bad

    k = Built(expr, "row", ["float32"], ["float32", "bool"])
    x = rng.random((40, 37)).astype(np.float32)
    x[3, 4] = x[20, 0] = np.nan
    for name, (y, bad) in both(k, x):
        np.testing.assert_array_equal(bad, np.isnan(x).any(1))
        with np.errstate(all="ignore"):
            want = np.where(np.isnan(x).any(1)[:, None], 0, x / x.sum(1, keepdims=True))
        np.testing.assert_allclose(turn(name, y), want, rtol=1e-6)


def test_bfloat16_softmax():
    k = Built(softmax, "row", ["bfloat16"], ["bfloat16"])
    x = to_bf16(rng.standard_normal((70, 90)) * 3)
    v = from_bf16(x).astype(np.float64)
    e = np.exp(v - v.max(1, keepdims=True))
    want = e / e.sum(1, keepdims=True)
    for name, y in both(k, x):
        np.testing.assert_allclose(from_bf16(turn(name, y).copy()), want, rtol=4e-3)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("shape", [(1, 1), (5, 1), (1, 40), (3, 7), (70, 33), (300, 200)])
@pytest.mark.parametrize("axis", [0, 1])
def test_an_input_with_one_value_a_row(dtype, shape, axis):
    """Read once a row, whichever way the rows lie: the same as an element-wise input."""

    def expr(k, x, m, s):
        m, s = k.of_row(m), k.of_row(s)
        scale = s * s + 1
        return (x - m) * (scale * k.sum(x * s)), k.sum(x) + m

    kernel = Built(expr, "row", [dtype] * 3, [dtype, "float32" if dtype[0] == "b" else dtype])
    n1 = shape[0]
    whole = (rng.integers(-8, 9, size) / 4 for size in (shape, (n1, 1), (n1, 1)))
    x, m, s = (np.broadcast_to(v, shape) for v in whole)
    to = to_bf16 if dtype == "bfloat16" else lambda v: v.astype(dtype)
    full = to(x) if axis == 1 else np.ascontiguousarray(to(x).T)
    per_row = [
        np.lib.stride_tricks.as_strided(v, shape, (v.itemsize, 0))
        for v in (np.ascontiguousarray(to(t[:, 0].copy())) for t in (m, s))
    ]
    views = per_row if axis == 1 else [v.T for v in per_row]
    out, total = kernel.rows(full, *views, axis=axis)
    want = (x - m) * ((s * s + 1) * (x * s).sum(1, keepdims=True))
    got = from_bf16(out) if dtype == "bfloat16" else out
    got = got if axis == 1 else got.T
    rounding = 2.0**-8 if dtype == "bfloat16" else 1e-5
    np.testing.assert_allclose(got, want, rtol=rounding, atol=rounding)
    np.testing.assert_allclose(total, x.sum(1) + m[:, 0], rtol=1e-5, atol=1e-5)
