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
/* copy(target, source): source broadcast over target, dtypes alike, on the spot. False: too large for
   a walk whose dimensions do not merge (a kernel is then faster). */
static PyObject *f_copy(PyObject *m, PyObject *const *args, Py_ssize_t n) {
    static int64_t zero;
    if (n != 2 || !Tensor_Check(args[0]) || !Tensor_Check(args[1])) { PyErr_SetString(PyExc_TypeError, "copy(target, source)"); return NULL; }
    Tensor *a = (Tensor *)args[0], *b = (Tensor *)args[1];
    int64_t sb[FL_MAXDIM];
    if (a->dtype != b->dtype || b->ndim > a->ndim || !a->storage->data || !b->storage->data || ((a->flags ^ b->flags) & (FL_T_CONJ | FL_T_NEG))) Py_RETURN_FALSE;
    Walk w = {.op = GET, .item = a->dtype->itemsize, .idx64 = 1, .idx = (char *)&zero};
    for (int d = 0; d < a->ndim; d++) {
        int j = d - (a->ndim - b->ndim);
        int64_t s = a->sizes[d], have = j < 0 ? 1 : b->sizes[j];
        if (have != 1 && have != s) Py_RETURN_FALSE;
        sb[d] = j < 0 || (have == 1 && s != 1) ? 0 : b->strides[j] * w.item;
    }
    for (int d = 0; d < a->ndim; d++) {
        int64_t s = a->sizes[d], xa = a->strides[d] * w.item, xb = sb[d]; int k = w.nd - 1;
        if (s == 1) continue;
        if (k >= 0 && w.sa[k] == xa * s && w.sb[k] == xb * s) { w.size[k] *= s; w.sa[k] = xa; w.sb[k] = xb; }
        else { k = w.nd++; w.size[k] = s; w.sa[k] = xa; w.sb[k] = xb; }
        w.si[k] = 0;
    }
    int64_t inner = w.nd ? w.size[w.nd - 1] : 1; int dense = !w.nd || (w.sa[w.nd - 1] == w.item && w.sb[w.nd - 1] == w.item);
    if (a->numel > 4096 && !(dense && inner >= 64)) Py_RETURN_FALSE;
    if (!a->numel) Py_RETURN_TRUE;
    if (!w.nd) { w.nd = 1; w.size[0] = 1; w.sa[0] = w.sb[0] = 0; }
    w.a = fl_data(a); w.b = fl_data(b);
    if (a->numel * w.item < 262144) { part(&w, 0, w.size[0]); Py_RETURN_TRUE; }
    int64_t each = a->numel / w.size[0] * w.item;
    PyThreadState *save = PyEval_SaveThread();
    fl_parallel(part, &w, w.size[0], 65536 / each + 1);
    PyEval_RestoreThread(save);
    Py_RETURN_TRUE;
}

/* Elements from one geometry to another of the same extents (strides in elements), on the spot. */
void fl_move(int item, int nd, const int64_t *sizes, char *to, const int64_t *to_strides, char *from, const int64_t *from_strides) {
    static int64_t zero;
    Walk w = {.op = GET, .item = item, .idx64 = 1, .idx = (char *)&zero, .a = to, .b = from};
    for (int d = 0; d < nd; d++) {
        int64_t s = sizes[d], xa = to_strides[d] * item, xb = from_strides[d] * item; int k = w.nd - 1;
        if (!s) return;
        if (s == 1) continue;
        if (k >= 0 && w.sa[k] == xa * s && w.sb[k] == xb * s) { w.size[k] *= s; w.sa[k] = xa; w.sb[k] = xb; }
        else { k = w.nd++; w.size[k] = s; w.sa[k] = xa; w.sb[k] = xb; }
        w.si[k] = 0;
    }
    if (!w.nd) { w.nd = 1; w.size[0] = 1; w.sa[0] = w.sb[0] = w.si[0] = 0; }
    part(&w, 0, w.size[0]);
}

/* ---- masks: contiguous, a byte an element ---- */
static Tensor *mask_of(PyObject *o) {
    if (Tensor_Check(o)) { Tensor *t = (Tensor *)o; if (t->contiguous && t->dtype->itemsize == 1 && (t->storage->data || !t->numel)) return t; }
    PyErr_SetString(PyExc_ValueError, "a contiguous mask with bytes is needed");
    return NULL;
}
static PyObject *f_count(PyObject *m, PyObject *o) {      /* count_true(mask) */
    Tensor *t = mask_of(o);
    if (!t) return NULL;
    const uint8_t *p = (const uint8_t *)fl_data(t); int64_t n = t->numel, c = 0;
    for (int64_t i = 0; i < n; i += 128) { int64_t e = i + 128 < n ? i + 128 : n; int part = 0; for (int64_t j = i; j < e; j++) part += p[j] != 0; c += part; }
    return PyLong_FromLongLong(c);
}
/* compress(out, source, mask): the elements of source (contiguous, like mask) where mask is true. */
static PyObject *f_compress(PyObject *m, PyObject *const *args, Py_ssize_t n) {
    Tensor *k = n == 3 ? mask_of(args[2]) : NULL;
    if (!k || !Tensor_Check(args[0]) || !Tensor_Check(args[1])) { if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "compress(out, source, mask)"); return NULL; }
    Tensor *o = (Tensor *)args[0], *s = (Tensor *)args[1];
    if (!s->contiguous || !o->contiguous || s->numel != k->numel || o->dtype != s->dtype || !s->storage->data) { PyErr_SetString(PyExc_ValueError, "compress: contiguous tensors of one dtype"); return NULL; }
    const uint8_t *p = (const uint8_t *)fl_data(k); int64_t all = k->numel, room = o->numel, c = 0;
    char *to = fl_data(o), *from = fl_data(s);
#define PICK(T) for (int64_t i = 0; i < all && c < room; i++) { ((T *)to)[c] = ((T *)from)[i]; c += p[i] != 0; }
    switch (o->dtype->itemsize) {
    case 1: PICK(uint8_t) break;
    case 2: PICK(uint16_t) break;
    case 4: PICK(uint32_t) break;
    case 8: PICK(uint64_t) break;
    default: PICK(Wide)
    }
    Py_RETURN_NONE;
}
/* true_places(out, mask): the indices of the true elements, out's columns (one a dimension) filled
   in the elements' order; out has a row for each. */
static PyObject *f_places(PyObject *m, PyObject *const *args, Py_ssize_t n) {
    Tensor *k = n == 2 ? mask_of(args[1]) : NULL;
    if (!k || !Tensor_Check(args[0])) { if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "true_places(out, mask)"); return NULL; }
    Tensor *o = (Tensor *)args[0]; int nd = k->ndim;
    if (o->ndim != 2 || o->dtype->code != FL_I64 || o->sizes[1] != nd || !nd) { PyErr_SetString(PyExc_ValueError, "true_places: out of (count, dimensions) int64"); return NULL; }
    const uint8_t *p = (const uint8_t *)fl_data(k); int64_t *q = (int64_t *)fl_data(o), at[FL_MAXDIM] = {0}, last = k->sizes[nd - 1], rows = o->sizes[0], c = 0;
    int64_t s0 = o->strides[0], s1 = o->strides[1];
    for (int64_t i = 0; i < k->numel && c < rows; i += last) {
        int64_t *end = q + (nd - 1) * s1, first = c;
        for (int64_t j = 0; j < last && c < rows; j++) { end[c * s0] = j; c += p[i + j] != 0; }
        for (int d = 0; d < nd - 1; d++) for (int64_t r = first; r < c; r++) q[r * s0 + d * s1] = at[d];
        for (int d = nd - 2; d >= 0; d--) { if (++at[d] < k->sizes[d]) break; at[d] = 0; }
    }
    Py_RETURN_NONE;
}
static PyMethodDef functions[] = {{"indexed", (PyCFunction)f_indexed, METH_FASTCALL}, {"beyond", (PyCFunction)f_beyond, METH_FASTCALL},
    {"copy", (PyCFunction)f_copy, METH_FASTCALL}, {"count_true", f_count, METH_O}, {"compress", (PyCFunction)f_compress, METH_FASTCALL},
    {"true_places", (PyCFunction)f_places, METH_FASTCALL}, {0}};
int fl_indexed_init(PyObject *m) { return PyModule_AddFunctions(m, functions); }
