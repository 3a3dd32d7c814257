"""Map kernels: layouts, remainders, dtypes, in place, against NumPy."""

import numpy as np
import pytest

from .calling import NUMPY, Built, from_bf16, to_bf16

rng = np.random.default_rng(0)


@pytest.fixture(scope="module")
def axpy():
    return Built(
        lambda k, x, y, a: x + a * y, "map", ["float32", "float32"], ["float32"], n_params=1
    )


def layouts(n1, n0):
    """The same shape in memory orders: dense, offset, strided, transposed, broadcast."""
    r = lambda *s: rng.standard_normal(s).astype(np.float32)  # noqa: E731
    yield "dense", r(n1, n0)
    yield "unaligned", r(n1 * n0 + 1)[1:].reshape(n1, n0)
    yield "padded", r(n1, n0 + 3)[:, :n0]
    yield "strided", r(n1, 2 * n0)[:, ::2]
    yield "transposed", r(n0, n1).T
    yield "padded transposed", r(n0, n1 + 5)[:, :n1].T
    yield "row", np.broadcast_to(r(1, n0), (n1, n0))
    yield "column", np.broadcast_to(r(n1, 1), (n1, n0))
    yield "scalar", np.broadcast_to(r(1, 1), (n1, n0))


@pytest.mark.parametrize(
    "n1,n0", [(1, 1), (1, 17), (3, 5), (7, 64), (33, 130), (9, 2100), (64, 64)]
)
def test_layouts(axpy, n1, n0):
    for name, x in layouts(n1, n0):
        for other, y in layouts(n1, n0):
            got = axpy.map(x, y, params=(0.5,))
            np.testing.assert_array_equal(got, x + np.float32(0.5) * y, f"{name}, {other}")


@pytest.mark.parametrize("make", [
    lambda n1, n0: np.empty((n1, 2 * n0), np.float32)[:, ::2],
    lambda n1, n0: np.empty((n0, n1), np.float32).T,
    lambda n1, n0: np.empty((n1, n0 + 1), np.float32)[:, 1:],
])  # fmt: skip
def test_output_layouts(axpy, make):
    for n1, n0 in [(1, 7), (40, 70), (3, 3000)]:
        out = make(n1, n0)
        for name, x in layouts(n1, n0):
            axpy.map(x, x, params=(2,), out=[out])
            np.testing.assert_array_equal(out, x + 2 * x, name)


def test_in_place(axpy):
    for n1, n0 in [(1, 100), (5, 33), (40, 40)]:
        for name, x in layouts(n1, n0):
            if 0 in x.strides:
                continue
            want = x + np.float32(3) * x
            axpy.map(x, x, params=(3,), out=[x])
            np.testing.assert_array_equal(x, want, name)


def test_nothing(axpy):
    assert (
        axpy.map(np.empty((3, 0), np.float32), np.empty((3, 0), np.float32), params=(1,)).size == 0
    )


def test_large_streams():
    n = (3 << 20) + 5
    k = Built(lambda k, x, y: x + y, "map", ["float32"] * 2, ["float32"])
    base = rng.standard_normal(n + 3).astype(np.float32)
    for offset in (0, 1, 3):
        out = np.empty(n + 3, np.float32)[offset:]
        x, y = base[: out.size], base[::-1][: out.size].copy()
        k.map(x, y, out=[out])
        np.testing.assert_array_equal(out, x + y)


INTS = ["uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


@pytest.mark.parametrize("dtype", INTS)
def test_integers(dtype):
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max, 1000, dtype=dtype, endpoint=True)
    y = rng.integers(info.min, info.max, 1000, dtype=dtype, endpoint=True)
    y[::7] = 0
    x[::11], y[::11] = info.min, (-1 if info.min else 1)
    k = Built(
        lambda k, x, y: (
            x + y,
            x * y,
            x - y,
            x & y,
            ~x,
            k.trunc_divide(x, y),
            k.fmod(x, y),
            k.floor_divide(x, y),
            k.remainder(x, y),
            k.maximum(x, y),
            k.abs(x),
            -x,
            k.sign(x),
        ),
        "map",
        [dtype] * 2,
        [dtype] * 13,
    )
    add, mul, sub, and_, not_, tdiv, fmod, fdiv, rem, mx, ab, neg, sgn = k.map(x, y)
    with np.errstate(all="ignore"):
        one = y.copy()
        one[one == 0] = 1
        zero = y == 0
        fd = np.where(zero, 0, np.floor_divide(x, one))
        if info.min:
            fd = np.where(one == np.array(-1, dtype), np.negative(x), fd)
            fd[zero] = 0
        exact = [
            int(abs(int(a)) // abs(int(b))) * (1 if (a < 0) == (b < 0) else -1)
            for a, b in zip(x, one)
        ]
        td = np.array([v if info.min <= v <= info.max else info.min for v in exact], dtype)
        td[zero] = 0
        fm = np.where(zero, 0, x - td * one)
        rm = np.where(zero, 0, x - fd * one)
    for name, got, want in [
        ("add", add, x + y),
        ("mul", mul, x * y),
        ("sub", sub, x - y),
        ("and", and_, x & y),
        ("not", not_, ~x),
        ("trunc", tdiv, td),
        ("fmod", fmod, fm),
        ("floor", fdiv, fd),
        ("remainder", rem, rm),
        ("max", mx, np.maximum(x, y)),
        ("abs", ab, np.abs(x)),
        ("neg", neg, np.negative(x)),
        ("sign", sgn, np.sign(x)),
    ]:
        np.testing.assert_array_equal(got, want, name)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "int64", "int16"])
def test_shifts(dtype):
    bits = np.iinfo(dtype).bits
    x = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, 300, dtype=dtype, endpoint=True)
    y = (np.arange(300) % (bits + 6) - (3 if dtype != "uint8" else 0)).astype(dtype)
    k = Built(lambda k, x, y: (x << y, x >> y), "map", [dtype] * 2, [dtype] * 2)
    left, right = k.map(x, y)
    ok = (y >= 0) & (y < bits)
    safe = np.where(ok, y, 0).astype(dtype)
    np.testing.assert_array_equal(left, np.where(ok, x << safe, 0))
    most = bits - 1 if np.iinfo(dtype).min else bits
    want = np.where(ok, x >> safe, (x >> (bits - 1)) if most == bits - 1 else 0)
    np.testing.assert_array_equal(right, want)


def test_int_pow():
    x = np.array([-3, -2, -1, 0, 1, 2, 3, 7], np.int64).repeat(7)
    y = np.tile(np.array([-2, -1, 0, 1, 2, 3, 5], np.int64), 8)
    want = [
        int(a) ** int(b) if b >= 0 else (1 if a == 1 else (-1 if b % 2 else 1) if a == -1 else 0)
        for a, b in zip(x, y)
    ]
    got = Built(lambda k, x, y: k.pow(x, y), "map", ["int64"] * 2, ["int64"]).map(x, y)
    np.testing.assert_array_equal(got, want)


def test_float_division():
    x = np.concatenate(
        [
            rng.standard_normal(500),
            rng.standard_normal(500) * 1e8,
            [np.inf, -np.inf, np.nan, 0.0, -0.0, 5, -5, 1e-40, 3e38],
        ]
    ).astype(np.float32)
    y = np.concatenate(
        [
            rng.standard_normal(500),
            rng.standard_normal(500),
            [2, 3, 2, -1, 1, 0, np.inf, 1e-42, 1e-30],
        ]
    ).astype(np.float32)
    k = Built(
        lambda k, x, y: (k.fmod(x, y), k.remainder(x, y), k.floor_divide(x, y)),
        "map",
        ["float32"] * 2,
        ["float32"] * 3,
    )
    fmod, rem, floor = k.map(x, y)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(fmod, np.fmod(x, y))
        m = np.fmod(x, y)
        want = np.where((m != 0) & ((y < 0) != (m < 0)), m + y, m)
        np.testing.assert_array_equal(rem, want)
        finite = np.isfinite(x) & np.isfinite(y) & (y != 0)
        np.testing.assert_array_equal(floor[finite], np.floor_divide(x, y)[finite])


def test_bool_logic():
    x, y = rng.random(100) > 0.5, rng.random(100) > 0.5
    k = Built(
        lambda k, x, y: (x & y, x | y, ~x, x ^ y, x == y, x < y, x + y, x * y, k.where(x, y, ~y)),
        "map",
        ["bool"] * 2,
        ["bool"] * 9,
    )
    for got, want in zip(
        k.map(x, y), [x & y, x | y, ~x, x ^ y, x == y, x < y, x | y, x & y, np.where(x, y, ~y)]
    ):
        np.testing.assert_array_equal(got, want)


def test_bytes_other_than_one_are_true():
    x = np.arange(70, dtype=np.uint8)
    k = Built(
        lambda k, x, y: (x & y, k.where(x, 1.0, 2.0)),
        "map",
        ["bool", "bool"],
        ["bool", "float32"],
        compute_dtype="float32",
    )
    a, b = k.map(x.view(np.bool_), np.ones(70, np.bool_))
    np.testing.assert_array_equal(a.view(np.uint8), (x != 0).astype(np.uint8))
    np.testing.assert_array_equal(b, np.where(x != 0, 1.0, 2.0))


def test_where_mixed_widths():
    c = rng.random(1000) > 0.5
    for d in ("uint8", "int64", "float32", "float64", "int16"):
        x = rng.integers(0, 100, 1000).astype(d)
        y = rng.integers(0, 100, 1000).astype(d)
        got = Built(lambda k, c, x, y: k.where(c, x, y), "map", ["bool", d, d], [d]).map(c, x, y)
        np.testing.assert_array_equal(got, np.where(c, x, y))


def test_minimum_and_maximum_of_nan_and_zero():
    v = np.array([np.nan, -np.inf, -1, -0.0, 0.0, 1, np.inf], np.float32)
    x, y = v.repeat(7), np.tile(v, 7)
    k = Built(
        lambda k, x, y: (k.maximum(x, y), k.minimum(x, y), k.fmax(x, y), k.fmin(x, y)),
        "map",
        ["float32"] * 2,
        ["float32"] * 4,
    )
    for got, f in zip(k.map(x, y), (np.maximum, np.minimum, np.fmax, np.fmin)):
        np.testing.assert_array_equal(got, f(x, y))


def test_comparisons_with_nan():
    v = np.array([np.nan, -1, -0.0, 0.0, 2], np.float64)
    x, y = v.repeat(5), np.tile(v, 5)
    k = Built(
        lambda k, x, y: (
            x < y,
            x <= y,
            x > y,
            x >= y,
            x == y,
            x != y,
            k.isnan(x),
            k.isfinite(x),
            k.signbit(x),
        ),
        "map",
        ["float64"] * 2,
        ["bool"] * 9,
    )
    for got, want in zip(
        k.map(x, y),
        [x < y, x <= y, x > y, x >= y, x == y, x != y, np.isnan(x), np.isfinite(x), np.signbit(x)],
    ):
        np.testing.assert_array_equal(got, want)


ALL = list(NUMPY)


def values(dtype):
    """Sample values as stored, and as float64 or int for the reference."""
    if dtype == "bool":
        return rng.random(200) > 0.5
    if dtype.startswith("float8"):
        return np.arange(256, dtype=np.uint8)
    if dtype == "bfloat16":
        return to_bf16(np.concatenate([rng.standard_normal(200) * 50, [0.0, -0.0, 1e-40]]))
    if dtype.startswith("float"):
        x = np.concatenate([rng.standard_normal(200) * 50, [0.0, -0.0, 0.4, -0.6]])
        return x.astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(max(info.min, -1000), min(info.max, 1000), 200).astype(dtype)


def f8_table(dtype):
    """All 256 values of an 8-bit float, from its definition."""
    exponent_bits, bias = (5, 15) if dtype == "float8_e5m2" else (4, 7)
    m_bits = 7 - exponent_bits
    out = np.empty(256, np.float32)
    for b in range(256):
        e, m = (b & 0x7F) >> m_bits, b & ((1 << m_bits) - 1)
        v = (
            m * 2.0 ** (1 - bias - m_bits)
            if e == 0
            else (1 + m / (1 << m_bits)) * 2.0 ** (e - bias)
        )
        if dtype == "float8_e5m2" and e == 31:
            v = np.inf if m == 0 else np.nan
        if dtype == "float8_e4m3fn" and (b & 0x7F) == 0x7F:
            v = np.nan
        out[b] = -v if b & 0x80 else v
    return out


def decode(dtype, raw):
    if dtype == "bfloat16":
        return from_bf16(raw)
    if dtype.startswith("float8"):
        return f8_table(dtype)[raw]
    return raw


@pytest.mark.parametrize("to", ALL)
def test_casts(to):
    for source in ALL:
        raw = values(source)
        x = decode(source, raw)
        if np.issubdtype(NUMPY[to], np.integer) and not to.startswith("float") and to != "bfloat16":
            keep = np.isfinite(x.astype(np.float64)) & (np.abs(x.astype(np.float64)) < 2e9)
            raw, x = raw[keep], x[keep]
        got = Built(lambda k, x: k.cast(x, to), "map", [source], [to]).map(raw)
        with np.errstate(all="ignore"):
            if source == to:
                np.testing.assert_array_equal(got, raw)
            elif to == "bfloat16":
                np.testing.assert_array_equal(from_bf16(got), from_bf16(to_bf16(x)), source)
            elif to.startswith("float8"):
                table = f8_table(to)
                v = x.astype(np.float32)
                back = table[got]
                top = 448 if to == "float8_e4m3fn" else 57344
                fine = np.isfinite(v) & (np.abs(v) <= top)
                finite = table[np.isfinite(table)]
                best = np.abs(finite[None] - v[fine, None]).min(1)
                np.testing.assert_array_equal(np.abs(back[fine] - v[fine]), best, source)
            elif to == "bool":
                np.testing.assert_array_equal(got, x != 0, source)
            elif np.issubdtype(NUMPY[to], np.integer) and x.dtype.kind == "f":
                want = np.trunc(x.astype(np.float64)).astype(np.int64).astype(NUMPY[to])
                np.testing.assert_array_equal(got, want, source)
            else:
                np.testing.assert_array_equal(got, x.astype(NUMPY[to]), source)


def test_half_every_value():
    h = np.arange(65536, dtype=np.uint16).view(np.float16)
    up = Built(lambda k, x: k.cast(x, "float32"), "map", ["float16"], ["float32"]).map(h)
    np.testing.assert_array_equal(up, h.astype(np.float32))
    x = np.concatenate([
        rng.standard_normal(20000) * 10.0 ** rng.integers(-9, 6, 20000),
        [65504, 65519.9, 65520, 1e30, np.inf, -np.inf, np.nan, 6e-8, 2.98e-8, 2.99e-8, 0, -0.0],
    ]).astype(np.float32)  # fmt: skip
    with np.errstate(all="ignore"):
        down = Built(lambda k, x: k.cast(x, "float16"), "map", ["float32"], ["float16"]).map(x)
        np.testing.assert_array_equal(down, x.astype(np.float16))


def test_bfloat16_nan_and_ties():
    x = np.array([np.nan, np.inf, -np.inf, 1.00390625, 1.01171875, 3.4e38, 1e-45], np.float32)
    x = np.concatenate([x, np.array([0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32)])
    got = from_bf16(Built(lambda k, x: x, "map", ["float32"], ["bfloat16"]).map(x))
    np.testing.assert_array_equal(got, from_bf16(to_bf16(x)))


def test_copy_keeps_bits():
    for d in ("float16", "bfloat16", "float8_e5m2"):
        raw = np.arange(65536 if "8" not in d else 256).astype(
            np.uint16 if "8" not in d else np.uint8
        )
        raw = raw.view(NUMPY[d])
        got = Built(lambda k, x: x, "map", [d], [d]).map(raw)
        np.testing.assert_array_equal(got.view(np.uint8), raw.view(np.uint8))


def test_fill_and_params():
    out = np.empty(37, np.float32)
    Built(lambda k, v: v, "map", [], ["float32"], n_params=1).map(params=(2.5,), out=[out])
    np.testing.assert_array_equal(out, 2.5)
    out = np.empty((5, 9), np.int64)[:, ::2]
    Built(lambda k, v: v, "map", [], ["int64"], n_params=1).map(params=(-(2**62) - 1,), out=[out])
    np.testing.assert_array_equal(out, -(2**62) - 1)


def test_bool_params():
    x = rng.random(100) > 0.5
    k = Built(lambda k, x, a, b: (x & a, x | (b != 0)), "map", ["bool"], ["bool"] * 2, n_params=2)
    got = k.map(x, params=(1, 0))
    np.testing.assert_array_equal(got[0], x)
    np.testing.assert_array_equal(got[1], x)
    got = k.map(x, params=(0, 1))
    assert not got[0].any() and got[1].all()
