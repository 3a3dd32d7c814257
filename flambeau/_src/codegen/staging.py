"""The C around the vector loops: it gives a loop contiguous pointers whatever the strides are.

A vector loop sees, per operand, a pointer and a step in bytes (a whole vector, or 0 for a
broadcast value). ``map_driver`` walks the two dimensions of the loop ABI: operands that lie
contiguous are used where they are; others are gathered into small buffers first, by blocks; an
input that is contiguous along the *other* dimension is transposed in tiles; the remainder that
does not fill a vector goes through the buffers too.

It is by far the larger part of the C, so it is a text of its own, compiled once: ``support_text``.
Kernels see ``DECLARATIONS`` and call it by names that carry a hash of it, so that a cached kernel
never meets another version.
"""

from __future__ import annotations

import hashlib

__all__ = ["DECLARATIONS", "STAMP", "support_text"]

_DECLARATIONS = """typedef long long i64;
typedef void map_loop(char *const *p, const i64 *step, i64 nv, const void *params);
/* loop: the vector loop; stream: the same with stores past the caches, or 0 */
struct map { map_loop *loop, *stream; const unsigned char *size; int nops, nout; i64 lanes; };
#define map_driver fl_map_driver_STAMP
void map_driver(const struct map *k, char *const *ptr, const i64 *st, i64 n0, i64 n1,
                const void *params);
struct rows;
typedef void rows_loop(const struct rows *k, char *const *ptr, const i64 *st, i64 n0, i64 n1,
                       const void *params, char *kept, i64 slot, char *buf);
/* along, across: see rows.py; nkept values of kept_size bytes an element pass between passes */
struct rows {
    rows_loop *along, *across;
    const unsigned char *size, *per_row;
    int nops, nout; i64 lanes; int nkept, kept_size, passes;
};
/* vectors of a row read in one go (a block of its sums), bytes of those (a vector has at most 64),
   vectors of rows side by side; the longest rows whose sums are as in twice the precision, in each
   of the two loops (across, arithmetic takes the time) */
enum { RUN = 128, BUFFER = 64 * RUN, ABREAST = 16, FINE_ALONG = 64, FINE_ACROSS = 15 };
#define row_driver fl_row_driver_STAMP
#define row_segment fl_row_segment_STAMP
#define row_flush fl_row_flush_STAMP
#define row_put fl_row_put_STAMP
#define row_rest fl_row_rest_STAMP
#define row_abreast fl_row_abreast_STAMP
#define row_few fl_row_few_STAMP
#define row_direct fl_row_direct_STAMP
void row_driver(const struct rows *k, char *const *ptr, const i64 *st, i64 n0, i64 n1,
                const void *params);
i64 row_segment(const struct rows *k, char *const *q, const i64 *st, i64 j, i64 n0, char *buf,
                char **p, i64 *step);
void row_flush(const struct rows *k, char *const *q, const i64 *st, i64 j, i64 m, char *const *p);
void row_put(char *d, i64 stride, const char *s, i64 n, int size);
char *row_rest(char *to, const char *s, i64 n);
i64 row_abreast(const struct rows *k, i64 n0, int passes);
int row_few(const struct rows *k, const i64 *st, i64 n0, i64 n1);
int row_direct(const struct rows *k, const i64 *st);
/* where vectors of rows are read: in place, or at the end of an operand from a buffer */
static inline char *row_at(char *s, i64 bytes, char *end, char *buf) {
    return __builtin_expect(s + bytes <= end, 1) ? s : row_rest(buf, s, end - s);
}"""

_COPIES = r"""
#define EACH_SIZE(DO) switch (size) { \
    case 1: DO(unsigned char) break; case 2: DO(unsigned short) break; \
    case 4: DO(unsigned int) break; default: DO(unsigned long long) break; }

/* d[i1][i0] = s at strides (s0, s1), d dense with rows of ld elements */
static void gather(char *d, i64 ld, const char *s, i64 s0, i64 s1, i64 n0, i64 n1, int size) {
    if (s0 == size) {
        for (i64 i = 0; i < n1; i++) __builtin_memcpy(d + i * ld * size, s + i * s1, n0 * size);
        return;
    }
#define GATHER(T) { typedef T U __attribute__((aligned(1), may_alias)); \
    for (i64 i = 0; i < n1; i++) { U *to = (U *)d + i * ld; const char *from = s + i * s1; \
        for (i64 j = 0; j < n0; j++) to[j] = *(const U *)(from + j * s0); } }
    EACH_SIZE(GATHER)
}
static void scatter(char *d, i64 d0, i64 d1, const char *s, i64 ld, i64 n0, i64 n1, int size) {
    if (d0 == size) {
        for (i64 i = 0; i < n1; i++) __builtin_memcpy(d + i * d1, s + i * ld * size, n0 * size);
        return;
    }
#define SCATTER(T) { typedef T U __attribute__((aligned(1), may_alias)); \
    for (i64 i = 0; i < n1; i++) { const U *from = (const U *)s + i * ld; char *to = d + i * d1; \
        for (i64 j = 0; j < n0; j++) *(U *)(to + j * d0) = from[j]; } }
    EACH_SIZE(SCATTER)
}

/* as gather, for s contiguous along dimension 1 (s1 == size): square blocks in registers */
typedef unsigned int tr4 __attribute__((vector_size(16)));
typedef unsigned int tr4_u __attribute__((vector_size(16), aligned(1), may_alias));
static void transpose(char *d, i64 ld, const char *s, i64 s0, i64 n0, i64 n1, int size) {
    i64 b0 = 0, b1 = 0;
#ifndef __clang__
    if (size == 4) {
        b0 = n0 & ~3; b1 = n1 & ~3;
        for (i64 j = 0; j < b0; j += 4) for (i64 i = 0; i < b1; i += 4) {
            const char *p = s + j * s0 + i * 4;
            tr4 a = *(const tr4_u *)p, b = *(const tr4_u *)(p + s0);
            tr4 c = *(const tr4_u *)(p + 2 * s0), e = *(const tr4_u *)(p + 3 * s0);
            tr4 ab = __builtin_shuffle(a, b, (tr4){0, 4, 1, 5});
            tr4 ah = __builtin_shuffle(a, b, (tr4){2, 6, 3, 7});
            tr4 ce = __builtin_shuffle(c, e, (tr4){0, 4, 1, 5});
            tr4 ch = __builtin_shuffle(c, e, (tr4){2, 6, 3, 7});
            char *q = d + (i * ld + j) * 4;
            *(tr4_u *)q = __builtin_shuffle(ab, ce, (tr4){0, 1, 4, 5});
            *(tr4_u *)(q + ld * 4) = __builtin_shuffle(ab, ce, (tr4){2, 3, 6, 7});
            *(tr4_u *)(q + ld * 8) = __builtin_shuffle(ah, ch, (tr4){0, 1, 4, 5});
            *(tr4_u *)(q + ld * 12) = __builtin_shuffle(ah, ch, (tr4){2, 3, 6, 7});
        }
    }
#endif
#define TURN(T) { typedef T U __attribute__((aligned(1), may_alias)); \
    for (i64 j = 0; j < n0; j++) { const U *from = (const U *)(s + j * s0); U *to = (U *)d + j; \
        for (i64 i = j < b0 ? b1 : 0; i < n1; i++) to[i * ld] = from[i]; } }
    EACH_SIZE(TURN)
}
"""

_MAP_DRIVER = r"""
enum { BLOCK = 1024, TILE0 = 256, TILE1 = 16, FAR = 8 << 20 };

/* n0 x n1 elements (at most BLOCK, or n0 < lanes), every operand through a buffer */
static void map_staged(const struct map *k, char *const *ptr, const i64 *st, i64 n0, i64 n1,
                       const void *params) {
    const int n = k->nops;
    char buf[n][BLOCK * 8] __attribute__((aligned(64)));
    char *p[n]; i64 step[n];
    const i64 total = n0 * n1, nv = (total + k->lanes - 1) / k->lanes;
    for (int a = 0; a < n; a++) {
        const int size = k->size[a];
        p[a] = buf[a]; step[a] = k->lanes * size;
        if (a < k->nout) continue;
        gather(buf[a], n0, ptr[a], st[a], st[n + a], n0, n1, size);
        __builtin_memset(buf[a] + total * size, 0, (nv * k->lanes - total) * size);
    }
    k->loop(p, step, nv, params);
    for (int a = 0; a < k->nout; a++)
        scatter(ptr[a], st[a], st[n + a], buf[a], n0, n0, n1, k->size[a]);
}

/* the rows one after the other */
static void map_rows(const struct map *k, char *const *ptr, const i64 *st, i64 n0, i64 n1,
                     const void *params) {
    const int n = k->nops;
    const i64 full = n0 - n0 % k->lanes;
    char *p[n], *q[n]; i64 step[n]; int staged = 0;
    for (int a = 0; a < n; a++) staged |= st[a] != k->size[a] && st[a] != 0;
    char buf[n][staged ? BLOCK * 8 : 64 * 8] __attribute__((aligned(64)));
    for (i64 i = 0; i < n1; i++) {
        for (int a = 0; a < n; a++) {
            const int size = k->size[a];
            q[a] = ptr[a] + i * st[n + a];
            step[a] = k->lanes * size;
            if (st[a] == 0) {
                step[a] = 0; p[a] = buf[a];
                if (i == 0 || st[n + a]) gather(buf[a], 0, q[a], 0, 0, k->lanes, 1, size);
            }
        }
        for (i64 j = 0, m; j < full; j += m) {
            m = staged && full - j > BLOCK ? BLOCK : full - j;
            for (int a = 0; a < n; a++) {
                const int size = k->size[a];
                if (st[a] == size) p[a] = q[a] + j * size;
                else if (st[a]) {
                    p[a] = buf[a];
                    if (a >= k->nout) gather(buf[a], 0, q[a] + j * st[a], st[a], 0, m, 1, size);
                }
            }
            if (k->stream && !staged && m * k->size[0] >= FAR && (i64)p[0] % 64 == 0)
                k->stream(p, step, m / k->lanes, params);
            else
                k->loop(p, step, m / k->lanes, params);
            for (int a = 0; staged && a < k->nout; a++)
                if (st[a] != k->size[a])
                    scatter(q[a] + j * st[a], st[a], 0, buf[a], 0, m, 1, k->size[a]);
        }
        if (full < n0) {
            for (int a = 0; a < n; a++) q[a] += full * st[a];
            map_staged(k, q, st, n0 - full, 1, params);
        }
    }
}

/* tiles of TILE0 x TILE1, inputs that lie along dimension 1 turned on the way */
static void map_tiles(const struct map *k, char *const *ptr, const i64 *st, i64 n0, i64 n1,
                      const void *params) {
    const int n = k->nops;
    char buf[n][TILE0 * TILE1 * 8] __attribute__((aligned(64)));
    char *p[n]; i64 step[n];
    for (i64 j = 0; j < n0; j += TILE0) for (i64 i = 0; i < n1; i += TILE1) {
        const i64 c = n0 - j < TILE0 ? n0 - j : TILE0, r = n1 - i < TILE1 ? n1 - i : TILE1;
        const int edge = c % k->lanes != 0;
        for (int a = 0; a < n; a++) {
            const int size = k->size[a];
            const char *s = ptr[a] + j * st[a] + i * st[n + a];
            step[a] = k->lanes * size;
            if (a < k->nout || (st[a] == size && !edge)) continue;
            if (st[n + a] == size && st[a]) transpose(buf[a], c, s, st[a], c, r, size);
            else gather(buf[a], c, s, st[a], st[n + a], c, r, size);
            if (edge) __builtin_memset(buf[a] + r * c * size, 0, k->lanes * size);
        }
        for (i64 row = 0; row < (edge ? 1 : r); row++) {
            for (int a = 0; a < n; a++)
                p[a] = st[a] == k->size[a] && !edge
                    ? ptr[a] + j * st[a] + (i + row) * st[n + a] : buf[a] + row * c * k->size[a];
            k->loop(p, step, edge ? (r * c + k->lanes - 1) / k->lanes : c / k->lanes, params);
        }
        for (int a = 0; a < k->nout; a++)
            if (edge || st[a] != k->size[a])
                scatter(ptr[a] + j * st[a] + i * st[n + a], st[a], st[n + a], buf[a], c, c, r,
                        k->size[a]);
    }
}

void map_driver(const struct map *k, char *const *ptr, const i64 *st, i64 n0, i64 n1,
                       const void *params) {
    const int n = k->nops;
    int dense = n1 > 1, turned = 0;
    if (n0 <= 0 || n1 <= 0) return;
    for (int a = 0; a < n; a++) {
        dense &= st[n + a] == st[a] * n0;
        turned |= a >= k->nout && st[n + a] == k->size[a] && st[a] != k->size[a] && st[a];
    }
    if (dense) { n0 *= n1; n1 = 1; }
    if (k->stream && n1 == 1 && n0 * k->size[0] >= FAR && st[0] == k->size[0]) {
        const i64 off = (i64)ptr[0] & 63, head = (64 - off) / k->size[0];
        if (off && off % k->size[0] == 0) {
            char *q[n];
            map_rows(k, ptr, st, head, 1, params);
            for (int a = 0; a < n; a++) q[a] = ptr[a] + head * st[a];
            map_rows(k, q, st, n0 - head, 1, params);
            return;
        }
    }
    if (turned && n0 >= 8 && n1 >= 8) map_tiles(k, ptr, st, n0, n1, params);
    else if (n1 > 1 && n0 < 4 * k->lanes) {
        const i64 rows = BLOCK / n0;
        char *q[n];
        for (i64 i = 0; i < n1; i += rows) {
            for (int a = 0; a < n; a++) q[a] = ptr[a] + i * st[n + a];
            map_staged(k, q, st, n0, n1 - i < rows ? n1 - i : rows, params);
        }
    } else map_rows(k, ptr, st, n0, n1, params);
}
"""

_ROW_DRIVER = r"""
void *malloc(unsigned long);
void free(void *);

void row_put(char *d, i64 stride, const char *s, i64 n, int size) {
    scatter(d, stride, 0, s, 0, n, 1, size);
}
/* the n bytes that are left of an operand whose vectors reach past its end */
char *row_rest(char *to, const char *s, i64 n) {
    if (n > 0) __builtin_memcpy(to, s, n);
    return to;
}
/* whether several elements of one vector of rows may be taken at a time: see rows.py */
int row_few(const struct rows *k, const i64 *st, i64 n0, i64 n1) {
    int few = n1 <= k->lanes && n0 >= 16;
    for (int a = 0; a < k->nops; a++)
        if (!k->per_row[a])
            few &= st[k->nops + a] == k->size[a] && st[a] >= k->size[a] && st[a] <= BUFFER / 8;
    return few;
}
/* whether a row can be read and written where it lies (or has one value all along) */
int row_direct(const struct rows *k, const i64 *st) {
    for (int a = 0; a < k->nops; a++)
        if (!k->per_row[a] && st[a] != k->size[a] && (a < k->nout || st[a])) return 0;
    return 1;
}
/* vectors of rows side by side: all of a block's data should stay in the second-level cache */
i64 row_abreast(const struct rows *k, i64 n0, int passes) {
    i64 bytes = 0, most;
    if (passes < 2) return ABREAST;
    for (int a = 0; a < k->nops; a++) if (!k->per_row[a]) bytes += k->size[a];
    bytes += k->nkept * k->kept_size;
    most = (1 << 19) / (n0 * bytes * k->lanes + 1);
    return most < 1 ? 1 : most < ABREAST ? most : ABREAST;
}

/* pointers and steps for the next elements of a row from j on; returns how many: whole vectors,
   or fewer than one at the end of the row */
i64 row_segment(const struct rows *k, char *const *q, const i64 *st, i64 j, i64 n0, char *buf,
                char **p, i64 *step) {
    const i64 w = k->lanes;
    i64 m = n0 - j;
    const int tail = m < w;
    if (!tail) { m -= m % w; if (m > w * RUN) m = w * RUN; }
    for (int a = 0; a < k->nops; a++) {
        const int size = k->size[a];
        char *to = buf + (i64)a * BUFFER;
        step[a] = w * size;
        p[a] = to;
        if (k->per_row[a]) step[a] = 0;
        else if (st[a] == size && !tail) p[a] = q[a] + j * size;
        else if (a < k->nout) continue;
        else if (st[a] == 0) step[a] = 0; /* spread when the row began */
        else {
            gather(to, 0, q[a] + j * st[a], st[a], 0, m, 1, size);
            if (tail) __builtin_memset(to + m * size, 0, (w - m) * size);
        }
    }
    return m;
}
void row_flush(const struct rows *k, char *const *q, const i64 *st, i64 j, i64 m, char *const *p) {
    for (int a = 0; a < k->nout; a++)
        if (!k->per_row[a] && p[a] != q[a] + j * st[a])
            scatter(q[a] + j * st[a], st[a], 0, p[a], 0, m, 1, k->size[a]);
}

enum { TURN = 4096 };
/* short rows: a tile of them is turned so that a vector holds the same element of many rows */
static void row_turned(const struct rows *k, char *const *ptr, const i64 *st, i64 n0, i64 n1,
                       const void *params, char *kept, i64 slot, char *buf) {
    const int n = k->nops;
    i64 rows = TURN / n0, s[2 * n];
    char *p[n], *tile[n];
    char turned[n][TURN * 8] __attribute__((aligned(64)));
    rows -= rows % k->lanes;
    if (rows > 256) rows = 256;
    for (i64 i = 0; i < n1; i += rows) {
        const i64 r = n1 - i < rows ? n1 - i : rows;
        for (int a = 0; a < n; a++) {
            const int size = k->size[a];
            p[a] = ptr[a] + i * st[n + a];
            s[a] = st[a]; s[n + a] = st[n + a];
            tile[a] = p[a];
            if (k->per_row[a] || st[a] == 0 || st[n + a] == 0) continue;
            tile[a] = turned[a]; s[a] = rows * size; s[n + a] = size;
            if (a >= k->nout) transpose(turned[a], rows, p[a], st[n + a], r, n0, size);
        }
        k->across(k, tile, s, n0, r, params, kept, slot, buf);
        for (int a = 0; a < k->nout; a++)
            if (tile[a] != p[a])
                scatter(p[a], st[n + a], st[a], turned[a], rows, r, n0, k->size[a]);
    }
}

/* rows that lie in the other order or with gaps: a few at a time are made dense */
static void row_dense(const struct rows *k, char *const *ptr, const i64 *st, i64 n0, i64 n1,
                      const void *params, char *kept, i64 slot, char *buf) {
    const int n = k->nops;
    const i64 ld = (n0 + 15) & ~15LL;
    i64 s[2 * n], at = 0, offset[n];
    char *p[n], *q[n], *heap;
    for (int a = 0; a < n; a++) {
        const int size = k->size[a];
        s[a] = st[a]; s[n + a] = st[n + a];
        offset[a] = -1;
        if (k->per_row[a] || st[a] == size || st[a] == 0) continue;
        offset[a] = at; at += 16 * ld * size;
        s[a] = size; s[n + a] = ld * size;
    }
    heap = malloc(at + 64);
    for (i64 i = 0; i < n1; i += 16) {
        const i64 r = n1 - i < 16 ? n1 - i : 16;
        for (int a = 0; a < n; a++) {
            p[a] = q[a] = ptr[a] + i * st[n + a];
            if (offset[a] < 0) continue;
            q[a] = heap + offset[a];
            if (a < k->nout) continue;
            if (st[n + a] == k->size[a]) transpose(q[a], ld, p[a], st[a], n0, r, k->size[a]);
            else gather(q[a], ld, p[a], st[a], st[n + a], n0, r, k->size[a]);
        }
        k->along(k, q, s, n0, r, params, kept, slot, buf);
        for (int a = 0; a < k->nout; a++) {
            if (offset[a] < 0) continue;
            if (st[n + a] == k->size[a] && st[a] % k->size[a] == 0)
                transpose(p[a], st[a] / k->size[a], q[a], ld * k->size[a], r, n0, k->size[a]);
            else scatter(p[a], st[a], st[n + a], q[a], ld, n0, r, k->size[a]);
        }
    }
    free(heap);
}

void row_driver(const struct rows *k, char *const *ptr, const i64 *st, i64 n0, i64 n1,
                const void *params) {
    const int n = k->nops;
    int full_out = 0, across = 1, inner = 1, turnable = 1;
    i64 done = 0;
    if (n1 <= 0) return;
    for (int a = 0; a < n; a++) {
        const int size = k->size[a], spread = a >= k->nout;
        if (k->per_row[a]) continue;
        full_out |= a < k->nout;
        across &= st[n + a] == size || (spread && st[n + a] == 0);
        inner &= st[a] == size || (spread && st[a] == 0);
        turnable &= (st[a] == size && st[n + a] != size)
            || (spread && (st[n + a] == 0 || (st[a] == 0 && st[n + a] == size)));
    }
    if (n0 > 0 && across && (!inner || n0 == 1) && (n1 >= k->lanes || (!full_out && n0 > 8)))
        done = full_out ? n1 - n1 % k->lanes : n1;
    else if (n1 >= k->lanes && n0 > 0 && turnable && n0 <= 64) {
        done = n1 - n1 % k->lanes; across = 0;
    }
    if (!k->across) done = 0;        /* made for other strides, and right for all */
    char buf[(i64)n * BUFFER] __attribute__((aligned(64)));
    char local[k->nkept ? 65536 : 64] __attribute__((aligned(64))), *kept = local, *heap = 0;
    const i64 abreast = done ? row_abreast(k, n0, k->passes) : 1;
    const i64 slot = ((n0 + 1) * k->lanes * abreast * k->kept_size + 63) & ~63LL;
    const i64 short_slot = ((n0 + k->lanes) * k->kept_size + 63) & ~63LL;
    const i64 want = k->nkept * (done ? slot : short_slot);
    if (want > 65536) {
        heap = malloc(want + 64);
        kept = heap + (64 - ((i64)heap & 63));
    }
    if (done) {
        rows_loop *loop = across ? k->across : row_turned;
        loop(k, ptr, st, n0, done, params, kept, slot, buf);
    }
    if (done < n1) {
        char *q[n];
        for (int a = 0; a < n; a++) q[a] = ptr[a] + done * st[n + a];
        rows_loop *loop = inner || n1 - done < 4 || n0 < 64 || n0 > 65536 ? k->along : row_dense;
        loop(k, q, st, n0, n1 - done, params, kept, done ? slot : short_slot, buf);
    }
    if (heap) free(heap);
}
"""

_ALL = _DECLARATIONS + _COPIES + _MAP_DRIVER + _ROW_DRIVER
STAMP = hashlib.sha256(_ALL.encode()).hexdigest()[:10]
DECLARATIONS = _DECLARATIONS.replace("STAMP", STAMP)


def support_text() -> str:
    """The C that every kernel calls; one library of it must be loaded (globally) before them."""
    return DECLARATIONS + _COPIES + _MAP_DRIVER + _ROW_DRIVER
