"""Functions that are computed lane by lane: calls of libm, integer division, rare functions."""

from __future__ import annotations

from collections.abc import Callable

from .fragments import C_TYPES, Text, scalar_of

__all__ = ["SCALAR_MATH"]

_UNARY = (
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh"
    " atanh erf erfc lgamma"
).split()
_BINARY = ("pow", "atan2", "hypot", "nextafter", "fmod")


def _libm(name: str, arity: int) -> Callable[[Text, str], str]:
    """One call of the C library's function a lane."""
    params = ", ".join(f"$F {v}" for v in "xy"[:arity])
    args = ", ".join(f"{v}[i]" for v in "xy"[:arity])

    def piece(text: Text, vector: str) -> str:
        s = scalar_of(vector)
        c = C_TYPES[s][0]
        f = name + ("f" if s == "f32" else "")
        text.prototype(f, f"{c} {f}({', '.join([c] * arity)});")
        return text.fill(
            f"static inline $F {name}_$F({params})"
            f" {{ $F r; for (int i = 0; i < $W; i++) r[i] = {f}({args}); return r; }}",
            vector,
        )

    return piece


# Division by zero gives 0 and the most negative by -1 itself: no trap. Callers that must report
# a zero divisor look for one first.
_INT_DIVISION = {
    "trunc_divide": "b[i] == 0 ? 0 : {minus} a[i] / b[i]",
    "fmod": "b[i] == 0 {or_minus} ? 0 : a[i] % b[i]",
}
_FLOORED = {
    "floor_divide": "$(trunc_divide)(a, b)",
    "remainder": "$(fmod)(a, b)",
}


def int_divide(name: str) -> Callable[[Text, str], str]:
    """Quotient or remainder of integers, rounded to zero."""

    def piece(text: Text, vector: str) -> str:
        signed = C_TYPES[scalar_of(vector)][2] == "i"
        value = _INT_DIVISION[name].format(
            minus="b[i] == -1 ? -a[i] :" if signed else "",
            or_minus="|| b[i] == -1" if signed else "",
        )
        return text.fill(
            f"static inline $F {name}_$F($F a, $F b)"
            f" {{ $F r; for (int i = 0; i < $W; i++) r[i] = {value}; return r; }}",
            vector,
        )

    return piece


def int_floor(name: str) -> Callable[[Text, str], str]:
    """Quotient or remainder of integers, rounded down (the remainder has the divisor's sign)."""

    def piece(text: Text, vector: str) -> str:
        body = f"return {_FLOORED[name]};"
        if C_TYPES[scalar_of(vector)][2] == "i":
            body = "$F m = $(fmod)(a, b); $I off = (m != 0) & ((m ^ b) < 0);"
            body += (
                " return $(trunc_divide)(a, b) + off;"
                if name == "floor_divide"
                else " return m + (off & b);"
            )
        return text.fill(f"static inline $F {name}_$F($F a, $F b) {{ {body} }}", vector)

    return piece


def int_pow(text: Text, vector: str) -> str:
    """Powers by squaring; a negative exponent gives 0 but for bases 1 and -1."""
    negative = ""
    if C_TYPES[scalar_of(vector)][2] == "i":
        negative = " if (e < 0) { r[i] = x == 1 ? 1 : x == -1 ? (e & 1 ? -1 : 1) : 0; continue; }"
    return text.fill(
        "static inline $F pow_$F($F a, $F b) {\n    $F r;\n    for (int i = 0; i < $W; i++) {"
        f" $S x = a[i], e = b[i], y = 1;{negative}\n"
        "        for (; e; e >>= 1) { if (e & 1) y *= x; x *= x; }\n        r[i] = y; }\n"
        "    return r;\n}",
        vector,
    )


_FLOAT_DIVISION = {
    # a - trunc(a / b) b is exact when the quotient has fewer bits than the significand; a
    # quotient that rounded up is put right; larger quotients, and inf and NaN, go to the library
    "fmod": """static inline $F fmod_$F($F a, $F b) {
    $F x = $(fabs)(a), y = $(fabs)(b), q = $(trunc)(x / y);
    $F r = $(fma)(-q, y, x);
    r = $(sel)(r < 0, r + y, r);
    r = $(sel)(r >= y, r - y, r);
    $I far = ~((x / y < LIMIT) & (y >= TINY) & (y < INFINITE));
    if (__builtin_expect($(any_lane)(far), 0))
        for (int i = 0; i < $W; i++) if (far[i]) r[i] = LIBM(x[i], y[i]);
    return $(copysign)(r, a);
}""",
    "remainder": """static inline $F remainder_$F($F a, $F b) {
    $F m = $(fmod)(a, b);
    return $(sel)((m != 0) & ((m < 0) != (b < 0)), m + b, m);
}""",
    "floor_divide": """static inline $F floor_divide_$F($F a, $F b) {
    $F m = $(fmod)(a, b), d = (a - m) / b;
    d = $(sel)((m != 0) & ((m < 0) != (b < 0)), d - 1, d);
    $F f = $(floor)(d);
    f = $(sel)(d - f > HALF, f + 1, f);
    f = $(sel)(d == 0, $(copysign)(d - d, a / b), f);
    return $(sel)(b == 0, a / b, f);
}""",
}


def float_division(name: str) -> Callable[[Text, str], str]:
    """fmod and what stands on it, as Python's and C's: exact."""

    def piece(text: Text, vector: str) -> str:
        if name == "fmod" and text.target.isa == "generic":
            return _libm("fmod", 2)(text, vector)  # the remainder needs a true fma
        single = scalar_of(vector) == "f32"
        c = _FLOAT_DIVISION[name]
        if name == "fmod":
            f, s = ("fmodf", "float") if single else ("fmod", "double")
            text.prototype(f, f"{s} {f}({s}, {s});")
            c = c.replace("LIBM", f).replace("LIMIT", "0x1p22f" if single else "0x1p51")
            c = c.replace("TINY", "0x1p-100f" if single else "0x1p-960")
            c = c.replace("INFINITE", "__builtin_inff()" if single else "__builtin_inf()")
        return text.fill(c.replace("HALF", "0.5f" if single else "0.5"), vector)

    return piece


# digamma: recurrence up to x >= 10, then the asymptotic series (Abramowitz and Stegun 6.3.18);
# below 1/2 the reflection 6.3.7. erfinv: the start of Winitzki's formula, then Halley steps.
_RARE = {
    "digamma": """static double digamma_scalar(double x) {
    double r = 0, y;
    if (x == 0) return __builtin_copysign(__builtin_inf(), -x);
    if (x < 0) {
        double whole = __builtin_floor(x);
        if (x == whole) return __builtin_nan("");
        double part = x - whole;
        return digamma_scalar(1 - x) - 3.14159265358979323846 / tan(3.14159265358979323846 * part);
    }
    if (x == __builtin_inf()) return x;
    for (; x < 10; x += 1) r -= 1 / x;
    y = 1 / (x * x);
    y = y * (1. / 12 - y * (1. / 120 - y * (1. / 252 - y * (1. / 240 - y * (1. / 132
        - y * (691. / 32760 - y * (1. / 12)))))));
    return r + log(x) - 0.5 / x - y;
}""",
    "erfinv": """static double erfinv_scalar(double y) {
    double a = __builtin_fabs(y);
    if (!(a <= 1)) return __builtin_nan("");
    if (a == 1) return __builtin_copysign(__builtin_inf(), y);
    if (a < 1e-8) return y * (0.88622692545275801365 + 0.23201366653465449 * y * y);
    double l = log1p(-a * a), t = 4.3307467508 + 0.5 * l;
    double x = __builtin_sqrt(__builtin_sqrt(t * t - l * 6.8027211 ) - t);
    for (int i = 0; i < 3; i++) {
        double e = (a > 0.5 ? (1 - a) - erfc(x) : erf(x) - a) * 0.88622692545275801365
            * exp(x * x);
        x -= e / (1 + x * e);
    }
    return __builtin_copysign(x, y);
}""",
}
_RARE_NEEDS = {"digamma": ("tan", "log"), "erfinv": ("log1p", "erf", "erfc", "exp")}


def rare(name: str) -> Callable[[Text, str], str]:
    """A function that libm lacks, in double precision, one lane at a time."""

    def piece(text: Text, vector: str) -> str:
        for f in _RARE_NEEDS[name]:
            text.prototype(f, f"double {f}(double);")
        text.once(f"{name}_scalar", _RARE[name])
        return text.fill(
            f"static inline $F {name}_$F($F x)"
            f" {{ $F r; for (int i = 0; i < $W; i++) r[i] = {name}_scalar(x[i]); return r; }}",
            vector,
        )

    return piece


def _by_kind(
    integer: Callable[[Text, str], str], floating: Callable[[Text, str], str]
) -> Callable[[Text, str], str]:
    def piece(text: Text, vector: str) -> str:
        chosen = floating if C_TYPES[scalar_of(vector)][2] == "f" else integer
        return chosen(text, vector)

    return piece


SCALAR_MATH: dict[str, Callable[[Text, str], str]] = {
    **{name: _libm(name, 1) for name in _UNARY},
    **{name: _libm(name, 2) for name in _BINARY},
    "trunc_divide": int_divide("trunc_divide"),
    "fmod": _by_kind(int_divide("fmod"), float_division("fmod")),
    "remainder": _by_kind(int_floor("remainder"), float_division("remainder")),
    "floor_divide": _by_kind(int_floor("floor_divide"), float_division("floor_divide")),
    "pow": _by_kind(int_pow, _libm("pow", 2)),
    "digamma": rare("digamma"),
    "erfinv": rare("erfinv"),
}
