/* Views without copying: their geometry, and the plain call that records them. */
#include "fast.h"

#define PLAIN(t) (!(t)->bits && !(t)->sym)

/* A view of t. rest (borrowed): the recorded call's arguments after the tensor. */
PyObject *fl_view_of(Fast *f, Tensor *t, int nd, const int64_t *sizes, const int64_t *strides, int64_t off, PyObject *rest) {
    int needs = fl_recording() ? fl_requires_grad(t) : 0;
    if (needs < 0 || (needs && (!f || (!f->node_type && f->kind != FL_K_DETACH)))) return NULL;
    Tensor *v = fl_alias(t, nd, sizes, strides, off);
    if (!v) return NULL;
    v->attr_version = fl_version(v);
    if (f && f->kind == FL_K_DETACH) return (PyObject *)v;
    if (!(t->flags & FL_T_INFERENCE)) v->base = (Tensor *)Py_NewRef((PyObject *)(t->base ? t->base : t));
    if (!fl_state.grad) v->flags |= fl_state.inference ? FL_T_INFERENCE_VIEW : FL_T_NOGRAD_VIEW;
    else v->flags |= t->flags & FL_T_VIEW_KINDS;
    if (!needs) return (PyObject *)v;
    Py_ssize_t nr = rest ? PyTuple_GET_SIZE(rest) : 0;
    Node *n = fl_node((PyTypeObject *)f->node_type, f->op, 1);
    PyObject *tup = PyTuple_New(1 + nr), *g = (PyObject *)fl_geometry(t);
    if (!n || !tup || !g || fl_edge(n, 0, t) < 0) { Py_XDECREF(n); Py_XDECREF(tup); Py_XDECREF(g); Py_DECREF(v); return NULL; }
    PyTuple_SET_ITEM(tup, 0, g);
    for (Py_ssize_t i = 0; i < nr; i++) PyTuple_SET_ITEM(tup, 1 + i, Py_NewRef(PyTuple_GET_ITEM(rest, i)));
    n->args = tup;
    fl_attach(v, n, 0);
    Py_DECREF(n);
    return (PyObject *)v;
}
/* Strides of t seen with other sizes, when no copy is needed: dimensions that are dense among
   themselves form a block, and each block must split into whole new dimensions. */
static int view_strides(Tensor *t, int nd, const int64_t *sizes, int64_t *out) {
    if (!t->numel) {
        if (nd == t->ndim && !memcmp(sizes, t->sizes, nd * sizeof *sizes)) { memcpy(out, t->strides, nd * sizeof *out); return 1; }
        int64_t c = 1;
        for (int i = nd; i--;) { out[i] = c; c *= sizes[i] > 1 ? sizes[i] : 1; }
        return 1;
    }
    int j = nd - 1; int64_t block = 1, base = t->ndim ? t->strides[t->ndim - 1] : 1, filled = 1;
    for (int i = t->ndim - 1; i >= 0; i--) {
        block *= t->sizes[i];
        int end = i == 0 || (t->sizes[i - 1] != 1 && t->strides[i - 1] != block * base);
        if (!end) continue;
        while (j >= 0 && (filled < block || sizes[j] == 1)) { out[j] = filled * base; filled *= sizes[j]; j--; }
        if (filled != block) return 0;
        if (i > 0) { base = t->strides[i - 1]; block = filled = 1; }
    }
    for (; j >= 0; j--) { if (sizes[j] != 1) return 0; out[j] = t->ndim ? filled * base : 1; }
    return 1;
}
static int infer(Tensor *t, int nd, int64_t *sizes) {          /* fill in the -1; 0 when the sizes do not fit */
    int64_t n = 1; int at = -1;
    for (int i = 0; i < nd; i++) {
        if (sizes[i] == -1) { if (at >= 0) return 0; at = i; }
        else if (sizes[i] < 0) return 0;
        else n *= sizes[i];
    }
    if (at < 0) return n == t->numel;
    if (!n || t->numel % n) return 0;
    sizes[at] = t->numel / n;
    return 1;
}
static int wrap(int64_t *d, int n) {
    if (n <= 0) n = 1;
    if (*d < -n || *d >= n) return 0;
    if (*d < 0) *d += n;
    return 1;
}
static int one_int(PyObject *o, int64_t *v) {
    if (!PyLong_CheckExact(o)) return 0;
    *v = PyLong_AsLongLong(o);
    if (*v == -1 && PyErr_Occurred()) { PyErr_Clear(); return 0; }
    return 1;
}
static PyObject *tuple_of(int n, const int64_t *v) {
    PyObject *r = PyTuple_New(n);
    for (int i = 0; r && i < n; i++) PyTuple_SET_ITEM(r, i, PyLong_FromLongLong(v[i]));
    return r;
}
static PyObject *with_rest(Fast *f, Tensor *t, int nd, const int64_t *sz, const int64_t *st, int64_t off, PyObject *rest) {
    PyObject *r = rest ? fl_view_of(f, t, nd, sz, st, off, rest) : NULL;
    Py_XDECREF(rest);
    return r;
}
#define RECORDING(t) (fl_recording() && fl_requires_grad(t))
#define REST(...) (RECORDING(t) ? Py_BuildValue(__VA_ARGS__) : PyTuple_New(0))

/* Several views at once: stretches of `each` along d, or (each < 0) every index of d. */
static PyObject *several(Fast *f, Tensor *t, int d, int64_t each, PyObject *rest) {
    int needs = RECORDING(t), nd = t->ndim, gone = each < 0;
    int64_t len = t->sizes[d], count = gone ? len : each ? (len + each - 1) / each : 1, sz[FL_MAXDIM], st[FL_MAXDIM];
    if (count < 1) count = gone ? 0 : 1;
    memcpy(sz, t->sizes, nd * sizeof *sz); memcpy(st, t->strides, nd * sizeof *st);
    if (gone) for (int k = d; k + 1 < nd; k++) { sz[k] = sz[k + 1]; st[k] = st[k + 1]; }
    PyObject *out = rest ? PyTuple_New(count) : NULL, *outs = needs ? PyTuple_New(count) : NULL;
    Node *node = out && needs ? fl_node((PyTypeObject *)f->node_type, f->op, 1) : NULL;
    if (!out || (needs && (!outs || !node || fl_edge(node, 0, t) < 0))) goto fail;
    for (int64_t i = 0; i < count; i++) {
        if (!gone) sz[d] = len - i * each < each ? len - i * each : each;
        Tensor *v = fl_alias(t, nd - gone, sz, st, t->offset + i * (gone ? 1 : each) * t->strides[d]);
        if (!v) goto fail;
        PyTuple_SET_ITEM(out, i, (PyObject *)v);
        v->attr_version = fl_version(v);
        v->flags |= FL_T_MULTI_VIEW;
        if (!(t->flags & FL_T_INFERENCE)) v->base = (Tensor *)Py_NewRef((PyObject *)(t->base ? t->base : t));
        if (!fl_state.grad) { v->flags |= FL_T_NOGRAD_VIEW; v->requires_grad = v->base && v->base->requires_grad; }
        if (needs) {
            PyObject *g = (PyObject *)fl_geometry(v);
            if (!g) goto fail;
            PyTuple_SET_ITEM(outs, i, g);
            fl_attach(v, node, (int)i);
        }
    }
    if (needs) {
        Py_ssize_t nr = PyTuple_GET_SIZE(rest);
        PyObject *args = PyTuple_New(1 + nr), *g = (PyObject *)fl_geometry(t);
        if (!args || !g) { Py_XDECREF(args); Py_XDECREF(g); goto fail; }
        PyTuple_SET_ITEM(args, 0, g);
        for (Py_ssize_t i = 0; i < nr; i++) PyTuple_SET_ITEM(args, 1 + i, Py_NewRef(PyTuple_GET_ITEM(rest, i)));
        node->args = args; node->outs = outs; node->needs = (int)count;
        Py_DECREF(node);
    }
    Py_DECREF(rest);
    return out;
fail:
    Py_XDECREF(out); Py_XDECREF(outs); Py_XDECREF(node); Py_XDECREF(rest);
    return NULL;
}

PyObject *fl_view_call(Fast *f, PyObject *const *a, Py_ssize_t n, PyObject *kw) {
    if (kw || n < 1 || !Tensor_Check(a[0])) return NULL;
    Tensor *t = (Tensor *)a[0];
    if (!PLAIN(t) || (fl_recording() && fl_requires_grad(t) && !f->node_type && f->kind != FL_K_DETACH)) return NULL;
    int64_t sz[FL_MAXDIM], st[FL_MAXDIM], d, e; int nd = t->ndim, k;
    if (f->kind != FL_K_VIEW && f->kind != FL_K_RESHAPE && f->kind != FL_K_EXPAND) { memcpy(sz, t->sizes, nd * sizeof *sz); memcpy(st, t->strides, nd * sizeof *st); }
    switch (f->kind) {
    case FL_K_DETACH: return n == 1 ? fl_view_of(f, t, nd, sz, st, t->offset, NULL) : NULL;
    case FL_K_VIEW: case FL_K_RESHAPE: case FL_K_EXPAND: case FL_K_PERMUTE: {
        int64_t v[FL_MAXDIM]; int m;
        if (n == 2 && (PyTuple_Check(a[1]) || PyList_CheckExact(a[1]))) {
            m = fl_ints(a[1], v, "", "");
            if (m < 0) { PyErr_Clear(); return NULL; }
        } else {
            m = (int)n - 1;
            if (m < 1 || m > FL_MAXDIM) return NULL;
            for (int i = 0; i < m; i++) if (!one_int(a[1 + i], v + i)) return NULL;
        }
        if (f->kind == FL_K_PERMUTE) {
            char seen[FL_MAXDIM] = {0};
            if (m != nd) return NULL;
            for (int i = 0; i < m; i++) {
                d = v[i];
                if (!wrap(&d, nd) || seen[d]) return NULL;
                seen[d] = 1; sz[i] = t->sizes[d]; st[i] = t->strides[d];
            }
            return with_rest(f, t, nd, sz, st, t->offset, REST("(N)", tuple_of(m, v)));
        }
        if (f->kind == FL_K_EXPAND) {
            if (m < nd) return NULL;
            for (int i = 0; i < m; i++) {
                int j = i - (m - nd);
                if (j < 0) { if (v[i] < 0) return NULL; sz[i] = v[i]; st[i] = 0; continue; }
                if (v[i] == -1 || v[i] == t->sizes[j]) { sz[i] = t->sizes[j]; st[i] = t->strides[j]; }
                else if (t->sizes[j] == 1 && v[i] >= 0) { sz[i] = v[i]; st[i] = 0; }
                else return NULL;
            }
            for (int i = m - nd - 1; i >= 0; i--) {      /* leading new dimensions of extent one continue densely */
                st[i] = sz[i] == 1 && i + 1 < m ? sz[i + 1] * st[i + 1] : 0;
            }
            return with_rest(f, t, m, sz, st, t->offset, REST("(N)", tuple_of(m, v)));
        }
        memcpy(sz, v, m * sizeof *v);
        if (f->kind == FL_K_RESHAPE && !t->contiguous && RECORDING(t)) return NULL;     /* recorded as _reshape_alias */
        if (!infer(t, m, sz) || !view_strides(t, m, sz, st)) return NULL;
        return with_rest(f, t, m, sz, st, t->offset, REST("(N)", tuple_of(m, f->kind == FL_K_VIEW ? v : sz)));
    }
    case FL_K_T:
        if (n != 1 || nd > 2) return NULL;
        if (nd == 2) { sz[0] = t->sizes[1]; sz[1] = t->sizes[0]; st[0] = t->strides[1]; st[1] = t->strides[0]; }
        return fl_view_of(f, t, nd, sz, st, t->offset, NULL);
    case FL_K_TRANSPOSE:
        if (n != 3 || !one_int(a[1], &d) || !one_int(a[2], &e) || !wrap(&d, nd) || !wrap(&e, nd)) return NULL;
        if (nd) { sz[d] = t->sizes[e]; sz[e] = t->sizes[d]; st[d] = t->strides[e]; st[e] = t->strides[d]; }
        return with_rest(f, t, nd, sz, st, t->offset, REST("(OO)", a[1], a[2]));
    case FL_K_UNSQUEEZE:
        if (n != 2 || !one_int(a[1], &d) || nd >= FL_MAXDIM || !wrap(&d, nd + 1)) return NULL;
        for (k = nd; k > d; k--) { sz[k] = sz[k - 1]; st[k] = st[k - 1]; }
        st[d] = d < nd ? t->sizes[d] * t->strides[d] : 1; sz[d] = 1;
        return with_rest(f, t, nd + 1, sz, st, t->offset, REST("(L)", (long long)d));
    case FL_K_SQUEEZE:
        if (n == 2) {                                    /* recorded as squeeze.dim: f's part */
            if (!one_int(a[1], &d) || !wrap(&d, nd) || !f->next || (RECORDING(t) && !f->next->node_type)) return NULL;
            if (nd && sz[d] == 1) { for (k = (int)d; k + 1 < nd; k++) { sz[k] = sz[k + 1]; st[k] = st[k + 1]; } nd--; }
            return with_rest(f->next, t, nd, sz, st, t->offset, REST("(L)", (long long)d));
        }
        if (n != 1) return NULL;
        for (k = e = 0; k < nd; k++) if (sz[k] != 1) { sz[e] = sz[k]; st[e++] = st[k]; }
        return fl_view_of(f, t, (int)e, sz, st, t->offset, NULL);
    case FL_K_SELECT:
        if (n != 3 || !one_int(a[1], &d) || !one_int(a[2], &e) || !nd || !wrap(&d, nd) || !wrap(&e, (int)(sz[d] ? sz[d] : 0)) || !sz[d]) return NULL;
        { int64_t off = t->offset + e * st[d];
          for (k = (int)d; k + 1 < nd; k++) { sz[k] = sz[k + 1]; st[k] = st[k + 1]; }
          return with_rest(f, t, nd - 1, sz, st, off, REST("(LL)", (long long)d, (long long)e)); }
    case FL_K_FLATTEN:                                   /* recorded as view */
        d = 0; e = -1;
        if (n > 3 || (n > 1 && !one_int(a[1], &d)) || (n > 2 && !one_int(a[2], &e)) || !nd || !wrap(&d, nd) || !wrap(&e, nd) || d > e) return NULL;
        if (d == e) return Py_NewRef((PyObject *)t);
        if (!t->contiguous && RECORDING(t)) return NULL;
        for (k = (int)d + 1; k <= e; k++) sz[d] *= sz[k];
        for (k = (int)e + 1; k < nd; k++) sz[d + k - e] = sz[k];
        nd -= (int)(e - d);
        if (!view_strides(t, nd, sz, st)) return NULL;
        return with_rest(f, t, nd, sz, st, t->offset, REST("(N)", tuple_of(nd, sz)));
    case FL_K_NARROW: {                                  /* recorded as slice */
        int64_t len;
        if (n != 4 || !one_int(a[1], &d) || !one_int(a[2], &e) || !one_int(a[3], &len) || !nd || !wrap(&d, nd)) return NULL;
        if (e < 0) e += sz[d];
        if (e < 0 || len < 0 || e + len > sz[d]) return NULL;
        sz[d] = len;
        return with_rest(f, t, nd, sz, st, t->offset + e * st[d], REST("(LLLi)", (long long)d, (long long)e, (long long)(e + len), 1));
    }
    case FL_K_SPLIT: case FL_K_CHUNK:
        e = 0;
        if (n < 2 || n > 3 || !one_int(a[1], &d) || (n > 2 && !one_int(a[2], &e)) || !nd || !wrap(&e, nd) || d <= 0 || !sz[e]) return NULL;
        if (f->kind == FL_K_CHUNK) d = (sz[e] + d - 1) / d;
        return several(f, t, (int)e, d, REST("(LL)", (long long)d, (long long)e));
    case FL_K_UNBIND:
        d = 0;
        if (n > 2 || (n > 1 && !one_int(a[1], &d)) || !nd || !wrap(&d, nd)) return NULL;
        return several(f, t, (int)d, -1, REST("(L)", (long long)d));
    default: return NULL;
    }
}

/* ---- x[...] with integers, slices, None and Ellipsis ---- */
static PyObject *slow(PyObject *self, PyObject *key) {
    Function *f = fl_slot_fn[FL_SLOT_GETITEM];
    if (!f) { PyErr_SetString(PyExc_TypeError, "indexing is not defined for Tensor"); return NULL; }
    PyObject *v[2] = {self, key};
    return PyObject_Vectorcall(f->slow, v, 2, NULL);
}
static int bound(PyObject *o, int64_t dflt, int64_t *v) {
    if (o == Py_None) { *v = dflt; return 1; }
    return one_int(o, v);
}
/* A slice of a dimension of extent len: what it says (b, e, s) and where it begins and ends (b0, e0). */
static int slice_of(PyObject *o, int64_t len, int64_t *b, int64_t *e, int64_t *s, int64_t *b0, int64_t *e0) {
    PySliceObject *sl = (PySliceObject *)o;
    if (!bound(sl->step, 1, s) || *s < 1 || !bound(sl->start, 0, b) || !bound(sl->stop, INT64_MAX, e)) return 0;
    *b0 = *b < 0 ? *b + len : *b; *e0 = *e < 0 ? *e + len : *e;
    if (*b0 < 0) *b0 = 0;
    if (*b0 > len) *b0 = len;
    if (*e0 > len) *e0 = len;
    if (*e0 < *b0) *e0 = *b0;
    return 1;
}
/* Under autograd every index leaves the node of its own view: select, slice or unsqueeze. */
static PyObject *getitem_recorded(Function *fn, PyObject *self, PyObject *key, PyObject *const *k, Py_ssize_t n, int used) {
    Fast *sel = fn->fast->next, *sli = fn->fast->also, *uns = sel->next;
    if (!sel->node_type || !sli->node_type || !uns || !uns->node_type) return slow(self, key);
    Tensor *t = (Tensor *)Py_NewRef(self); int dim = 0, nd0 = t->ndim;
    for (Py_ssize_t j = 0; j < n; j++) {
        int64_t sz[FL_MAXDIM], st[FL_MAXDIM], off = t->offset, i, b, e, s, b0, e0; int nd = t->ndim; Fast *f; PyObject *rest;
        memcpy(sz, t->sizes, nd * sizeof *sz); memcpy(st, t->strides, nd * sizeof *st);
        if (k[j] == Py_Ellipsis) { dim += nd0 - used; goto next; }
        if (k[j] == Py_None) {
            for (int m = nd; m > dim; m--) { sz[m] = sz[m - 1]; st[m] = st[m - 1]; }
            st[dim] = dim < nd ? t->sizes[dim] * t->strides[dim] : 1; sz[dim] = 1;
            f = uns; nd++; rest = Py_BuildValue("(i)", dim++);
        } else if (PyLong_CheckExact(k[j])) {
            if (!one_int(k[j], &i) || i < -sz[dim] || i >= sz[dim]) break;
            off += (i < 0 ? i + sz[dim] : i) * st[dim];
            for (int m = dim; m + 1 < nd; m++) { sz[m] = sz[m + 1]; st[m] = st[m + 1]; }
            f = sel; nd--; rest = Py_BuildValue("(iL)", dim, (long long)i);
        } else if (PySlice_Check(k[j])) {
            if (!slice_of(k[j], sz[dim], &b, &e, &s, &b0, &e0)) break;
            if (PyTuple_CheckExact(key) && !b && e >= sz[dim] && s == 1) { dim++; goto next; }
            off += b0 * st[dim]; sz[dim] = (e0 - b0 + s - 1) / s; st[dim] *= s;
            f = sli; rest = Py_BuildValue("(iLLL)", dim++, (long long)b, (long long)e, (long long)s);
        } else break;
        Tensor *v; v = rest ? (Tensor *)fl_view_of(f, t, nd, sz, st, off, rest) : NULL;
        Py_XDECREF(rest);
        Py_SETREF(t, v);
        if (!t) return NULL;
    next:
        if (j + 1 == n && (PyObject *)t != self) return (PyObject *)t;
    }
    Py_DECREF(t);
    return slow(self, key);
}
/* The view that integers, slices, None and Ellipsis give: its rank, or -1 when Python must judge. */
static int basic(Tensor *t, PyObject *const *k, Py_ssize_t n, int used, int64_t *sz, int64_t *st, int64_t *off) {
    int out = 0, d = 0, nd = t->ndim; int64_t i, b, e, s, b0, e0;
    for (Py_ssize_t j = 0; j < n; j++) {
        if (k[j] == Py_None) { sz[out] = 1; st[out] = d < nd ? t->sizes[d] * t->strides[d] : 1; out++; }
        else if (k[j] == Py_Ellipsis) for (int m = nd - used; m--; d++) { sz[out] = t->sizes[d]; st[out++] = t->strides[d]; }
        else if (PyLong_CheckExact(k[j])) {
            if (!one_int(k[j], &i)) return -1;
            if (i < 0) i += t->sizes[d];
            if (i < 0 || i >= t->sizes[d]) return -1;
            *off += i * t->strides[d++];
        } else if (PySlice_Check(k[j])) {
            if (!slice_of(k[j], t->sizes[d], &b, &e, &s, &b0, &e0)) return -1;
            sz[out] = (e0 - b0 + s - 1) / s; st[out++] = t->strides[d] * s; *off += b0 * t->strides[d++];
        } else return -1;
    }
    for (; d < nd; d++) { sz[out] = t->sizes[d]; st[out++] = t->strides[d]; }
    return out;
}
/* The parts of a key; how many dimensions they use up, or -1 when Python must judge. */
static int keys_of(PyObject *key, int nd, PyObject *const **k, Py_ssize_t *n, PyObject **one) {
    int used = 0, dots = 0;
    if (PyTuple_CheckExact(key)) { *k = &PyTuple_GET_ITEM(key, 0); *n = PyTuple_GET_SIZE(key); }
    else { *one = key; *k = one; *n = 1; }
    for (Py_ssize_t j = 0; j < *n; j++) { if ((*k)[j] == Py_Ellipsis) dots++; else if ((*k)[j] != Py_None) used++; }
    return used > nd || dots > 1 || *n > 16 || *n + nd > FL_MAXDIM || !*n ? -1 : used;
}
/* x[tensor]: whole rows of a contiguous x by a contiguous int64 index; recorded as `index`. */
static PyObject *by_rows(PyObject *self, PyObject *key, int rec) {
    Function *fn = fl_slot_fn[FL_SLOT_GETITEM];
    Tensor *t = (Tensor *)self, *x = (Tensor *)key; Fast *f = fn->fast->also->next;
    int nd = t->ndim + x->ndim - 1, needs = rec || (fl_recording() && fl_requires_grad(x));
    if (!f || !PLAIN(x) || !x->ndim || !t->ndim || x->dtype->code != FL_I64 || !x->contiguous || !t->contiguous || nd > FL_MAXDIM
        || t->flags & (FL_T_CONJ | FL_T_NEG) || !t->storage->data || !x->storage->data || !t->numel || !x->numel || x->numel > 4096 || (needs && !f->node_type)) return NULL;
    int64_t sz[FL_MAXDIM], rows = t->sizes[0], each = t->numel / rows * t->dtype->itemsize; const int64_t *at = (const int64_t *)fl_data(x);
    for (int64_t i = 0; i < x->numel; i++) if (at[i] < -rows || at[i] >= rows) return NULL;
    memcpy(sz, x->sizes, x->ndim * sizeof *sz); memcpy(sz + x->ndim, t->sizes + 1, (t->ndim - 1) * sizeof *sz);
    Tensor *out = fl_empty(nd, sz, NULL, t->dtype, t->storage->device);
    if (!out) return NULL;
    char *to = fl_data(out), *from = fl_data(t);
    for (int64_t i = 0; i < x->numel; i++) memcpy(to + i * each, from + (at[i] < 0 ? at[i] + rows : at[i]) * each, each);
    if (!needs) return (PyObject *)out;
    Node *node = fl_node((PyTypeObject *)f->node_type, f->op, 2);
    PyObject *g = (PyObject *)fl_geometry(t), *o = (PyObject *)fl_geometry(out), *saved = fl_saved(x, 0);
    PyObject *args = g && saved ? Py_BuildValue("(N(N))", g, saved) : NULL, *outs = o ? Py_BuildValue("(N)", o) : NULL;
    if (!node || !args || !outs || fl_edge(node, 0, t) < 0) { Py_XDECREF(node); Py_XDECREF(args); Py_XDECREF(outs); Py_DECREF(out); return NULL; }
    node->args = args; node->outs = outs;
    fl_attach(out, node, 0);
    Py_DECREF(node);
    return (PyObject *)out;
}
/* x[mask]: the elements of a small contiguous x where a mask of its shape is true, nothing recorded. */
static PyObject *by_mask(PyObject *self, PyObject *key) {
    Tensor *t = (Tensor *)self, *m = (Tensor *)key;
    if (!PLAIN(m) || m->dtype->code != FL_BOOL || !m->contiguous || !t->contiguous || m->ndim != t->ndim || !t->ndim || memcmp(m->sizes, t->sizes, t->ndim * sizeof *t->sizes)
        || t->flags & (FL_T_CONJ | FL_T_NEG) || !t->storage->data || !m->storage->data || t->numel > 4096) return NULL;
    const uint8_t *at = (const uint8_t *)fl_data(m); int item = t->dtype->itemsize; int64_t count = 0;
    for (int64_t i = 0; i < t->numel; i++) count += at[i] != 0;
    Tensor *out = fl_empty(1, &count, NULL, t->dtype, t->storage->device);
    if (!out) return NULL;
    char *to = count ? fl_data(out) : NULL, *from = fl_data(t);
    for (int64_t i = 0; i < t->numel; i++) if (at[i]) { memcpy(to, from + i * item, item); to += item; }
    return (PyObject *)out;
}
PyObject *fl_getitem(PyObject *self, PyObject *key) {
    Tensor *t = (Tensor *)self;
    Function *fn = fl_slot_fn[FL_SLOT_GETITEM];
    if (!fn || !fn->fast || !fn->fast->next || !PLAIN(t)) return slow(self, key);
    int64_t sz[FL_MAXDIM], st[FL_MAXDIM], i;
    int nd = t->ndim, rec = fl_recording() ? fl_requires_grad(t) : 0;
    if (rec < 0) return NULL;
    if (PyLong_CheckExact(key)) {
        if (!nd || !one_int(key, &i)) return slow(self, key);
        int64_t at = i < 0 ? i + t->sizes[0] : i;
        if (at < 0 || at >= t->sizes[0]) {
            PyErr_Format(PyExc_IndexError, "index %S is out of bounds for dimension 0 with size %lld", key, (long long)t->sizes[0]);
            return NULL;
        }
        Fast *sel = fn->fast->next;
        if (rec && !sel->node_type) return slow(self, key);
        PyObject *rest = rec ? Py_BuildValue("(iL)", 0, (long long)i) : NULL;
        if (rec && !rest) return NULL;
        PyObject *r = fl_view_of(sel, t, nd - 1, t->sizes + 1, t->strides + 1, t->offset + at * t->strides[0], rest);
        Py_XDECREF(rest);
        return r;
    }
    if (Py_TYPE(key) == TensorType) {
        PyObject *r = rec || ((Tensor *)key)->dtype->code != FL_BOOL ? by_rows(self, key, rec) : by_mask(self, key);
        return r || PyErr_Occurred() ? r : slow(self, key);
    }
    PyObject *const *k, *one; Py_ssize_t n; int used, out; int64_t off = t->offset;
    if (!PyTuple_CheckExact(key) && !PySlice_Check(key) && key != Py_None && key != Py_Ellipsis) return slow(self, key);
    if ((used = keys_of(key, nd, &k, &n, &one)) < 0) return slow(self, key);
    if (rec) return getitem_recorded(fn, self, key, k, n, used);
    if ((out = basic(t, k, n, used, sz, st, &off)) < 0) return slow(self, key);
    return fl_view_of(fn->fast->also, t, out, sz, st, off, NULL);
}

/* x[basic] = number, or a tensor of x's dtype and the part's extents, where nothing is recorded.
   1 done, 0 Python's case, -1 error. */
int fl_setitem(PyObject *self, PyObject *key, PyObject *value) {
    Tensor *t = (Tensor *)self, *v = Py_TYPE(value) == TensorType ? (Tensor *)value : NULL;
    int64_t sz[FL_MAXDIM], st[FL_MAXDIM], sv[FL_MAXDIM], off = t->offset; PyObject *const *k, *one; Py_ssize_t n; int used, nd, code = t->dtype->code;
    union { char bytes[16]; int64_t align; } number;
    if (!PLAIN(t) || t->flags & (FL_T_INFERENCE | FL_T_CONJ | FL_T_NEG) || t->storage->flags & (FL_S_READONLY | FL_S_FAKE) || !t->storage->data) return 0;
    if (fl_recording() && (fl_requires_grad(t) || (v && fl_requires_grad(v)))) return PyErr_Occurred() ? -1 : 0;
    if (fl_recording() && t->flags & (FL_T_NOGRAD_VIEW | FL_T_MULTI_VIEW)) return 0;
    if (t->born < fl_state.level) return 0;
    if (PyBool_Check(key) || !(PyLong_CheckExact(key) || PyTuple_CheckExact(key) || PySlice_Check(key) || key == Py_None || key == Py_Ellipsis)) return 0;
    if (v) { if (!PLAIN(v) || v->dtype != t->dtype || v->storage == t->storage || !v->storage->data || v->flags & (FL_T_CONJ | FL_T_NEG)) return 0; }
    else {
        if (!PyFloat_CheckExact(value) && !PyLong_CheckExact(value) && !PyBool_Check(value)) return 0;
        int r = fl_store_scalar(code, value, number.bytes);
        if (r) { PyErr_Clear(); return 0; }
        if (!(t->dtype->flags & (FL_FLOATING | FL_COMPLEX)) && code != FL_I64 && code != FL_BOOL) return 0;      /* ranges are checked there */
    }
    if ((used = keys_of(key, t->ndim, &k, &n, &one)) < 0 || (nd = basic(t, k, n, used, sz, st, &off)) < 0) return 0;
    int64_t total = 1;
    for (int d = 0; d < nd; d++) { total *= sz[d]; if (sz[d] > 1 && !st[d]) return 0; }
    if (total > 4096) return 0;
    if (v) {
        if (v->ndim > nd) return 0;
        for (int d = 0; d < nd; d++) {
            int j = d - (nd - v->ndim);
            if (j >= 0 && v->sizes[j] != sz[d]) return 0;
            sv[d] = j < 0 ? 0 : v->strides[j];
        }
        if (v->ndim && v->ndim < nd && v->sizes[0] == 1) return 0;
    } else memset(sv, 0, nd * sizeof *sv);
    fl_move(t->dtype->itemsize, nd, sz, t->storage->data + off * t->dtype->itemsize, st, v ? fl_data(v) : number.bytes, sv);
    fl_bump(t);
    return 1;
}

static PyObject *f_view_strides(PyObject *m, PyObject *args) {   /* view_strides(tensor, size) -> strides or None */
    PyObject *t, *s; int64_t sz[FL_MAXDIM], st[FL_MAXDIM];
    if (!PyArg_ParseTuple(args, "O!O", TensorType, &t, &s)) return NULL;
    int plain = !((Tensor *)t)->sym && PySequence_Check(s);
    for (Py_ssize_t i = plain && (PyTuple_Check(s) || PyList_Check(s)) ? PySequence_Fast_GET_SIZE(s) : 0; plain && i--;) plain = PyLong_Check(PySequence_Fast_GET_ITEM(s, i));
    if (!plain) {
        PyObject *f = PyDict_GetItemString(fl_hooks, "symbolic_view_strides");
        return f ? PyObject_CallFunctionObjArgs(f, t, s, NULL) : PyErr_Format(PyExc_SystemError, "symbolic_view_strides is not filled");
    }
    int n = fl_ints(s, sz, "view", "size");
    if (n < 0) return NULL;
    if (!view_strides((Tensor *)t, n, sz, st)) Py_RETURN_NONE;
    return tuple_of(n, st);
}
static PyMethodDef functions[] = {{"view_strides", f_view_strides, METH_VARARGS}, {0}};
int fl_views_init(PyObject *m) { return PyModule_AddFunctions(m, functions); }
