/* The engine of the random streams: MT19937 (Matsumoto and Nishimura, 1998), its words turned to
   uniforms, and blocks of normals. Included by random.c only.

   The loops are plain C, written so that the compiler makes vectors of them; each is compiled twice,
   for any x86-64 and for AVX2 with FMA, and the better one that the machine has is taken at start.
   Both give the same bits: every operation is an IEEE one, a fused multiply-add is written as fmaf,
   and contraction by the compiler is switched off. */
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("O3", "fp-contract=off", "no-math-errno", "no-trapping-math")
#endif

#define ALWAYS static inline __attribute__((always_inline))
#if defined(__x86_64__)
#define TWO_VARIANTS 1
#define WITH_FMA __attribute__((target("avx2,fma")))
#else
#define TWO_VARIANTS 0
#define WITH_FMA
#endif

#define WORDS 624
#define SHIFT 397

typedef struct {
    uint64_t seed;
    uint32_t word[WORDS];
    int32_t left;          /* words left in the block, and one: 1 says that it is used up */
    uint32_t next;         /* index of the word that comes next */
    double normal;         /* second value of the last pair of normals */
    float normal_f;        /* carried in the state for torch's sake; no draw reads it */
    uint8_t has_normal, has_normal_f;
} Stream;

/* ---- the twister ---- */
static void stream_seed(Stream *s, uint64_t seed) {
    uint32_t w = (uint32_t)seed;
    s->seed = seed;
    s->word[0] = w;
    for (uint32_t j = 1; j < WORDS; j++) s->word[j] = w = 1812433253u * (w ^ (w >> 30)) + j;
    s->left = 1;
    s->next = 0;
    s->normal = 0;
    s->normal_f = 0;
    s->has_normal = s->has_normal_f = 0;
}

ALWAYS uint32_t twist(uint32_t u, uint32_t v) {
    return (((u & 0x80000000u) | (v & 0x7fffffffu)) >> 1) ^ (-(v & 1u) & 0x9908b0dfu);
}
ALWAYS void advance_body(uint32_t *w) {
    for (int j = 0; j < WORDS - SHIFT; j++) w[j] = w[j + SHIFT] ^ twist(w[j], w[j + 1]);
    for (int j = WORDS - SHIFT; j < WORDS - 1; j++)
        w[j] = w[j - (WORDS - SHIFT)] ^ twist(w[j], w[j + 1]);
    w[WORDS - 1] = w[SHIFT - 1] ^ twist(w[WORDS - 1], w[0]);
}
ALWAYS uint32_t temper(uint32_t y) {
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}
ALWAYS void temper_words_body(const uint32_t *restrict w, uint32_t *restrict out, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = temper(w[i]);
}

/* ---- words to uniforms: the low 24 bits of one word, or the low 53 of two (high word first) ---- */
ALWAYS void unit_f32_body(const uint32_t *restrict w, float *restrict out, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = (float)(int32_t)(w[i] & 0xffffffu) * 0x1p-24f;
}
ALWAYS void unit_f64_body(const uint32_t *restrict w, double *restrict out, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        /* Each half becomes a double by its bits: no vector conversion from 64-bit integers in AVX2. */
        uint64_t high = (w[2 * i] & 0x1fffffu) | 0x4530000000000000u;
        uint64_t low = w[2 * i + 1] | 0x4330000000000000u;
        double h, l;
        memcpy(&h, &high, 8);
        memcpy(&l, &low, 8);
        out[i] = ((h - 0x1p84) + (l - 0x1p52)) * 0x1p-53;
    }
}
/* 53-bit draws below a threshold in 0 … 2^53. */
ALWAYS void below_body(const uint32_t *restrict w, uint8_t *restrict out, int64_t n, int64_t t) {
    for (int64_t i = 0; i < n; i++) {
        int64_t k = (int64_t)((uint64_t)(w[2 * i] & 0x1fffffu) << 32 | w[2 * i + 1]);
        out[i] = k < t;
    }
}
/* u * (b - a) + a with one rounding; what rounds up to b becomes a: the interval is half open. */
ALWAYS void affine_f32_body(float *x, int64_t n, float a, float b) {
    float range = b - a;
    for (int64_t i = 0; i < n; i++) {
        float v = fmaf(x[i], range, a);
        x[i] = v == b ? a : v;
    }
}
ALWAYS void affine_f64_body(double *x, int64_t n, double a, double b) {
    double range = b - a;
    for (int64_t i = 0; i < n; i++) {
        double v = fma(x[i], range, a);
        x[i] = v == b ? a : v;
    }
}

/* ---- blocks of sixteen normals in single precision (Box and Muller, 1958) ---- */
/* Logarithm in (0, 1], by Cephes' logf: x = m 2^e with m in [sqrt(1/2), sqrt(2)), a polynomial in m - 1. */
ALWAYS float log_unit(float x) {
    int32_t bits;
    memcpy(&bits, &x, 4);
    float e = (float)((bits >> 23) - 126), m;
    bits = (bits & 0x007fffff) | 0x3f000000;
    memcpy(&m, &bits, 4);
    int small = m < 0.707106781186547524f;
    float r = m - 1.0f;
    r = small ? r + m : r;
    e = small ? e - 1.0f : e;
    float z = r * r, y = 7.0376836292e-2f;
    y = fmaf(y, r, -1.1514610310e-1f);
    y = fmaf(y, r, 1.1676998740e-1f);
    y = fmaf(y, r, -1.2420140846e-1f);
    y = fmaf(y, r, 1.4249322787e-1f);
    y = fmaf(y, r, -1.6668057665e-1f);
    y = fmaf(y, r, 2.0000714765e-1f);
    y = fmaf(y, r, -2.4999993993e-1f);
    y = fmaf(y, r, 3.3333331174e-1f);
    y = y * r;
    y = fmaf(y, z, e * -2.12194440e-4f);
    y = fmaf(z, -0.5f, y);
    return fmaf(e, 0.693359375f, r + y);
}
/* Sine and cosine in [0, 2 pi), by Cephes' sinf and cosf: reduction by pi/4 in three steps. */
ALWAYS void sincos_turn(float x, float *sine, float *cosine) {
    int32_t j = (int32_t)(x * 1.27323954473516f);
    j = (j + 1) & ~1;
    float y = (float)j;
    x = fmaf(y, -0.78515625f, x);
    x = fmaf(y, -2.4187564849853515625e-4f, x);
    x = fmaf(y, -3.77489497744594108e-8f, x);
    float z = x * x;
    float c = fmaf(2.443315711809948e-5f, z, -1.388731625493765e-3f);
    c = fmaf(c, z, 4.166664568298827e-2f);
    c = c * z;
    c = fmaf(c, z, z * -0.5f) + 1.0f;
    float s = fmaf(-1.9515295891e-4f, z, 8.3321608736e-3f);
    s = fmaf(s, z, -1.6666654611e-1f);
    s = s * z;
    s = fmaf(s, x, x);
    int swap = (j & 2) != 0;
    float a = swap ? c : s, b = swap ? s : c;
    *sine = j & 4 ? -a : a;
    *cosine = (j - 2) & 4 ? b : -b;
}
/* In place: blocks of sixteen uniforms to sixteen normals; the first eight give the radii, the others
   the angles. In three sweeps, the middle one by hand: GCC makes no vectors of sqrtf while it keeps errno. */
ALWAYS void radii_body(float *x, int64_t blocks) {
    for (int64_t i = 0; i < blocks; i++, x += 16)
        for (int j = 0; j < 8; j++) x[j] = -2.0f * log_unit(1.0f - x[j]);
}
ALWAYS void angles_body(float *x, int64_t blocks, float mean, float std) {
    for (int64_t i = 0; i < blocks; i++, x += 16)
        for (int j = 0; j < 8; j++) {
            float radius = x[j], s, c;
            sincos_turn(6.283185307179586f * x[j + 8], &s, &c);
            x[j] = fmaf(radius * c, std, mean);
            x[j + 8] = fmaf(radius * s, std, mean);
        }
}
static void normal_f32_plain(float *x, int64_t blocks, float mean, float std) {
    radii_body(x, blocks);
    for (int64_t i = 0; i < blocks; i++)
        for (int j = 0; j < 8; j++) x[16 * i + j] = sqrtf(x[16 * i + j]);
    angles_body(x, blocks, mean, std);
}
WITH_FMA static void normal_f32_fma(float *x, int64_t blocks, float mean, float std) {
    radii_body(x, blocks);
    for (int64_t i = 0; i < blocks; i++)
#if TWO_VARIANTS
        _mm256_storeu_ps(x + 16 * i, _mm256_sqrt_ps(_mm256_loadu_ps(x + 16 * i)));
#else
        for (int j = 0; j < 8; j++) x[16 * i + j] = sqrtf(x[16 * i + j]);
#endif
    angles_body(x, blocks, mean, std);
}
static void (*normal_f32)(float *, int64_t, float, float) =
    TWO_VARIANTS ? normal_f32_plain : normal_f32_fma;

#define VARIANTS(name, params, args)                    \
    static void name##_plain params { name##_body args; } \
    WITH_FMA static void name##_fma params { name##_body args; } \
    static void(*name) params = TWO_VARIANTS ? name##_plain : name##_fma;
VARIANTS(advance, (uint32_t *w), (w))
VARIANTS(temper_words, (const uint32_t *w, uint32_t *out, int64_t n), (w, out, n))
VARIANTS(unit_f32, (const uint32_t *w, float *out, int64_t n), (w, out, n))
VARIANTS(unit_f64, (const uint32_t *w, double *out, int64_t n), (w, out, n))
VARIANTS(below, (const uint32_t *w, uint8_t *out, int64_t n, int64_t t), (w, out, n, t))
VARIANTS(affine_f32, (float *x, int64_t n, float a, float b), (x, n, a, b))
VARIANTS(affine_f64, (double *x, int64_t n, double a, double b), (x, n, a, b))

static void choose_variants(void) {
#if TWO_VARIANTS
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return;
    advance = advance_fma;
    temper_words = temper_words_fma;
    unit_f32 = unit_f32_fma;
    unit_f64 = unit_f64_fma;
    below = below_fma;
    affine_f32 = affine_f32_fma;
    affine_f64 = affine_f64_fma;
    normal_f32 = normal_f32_fma;
#endif
}

/* ---- drawing ---- */
/* Words that may be read before the twister must advance. A state from outside may disagree with
   itself (left and next); reading past the block is never an answer. */
static inline int64_t stream_ready(const Stream *s) {
    int64_t ready = s->left - 1, room = WORDS - (int64_t)s->next;
    return ready < room ? ready : room;
}
static void stream_advance(Stream *s) {
    advance(s->word);
    s->left = WORDS + 1;
    s->next = 0;
}
static inline uint32_t draw32(Stream *s) {
    if (stream_ready(s) <= 0) stream_advance(s);
    s->left--;
    return temper(s->word[s->next++]);
}
static inline uint64_t draw64(Stream *s) {
    uint64_t high = draw32(s);
    return high << 32 | draw32(s);
}
static inline double draw_f64(Stream *s) {
    return (double)(int64_t)(draw64(s) & ((1ull << 53) - 1)) * 0x1p-53;
}
static inline float draw_f32(Stream *s) {
    return (float)(int32_t)(draw32(s) & 0xffffffu) * 0x1p-24f;
}
static void draw_words(Stream *s, uint32_t *out, int64_t n) {
    while (n > 0) {
        int64_t ready = stream_ready(s);
        if (ready <= 0) {
            stream_advance(s);
            ready = WORDS;
        }
        if (ready > n) ready = n;
        temper_words(s->word + s->next, out, ready);
        s->next += (uint32_t)ready;
        s->left -= (int32_t)ready;
        out += ready;
        n -= ready;
    }
}
