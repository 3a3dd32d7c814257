"""Kernels in NumPy: for machines with no compiler, for complex numbers, and as a reference.

The same kernel IR that is printed as C is interpreted here, one array operation a value, so the
meaning of an expression is decided in one place (``lower.py``). Quiet: floating-point exceptions
warn nobody. bfloat16 and the 8-bit floats go in and out as arrays of their bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np  # this module itself is only ever imported where it is needed

from flambeau._src.ir.kernel import DTYPES, Inst, Kernel

from .lower import lower

__all__ = ["evaluate", "interpret", "run"]

Array = Any

_NUMPY = {
    "bool": "?", "uint8": "u1", "int8": "i1", "int16": "i2", "uint16": "u2", "int32": "i4",
    "uint32": "u4", "int64": "i8", "uint64": "u8", "float16": "f2", "float32": "f4",
    "float64": "f8", "bfloat16": "u2", "float8_e5m2": "u1", "float8_e4m3fn": "u1",
    "complex32": "u4", "complex64": "c8", "complex128": "c16",
}  # fmt: skip
_WIDER = {"complex64": "complex128", "float32": "float64"}


# ---- storage


def _f8_values(name: str) -> Array:
    """The 256 values of an 8-bit float."""
    bits = np.arange(256)
    e_bits, bias = (5, 15) if name == "float8_e5m2" else (4, 7)
    m_bits = 7 - e_bits
    e, m = (bits & 0x7F) >> m_bits, bits & ((1 << m_bits) - 1)
    normal = np.ldexp(1 + m / (1 << m_bits), e - bias)
    v = np.where(e == 0, np.ldexp(m.astype(np.float64), 1 - bias - m_bits), normal)
    if name == "float8_e5m2":
        v = np.where(e == 31, np.where(m == 0, np.inf, np.nan), v)
    else:
        v = np.where((bits & 0x7F) == 0x7F, np.nan, v)
    return np.where(bits & 0x80, -v, v).astype(np.float32)


def _decode(a: Array, dtype: str) -> Array:
    """Stored elements as values of the compute type."""
    if dtype == "bfloat16":
        return (a.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if dtype == "complex32":
        halves = np.ascontiguousarray(a).view(np.float16).astype(np.float32)
        return halves.view(np.complex64).reshape(a.shape)
    if dtype.startswith("float8"):
        return _f8_values(dtype)[a]
    if dtype == "bool" and a.dtype == np.bool_:
        return a.view(np.uint8) != 0
    return a.astype(_NUMPY[DTYPES[dtype].compute])


def _round_bits(x: Array, keep: int, bias: int, least: float, top: float, over: int) -> Array:
    """float32 to a format of 7 exponent and significand bits or 15, to nearest even.

    ``keep``: significand bits kept; ``bias``: the float32 bits of the smallest normal exponent's
    offset; ``least``: the number whose last place is the format's smallest subnormal; ``top``:
    the first magnitude that overflows to ``over``.
    """
    u = x.view(np.uint32)
    v = u & np.uint32(0x7FFFFFFF)
    a = v.view(np.float32)
    cut = np.uint32(23 - keep)
    half = np.uint32((1 << (22 - keep)) - 1)
    with np.errstate(all="ignore"):
        normal = (v - np.uint32(bias) + half + ((v >> cut) & np.uint32(1))) >> cut
        tiny = (a + np.float32(least)).view(np.uint32) - np.float32(least).view(np.uint32)
    smallest_normal = np.uint32(bias + (1 << 23)).view(np.float32)
    out = np.where(a < smallest_normal, tiny, normal)
    return np.where(a >= np.float32(top), np.uint32(over), out)


def _encode(x: Array, dtype: str) -> Array:
    """Values of the compute type as stored elements."""
    if dtype == "bfloat16":
        u = np.ascontiguousarray(x).view(np.uint32)
        r = (u + np.uint32(0x7FFF) + ((u >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
        return np.where(np.isnan(x), np.uint16(0x7FC0), r.astype(np.uint16))
    if dtype == "complex32":
        halves = np.ascontiguousarray(x).view(np.float32).astype(np.float16)
        return halves.view(np.uint32).reshape(x.shape)
    if dtype.startswith("float8"):
        x = np.ascontiguousarray(x)
        sign = (x.view(np.uint32) >> np.uint32(24)) & np.uint32(0x80)
        if dtype == "float8_e5m2":
            bits = _round_bits(x, 2, 112 << 23, 2.0**7, 61440, 0x7C)
        else:
            bits = _round_bits(x, 3, 120 << 23, 2.0**14, 480, 0x7F)
            bits = np.where(np.abs(x) > 464, np.uint32(0x7F), bits)
        return (np.where(np.isnan(x), np.uint32(0x7F), bits) | sign).astype(np.uint8)
    return x.astype(_NUMPY[dtype])


# ---- scalar operations


def _scalar(f: Callable[..., float], *, pole: float = math.nan) -> Callable[..., Array]:
    """A function of Python floats as one of arrays; domain errors give NaN, poles ``pole``."""

    def safe(*v: float) -> float:
        try:
            return f(*v)
        except ValueError:
            return math.nan if v[0] != v[0] else pole
        except OverflowError:
            return math.inf

    vector = np.frompyfunc(safe, f.__code__.co_argcount if hasattr(f, "__code__") else 1, 1)

    def apply(*arrays: Array) -> Array:
        return np.asarray(vector(*arrays)).astype(arrays[0].dtype)

    return apply


def _digamma(x: float) -> float:
    """Abramowitz and Stegun 6.3.18 above 10, recurrence and reflection (6.3.7) below."""
    if x == 0:
        return math.copysign(math.inf, -x)
    if x < 0:
        if x == math.floor(x):
            return math.nan
        return _digamma(1 - x) - math.pi / math.tan(math.pi * (x - math.floor(x)))
    if math.isinf(x):
        return x
    r = 0.0
    while x < 10:
        r -= 1 / x
        x += 1
    y = 1 / (x * x)
    series = 0.0
    for c in (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12):
        series = y * (series + c)
    return r + math.log(x) - 0.5 / x - series


def _erfinv(y: float) -> float:
    """Winitzki's approximation, then three of Halley's steps."""
    a = abs(y)
    if not a <= 1:
        return math.nan
    if a == 1:
        return math.copysign(math.inf, y)
    if a < 1e-8:
        return y * (math.sqrt(math.pi) / 2)
    log = math.log1p(-a * a)
    t = 2 / (math.pi * 0.147) + log / 2
    x = math.sqrt(math.sqrt(t * t - log / 0.147) - t)
    for _ in range(3):
        e = (1 - a) - math.erfc(x) if a > 0.5 else math.erf(x) - a
        e *= math.sqrt(math.pi) / 2 * math.exp(x * x)
        x -= e / (1 + x * e)
    return math.copysign(x, y)


def _int_divide(a: Array, b: Array, floor: bool) -> tuple[Array, Array]:
    """Quotient and remainder of integers; by zero 0 and 0, the most negative by -1 itself and 0."""
    zero = b == 0
    safe = np.where(zero, 1, b).astype(b.dtype)
    q = np.floor_divide(a, safe)
    r = a - q * safe
    if not floor and a.dtype.kind == "i":
        fix = (r != 0) & ((a < 0) != (safe < 0))
        q = q + fix.astype(q.dtype)
        r = r - np.where(fix, safe, 0).astype(r.dtype)
    if a.dtype.kind == "i":
        minus = safe == np.array(-1, a.dtype)
        q, r = np.where(minus, np.negative(a), q), np.where(minus, 0, r)
    return np.where(zero, 0, q).astype(a.dtype), np.where(zero, 0, r).astype(a.dtype)


def _remainder(a: Array, b: Array) -> Array:
    if a.dtype.kind != "f":
        return _int_divide(a, b, True)[1]
    m = np.fmod(a, b)
    return np.where((m != 0) & ((m < 0) != (b < 0)), m + b, m)


def _floor_divide(a: Array, b: Array) -> Array:
    if a.dtype.kind != "f":
        return _int_divide(a, b, True)[0]
    m = np.fmod(a, b)
    d = (a - m) / b
    d = np.where((m != 0) & ((m < 0) != (b < 0)), d - 1, d)
    f = np.floor(d)
    f = np.where(d - f > 0.5, f + 1, f)
    f = np.where(d == 0, np.copysign(np.zeros_like(d), a / b), f)
    return np.where(b == 0, a / b, f).astype(a.dtype)


def _pow(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "iu":
        return np.power(a, b)
    negative = b < 0
    safe = np.where(negative, 0, b).astype(b.dtype)
    odd = np.where((b & 1) == 1, -1, 1)
    small = np.where(a == 1, 1, np.where(a == -1, odd, 0)) if a.dtype.kind == "i" else 0
    return np.where(negative, small, np.power(a, safe)).astype(a.dtype)


def _shift(a: Array, b: Array, left: bool) -> Array:
    bits = a.dtype.itemsize * 8
    fits = (b >= 0) & (b < bits)
    s = np.where(fits, b, 0).astype(a.dtype)
    if left:
        return np.where(fits, a << s, 0).astype(a.dtype)
    rest = a >> np.array(bits - 1, a.dtype) if a.dtype.kind == "i" else np.zeros_like(a)
    return np.where(fits, a >> s, rest).astype(a.dtype)


def _cast(x: Array, dtype: str) -> Array:
    """C's conversion as x86-64 does it: see ``codegen/body.py``."""
    to = DTYPES[dtype]
    if to.kind == "b":
        return x != 0
    if x.dtype.kind == "c" and to.kind != "c":
        x = x.real
    if x.dtype.kind == "f" and to.kind in "iu":
        between = np.int32 if to.size < 4 else np.int64
        if to.name == "int32":
            between = np.int32
        big = x >= 2.0**63
        if to.name == "uint64":
            low = np.where(big, x - 2.0**63, x).astype(np.int64).astype(np.uint64)
            return np.where(big, low ^ np.uint64(1 << 63), low)
        return x.astype(between).astype(_NUMPY[dtype])
    return x.astype(_NUMPY[dtype])


def _complex(real: Array, imag: Array) -> Array:
    """Both parts as they are: 1j * imag would make NaN of infinities."""
    wide = np.result_type(real.dtype, imag.dtype, np.complex64)
    made = np.empty(np.broadcast_shapes(real.shape, imag.shape), wide)
    made.real, made.imag = real, imag
    return made


def _tie_keeping(name: str) -> Callable[[Array, Array], Array]:
    def pick(a: Array, b: Array) -> Array:
        take = (a > b) if name == "max" else (a < b)
        return np.where(take | (a != a), a, b)

    return pick


_OPS: dict[str, Callable[..., Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal,
    "ne": np.not_equal, "where": np.where, "abs": np.abs, "exp": np.exp, "exp2": np.exp2,
    "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p,
    "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin,
    "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "atan2": np.arctan2,
    "erf": _scalar(math.erf), "erfc": _scalar(math.erfc), "erfinv": _scalar(_erfinv),
    "lgamma": _scalar(math.lgamma, pole=math.inf), "digamma": _scalar(_digamma), "pow": _pow,
    "fmod": lambda a, b: np.fmod(a, b) if a.dtype.kind == "f" else _int_divide(a, b, False)[1],
    "remainder": _remainder, "floor_divide": _floor_divide,
    "trunc_divide": lambda a, b: _int_divide(a, b, False)[0],
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint,
    "min": _tie_keeping("min"), "max": _tie_keeping("max"), "fmin": np.fmin, "fmax": np.fmax,
    "signbit": np.signbit, "copysign": np.copysign, "nextafter": np.nextafter, "hypot": np.hypot,
    "shl": lambda a, b: _shift(a, b, True), "shr": lambda a, b: _shift(a, b, False),
    "real": np.real, "imag": np.imag, "conj": np.conj, "complex": _complex,
}  # fmt: skip


# ---- rows: always over the last axis


def _arg(x: Array, largest: bool) -> Array:
    return (np.argmax if largest else np.argmin)(x, -1, keepdims=True).astype(np.int64)


def _reduce(name: str, x: Array) -> Array:
    if name in ("argmax", "argmin"):
        return _arg(x, name == "argmax")
    functions: dict[str, Callable[..., Array]] = {
        "sum": np.sum, "dot": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "any": np.any,
        "all": np.all,
    }  # fmt: skip
    if name in ("sum", "dot", "prod"):
        return functions[name](x, -1, dtype=x.dtype, keepdims=True)
    if name in ("fmax", "fmin"):
        return getattr(np, name).reduce(x, -1, keepdims=True)
    return functions[name](x, -1, keepdims=True)


def _complex_logcumsumexp(x: Array) -> Array:
    """The larger real part leads; two that are both minus infinity stay so."""
    out = np.array(x, dtype=np.complex128)
    for i in range(1, x.shape[-1]):
        a, b = out[..., i - 1], out[..., i]
        low, high = np.where(a.real < b.real, a, b), np.where(a.real < b.real, b, a)
        sum_ = high + np.log1p(np.exp(low - high))
        both = np.isinf(low.real) & (low.real == high.real)
        sum_ = np.where(both, np.where(low.real < 0, low, np.log(np.exp(a) + np.exp(b))), sum_)
        missing = np.isnan(a) | np.isnan(b)
        out[..., i] = np.where(missing, complex(math.nan, math.nan), sum_)
    return out


def _scan(name: str, x: Array) -> Array:
    if name in ("cumsum", "cumprod"):
        return getattr(np, name)(x, -1, dtype=x.dtype)
    if name == "logcumsumexp" and x.dtype.kind == "c":
        return _complex_logcumsumexp(x)
    if name == "logcumsumexp":
        return np.logaddexp.accumulate(x, -1)
    best = (np.maximum if "max" in name else np.minimum).accumulate(x, -1)
    if not name.endswith("_index"):
        return best
    at = np.broadcast_to(np.arange(x.shape[-1]), x.shape)
    return np.maximum.accumulate(np.where((x == best) | (x != x), at, 0), -1)


# ---- kernels


def _value(inst: Inst, args: list[Array], arrays: Sequence[Array], params: Sequence[Any],
           k: Kernel, length: int) -> Array:  # fmt: skip
    to = np.dtype(_NUMPY[inst.dtype])
    if inst.op == "load":
        i = int(inst.attr)
        return _decode(arrays[i], k.in_dtypes[i])
    if inst.op == "load_row":
        i = int(inst.attr)
        return _decode(arrays[i][..., :1], k.in_dtypes[i])
    if inst.op == "param":
        v = params[int(inst.attr)]
        return np.array(v).astype(to)
    if inst.op == "const":
        return np.array(inst.attr).astype(to)
    if inst.op == "cast":
        return _cast(args[0], inst.dtype)
    if inst.op == "round_to":
        return _decode(_encode(args[0], str(inst.attr)), str(inst.attr))
    if inst.op == "fma":
        return args[0] * args[1] + args[2]
    if inst.op == "count":
        return np.array(length).astype(to)
    if inst.op == "index":
        return np.arange(length)
    if inst.op == "reduce":
        return _reduce(str(inst.attr), args[0])
    if inst.op == "scan":
        return _scan(str(inst.attr), args[0]).astype(to)
    return np.asarray(_OPS[inst.op](*args)).astype(to, copy=False)


def interpret(
    k: Kernel, arrays: Sequence[Array], params: Sequence[Any] = (), axis: int = -1
) -> list[Array]:
    """The outputs of ``k`` on ``arrays``, which have one shape but for broadcasting.

    Row kernels run over ``axis``; a per-row output keeps that axis with length 1.
    """
    if k.kind == "row":
        arrays = [np.moveaxis(a, axis, -1) for a in np.broadcast_arrays(*arrays)]
    length = arrays[0].shape[-1] if k.kind == "row" else 0
    values: list[Array] = []
    with np.errstate(all="ignore"):
        for inst in k.insts:
            args = [values[a] for a in inst.args]
            if inst.op in ("reduce", "scan") and arrays:
                args = [np.broadcast_to(args[0], (*arrays[0].shape[:-1], length))]
            values.append(_value(inst, args, arrays, params, k, length))
        outs = []
        for v, d in zip(k.outs, k.out_dtypes):
            inst = k.insts[v]
            if inst.op == "load" and k.in_dtypes[int(inst.attr)] == d:
                outs.append(arrays[int(inst.attr)])  # every bit is kept
            else:
                outs.append(_encode(values[v], d))
    if k.kind == "row":
        outs = [np.moveaxis(o, -1, axis) if o.ndim else o for o in outs]
    return outs


def evaluate(
    expr: Callable[..., Any],
    kind: str,
    in_dtypes: Sequence[str],
    out_dtypes: Sequence[str],
    arrays: Sequence[Array],
    params: Sequence[Any] = (),
    axis: int = -1,
    compute_dtype: str | None = None,
) -> list[Array]:
    """``expr`` over arrays: :func:`interpret` of its kernel, complex numbers included."""
    kernel = lower(
        expr, kind, in_dtypes, out_dtypes, len(params), None, compute_dtype, complex_ok=True
    )
    return interpret(kernel, arrays, params, axis)


def run(
    expr: Callable[..., Any], kind: str, outs: Any, ins: Any, params: Any, axis: int | None,
    common: Any = None,
) -> None:  # fmt: skip
    """Evaluates into tensors: ``outs`` are filled, their shapes are the broadcast ones.

    ``axis``: the reduced dimension of a row kernel. ``common`` (the dtype computed in) is what
    the inputs were already brought to.
    """
    from flambeau._src.core.interchange import array_of  # lazy: arrays alone need no tensors

    arrays, wide = [array_of(t) for t in ins], {}
    names = {t.dtype.name for t in (*ins, *outs)}
    if "complex64" in names and not names & {"bfloat16", "complex32"}:
        # NumPy's complex functions cancel: in double what they lose is below the result's last bit.
        wide = _WIDER
        arrays = [a.astype(_NUMPY[wide.get(t.dtype.name, t.dtype.name)], copy=False)
                  for a, t in zip(arrays, ins)]  # fmt: skip
    results = evaluate(
        expr, kind, [wide.get(t.dtype.name, t.dtype.name) for t in ins],
        [wide.get(t.dtype.name, t.dtype.name) for t in outs], arrays, params,
        -1 if axis is None else axis,
    )  # fmt: skip
    with np.errstate(all="ignore"):
        for out, result in zip(outs, results):
            array_of(out)[...] = result
