"""Double-precision functions on vectors, as C. The methods are those of ``vecmath32.py``.

What is not here goes to the C library, one lane at a time (``scalarmath.py``).
"""

from __future__ import annotations

from collections.abc import Callable

from .fragments import Text
from .scalarmath import SCALAR_MATH

__all__ = ["MATH64"]


def _poly(x: str, coefficients: list[str]) -> str:
    """Horner's form, lowest coefficient first."""
    out = f"$(dup)({coefficients[-1]})"
    for c in reversed(coefficients[:-1]):
        out = f"$(fma)({out}, {x}, $(dup)({c}))"
    return out


# e^r = 1 + r + r^2 Q(r), |r| <= ln(2)/2, 2^-57.9
_EXP = [
    "0x1.000000000000ap-1", "0x1.5555555555508p-3", "0x1.55555555506d5p-5",
    "0x1.11111111248cfp-7", "0x1.6c16c1846fbe4p-10", "0x1.a01a013a44bccp-13",
    "0x1.a01999745ce37p-16", "0x1.71df03fa9ed83p-19", "0x1.28ade8c816d70p-22",
    "0x1.adb1825eeb3a1p-26",
]  # fmt: skip
# e^r - 1 = r + r^2/2 + r^3 P(r), |r| <= ln(2)/2, 2^-61.5
_EXPM1 = [
    "0x1.5555555555559p-3", "0x1.555555555554cp-5", "0x1.111111110f659p-7",
    "0x1.6c16c16c1b322p-10", "0x1.a01a01b00095fp-13", "0x1.a01a018b44f8bp-16",
    "0x1.71ddf819562cbp-19", "0x1.27e5198469b2ep-22", "0x1.af5f172ab98f7p-26",
    "0x1.1f102bb7c77e5p-29",
]  # fmt: skip
# log((1+s)/(1-s)) = 2 s + s z L(z), z = s^2, |s| <= 1/5, 2^-62.7
_LOG = [
    "0x1.555555555554fp-1", "0x1.999999999c151p-2", "0x1.24924921e7d40p-2",
    "0x1.c71c748c12b0dp-3", "0x1.745c4bcb169fdp-3", "0x1.3b35a0c9cca3bp-3",
    "0x1.0dcdbe5e79a99p-3", "0x1.1b72bcd42531cp-3",
]  # fmt: skip
# sin(r) = r + r s S(s), cos(r) = 1 - s/2 + s^2 C(s), s = r^2, |r| <= pi/4, 2^-57.9 and 2^-63.9
_SIN = [
    "-0x1.5555555555548p-3", "0x1.111111110f754p-7", "-0x1.a01a019bf064ep-13",
    "0x1.71de355d28ffbp-19", "-0x1.ae5e52c9ddb36p-26", "0x1.5d8dae8246f2ap-33",
]  # fmt: skip
_COS = [
    "0x1.555555555554bp-5", "-0x1.6c16c16c15012p-10", "0x1.a01a019c8e8afp-16",
    "-0x1.27e4f7f0eb6dbp-22", "0x1.1ee9db3c3819ap-29", "-0x1.8fa6286e55096p-37",
]  # fmt: skip

_REDUCE = """
    $F n = $(fma)(x, $(dup)(0x1.71547652b82fep+0), $(dup)(0x1.8p+52)) - 0x1.8p+52;
    $F r = $(fma)(n, $(dup)(-0x1.62e42fefa3800p-1), x);
    r = $(fma)(n, $(dup)(-0x1.ef35793c76730p-45), r);"""

# n of x = 2^n (1 + f) with 3/4 <= 1 + f < 3/2, from the exponent bits e
_EXPONENT = "($F)((e >> 52) + 0x4338000000000000ll) - 0x1.8p+52"

# n ln2 + log(1 + f), the sum arranged so that its larger terms are exact
_LOG_SUM = f"""
    $F s = f / (f + 2.), z = s * s, h = 0.5 * f * f;
    $F q = z * {_poly("z", _LOG)};
    $F y = $(fma)(s, h + q, n * 0x1.ef35793c76730p-45);
    y = $(fma)(n, $(dup)(0x1.62e42fefa3800p-1), f - (h - y));"""

TEMPLATES: dict[str, str] = {
    "exp": f"""static inline $F exp_$F($F x) {{
    x = $(sel)(x > 720., $(dup)(720.), x);
    x = $(sel)(x < -760., $(dup)(-760.), x);{_REDUCE}
    $F q = {_poly("r", _EXP)};
    return $(ldexp)($(fma)(r * r, q, r) + 1., n);
}}""",
    "expm1": f"""static inline $F expm1_$F($F v) {{
    $F x = $(sel)(v > 710., $(dup)(710.), v);
    x = $(sel)(x < -50., $(dup)(-50.), x);{_REDUCE}
    $F q = {_poly("r", _EXPM1)};
    $F r2 = r * r, p = r + $(fma)(r2 * r, q, r2 * 0.5);
    $F s = $(ldexp)($(dup)(0.5), n);
    $F y = $(fma)(s, p, s - 0.5);
    y = y + y;
    return $(sel)(n == 0., $(copysign)(p, v), y);
}}""",
    "log": f"""static inline $F log_$F($F x) {{
    $I tiny = x < 0x1p-1022;
    $F a = $(sel)(tiny, x * 0x1p+54, x);
    $I e = (($I)a - 0x3fe8000000000000ll) & ($I)$(dup)(-__builtin_inf());
    $F f = ($F)(($I)a - e) - 1.;
    $F n = {_EXPONENT} - ($F)(tiny & ($I)$(dup)(54.));{_LOG_SUM}
    y = $(sel)((x < 0.) | (x != x), $(dup)(__builtin_nan("")), y);
    y = $(sel)(x == 0., $(dup)(-__builtin_inf()), y);
    return $(sel)(x == __builtin_inf(), x, y);
}}""",
    "log1p": f"""static inline $F log1p_$F($F x) {{
    $I e = (($I)(x + 1.) - 0x3fe8000000000000ll) & ($I)$(dup)(-__builtin_inf());
    $F g = ($F)(($I)$(dup)(4.) - e);
    $F f = ($F)(($I)x - e);
    f = $(sel)(e == 0, x, f) + $(fma)(g, $(dup)(0.25), $(dup)(-1.));
    $F n = {_EXPONENT};{_LOG_SUM}
    y = $(sel)((x < -1.) | (x != x), $(dup)(__builtin_nan("")), y);
    y = $(sel)(x == -1., $(dup)(-__builtin_inf()), y);
    return $(sel)((x == 0.) | (x == __builtin_inf()), x, y);
}}""",
    "tanh": """static inline $F tanh_$F($F x) {
    $F a = $(fabs)(x), t = $(expm1)(a + a), d = t + 2.;
    return $(copysign)($(sel)(a < 0.5, t / d, 1. - 2. / d), x);
}""",
    "sincos": f"""static inline $F sincos_$F($F x, int quarter) {{
    $F n = $(fma)(x, $(dup)(0x1.45f306dc9c883p-1), $(dup)(0x1.8p+52));
    $I k = ($I)n + quarter;
    n = n - 0x1.8p+52;
    $F h = $(fma)(n, $(dup)(-0x1.921fb54442d18p+0), x);
    $F p = n * -0x1.1a62633145c07p-54, r = h + p, b = r - h;
    $F lo = (h - (r - b)) + (p - b);
    lo = $(fma)(n, $(dup)(0x1.f1976b7ed8fbcp-110), lo
        + $(fma)(n, $(dup)(-0x1.1a62633145c07p-54), -p));
    $F s = r * r;
    $F sn = r + $(fma)(r * s, {_poly("s", _SIN)}, lo);
    $F w = s * 0.5, one = 1. - w, e = (1. - one) - w;
    $F cs = one + $(fma)(s * s, {_poly("s", _COS)}, $(fma)(-r, lo, e));
    $F y = $(sel)((k & 1) == 0, sn, cs);
    return ($F)(($I)y ^ ((k & 2) << 62));
}}""",
    "sin": """static inline $F sin_$F($F x) {
    $F y = $(sel)(x == 0., x, $(sincos)(x, 0));
    $I far = ~($(fabs)(x) < 0x1p+20);
    if (__builtin_expect($(any_lane)(far), 0))
        for (int i = 0; i < $W; i++) if (far[i]) y[i] = sin(x[i]);
    return y;
}""",
    "cos": """static inline $F cos_$F($F x) {
    $F y = $(sincos)(x, 1);
    $I far = ~($(fabs)(x) < 0x1p+20);
    if (__builtin_expect($(any_lane)(far), 0))
        for (int i = 0; i < $W; i++) if (far[i]) y[i] = cos(x[i]);
    return y;
}""",
}


def _template(name: str) -> Callable[[Text, str], str]:
    def piece(text: Text, vector: str) -> str:
        if name in ("sin", "cos"):
            if text.target.isa == "generic":
                return SCALAR_MATH[name](text, vector)  # the reduction needs a true fma
            text.prototype(name, f"double {name}(double);")
        return text.fill(TEMPLATES[name], vector)

    return piece


MATH64: dict[str, Callable[[Text, str], str]] = {name: _template(name) for name in TEMPLATES}
