/* The type `Generator`: one random stream and the fills that draw from it. A fill takes an address, a
   number of elements laid out contiguously, a dtype code and the parameters of its distribution, and
   uses up the words of the stream exactly as torch's CPU kernels do. What a caller may ask for (ranges,
   dtypes, messages) is the operators' business; here a dtype that has no such fill is a ValueError.

   The GIL is the lock. A large fill works on a copy of the stream with the GIL released and puts the
   copy back at the end, so a process forked meanwhile finds a whole state; the mark of the fill in
   progress holds the process id, and a mark left by the parent counts for nothing in the child. */
#include "random.h"
#include "tape.h"
#include "random_engine.h"
#include <limits.h>
#include <unistd.h>

enum { U8, I8, I16, I32, I64, F16, F32, F64, C32, C64, C128, BOOL, BF16, F8E5, F8E4, U16, U32, U64 };
#define CHUNK 1024                /* elements worked on at once: buffers stay in the first cache */
#define GIL_FREE 8192             /* elements from which a fill lets other threads run */
#define STATE_BYTES 5056
#define DEFAULT_SEED 67280421310721ull
#define TWO_PI 6.283185307179586476925286766559
#define PI 3.141592653589793238462643383280

typedef struct {
    PyObject_HEAD
    Stream s;
    pid_t busy;                   /* process whose thread is filling from a copy, or 0 */
} Generator;

typedef struct {
    int dtype;
    int wide;                     /* two words an integer */
    int scalar;                   /* normals one by one */
    double a, b;
    int64_t base;
    uint64_t range;
    const char *source;           /* probabilities */
    int source_dtype;
    int64_t categories, samples;
} Job;
typedef void (*Fill)(Stream *, char *, int64_t, const Job *);

/* ---- stores ---- */
static inline uint32_t float_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}
static inline uint16_t to_bf16(float f) {
    uint32_t u = float_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fc0;
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}
static inline uint16_t to_f16(float f) {
    uint32_t u = float_bits(f), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (a >= 0x47800000u) return (uint16_t)(sign | 0x7c00u);
    if (a < 0x38800000u) {        /* subnormal: adding 1/2 aligns the mantissa and rounds it */
        float v;
        memcpy(&v, &a, 4);
        return (uint16_t)(sign | (float_bits(v + 0.5f) - 0x3f000000u));
    }
    return (uint16_t)(sign | ((a - 0x38000000u + 0xfffu + ((a >> 13) & 1)) >> 13));
}
static inline float from_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, e = (h >> 10) & 31, m = h & 0x3ffu, u;
    float v;
    if (!e) return (sign ? -1.0f : 1.0f) * (float)m * 0x1p-24f;
    u = sign | (e == 31 ? 0x7f800000u : (e + 112) << 23) | m << 13;
    memcpy(&v, &u, 4);
    return v;
}
static inline float from_bf16(uint16_t h) {
    uint32_t u = (uint32_t)h << 16;
    float v;
    memcpy(&v, &u, 4);
    return v;
}

#define EACH(type, expr) \
    { type *o = (type *)out; for (int64_t i = 0; i < n; i++) o[i] = (type)(expr); } break
/* Numbers of one C type to elements of any dtype; via float to the 16-bit floats, as a cast in torch. */
#define STORE(name, from)                                                        \
    static void name(int dtype, char *out, const from *v, int64_t n) {           \
        switch (dtype) {                                                         \
        case U8: EACH(uint8_t, (int64_t)v[i]);                                   \
        case I8: EACH(int8_t, (int64_t)v[i]);                                    \
        case U16: EACH(uint16_t, (int64_t)v[i]);                                 \
        case I16: EACH(int16_t, (int64_t)v[i]);                                  \
        case U32: EACH(uint32_t, (int64_t)v[i]);                                 \
        case I32: EACH(int32_t, (int64_t)v[i]);                                  \
        case U64: case I64: EACH(int64_t, v[i]);                                 \
        case BOOL: EACH(uint8_t, v[i] != 0);                                     \
        case F16: EACH(uint16_t, to_f16((float)v[i]));                           \
        case BF16: EACH(uint16_t, to_bf16((float)v[i]));                         \
        case F32: EACH(float, v[i]);                                             \
        case F64: EACH(double, v[i]);                                            \
        }                                                                        \
    }
STORE(store_f64, double)
STORE(store_f32, float)
STORE(store_i64, int64_t)
STORE(store_u8, uint8_t)

static const int8_t item_size[] = {1, 1, 2, 4, 8, 2, 4, 8, 4, 8, 16, 1, 2, 1, 1, 2, 4, 8};
static int is_real(int dtype) { return dtype == F16 || dtype == BF16 || dtype == F32 || dtype == F64; }
static int is_number(int dtype) { return item_size[dtype] <= 8 && dtype != C32 && dtype != C64 &&
                                         dtype != F8E5 && dtype != F8E4; }

#define CHUNKS(body)                                                       \
    for (int64_t k; n > 0; n -= k, out += k * item_size[job->dtype]) {     \
        k = n < CHUNK ? n : CHUNK;                                         \
        body                                                               \
    }

/* ---- integers ---- */
/* x % range without a division (Lemire, Kaser and Kurz, 2019), range < 2^32. */
static inline uint32_t fast_mod(uint32_t x, uint64_t inverse, uint32_t range) {
    return (uint32_t)((unsigned __int128)(inverse * x) * range >> 64);
}
static void mod_words(const uint32_t *w, int64_t *v, int64_t n, uint32_t range, int64_t base) {
    if (!(range & (range - 1))) {
        for (int64_t i = 0; i < n; i++) v[i] = (int64_t)((w[i] & (range - 1)) + (uint64_t)base);
        return;
    }
    uint64_t inverse = UINT64_MAX / range + 1;
    for (int64_t i = 0; i < n; i++) v[i] = (int64_t)(fast_mod(w[i], inverse, range) + (uint64_t)base);
}
/* base + draw % range; range 0 is all of 2^64. */
static void fill_range(Stream *s, char *out, int64_t n, const Job *job) {
    uint32_t w[2 * CHUNK];
    int64_t v[CHUNK];
    uint64_t range = job->range, base = (uint64_t)job->base;
    int wide = job->wide;
    CHUNKS({
        draw_words(s, w, wide ? 2 * k : k);
        if (!wide) mod_words(w, v, k, (uint32_t)range, job->base);
        else
            for (int64_t i = 0; i < k; i++) {
                uint64_t x = (uint64_t)w[2 * i] << 32 | w[2 * i + 1];
                v[i] = (int64_t)((range ? x % range : x) + base);
            }
        store_i64(job->dtype, out, v, k);
    })
}

static void fill_words(Stream *s, char *out, int64_t n, const Job *job) {
    draw_words(s, (uint32_t *)out, n);
}

/* ---- uniform ---- */
static void fill_uniform(Stream *s, char *out, int64_t n, const Job *job) {
    uint32_t w[2 * CHUNK];
    if (job->dtype == F64) {
        CHUNKS({
            draw_words(s, w, 2 * k);
            unit_f64(w, (double *)out, k);
            if (job->a != 0 || job->b != 1) affine_f64((double *)out, k, job->a, job->b);
        })
        return;
    }
    float x[CHUNK], a = (float)job->a, b = (float)job->b;
    int half = job->dtype == F16;
    CHUNKS({
        draw_words(s, w, k);
        if (job->dtype == F32) {
            unit_f32(w, (float *)out, k);
            if (a != 0 || b != 1) affine_f32((float *)out, k, a, b);
        } else {                  /* rounded before the upper end is looked for */
            uint16_t *o = (uint16_t *)out;
            uint16_t low = half ? to_f16(a) : to_bf16(a);
            uint16_t high = half ? to_f16(b) : to_bf16(b);
            unit_f32(w, x, k);
            for (int64_t i = 0; i < k; i++) {
                float v = fmaf(x[i], b - a, a);
                uint16_t r = half ? to_f16(v) : to_bf16(v);
                o[i] = r == high ? low : r;
            }
        }
    })
}

/* ---- normal ---- */
/* One normal in double precision; the second of each pair waits in the stream for the next call. */
static double draw_normal(Stream *s) {
    if (s->has_normal) {
        s->has_normal = 0;
        return s->normal;
    }
    double u1 = draw_f64(s), u2 = draw_f64(s);
    double radius = sqrt(-2.0 * log1p(-u2)), angle = TWO_PI * u1;
    s->normal = radius * sin(angle);
    s->has_normal = 1;
    return radius * cos(angle);
}
static void normal_one_by_one(Stream *s, char *out, int64_t n, const Job *job) {
    double v[CHUNK];
    CHUNKS({
        for (int64_t i = 0; i < k; i++) v[i] = fma(draw_normal(s), job->b, job->a);
        store_f64(job->dtype, out, v, k);
    })
}
static void normal_f64(double *x, double mean, double std) {
    for (int j = 0; j < 8; j++) {
        double radius = sqrt(-2.0 * log(1.0 - x[j])), angle = TWO_PI * x[j + 8];
        x[j] = fma(radius * cos(angle), std, mean);
        x[j + 8] = fma(radius * sin(angle), std, mean);
    }
}
/* Whole blocks of sixteen; when some elements remain, the last sixteen are drawn again. */
static void fill_normal(Stream *s, char *out, int64_t n, const Job *job) {
    if (n < 16 || job->scalar) {
        normal_one_by_one(s, out, n, job);
        return;
    }
    uint32_t w[2 * CHUNK];
    int dtype = job->dtype;
    int64_t rest = n % 16, per = dtype == F64 ? 2 : 1;
    char *last = out + (n - 16) * item_size[dtype];
    n -= rest;
    for (int again = 0; again < 2; again++) {
        CHUNKS({
            draw_words(s, w, per * k);
            if (dtype == F32) {
                unit_f32(w, (float *)out, k);
                normal_f32((float *)out, k / 16, (float)job->a, (float)job->b);
            } else if (dtype == F64) {
                unit_f64(w, (double *)out, k);
                for (int64_t i = 0; i < k; i += 16) normal_f64((double *)out + i, job->a, job->b);
            } else {
                float x[CHUNK];
                unit_f32(w, x, k);
                normal_f32(x, k / 16, (float)job->a, (float)job->b);
                store_f32(dtype, out, x, k);
            }
        })
        if (!rest || again) return;
        if (dtype == F32 || dtype == F64) draw_words(s, w, per * rest);   /* drawn, not used */
        out = last;
        n = 16;
    }
}

/* ---- Bernoulli ---- */
static void fill_bernoulli(Stream *s, char *out, int64_t n, const Job *job) {
    uint32_t w[2 * CHUNK];
    uint8_t v[CHUNK];
    int64_t threshold = (int64_t)ceil(job->a * 0x1p53);   /* k 2^-53 < p in integers */
    CHUNKS({
        draw_words(s, w, 2 * k);
        below(w, v, k, threshold);
        if (job->dtype == BOOL || job->dtype == U8) memcpy(out, v, (size_t)k);
        else store_u8(job->dtype, out, v, k);
    })
}
/* A probability an element: in single precision one word is drawn, in double two. */
static void fill_bernoulli_each(Stream *s, char *out, int64_t n, const Job *job) {
    uint32_t w[2 * CHUNK];
    uint8_t v[CHUNK];
    const char *p = job->source;
    int dtype = job->source_dtype;
    CHUNKS({
        if (dtype == F64) {
            double u[CHUNK];
            const double *q = (const double *)p;
            draw_words(s, w, 2 * k);
            unit_f64(w, u, k);
            for (int64_t i = 0; i < k; i++) v[i] = u[i] < q[i];
        } else {
            float u[CHUNK];
            draw_words(s, w, k);
            unit_f32(w, u, k);
            for (int64_t i = 0; i < k; i++) {
                float q = dtype == F32 ? ((const float *)p)[i]
                        : dtype == F16 ? from_f16(((const uint16_t *)p)[i])
                                       : from_bf16(((const uint16_t *)p)[i]);
                v[i] = u[i] < q;
            }
        }
        p += k * item_size[dtype];
        store_u8(job->dtype, out, v, k);
    })
}

/* ---- the others: one 53-bit uniform an element, in double precision ---- */
#define FROM_UNIT(name, expr)                                                    \
    static void name(Stream *s, char *out, int64_t n, const Job *job) {          \
        uint32_t w[2 * CHUNK];                                                   \
        double v[CHUNK], a = job->a, b = job->b;                                 \
        (void)b;                                                                 \
        CHUNKS({                                                                 \
            draw_words(s, w, 2 * k);                                             \
            unit_f64(w, v, k);                                                   \
            for (int64_t i = 0; i < k; i++) v[i] = expr;                         \
            store_f64(job->dtype, out, v, k);                                    \
        })                                                                       \
    }
FROM_UNIT(fill_exponential, -1.0 / a * log1p(-v[i]))
FROM_UNIT(fill_geometric, ceil(log(v[i]) / log1p(-a)))
FROM_UNIT(fill_cauchy, fma(b, tan(PI * (v[i] - 0.5)), a))

static void fill_log_normal(Stream *s, char *out, int64_t n, const Job *job) {
    double v[CHUNK];
    CHUNKS({
        for (int64_t i = 0; i < k; i++) v[i] = exp(fma(draw_normal(s), job->b, job->a));
        store_f64(job->dtype, out, v, k);
    })
}

/* ---- Poisson: from 10 on the transformed rejection of W. Hormann, "The transformed rejection method
   for generating Poisson random variables", Insurance: Mathematics and Economics 12 (1993), PTRS;
   below it a product of uniforms. ---- */
static double draw_poisson(Stream *s, double rate) {
    if (rate >= 10) {
        double log_rate = log(rate), b = 0.931 + 2.53 * sqrt(rate), a = -0.059 + 0.02483 * b;
        double inverse = 1.1239 + 1.1328 / (b - 3.4), v_r = 0.9277 - 3.6224 / (b - 2);
        for (;;) {
            double u = draw_f64(s) - 0.5, v = draw_f64(s), us = 0.5 - fabs(u);
            double k = floor((2 * a / us + b) * u + rate + 0.43);
            if (us >= 0.07 && v <= v_r) return k;
            if (k < 0 || (us < 0.013 && v > us)) continue;
            if (log(v) + log(inverse) - log(a / (us * us) + b) <= -rate + k * log_rate - lgamma(k + 1)) return k;
        }
    }
    if (rate == 0) return 0;
    double limit = exp(-rate), product = 1;
    for (int64_t k = 0;; k++)
        if ((product *= draw_f64(s)) <= limit) return (double)k;
}
/* A rate, in double precision, an element. */
static void fill_poisson(Stream *s, char *out, int64_t n, const Job *job) {
    const double *rate = (const double *)job->source;
    double v[CHUNK];
    CHUNKS({
        for (int64_t i = 0; i < k; i++) v[i] = draw_poisson(s, *rate++);
        store_f64(job->dtype, out, v, k);
    })
}

/* ---- permutations (Fisher and Yates) and choices ---- */
#define SHUFFLE(type)                                                              \
    {                                                                              \
        type *o = (type *)out + done, t;                                           \
        for (int64_t i = 0; i < k; i++) t = o[i], o[i] = o[i + at[i]], o[i + at[i]] = t; \
    } break
#define INSIDE_OUT(type)                                                           \
    {                                                                              \
        type *o = (type *)out;                                                     \
        for (int64_t i = 0; i < k; i++)                                            \
            o[done + i] = o[at[i]], o[at[i]] = (type)(done + i);                   \
    } break
/* From about 2^27.7 elements on, where a 32-bit draw would favour some places by 5 %: two words a
   draw, and each number is put into the part that is already shuffled. */
static void fill_large_permutation(Stream *s, char *out, int64_t n, const Job *job) {
    uint32_t w[2 * CHUNK];
    int64_t at[CHUNK];
    for (int64_t done = 0, k; done < n; done += k) {
        k = n - done < CHUNK ? n - done : CHUNK;
        draw_words(s, w, 2 * k);
        for (int64_t i = 0; i < k; i++)
            at[i] = (int64_t)(((uint64_t)w[2 * i] << 32 | w[2 * i + 1]) % (uint64_t)(done + i + 1));
        switch (job->dtype) {
        case I32: case U32: INSIDE_OUT(int32_t);
        case F32: INSIDE_OUT(float);
        case F64: INSIDE_OUT(double);
        default: INSIDE_OUT(int64_t);
        }
    }
}
static void fill_permutation(Stream *s, char *out, int64_t n, const Job *job) {
    uint32_t w[CHUNK];
    int64_t at[CHUNK];
    int size = item_size[job->dtype];
    if (n >= UINT32_MAX / 20 && size >= 4) {
        fill_large_permutation(s, out, n, job);
        return;
    }
    for (int64_t done = 0, k; done < n; done += k) {
        k = n - done < CHUNK ? n - done : CHUNK;
        for (int64_t i = 0; i < k; i++) at[i] = done + i;
        store_i64(job->dtype, out + done * size, at, k);
    }
    for (int64_t done = 0, k; done < n - 1; done += k) {
        k = n - 1 - done < CHUNK ? n - 1 - done : CHUNK;
        draw_words(s, w, k);
        for (int64_t i = 0; i < k; i++) at[i] = w[i] % (uint32_t)(n - done - i);
        switch (size) {
        case 1: SHUFFLE(uint8_t);
        case 2: SHUFFLE(uint16_t);
        case 4: SHUFFLE(uint32_t);
        default: SHUFFLE(uint64_t);
        }
    }
}
/* Choices with replacement, a row of `categories` weights for each `samples` outputs: the running sums
   in the dtype of the weights (single precision for the 16-bit floats), then a bisection for each draw.
   A bad row stops the fill; the answer says why (see choices). */
#define CHOOSE(type, weight)                                                         \
    static int choose_##type(Stream *s, int64_t *out, type *sums, const Job *job) {  \
        type total = 0;                                                              \
        int64_t m = job->categories;                                                 \
        for (int64_t j = 0; j < m; j++) {                                            \
            type p = weight;                                                         \
            if (!(p >= 0)) return 1;                                                 \
            if (!isfinite(p)) return 2;                                              \
            sums[j] = total += p;                                                    \
        }                                                                            \
        if (!(total > 0)) return 3;                                                  \
        for (int64_t j = 0; j < m; j++) sums[j] /= total;                            \
        for (int64_t i = 0; i < job->samples; i++) {                                 \
            double u = draw_f64(s);                                                  \
            int64_t low = 0, high = m;                                               \
            sums[m - 1] = 1;                                                         \
            while (low < high) {                                                     \
                int64_t mid = low + (high - low) / 2;                                \
                if (sums[mid] < u) low = mid + 1;                                    \
                else high = mid;                                                     \
            }                                                                        \
            out[i] = low;                                                            \
        }                                                                            \
        return 0;                                                                    \
    }
#define WEIGHT(type, j) ((const type *)job->source)[j]
CHOOSE(double, WEIGHT(double, j))
CHOOSE(float, job->source_dtype == F32   ? WEIGHT(float, j)
              : job->source_dtype == F16 ? from_f16(WEIGHT(uint16_t, j))
                                         : from_bf16(WEIGHT(uint16_t, j)))
static int fill_choices(Stream *s, int64_t *out, int64_t rows, Job *job, void *sums) {
    for (int64_t r = 0; r < rows; r++, out += job->samples) {
        int bad = job->source_dtype == F64 ? choose_double(s, out, sums, job)
                                           : choose_float(s, out, sums, job);
        if (bad) return bad;
        job->source += job->categories * item_size[job->source_dtype];
    }
    return 0;
}

/* ---- the type ---- */
static void wait_idle(Generator *g) {
    while (g->busy && g->busy == getpid()) {
        Py_BEGIN_ALLOW_THREADS
        usleep(50);
        Py_END_ALLOW_THREADS
    }
    g->busy = 0;
}
static PyObject *run(Generator *g, Fill fill, char *out, int64_t n, const Job *job) {
    if (!out && n > 0) {
        PyErr_SetString(PyExc_ValueError, "a fill of a tensor without bytes");
        return NULL;
    }
    wait_idle(g);
    if (n < GIL_FREE) {
        if (n > 0) fill(&g->s, out, n, job);
        Py_RETURN_NONE;
    }
    Stream copy = g->s;
    g->busy = getpid();
    Py_BEGIN_ALLOW_THREADS
    fill(&copy, out, n, job);
    Py_END_ALLOW_THREADS
    g->s = copy;
    g->busy = 0;
    Py_RETURN_NONE;
}

/* Positional arguments by a letter each: p address, n count or number, t dtype code, d double; those
   after | may be left out. 0, or -1 with an exception. */
static int take(const char *name, const char *letters, PyObject *const *args, Py_ssize_t count, ...) {
    const char *bar = strchr(letters, '|');
    Py_ssize_t most = (Py_ssize_t)strlen(letters) - (bar != NULL);
    Py_ssize_t least = bar ? bar - letters : most;
    if (count < least || count > most) {
        PyErr_Format(PyExc_TypeError, "%s() takes %zd to %zd arguments, got %zd", name, least, most,
                     count);
        return -1;
    }
    va_list into;
    va_start(into, count);
    for (Py_ssize_t i = 0; i < count; i++) {
        char letter = letters[i + (bar && i >= least)];
        if (letter == 'p') *va_arg(into, char **) = PyLong_AsVoidPtr(args[i]);
        else if (letter == 'd') *va_arg(into, double *) = PyFloat_AsDouble(args[i]);
        else if (letter == 'n') *va_arg(into, int64_t *) = PyLong_AsLongLong(args[i]);
        else {
            long code = PyLong_AsLong(args[i]);
            if (!PyErr_Occurred() && (code < 0 || code > U64 || !is_number((int)code)))
                PyErr_Format(PyExc_ValueError, "%s() is not defined for dtype code %ld", name, code);
            *va_arg(into, int *) = (int)code;
        }
        if (PyErr_Occurred()) break;
    }
    va_end(into);
    return PyErr_Occurred() ? -1 : 0;
}
static int need_real(const char *name, int dtype) {
    if (is_real(dtype)) return 0;
    PyErr_Format(PyExc_ValueError, "%s() is not defined for dtype code %d", name, dtype);
    return -1;
}

#define METHOD(name) static PyObject *name(Generator *g, PyObject *const *args, Py_ssize_t count)
METHOD(g_random) {
    char *out;
    int64_t n;
    Job job = {0};
    if (take("random", "pnt", args, count, &out, &n, &job.dtype) < 0) return NULL;
    switch (job.dtype) {
    case U8: job.range = 1u << 8; break;
    case I8: job.range = 1u << 7; break;
    case I16: job.range = 1u << 15; break;
    case I32: job.range = 1u << 31; break;
    case I64: job.range = 1ull << 63; break;
    case BOOL: job.range = 2; break;
    case F16: job.range = (1u << 11) + 1; break;
    case BF16: job.range = (1u << 8) + 1; break;
    case F32: job.range = (1u << 24) + 1; break;
    case F64: job.range = (1ull << 53) + 1; break;
    default:
        PyErr_Format(PyExc_ValueError, "random() is not defined for dtype code %d", job.dtype);
        return NULL;
    }
    job.wide = job.dtype == I64 || job.dtype == F64;
    return run(g, fill_range, out, n, &job);
}
METHOD(g_random_range) {
    char *out;
    int64_t n;
    Job job = {0};
    if (count == 5) {
        job.range = PyLong_AsUnsignedLongLong(args[4]);
        if (PyErr_Occurred()) return NULL;
        count = 4;
    }
    if (take("random_range", "pntn", args, count, &out, &n, &job.dtype, &job.base) < 0) return NULL;
    job.wide = job.range == 0 || job.range >= 1u << 28;
    return run(g, fill_range, out, n, &job);
}
METHOD(g_uniform) {
    char *out;
    int64_t n;
    Job job = {.b = 1};
    if (take("uniform", "pnt|dd", args, count, &out, &n, &job.dtype, &job.a, &job.b) < 0 ||
        need_real("uniform", job.dtype) < 0) return NULL;
    return run(g, fill_uniform, out, n, &job);
}
METHOD(g_normal) {
    char *out;
    int64_t n, scalar = 0;
    Job job = {.b = 1};
    if (take("normal", "pnt|ddn", args, count, &out, &n, &job.dtype, &job.a, &job.b, &scalar) < 0 ||
        need_real("normal", job.dtype) < 0) return NULL;
    job.scalar = scalar != 0;
    return run(g, fill_normal, out, n, &job);
}
METHOD(g_log_normal) {
    char *out;
    int64_t n;
    Job job = {.a = 1, .b = 2};
    if (take("log_normal", "pnt|dd", args, count, &out, &n, &job.dtype, &job.a, &job.b) < 0 ||
        need_real("log_normal", job.dtype) < 0) return NULL;
    return run(g, fill_log_normal, out, n, &job);
}
METHOD(g_cauchy) {
    char *out;
    int64_t n;
    Job job = {.b = 1};
    if (take("cauchy", "pnt|dd", args, count, &out, &n, &job.dtype, &job.a, &job.b) < 0 ||
        need_real("cauchy", job.dtype) < 0) return NULL;
    return run(g, fill_cauchy, out, n, &job);
}
METHOD(g_exponential) {
    char *out;
    int64_t n;
    Job job = {.a = 1};
    if (take("exponential", "pnt|d", args, count, &out, &n, &job.dtype, &job.a) < 0 ||
        need_real("exponential", job.dtype) < 0) return NULL;
    return run(g, fill_exponential, out, n, &job);
}
METHOD(g_geometric) {
    char *out;
    int64_t n;
    Job job = {0};
    if (take("geometric", "pntd", args, count, &out, &n, &job.dtype, &job.a) < 0) return NULL;
    return run(g, fill_geometric, out, n, &job);
}
METHOD(g_bernoulli) {
    char *out;
    int64_t n;
    Job job = {.a = 0.5};
    if (take("bernoulli", "pnt|d", args, count, &out, &n, &job.dtype, &job.a) < 0) return NULL;
    if (!(job.a >= 0 && job.a <= 1)) {
        PyErr_SetString(PyExc_ValueError, "bernoulli() takes a probability in [0, 1]");
        return NULL;
    }
    return run(g, fill_bernoulli, out, n, &job);
}
METHOD(g_bernoulli_each) {
    char *out, *p;
    int64_t n;
    Job job = {0};
    if (take("bernoulli_each", "pntpt", args, count, &out, &n, &job.dtype, &p, &job.source_dtype) < 0 ||
        need_real("bernoulli_each", job.source_dtype) < 0) return NULL;
    job.source = p;
    return run(g, fill_bernoulli_each, out, n, &job);
}
METHOD(g_poisson) {
    char *out, *rates;
    int64_t n;
    Job job = {0};
    if (take("poisson", "pntp", args, count, &out, &n, &job.dtype, &rates) < 0 ||
        need_real("poisson", job.dtype) < 0) return NULL;
    job.source = rates;
    return run(g, fill_poisson, out, n, &job);
}
METHOD(g_permutation) {
    char *out;
    int64_t n;
    Job job = {0};
    if (take("permutation", "pnt", args, count, &out, &n, &job.dtype) < 0) return NULL;
    return run(g, fill_permutation, out, n, &job);
}
METHOD(g_choices) {
    char *out, *p;
    int64_t rows;
    Job job = {0};
    if (take("choices", "pnptnn", args, count, &out, &rows, &p, &job.source_dtype, &job.categories,
             &job.samples) < 0 || need_real("choices", job.source_dtype) < 0) return NULL;
    if (job.categories < 1) {
        PyErr_SetString(PyExc_ValueError, "choices() takes one category or more");
        return NULL;
    }
    job.source = p;
    void *sums = PyMem_RawMalloc((size_t)job.categories * sizeof(double));
    if (!sums) return PyErr_NoMemory();
    wait_idle(g);
    Stream copy = g->s;
    int bad;
    g->busy = getpid();
    Py_BEGIN_ALLOW_THREADS
    bad = fill_choices(&copy, (int64_t *)out, rows, &job, sums);
    Py_END_ALLOW_THREADS
    g->s = copy;
    g->busy = 0;
    PyMem_RawFree(sums);
    return PyLong_FromLong(bad);
}
METHOD(g_words) {
    char *out;
    int64_t n;
    Job job = {0};
    if (take("words", "pn", args, count, &out, &n) < 0) return NULL;
    job.dtype = U32;
    return run(g, fill_words, out, n, &job);
}
static PyObject *g_random64(Generator *g, PyObject *unused) {
    wait_idle(g);
    return PyLong_FromUnsignedLongLong(draw64(&g->s));
}

/* ---- seed and state ---- */
static PyObject *g_manual_seed(Generator *g, PyObject *seed) {
    int overflow;
    uint64_t value;
    if (!PyLong_Check(seed) || PyBool_Check(seed)) {
        if (!strncmp(Py_TYPE(seed)->tp_name, "numpy.", 6) && PyIndex_Check(seed))
            PyErr_SetString(PyExc_TypeError, "an integer is required");
        else
            PyErr_Format(PyExc_RuntimeError, "manual_seed expected a long, but got %s",
                         Py_TYPE(seed)->tp_name);
        return NULL;
    }
    long long v = PyLong_AsLongLongAndOverflow(seed, &overflow);
    value = (uint64_t)v;
    if (overflow > 0) value = PyLong_AsUnsignedLongLong(seed);
    if (overflow < 0 || PyErr_Occurred()) {
        PyErr_SetString(PyExc_ValueError, "Overflow when unpacking long long");
        return NULL;
    }
    wait_idle(g);
    stream_seed(&g->s, value);
    return Py_NewRef((PyObject *)g);
}
static PyObject *g_initial_seed(Generator *g, PyObject *unused) {
    return PyLong_FromUnsignedLongLong(g->s.seed);
}

/* The layout of the state, in bytes: seed 0, left 8, seeded 12, next 16, words (8 bytes each) 24,
   unused 5016, second normal 5024, unused 5032, its presence 5040; the same for a float 5048, 5052. */
enum { AT_LEFT = 8, AT_SEEDED = 12, AT_NEXT = 16, AT_WORDS = 24, AT_NORMAL = 5024, AT_HAS = 5040,
       AT_NORMAL_F = 5048, AT_HAS_F = 5052 };
static void pack(const Stream *s, char *b) {
    int32_t one = 1, has = s->has_normal;
    uint64_t next = s->next;
    memset(b, 0, STATE_BYTES);
    memcpy(b, &s->seed, 8);
    memcpy(b + AT_LEFT, &s->left, 4);
    memcpy(b + AT_SEEDED, &one, 4);
    memcpy(b + AT_NEXT, &next, 8);
    for (int j = 0; j < WORDS; j++) memcpy(b + AT_WORDS + 8 * j, &(uint64_t){s->word[j]}, 8);
    if (has) memcpy(b + AT_NORMAL, &s->normal, 8);
    memcpy(b + AT_HAS, &has, 4);
    if (s->has_normal_f) memcpy(b + AT_NORMAL_F, &s->normal_f, 4);
    b[AT_HAS_F] = (char)s->has_normal_f;
}
static PyObject *unpack(Generator *g, const char *b, int64_t length) {
    Stream s = {0};
    int32_t seeded, has;
    uint64_t next, word;
    if (length != STATE_BYTES)
        return PyErr_Format(PyExc_RuntimeError,
                            "Expected a CPUGeneratorImplState of size %d but found the input RNG "
                            "state size to be %lld", STATE_BYTES, (long long)length);
    memcpy(&s.seed, b, 8);
    memcpy(&s.left, b + AT_LEFT, 4);
    memcpy(&seeded, b + AT_SEEDED, 4);
    memcpy(&next, b + AT_NEXT, 8);
    if (!seeded || s.left < 1 || s.left > WORDS || next > WORDS) {
        PyErr_SetString(PyExc_RuntimeError, "Invalid mt19937 state");
        return NULL;
    }
    s.next = (uint32_t)next;
    for (int j = 0; j < WORDS; j++) {
        memcpy(&word, b + AT_WORDS + 8 * j, 8);
        s.word[j] = (uint32_t)word;
    }
    memcpy(&has, b + AT_HAS, 4);
    s.has_normal = has != 0;
    s.has_normal_f = b[AT_HAS_F] != 0;
    if (s.has_normal) memcpy(&s.normal, b + AT_NORMAL, 8);
    if (s.has_normal_f) memcpy(&s.normal_f, b + AT_NORMAL_F, 4);
    wait_idle(g);
    g->s = s;
    Py_RETURN_NONE;
}
static PyObject *g_state_bytes(Generator *g, PyObject *unused) {
    wait_idle(g);
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, STATE_BYTES);
    if (bytes) pack(&g->s, PyBytes_AS_STRING(bytes));
    return bytes;
}
static PyObject *g_set_state_bytes(Generator *g, PyObject *state) {
    Py_buffer view;
    if (PyObject_GetBuffer(state, &view, PyBUF_SIMPLE) < 0) return NULL;
    PyObject *done = unpack(g, view.buf, view.len);
    PyBuffer_Release(&view);
    return done;
}
METHOD(g_state_to) {
    char *out;
    if (take("state_to", "p", args, count, &out) < 0) return NULL;
    wait_idle(g);
    pack(&g->s, out);
    Py_RETURN_NONE;
}
METHOD(g_state_from) {
    char *state;
    int64_t length;
    if (take("state_from", "pn", args, count, &state, &length) < 0) return NULL;
    return unpack(g, state, length);
}

static PyObject *g_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    Generator *g = (Generator *)type->tp_alloc(type, 0);
    if (g) stream_seed(&g->s, DEFAULT_SEED);
    return (PyObject *)g;
}

/* Fills as a tape sees them: noted, and repeated with fresh draws. */
#define FILL(name) static PyObject *t_##name(Generator *g, PyObject *const *a, Py_ssize_t n) { \
    return fl_tape ? fl_taped_fill((PyObject *)g, #name, a, n) : g_##name(g, a, n); }
FILL(random)
FILL(random_range)
FILL(uniform)
FILL(normal)
FILL(log_normal)
FILL(cauchy)
FILL(exponential)
FILL(geometric)
FILL(bernoulli)
FILL(bernoulli_each)
FILL(permutation)
#define FAST(name, doc) {#name, (PyCFunction)(void (*)(void))g_##name, METH_FASTCALL, PyDoc_STR(doc)}
#define TAPED(name, doc) {#name, (PyCFunction)(void (*)(void))t_##name, METH_FASTCALL, PyDoc_STR(doc)}
static PyMethodDef methods[] = {
    {"manual_seed", (PyCFunction)g_manual_seed, METH_O,
     PyDoc_STR("manual_seed(seed) -> self: seeds with an integer in [-2**63, 2**64).")},
    {"initial_seed", (PyCFunction)g_initial_seed, METH_NOARGS,
     PyDoc_STR("initial_seed() -> int: the seed last given.")},
    {"state_bytes", (PyCFunction)g_state_bytes, METH_NOARGS,
     PyDoc_STR("state_bytes() -> bytes: the whole state, 5056 bytes.")},
    {"set_state_bytes", (PyCFunction)g_set_state_bytes, METH_O,
     PyDoc_STR("set_state_bytes(state): takes what state_bytes gave, or any buffer of its bytes.")},
    FAST(state_to, "state_to(address): writes the 5056 bytes of the state there."),
    FAST(state_from, "state_from(address, n): takes the state from n bytes there."),
    {"random64", (PyCFunction)g_random64, METH_NOARGS,
     PyDoc_STR("random64() -> int: two words, the first one high.")},
    FAST(words, "words(address, n): raw 32-bit words."),
    TAPED(random, "random(address, n, dtype): integers of the dtype's own range."),
    TAPED(random_range, "random_range(address, n, dtype, base, range): base + draw % range; range 0 "
                       "stands for 2**64."),
    TAPED(uniform, "uniform(address, n, dtype, low=0, high=1)"),
    TAPED(normal, "normal(address, n, dtype, mean=0, std=1, scalar=0): scalar forces one by one."),
    TAPED(log_normal, "log_normal(address, n, dtype, mean=1, std=2)"),
    TAPED(cauchy, "cauchy(address, n, dtype, median=0, sigma=1)"),
    TAPED(exponential, "exponential(address, n, dtype, rate=1)"),
    TAPED(geometric, "geometric(address, n, dtype, p)"),
    TAPED(bernoulli, "bernoulli(address, n, dtype, p=0.5)"),
    TAPED(bernoulli_each, "bernoulli_each(address, n, dtype, p_address, p_dtype)"),
    FAST(poisson, "poisson(address, n, dtype, rates_address): rates are float64."),
    TAPED(permutation, "permutation(address, n, dtype): 0 ... n - 1 shuffled."),
    FAST(choices, "choices(address, rows, p_address, p_dtype, categories, samples) -> int: int64 "
                  "indices drawn with replacement; 0 done, 1 a negative weight or NaN, 2 infinity, "
                  "3 a row without weight."),
    {NULL}};
static PyTypeObject GeneratorType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "flambeau._src._native.Generator",
    .tp_basicsize = sizeof(Generator),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_doc = PyDoc_STR("A random stream of the CPU: state, seed, and fills of raw memory."),
    .tp_methods = methods,
    .tp_new = g_new,
};

int fl_random_init(PyObject *module) {
    choose_variants();
    if (PyType_Ready(&GeneratorType) < 0) return -1;
    return PyModule_AddObjectRef(module, "Generator", (PyObject *)&GeneratorType);
}
