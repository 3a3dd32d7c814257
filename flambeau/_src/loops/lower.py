"""Declaration to kernel IR: runs an operator's ``expr`` with a handler that records.

``lower(expr, ...)`` calls ``expr(k, *inputs, *params)`` with a :class:`Tracer` as ``k``. Every
value is a :class:`Value`, an SSA name with Python's operators. Equal operations are merged as
they are recorded and unused ones dropped at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from flambeau._src.ir.kernel import (
    DTYPES,
    Inst,
    Kernel,
    accumulate_type,
    compute_type,
    promote,
)
from flambeau._src.ir.verify_kernel import verify_kernel

__all__ = ["Tracer", "Value", "common_compute_type", "lower", "param_kinds_of"]

Number = int | float | complex
_REAL = {"complex64": "float32", "complex128": "float64"}


class Value:
    """One recorded scalar. Its dtype is a compute type ('bfloat16' never appears)."""

    __slots__ = ("dtype", "id", "tracer")

    def __init__(self, tracer: Tracer, number: int, dtype: str) -> None:
        self.tracer, self.id, self.dtype = tracer, number, dtype

    def __add__(self, o: Any) -> Value:
        return self.tracer.binary("add", self, o)

    def __radd__(self, o: Any) -> Value:
        return self.tracer.binary("add", o, self)

    def __sub__(self, o: Any) -> Value:
        return self.tracer.binary("sub", self, o)

    def __rsub__(self, o: Any) -> Value:
        return self.tracer.binary("sub", o, self)

    def __mul__(self, o: Any) -> Value:
        return self.tracer.binary("mul", self, o)

    def __rmul__(self, o: Any) -> Value:
        return self.tracer.binary("mul", o, self)

    def __truediv__(self, o: Any) -> Value:
        return self.tracer.divide(self, o)

    def __rtruediv__(self, o: Any) -> Value:
        return self.tracer.divide(o, self)

    def __floordiv__(self, o: Any) -> Value:
        return self.tracer.binary("floor_divide", self, o)

    def __mod__(self, o: Any) -> Value:
        return self.tracer.binary("remainder", self, o)

    def __pow__(self, o: Any) -> Value:
        return self.tracer.binary("pow", self, o)

    def __neg__(self) -> Value:
        return self.tracer.negate(self)

    def __abs__(self) -> Value:
        return self.tracer.abs(self)

    def __invert__(self) -> Value:
        return self.tracer.invert(self)

    def __and__(self, o: Any) -> Value:
        return self.tracer.bitwise("and", self, o)

    def __rand__(self, o: Any) -> Value:
        return self.tracer.bitwise("and", o, self)

    def __or__(self, o: Any) -> Value:
        return self.tracer.bitwise("or", self, o)

    def __ror__(self, o: Any) -> Value:
        return self.tracer.bitwise("or", o, self)

    def __xor__(self, o: Any) -> Value:
        return self.tracer.bitwise("xor", self, o)

    def __rxor__(self, o: Any) -> Value:
        return self.tracer.bitwise("xor", o, self)

    def __lshift__(self, o: Any) -> Value:
        return self.tracer.binary("shl", self, o)

    def __rlshift__(self, o: Any) -> Value:
        return self.tracer.binary("shl", o, self)

    def __rshift__(self, o: Any) -> Value:
        return self.tracer.binary("shr", self, o)

    def __rrshift__(self, o: Any) -> Value:
        return self.tracer.binary("shr", o, self)

    def __lt__(self, o: Any) -> Value:
        return self.tracer.compare("lt", self, o)

    def __le__(self, o: Any) -> Value:
        return self.tracer.compare("le", self, o)

    def __gt__(self, o: Any) -> Value:
        return self.tracer.compare("gt", self, o)

    def __ge__(self, o: Any) -> Value:
        return self.tracer.compare("ge", self, o)

    def __eq__(self, o: Any) -> Value:  # type: ignore[override]
        return self.tracer.compare("eq", self, o)

    def __ne__(self, o: Any) -> Value:  # type: ignore[override]
        return self.tracer.compare("ne", self, o)

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise TypeError("a kernel expression cannot branch on a value; use k.where(c, a, b)")


_BOOL_ARITHMETIC = {"add": "or", "mul": "and", "max": "or", "min": "and", "sub": "xor"}


class Tracer:
    """The recording handler: the ``k`` of the scalar-operator protocol (``docs/engine.md``)."""

    def __init__(self, kind: str, compute: str) -> None:
        self.kind, self.compute = kind, compute
        self.insts: list[Inst] = []
        self._known: dict[tuple[object, ...], Value] = {}

    # ---- recording

    def emit(
        self, op: str, args: Sequence[Value], dtype: str, attr: Number | str | None = None
    ) -> Value:
        """The value of ``op`` on ``args``; the earlier one where the same was recorded."""
        ids = tuple(a.id for a in args)
        key = (op, ids, dtype, repr(attr))
        found = self._known.get(key)
        if found is None:
            self.insts.append(Inst(op, ids, dtype, attr))
            found = self._known[key] = Value(self, len(self.insts) - 1, dtype)
        return found

    def constant(self, v: Number, dtype: str) -> Value:
        """``v`` as a constant of the compute type ``dtype``."""
        kind = DTYPES[dtype].kind
        if kind == "b":
            return self.emit("const", (), dtype, bool(v))
        if kind == "c":
            return self.emit("const", (), dtype, complex(v))
        if isinstance(v, complex):
            raise TypeError(f"the constant {v} does not fit an expression of {dtype}")
        if kind == "f":
            return self.emit("const", (), dtype, float(v))
        if isinstance(v, float) and (not math.isfinite(v) or v != int(v)):
            raise TypeError(f"the constant {v} does not fit an expression of {dtype}")
        return self.emit("const", (), dtype, int(v))

    def value(self, x: Any, dtype: str | None = None) -> Value:
        """``x`` itself, or a Python number as a constant of ``dtype`` (default: compute type)."""
        if isinstance(x, Value):
            return x
        if dtype is None:
            dtype = "bool" if isinstance(x, bool) else self.compute
            if dtype == "bool" and not isinstance(x, bool):
                dtype = "float32" if isinstance(x, float) else "int64"
        return self.constant(x, dtype)

    def pair(self, a: Any, b: Any) -> tuple[Value, Value]:
        """Both as values of one dtype; a Python number takes the other side's type."""
        if isinstance(a, Value) and isinstance(b, Value):
            if a.dtype == b.dtype:
                return a, b
            to = promote(a.dtype, b.dtype)
            return self.cast(a, to), self.cast(b, to)
        if not isinstance(a, Value) and not isinstance(b, Value):
            if isinstance(a, bool) != isinstance(b, bool):
                return self.constant(a, self.compute), self.constant(b, self.compute)
            return self.value(a), self.value(b)
        if not isinstance(a, Value):
            second, first = self.pair(b, a)
            return first, second
        if a.dtype == "bool" and not isinstance(b, bool):
            a = self.cast(a, self._arithmetic_type(b))
        if isinstance(b, complex):
            a = self.cast(a, promote(a.dtype, "complex64"))
        return a, self.constant(b, a.dtype)

    def _arithmetic_type(self, other: Any = 0) -> str:
        if self.compute != "bool":
            return self.compute
        return "float32" if isinstance(other, float) else "int64"

    def _float(self, x: Any, op: str) -> Value:
        v = self.value(x)
        if DTYPES[v.dtype].kind in "fc":
            return v
        if DTYPES[self.compute].kind in "fc":
            return self.cast(v, self.compute)
        raise TypeError(f"{op} of {v.dtype}: give the kernel a floating compute_dtype")

    # ---- arithmetic

    def binary(self, op: str, a: Any, b: Any) -> Value:
        a, b = self.pair(a, b)
        if a.dtype == "bool":
            if self.compute == "bool" and op in _BOOL_ARITHMETIC:
                return self.emit(_BOOL_ARITHMETIC[op], (a, b), "bool")
            to = self._arithmetic_type()
            a, b = self.cast(a, to), self.cast(b, to)
        if op in ("shl", "shr") and DTYPES[a.dtype].kind == "f":
            raise TypeError(f"shift of {a.dtype}")
        return self.emit(op, (a, b), a.dtype)

    def divide(self, a: Any, b: Any) -> Value:
        a, b = self.pair(a, b)
        if DTYPES[a.dtype].kind not in "fc":
            to = self.compute if DTYPES[self.compute].kind in "fc" else "float32"
            a, b = self.cast(a, to), self.cast(b, to)
        return self.emit("div", (a, b), a.dtype)

    def bitwise(self, op: str, a: Any, b: Any) -> Value:
        a, b = self.pair(a, b)
        if DTYPES[a.dtype].kind == "f":
            raise TypeError(f"bitwise {op} of {a.dtype}")
        return self.emit(op, (a, b), a.dtype)

    def compare(self, op: str, a: Any, b: Any) -> Value:
        a, b = self.pair(a, b)
        if op not in ("eq", "ne") and DTYPES[a.dtype].kind == "c":
            raise TypeError(f"{op} of {a.dtype}: complex numbers have no order")
        return self.emit(op, (a, b), "bool")

    def negate(self, a: Any) -> Value:
        a = self.value(a)
        return self.emit(
            "neg",
            (self.cast(a, self._arithmetic_type()),) if a.dtype == "bool" else (a,),
            a.dtype if a.dtype != "bool" else self._arithmetic_type(),
        )

    def invert(self, a: Any) -> Value:
        a = self.value(a)
        if DTYPES[a.dtype].kind == "f":
            raise TypeError(f"bitwise not of {a.dtype}")
        return self.emit("not", (a,), a.dtype)

    def _unary_float(self, op: str, x: Any) -> Value:
        x = self._float(x, op)
        return self.emit(op, (x,), x.dtype)

    def _binary_float(self, op: str, a: Any, b: Any) -> Value:
        a, b = self.pair(a, b)
        a, b = self._float(a, op), self._float(b, op)
        return self.emit(op, (a, b), a.dtype)

    # ---- values, types, choice

    def const(self, v: Number) -> Value:
        return self.value(v)

    def cast(self, x: Any, dtype: str) -> Value:
        """C's conversion; to a 16-bit or 8-bit float: the float32 rounded to that format."""
        v = self.value(x)
        to = compute_type(dtype)
        inst = self.insts[v.id]
        if v.dtype != to:
            v = self.emit("cast", (v,), to)
        if to != dtype and not (inst.op == "round_to" and inst.attr == dtype):
            v = self.emit("round_to", (v,), to, dtype)
        return v

    def where(self, c: Any, a: Any, b: Any) -> Value:
        c = self.truth(c)
        a, b = self.pair(a, b)
        return self.emit("where", (c, a, b), a.dtype)

    def truth(self, x: Any) -> Value:
        """``x`` as bool: unequal to zero (NaN is true)."""
        return self.cast(x, "bool")

    def exp(self, x: Any) -> Value:
        return self._unary_float("exp", x)

    def exp2(self, x: Any) -> Value:
        return self._unary_float("exp2", x)

    def expm1(self, x: Any) -> Value:
        return self._unary_float("expm1", x)

    def log(self, x: Any) -> Value:
        return self._unary_float("log", x)

    def log2(self, x: Any) -> Value:
        return self._unary_float("log2", x)

    def log10(self, x: Any) -> Value:
        return self._unary_float("log10", x)

    def log1p(self, x: Any) -> Value:
        return self._unary_float("log1p", x)

    def sqrt(self, x: Any) -> Value:
        return self._unary_float("sqrt", x)

    def rsqrt(self, x: Any) -> Value:
        return self.divide(1.0, self.sqrt(x))

    def sin(self, x: Any) -> Value:
        return self._unary_float("sin", x)

    def cos(self, x: Any) -> Value:
        return self._unary_float("cos", x)

    def tan(self, x: Any) -> Value:
        return self._unary_float("tan", x)

    def asin(self, x: Any) -> Value:
        return self._unary_float("asin", x)

    def acos(self, x: Any) -> Value:
        return self._unary_float("acos", x)

    def atan(self, x: Any) -> Value:
        return self._unary_float("atan", x)

    def sinh(self, x: Any) -> Value:
        return self._unary_float("sinh", x)

    def cosh(self, x: Any) -> Value:
        return self._unary_float("cosh", x)

    def tanh(self, x: Any) -> Value:
        return self._unary_float("tanh", x)

    def asinh(self, x: Any) -> Value:
        return self._unary_float("asinh", x)

    def acosh(self, x: Any) -> Value:
        return self._unary_float("acosh", x)

    def atanh(self, x: Any) -> Value:
        return self._unary_float("atanh", x)

    def atan2(self, y: Any, x: Any) -> Value:
        return self._binary_float("atan2", y, x)

    def erf(self, x: Any) -> Value:
        return self._unary_float("erf", x)

    def erfc(self, x: Any) -> Value:
        return self._unary_float("erfc", x)

    def erfinv(self, x: Any) -> Value:
        return self._unary_float("erfinv", x)

    def lgamma(self, x: Any) -> Value:
        return self._unary_float("lgamma", x)

    def digamma(self, x: Any) -> Value:
        return self._unary_float("digamma", x)

    def sigmoid(self, x: Any) -> Value:
        x = self._float(x, "sigmoid")
        return self.divide(1.0, 1.0 + self.exp(-x))

    def pow(self, a: Any, b: Any) -> Value:
        return self.binary("pow", a, b)

    def fmod(self, a: Any, b: Any) -> Value:
        return self.binary("fmod", a, b)

    def remainder(self, a: Any, b: Any) -> Value:
        return self.binary("remainder", a, b)

    def floor_divide(self, a: Any, b: Any) -> Value:
        return self.binary("floor_divide", a, b)

    def trunc_divide(self, a: Any, b: Any) -> Value:
        a, b = self.pair(a, b)
        if DTYPES[a.dtype].kind == "f":
            return self.trunc(self.divide(a, b))
        return self.binary("trunc_divide", a, b)

    def _round(self, op: str, x: Any) -> Value:
        x = self.value(x)
        return self.emit(op, (x,), x.dtype) if DTYPES[x.dtype].kind == "f" else x

    def floor(self, x: Any) -> Value:
        return self._round("floor", x)

    def ceil(self, x: Any) -> Value:
        return self._round("ceil", x)

    def trunc(self, x: Any) -> Value:
        return self._round("trunc", x)

    def round(self, x: Any) -> Value:
        return self._round("round", x)

    def abs(self, x: Any) -> Value:
        v = self.value(x)
        if DTYPES[v.dtype].kind in "bu":
            return v
        return self.emit("abs", (v,), _REAL.get(v.dtype, v.dtype))

    def real(self, x: Any) -> Value:
        x = self.value(x)
        return self.emit("real", (x,), _REAL[x.dtype]) if x.dtype in _REAL else x

    def imag(self, x: Any) -> Value:
        x = self.value(x)
        return self.emit("imag", (x,), _REAL[x.dtype]) if x.dtype in _REAL else x * 0

    def conj(self, x: Any) -> Value:
        x = self.value(x)
        return self.emit("conj", (x,), x.dtype) if x.dtype in _REAL else x

    def complex(self, real: Any, imag: Any) -> Value:
        """A complex number from its parts."""
        a, b = self.pair(real, imag)
        return self.emit("complex", (a, b), promote(a.dtype, "complex64"))

    def sign(self, x: Any) -> Value:
        """1, 0 or -1; 0 for NaN."""
        v = self.value(x)
        if v.dtype == "bool":
            return v
        positive = self.cast(v > 0, v.dtype)
        return positive if DTYPES[v.dtype].kind == "u" else positive - self.cast(v < 0, v.dtype)

    def minimum(self, a: Any, b: Any) -> Value:
        return self.binary("min", a, b)

    def maximum(self, a: Any, b: Any) -> Value:
        return self.binary("max", a, b)

    def _nan_loses(self, op: str, a: Any, b: Any) -> Value:
        a, b = self.pair(a, b)
        return self.binary(op if DTYPES[a.dtype].kind == "f" else op[1:], a, b)

    def fmin(self, a: Any, b: Any) -> Value:
        return self._nan_loses("fmin", a, b)

    def fmax(self, a: Any, b: Any) -> Value:
        return self._nan_loses("fmax", a, b)

    def fma(self, a: Any, b: Any, c: Any) -> Value:
        """a * b + c, rounded once where the machine has the instruction."""
        a, b = self.pair(a, b)
        a, c = self.pair(a, c)
        b = self.cast(b, a.dtype)
        if DTYPES[a.dtype].kind not in "fc":
            product: Value = a * b + c
            return product
        return self.emit("fma", (a, b, c), a.dtype)

    def isnan(self, x: Any) -> Value:
        x = self.value(x)
        return self.compare("ne", x, x) if DTYPES[x.dtype].kind in "fc" else self.value(False)

    def isinf(self, x: Any) -> Value:
        x = self.value(x)
        if DTYPES[x.dtype].kind not in "fc":
            return self.value(False)
        return self.compare("eq", self.abs(x), math.inf)

    def isfinite(self, x: Any) -> Value:
        x = self.value(x)
        if DTYPES[x.dtype].kind not in "fc":
            return self.value(True)
        return self.compare("lt", self.abs(x), math.inf)

    def signbit(self, x: Any) -> Value:
        x = self.value(x)
        kind = DTYPES[x.dtype].kind
        if kind == "f":
            return self.emit("signbit", (x,), "bool")
        return self.value(False) if kind in "bu" else x < 0

    def copysign(self, a: Any, b: Any) -> Value:
        return self._binary_float("copysign", a, b)

    def nextafter(self, a: Any, b: Any) -> Value:
        return self._binary_float("nextafter", a, b)

    def hypot(self, a: Any, b: Any) -> Value:
        return self._binary_float("hypot", a, b)

    def logical_not(self, x: Any) -> Value:
        return self.invert(self.truth(x))

    def logical_and(self, a: Any, b: Any) -> Value:
        return self.emit("and", (self.truth(a), self.truth(b)), "bool")

    def logical_or(self, a: Any, b: Any) -> Value:
        return self.emit("or", (self.truth(a), self.truth(b)), "bool")

    def logical_xor(self, a: Any, b: Any) -> Value:
        return self.emit("xor", (self.truth(a), self.truth(b)), "bool")

    # ---- rows

    def _row(self, op: str) -> None:
        if self.kind != "row":
            raise TypeError(f"k.{op} is for row kernels")

    def _reduce(self, name: str, x: Any, dtype: str) -> Value:
        self._row(name)
        x = self.cast(x, dtype)
        return self.emit("reduce", (x,), "int64" if name.startswith("arg") else dtype, name)

    def _extreme(self, name: str, x: Any) -> Value:
        x = self.value(x)
        if x.dtype == "bool":
            return self._reduce("any" if name.endswith("max") else "all", x, "bool")
        if DTYPES[x.dtype].kind != "f":
            name = name.removeprefix("f")
        return self._reduce(name, x, x.dtype)

    def sum(self, x: Any) -> Value:
        x = self.value(x)
        return self._reduce("sum", x, accumulate_type(x.dtype))

    def dot(self, x: Any, y: Any) -> Value:
        """The sum of x y; where there are few elements the products are not rounded either."""
        p = self.binary("mul", x, y)
        if DTYPES[p.dtype].kind != "f" or self.insts[p.id].op != "mul":
            return self.sum(p)
        return self._reduce("dot", p, accumulate_type(p.dtype))

    def prod(self, x: Any) -> Value:
        x = self.value(x)
        return self._reduce("prod", x, accumulate_type(x.dtype))

    def max(self, x: Any) -> Value:
        return self._extreme("max", x)

    def min(self, x: Any) -> Value:
        return self._extreme("min", x)

    def nanmax(self, x: Any) -> Value:
        return self._extreme("fmax", x)

    def nanmin(self, x: Any) -> Value:
        return self._extreme("fmin", x)

    def any(self, x: Any) -> Value:
        return self._reduce("any", x, "bool")

    def all(self, x: Any) -> Value:
        return self._reduce("all", x, "bool")

    def _arg(self, name: str, x: Any) -> Value:
        x = self.value(x)
        return self._reduce(name, x, "uint8" if x.dtype == "bool" else x.dtype)

    def argmax(self, x: Any) -> Value:
        return self._arg("argmax", x)

    def argmin(self, x: Any) -> Value:
        return self._arg("argmin", x)

    def count(self) -> Value:
        """The length of the row, in the compute type when that is floating, else int64."""
        self._row("count")
        return self.emit("count", (), accumulate_type(self.compute))

    def of_row(self, x: Any) -> Any:
        """The input x, which has one value for all of a row: it is read once, and what is made of
        such values alone is computed once."""
        if self.kind != "row" or not isinstance(x, Value):
            return x
        inst = self.insts[x.id]
        if inst.op == "cast":
            return self.cast(self.of_row(Value(self, inst.args[0], "")), inst.dtype)
        return self.emit("load_row", (), inst.dtype, inst.attr) if inst.op == "load" else x

    def index(self) -> Value:
        """The position in the row, int64."""
        self._row("index")
        return self.emit("index", (), "int64")

    def _scan(self, name: str, x: Any, dtype: str, result: str) -> Value:
        self._row(name)
        return self.emit("scan", (self.cast(x, dtype),), result, name)

    def _sum_scan(self, name: str, x: Any) -> Value:
        x = self.value(x)
        to = accumulate_type(x.dtype)
        if to != "float32":
            return self._scan(name, x, to, to)
        # float32 is scanned in double: a running sum has no blocks to bound its error
        return self.cast(self._scan(name, x, "float64", "float64"), "float32")

    def cumsum(self, x: Any) -> Value:
        return self._sum_scan("cumsum", x)

    def cumprod(self, x: Any) -> Value:
        return self._sum_scan("cumprod", x)

    def logcumsumexp(self, x: Any) -> Value:
        x = self._float(x, "logcumsumexp")
        return self._sum_scan("logcumsumexp", x)

    def _extreme_scan(self, name: str, x: Any, index: bool) -> Value:
        x = self.value(x)
        to = "uint8" if x.dtype == "bool" else x.dtype
        if index:
            return self._scan(name + "_index", x, to, "int64")
        return self.cast(self._scan(name, x, to, to), x.dtype)

    def cummax_value(self, x: Any) -> Value:
        return self._extreme_scan("cummax", x, False)

    def cummin_value(self, x: Any) -> Value:
        return self._extreme_scan("cummin", x, False)

    def cummax_index(self, x: Any) -> Value:
        """The last position so far of the running maximum."""
        return self._extreme_scan("cummax", x, True)

    def cummin_index(self, x: Any) -> Value:
        """The last position so far of the running minimum."""
        return self._extreme_scan("cummin", x, True)


def common_compute_type(in_dtypes: Sequence[str], out_dtypes: Sequence[str]) -> str:
    """The compute type of a kernel whose declaration names none.

    That of the promoted inputs, bool left out; of the outputs where there is no input.
    """
    names = [compute_type(d) for d in in_dtypes] or [compute_type(d) for d in out_dtypes[:1]]
    names = [n for n in names if n != "bool"] or ["bool"]
    common = names[0]
    for n in names[1:]:
        common = promote(common, n)
    return common


def param_kinds_of(compute: str, n_params: int, kinds: Sequence[str] | None) -> tuple[str, ...]:
    """'f' or 'i' a slot: as given, else double for a floating compute type, else int64."""
    if kinds is not None:
        if len(kinds) != n_params:
            raise ValueError(f"{len(kinds)} param_kinds for {n_params} params")
        return tuple(kinds)
    return ("f" if DTYPES[compute].kind in "fc" else "i",) * n_params


def lower(
    expr: Callable[..., Any],
    kind: str,
    in_dtypes: Sequence[str],
    out_dtypes: Sequence[str],
    n_params: int = 0,
    param_kinds: Sequence[str] | None = None,
    compute_dtype: str | None = None,
    complex_ok: bool = False,
) -> Kernel:
    """The kernel of ``expr(k, *inputs, *params)``.

    Args:
        kind: 'map' (pointwise) or 'row' (over dimension 0).
        in_dtypes, out_dtypes: storage dtypes of the operands.
        n_params: the number of scalar parameters.
        param_kinds: 'f' (a double in the slot) or 'i' (an int64) each; default: by compute type.
        compute_dtype: casts every input but bool ones to it; default: each input to its own
            compute type.
        complex_ok: the kernel is for ``loops.evaluate``, which knows complex numbers.

    Raises:
        TypeError: the expression is not defined for these dtypes.
    """
    for d in () if complex_ok else (*in_dtypes, *out_dtypes):
        if DTYPES[d].kind == "c":
            raise TypeError(f"{d} has no generated kernels; complex values are evaluated in NumPy")
    compute = compute_type(compute_dtype or common_compute_type(in_dtypes, out_dtypes))
    kinds = param_kinds_of(compute, n_params, param_kinds)
    k = Tracer(kind, compute)
    values = []
    for i, d in enumerate(in_dtypes):
        v = k.emit("load", (), compute_type(d), i)
        values.append(k.cast(v, compute) if compute_dtype and v.dtype != "bool" else v)
    for i, p in enumerate(kinds):
        floating = DTYPES[compute].kind in "fc"
        if p == "f":
            dtype = _REAL.get(compute, compute) if floating else "float64"
        else:
            dtype = "int64" if floating else compute
        values.append(k.emit("param", (), dtype, i))
    result = expr(k, *values)
    results = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    if len(results) != len(out_dtypes):
        raise TypeError(f"the expression gives {len(results)} values for {len(out_dtypes)} outputs")
    outs = []
    for r, d in zip(results, out_dtypes):
        v = k.cast(k.value(r, None if isinstance(r, Value) else compute_type(d)), compute_type(d))
        inst = k.insts[v.id]
        # the store rounds: a rounding to the same format just before it is not needed
        outs.append(inst.args[0] if inst.op == "round_to" and inst.attr == d else v.id)
    return verify_kernel(_finish(k, kind, tuple(in_dtypes), tuple(out_dtypes), kinds, outs))


def _finish(
    k: Tracer,
    kind: str,
    in_dtypes: tuple[str, ...],
    out_dtypes: tuple[str, ...],
    kinds: tuple[str, ...],
    outs: list[int],
) -> Kernel:
    """Drops unused values, renumbers the rest, and finds which outputs are per row."""
    live = set(outs)
    for i in range(len(k.insts) - 1, -1, -1):
        if i in live:
            live.update(k.insts[i].args)
    number = {old: new for new, old in enumerate(sorted(live))}
    insts = []
    element: list[bool] = []
    for old in sorted(live):
        inst = k.insts[old]
        insts.append(Inst(inst.op, tuple(number[a] for a in inst.args), inst.dtype, inst.attr))
        per_element = inst.op in ("load", "index", "scan") or (
            inst.op != "reduce" and any(element[number[a]] for a in inst.args)
        )
        element.append(per_element)
    new_outs = tuple(number[o] for o in outs)
    rows = tuple(kind == "row" and not element[o] for o in new_outs)
    return Kernel(kind, in_dtypes, out_dtypes, kinds, tuple(insts), new_outs, rows)
