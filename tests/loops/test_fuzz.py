"""Random expressions over mixed dtypes: compiled against interpreted."""

import random

import numpy as np
import pytest

from flambeau._src.loops.evaluate import interpret

from .calling import NUMPY, Built, from_bf16

DTYPES = [d for d in NUMPY if not d.startswith("float8")]
UNARY = ["exp", "tanh", "sqrt", "sign", "abs", "floor", "neg", "isnan", "sigmoid", "cast", "not"]
BINARY = ["add", "sub", "mul", "max", "min", "lt", "eq", "where", "and", "fmod", "div"]
ROW = ["sum", "nanmax", "row max", "row min", "any", "all", "argmax", "cumsum"]


def number(rng, k, x):
    return x if x.dtype != "bool" or rng.random() < 0.7 else k.cast(x, "int32")


def grow(rng, k, pool, row):
    """One more random value from those there are."""
    a, b, c = (rng.choice(pool) for _ in range(3))
    op = rng.choice(UNARY + BINARY + (ROW if row else []))
    if op in ("exp", "tanh", "sqrt", "sigmoid"):
        return getattr(k, op)(k.cast(a, "float32") if a.dtype[0] != "f" else a)
    if op == "cast":
        to = rng.choice(
            ["float32", "int64", "int8", "bool", "float64", "bfloat16", "uint8", "int16"]
        )
        if a.dtype[0] == "f" and to != "bool" and not to.startswith(("float", "bf")):
            a = k.where(k.abs(a) < 100, a, 7.0)
        return k.cast(a, to)
    if op == "neg":
        return -number(rng, k, a)
    if op == "not":
        return ~a if a.dtype[0] != "f" else a
    if op in ("sign", "abs", "floor", "isnan"):
        return getattr(k, op)(a)
    if op in ROW:
        a = k.cast(a, "float64") if op in ("sum", "cumsum") and a.dtype == "float32" else a
        return getattr(k, op.removeprefix("row "))(a)
    if op == "where":
        return k.where(c, a, b)
    if op == "and":
        return (a & b) if a.dtype[0] != "f" and b.dtype[0] != "f" else a
    if op in ("lt", "eq"):
        return a < b if op == "lt" else a == b
    if op in ("max", "min"):
        return k.maximum(a, b) if op == "max" else k.minimum(a, b)
    if op == "div":
        return k.cast(a, "float64") / k.cast(b, "float64")
    return {"add": lambda: a + b, "sub": lambda: a - b, "mul": lambda: a * b,
            "fmod": lambda: k.fmod(number(rng, k, a), b)}[op]()  # fmt: skip


def sample(dtype, shape, gen):
    x = gen.integers(-6, 7, shape)
    if dtype == "bool":
        return x > 0
    if dtype == "bfloat16":
        return (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return np.abs(x).astype(NUMPY[dtype]) if dtype.startswith("u") else x.astype(NUMPY[dtype])


def compare(got, want, dtype, note):
    if dtype == "bfloat16":
        got, want = from_bf16(got), from_bf16(np.ascontiguousarray(want))
    if np.asarray(got).dtype.kind == "f":
        tolerance = {"float64": 2e-6, "float32": 2e-5}.get(dtype, 1e-2)
        np.testing.assert_allclose(
            got.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance,
            err_msg=note,
        )  # fmt: skip
    else:
        np.testing.assert_array_equal(got, want, note)


@pytest.mark.parametrize("seed", range(16))
def test_random_expressions(seed):
    rng, gen = random.Random(seed), np.random.default_rng(seed)
    row = seed % 2 == 1
    ins = [rng.choice(DTYPES) for _ in range(3)]
    outs = [rng.choice(["float32", "float64", "int64", "bool", "bfloat16", "int32"])
            for _ in range(3)]  # fmt: skip

    def expr(k, *xs):
        choose = random.Random(seed + 1000)
        pool = list(xs)
        for _ in range(14):
            pool.append(grow(choose, k, pool, row))
        results = []
        for d in outs:
            v = choose.choice(pool[3:])
            if v.dtype[0] == "f" and d[0] == "i":
                v = k.where(k.abs(v) < 1e6, v, 0.0)  # what is out of range is not defined
                v = k.floor(v + 0.25)  # and what is near a step is not comparable
            results.append(v)
        return tuple(results)

    kernel = Built(expr, "row" if row else "map", ins, outs)
    for shape in [(3, 5), (37, 70), (70, 19)]:
        arrays = [sample(d, shape, gen) for d in ins]
        with np.errstate(all="ignore"):
            want = interpret(kernel.kernel, arrays)
        note = f"{shape}\n{kernel.kernel}"
        if not row:
            for layout in (arrays, [np.asfortranarray(a) for a in arrays]):
                for g, w, d in zip(kernel.map(*layout), want, outs):
                    compare(g, np.broadcast_to(w, shape), d, note)
            continue
        for axis in (1, 0):
            given = arrays if axis == 1 else [np.ascontiguousarray(a.T) for a in arrays]
            for g, w, d in zip(kernel.rows(*given, axis=axis), want, outs):
                if g.ndim == 1:
                    w = np.broadcast_to(w, (shape[0], 1))[:, 0]
                elif axis == 0:
                    g = g.T
                compare(g, np.broadcast_to(w, g.shape), d, note)
