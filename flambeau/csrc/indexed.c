/* Moves and sums through an index: what gather, scatter, x[tensor], embedding and their kin come
   down to. Three operands are walked together; the place in the second one is moved by the index. */
#include "native.h"
#include "numbers.h"
#include <complex.h>

enum { GET, PUT, ADD, MUL, MIN, MAX };
typedef struct { uint64_t x, y; } Wide;
typedef struct {
    int op, code, item, nd, split, idx64;
    int64_t size[FL_MAXDIM], sa[FL_MAXDIM], sb[FL_MAXDIM], si[FL_MAXDIM];    /* strides in bytes */
    char *a, *b, *idx;
    int64_t step, wrap;      /* bytes of b per unit of the index; added to negative indices */
} Walk;

static inline int64_t moved(const Walk *w, const char *i) {
    int64_t v = w->idx64 ? *(const int64_t *)i : *(const int32_t *)i;
    return (v < 0 ? v + w->wrap : v) * w->step;
}
#define RUN(T, STMT) do {                                                                        \
    if (!si) for (int64_t j = 0; j < n; j++, pa += sa, pb += sb) { T *a = (T *)pa, *b = (T *)pb; STMT; } \
    else for (int64_t j = 0; j < n; j++, pa += sa, pb += sb, pi += si) { T *a = (T *)pa, *b = (T *)(pb + moved(w, pi)); STMT; } \
    return; } while (0)
#define MOVE(T) do { if (w->op == GET) RUN(T, *a = *b); RUN(T, *b = *a); } while (0)
#define ARITH(T) do {                                                                            \
    if (w->op == ADD && !si && sa == (int64_t)sizeof(T) && sb == sa) {                            \
        T *restrict x = (T *)pb; const T *restrict y = (const T *)pa;                             \
        for (int64_t j = 0; j < n; j++) x[j] += y[j];                                             \
        return; }                                                                                 \
    if (w->op == ADD) RUN(T, *b += *a);                                                           \
    if (w->op == MUL) RUN(T, *b *= *a);                                                           \
    if (w->op == MIN) RUN(T, if (*a != *a || *a < *b) *b = *a);                                   \
    RUN(T, if (*a != *a || *a > *b) *b = *a); } while (0)
#define SMALL(T, TO, FROM) do {                                                                  \
    if (w->op == ADD) RUN(T, *b = FROM(TO(*b) + TO(*a)));                                         \
    if (w->op == MUL) RUN(T, *b = FROM(TO(*b) * TO(*a)));                                         \
    if (w->op == MIN) RUN(T, float x = TO(*a); if (x != x || x < TO(*b)) *b = *a);                \
    RUN(T, float x = TO(*a); if (x != x || x > TO(*b)) *b = *a); } while (0)

static void run(const Walk *w, char *pa, char *pb, const char *pi, int64_t n, int64_t sa, int64_t sb, int64_t si) {
    if (!si) pb += moved(w, pi);
    if (w->op <= PUT) {
        if (!si && sa == w->item && sb == sa) { if (w->op == GET) memcpy(pa, pb, n * sa); else memcpy(pb, pa, n * sa); return; }
        switch (w->item) {
        case 1: MOVE(uint8_t);
        case 2: MOVE(uint16_t);
        case 4: MOVE(uint32_t);
        case 8: MOVE(uint64_t);
        default: MOVE(Wide);
        }
    }
    switch (w->code) {
    case FL_F32: ARITH(float);
    case FL_F64: ARITH(double);
    case FL_I64: ARITH(int64_t);
    case FL_I32: ARITH(int32_t);
    case FL_I16: ARITH(int16_t);
    case FL_I8: ARITH(int8_t);
    case FL_U8: ARITH(uint8_t);
    case FL_U16: ARITH(uint16_t);
    case FL_U32: ARITH(uint32_t);
    case FL_U64: ARITH(uint64_t);
    case FL_BF16: SMALL(uint16_t, bf16_to_float, float_to_bf16);
    case FL_F16: SMALL(uint16_t, half_to_float, float_to_half);
    case FL_BOOL:
        if (w->op == ADD || w->op == MAX) RUN(uint8_t, *b |= *a);
        RUN(uint8_t, *b &= *a);
    case FL_C64:
        if (w->op == ADD) RUN(float complex, *b += *a);
        RUN(float complex, *b *= *a);
    default:
        if (w->op == ADD) RUN(double complex, *b += *a);
        RUN(double complex, *b *= *a);
    }
}
static void part(void *ctx, int64_t begin, int64_t end) {
    const Walk *w = ctx; int nd = w->nd, k = w->split, in = nd - 1;
    int64_t at[FL_MAXDIM] = {0}, size[FL_MAXDIM];
    memcpy(size, w->size, nd * sizeof *size);
    size[k] = end - begin;
    char *pa = w->a + begin * w->sa[k], *pb = w->b + begin * w->sb[k]; const char *pi = w->idx + begin * w->si[k];
    for (;;) {
        run(w, pa, pb, pi, size[in], w->sa[in], w->sb[in], w->si[in]);
        int d = in - 1;
        for (; d >= 0; d--) {
            pa += w->sa[d]; pb += w->sb[d]; pi += w->si[d];
            if (++at[d] < size[d]) break;
            pa -= size[d] * w->sa[d]; pb -= size[d] * w->sb[d]; pi -= size[d] * w->si[d];
            at[d] = 0;
        }
        if (d < 0) return;
    }
}
/* indexed(op, a, b, index, step, wrap): over a's extents, with the strides of each (0: the same all
   along). 'get': a = b[...]; 'put', 'add', 'mul', 'min', 'max': b[...] = or combined with a. The
   place in b is that of its strides plus index * step elements; negative indices get wrap added.
   Indices are not checked here. Places that are met several times are met in order. */
static PyObject *f_indexed(PyObject *m, PyObject *const *args, Py_ssize_t n) {
    static const char *const names[] = {"get", "put", "add", "mul", "min", "max"};
    if (n != 6 || !PyUnicode_Check(args[0]) || !Tensor_Check(args[1]) || !Tensor_Check(args[2]) || !Tensor_Check(args[3])) { PyErr_SetString(PyExc_TypeError, "indexed(op, a, b, index, step, wrap)"); return NULL; }
    Tensor *a = (Tensor *)args[1], *b = (Tensor *)args[2], *i = (Tensor *)args[3];
    Walk w; int64_t total = 1;
    w.op = -1;
    for (int k = 0; k < 6; k++) if (!strcmp(names[k], PyUnicode_AsUTF8(args[0]))) w.op = k;
    int64_t step = PyLong_AsLongLong(args[4]);
    w.wrap = PyLong_AsLongLong(args[5]);
    if (PyErr_Occurred()) return NULL;
    if (w.op < 0 || a->dtype != b->dtype || b->ndim != a->ndim || i->ndim != a->ndim || (i->dtype->code != FL_I64 && i->dtype->code != FL_I32)) { PyErr_SetString(PyExc_ValueError, "indexed: operands of one rank and dtype, an integer index"); return NULL; }
    w.code = a->dtype->code; w.item = a->dtype->itemsize; w.idx64 = i->dtype->code == FL_I64; w.step = step * w.item; w.nd = 0;
    for (int d = 0; d < a->ndim; d++) {
        int64_t s = a->sizes[d], xa = a->strides[d] * w.item, xb = b->strides[d] * w.item, xi = i->strides[d] * i->dtype->itemsize;
        total *= s;
        if (s == 1) continue;
        int k = w.nd - 1;
        if (k >= 0 && w.sa[k] == xa * s && w.sb[k] == xb * s && w.si[k] == xi * s) { w.size[k] *= s; w.sa[k] = xa; w.sb[k] = xb; w.si[k] = xi; }
        else { k = w.nd++; w.size[k] = s; w.sa[k] = xa; w.sb[k] = xb; w.si[k] = xi; }
    }
    if (!total) Py_RETURN_NONE;
    if (!a->storage->data || !b->storage->data || !i->storage->data) { PyErr_SetString(PyExc_RuntimeError, "indexed: an operand has no bytes (fake, meta, or freed storage)"); return NULL; }
    if (!w.nd) { w.nd = 1; w.size[0] = 1; w.sa[0] = w.sb[0] = w.si[0] = 0; }
    w.a = fl_data(a); w.b = fl_data(b); w.idx = fl_data(i);
    w.split = -1;                        /* a dimension whose places in b never meet */
    for (int d = 0; d < w.nd; d++)
        if ((w.op == GET || (!w.si[d] && w.sb[d])) && w.size[d] > 1 && (w.split < 0 || w.size[w.split] < 8)) w.split = d;
    if (w.split < 0 || total * w.item < 131072) { w.split = 0; part(&w, 0, w.size[0]); Py_RETURN_NONE; }
    int64_t each = total / w.size[w.split], grain = 16384 / each + 1;
    if (w.split == w.nd - 1 && grain < 64) grain = 64;
    PyThreadState *save = PyEval_SaveThread();
    fl_parallel(part, &w, w.size[w.split], grain);
    PyEval_RestoreThread(save);
    Py_RETURN_NONE;
}
/* beyond(index, low, high): the first element outside [low, high), or None. */
static PyObject *f_beyond(PyObject *m, PyObject *const *args, Py_ssize_t n) {
    if (n != 3 || !Tensor_Check(args[0])) { PyErr_SetString(PyExc_TypeError, "beyond(index, low, high)"); return NULL; }
    Tensor *t = (Tensor *)args[0];
    int64_t low = PyLong_AsLongLong(args[1]), high = PyLong_AsLongLong(args[2]), at[FL_MAXDIM] = {0};
    int wide = t->dtype->code == FL_I64, nd = t->ndim;
    if (PyErr_Occurred()) return NULL;
    if (!wide && t->dtype->code != FL_I32) { PyErr_SetString(PyExc_TypeError, "beyond: an index of int64 or int32"); return NULL; }
    if (!t->numel || !t->storage->data) Py_RETURN_NONE;
    const char *p = fl_data(t); int64_t item = t->dtype->itemsize, count = nd ? t->sizes[nd - 1] : 1, st = nd ? t->strides[nd - 1] * item : 0;
    for (;;) {
        for (int64_t j = 0; j < count; j++) {
            int64_t v = wide ? *(const int64_t *)(p + j * st) : *(const int32_t *)(p + j * st);
            if (v < low || v >= high) return PyLong_FromLongLong(v);
        }
        int d = nd - 2;
        for (; d >= 0; d--) {
            p += t->strides[d] * item;
            if (++at[d] < t->sizes[d]) break;
            p -= t->sizes[d] * t->strides[d] * item;
            at[d] = 0;
        }
        if (d < 0) Py_RETURN_NONE;
    }
}
static PyMethodDef functions[] = {{"indexed", (PyCFunction)f_indexed, METH_FASTCALL}, {"beyond", (PyCFunction)f_beyond, METH_FASTCALL}, {0}};
int fl_indexed_init(PyObject *m) { return PyModule_AddFunctions(m, functions); }
