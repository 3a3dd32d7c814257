"""Convolution over two dimensions and its gradients, for windows side by side (stride 1).

Lines of an image are laid out with the zeros around them. Places of the result are counted along
these wider lines, so the elements that a window's element k is in for places side by side lie side
by side as well, from `at[k]` on: nothing is gathered. Columns that are no places are left out when
the result is stored. The gradient of the input is the convolution of the output's gradient with the
weight turned.

The functions are of the loop ABI: dimension 0 is what a piece of work costs (all steps 0),
dimension 1 counts the pieces; each reads its number. A piece is some lines of the result of an
image (`convolution`), or some channels of the input (`convolution_weight`). All tensors are dense;
`params` are the numbers of `struct windows`.
"""

from __future__ import annotations

from .fragments import Text, lanes_of
from .tiles import TILE_ROWS, tile

__all__ = ["KINDS", "print_convolution"]

KINDS = ("convolution", "convolution_weight")

_SHARED = """
/* channels in and out; extents in, out, of the kernel; zeros around, steps in a window; lines of
   the result at once, channels of one piece of work */
struct windows {
    i64 images, channels, filters, high, wide, out_high, out_wide, kernel_high, kernel_wide,
        zeros_high, zeros_wide, apart_high, apart_wide, turned, biased, lines, some;
};
"""

_TYPED = """
/* lines of channels first..first + count, for `lines` lines of the result from y on */
static void laid_out_%(f)s(const struct windows *g, const part_$F *x, i64 first, i64 count, i64 y,
                           i64 tall, i64 wide, part_$F *to) {
    i64 from = -g->zeros_wide, left = 0, right = wide;
    if (from < 0) { left = -from < wide ? -from : wide; from = 0; }
    if (right - left > g->wide - from) right = g->wide > from ? left + g->wide - from : left;
    for (i64 c = first; c < first + count; c++)
        for (i64 r = 0; r < tall; r++, to += wide) {
            const i64 line = y + r - g->zeros_high;
            const int in = line >= 0 && line < g->high;
            const part_$F *s = x + (c * g->high + line) * g->wide + from - left;
            const i64 a = in ? left : wide, b = in ? right : wide;
            for (i64 j = 0; j < a; j++) to[j] = 0;
            for (i64 j = a; j < b; j++) to[j] = s[j];
            for (i64 j = b; j < wide; j++) to[j] = 0;
        }
}
/* where the elements of a window are, in such lines */
static void places_of_%(f)s(const struct windows *g, i64 count, i64 tall, i64 wide, i64 *at) {
    for (i64 c = 0; c < count; c++)
        for (i64 i = 0; i < g->kernel_high; i++)
            for (i64 j = 0; j < g->kernel_wide; j++)
                *at++ = (c * tall + i * g->apart_high) * wide + j * g->apart_wide;
    *at = 0;
}
/* rows of the next tile when so many are left */
static i64 rows_%(f)s(i64 left) {
    if (left >= %(full)d && left != %(full)d + %(few)d) return %(full)d;
    return left >= %(most)d ? %(most)d : left >= %(few)d ? %(few)d : 1;
}
"""

_PRODUCT = """
static void %(form)s_%(f)s(i64 rows, part_$F *c, i64 cm, const part_$F *a, i64 am, const part_$F *b,
                           i64 bk, const i64 *at, i64 n, int add) {
    switch (rows) {
    case %(full)d: %(tile_full)s(c, cm, a, am, 1, b, bk, at, n, add); break;
    case %(most)d: %(tile_most)s(c, cm, a, am, 1, b, bk, at, n, add); break;
    case %(few)d: %(tile_few)s(c, cm, a, am, 1, b, bk, at, n, add); break;
    default: %(tile_one)s(c, cm, a, am, 1, b, bk, at, n, add);
    }
}
"""

_FORWARD = """
void %(symbol)s(char **ptr, const i64 *st, i64 n0, i64 n1, const void *params) {
    const struct windows *g = params;
    const i64 taps = g->kernel_high * g->kernel_wide, deep = g->channels * taps;
    const i64 wide = g->out_wide + (g->kernel_wide - 1) * g->apart_wide;
    const i64 most = g->lines + (g->kernel_high - 1) * g->apart_high;
    const i64 each = (g->out_high + g->lines - 1) / g->lines;
    const i64 room = g->channels * most * wide + 2 * %(two)d, own = g->turned * g->filters * deep;
    const part_$F *w = (const part_$F *)ptr[3], *bias = (const part_$F *)ptr[4];
    i64 *at = __builtin_malloc(sizeof(i64) * (deep + 1) + sizeof(part_$F) * (room + own));
    if (!at) __builtin_trap();
    part_$F *plane = (part_$F *)(at + deep + 1), c[%(full)d * %(two)d];
    for (i64 i = room - 2 * %(two)d; i < room; i++) plane[i] = 0;
    if (g->turned) {                 /* from (channels, filters, taps), each window backwards */
        part_$F *to = plane + room;
        for (i64 f = 0; f < g->filters; f++)
            for (i64 k = 0; k < g->channels; k++)
                for (i64 t = 0; t < taps; t++)
                    to[f * deep + k * taps + t] = w[(k * g->filters + f + 1) * taps - 1 - t];
        w = to;
    }
    for (i64 h = 0; h < n1; h++) {
        const i64 number = *(const i64 *)(ptr[1] + h * st[6]), y = number %% each * g->lines;
        const i64 lines = g->out_high - y < g->lines ? g->out_high - y : g->lines;
        const i64 tall = lines + (g->kernel_high - 1) * g->apart_high;
        const part_$F *x = (const part_$F *)ptr[2]
            + number / each * g->channels * g->high * g->wide;
        part_$F *out = (part_$F *)ptr[0]
            + (number / each * g->filters * g->out_high + y) * g->out_wide;
        laid_out_%(f)s(g, x, 0, g->channels, y, tall, wide, plane);
        places_of_%(f)s(g, g->channels, tall, wide, at);
        const i64 places = (lines - 1) * wide + g->out_wide;
        for (i64 p = 0; p < places; p += %(two)d)
            for (i64 f = 0, rows; f < g->filters; f += rows) {
                rows = rows_%(f)s(g->filters - f);
                spread_b_%(f)s(rows, c, %(two)d, w + f * deep, deep, plane + p, 0, at, deep, 0);
                const i64 end = p + %(two)d < places ? p + %(two)d : places;
                for (i64 i = p, line = p / wide, col = p %% wide; i < end; line++, col = 0) {
                    const i64 n = end - i < wide - col ? end - i : wide - col;
                    const i64 m = col + n > g->out_wide ? g->out_wide - col : n;
                    for (i64 r = 0; r < rows; r++) {
                        part_$F *to = out + ((f + r) * g->out_high + line) * g->out_wide + col;
                        const part_$F *s = c + r * %(two)d + i - p;
                        const $S b = g->biased ? bias[f + r] : 0;
                        for (i64 j = 0; j < m; j++) to[j] = s[j] + b;
                    }
                    i += n;
                }
            }
    }
    __builtin_free(at);
}
"""

_WEIGHT = """
void %(symbol)s(char **ptr, const i64 *st, i64 n0, i64 n1, const void *params) {
    const struct windows *g = params;
    const i64 taps = g->kernel_high * g->kernel_wide, deep = g->channels * taps;
    const i64 wide = g->out_wide + (g->kernel_wide - 1) * g->apart_wide;
    const i64 most = g->lines + (g->kernel_high - 1) * g->apart_high;
    const i64 all = (g->filters + %(two)d - 1) / %(two)d * %(two)d, size = g->some * taps;
    i64 *at = __builtin_malloc(sizeof(i64) * (size + 1) + sizeof(part_$F)
                               * (size * all + g->some * most * wide + g->lines * wide * all));
    if (!at) __builtin_trap();
    part_$F *sums = (part_$F *)(at + size + 1), *plane = sums + size * all;
    part_$F *slopes = plane + g->some * most * wide, *out = (part_$F *)ptr[0];
    __builtin_memset(slopes, 0, sizeof(part_$F) * g->lines * wide * all);
    for (i64 h = 0; h < n1; h++) {
        const i64 first = *(const i64 *)(ptr[1] + h * st[5]) * g->some;
        const i64 count = g->channels - first < g->some ? g->channels - first : g->some;
        __builtin_memset(sums, 0, sizeof(part_$F) * size * all);
        for (i64 image = 0; image < g->images; image++)
            for (i64 y = 0; y < g->out_high; y += g->lines) {
                const i64 lines = g->out_high - y < g->lines ? g->out_high - y : g->lines;
                const i64 tall = lines + (g->kernel_high - 1) * g->apart_high;
                const i64 places = (lines - 1) * wide + g->out_wide;
                laid_out_%(f)s(g, (const part_$F *)ptr[3] + image * g->channels * g->high * g->wide,
                               first, count, y, tall, wide, plane);
                places_of_%(f)s(g, count, tall, wide, at);
                for (i64 f = 0; f < g->filters; f++) {      /* columns that are no places stay 0 */
                    const part_$F *s = (const part_$F *)ptr[2]
                        + ((image * g->filters + f) * g->out_high + y) * g->out_wide;
                    for (i64 i = 0; i < lines; i++)
                        for (i64 j = 0; j < g->out_wide; j++)
                            slopes[(i * wide + j) * all + f] = s[i * g->out_wide + j];
                }
                for (i64 f = 0; f < all; f += %(two)d)
                    for (i64 k = 0, rows; k < count * taps; k += rows) {
                        rows = rows_%(f)s(count * taps - k);
                        spread_a_%(f)s(rows, sums + k * all + f, all, plane, 0, slopes + f, all,
                                       at + k, places, 1);
                    }
            }
        for (i64 f = 0; f < g->filters; f++)
            for (i64 k = 0; k < count * taps; k++)
                out[f * deep + first * taps + k] = sums[k * all + f];
    }
    __builtin_free(at);
}
"""


def print_convolution(text: Text, symbol: str, kind: str, vector: str) -> None:
    """Add the function of one of the `KINDS`, computed in the type of `vector`."""
    full = TILE_ROWS[text.target.isa]
    most, few = full * 2 // 3, full // 3
    form = "spread_b" if kind == "convolution" else "spread_a"
    pieces = {
        "two": 2 * lanes_of(vector), "symbol": symbol, "full": full, "most": most, "few": few,
        "f": vector, "form": form,
    }  # fmt: skip
    sizes = {"full": full, "most": most, "few": few, "one": 1}
    tiles = {f"tile_{size}": tile(text, vector, rows, form) for size, rows in sizes.items()}
    text.once("convolution", _SHARED)
    text.once(f"convolution {vector}", text.fill(_TYPED % pieces, vector))
    text.once(f"{form} {vector}", text.fill(_PRODUCT % {**pieces, **tiles}, vector))
    body = _FORWARD if kind == "convolution" else _WEIGHT
    text.parts.append(text.fill(body % pieces, vector))
