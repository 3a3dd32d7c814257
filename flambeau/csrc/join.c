/* cat and stack of plain tensors: one dtype, small enough to be copied on the spot. */
#include "fast.h"

static int plain(Tensor *t) {
    return !t->bits && !t->sym && !(t->flags & (FL_T_CONJ | FL_T_NEG)) && (t->storage->data || !t->numel) && t->storage->device->type == 0;
}
/* Whether a memory format other than the contiguous one might be read from the strides. */
static int ambiguous(Tensor *t, int extra) {
    int nd = t->ndim + extra;
    if (nd != 4 && nd != 5) return 0;
    if (!t->contiguous) return 1;
    for (int i = 0; i < t->ndim; i++) if (t->sizes[i] < 2) return 1;
    return 0;
}
PyObject *fl_join_call(Fast *f, PyObject *const *a, Py_ssize_t n, PyObject *kw) {
    int stack = f->kind == FL_K_STACK;
    if (n < 1 || n > 2 || (kw && (n != 1 || PyTuple_GET_SIZE(kw) != 1 || PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kw, 0), "dim")))) return NULL;
    if (!PyList_CheckExact(a[0]) && !PyTuple_CheckExact(a[0])) return NULL;
    PyObject *dim = n > 1 || kw ? a[1] : NULL, **ts = PySequence_Fast_ITEMS(a[0]); Py_ssize_t count = PySequence_Fast_GET_SIZE(a[0]);
    if (!count || count > 256 || (dim && !PyLong_CheckExact(dim)) || Py_TYPE(ts[0]) != TensorType) return NULL;
    Tensor *first = (Tensor *)ts[0];
    int nd = first->ndim, needs = 0; long d = dim ? PyLong_AsLong(dim) : 0;
    if (d == -1 && PyErr_Occurred()) { PyErr_Clear(); return NULL; }
    if (d < 0) d += nd + stack;
    if (d < 0 || d >= nd + stack || (!nd && !stack) || nd >= FL_MAXDIM) return NULL;
    int64_t along = 0, total = 0, sz[FL_MAXDIM], st[FL_MAXDIM];
    for (Py_ssize_t i = 0; i < count; i++) {
        Tensor *t = (Tensor *)ts[i];
        if (Py_TYPE(t) != TensorType || !plain(t) || t->dtype != first->dtype || t->ndim != nd || (!stack && nd == 1 && !t->numel) || ambiguous(t, 0) || (stack && d == nd && ambiguous(t, 1))) return NULL;
        for (int k = 0; k < nd; k++) if ((stack || k != d) && t->sizes[k] != first->sizes[k]) return NULL;
        along += stack ? 1 : t->sizes[d];
        total += t->numel;
        if (fl_recording()) { int r = fl_requires_grad(t); if (r < 0) return NULL; needs |= r; }
    }
    if (total > 65536 || (needs && !f->node_type)) return NULL;
    int k = 0;
    for (int i = 0; i < nd + stack; i++) sz[i] = i == d ? along : first->sizes[stack ? k++ : i];
    Tensor *out = fl_empty(nd + stack, sz, NULL, first->dtype, first->storage->device);
    if (!out) return NULL;
    int item = first->dtype->itemsize; char *to = fl_data(out); int64_t step = out->strides[d] * item;
    k = 0;
    for (int i = 0; i < nd + stack; i++) if (!stack || i != d) st[k++] = out->strides[i];
    for (Py_ssize_t i = 0; i < count; i++) {
        Tensor *t = (Tensor *)ts[i];
        if (t->numel) fl_move(item, nd, t->sizes, to, st, fl_data(t), t->strides);
        to += (stack ? 1 : t->sizes[d]) * step;
    }
    if (!needs) return (PyObject *)out;
    Node *node = fl_node((PyTypeObject *)f->node_type, f->op, count);
    PyObject *list = PyTuple_New(count), *outs = NULL, *args = NULL;
    for (Py_ssize_t i = 0; node && list && i < count; i++) {
        PyObject *g = (PyObject *)fl_geometry((Tensor *)ts[i]);
        if (!g || fl_edge(node, i, (Tensor *)ts[i]) < 0) { Py_XDECREF(g); Py_CLEAR(list); break; }
        PyTuple_SET_ITEM(list, i, g);
    }
    if (node && list) { args = Py_BuildValue("(Ol)", list, d); outs = Py_BuildValue("(N)", fl_geometry(out)); }
    Py_XDECREF(list);
    if (!args || !outs) { Py_XDECREF(node); Py_XDECREF(args); Py_XDECREF(outs); Py_DECREF(out); return NULL; }
    node->args = args; node->outs = outs;
    fl_attach(out, node, 0);
    Py_DECREF(node);
    return (PyObject *)out;
}
