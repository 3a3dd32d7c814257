"""What batch norm does with the samples and cells of a channel, of float32 images (N, C, cells):
sums, added in double, and what is computed from a few numbers of the channel.

Rows of cells are often shorter than what a kernel pays for being started on them, so the functions
walk over the samples themselves. They are of the loop ABI: dimension 1 counts the channels,
dimension 0 is what one costs (all steps 0); `params` are samples, cells, and elements from sample
to sample.
"""

from __future__ import annotations

from .fragments import Text

__all__ = ["KINDS", "print_channels"]

KINDS = ("channel_moments", "channel_products", "channel_scaled", "channel_slopes")

_WALK = """
    for (i64 s = 0; s < samples; s++) {
        const i64 from = s * gap;
        i64 i = 0;
        for (; i + 2 * %(half)d <= cells; i += 2 * %(half)d) {
            { const i64 at = from + i; %(first)s }
            { const i64 at = from + i + %(half)d; %(second)s }
        }
        for (; i + %(half)d <= cells; i += %(half)d) { const i64 at = from + i; %(first)s }
        for (; i < cells; i++) { const i64 at = from + i; %(rest)s }
    }
"""

_SHARED = """
static inline %(D)s wide_%(D)s(const void *p) {
    return __builtin_convertvector(*(const %(H)s_u *)p, %(D)s);
}
static double all_%(D)s(%(D)s x) {
    double sum = 0;
    for (int l = 0; l < %(half)d; l++) sum += x[l];
    return sum;
}
"""

_MOMENTS = """
/* the mean, and the sum of the squared distances from it */
void %(symbol)s(char **ptr, const i64 *st, i64 n0, i64 n1, const void *params) {
    const i64 *numbers = params, samples = numbers[0], cells = numbers[1], gap = numbers[2];
    for (i64 c = 0; c < n1; c++) {
        const %(S)s *x = (const %(S)s *)(ptr[2] + c * st[5]);
        %(D)s a = {0}, b = {0};
        double rest = 0;
        %(sum)s
        const double mean = (all_%(D)s(a + b) + rest) / (samples * cells);
        a = b = (%(D)s){0}; rest = 0;
        %(squares)s
        *(double *)(ptr[0] + c * st[3]) = mean;
        *(double *)(ptr[1] + c * st[4]) = all_%(D)s(a + b) + rest;
    }
}
"""

_PRODUCTS = """
/* the sum of g, and of g times the distance from the mean */
void %(symbol)s(char **ptr, const i64 *st, i64 n0, i64 n1, const void *params) {
    const i64 *numbers = params, samples = numbers[0], cells = numbers[1], gap = numbers[2];
    for (i64 c = 0; c < n1; c++) {
        const %(S)s *g = (const %(S)s *)(ptr[2] + c * st[7]);
        const %(S)s *x = (const %(S)s *)(ptr[3] + c * st[8]);
        const double mean = *(const %(S)s *)(ptr[4] + c * st[9]);
        %(D)s a = {0}, b = {0}, d = {0}, e = {0};
        double rest = 0, more = 0;
        %(products)s
        *(float *)(ptr[0] + c * st[5]) = all_%(D)s(a + b) + rest;
        *(float *)(ptr[1] + c * st[6]) = all_%(D)s(d + e) + more;
    }
}
"""


_SCALED = """
/* x times the first number, plus the second */
void %(symbol)s(char **ptr, const i64 *st, i64 n0, i64 n1, const void *params) {
    const i64 *numbers = params, samples = numbers[0], cells = numbers[1], gap = numbers[2];
    for (i64 c = 0; c < n1; c++) {
        %(S)s *out = (%(S)s *)(ptr[0] + c * st[4]);
        const %(S)s *x = (const %(S)s *)(ptr[1] + c * st[5]);
        const float by = *(const %(S)s *)(ptr[2] + c * st[6]);
        const float plus = *(const %(S)s *)(ptr[3] + c * st[7]);
        %(values)s
    }
}
"""

_SLOPES = """
/* (g - shift - (x - mean) slope) r weight */
void %(symbol)s(char **ptr, const i64 *st, i64 n0, i64 n1, const void *params) {
    const i64 *numbers = params, samples = numbers[0], cells = numbers[1], gap = numbers[2];
    for (i64 c = 0; c < n1; c++) {
        %(S)s *out = (%(S)s *)(ptr[0] + c * st[8]);
        const %(S)s *g = (const %(S)s *)(ptr[1] + c * st[9]);
        const %(S)s *x = (const %(S)s *)(ptr[2] + c * st[10]);
        const float mean = *(const %(S)s *)(ptr[3] + c * st[11]);
        const float slope = *(const %(S)s *)(ptr[4] + c * st[12]);
        const float shift = *(const %(S)s *)(ptr[5] + c * st[13]);
        const float r = *(const %(S)s *)(ptr[6] + c * st[14]);
        const float weight = *(const %(S)s *)(ptr[7] + c * st[15]);
        %(values)s
    }
}
"""

_CELLS = """
    for (i64 s = 0; s < samples; s++) {
        const i64 from = s * gap;
        i64 i = 0;
        for (; i + %(lanes)d <= cells; i += %(lanes)d) {
            const i64 at = from + i;
            *(%(F)s_u *)(out + at) = %(vector)s;
        }
        for (; i < cells; i++) { const i64 at = from + i; out[at] = %(scalar)s; }
    }
"""


def print_channels(text: Text, symbol: str, kind: str) -> None:
    """Add the function of one of the `KINDS`."""
    half = text.target.vector_bytes // 8
    d, h = text.type("f64", half), text.type("f32", half)
    s = f"part_{h}"
    text.once(f"part {h}", f"typedef float {s} __attribute__((may_alias));")
    names = {"half": half, "D": d, "H": h, "S": s, "symbol": symbol}
    text.once(f"channels {d}", _SHARED % names)

    def walk(step: str, rest: str) -> str:
        first, second = step.format(a="a", d="d"), step.format(a="b", d="e")
        return _WALK % {**names, "first": first, "second": second, "rest": rest}

    def values(formula: str, *of: str) -> str:
        f = text.type("f32", 2 * half)
        vectors = {t: f"*(const {f}_u *)({t} + at)" for t in of}
        return _CELLS % {
            "lanes": 2 * half, "F": f, "vector": formula.format(**vectors),
            "scalar": formula.format(**{t: f"{t}[at]" for t in of}),
        }  # fmt: skip

    if kind == "channel_scaled":
        body = _SCALED % {**names, "values": values("plus + {x} * by", "x")}
    elif kind == "channel_slopes":
        formula = "({g} - shift - ({x} - mean) * slope) * r * weight"
        body = _SLOPES % {**names, "values": values(formula, "g", "x")}
    elif kind == "channel_moments":
        body = _MOMENTS % {
            **names,
            "sum": walk(f"{{a}} += wide_{d}(x + at);", "rest += x[at];"),
            "squares": walk(
                f"const {d} far = wide_{d}(x + at) - mean; {{a}} += far * far;",
                "rest += (x[at] - mean) * (x[at] - mean);",
            ),
        }
    else:
        body = _PRODUCTS % {
            **names,
            "products": walk(
                f"const {d} v = wide_{d}(g + at); "
                f"{{a}} += v; {{d}} += v * (wide_{d}(x + at) - mean);",
                "rest += g[at]; more += g[at] * (x[at] - mean);",
            ),
        }
    text.parts.append(body)
