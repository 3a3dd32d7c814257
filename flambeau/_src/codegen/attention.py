"""Attention in one walk over its heads: no score of a head leaves the caches.

softmax(scale q kᵀ) v and its gradients (Vaswani et al. 2017), a few rows of q at a time against all
columns that they see. Keys and values of a head are turned once; every product is then one
routine, `tile`: ROWS x 2 vectors of the result in registers, over one running index.

The functions are of the loop ABI: dimension 0 is what a head costs (all steps 0), dimension 1 the
heads. Operands are the first elements of each head, `params` the numbers of `struct attention`.
"""

from __future__ import annotations

from .fragments import Text, lanes_of
from .tiles import TILE_ROWS, tile

__all__ = ["KINDS", "print_attention"]

KINDS = ("attention", "attention_backward")

_BLOCK = 48  # rows of q whose weights the backward keeps at once: a whole number of tiles

_SHARED = """
/* rows of q and of k, length of a row; elements from row to row */
struct attention {
    i64 rows, columns, width, causal, q_row, k_row, v_row, out_row, lse_row, g_row, gq_row, gk_row,
        gv_row; double scale;
};
static inline i64 up(i64 n, i64 to) { return (n + to - 1) / to * to; }
static inline i64 seen(const struct attention *g, i64 row) {
    return g->causal && row + 1 < g->columns ? row + 1 : g->columns;
}
"""

_TYPED = """
static inline void times_$F(part_$F *to, const part_$F *from, i64 n, $S s) {
    const $F all = $(dup)(s);
    i64 e = 0;
    for (; e + $W <= n; e += $W) *($F_u *)(to + e) = *(const $F_u *)(from + e) * all;
    for (; e < n; e++) to[e] = from[e] * s;
}
/* dense copies of (rows, width): row after row, `wide` apart, times s; the rest up to `all` rows
   is 0 */
static void rows_of_$F(part_$F *to, i64 wide, const part_$F *from, i64 step, i64 rows, i64 width,
                       i64 all, $S s) {
    for (i64 i = 0; i < all; i++, to += wide, from += step) {
        const i64 n = i < rows ? width : 0;
        times_$F(to, from, n, s);
        for (i64 e = n; e < wide; e++) to[e] = 0;
    }
}
/* the same turned: to[e][row] */
static void turned_$F(part_$F *to, i64 wide, const part_$F *from, i64 step, i64 rows, i64 width) {
    for (i64 j = 0; j < wide; j += $W) {
        const i64 m = rows - j < $W ? rows - j : $W;
        for (i64 e = 0; e < width; e++) {
            $F v = ($F){0};
            for (i64 l = 0; l < m; l++) v[l] = from[(j + l) * step + e];
            *($F_u *)(to + e * wide + j) = v;
        }
    }
}
"""

_FORWARD = """
void %(symbol)s(char **ptr, const i64 *st, i64 n0, i64 n1, const void *params) {
    const struct attention *g = params;
    const i64 wide = up(g->columns, %(two)d), deep = up(g->width, %(two)d);
    const i64 room = wide * (g->width + deep + %(rows)d) + 2 * %(rows)d * deep;
    part_$F *kt = __builtin_malloc(sizeof(part_$F) * room);
    if (!kt) __builtin_trap();
    part_$F *v = kt + g->width * wide, *s = v + wide * deep, *q = s + %(rows)d * wide;
    part_$F *o = q + %(rows)d * deep;
    for (i64 h = 0; h < n1; h++) {
        part_$F *out = (part_$F *)(ptr[0] + h * st[5]), *lse = (part_$F *)(ptr[1] + h * st[6]);
        const part_$F *from = (const part_$F *)(ptr[2] + h * st[7]);
        turned_$F(kt, wide, (const part_$F *)(ptr[3] + h * st[8]), g->k_row, g->columns, g->width);
        rows_of_$F(v, deep, (const part_$F *)(ptr[4] + h * st[9]), g->v_row, g->columns, g->width,
                   wide, 1);
        for (i64 i = 0; i < g->rows; i += %(rows)d) {
            const i64 m = g->rows - i < %(rows)d ? g->rows - i : %(rows)d;
            const i64 most = up(seen(g, i + m - 1), %(two)d);
            rows_of_$F(q, deep, from + i * g->q_row, g->q_row, m, g->width, %(rows)d, ($S)g->scale);
            for (i64 j = 0; j < most; j += %(two)d)
                %(tile)s(s + j, wide, q, deep, 1, kt + j, wide, 0, g->width, 0);
            $S total[%(rows)d];
            for (i64 r = 0; r < m; r++) {
                part_$F *row = s + r * wide;
                const i64 n = seen(g, i + r);
                for (i64 j = n; j < most; j++) row[j] = -__builtin_inf();
                $F top = *(const $F_u *)row;
                for (i64 j = $W; j < most; j += $W) {
                    const $F x = *(const $F_u *)(row + j);
                    top = $(sel)(x > top, x, top);
                }
                $S highest = top[0];
                for (i64 l = 1; l < $W; l++) highest = top[l] > highest ? top[l] : highest;
                const $F high = $(dup)(highest);
                $F sum = ($F){0};
                for (i64 j = 0; j < most; j += $W) {
                    const $F e = $(exp)(*(const $F_u *)(row + j) - high);
                    *($F_u *)(row + j) = e;
                    sum += e;
                }
                total[r] = 0;
                for (i64 l = 0; l < $W; l++) total[r] += sum[l];
                lse[(i + r) * g->lse_row] = highest + $(log)($(dup)(total[r]))[0];
            }
            for (i64 e = 0; e < deep; e += %(two)d)
                %(tile)s(o + e, deep, s, wide, 1, v + e, deep, 0, most, 0);
            for (i64 r = 0; r < m; r++) {
                const $F by = $(dup)(total[r]);
                for (i64 e = 0; e < deep; e += $W) *($F_u *)(o + r * deep + e) /= by;
                times_$F(out + (i + r) * g->out_row, o + r * deep, g->width, 1);
            }
        }
    }
    __builtin_free(kt);
}
"""

_BACKWARD = """
void %(symbol)s(char **ptr, const i64 *st, i64 n0, i64 n1, const void *params) {
    const struct attention *g = params;
    const i64 wide = up(g->columns, %(two)d), deep = up(g->width, %(two)d);
    const i64 tall = up(wide, %(rows)d);
    const i64 line = wide + %(rows)d;    /* a tile may read beyond the last column: zeros */
    const i64 room = 2 * wide * g->width + (wide + 2 * tall) * deep
        + %(block)d * (2 * line + 3 * deep);
    part_$F *kt = __builtin_malloc(sizeof(part_$F) * room);
    if (!kt) __builtin_trap();
    part_$F *vt = kt + wide * g->width, *k = vt + wide * g->width, *gk = k + wide * deep;
    part_$F *gv = gk + tall * deep, *q = gv + tall * deep, *go = q + %(block)d * deep;
    part_$F *gq = go + %(block)d * deep, *p = gq + %(block)d * deep, *gs = p + %(block)d * line;
    __builtin_memset(p, 0, 2 * %(block)d * line * sizeof(part_$F));
    for (i64 h = 0; h < n1; h++) {
        const part_$F *at[6];           /* of g, q, k, v, out, lse */
        for (int a = 0; a < 6; a++) at[a] = (const part_$F *)(ptr[3 + a] + h * st[12 + a]);
        turned_$F(kt, wide, at[2], g->k_row, g->columns, g->width);
        turned_$F(vt, wide, at[3], g->v_row, g->columns, g->width);
        rows_of_$F(k, deep, at[2], g->k_row, g->columns, g->width, wide, 1);
        __builtin_memset(gk, 0, 2 * tall * deep * sizeof(part_$F));
        for (i64 i = 0; i < g->rows; i += %(block)d) {
            const i64 m = g->rows - i < %(block)d ? g->rows - i : %(block)d, all = up(m, %(rows)d);
            const i64 most = up(seen(g, i + m - 1), %(two)d);
            rows_of_$F(q, deep, at[1] + i * g->q_row, g->q_row, m, g->width, all, ($S)g->scale);
            rows_of_$F(go, deep, at[0] + i * g->g_row, g->g_row, m, g->width, all, 1);
            for (i64 r = 0; r < all; r += %(rows)d) {
                const i64 last = i + r + %(rows)d < g->rows ? i + r + %(rows)d : g->rows;
                const i64 far = up(seen(g, last - 1), %(two)d);
                for (i64 j = 0; j < far; j += %(two)d) {
                    %(tile)s(p + r * line + j, line, q + r * deep, deep, 1, kt + j, wide, 0,
                            g->width, 0);
                    %(tile)s(gs + r * line + j, line, go + r * deep, deep, 1, vt + j, wide, 0,
                            g->width, 0);
                }
            }
            for (i64 r = 0; r < all; r++) {
                part_$F *weight = p + r * line, *slope = gs + r * line;
                const i64 n = r < m ? seen(g, i + r) : 0;
                $S sum = 0, kept = 0;
                if (r < m) {
                    const part_$F *o = at[4] + (i + r) * g->out_row;
                    $F both = ($F){0};
                    i64 e = 0;
                    for (; e + $W <= g->width; e += $W)
                        both += *(const $F_u *)(go + r * deep + e) * *(const $F_u *)(o + e);
                    for (; e < g->width; e++) sum += go[r * deep + e] * o[e];
                    for (i64 l = 0; l < $W; l++) sum += both[l];
                    kept = at[5][(i + r) * g->lse_row];
                }
                const $F delta = $(dup)(sum), lse = $(dup)(kept);
                for (i64 j = 0; j < n; j += $W) {
                    const $F x = $(exp)(*(const $F_u *)(weight + j) - lse);
                    *($F_u *)(weight + j) = x;
                    *($F_u *)(slope + j) = x * (*(const $F_u *)(slope + j) - delta);
                }
                for (i64 j = n; j < most + %(rows)d; j++) weight[j] = slope[j] = 0;
            }
            for (i64 e = 0; e < deep; e += %(two)d) {
                for (i64 r = 0; r < all; r += %(rows)d) {
                    const i64 last = i + r + %(rows)d < g->rows ? i + r + %(rows)d : g->rows;
                    %(tile)s(gq + r * deep + e, deep, gs + r * line, line, 1, k + e, deep, 0,
                         seen(g, last - 1), 0);
                }
                for (i64 j = 0; j < most; j += %(rows)d) {
                    const i64 from = g->causal && j > i ? (j - i) / %(rows)d * %(rows)d : 0;
                    if (from >= all) break;
                    %(tile)s(gv + j * deep + e, deep, p + from * line + j, 1, line,
                         go + from * deep + e, deep, 0, all - from, 1);
                    %(tile)s(gk + j * deep + e, deep, gs + from * line + j, 1, line,
                         q + from * deep + e, deep, 0, all - from, 1);
                }
            }
            part_$F *to = (part_$F *)(ptr[0] + h * st[9]) + i * g->gq_row;
            for (i64 r = 0; r < m; r++)
                times_$F(to + r * g->gq_row, gq + r * deep, g->width, ($S)g->scale);
        }
        part_$F *tk = (part_$F *)(ptr[1] + h * st[10]), *tv = (part_$F *)(ptr[2] + h * st[11]);
        for (i64 j = 0; j < g->columns; j++) {
            times_$F(tk + j * g->gk_row, gk + j * deep, g->width, 1);
            times_$F(tv + j * g->gv_row, gv + j * deep, g->width, 1);
        }
    }
    __builtin_free(kt);
}
"""


def print_attention(text: Text, symbol: str, kind: str, vector: str) -> None:
    """Add the function of one of the `KINDS`, computed in the type of `vector`."""
    rows = TILE_ROWS[text.target.isa]
    pieces = {
        "two": 2 * lanes_of(vector),
        "rows": rows,
        "block": _BLOCK,
        "tile": tile(text, vector, rows),
    }
    text.once("attention", _SHARED)
    text.once(f"attention {vector}", text.fill(_TYPED % pieces, vector))
    body = _FORWARD if kind == "attention" else _BACKWARD
    text.parts.append(text.fill(body % {**pieces, "symbol": symbol}, vector))
