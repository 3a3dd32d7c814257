/* One element of each row, by an index a row: what losses over class indices come down to, and their
   gradient. Rows are those of dimension 1 (of the only dimension where there is one). Indices are
   checked; a row whose index is `skip` is left out. */
#include "native.h"
#include "numbers.h"
#include <math.h>

static double loaded(int code, const char *p) {
    switch (code) {
    case FL_F32: return *(const float *)p;
    case FL_F64: return *(const double *)p;
    case FL_BF16: return bf16_to_float(*(const uint16_t *)p);
    default: return half_to_float(*(const uint16_t *)p);
    }
}
static void stored(int code, char *p, double v) {
    switch (code) {
    case FL_F32: *(float *)p = (float)v; break;
    case FL_F64: *(double *)p = v; break;
    case FL_BF16: *(uint16_t *)p = float_to_bf16((float)v); break;
    default: *(uint16_t *)p = float_to_half((float)v);
    }
}
/* A sum as in twice double's precision (Neumaier 1974). */
typedef struct { double sum, rest; } Sum;
static void add(Sum *s, double v) {
    double t = s->sum + v;
    s->rest += fabs(s->sum) >= fabs(v) ? (s->sum - t) + v : (v - t) + s->sum;
    s->sum = t;
}
static double total_of(const Sum *s) { return isfinite(s->sum) ? s->sum + s->rest : s->sum; }

typedef struct {
    Tensor *rows, *index, *weight, *each;       /* each: a value a row, or one for all of them */
    int64_t classes, step, skip;                /* step: bytes from class to class */
    int nd, code, put;
    double scale, divisor;                      /* put: rows[index] = each * weight * scale / divisor */
    int64_t size[FL_MAXDIM], sr[FL_MAXDIM], si[FL_MAXDIM], se[FL_MAXDIM];      /* strides in bytes */
    Sum values, weights;
} Choice;
/* 0: done. 1: an index lies outside, and is in *outside. */
static int walk(Choice *c, int64_t *outside) {
    int item = c->rows->dtype->itemsize, u8 = c->index->dtype->code == FL_U8; int64_t at[FL_MAXDIM] = {0};
    char *pr = fl_data(c->rows), *pe = fl_data(c->each); const char *pi = fl_data(c->index), *pw = c->weight ? fl_data(c->weight) : NULL;
    int64_t sw = c->weight ? c->weight->strides[0] * item : 0;
    if (!c->index->numel) return 0;
    for (;;) {
        int64_t k = u8 ? *(const uint8_t *)pi : *(const int64_t *)pi; double v = 0;
        if (k != c->skip) {
            if (k < 0 || k >= c->classes) { *outside = k; return 1; }
            double w = pw ? loaded(c->code, pw + k * sw) : 1;
            char *p = pr + k * c->step;
            if (c->put) stored(c->code, p, loaded(c->code, pe) * w * c->scale / c->divisor);
            else { v = loaded(c->code, p) * w * c->scale; add(&c->values, v); add(&c->weights, w); }
        }
        if (!c->put && c->each->ndim) stored(c->code, pe, v);
        int d = c->nd - 1;
        for (; d >= 0; d--) {
            pr += c->sr[d]; pi += c->si[d]; pe += c->se[d];
            if (++at[d] < c->size[d]) break;
            pr -= c->size[d] * c->sr[d]; pi -= c->size[d] * c->si[d]; pe -= c->size[d] * c->se[d];
            at[d] = 0;
        }
        if (d < 0) return 0;
    }
}
static int has_bytes(const Tensor *t) { return t->storage->data || !t->numel; }
static int choice(Choice *c, PyObject *rows, PyObject *index, PyObject *weight, PyObject *skip, PyObject *each, PyObject *scale) {
    if (!Tensor_Check(rows) || !Tensor_Check(index) || !Tensor_Check(each) || !(weight == Py_None || Tensor_Check(weight))) { PyErr_SetString(PyExc_TypeError, "rows, index, values, weights: tensors"); return -1; }
    Tensor *r = (Tensor *)rows, *i = (Tensor *)index, *e = (Tensor *)each, *w = weight == Py_None ? NULL : (Tensor *)weight;
    *c = (Choice){.rows = r, .index = i, .weight = w, .each = e, .code = r->dtype->code, .skip = PyLong_AsLongLong(skip), .scale = PyFloat_AsDouble(scale), .divisor = 1};
    if (PyErr_Occurred()) return -1;
    int dim = r->ndim > 1, ok = c->code == FL_F32 || c->code == FL_F64 || c->code == FL_BF16 || c->code == FL_F16;
    ok = ok && e->dtype == r->dtype && (!w || (w->dtype == r->dtype && w->ndim == 1)) && (i->dtype->code == FL_I64 || i->dtype->code == FL_U8) && r->ndim;
    ok = ok && (dim && i->ndim ? i->ndim == r->ndim - 1 : i->numel == 1 && (!dim || r->numel == r->sizes[1])) && (!e->ndim || e->ndim == i->ndim);
    if (ok) {
        c->classes = r->sizes[dim]; c->step = r->strides[dim] * r->dtype->itemsize; c->nd = i->ndim;
        ok = !w || w->sizes[0] == c->classes;
        for (int d = 0; d < c->nd; d++) {
            int from = d ? d + 1 : 0;
            c->size[d] = i->sizes[d];
            ok &= (!dim || r->sizes[from] == i->sizes[d]) && (!e->ndim || e->sizes[d] == i->sizes[d]);
            c->sr[d] = dim ? r->strides[from] * r->dtype->itemsize : 0;
            c->si[d] = i->strides[d] * i->dtype->itemsize; c->se[d] = e->ndim ? e->strides[d] * e->dtype->itemsize : 0;
        }
    }
    if (!ok) { PyErr_SetString(PyExc_ValueError, "rows of floating values, an index a row, values and weights of the rows' dtype"); return -1; }
    if (!has_bytes(r) || !has_bytes(i) || !has_bytes(e) || (w && !has_bytes(w))) { PyErr_SetString(PyExc_RuntimeError, "an operand has no bytes (fake, meta, or freed storage)"); return -1; }
    return 0;
}
/* chosen(out, total, rows, index, weight, skip, scale, mean): the chosen elements times the weight of
   their class (None: 1) and `scale`. Into `out`: each of them, or with an `out` without dimensions
   their sum (mean: divided by the sum of weights, which goes into `total`). Returns the first index
   outside the classes, None where there is none. */
static PyObject *f_chosen(PyObject *m, PyObject *const *a, Py_ssize_t n) {
    Choice c; int64_t outside;
    if (n != 8 || !Tensor_Check(a[1])) { PyErr_SetString(PyExc_TypeError, "chosen(out, total, rows, index, weight, skip, scale, mean)"); return NULL; }
    Tensor *total = (Tensor *)a[1]; int mean = PyObject_IsTrue(a[7]);
    if (mean < 0 || choice(&c, a[2], a[3], a[4], a[5], a[0], a[6])) return NULL;
    if (total->dtype != c.rows->dtype || total->numel != 1 || !total->storage->data) { PyErr_SetString(PyExc_ValueError, "chosen: a total of one element"); return NULL; }
    if (walk(&c, &outside)) return PyLong_FromLongLong(outside);
    double weights = c.each->ndim ? 0 : total_of(&c.weights), sum = total_of(&c.values);
    stored(c.code, fl_data(total), weights);
    if (!c.each->ndim) stored(c.code, fl_data(c.each), mean ? sum / weights : sum);
    Py_RETURN_NONE;
}
/* put_chosen(rows, each, index, weight, skip, scale, total): the chosen elements become `each` (one for
   all, or one a row) times the weight of their class and `scale`, divided by `total` (None: 1). */
static PyObject *f_put_chosen(PyObject *m, PyObject *const *a, Py_ssize_t n) {
    Choice c; int64_t outside;
    if (n != 7 || !(a[6] == Py_None || (Tensor_Check(a[6]) && ((Tensor *)a[6])->numel == 1 && ((Tensor *)a[6])->storage->data))) { PyErr_SetString(PyExc_TypeError, "put_chosen(rows, each, index, weight, skip, scale, total)"); return NULL; }
    if (choice(&c, a[0], a[2], a[3], a[4], a[1], a[5])) return NULL;
    c.put = 1;
    if (a[6] != Py_None) {
        if (((Tensor *)a[6])->dtype != c.rows->dtype) { PyErr_SetString(PyExc_ValueError, "put_chosen: a total of the rows' dtype"); return NULL; }
        c.divisor = loaded(c.code, fl_data((Tensor *)a[6]));
    }
    if (walk(&c, &outside)) return PyLong_FromLongLong(outside);
    Py_RETURN_NONE;
}
static PyMethodDef functions[] = {{"chosen", (PyCFunction)f_chosen, METH_FASTCALL}, {"put_chosen", (PyCFunction)f_put_chosen, METH_FASTCALL}, {0}};
int fl_choose_init(PyObject *m) { return PyModule_AddFunctions(m, functions); }
