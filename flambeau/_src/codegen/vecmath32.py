"""Single-precision functions on vectors, as C: the one definition that every kernel uses.

Method: reduce the argument, evaluate a minimax polynomial with fused multiply-adds, scale back.
The coefficients were fitted for these kernels (weighted minimax of the relative error, each then
rounded to float and the rest refitted); the error of each fit is given in powers of two. NaN,
infinities, signed zeros and subnormals come out as IEEE 754 and C's Annex F say.
"""

from __future__ import annotations

from collections.abc import Callable

from .fragments import Text, lanes_of

__all__ = ["MATH32"]


def _poly(x: str, coefficients: list[str], suffix: str = "f") -> str:
    """Horner's form, lowest coefficient first."""
    out = f"$(dup)({coefficients[-1]}{suffix})"
    for c in reversed(coefficients[:-1]):
        out = f"$(fma)({out}, {x}, $(dup)({c}{suffix}))"
    return out


def _picked(x: str, rows: list[list[str]]) -> str:
    """Horner's form with coefficients from tables of eight, by the low bits of `i`."""
    picks = [f"$(pick)(i, {', '.join(f'{c}f' for c in row)})" for row in rows]
    out = picks.pop()
    for pick in reversed(picks):
        out = f"$(fma)({out}, {x}, {pick})"
    return out


# e^r = 1 + r + r^2 Q(r), |r| <= ln(2)/2, 2^-33.2
_EXP = [
    "0x1p-1", "0x1.555554p-3", "0x1.5554e8p-5", "0x1.11130ep-7", "0x1.6d4ccap-10", "0x1.9dfc08p-13",
]  # fmt: skip
# the same relative to e^r - 1, 2^-31.1
_EXPM1 = [
    "0x1p-1", "0x1.555554p-3", "0x1.5554f8p-5", "0x1.1112dap-7", "0x1.6d3a3ep-10",
    "0x1.9e6eccp-13",
]  # fmt: skip
# 2^r = 1 + r Q(r), |r| <= 1/2, 2^-28.3
_EXP2 = [
    "0x1.62e430p-1", "0x1.ebfbdcp-3", "0x1.c6af7ap-5", "0x1.3b2dd2p-7", "0x1.5f0948p-10",
    "0x1.417a70p-13",
]  # fmt: skip
# log(1+f) = f - f^2/2 + f^3 P(f), -1/4 <= f <= 1/2, 2^-30.0
_LOG = [
    "0x1.55555ap-2", "-0x1.00006ep-2", "0x1.999764p-3", "-0x1.5519d2p-3", "0x1.24638ep-3",
    "-0x1.04ad98p-3", "0x1.df1c3ap-4", "-0x1.74ff7ap-4", "0x1.340d2ap-5",
]  # fmt: skip
# sin(r) = r + r s S(s), cos(r) = 1 - s/2 + s^2 C(s), s = r^2, |r| <= pi/4, 2^-27.9 and 2^-33.0
_SIN = ["-0x1.555546p-3", "0x1.110774p-7", "-0x1.9951fap-13"]
_COS = ["0x1.55554ap-5", "-0x1.6c0c28p-10", "0x1.99e816p-16"]
# tanh(x) = x + x s T(s), |x| <= 1, 2^-27.7
_TANH = [
    "-0x1.55553cp-2", "0x1.110be6p-3", "-0x1.b96288p-5", "0x1.600bd6p-6", "-0x1.046750p-7",
    "0x1.2db79ep-9", "-0x1.7806d8p-12",
]  # fmt: skip
# erf(r + n 67/128), n = 0, ..., 7, in powers of r, less x (n < 2) or 7/8:
# 0.29 ulp. Made by fit_erf.py
_ERF = [
    [
        "0x0.000000p+0", "0x1.1d568ap-6", "-0x1.c22f80p-7", "0x1.93ffc4p-4",
        "0x1.f370bap-4", "0x1.ff1f0cp-4", "0x1.fff6a2p-4", "0x1.ffffc6p-4",
    ],
    [
        "0x1.06eba8p-3", "-0x1.22e8ccp-3", "0x1.822e84p-2", "0x1.888cf2p-4",
        "0x1.cd5e22p-7", "0x1.397ceep-10", "0x1.ec9892p-15", "0x1.bf716ep-20",
    ],
    [
        "-0x1.25319cp-21", "-0x1.cbdd0cp-2", "-0x1.9448c0p-2", "-0x1.3436c6p-3",
        "-0x1.e2fe88p-6", "-0x1.9a2dfcp-9", "-0x1.82b00ep-13", "-0x1.db1930p-18",
    ],
    [
        "-0x1.811e62p-2", "-0x1.08ceb0p-3", "0x1.32bfa2p-3", "0x1.0147bcp-3",
        "0x1.2ab824p-5", "0x1.4bad70p-8", "0x1.7f9034p-12", "0x1.e1287cp-17",
    ],
    [
        "-0x1.517c6ap-11", "0x1.77ce70p-3", "0x1.b3f0b2p-5", "-0x1.8ce296p-5",
        "-0x1.d0760ap-6", "-0x1.6e7d22p-8", "-0x1.0da13ap-11", "0x1.c06498p-17",
    ],
    [
        "0x1.e3acd2p-4", "0x1.380848p-10", "-0x1.0ce354p-4", "-0x1.030e4ap-7",
        "0x1.9a8324p-7", "0x1.1f6d94p-8", "0x1.2756cep-11", "0x1.158530p-15",
    ],
    [
        "-0x1.3d2ddep-6", "-0x1.88c5d4p-5", "0x1.14e89ep-7", "0x1.0ef848p-6",
        "-0x1.2e8f48p-10", "-0x1.1f40a2p-9", "-0x1.c69a96p-12", "-0x1.a062acp-12",
    ],
]  # fmt: skip

# x = n ln2 + r; the magic constant 1.5 * 2^23 rounds to the nearest integer
_REDUCE = """
    $F n = $(fma)(x, $(dup)(0x1.715476p+0f), $(dup)(0x1.8p+23f)) - 0x1.8p+23f;
    $F r = $(fma)(n, $(dup)(-0x1.62e400p-1f), x);
    r = $(fma)(n, $(dup)(-0x1.7f7d1cp-20f), r);"""

TEMPLATES: dict[str, str] = {
    # x - n hi is exact (hi has 16 bits), and so is 1 + h as a sum of two: only the last addition
    # rounds more than a small term
    "exp": f"""static inline $F exp_$F($F x) {{
    x = $(sel)(x > 90.f, $(dup)(90.f), x);
    x = $(sel)(x < -105.f, $(dup)(-105.f), x);
    $F n = $(fma)(x, $(dup)(0x1.715476p+0f), $(dup)(0x1.8p+23f)) - 0x1.8p+23f;
    $F h = $(fma)(n, $(dup)(-0x1.62e400p-1f), x), one = h + 1.f;
    $F lo = n * 0x1.7f7d1cp-20f, r = h - lo;
    $F q = {_poly("r", _EXP)};
    return $(ldexp)(one + $(fma)(r * r, q, (h - (one - 1.f)) - lo), n);
}}""",
    "exp2": f"""static inline $F exp2_$F($F x) {{
    x = $(sel)(x > 130.f, $(dup)(130.f), x);
    x = $(sel)(x < -152.f, $(dup)(-152.f), x);
    $F n = (x + 0x1.8p+23f) - 0x1.8p+23f, r = x - n;
    $F q = {_poly("r", _EXP2)};
    return $(ldexp)($(fma)(r, q, $(dup)(1.f)), n);
}}""",
    # 2^n (1 + p) - 1, as s p + (s - 1) with s half of 2^n so that it does not overflow early
    "expm1": f"""static inline $F expm1_$F($F v) {{
    $F x = $(sel)(v > 89.f, $(dup)(89.f), v);
    x = $(sel)(x < -30.f, $(dup)(-30.f), x);{_REDUCE}
    $F q = {_poly("r", _EXPM1)};
    $F p = $(fma)(r * r, q, r);
    $F s = $(ldexp)($(dup)(0.5f), n);
    $F y = $(fma)(s, p, s - 0.5f);
    y = y + y;
    return $(sel)(n == 0.f, $(copysign)(p, v), y);
}}""",
    # m in [3/4, 3/2) with x = 2^e m; log(m) by polynomial in m - 1, e ln2 in two parts
    "log": f"""static inline $F log_$F($F x) {{
    $I tiny = x < 0x1p-126f;
    $F a = $(sel)(tiny, x * 0x1p+24f, x);
    $I e = (($I)a - 0x3f400000) & ($I)$(dup)(-__builtin_inff());
    $F f = ($F)(($I)a - e) - 1.f;
    $F n = __builtin_convertvector(e >> 23, $F) - ($F)(tiny & ($I)$(dup)(24.f));
    $F q = {_poly("f", _LOG)};
    $F f2 = f * f;
    $F y = $(fma)(f2, $(fma)(f, q, $(dup)(-0.5f)), n * 0x1.7f7d1cp-20f);
    y = $(fma)(n, $(dup)(0x1.62e400p-1f), f + y);
    y = $(sel)((x < 0.f) | (x != x), $(dup)(__builtin_nanf("")), y);
    y = $(sel)(x == 0.f, $(dup)(-__builtin_inff()), y);
    return $(sel)(x == __builtin_inff(), x, y);
}}""",
    "log2": """static inline $F log2_$F($F x) { return $(log_scaled)(x,
    $(dup)(0x1.715476p+0f), $(dup)(0x1.4ae0cp-26f), $(dup)(1.f), $(dup)(0.f)); }""",
    "log10": """static inline $F log10_$F($F x) { return $(log_scaled)(x,
    $(dup)(0x1.bcb7b2p-2f), $(dup)(-0x1.5b235ep-27f), $(dup)(0x1.3440p-2f),
    $(dup)(0x1.3509f8p-18f)); }""",
    # log(m) as an unevaluated sum hi + lo, times (a + b), plus e (c + d)
    "log_scaled": f"""static inline $F log_scaled_$F($F x, $F a, $F b, $F c, $F d) {{
    $I tiny = x < 0x1p-126f;
    $F v = $(sel)(tiny, x * 0x1p+24f, x);
    $I e = (($I)v - 0x3f400000) & ($I)$(dup)(-__builtin_inff());
    $F f = ($F)(($I)v - e) - 1.f;
    $F n = __builtin_convertvector(e >> 23, $F) - ($F)(tiny & ($I)$(dup)(24.f));
    $F q = {_poly("f", _LOG)};
    $F f2 = f * f, t = $(fma)(f, q, $(dup)(-0.5f)) * f2;
    $F hi = f + t, lo = (f - hi) + t;
    $F w = hi * a, wl = $(fma)(hi, a, -w);
    wl = $(fma)(hi, b, $(fma)(lo, a, wl));
    wl = $(fma)(n, d, wl);
    $F s = n * c, y = s + w;
    y = y + (((s - y) + w) + wl);
    y = $(sel)((x < 0.f) | (x != x), $(dup)(__builtin_nanf("")), y);
    y = $(sel)(x == 0.f, $(dup)(-__builtin_inff()), y);
    return $(sel)(x == __builtin_inff(), x, y);
}}""",
    # 1 + x = 2^e m: m - 1 = 2^-e x + (2^-e - 1) is exact enough without forming 1 + x
    "log1p": f"""static inline $F log1p_$F($F x) {{
    $I e = (($I)(x + 1.f) - 0x3f400000) & ($I)$(dup)(-__builtin_inff());
    $F s = ($F)(($I)$(dup)(4.f) - e);
    $F f = ($F)(($I)x - e);
    f = $(sel)(e == 0, x, f) + $(fma)(s, $(dup)(0.25f), $(dup)(-1.f));
    $F n = __builtin_convertvector(e >> 23, $F);
    $F q = {_poly("f", _LOG)};
    $F y = $(fma)(f * f, $(fma)(f, q, $(dup)(-0.5f)), n * 0x1.7f7d1cp-20f);
    y = $(fma)(n, $(dup)(0x1.62e400p-1f), f + y);
    y = $(sel)((x < -1.f) | (x != x), $(dup)(__builtin_nanf("")), y);
    y = $(sel)(x == -1.f, $(dup)(-__builtin_inff()), y);
    return $(sel)((x == 0.f) | (x == __builtin_inff()), x, y);
}}""",
    "tanh": f"""static inline $F tanh_$F($F x) {{
    $F a = $(fabs)(x), s = x * x;
    $F small = $(fma)(x * s, {_poly("s", _TANH)}, x);
    $F large = 1.f - 2.f / ($(exp)(a + a) + 1.f);
    return $(copysign)($(sel)(a < 1.f, small, large), x);
}}""",
    # the table's interval is in the low bits of the sum with the magic constant
    "erf": f"""static inline $F erf_$F($F x) {{
    $F t = $(fabs)(x);
    t = $(sel)(t > 0x1.f6p+1f, $(dup)(0x1.f6p+1f), t);
    $F m = $(fma)(t, $(dup)(0x1.e9131ap+0f), $(dup)(0x1.8p+23f)), n = m - 0x1.8p+23f;
    $F r = $(fma)(n, $(dup)(-0x1.0cp-1f), t);
    $I i = ($I)m;
    $F q = {_picked("r", _ERF)};
    return $(copysign)($(sel)(n < 2.f, t, $(dup)(0.875f)) + q, x);
}}""",
    # x = n pi/2 + r + lo by three parts of pi/2; beyond 2^16 the library's exact reduction
    "sincos": f"""static inline $F sincos_$F($F x, int quarter) {{
    $F n = $(fma)(x, $(dup)(0x1.45f306p-1f), $(dup)(0x1.8p+23f));
    $I k = ($I)n + quarter;
    n = n - 0x1.8p+23f;
    $F h = $(fma)(n, $(dup)(-0x1.921fb6p+0f), x);
    $F p = n * 0x1.777a5cp-25f, r = h + p, b = r - h;
    $F lo = (h - (r - b)) + (p - b);
    lo = $(fma)(n, $(dup)(0x1.ee59dap-50f), lo + $(fma)(n, $(dup)(0x1.777a5cp-25f), -p));
    $F s = r * r;
    $F sn = r + $(fma)(r * s, {_poly("s", _SIN)}, lo);
    $F w = s * 0.5f, one = 1.f - w, e = (1.f - one) - w;
    $F cs = one + $(fma)(s * s, {_poly("s", _COS)}, $(fma)(-r, lo, e));
    $F y = $(sel)((k & 1) == 0, sn, cs);
    return ($F)(($I)y ^ ((k & 2) << 30));
}}""",
    "sin": """static inline $F sin_$F($F x) {
    $F y = $(sel)(x == 0.f, x, $(sincos)(x, 0));
    $I far = ~($(fabs)(x) < 65536.f);
    if (__builtin_expect($(any_lane)(far), 0))
        for (int i = 0; i < $W; i++) if (far[i]) y[i] = sinf(x[i]);
    return y;
}""",
    "pow": """static inline $F pow_$F($F x, $F y) {
    union { $F v; HALF h[2]; } a, b, r;
    a.v = $(fabs)(x); b.v = y;
    for (int i = 0; i < 2; i++)
        r.h[i] = __builtin_convertvector(POW(__builtin_convertvector(a.h[i], WIDE),
            __builtin_convertvector(b.h[i], WIDE)), HALF);
    $F zero = $(dup)(0.f), inf = $(dup)(__builtin_inff()), whole = $(trunc)(y);
    $I odd = (whole == y) & ($(trunc)(y * 0.5f) * 2.f != y);
    $F p = $(sel)(a.v == 0.f, $(sel)(y < 0.f, inf, zero), r.v);
    p = $(sel)(a.v == inf, $(sel)(y < 0.f, zero, inf), p);
    p = $(sel)((a.v == 1.f) & ($(fabs)(y) == inf), $(dup)(1.f), p);
    p = $(sel)((x < 0.f) & (a.v != inf) & (whole != y), $(dup)(__builtin_nanf("")), p);
    p = $(sel)(odd, $(copysign)(p, x), p);
    p = $(sel)((x != x) | (y != y), x + y, p);
    return $(sel)((x == 1.f) | (y == 0.f), $(dup)(1.f), p);
}""",
    "cos": """static inline $F cos_$F($F x) {
    $F y = $(sincos)(x, 1);
    $I far = ~($(fabs)(x) < 65536.f);
    if (__builtin_expect($(any_lane)(far), 0))
        for (int i = 0; i < $W; i++) if (far[i]) y[i] = cosf(x[i]);
    return y;
}""",
}


# x^y = 2^(y log2 x) in double: log2(m) = s L(s^2), s = (m - 1) / (m + 1), 2^-41.8 relative, and
# 2^r = P(r), |r| <= 1/2, 2^-34.5; the exponent is at most 160, so the result is good to 2^-34
_POW_DOUBLE = """static inline $F pow_double_$F($F x, $F y) {
    $I e = (($I)x - 0x3fe8000000000000ll) & ($I)$(dup)(-__builtin_inf());
    $F m = ($F)(($I)x - e), s = (m - 1.) / (m + 1.), z = s * s;
    $F n = ($F)((e >> 52) + 0x4338000000000000ll) - 0x1.8p+52;
    $F t = y * $(fma)(s, LOG2, n);
    t = $(sel)(t > 160., $(dup)(160.), t);
    t = $(sel)(t < -160., $(dup)(-160.), t);
    $F k = t + 0x1.8p+52, r = t - (k - 0x1.8p+52);
    return ($F)(($I)(EXP2) + (($I)k << 52));
}"""
_LOG2 = [
    "0x1.71547652b7e96p+1", "0x1.ec709dcb50b96p-1", "0x1.2776bc576d749p-1",
    "0x1.a61e9960866eep-2", "0x1.46f33685fbd01p-2", "0x1.29c9ff6d3ade7p-2",
]  # fmt: skip
_EXP2_DOUBLE = [
    "0x1.ffffffffad82fp-1", "0x1.62e42ff12e939p-1", "0x1.ebfbe0a37a6a9p-3",
    "0x1.c6b08a7d5314dp-5", "0x1.3b29dd005f92cp-7", "0x1.5d8aa30254552p-10",
    "0x1.4469a7193d660p-13", "0x1.fddd5aebda262p-17",
]  # fmt: skip


def _pow(text: Text, vector: str) -> str:
    """float powers, half a vector at a time in double."""
    half = lanes_of(vector) // 2
    wide = text.type("f64", half)
    c = _POW_DOUBLE.replace("LOG2", _poly("z", _LOG2, "")).replace(
        "EXP2", _poly("r", _EXP2_DOUBLE, "")
    )
    text.once(f"pow_double_{wide}", text.fill(c, wide))
    c = TEMPLATES["pow"].replace("POW", f"pow_double_{wide}").replace("WIDE", wide)
    return text.fill(c.replace("HALF", text.type("f32", half)), vector)


def _template(name: str) -> Callable[[Text, str], str]:
    def piece(text: Text, vector: str) -> str:
        for libm in ("sinf", "cosf"):
            if f"{libm}(" in TEMPLATES[name]:
                text.prototype(libm, f"float {libm}(float);")
        return text.fill(TEMPLATES[name], vector)

    return piece


MATH32: dict[str, Callable[[Text, str], str]] = {
    **{name: _template(name) for name in TEMPLATES},
    "pow": _pow,
}
