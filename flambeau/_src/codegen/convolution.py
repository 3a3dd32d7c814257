"""Convolution over two dimensions and its gradients, in tiles of registers.

*Lines.* The windows' side is laid out with the zeros around it, `side` images interleaved (their
equal elements side by side). Places of the result are counted along these wider lines, so the
elements that a window's element k is in for places side by side lie side by side as well, from
`at[k]` on: nothing is gathered. With one image a tile runs on over the ends of lines, and columns
that are no places are left out when the result is stored; with as many images as a tile is wide
each place is a tile of its own, which is for results of few places.

*Steps.* A convolution that steps over places lays out every step-th element side by side, a *slot*
for each remainder that its windows use. The gradient of the input is the convolution of the
output's gradient with the weight turned; under steps each remainder of the result's places, a
*phase*, has taps of its own.

The functions are of the loop ABI: dimension 0 is what a piece of work costs (all steps 0),
dimension 1 counts the pieces; each reads its number. A piece is some lines or some filters of some
images of a group (`convolution`), or some channels of a group's input (`convolution_weight`). All
tensors are dense; `params` are the numbers of `struct windows`.
"""

from __future__ import annotations

from .fragments import Text, lanes_of
from .tiles import TILE_ROWS, tile

__all__ = ["KINDS", "print_convolution"]

KINDS = ("convolution", "convolution_weight")

_SHARED = """
/* channels in and out, of a group; extents in, out, of the kernel; zeros around, steps in a window,
   steps of windows; lines of the result at once; filters (channels) of one piece of work; images
   side by side */
struct windows {
    i64 images, channels, filters, groups, high, wide, out_high, out_wide, kernel_high, kernel_wide,
        zeros_high, zeros_wide, apart_high, apart_wide, step_high, step_wide, turned, biased, lines,
        some, side;
};
/* One dimension: slots of what is laid out; phases of the result, and places of the first of them;
   where a line (column) begins, and how much longer it is than the result's */
struct axis { i64 in, out, taps, zeros, apart, step, turned, slots, phases, count, first, span; };
static struct axis axis_of(i64 in, i64 out, i64 taps, i64 zeros, i64 apart, i64 step, i64 turned) {
    struct axis a = {in, out, taps, zeros, apart, step, turned, 1, turned ? step : 1, 0, -zeros, 0};
    const i64 reach = (taps - 1) * apart, low = zeros - reach;
    if (turned) {
        a.first = low >= 0 ? low / step : -((step - 1 - low) / step);
        a.span = (zeros + step - 1) / step - a.first;
    } else {
        while (a.slots < taps && a.slots * apart % step) a.slots++;
        a.span = reach / step;
    }
    a.count = (out + a.phases - 1) / a.phases;
    return a;
}
/* where tap i of a phase is in its slot; negative: it is not of the phase */
static i64 shift_of(const struct axis *a, i64 phase, i64 i) {
    if (!a->turned) return i * a->apart / a->step;
    const i64 at = phase + a->zeros - i * a->apart;
    return at % a->step ? -1 : at / a->step - a->first;
}
/* the taps in the order in which their elements lie */
static i64 tap_of(const struct axis *a, i64 i) { return a->turned ? a->taps - 1 - i : i; }
/* the input's index of what is first in a slot, and how far it is to the next */
static i64 start_of(const struct axis *a, i64 slot) {
    return a->turned ? a->first : a->first + slot * a->apart % a->step;
}
static i64 pace_of(const struct axis *a) { return a->turned ? 1 : a->step; }
static i64 places_of(const struct axis *a, i64 phase) {
    return (a->out - phase + a->phases - 1) / a->phases;
}
/* where the elements of a phase's windows are, in lines as laid out; how many */
static i64 list_of(const struct axis *v, const struct axis *h, i64 phase_v, i64 phase_h,
                   i64 channels, i64 tall, i64 wide, i64 side, i64 *at) {
    i64 n = 0;
    for (i64 c = 0; c < channels; c++)
        for (i64 a = 0; a < v->taps; a++)
            for (i64 b = 0; b < h->taps; b++) {
                const i64 i = tap_of(v, a), j = tap_of(h, b);
                const i64 y = shift_of(v, phase_v, i), x = shift_of(h, phase_h, j);
                if (y < 0 || x < 0) continue;
                const i64 slot = (c * v->slots + i % v->slots) * h->slots + j % h->slots;
                at[n++] = ((slot * tall + y) * wide + x) * side;
            }
    at[n] = 0;
    return n;
}
"""

_TYPED = """
#ifdef __clang__
#define mixed_%(f)s(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define mixed_%(f)s(a, b, ...) __builtin_shuffle(a, b, ($I){__VA_ARGS__})
#endif
/* to[c * cs + r] = from[r * rs + c] */
static void across_%(f)s(const part_$F *from, i64 rs, part_$F *to, i64 cs, i64 rows, i64 cols) {
    i64 r = 0;
    for (; r + $W <= rows; r += $W) {
        i64 c = 0;
        for (; c + $W <= cols; c += $W) {
            const part_$F *s = from + r * rs + c; part_$F *t = to + c * cs + r;
            $F %(loads)s;
            $F a, b;
            %(turns)s
            %(stores)s
        }
        for (; c < cols; c++)
            for (i64 i = r; i < r + $W; i++) to[c * cs + i] = from[i * rs + c];
    }
    for (; r < rows; r++)
        for (i64 c = 0; c < cols; c++) to[c * cs + r] = from[r * rs + c];
}
static inline void copied_%(f)s(part_$F *to, const part_$F *s, i64 n) {
    i64 i = 0;
    for (; i + $W <= n; i += $W) *($F_u *)(to + i) = *(const $F_u *)(s + i);
    for (; i < n; i++) to[i] = s[i];
}
static inline void cleared_%(f)s(part_$F *to, i64 n) {
    i64 i = 0;
    for (; i + $W <= n; i += $W) *($F_u *)(to + i) = ($F){0};
    for (; i < n; i++) to[i] = 0;
}
/* a channel's slots, `tall` lines of each, for the result's lines from y on; `side` elements a
   cell */
static part_$F *laid_out_%(f)s(const struct axis *v, const struct axis *h, const part_$F *x, i64 y,
                               i64 tall, i64 wide, i64 side, part_$F *to) {
    const i64 down = pace_of(v), pace = pace_of(h);
    for (i64 up = 0; up < v->slots; up++)
        for (i64 slot = 0; slot < h->slots; slot++) {
            const i64 from = start_of(h, slot);
            i64 left = from < 0 ? (pace - 1 - from) / pace : 0;
            i64 right = h->in > from ? (h->in - from + pace - 1) / pace : 0;
            if (right > wide) right = wide;
            if (left > right) left = right;
            for (i64 r = 0; r < tall; r++, to += wide * side) {
                const i64 line = (y + r) * down + start_of(v, up);
                if (line < 0 || line >= v->in) { cleared_%(f)s(to, wide * side); continue; }
                const part_$F *s = x + (line * h->in + from) * side;
                cleared_%(f)s(to, left * side);
                if (pace == 1)
                    copied_%(f)s(to + left * side, s + left * side, (right - left) * side);
                else if (side == 1) for (i64 j = left; j < right; j++) to[j] = s[j * pace];
                else for (i64 j = left; j < right; j++)
                    copied_%(f)s(to + j * side, s + j * pace * side, side);
                cleared_%(f)s(to + right * side, (wide - right) * side);
            }
        }
    return to;
}
/* so many channels of the images from `x` on, `gap` from image to image; `cells` is room for one */
static part_$F *all_laid_out_%(f)s(const struct axis *v, const struct axis *h, const part_$F *x,
                                   i64 gap, i64 channels, i64 images, i64 y, i64 tall, i64 wide,
                                   i64 side, part_$F *cells, part_$F *to) {
    const i64 plane = v->in * h->in;
    if (images < side) cleared_%(f)s(cells, plane * side);
    for (i64 c = 0; c < channels; c++, x += plane) {
        if (side > 1) across_%(f)s(x, gap, cells, side, images, plane);
        to = laid_out_%(f)s(v, h, side > 1 ? cells : x, y, tall, wide, side, to);
    }
    return to;
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

_PANEL = """
/* the same with a laid out by k: rows of it side by side */
static void panel_%(f)s(i64 rows, part_$F *c, i64 cm, const part_$F *a, const part_$F *b,
                        const i64 *at, i64 n, int add) {
    switch (rows) {
    case %(full)d: %(tile_full)s(c, cm, a, 1, %(full)d, b, 0, at, n, add); break;
    case %(most)d: %(tile_most)s(c, cm, a, 1, %(most)d, b, 0, at, n, add); break;
    case %(few)d: %(tile_few)s(c, cm, a, 1, %(few)d, b, 0, at, n, add); break;
    default: %(tile_one)s(c, cm, a, 1, 1, b, 0, at, n, add);
    }
}
"""

_FORWARD = """
/* one phase of the windows of a piece: lines laid out, where elements are, their weights */
struct phase_%(f)s { const i64 *at; i64 deep, down, right; const part_$F *w; };
/* the weights of a phase: element k of filter f at to[k * by_k + f * by_f]; where they come from
   (channels, filters, taps), few channels at a time, to stay near */
static void weights_%(f)s(const struct windows *g, const struct axis *v, const struct axis *h,
                          const struct phase_%(f)s *s, const part_$F *w, i64 filters, part_$F *to,
                          i64 by_k, i64 by_f) {
    const i64 taps = v->taps * h->taps, each = s->deep / g->channels;
    i64 of[taps + 1];
    if (!g->turned) {
        for (i64 k = 0; k < s->deep; k++)
            for (i64 f = 0; f < filters; f++) to[k * by_k + f * by_f] = w[f * s->deep + k];
        return;
    }
    for (i64 a = 0, n = 0; a < v->taps; a++)
        for (i64 b = 0; b < h->taps; b++) {
            const i64 i = tap_of(v, a), j = tap_of(h, b);
            of[n] = i * h->taps + j;
            n += shift_of(v, s->down, i) >= 0 && shift_of(h, s->right, j) >= 0;
        }
    for (i64 first = 0; first < g->channels; first += 16)
        for (i64 f = 0; f < filters; f++)
            for (i64 k = first; k < first + 16 && k < g->channels; k++) {
                const part_$F *from = w + (k * g->filters + f) * taps;
                part_$F *t = to + f * by_f + k * each * by_k;
                for (i64 i = 0; i < each; i++) t[i * by_k] = from[of[i]];
            }
}
/* c, a tile of places of one image from p on, to where they are in the result */
static void spread_out_%(f)s(const struct windows *g, const struct axis *v, const struct axis *h,
                             const struct phase_%(f)s *s, const part_$F *c, const part_$F *bias,
                             i64 rows, i64 p, i64 places, i64 wide, part_$F *out) {
    const i64 end = p + %(two)d < places ? p + %(two)d : places, count = places_of(h, s->right);
    for (i64 i = p, line = p / wide, col = p %% wide; i < end; line++, col = 0) {
        const i64 n = end - i < wide - col ? end - i : wide - col;
        const i64 m = col + n > count ? count - col : n;
        for (i64 r = 0; r < rows; r++) {
            part_$F *to = out + (r * g->out_high + line * v->phases) * g->out_wide
                + col * h->phases;
            const part_$F *from = c + r * %(two)d + i - p;
            const $S b = bias ? bias[r] : 0;
            for (i64 j = 0; j < m; j++) to[j * h->phases] = from[j] + b;
        }
        i += n;
    }
}
/* the places of one phase, a tile each, for images side by side */
static void each_place_%(f)s(const struct windows *g, const struct axis *v, const struct axis *h,
                             const struct phase_%(f)s *s, const part_$F *w, const part_$F *bias,
                             i64 rows, i64 wide, const part_$F *plane, part_$F *stage) {
    const i64 side = g->side, cm = g->out_high * g->out_wide * side;
    const i64 lines = places_of(v, s->down), count = places_of(h, s->right) * side;
    part_$F c[%(full)d * %(two)d];
    if (side == %(two)d) {           /* in turns, so that a turn's lines stay in the cache */
        const i64 turns = (s->deep + 255) / 256;
        const i64 most = turns ? (s->deep + turns - 1) / turns : 0;
        i64 k = 0;
        do {
            const i64 n = s->deep - k < most ? s->deep - k : most;
            for (i64 line = 0; line < lines; line++) {
                part_$F *to = stage
                    + ((line * v->phases + s->down) * g->out_wide + s->right) * side;
                for (i64 p = 0; p < count; p += side, to += h->phases * side)
                    panel_%(f)s(rows, to, cm, w + k * rows, plane + line * wide * side + p,
                                s->at + k, n, k > 0);
            }
            k += most;
        } while (k < s->deep);
        for (i64 r = 0; bias && r < rows; r++)
            for (i64 line = 0; line < lines; line++) {
                part_$F *to = stage + r * cm
                    + ((line * v->phases + s->down) * g->out_wide + s->right) * side;
                for (i64 p = 0; p < count; p += side, to += h->phases * side) {
                    *($F_u *)to += bias[r];
                    *($F_u *)(to + $W) += bias[r];
                }
            }
        return;
    }
    for (i64 line = 0; line < lines; line++)
        for (i64 p = 0; p < count; p += %(two)d) {
            panel_%(f)s(rows, c, %(two)d, w, plane + line * wide * side + p, s->at, s->deep, 0);
            part_$F *to = stage + (line * v->phases + s->down) * g->out_wide * side;
            for (i64 j = 0; j < %(two)d && p + j < count; j += $W) {
                const i64 col = (p + j) / side * h->phases + s->right, image = (p + j) %% side;
                for (i64 r = 0; r < rows; r++) {
                    const $S b = bias ? bias[r] : 0;
                    *($F_u *)(to + r * cm + col * side + image)
                        = *($F_u *)(c + r * %(two)d + j) + b;
                }
            }
        }
}
void %(symbol)s(char **ptr, const i64 *st, i64 n0, i64 n1, const void *params) {
    const struct windows *g = params;
    const struct axis v = axis_of(g->high, g->out_high, g->kernel_high, g->zeros_high,
                                  g->apart_high, g->step_high, g->turned);
    const struct axis h = axis_of(g->wide, g->out_wide, g->kernel_wide, g->zeros_wide,
                                  g->apart_wide, g->step_wide, g->turned);
    const i64 taps = v.taps * h.taps, deep = g->channels * taps, phases = v.phases * h.phases;
    const i64 side = g->side, wide = h.count + h.span, cells = g->out_high * g->out_wide;
    const i64 bands = (v.count + g->lines - 1) / g->lines, blocks = (g->images + side - 1) / side;
    const i64 parts = (g->filters + g->some - 1) / g->some, planes = g->groups * g->filters;
    const i64 room = g->channels * v.slots * h.slots * (g->lines + v.span) * wide * side
        + 2 * %(two)d;
    const i64 copy = side > 1 ? v.in * h.in * side : 0, result = side > 1 ? cells * side : 0;
    const i64 own = g->turned || side > 1 ? g->some * deep : 0;
    i64 *at = __builtin_malloc(sizeof(i64) * (deep + phases) + sizeof(struct phase_%(f)s) * phases
                               + sizeof(part_$F) * (room + copy + %(full)d * result + own) + 64);
    if (!at) __builtin_trap();
    struct phase_%(f)s *each = (struct phase_%(f)s *)(at + deep + phases), *none = each + phases;
    part_$F *plane = (part_$F *)(((unsigned long)none + 63) / 64 * 64), *copied = plane + room;
    part_$F *stage = copied + copy;
    part_$F *turned = stage + %(full)d * result;
    const part_$F *at_hand = 0;              /* what `turned` was made from */
    cleared_%(f)s(plane + room - 2 * %(two)d, 2 * %(two)d);
    for (i64 piece = 0; piece < n1; piece++) {
        i64 number = *(const i64 *)(ptr[1] + piece * st[6]);
        const i64 y = number %% bands * g->lines; number /= bands;
        const i64 first = number %% blocks * side; number /= blocks;
        const i64 from = number %% parts * g->some, group = number / parts;
        const i64 images = g->images - first < side ? g->images - first : side;
        const i64 lines = v.count - y < g->lines ? v.count - y : g->lines, tall = lines + v.span;
        const i64 filters = g->filters - from < g->some ? g->filters - from : g->some;
        const i64 gap = g->groups * g->channels * v.in * h.in;
        const part_$F *bias = g->biased ? (const part_$F *)ptr[4] + group * g->filters + from : 0;
        const part_$F *w = (const part_$F *)ptr[3] + group * g->filters * deep;
        part_$F *out = (part_$F *)ptr[0]
            + (first * planes + group * g->filters + from) * cells;
        all_laid_out_%(f)s(&v, &h, (const part_$F *)ptr[2] + first * gap + group * gap / g->groups,
                           gap, g->channels, images, y, tall, wide, side, copied, plane);
        i64 *list = at, done = 0;
        for (i64 q = 0; q < phases; q++) {
            struct phase_%(f)s *s = each + q;
            s->at = list; s->down = q / h.phases; s->right = q %% h.phases;
            s->deep = list_of(&v, &h, s->down, s->right, g->channels, tall, wide, side, list);
            list += s->deep + 1;
            s->w = own ? turned + done : w + from * deep;
            const i64 some = side > 1 ? 0 : filters;      /* filters that lie together */
            for (i64 f = 0, rows; own && at_hand != w + from && f < filters; f += rows) {
                rows = some ? some : rows_%(f)s(filters - f);
                weights_%(f)s(g, &v, &h, s, w + (from + f) * (g->turned ? taps : deep), rows,
                              turned + done + f * s->deep, some ? 1 : rows, some ? s->deep : 1);
            }
            done += filters * s->deep;
        }
        at_hand = w + from;
        if (side > 1) {
            for (i64 f = 0, rows; f < filters; f += rows) {
                rows = rows_%(f)s(filters - f);
                for (struct phase_%(f)s *s = each; s < none; s++)
                    each_place_%(f)s(g, &v, &h, s, s->w + f * s->deep, bias ? bias + f : 0, rows,
                                     wide, plane, stage);
                for (i64 r = 0; r < rows; r++)
                    across_%(f)s(stage + r * result, side, out + (f + r) * cells, planes * cells,
                                 cells, images);
            }
            continue;
        }
        for (struct phase_%(f)s *s = each; s < none; s++) {
            i64 held = places_of(&v, s->down) - y;
            if (held > lines) held = lines;
            const i64 places = (held - 1) * wide + places_of(&h, s->right);
            part_$F c[%(full)d * %(two)d];
            for (i64 p = 0; held > 0 && p < places; p += %(two)d)
                for (i64 f = 0, rows; f < filters; f += rows) {
                    rows = rows_%(f)s(filters - f);
                    spread_b_%(f)s(rows, c, %(two)d, s->w + f * s->deep, s->deep, plane + p, 0,
                                   s->at, s->deep, 0);
                    spread_out_%(f)s(g, &v, &h, s, c, bias ? bias + f : 0, rows, p, places, wide,
                                     out + (f * g->out_high + y * v.phases + s->down) * g->out_wide
                                         + s->right);
                }
        }
    }
    __builtin_free(at);
}
"""

_WEIGHT = """
/* few filters fill no tile: their sums run along the places of one image, which lie in lines as
   wide as those of the plane */
static void along_%(f)s(const struct windows *g, const part_$F *s, i64 cells, i64 lines, i64 out,
                        i64 wide, const part_$F *plane, const i64 *at, i64 n, part_$F *slopes,
                        part_$F *sums) {
    const i64 places = (lines - 1) * wide + out;
    for (i64 f = 0; f < g->filters; f++, s += cells) {
        for (i64 i = 0; i < lines; i++) copied_%(f)s(slopes + i * wide, s + i * out, out);
        cleared_%(f)s(slopes + places, $W);
        for (i64 k = 0; k < n; k++) {
            const part_$F *x = plane + at[k];
            $F a = {0}, b = {0};
            i64 p = 0;
            for (; p + $W < places; p += 2 * $W) {
                a += *(const $F_u *)(slopes + p) * *(const $F_u *)(x + p);
                b += *(const $F_u *)(slopes + p + $W) * *(const $F_u *)(x + p + $W);
            }
            if (p < places) a += *(const $F_u *)(slopes + p) * *(const $F_u *)(x + p);
            a += b;
            $S sum = 0;
            for (int l = 0; l < $W; l++) sum += a[l];
            sums[k * g->filters + f] += sum;
        }
    }
}
void %(symbol)s(char **ptr, const i64 *st, i64 n0, i64 n1, const void *params) {
    const struct windows *g = params;
    const struct axis v = axis_of(g->high, g->out_high, g->kernel_high, g->zeros_high,
                                  g->apart_high, g->step_high, 0);
    const struct axis h = axis_of(g->wide, g->out_wide, g->kernel_wide, g->zeros_wide,
                                  g->apart_wide, g->step_wide, 0);
    const i64 taps = v.taps * h.taps, deep = g->channels * taps, side = g->side;
    const i64 wide = h.count + h.span, most = g->lines + v.span, cells = v.out * h.out;
    const int few = side == 1 && g->filters < $W / 2;
    const i64 all = few ? g->filters : (g->filters + %(two)d - 1) / %(two)d * %(two)d;
    const i64 size = g->some * taps;
    const i64 line = side > 1 ? h.out : wide, block = g->lines * line * side * %(two)d;
    const i64 room = g->some * v.slots * h.slots * most * wide * side + $W;
    const i64 copy = side > 1 ? v.in * h.in * side : 0;
    const i64 parts = (g->channels + g->some - 1) / g->some;
    const i64 held = few ? g->lines * wide + $W : block * (all / %(two)d);
    i64 *at = __builtin_malloc(sizeof(i64) * (size + 1) + sizeof(part_$F)
                               * (size * all + room + copy + held));
    if (!at) __builtin_trap();
    part_$F *sums = (part_$F *)(at + size + 1), *plane = sums + size * all, *copied = plane + room;
    part_$F *slopes = copied + copy;
    cleared_%(f)s(slopes, held);                            /* what is no place or filter stays 0 */
    for (i64 piece = 0; piece < n1; piece++) {
        const i64 number = *(const i64 *)(ptr[1] + piece * st[5]);
        const i64 group = number / parts, first = number %% parts * g->some;
        const i64 count = g->channels - first < g->some ? g->channels - first : g->some;
        const i64 gap = g->groups * g->channels * v.in * h.in;
        cleared_%(f)s(sums, size * all);
        for (i64 image = 0; image < g->images; image += side)
            for (i64 y = 0; y < v.out; y += g->lines) {
                const i64 images = g->images - image < side ? g->images - image : side;
                const i64 lines = v.out - y < g->lines ? v.out - y : g->lines;
                const i64 tall = lines + v.span, places = (lines - 1) * wide + h.out;
                const part_$F *x = (const part_$F *)ptr[3] + image * gap
                    + (group * g->channels + first) * v.in * h.in;
                part_$F *end = all_laid_out_%(f)s(&v, &h, x, gap, count, images, y, tall, wide,
                                                  side, copied, plane);
                cleared_%(f)s(end, $W);
                list_of(&v, &h, 0, 0, count, tall, wide, side, at);
                if (few) {
                    along_%(f)s(g, (const part_$F *)ptr[2] + y * h.out
                                + (image * g->groups + group) * g->filters * cells, cells, lines,
                                h.out, wide, plane, at, count * taps, slopes, sums);
                    continue;
                }
                for (i64 f = 0; f < g->filters; f += %(two)d)       /* places outermost */
                    for (i64 n = 0; n < images; n++) {
                        const i64 rows = g->filters - f < %(two)d ? g->filters - f : %(two)d;
                        const part_$F *s = (const part_$F *)ptr[2] + y * h.out
                            + (((image + n) * g->groups + group) * g->filters + f) * cells;
                        part_$F *to = slopes + f / %(two)d * block + n * %(two)d;
                        if (line == h.out)
                            across_%(f)s(s, cells, to, side * %(two)d, rows, lines * line);
                        else for (i64 i = 0; i < lines; i++)
                            across_%(f)s(s + i * h.out, cells, to + i * line * side * %(two)d,
                                         side * %(two)d, rows, h.out);
                    }
                for (i64 f = 0; f < all; f += %(two)d)
                    for (i64 k = 0, rows; k < count * taps; k += rows) {
                        rows = rows_%(f)s(count * taps - k);
                        part_$F *c = sums + k * all + f;
                        const part_$F *b = slopes + f / %(two)d * block;
                        if (side == 1) {
                            spread_a_%(f)s(rows, c, all, plane, 0, b, %(two)d, at + k, places, 1);
                            continue;
                        }
                        for (i64 i = 0; i < lines; i++)
                            for (i64 j = 0; j < h.out; j++, b += side * %(two)d)
                                spread_a_%(f)s(rows, c, all, plane + (i * wide + j) * side, 0, b,
                                               %(two)d, at + k, images, 1);
                    }
            }
        across_%(f)s(sums, all, (part_$F *)ptr[0] + group * g->filters * deep + first * taps, deep,
                     count * taps, g->filters);
    }
    __builtin_free(at);
}
"""


def _turning(lanes: int) -> dict[str, str]:
    """A square of vectors turned: at each step halves of blocks change places, in pairs of rows."""
    each, turns, d = range(lanes), [], lanes // 2
    while d:
        low = ", ".join(str(lanes + j - d if j & d else j) for j in each)
        high = ", ".join(str(lanes + j if j & d else j + d) for j in each)
        turns += [
            f"a = v{i}; b = v{i + d}; "
            f"v{i} = mixed_$F(a, b, {low}); v{i + d} = mixed_$F(a, b, {high});"
            for i in each
            if not i & d
        ]
        d //= 2
    return {
        "loads": ", ".join(f"v{i} = *(const $F_u *)(s + {i} * rs)" for i in each),
        "turns": "\n            ".join(turns),
        "stores": " ".join(f"*($F_u *)(t + {i} * cs) = v{i};" for i in each),
    }


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
    typed = {**pieces, **_turning(lanes_of(vector))}
    text.once(f"convolution {vector}", text.fill(_TYPED % typed, vector))
    text.once(f"{form} {vector}", text.fill(_PRODUCT % {**pieces, **tiles}, vector))
    if form == "spread_b":
        text.once(f"panel {vector}", text.fill(_PANEL % {**pieces, **tiles}, vector))
    body = _FORWARD if kind == "convolution" else _WEIGHT
    text.parts.append(text.fill(body % pieces, vector))
