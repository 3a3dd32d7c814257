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

from .target import Target

__all__ = ["DECLARATIONS", "STAMP", "support_text"]

_DECLARATIONS = """typedef long long i64;
typedef void map_loop(char *const *p, const i64 *step, i64 nv, const void *params);
/* loop: the vector loop; stream: the same with stores past the caches, or 0 */
struct map { map_loop *loop, *stream; const unsigned char *size; int nops, nout; i64 lanes; };
#define map_driver fl_map_driver_STAMP
void map_driver(const struct map *k, char *const *ptr, const i64 *st, i64 n0, i64 n1,
                const void *params);"""

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
        for (i64 i = 0; i < b1; i += 4) for (i64 j = 0; j < b0; j += 4) {
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
enum { BLOCK = 1024, TILE = 32, FAR = 8 << 20 };

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

/* tiles of TILE x TILE, inputs that lie along dimension 1 turned on the way */
static void map_tiles(const struct map *k, char *const *ptr, const i64 *st, i64 n0, i64 n1,
                      const void *params) {
    const int n = k->nops;
    char buf[n][TILE * TILE * 8] __attribute__((aligned(64)));
    char *p[n]; i64 step[n];
    for (i64 j = 0; j < n0; j += TILE) for (i64 i = 0; i < n1; i += TILE) {
        const i64 c = n0 - j < TILE ? n0 - j : TILE, r = n1 - i < TILE ? n1 - i : TILE;
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

STAMP = hashlib.sha256((_DECLARATIONS + _COPIES + _MAP_DRIVER).encode()).hexdigest()[:10]
DECLARATIONS = _DECLARATIONS.replace("STAMP", STAMP)


def support_text(target: Target) -> str:
    """The C that every kernel calls; one library of it must be loaded (globally) before them."""
    return DECLARATIONS + _COPIES + _MAP_DRIVER
