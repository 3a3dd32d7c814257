#include "fast.h"
#include "tape.h"

typedef void (*gemm_f32)(int, int, int, int64_t, int64_t, int64_t, float, const float *, int64_t, const float *, int64_t, float, float *, int64_t);
typedef void (*gemm_f64)(int, int, int, int64_t, int64_t, int64_t, double, const double *, int64_t, const double *, int64_t, double, double *, int64_t);
static gemm_f32 sgemm;
static gemm_f64 dgemm;

#define PLAIN(t) (!(t)->bits && !(t)->sym && !((t)->flags & (FL_T_CONJ | FL_T_NEG)) && ((t)->storage->data || !(t)->numel))
#define IS_TENSOR(o) (Py_TYPE(o) == TensorType || Tensor_Check(o))
#define IDLE() (!(fl_state.active & ~fl_state.suspended) && !fl_state.inference)

static int self_overlaps(Tensor *t) {
    for (int i = 0; i < t->ndim; i++) if (t->sizes[i] > 1 && !t->strides[i]) return 1;
    return 0;
}
static PyObject *out_name;
/* What out= was given, NULL where it was not, or None. */
static PyObject *given_out(PyObject *const *a, Py_ssize_t n, PyObject *kw) {
    for (Py_ssize_t k = 0; kw && k < PyTuple_GET_SIZE(kw); k++)
        if (PyTuple_GET_ITEM(kw, k) == out_name) return a[n + k] == Py_None ? NULL : a[n + k];
    return NULL;
}
/* Whether results of that shape and dtype may be written into out as they come: it has them, nothing is
   recorded, and an input that shares its bytes is the very same view. Else Python resizes, converts, or says why not. */
static int fits(Tensor *out, int nd, const int64_t *sizes, DType *dtype, int ntens, Tensor **ts) {
    if (Py_TYPE(out) != TensorType || !PLAIN(out) || out->dtype != dtype || out->ndim != nd || memcmp(sizes, out->sizes, nd * sizeof *sizes)) return 0;
    if (out->flags & FL_T_INFERENCE || out->storage->flags & FL_S_READONLY || out->storage->device != ts[0]->storage->device || self_overlaps(out)) return 0;
    if (out->born < fl_state.level || (fl_recording() && fl_requires_grad(out))) return 0;
    for (int k = 0; k < ntens; k++) {
        Tensor *t = ts[k];
        if (t == out || t->storage != out->storage) continue;
        if (t->offset != out->offset || t->ndim != nd || memcmp(t->sizes, out->sizes, nd * sizeof *sizes) || memcmp(t->strides, out->strides, nd * sizeof *sizes)) return 0;
    }
    return 1;
}
static int params(Fast *f, int code, PyObject *const *a, Py_ssize_t n, PyObject *kw, int64_t *slots, PyObject **values) {
    int floating = fl_dtypes[code]->flags & FL_FLOATING;
    for (int i = 0; i < f->nparams; i++) values[i] = f->ntensors + i < n ? a[f->ntensors + i] : f->defaults[i];
    if (kw) for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(kw); k++) {
        int i = 0;
        if (PyTuple_GET_ITEM(kw, k) == out_name) continue;        /* the caller's */
        for (; i < f->nparams; i++) if (PyTuple_GET_ITEM(kw, k) == f->names[i]) break;
        if (i == f->nparams) return 0;
        values[i] = a[n + k];
    }
    for (int i = 0; i < f->nparams; i++) {
        PyObject *v = values[i];
        if (!v) return 0;
        if (floating) {
            double d;
            if (PyFloat_CheckExact(v)) d = PyFloat_AS_DOUBLE(v);
            else if (PyLong_CheckExact(v)) { d = PyLong_AsDouble(v); if (d == -1 && PyErr_Occurred()) { PyErr_Clear(); return 0; } }
            else return 0;
            memcpy(slots + i, &d, 8);
        } else {
            int over;
            if (!PyLong_CheckExact(v)) return 0;
            slots[i] = PyLong_AsLongLongAndOverflow(v, &over);
            if (over) return 0;
        }
    }
    return 1;
}
/* Record a node for out; the arguments stand in schema order. Returns -1 on error. */
static int record(Fast *f, PyObject *op, PyTypeObject *type, int mask, int nt, PyObject **args, Tensor *out, PyObject **values, int nv, PyObject *tail) {
    Py_ssize_t nx = tail ? PyTuple_GET_SIZE(tail) : 0, edges = 0, e = 0;
    for (int i = 0; i < nt; i++) edges += IS_TENSOR(args[i]);
    Node *nd = fl_node(type, op, edges);
    PyObject *tup = PyTuple_New(nt + nv + nx);
    if (!nd || !tup) goto fail;
    for (int i = 0; i < nt; i++) {
        PyObject *x;
        if (IS_TENSOR(args[i])) {
            Tensor *t = (Tensor *)args[i];
            if (fl_edge(nd, e++, t) < 0) goto fail;
            x = mask & (1 << i) ? fl_saved(t, 0) : (PyObject *)fl_geometry(t);
        } else {
            x = Py_NewRef(args[i]);
            if (mask & (1 << i)) nd->keeps_number = 1;          /* where a tensor would have been saved */
        }
        if (!x) goto fail;
        PyTuple_SET_ITEM(tup, i, x);
    }
    for (int i = 0; i < nv; i++) PyTuple_SET_ITEM(tup, nt + i, Py_NewRef(values[i]));
    for (Py_ssize_t i = 0; i < nx; i++) PyTuple_SET_ITEM(tup, nt + nv + i, Py_NewRef(PyTuple_GET_ITEM(tail, i)));
    nd->args = tup; tup = NULL;
    fl_attach(out, nd, 0);
    PyObject *s = mask & 128 ? fl_saved(out, 1) : (PyObject *)fl_geometry(out);
    nd->outs = s ? PyTuple_Pack(1, s) : NULL;
    Py_XDECREF(s);
    if (!nd->outs) goto fail;
    Py_DECREF(nd);
    return 0;
fail:
    Py_XDECREF(nd); Py_XDECREF(tup);
    return -1;
}
static int grad_needs(int nt, PyObject **args) {
    int needs = 0;
    if (fl_recording()) for (int i = 0; i < nt; i++) if (IS_TENSOR(args[i])) {
        int r = fl_requires_grad((Tensor *)args[i]);
        if (r < 0) return -1;
        needs |= r << i;
    }
    return needs;
}

static PyObject *map_call(Fast *f, PyObject *const *a, Py_ssize_t n, PyObject *kw) {
    int nt = f->ntensors, inplace = f->kind == FL_K_MAP_INPLACE;
    if (n < nt || n > nt + f->nparams) return NULL;
    PyObject *into = given_out(a, n, kw);
    if (into && (inplace || !IS_TENSOR(into))) return NULL;
    PyObject *args[4], *values[FL_MAXPARAMS]; Tensor *ts[4]; int ntens = 0, code = -1;
    Tensor *first = NULL;
    for (int i = 0; i < nt; i++) {
        PyObject *o = f->swap ? a[nt - 1 - i] : a[i];
        args[i] = o;
        if (IS_TENSOR(o)) {
            Tensor *t = (Tensor *)o;
            if (!PLAIN(t)) return NULL;
            if (code < 0) { code = t->dtype->code; first = t; }
            else if (t->dtype->code != code) return NULL;
            ts[ntens++] = t;
        } else if (inplace && i == 0) return NULL;
    }
    if (code < 0 || !f->loops[code]) return NULL;
    int64_t scal[4], slots[FL_MAXPARAMS];
    if (ntens < nt) for (int i = 0; i < nt; i++) if (!IS_TENSOR(args[i])) {
        PyObject *o = args[i];
        if (!PyFloat_CheckExact(o) && !PyLong_CheckExact(o) && !PyBool_Check(o)) return NULL;
        if (!f->numbers || (f->numbers == 2 && !i) || code == FL_F16 || code == FL_BF16) return NULL;   /* the number counts in full precision: Python's case */
        int r = fl_store_scalar(code, o, scal + i);
        if (r < 0) { PyErr_Clear(); return NULL; }
        if (r || (code == FL_BOOL) != !!PyBool_Check(o)) return NULL;
        if (!(fl_dtypes[code]->flags & FL_FLOATING) && code != FL_I64 && code != FL_BOOL) return NULL;   /* range checks are Python's */
    }
    if (n > nt && code == FL_BOOL) return NULL;                   /* an integer makes it one */
    if (!params(f, code, a, n, kw, slots, values)) return NULL;
    int needs = grad_needs(nt, args), mask = 0;
    if (needs < 0) return NULL;
    if (inplace && first->born < fl_state.level) return NULL;      /* made outside of a transform: refused in Python */
    if (needs) {
        if (inplace || into || !f->node_type || f->swap || fl_dtypes[code]->flags & FL_COMPLEX || (mask = f->save[needs]) < 0) return NULL;
    }
    if (!first->numel) return NULL;      /* strides of empty results: the declaration's rule */
    if (f->own_strides && !inplace) for (int d = 0; d < first->ndim; d++) if (first->sizes[d] == 1) return NULL;
    Tensor *out; int trivial = 1; int64_t sizes[FL_MAXDIM], strides[FL_MAXDIM]; int nd = first->ndim;
    for (int k = 0; k < ntens && trivial; k++)
        trivial = ts[k]->contiguous && ts[k]->ndim == nd && !memcmp(ts[k]->sizes, first->sizes, nd * sizeof *sizes);
    if (inplace) {
        out = (Tensor *)args[0];
        if (out->flags & FL_T_INFERENCE || out->storage->flags & FL_S_READONLY) return NULL;
        if (!trivial) {
            if (self_overlaps(out)) return NULL;
            for (int k = 1; k < ntens; k++) if (ts[k]->storage == out->storage && ts[k] != out) return NULL;
            if ((nd = fl_broadcast(ntens, ts, sizes)) < 0) { PyErr_Clear(); return NULL; }
            if (nd != out->ndim || memcmp(sizes, out->sizes, nd * sizeof *sizes)) return NULL;
        } else for (int k = 1; k < ntens; k++) if (ts[k]->storage == out->storage && ts[k]->offset != out->offset) return NULL;
        Py_INCREF(out);
    } else {
        DType *od = f->out_bool ? fl_dtypes[FL_BOOL] : first->dtype;
        if (into) {
            if (!trivial && (nd = fl_broadcast(ntens, ts, sizes)) < 0) { PyErr_Clear(); return NULL; }
            out = (Tensor *)into;
            if (!fits(out, nd, trivial ? first->sizes : sizes, od, ntens, ts)) return NULL;
            trivial = trivial && out->contiguous;
            Py_INCREF(out);
        } else if (trivial) out = fl_empty(nd, first->sizes, NULL, od, first->storage->device);
        else {
            if ((nd = fl_broadcast(ntens, ts, sizes)) < 0) { PyErr_Clear(); return NULL; }
            fl_out_strides(ntens, ts, nd, sizes, strides);
            out = fl_empty(nd, sizes, strides, od, first->storage->device);
        }
        if (!out) return NULL;
    }
    char *ptr[5]; ptr[0] = fl_data(out);
    for (int i = 0; i < nt; i++) ptr[1 + i] = IS_TENSOR(args[i]) ? fl_data((Tensor *)args[i]) : (char *)(scal + i);
    if (trivial && out->numel < 32768) {
        int64_t st[10]; int item = first->dtype->itemsize;
        st[0] = out->dtype->itemsize;
        for (int i = 0; i < nt; i++) st[1 + i] = IS_TENSOR(args[i]) ? item : 0;
        memset(st + 1 + nt, 0, (1 + nt) * sizeof *st);
        if (out->numel) ((fl_loop)f->loops[code])(ptr, st, out->numel, 1, slots);
    } else {
        int64_t st[5][FL_MAXDIM];
        fl_operand_strides(out, out->ndim, out->sizes, st[0]);
        for (int i = 0; i < nt; i++) {
            if (IS_TENSOR(args[i])) fl_operand_strides((Tensor *)args[i], out->ndim, out->sizes, st[1 + i]);
            else memset(st[1 + i], 0, out->ndim * sizeof(int64_t));
        }
        fl_run_map((fl_loop)f->loops[code], 1 + nt, ptr, out->ndim, out->sizes, (const int64_t (*)[FL_MAXDIM])st, slots);
    }
    if (inplace || into) fl_bump(out);
    else if (needs && record(f, f->op, (PyTypeObject *)f->node_type, mask, nt, args, out, values, f->nparams, f->tail) < 0) { Py_DECREF(out); return NULL; }
    return (PyObject *)out;
}

/* A small tensor's elements in order, for calls that want them dense (t itself when they are). New reference. */
static Tensor *dense(Tensor *t) {
    if (t->contiguous) return (Tensor *)Py_NewRef((PyObject *)t);
    if (t->numel > 65536) return NULL;
    Tensor *o = fl_empty(t->ndim, t->sizes, NULL, t->dtype, t->storage->device);
    if (!o) return NULL;
    int64_t idx[FL_MAXDIM] = {0}; int item = t->dtype->itemsize, nd = t->ndim, last = nd - 1;
    char *p = fl_data(o), *q = fl_data(t);
    for (int64_t done = 0; done < t->numel; ) {
        int64_t n = t->sizes[last], st = t->strides[last] * item;
        if (item == 4) for (int64_t i = 0; i < n; i++) memcpy(p + i * 4, q + i * st, 4);
        else if (item == 8) for (int64_t i = 0; i < n; i++) memcpy(p + i * 8, q + i * st, 8);
        else for (int64_t i = 0; i < n; i++) memcpy(p + i * item, q + i * st, item);
        p += n * item; done += n;
        for (int d = last - 1; d >= 0; d--) {
            q += t->strides[d] * item;
            if (++idx[d] < t->sizes[d]) break;
            q -= t->sizes[d] * t->strides[d] * item; idx[d] = 0;
        }
    }
    return o;
}
/* ---- matrices ---- */
/* A strided matrix as BLAS sees it: 0 plain, 1 transposed, -1 neither. */
static int layout(int64_t rows, int64_t cols, int64_t s0, int64_t s1, int64_t *ld) {
    if ((s1 == 1 || cols <= 1) && (s0 >= (cols > 1 ? cols : 1) || rows <= 1)) { *ld = rows > 1 ? s0 : (cols > 1 ? cols : 1); return 0; }
    if ((s0 == 1 || rows <= 1) && (s1 >= (rows > 1 ? rows : 1) || cols <= 1)) { *ld = cols > 1 ? s1 : (rows > 1 ? rows : 1); return 1; }
    return -1;
}
/* Products too small for BLAS's set-up to pay. a, b and c by element strides; sums over k in order. */
#define SMALL_GEMM(name, T)                                                                                              \
    static void name(int64_t m, int64_t n, int64_t k, T alpha, const T *a, int64_t as0, int64_t as1, const T *b, int64_t bs0, int64_t bs1, T beta, \
                     T *c, int64_t cs0, int64_t cs1) {                                                                    \
        for (int64_t i = 0; i < m; i++) for (int64_t j0 = 0; j0 < n; j0 += 16) {                                           \
            T acc[16] = {0}; int64_t w = n - j0 < 16 ? n - j0 : 16;                                                        \
            if (w == 16 && bs1 == 1) for (int64_t p = 0; p < k; p++) { T x = a[i * as0 + p * as1]; const T *q = b + p * bs0 + j0; for (int j = 0; j < 16; j++) acc[j] += x * q[j]; } \
            else for (int64_t p = 0; p < k; p++) { T x = a[i * as0 + p * as1]; const T *q = b + p * bs0 + j0 * bs1; for (int64_t j = 0; j < w; j++) acc[j] += x * q[j * bs1]; } \
            for (int64_t j = 0; j < w; j++) { T *o = c + i * cs0 + (j0 + j) * cs1; *o = beta ? alpha * acc[j] + beta * *o : alpha * acc[j]; } \
        }                                                                                                                \
    }
SMALL_GEMM(small_f32, float)
SMALL_GEMM(small_f64, double)
/* c (m,n) with unit stride along n = alpha a b + beta c; 0 when the layout does not suit BLAS. */
static int gemm(int code, int64_t m, int64_t n, int64_t k, double alpha, const char *a, int64_t as0, int64_t as1, const char *b, int64_t bs0, int64_t bs1,
                double beta, char *c, int64_t cs0, int64_t cs1) {
    int64_t la, lb, lc;
    if (k && m * n * k <= 4096 && (code == FL_F32 || code == FL_F64)) {
        if (code == FL_F32) small_f32(m, n, k, (float)alpha, (const float *)a, as0, as1, (const float *)b, bs0, bs1, (float)beta, (float *)c, cs0, cs1);
        else small_f64(m, n, k, alpha, (const double *)a, as0, as1, (const double *)b, bs0, bs1, beta, (double *)c, cs0, cs1);
        return 1;
    }
    int ta = layout(m, k, as0, as1, &la), tb = layout(k, n, bs0, bs1, &lb), tc = layout(m, n, cs0, cs1, &lc);
    if (ta < 0 || tb < 0 || tc < 0 || !sgemm || !dgemm) return 0;
    if (!m || !n) return 1;
    if (tc) {     /* c^T = b^T a^T */
        int64_t t;
        const char *p = a; a = b; b = p;
        t = m; m = n; n = t;
        t = la; la = lb; lb = t;
        int x = ta; ta = !tb; tb = !x;
    }
    if (!k) return 0;
    if (code == FL_F32) sgemm(101, ta ? 112 : 111, tb ? 112 : 111, m, n, k, (float)alpha, (const float *)a, la, (const float *)b, lb, (float)beta, (float *)c, lc);
    else if (code == FL_F64) dgemm(101, ta ? 112 : 111, tb ? 112 : 111, m, n, k, alpha, (const double *)a, la, (const double *)b, lb, beta, (double *)c, lc);
    else return 0;
    return 1;
}
static int gemm_tensors(Tensor *c, Tensor *a, Tensor *b, double alpha, double beta) {
    int64_t m = a->sizes[0], k = a->sizes[1], n = b->sizes[1];
    PyThreadState *save = (double)m * n * k > 1e6 ? PyEval_SaveThread() : NULL;
    int r = gemm(a->dtype->code, m, n, k, alpha, fl_data(a), a->strides[0], a->strides[1], fl_data(b), b->strides[0], b->strides[1],
                 beta, fl_data(c), c->strides[0], c->strides[1]);
    if (save) PyEval_RestoreThread(save);
    return r;
}
/* gemm_tensors, with small operands that BLAS cannot read made dense. */
static int gemm_any(Tensor *c, Tensor *a, Tensor *b, double alpha, double beta) {
    int64_t l;
    int ba = layout(a->sizes[0], a->sizes[1], a->strides[0], a->strides[1], &l) < 0, bb = layout(b->sizes[0], b->sizes[1], b->strides[0], b->strides[1], &l) < 0;
    if ((!ba && !bb) || a->sizes[0] * a->sizes[1] * b->sizes[1] <= 4096) return gemm_tensors(c, a, b, alpha, beta);
    Tensor *x = ba ? dense(a) : (Tensor *)Py_NewRef((PyObject *)a), *y = bb ? dense(b) : (Tensor *)Py_NewRef((PyObject *)b);
    int r = x && y ? gemm_tensors(c, x, y, alpha, beta) : 0;
    Py_XDECREF(x); Py_XDECREF(y);
    return r;
}
static PyObject *mm_call(Fast *f, PyObject *const *a, Py_ssize_t n, PyObject *kw) {
    if (n != 2 || kw || !IS_TENSOR(a[0]) || !IS_TENSOR(a[1])) return NULL;
    Tensor *x = (Tensor *)a[0], *y = (Tensor *)a[1];
    int code = x->dtype->code;
    if (!PLAIN(x) || !PLAIN(y) || x->ndim != 2 || y->ndim != 2 || (code != FL_F32 && code != FL_F64) || y->dtype != x->dtype || x->sizes[1] != y->sizes[0] || !x->sizes[1]) return NULL;
    PyObject *args[2] = {a[0], a[1]};
    int needs = grad_needs(2, args), mask = 0;
    if (needs < 0 || (needs && (!f->node_type || (mask = f->save[needs]) < 0))) return NULL;
    int64_t sizes[2] = {x->sizes[0], y->sizes[1]};
    Tensor *out = fl_empty(2, sizes, NULL, x->dtype, x->storage->device);
    if (!out) return NULL;
    if (!gemm_any(out, x, y, 1, 0)) { Py_DECREF(out); return NULL; }
    if (needs && record(f, f->op, (PyTypeObject *)f->node_type, mask, 2, args, out, NULL, 0, f->tail) < 0) { Py_DECREF(out); return NULL; }
    return (PyObject *)out;
}
static void spread_bias(Tensor *out, Tensor *b) {
    char *o = fl_data(out), *p = fl_data(b); int item = out->dtype->itemsize; int64_t rows = out->sizes[0], cols = out->sizes[1];
    for (int64_t i = 0; i < rows; i++) {
        if (b->contiguous) memcpy(o + i * cols * item, p, cols * item);
        else for (int64_t j = 0; j < cols; j++) memcpy(o + (i * cols + j) * item, p + j * b->strides[0] * item, item);
    }
}
static PyObject *addmm_call(Fast *f, PyObject *const *a, Py_ssize_t n, PyObject *kw) {
    if (n != 3 || kw || !IS_TENSOR(a[0]) || !IS_TENSOR(a[1]) || !IS_TENSOR(a[2])) return NULL;
    Tensor *b = (Tensor *)a[0], *x = (Tensor *)a[1], *y = (Tensor *)a[2];
    int code = x->dtype->code;
    if (!PLAIN(b) || !PLAIN(x) || !PLAIN(y) || x->ndim != 2 || y->ndim != 2 || b->ndim != 1 || (code != FL_F32 && code != FL_F64)
        || y->dtype != x->dtype || b->dtype != x->dtype || x->sizes[1] != y->sizes[0] || !x->sizes[1] || b->sizes[0] != y->sizes[1]) return NULL;
    PyObject *args[3] = {a[0], a[1], a[2]};
    int needs = grad_needs(3, args), mask = 0;
    if (needs < 0 || (needs && (!f->node_type || (mask = f->save[needs]) < 0))) return NULL;
    int64_t sizes[2] = {x->sizes[0], y->sizes[1]};
    Tensor *out = fl_empty(2, sizes, NULL, x->dtype, x->storage->device);
    if (!out) return NULL;
    spread_bias(out, b);
    if (!gemm_any(out, x, y, 1, 1)) { Py_DECREF(out); return NULL; }
    if (needs && record(f, f->op, (PyTypeObject *)f->node_type, mask, 3, args, out, f->defaults, f->nparams, f->tail) < 0) { Py_DECREF(out); return NULL; }
    return (PyObject *)out;
}
/* linear(x, w, b): x of two dimensions; recorded as t and addmm (or mm), which is what it dissolves into. */
static PyObject *linear_call(Fast *f, PyObject *const *a, Py_ssize_t n, PyObject *kw) {
    if (n < 2 || n > 3 || kw || !IS_TENSOR(a[0]) || !IS_TENSOR(a[1]) || !f->next || !f->also) return NULL;
    PyObject *bias = n > 2 && a[2] != Py_None ? a[2] : NULL;
    if (bias && !IS_TENSOR(bias)) return NULL;
    Tensor *x = (Tensor *)a[0], *w = (Tensor *)a[1], *b = (Tensor *)bias;
    int code = x->dtype->code;
    if (!PLAIN(x) || !PLAIN(w) || x->ndim != 2 || w->ndim != 2 || (code != FL_F32 && code != FL_F64) || w->dtype != x->dtype || x->sizes[1] != w->sizes[1] || !x->sizes[1]) return NULL;
    if (b && (!PLAIN(b) || b->dtype != x->dtype || b->ndim != 1 || b->sizes[0] != w->sizes[0])) return NULL;
    int64_t ts[2] = {w->sizes[1], w->sizes[0]}, tst[2] = {w->strides[1], w->strides[0]};
    Fast *g = b ? f->next : f->also->next;          /* addmm or mm */
    if (!g) return NULL;
    PyObject *pre[3] = {b ? bias : a[0], b ? a[0] : a[1], a[1]};
    int needs = grad_needs(b ? 3 : 2, pre), mask = 0;
    if (needs < 0 || (needs && (!g->node_type || !f->also->node_type || (mask = g->save[needs]) < 0))) return NULL;
    Tensor *wt = (Tensor *)fl_view_of(f->also, w, 2, ts, tst, w->offset, NULL);
    if (!wt) return NULL;
    int64_t sizes[2] = {x->sizes[0], w->sizes[0]};
    Tensor *out = fl_empty(2, sizes, NULL, x->dtype, x->storage->device);
    if (!out) { Py_DECREF(wt); return NULL; }
    if (b) spread_bias(out, b);
    PyObject *r = NULL;
    if (gemm_any(out, x, wt, 1, b ? 1 : 0)) {
        PyObject *args[3] = {b ? bias : a[0], b ? a[0] : (PyObject *)wt, (PyObject *)wt};
        if (!needs || !record(g, g->op, (PyTypeObject *)g->node_type, mask, b ? 3 : 2, args, out, g->defaults, b ? g->nparams : 0, g->tail)) r = Py_NewRef((PyObject *)out);
    }
    Py_DECREF(out); Py_DECREF(wt);
    return r;
}
/* The kernel that reduces rows of n0 elements, dense or side by side: one of both loops, or of the one
   that `row_loops` in ops/kinds.py names for such operands. */
static fl_loop rows_loop(Fast *f, int code, int64_t n0, int dense) {
    if (f->loops[code]) return (fl_loop)f->loops[code];
    return (fl_loop)(dense ? n0 > 64 ? f->along[code] : NULL : n0 > 8 ? f->across[code] : NULL);
}
/* A reduction over one dimension, or over neighbouring ones: dims, keepdim. */
static PyObject *sumdim_call(Fast *f, PyObject *const *a, Py_ssize_t n, PyObject *kw) {
    if (n < 2 || n > 3 || kw || !IS_TENSOR(a[0]) || (n == 3 && !PyBool_Check(a[2]))) return NULL;
    Tensor *x = (Tensor *)a[0];
    int code = x->dtype->code, keep = n == 3 && a[2] == Py_True, nd = x->ndim, k;
    int64_t d[FL_MAXDIM];
    if (!PLAIN(x) || !x->numel || !nd || x->numel >= (1 << 20)) return NULL;
    if (!PyLong_CheckExact(a[1]) && !PyTuple_CheckExact(a[1]) && !PyList_CheckExact(a[1])) return NULL;
    if ((k = fl_ints(a[1], d, "", "")) < 0) { PyErr_Clear(); return NULL; }
    if (!k) return NULL;
    for (int i = 0; i < k; i++) {
        if (d[i] < 0) d[i] += nd;
        if (d[i] < 0 || d[i] >= nd || (i && d[i] != d[i - 1] + 1)) return NULL;
    }
    PyObject *args[1] = {a[0]};
    int needs = grad_needs(1, args), mask = 0, first = (int)d[0], last = (int)d[k - 1];
    if (needs < 0 || (needs && (!f->node_type || (mask = f->save[needs]) < 0))) return NULL;
    int64_t sizes[FL_MAXDIM], outer = 1, row = 1, inner = 1; int m = 0, item = x->dtype->itemsize;
    for (int i = 0; i < nd; i++) {
        int64_t s = x->sizes[i];
        if (i < first) outer *= s; else if (i <= last) row *= s; else inner *= s;
        if (i < first || i > last) sizes[m++] = s; else if (keep) sizes[m++] = 1;
    }
    fl_loop loop = rows_loop(f, code, row, inner == 1);
    if (!loop) return NULL;
    Tensor *given = x;
    if (!(x = dense(given))) return NULL;
    Tensor *out = fl_empty(m, sizes, NULL, x->dtype, x->storage->device);
    if (!out) { Py_DECREF(x); return NULL; }
    int64_t none[FL_MAXPARAMS] = {0};
    if (inner == 1) {
        char *ptr[2] = {fl_data(out), fl_data(x)}; int64_t st[4] = {0, item, item, row * item};
        loop(ptr, st, row, outer, none);
    } else for (int64_t o = 0; o < outer; o++) {
        char *ptr[2] = {fl_data(out) + o * inner * item, fl_data(x) + o * row * inner * item}; int64_t st[4] = {0, inner * item, item, item};
        loop(ptr, st, row, inner, none);
    }
    Py_DECREF(x);
    if (needs) {
        PyObject *dims = PyTuple_New(k), *tail = NULL;
        for (int i = 0; dims && i < k; i++) PyTuple_SET_ITEM(dims, i, PyLong_FromLongLong(d[i]));
        if (dims) tail = PyTuple_Pack(3, dims, keep ? Py_True : Py_False, Py_None);
        int r = tail ? record(f, f->op, (PyTypeObject *)f->node_type, mask, 1, args, out, NULL, 0, tail) : -1;
        Py_XDECREF(dims); Py_XDECREF(tail);
        if (r < 0) { Py_DECREF(out); return NULL; }
    }
    return (PyObject *)out;
}
/* A reduction of everything to one number, no arguments. */
static PyObject *sum_call(Fast *f, PyObject *const *a, Py_ssize_t n, PyObject *kw) {
    if (n > 1 && f->next) return sumdim_call(f->next, a, n, kw);
    if (n != 1 || kw || !IS_TENSOR(a[0])) return NULL;
    Tensor *x = (Tensor *)a[0];
    int code = x->dtype->code;
    if (!PLAIN(x) || !x->contiguous || x->numel >= 65536) return NULL;
    fl_loop loop = rows_loop(f, code, x->numel, 1);
    if (!loop) return NULL;
    PyObject *args[1] = {a[0]};
    int needs = grad_needs(1, args), mask = 0;
    if (needs < 0 || (needs && (!f->node_type || (mask = f->save[needs]) < 0))) return NULL;
    Tensor *out = fl_empty(0, NULL, NULL, x->dtype, x->storage->device);
    if (!out) return NULL;
    char *ptr[2] = {fl_data(out), fl_data(x)}; int64_t st[4] = {0, x->dtype->itemsize, 0, 0}, none[FL_MAXPARAMS] = {0};
    loop(ptr, st, x->numel, 1, none);
    if (needs && record(f, f->op, (PyTypeObject *)f->node_type, mask, 1, args, out, NULL, 0, f->tail) < 0) { Py_DECREF(out); return NULL; }
    return (PyObject *)out;
}

/* ---- the callables ---- */
/* Whether a number stands where the schema wants a list. */
static int has_single(Function *f, PyObject *const *a, Py_ssize_t n) {
    for (Py_ssize_t i = 0; i < n && i < 64; i++) if (f->lists >> i & 1 && !PyTuple_Check(a[i]) && !PyList_Check(a[i])) return 1;
    return 0;
}
static inline PyObject *call(Function *f, PyObject *const *a, Py_ssize_t n, PyObject *kw) {
    if (fl_tape) return fl_taped_call(f, a, n, kw);
    if (f->fast && n <= f->most && !(f->lists && has_single(f, a, n)) && IDLE()) {
        for (Fast *k = f->fast; k; k = k->other) {
            PyObject *r = k->call(k, a, n, kw);
            if (r) return r;
            if (PyErr_Occurred()) return NULL;
        }
    }
    if (IDLE()) {
        PyObject *r = fl_prepared(f, a, n, kw);
        if (r || PyErr_Occurred()) return r;
    }
    return PyObject_Vectorcall(f->slow, a, n, kw);
}
PyObject *fl_call(Function *f, PyObject *const *a, Py_ssize_t n, PyObject *kw) { return call(f, a, n, kw); }
static PyObject *vectorcall(PyObject *self, PyObject *const *a, size_t nf, PyObject *kw) {
    Py_ssize_t n = PyVectorcall_NARGS(nf);
    if (Py_TYPE(self) == &MethodType && (n < 1 || !IS_TENSOR(a[0]))) return PyObject_Vectorcall(((Function *)self)->slow, a, n, kw);
    return call((Function *)self, a, n, kw);
}
static PyObject *function_new(PyTypeObject *tp, PyObject *args, PyObject *kw) {
    PyObject *name, *slow, *fast = Py_None, *qual = NULL;
    if (!PyArg_ParseTuple(args, "UO|OU", &name, &slow, &fast, &qual)) return NULL;
    if (fast != Py_None && Py_TYPE(fast) != &FastType) { PyErr_SetString(PyExc_TypeError, "Function(name, slow, fast=None, qualname=None)"); return NULL; }
    Function *f = (Function *)tp->tp_alloc(tp, 0);
    if (!f) return NULL;
    f->vc = vectorcall;
    f->name = Py_NewRef(name); f->qualname = Py_NewRef(qual ? qual : name); f->slow = Py_NewRef(slow);
    f->fast = fast == Py_None ? NULL : (Fast *)Py_NewRef(fast);
    f->most = PY_SSIZE_T_MAX;
    return (PyObject *)f;
}
static int function_traverse(Function *f, visitproc visit, void *arg) { Py_VISIT(f->slow); Py_VISIT((PyObject *)f->fast); Py_VISIT(f->dict); return 0; }
static int function_clear(Function *f) { Py_CLEAR(f->slow); Py_CLEAR(f->fast); Py_CLEAR(f->dict); return 0; }
static void function_dealloc(Function *f) {
    PyObject_GC_UnTrack(f);
    if (f->weakrefs) PyObject_ClearWeakRefs((PyObject *)f);
    function_clear(f);
    Py_CLEAR(f->name); Py_CLEAR(f->qualname);
    Py_TYPE(f)->tp_free((PyObject *)f);
}
static PyObject *function_repr(Function *f) { return PyUnicode_FromFormat("<built-in function %U>", f->name); }
static PyObject *method_repr(Function *f) { return PyUnicode_FromFormat("<method '%U' of 'torch._C.TensorBase' objects>", f->name); }
static PyObject *method_get(PyObject *self, PyObject *obj, PyObject *type) { return !obj || obj == Py_None ? Py_NewRef(self) : PyMethod_New(self, obj); }
static PyObject *function_reduce(Function *f, PyObject *u) { return Py_NewRef(f->qualname); }
static PyObject *function_fast(Function *f, void *c) { return Py_NewRef(f->fast ? (PyObject *)f->fast : Py_None); }
static PyMemberDef function_members[] = {
    {"__name__", T_OBJECT, offsetof(Function, name)}, {"__qualname__", T_OBJECT, offsetof(Function, qualname)}, {"slow", T_OBJECT, offsetof(Function, slow)}, {0}};
static PyGetSetDef function_getset[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict}, {"fast", (getter)function_fast}, {0}};
/* _set_fast(fast, most, lists): most positional arguments that it may be given, and (as bits) which
   of them must be tuples or lists. */
static PyObject *function_set_fast(Function *f, PyObject *args) {
    PyObject *fast; Py_ssize_t most = PY_SSIZE_T_MAX; unsigned long long lists = 0;
    if (!PyArg_ParseTuple(args, "O|nK", &fast, &most, &lists)) return NULL;
    if (fast != Py_None && Py_TYPE(fast) != &FastType) { PyErr_SetString(PyExc_TypeError, "_set_fast(Fast or None)"); return NULL; }
    f->most = most; f->lists = lists;
    Py_XSETREF(f->fast, fast == Py_None ? NULL : (Fast *)Py_NewRef(fast));
    Py_RETURN_NONE;
}
static PyMethodDef function_methods[] = {{"_set_fast", (PyCFunction)function_set_fast, METH_VARARGS},
    {"__reduce__", (PyCFunction)function_reduce, METH_NOARGS}, {0}};
#define FUNCTION_TYPE(Name, tpname, repr, get, extra)                                                     \
    PyTypeObject Name = {PyVarObject_HEAD_INIT(NULL, 0).tp_name = tpname, .tp_basicsize = sizeof(Function), \
        .tp_dealloc = (destructor)function_dealloc, .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | (extra), \
        .tp_vectorcall_offset = offsetof(Function, vc), .tp_call = PyVectorcall_Call, .tp_new = function_new, .tp_repr = (reprfunc)repr, \
        .tp_traverse = (traverseproc)function_traverse, .tp_clear = (inquiry)function_clear, .tp_members = function_members, .tp_getset = function_getset, \
        .tp_methods = function_methods, .tp_descr_get = get, .tp_dictoffset = offsetof(Function, dict), .tp_weaklistoffset = offsetof(Function, weakrefs)}
FUNCTION_TYPE(FunctionType, "flambeau._native.Function", function_repr, NULL, 0);
FUNCTION_TYPE(MethodType, "flambeau._native.Method", method_repr, method_get, Py_TPFLAGS_METHOD_DESCRIPTOR);

/* ---- Fast ---- */
static const struct { const char *name; int kind; fast_call call; } kinds[] = {
    {"map", FL_K_MAP, map_call}, {"map_inplace", FL_K_MAP_INPLACE, map_call}, {"mm", FL_K_MM, mm_call}, {"addmm", FL_K_ADDMM, addmm_call}, {"sum", FL_K_SUM, sum_call}, {"sum_dim", FL_K_SUM, sumdim_call},
    {"linear", FL_K_LINEAR, linear_call}, {"view", FL_K_VIEW, fl_view_call}, {"reshape", FL_K_RESHAPE, fl_view_call}, {"t", FL_K_T, fl_view_call},
    {"transpose", FL_K_TRANSPOSE, fl_view_call}, {"permute", FL_K_PERMUTE, fl_view_call}, {"unsqueeze", FL_K_UNSQUEEZE, fl_view_call},
    {"squeeze", FL_K_SQUEEZE, fl_view_call}, {"select", FL_K_SELECT, fl_view_call}, {"slice", FL_K_SLICE, fl_view_call}, {"expand", FL_K_EXPAND, fl_view_call},
    {"detach", FL_K_DETACH, fl_view_call}, {"getitem", FL_K_GETITEM, fl_view_call},
    {"flatten", FL_K_FLATTEN, fl_view_call}, {"narrow", FL_K_NARROW, fl_view_call}, {"split", FL_K_SPLIT, fl_view_call},
    {"chunk", FL_K_CHUNK, fl_view_call}, {"unbind", FL_K_UNBIND, fl_view_call},
    {"cat", FL_K_CAT, fl_join_call}, {"stack", FL_K_STACK, fl_join_call}, {NULL, 0, NULL}};
/* Fast(kind, ntensors, params=((name, default), ...), out_bool=False, swap=False, tail=()) */
static PyObject *fast_new(PyTypeObject *tp, PyObject *args, PyObject *kw) {
    static char *names[] = {"kind", "ntensors", "params", "out_bool", "swap", "tail", "numbers", NULL};
    const char *kind; int nt; PyObject *ps = NULL, *tail = NULL; int ob = 0, sw = 0, num = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "si|OppO!i", names, &kind, &nt, &ps, &ob, &sw, &PyTuple_Type, &tail, &num)) return NULL;
    if (nt < 1 || nt > 3 || (ps && (!PyTuple_Check(ps) || PyTuple_GET_SIZE(ps) > FL_MAXPARAMS))) { PyErr_SetString(PyExc_ValueError, "Fast: at most 3 tensors and 4 parameters"); return NULL; }
    Fast *f = (Fast *)tp->tp_alloc(tp, 0);
    if (!f) return NULL;
    for (int i = 0; kinds[i].name; i++) if (!strcmp(kinds[i].name, kind)) { f->kind = kinds[i].kind; f->call = kinds[i].call; }
    if (!f->call) { Py_DECREF(f); PyErr_Format(PyExc_ValueError, "Fast: unknown kind %s", kind); return NULL; }
    f->ntensors = nt; f->out_bool = ob; f->swap = sw; f->numbers = num & 3; f->own_strides = !!(num & 4);
    for (int i = 0; i < 8; i++) f->save[i] = -1;
    for (Py_ssize_t i = 0; ps && i < PyTuple_GET_SIZE(ps); i++) {
        PyObject *p = PyTuple_GET_ITEM(ps, i), *nm;
        if (!PyTuple_Check(p) || PyTuple_GET_SIZE(p) != 2) { Py_DECREF(f); PyErr_SetString(PyExc_ValueError, "Fast: params are (name, default)"); return NULL; }
        nm = Py_NewRef(PyTuple_GET_ITEM(p, 0));
        PyUnicode_InternInPlace(&nm);
        f->names[i] = nm;
        f->defaults[i] = PyTuple_GET_ITEM(p, 1) == Py_None ? NULL : Py_NewRef(PyTuple_GET_ITEM(p, 1));
        f->nparams++;
    }
    f->tail = Py_XNewRef(tail);
    return (PyObject *)f;
}
static void fast_dealloc(Fast *f) { PyObject_Free(f); }      /* declarations live as long as the process */
static PyObject *fast_loop(Fast *f, PyObject *args) {
    int code; PyObject *addr; const char *kind = "";
    if (!PyArg_ParseTuple(args, "iO|s", &code, &addr, &kind)) return NULL;
    if (code < 0 || code >= FL_NDTYPES) { PyErr_SetString(PyExc_IndexError, "dtype code"); return NULL; }
    void **loops = !strcmp(kind, "row_along") ? f->along : !strcmp(kind, "row_across") ? f->across : f->loops;
    loops[code] = PyLong_AsVoidPtr(addr);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}
static PyObject *fast_save(Fast *f, PyObject *args) {
    int needs, mask;
    if (!PyArg_ParseTuple(args, "ii", &needs, &mask)) return NULL;
    if (needs < 0 || needs > 7) { PyErr_SetString(PyExc_IndexError, "needs"); return NULL; }
    f->save[needs] = mask;
    Py_RETURN_NONE;
}
static PyObject *fast_node(Fast *f, PyObject *args) {
    PyObject *op, *type;
    if (!PyArg_ParseTuple(args, "OO", &op, &type)) return NULL;
    Py_XSETREF(f->op, Py_NewRef(op)); Py_XSETREF(f->node_type, Py_NewRef(type));
    Py_RETURN_NONE;
}
static PyObject *fast_parts(Fast *f, PyObject *args) {
    PyObject *a, *b = Py_None;
    if (!PyArg_ParseTuple(args, "O!|O", &FastType, &a, &b)) return NULL;
    f->next = (Fast *)Py_NewRef(a);
    if (b != Py_None) f->also = (Fast *)Py_NewRef(b);
    Py_RETURN_NONE;
}
/* set_other(Fast): an overload that takes numbers where this one takes tensors. */
static PyObject *fast_other(Fast *f, PyObject *o) {
    if (Py_TYPE(o) != &FastType || ((Fast *)o)->call != map_call || f->call != map_call) { PyErr_SetString(PyExc_TypeError, "set_other(Fast): pointwise ones"); return NULL; }
    Py_XSETREF(f->other, (Fast *)Py_NewRef(o));
    Py_RETURN_NONE;
}
static PyObject *fast_loops(Fast *f, PyObject *u) {
    PyObject *l = PyList_New(0);
    for (int i = 0; l && i < FL_NDTYPES; i++) if (f->loops[i]) { PyObject *x = PyLong_FromLong(i); PyList_Append(l, x); Py_DECREF(x); }
    return l;
}
static PyMethodDef fast_methods[] = {{"set_loop", (PyCFunction)fast_loop, METH_VARARGS}, {"set_save", (PyCFunction)fast_save, METH_VARARGS},
    {"set_node", (PyCFunction)fast_node, METH_VARARGS}, {"set_parts", (PyCFunction)fast_parts, METH_VARARGS}, {"set_other", (PyCFunction)fast_other, METH_O}, {"loops", (PyCFunction)fast_loops, METH_NOARGS}, {0}};
PyTypeObject FastType = {PyVarObject_HEAD_INIT(NULL, 0).tp_name = "flambeau._native.Fast", .tp_basicsize = sizeof(Fast), .tp_new = fast_new,
    .tp_dealloc = (destructor)fast_dealloc, .tp_flags = Py_TPFLAGS_DEFAULT, .tp_methods = fast_methods};

/* ---- Python's operators ---- */
Function *fl_slot_fn[48];
static const char *slot_names[] = {"add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "floordiv", "rfloordiv", "mod", "rmod", "pow", "rpow",
    "matmul", "rmatmul", "and", "rand", "or", "ror", "xor", "rxor", "lshift", "rlshift", "rshift", "rrshift", "neg", "abs", "invert", "lt", "le", "eq", "ne", "gt", "ge",
    "iadd", "isub", "imul", "itruediv", "ipow", "getitem", "setitem", "bool", "int", "float", "index", "len", "complex"};
static PyObject *slot2(int i, PyObject *a, PyObject *b) {
    PyObject *v[2] = {a, b}; Function *f = fl_slot_fn[i];
    if (!f) Py_RETURN_NOTIMPLEMENTED;
    return call(f, v, 2, NULL);
}
static PyObject *refused(void) {                                  /* a TypeError lets the other operand try */
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) return NULL;
    PyErr_Clear();
    Py_RETURN_NOTIMPLEMENTED;
}
static PyObject *binary(int i, PyObject *a, PyObject *b) {       /* i forward, i + 1 reflected */
    PyObject *r = Tensor_Check(a) ? slot2(i, a, b) : slot2(i + 1, b, a);
    if (r) return r;
    r = refused();
    if (r && Tensor_Check(a) && Tensor_Check(b) && Py_TYPE(a) != Py_TYPE(b)) { Py_DECREF(r); r = slot2(i + 1, b, a); return r ? r : refused(); }
    return r;
}
static PyObject *slot1(int i, PyObject *a) {
    Function *f = fl_slot_fn[i];
    if (!f) { PyErr_Format(PyExc_TypeError, "operator %s is not defined for Tensor", slot_names[i]); return NULL; }
    return call(f, &a, 1, NULL);
}
#define BIN(name, i) static PyObject *nb_##name(PyObject *a, PyObject *b) { return binary(i, a, b); }
BIN(add, 0) BIN(sub, 2) BIN(mul, 4) BIN(div, 6) BIN(floordiv, 8) BIN(mod, 10) BIN(matmul, 14) BIN(and, 16) BIN(or, 18) BIN(xor, 20) BIN(lshift, 22) BIN(rshift, 24)
static PyObject *nb_pow(PyObject *a, PyObject *b, PyObject *c) { return binary(12, a, b); }
#define UN(name, i) static PyObject *nb_##name(PyObject *a) { return slot1(i, a); }
UN(neg, 26) UN(abs, 27) UN(invert, 28) UN(int, 43) UN(float, 44) UN(index, 45)
static PyObject *nb_positive(PyObject *a) { return Py_NewRef(a); }
#define INP(name, i) static PyObject *nb_i##name(PyObject *a, PyObject *b) { PyObject *r = slot2(i, a, b); return r ? r : refused(); }
INP(add, 35) INP(sub, 36) INP(mul, 37) INP(div, 38)
static PyObject *nb_ipow(PyObject *a, PyObject *b, PyObject *c) { return slot2(39, a, b); }
static PyObject *richcompare(PyObject *a, PyObject *b, int op) {
    PyObject *r = slot2(29 + op, a, b), *as_tensor;
    if (r) return r;
    r = refused();
    /* `==` alone takes NumPy arrays: NumPy leaves them to us, and Python would compare identities. */
    if (r && op == Py_EQ && PyObject_HasAttrString(b, "__array_interface__") && (as_tensor = PyDict_GetItemString(fl_hooks, "array_operand"))) {
        PyObject *t = PyObject_CallOneArg(as_tensor, b);
        Py_DECREF(r);
        r = t ? slot2(29 + op, a, t) : NULL;
        Py_XDECREF(t);
    }
    return r;
}
static Py_hash_t hash(PyObject *a) { return _Py_HashPointer(a); }
static int nb_bool(PyObject *a) {
    Tensor *t = (Tensor *)a;
    FL_UNSEEN();
    if (t->numel == 1 && PLAIN(t) && !(fl_state.active & ~fl_state.suspended)) {
        if (t->dtype->code == FL_BOOL) return *(uint8_t *)fl_data(t) != 0;
        PyObject *v = fl_item(t);
        int r = v ? PyObject_IsTrue(v) : -1;
        Py_XDECREF(v);
        return r;
    }
    PyObject *r = slot1(42, a);
    int b = r ? PyObject_IsTrue(r) : -1;
    Py_XDECREF(r);
    return b;
}
PyObject *fl_subscript(PyObject *a, PyObject *k) { return IDLE() && !fl_tape ? fl_getitem(a, k) : slot2(FL_SLOT_GETITEM, a, k); }
static int mp_ass(PyObject *a, PyObject *k, PyObject *v) {
    if (!v) { PyErr_SetString(PyExc_TypeError, "Tensor does not support deleting items"); return -1; }
    PyObject *x[3] = {a, k, v};
    FL_UNSEEN();
    if (IDLE()) { int done = fl_setitem(a, k, v); if (done) return done < 0 ? -1 : 0; }
    if (!fl_slot_fn[41]) { PyErr_SetString(PyExc_TypeError, "Tensor does not support item assignment"); return -1; }
    PyObject *r = call(fl_slot_fn[41], x, 3, NULL);
    Py_XDECREF(r);
    return r ? 0 : -1;
}
static Py_ssize_t length(PyObject *a) {
    Tensor *t = (Tensor *)a;
    PyObject *layer;
    if (((t->bits | fl_state.active) & (FL_L_FUNCTION | FL_L_FUNCTION_MODE) & ~fl_state.suspended) && (layer = PyDict_GetItemString(fl_hooks, "method_layer"))) {
        PyObject *r = PyObject_CallFunction(layer, "s(O){}", "__len__", a);
        Py_ssize_t n = r ? PyNumber_AsSsize_t(r, PyExc_OverflowError) : -1;
        Py_XDECREF(r);
        return n;
    }
    if (!t->ndim) { PyErr_SetString(PyExc_TypeError, "len() of a 0-d tensor"); return -1; }
    if (t->sym) return PyNumber_AsSsize_t(PyTuple_GET_ITEM(PyTuple_GET_ITEM(t->sym, 0), 0), PyExc_OverflowError);
    return (Py_ssize_t)t->sizes[0];
}
PyType_Slot fl_number_slots[] = {
    {Py_nb_add, nb_add}, {Py_nb_subtract, nb_sub}, {Py_nb_multiply, nb_mul}, {Py_nb_true_divide, nb_div}, {Py_nb_floor_divide, nb_floordiv},
    {Py_nb_remainder, nb_mod}, {Py_nb_power, nb_pow}, {Py_nb_matrix_multiply, nb_matmul}, {Py_nb_and, nb_and}, {Py_nb_or, nb_or}, {Py_nb_xor, nb_xor},
    {Py_nb_lshift, nb_lshift}, {Py_nb_rshift, nb_rshift}, {Py_nb_negative, nb_neg}, {Py_nb_positive, nb_positive}, {Py_nb_absolute, nb_abs}, {Py_nb_invert, nb_invert},
    {Py_nb_inplace_add, nb_iadd}, {Py_nb_inplace_subtract, nb_isub}, {Py_nb_inplace_multiply, nb_imul}, {Py_nb_inplace_true_divide, nb_idiv}, {Py_nb_inplace_power, nb_ipow},
    {Py_nb_bool, nb_bool}, {Py_nb_int, nb_int}, {Py_nb_float, nb_float}, {Py_nb_index, nb_index}, {Py_tp_richcompare, richcompare}, {Py_tp_hash, hash},
    {Py_mp_subscript, fl_subscript}, {Py_mp_ass_subscript, mp_ass}, {Py_mp_length, length}, {0, NULL}};

/* set_slot(name, Function): what Python's operator calls. */
static PyObject *f_slot(PyObject *m, PyObject *args) {
    const char *name; PyObject *fn;
    if (!PyArg_ParseTuple(args, "sO", &name, &fn)) return NULL;
    if (Py_TYPE(fn) != &FunctionType && Py_TYPE(fn) != &MethodType) { PyErr_SetString(PyExc_TypeError, "set_slot(name, Function)"); return NULL; }
    for (size_t i = 0; i < sizeof slot_names / sizeof *slot_names; i++)
        if (!strcmp(slot_names[i], name)) { Py_XSETREF(fl_slot_fn[i], (Function *)Py_NewRef(fn)); Py_RETURN_NONE; }
    PyErr_Format(PyExc_ValueError, "set_slot: unknown operator %s", name);
    return NULL;
}
static PyObject *f_blas(PyObject *m, PyObject *args) {
    PyObject *s, *d;
    if (!PyArg_ParseTuple(args, "OO", &s, &d)) return NULL;
    sgemm = (gemm_f32)PyLong_AsVoidPtr(s); dgemm = (gemm_f64)PyLong_AsVoidPtr(d);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}
/* gemm(out, a, b, alpha, beta) over matrices or equal batches of them: False when a layout does not suit BLAS. */
static PyObject *f_gemm(PyObject *m, PyObject *args) {
    PyObject *c_, *a_, *b_; double alpha, beta;
    if (!PyArg_ParseTuple(args, "O!O!O!dd", TensorType, &c_, TensorType, &a_, TensorType, &b_, &alpha, &beta)) return NULL;
    Tensor *c = (Tensor *)c_, *a = (Tensor *)a_, *b = (Tensor *)b_;
    int nd = c->ndim, code = c->dtype->code;
    if (a->ndim != nd || b->ndim != nd || nd < 2 || nd > 3 || a->dtype != c->dtype || b->dtype != c->dtype) { PyErr_SetString(PyExc_ValueError, "gemm: two or three dimensions of one dtype"); return NULL; }
    int64_t batch = nd == 3 ? c->sizes[0] : 1, m_ = c->sizes[nd - 2], n_ = c->sizes[nd - 1], k_ = a->sizes[nd - 1], item = c->dtype->itemsize;
    char *pc = fl_data(c), *pa = fl_data(a), *pb = fl_data(b); int ok = 1;
    PyThreadState *save = (double)batch * m_ * n_ * k_ > 1e6 ? PyEval_SaveThread() : NULL;
    for (int64_t i = 0; i < batch && ok; i++)
        ok = gemm(code, m_, n_, k_, alpha, pa + (nd == 3 ? i * a->strides[0] * item : 0), a->strides[nd - 2], a->strides[nd - 1],
                  pb + (nd == 3 ? i * b->strides[0] * item : 0), b->strides[nd - 2], b->strides[nd - 1],
                  beta, pc + (nd == 3 ? i * c->strides[0] * item : 0), c->strides[nd - 2], c->strides[nd - 1]);
    if (save) PyEval_RestoreThread(save);
    return PyBool_FromLong(ok);
}
static PyMethodDef functions[] = {{"set_slot", f_slot, METH_VARARGS}, {"set_blas", f_blas, METH_VARARGS}, {"gemm", f_gemm, METH_VARARGS}, {0}};
int fl_fast_init(PyObject *m) {
    if (!(out_name = PyUnicode_InternFromString("out"))) return -1;
    return fl_add_type(m, &FastType) || fl_add_type(m, &FunctionType) || fl_add_type(m, &MethodType) || PyModule_AddFunctions(m, functions) ? -1 : 0;
}
