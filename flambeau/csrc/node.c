/* Nodes of the recorded graph, and what they save. A node never refers to its own output tensor. */
#include "tape.h"

PyTypeObject *NodeType;
static int64_t sequence;

Node *fl_node(PyTypeObject *type, PyObject *op, Py_ssize_t nedges) {
    Node *n = (Node *)type->tp_alloc(type, 0);
    if (!n) return NULL;
    n->op = Py_NewRef(op);
    n->seq = sequence++;
    n->needs = 1;
    n->nedges = nedges;
    n->edges = n->inl;
    if (nedges > 3) {
        n->edges = PyMem_Calloc(nedges, sizeof(Edge));
        if (!n->edges) { n->edges = n->inl; n->nedges = 0; Py_DECREF(n); PyErr_NoMemory(); return NULL; }
    }
    return n;
}
int fl_edge(Node *n, Py_ssize_t i, Tensor *t) {
    int r = fl_requires_grad(t);
    if (r < 0) return -1;
    if (!r) return 0;
    if (fl_stale_view(t) && fl_refresh(t) < 0) return -1;
    if (!t->grad_fn && !t->requires_grad) return 0;        /* a view made without recording: its base requires gradients, it gets none */
    n->edges[i].target = Py_NewRef(t->grad_fn ? t->grad_fn : (PyObject *)t);
    n->edges[i].nr = t->grad_fn ? t->output_nr : 0;
    return 1;
}
void fl_attach(Tensor *out, Node *n, int nr) {
    Py_XSETREF(out->grad_fn, Py_NewRef((PyObject *)n));
    out->output_nr = nr; out->requires_grad = 1; out->attr_version = fl_version(out);
}
PyObject *fl_saved(Tensor *t, int is_output) {
    if (t->flags & FL_T_INFERENCE) {
        PyErr_SetString(PyExc_RuntimeError, "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in computation "
            "tracked by autograd. To work around this, you can make a clone to get a normal tensor and use it in autograd, or use `torch.no_grad()` instead of "
            "`torch.inference_mode()`.");
        return NULL;
    }
    Saved *s = PyObject_GC_New(Saved, &SavedType);
    if (!s) return NULL;
    s->packed = s->unpack = s->history = NULL; s->is_output = is_output; s->output_nr = t->output_nr; s->version = fl_version(t);
    if (is_output) {
        s->t = fl_alias(t, t->ndim, t->sizes, t->strides, t->offset);
        if (s->t && Py_TYPE(t) != TensorType) s->t->bits = 0;
    } else s->t = (Tensor *)Py_NewRef((PyObject *)t);
    if (!s->t) { PyObject_GC_Del(s); return NULL; }
    PyObject_GC_Track(s);
    return (PyObject *)s;
}
static PyObject *hook(const char *name, PyObject *args) {
    PyObject *f = PyDict_GetItemString(fl_hooks, name), *r = f && args ? PyObject_CallObject(f, args) : NULL;
    Py_XDECREF(args);
    return r;
}
static PyObject *unpacked(Saved *s, PyObject *node) {
    if (s->unpack) {
        PyObject *r = PyObject_CallOneArg(s->unpack, s->packed), *h = s->is_output ? node : s->history;
        if (!r || (Tensor_Check(r) && (!h || h == Py_None))) return r;
        return hook("unpacked", Py_BuildValue("(NOi)", r, h ? h : Py_None, s->is_output ? s->output_nr : s->history_nr));
    }
    if (fl_version(s->t) != s->version && !(s->t->flags & FL_T_INFERENCE))
        return hook("version_error", Py_BuildValue("(OLOi)", s->t, (long long)s->version, s->is_output ? node : Py_None, s->output_nr));
    if (!s->is_output) return Py_NewRef((PyObject *)s->t);
    if (fl_state.active & ~fl_state.suspended & (FL_L_DISPATCH | FL_L_TRACE | FL_L_FAKE | FL_L_FUNCTIONALIZE))   /* modes see it unpacked */
        return hook("unpacked", Py_BuildValue("(OOi)", s->t, node, s->output_nr));
    Tensor *t = s->t, *r = fl_alias(t, t->ndim, t->sizes, t->strides, t->offset);
    if (r && node != Py_None) fl_attach(r, (Node *)node, s->output_nr);
    return (PyObject *)r;
}
static PyObject *saved_unpack(Saved *s, PyObject *node) {
    PyObject *r = unpacked(s, node);
    if (fl_tape && r) fl_tape_unpacked((PyObject *)s, r);
    return r;
}
PyObject *fl_unpacked(PyObject *saved, PyObject *node) { return unpacked((Saved *)saved, node); }
static int saved_traverse(Saved *s, visitproc visit, void *arg) { Py_VISIT(s->t); Py_VISIT(s->packed); Py_VISIT(s->unpack); Py_VISIT(s->history); return 0; }
static int saved_clear(Saved *s) { Py_CLEAR(s->t); Py_CLEAR(s->packed); Py_CLEAR(s->unpack); Py_CLEAR(s->history); return 0; }
static void saved_dealloc(Saved *s) { PyObject_GC_UnTrack(s); saved_clear(s); PyObject_GC_Del(s); }
/* pack(packed, unpack): saved-tensor hooks took the tensor over. */
static PyObject *saved_pack(Saved *s, PyObject *args) {
    PyObject *p, *u;
    if (!PyArg_ParseTuple(args, "OO", &p, &u)) return NULL;
    if (s->t && !s->is_output) {
        if (s->t->grad_fn) { Py_XSETREF(s->history, Py_NewRef(s->t->grad_fn)); s->history_nr = s->t->output_nr; }
        else if (s->t->requires_grad) {
            PyObject *w = PyWeakref_NewRef((PyObject *)s->t, NULL);
            if (!w) return NULL;
            Py_XSETREF(s->history, w); s->history_nr = 0;
        }
    }
    Py_XSETREF(s->packed, Py_NewRef(p)); Py_XSETREF(s->unpack, Py_NewRef(u));
    Py_CLEAR(s->t);
    Py_RETURN_NONE;
}
static PyObject *saved_tensor(Saved *s, void *c) { return Py_NewRef(s->t ? (PyObject *)s->t : Py_None); }
static PyObject *saved_packed(Saved *s, void *c) { return Py_NewRef(s->packed ? s->packed : Py_None); }
static PyObject *saved_hook(Saved *s, void *c) { return Py_NewRef(s->unpack ? s->unpack : Py_None); }
static PyMethodDef saved_methods[] = {{"unpack", (PyCFunction)saved_unpack, METH_O}, {"pack", (PyCFunction)saved_pack, METH_VARARGS}, {0}};
static PyGetSetDef saved_getset[] = {{"tensor", (getter)saved_tensor}, {"packed", (getter)saved_packed}, {"unpack_hook", (getter)saved_hook}, {0}};
static PyMemberDef saved_members[] = {
    {"is_output", T_INT, offsetof(Saved, is_output), READONLY}, {"version", T_LONGLONG, offsetof(Saved, version), READONLY}, {"output_nr", T_INT, offsetof(Saved, output_nr)}, {0}};
PyTypeObject SavedType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "flambeau._native.Saved", .tp_basicsize = sizeof(Saved), .tp_dealloc = (destructor)saved_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, .tp_traverse = (traverseproc)saved_traverse, .tp_clear = (inquiry)saved_clear,
    .tp_methods = saved_methods, .tp_getset = saved_getset, .tp_members = saved_members};

static int traverse(Node *n, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(n)); Py_VISIT(n->args); Py_VISIT(n->outs); Py_VISIT(n->ctx); Py_VISIT(n->hooks); Py_VISIT(n->dict); Py_VISIT(n->op);
    for (Py_ssize_t i = 0; i < n->nedges; i++) Py_VISIT(n->edges[i].target);
    return 0;
}
static int clear(Node *n) {
    Py_CLEAR(n->args); Py_CLEAR(n->outs); Py_CLEAR(n->ctx); Py_CLEAR(n->hooks); Py_CLEAR(n->dict);
    for (Py_ssize_t i = 0; i < n->nedges; i++) Py_CLEAR(n->edges[i].target);
    return 0;
}
static void dealloc(Node *n) {
    PyTypeObject *tp = Py_TYPE(n);
    PyObject_GC_UnTrack(n);
    Py_TRASHCAN_BEGIN(n, dealloc)
    if (n->weakrefs) PyObject_ClearWeakRefs((PyObject *)n);
    clear(n);
    Py_CLEAR(n->op);
    if (n->edges && n->edges != n->inl) PyMem_Free(n->edges);
    tp->tp_free((PyObject *)n);
    Py_DECREF(tp);
    Py_TRASHCAN_END
}
static PyObject *g_edges(Node *n, void *c) {
    PyObject *r = PyTuple_New(n->nedges);
    for (Py_ssize_t i = 0; r && i < n->nedges; i++)
        PyTuple_SET_ITEM(r, i, Py_BuildValue("(Oi)", n->edges[i].target ? n->edges[i].target : Py_None, n->edges[i].nr));
    return r;
}
static PyObject *g_need(Node *n, void *c) {   /* which edges want a gradient */
    PyObject *r = PyTuple_New(n->nedges);
    for (Py_ssize_t i = 0; r && i < n->nedges; i++) PyTuple_SET_ITEM(r, i, Py_NewRef(n->edges[i].target ? Py_True : Py_False));
    return r;
}
static PyObject *unpack_tree(PyObject *o, PyObject *node) {
    if (Py_TYPE(o) == &SavedType) return saved_unpack((Saved *)o, node);
    if (PyTuple_CheckExact(o)) {
        Py_ssize_t k = PyTuple_GET_SIZE(o);
        PyObject *r = PyTuple_New(k);
        for (Py_ssize_t i = 0; r && i < k; i++) {
            PyObject *x = unpack_tree(PyTuple_GET_ITEM(o, i), node);
            if (!x) { Py_CLEAR(r); break; }
            PyTuple_SET_ITEM(r, i, x);
        }
        return r;
    }
    return Py_NewRef(o);
}
static PyObject *released(Node *n) {
    PyErr_SetString(PyExc_RuntimeError, "Trying to backward through the graph a second time (or directly access saved tensors after they have "
        "already been freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify "
        "retain_graph=True if you need to backward through the graph a second time or if you need to access saved tensors after calling backward.");
    return NULL;
}
static PyObject *m_unpack(Node *n, PyObject *u) {
    if (n->released) return released(n);
    if (!n->args) Py_RETURN_NONE;
    return unpack_tree(n->args, (PyObject *)n);
}
static PyObject *m_unpack_outs(Node *n, PyObject *u) {
    fl_tape_outs();
    if (n->released) return released(n);
    if (!n->outs) Py_RETURN_NONE;
    return unpack_tree(n->outs, (PyObject *)n);
}
static int holds_saved(PyObject *o) {
    if (!o) return 0;
    if (Py_TYPE(o) == &SavedType) return 1;
    if (PyTuple_CheckExact(o)) for (Py_ssize_t i = PyTuple_GET_SIZE(o); i--;) if (holds_saved(PyTuple_GET_ITEM(o, i))) return 1;
    return 0;
}
/* release(): drop what was saved; a node that saved only geometry can run again. */
void fl_release(Node *n) {
    if (!n->keeps_number && !holds_saved(n->args) && !holds_saved(n->outs)) return;
    n->released = 1; Py_CLEAR(n->args); Py_CLEAR(n->outs);
}
static PyObject *m_release(Node *n, PyObject *u) { fl_release(n); Py_RETURN_NONE; }
static PyObject *m_seq(Node *n, PyObject *u) { return PyLong_FromLongLong(n->seq); }
static PyObject *m_reduce_edge(Node *n, PyObject *args) {   /* _set_edge(i, target or None, nr) */
    Py_ssize_t i; PyObject *t; int nr;
    if (!PyArg_ParseTuple(args, "nOi", &i, &t, &nr)) return NULL;
    if (i < 0 || i >= n->nedges) { PyErr_SetString(PyExc_IndexError, "edge"); return NULL; }
    Py_XSETREF(n->edges[i].target, t == Py_None ? NULL : Py_NewRef(t));
    n->edges[i].nr = nr;
    Py_RETURN_NONE;
}
static PyGetSetDef getset[] = {{"edges", (getter)g_edges}, {"needs_input", (getter)g_need},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict}, {0}};
static PyMemberDef members[] = {
    {"op", T_OBJECT, offsetof(Node, op)}, {"args", T_OBJECT, offsetof(Node, args)}, {"outs", T_OBJECT, offsetof(Node, outs)},
    {"ctx", T_OBJECT, offsetof(Node, ctx)}, {"hooks", T_OBJECT, offsetof(Node, hooks)}, {"seq", T_LONGLONG, offsetof(Node, seq)},
    {"num_outputs", T_INT, offsetof(Node, needs)}, {"released", T_INT, offsetof(Node, released)}, {"keeps_number", T_INT, offsetof(Node, keeps_number)},
    {"__dictoffset__", T_PYSSIZET, offsetof(Node, dict), READONLY}, {"__weaklistoffset__", T_PYSSIZET, offsetof(Node, weakrefs), READONLY}, {0}};
static PyMethodDef methods[] = {
    {"unpack", (PyCFunction)m_unpack, METH_NOARGS}, {"unpack_outs", (PyCFunction)m_unpack_outs, METH_NOARGS}, {"release", (PyCFunction)m_release, METH_NOARGS},
    {"_sequence_nr", (PyCFunction)m_seq, METH_NOARGS}, {"_set_edge", (PyCFunction)m_reduce_edge, METH_VARARGS}, {0}};

/* node(type, op, tensors): edges lead to what made each tensor (None: no edge). */
static PyObject *f_node(PyObject *m, PyObject *const *a, Py_ssize_t n) {
    if (n != 3 || !PyType_Check(a[0]) || !PySequence_Check(a[2])) { PyErr_SetString(PyExc_TypeError, "node(type, op, tensors)"); return NULL; }
    PyObject *f = PySequence_Fast(a[2], "tensors");
    if (!f) return NULL;
    Py_ssize_t k = PySequence_Fast_GET_SIZE(f);
    Node *nd = fl_node((PyTypeObject *)a[0], a[1], k);
    for (Py_ssize_t i = 0; nd && i < k; i++) {
        PyObject *t = PySequence_Fast_GET_ITEM(f, i);
        if (t != Py_None && Tensor_Check(t) && fl_edge(nd, i, (Tensor *)t) < 0) Py_CLEAR(nd);
    }
    Py_DECREF(f);
    return (PyObject *)nd;
}
static PyObject *f_saved(PyObject *m, PyObject *args) {
    PyObject *t; int out = 0;
    if (!PyArg_ParseTuple(args, "O!|p", TensorType, &t, &out)) return NULL;
    return fl_saved((Tensor *)t, out);
}
static int in_list(PyObject *list, PyObject *o) {      /* how often */
    int k = 0;
    for (Py_ssize_t i = PySequence_Fast_GET_SIZE(list); i--;) k += PySequence_Fast_GET_ITEM(list, i) == o;
    return k;
}
/* The node of a compiled function, and its outputs with it as their history. */
static int record_into(Node *nd, PyObject *sources, PyObject *wanted, PyObject *found, Py_ssize_t count, PyObject *carrying, PyObject *outs) {
    Py_ssize_t kept = PySequence_Fast_GET_SIZE(found) - count, given = PySequence_Fast_GET_SIZE(sources);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(wanted); i++) {
        Py_ssize_t at = PyLong_AsSsize_t(PyTuple_GET_ITEM(wanted, i));
        PyObject *t = at >= 0 && at < given ? PySequence_Fast_GET_ITEM(sources, at) : NULL;
        if (!t || !Tensor_Check(t)) { if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "recorded: an input is no tensor"); return -1; }
        if (fl_edge(nd, i, (Tensor *)t) < 0) return -1;
    }
    if (!(nd->args = PyTuple_New(kept))) return -1;
    for (Py_ssize_t i = 0; i < kept; i++) {
        PyObject *t = PySequence_Fast_GET_ITEM(found, count + i), *s = NULL;
        if (!Tensor_Check(t)) PyErr_SetString(PyExc_TypeError, "recorded: what is saved is no tensor");
        if (!Tensor_Check(t) || !(s = fl_saved((Tensor *)t, 0))) return -1;
        PyTuple_SET_ITEM(nd->args, i, s);
        for (Py_ssize_t j = 0; j < count; j++) if (PyList_GET_ITEM(outs, j) == t) {      /* an output: the node keeps its bytes, not the object */
            Tensor *o = (Tensor *)t, *held = fl_alias(o, o->ndim, o->sizes, o->strides, o->offset);
            if (!held) return -1;
            Py_SETREF(((Saved *)s)->t, held);
            break;
        }
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(carrying); i++) {
        Py_ssize_t at = PyLong_AsSsize_t(PyTuple_GET_ITEM(carrying, i));
        PyObject *o = at >= 0 && at < count ? PyList_GET_ITEM(outs, at) : NULL;
        if (!o || !Tensor_Check(o)) { if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "recorded: an output is no tensor"); return -1; }
        Tensor *t = (Tensor *)o; int needs = fl_requires_grad(t);
        if (needs < 0) return -1;
        if (needs || in_list(sources, o) + in_list(outs, o) > 1) {    /* somebody else's object */
            if (!(t = fl_alias(t, t->ndim, t->sizes, t->strides, t->offset))) return -1;
            PyList_SetItem(outs, at, (PyObject *)t);
        }
        fl_attach(t, nd, (int)i);
    }
    return 0;
}
/* recorded(type, op, ctx, sources, wanted, found, count, carrying) -> outputs: the first `count` of `found`;
   those at `carrying` get a node with edges to the sources at `wanted` that saves the rest of `found`. */
static PyObject *f_recorded(PyObject *m, PyObject *const *a, Py_ssize_t n) {
    if (n != 8 || !PyType_Check(a[0]) || !PyTuple_Check(a[4]) || !PyTuple_Check(a[7])) { PyErr_SetString(PyExc_TypeError, "recorded(type, op, ctx, sources, wanted, found, count, carrying)"); return NULL; }
    PyObject *sources = PySequence_Fast(a[3], "sources"), *found = sources ? PySequence_Fast(a[5], "values") : NULL, *outs = NULL;
    Py_ssize_t count = PyLong_AsSsize_t(a[6]);
    if (found && count >= 0 && count <= PySequence_Fast_GET_SIZE(found)) outs = PyList_New(count);
    else if (found && !PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "recorded: count");
    for (Py_ssize_t i = 0; outs && i < count; i++) PyList_SET_ITEM(outs, i, Py_NewRef(PySequence_Fast_GET_ITEM(found, i)));
    Node *nd = outs ? fl_node((PyTypeObject *)a[0], a[1], PyTuple_GET_SIZE(a[4])) : NULL;
    if (nd) {
        nd->needs = (int)PyTuple_GET_SIZE(a[7]);
        nd->ctx = Py_NewRef(a[2]);
        if (record_into(nd, sources, a[4], found, count, a[7], outs)) Py_CLEAR(outs);
        Py_DECREF(nd);
    } else Py_CLEAR(outs);
    Py_XDECREF(sources); Py_XDECREF(found);
    return outs;
}
/* came(node, gradients, strides) -> what a compiled backward takes: what was saved, then the gradients (strides
   of None: contiguous ones); None where Python has to look at one of them: it is missing, laid out otherwise, or not plain bytes. */
static PyObject *f_came(PyObject *m, PyObject *const *a, Py_ssize_t n) {
    if (n != 3 || !PyObject_TypeCheck(a[0], NodeType) || !PyTuple_Check(a[1]) || !PyTuple_Check(a[2]) || PyTuple_GET_SIZE(a[1]) != PyTuple_GET_SIZE(a[2])) { PyErr_SetString(PyExc_TypeError, "came(node, gradients, strides)"); return NULL; }
    Node *nd = (Node *)a[0]; Py_ssize_t grads = PyTuple_GET_SIZE(a[1]);
    if (nd->released) return released(nd);
    if (!nd->args || !PyTuple_Check(nd->args) || fl_state.grad || fl_state.active & ~fl_state.suspended) Py_RETURN_NONE;
    for (Py_ssize_t i = 0; i < grads; i++) {
        PyObject *o = PyTuple_GET_ITEM(a[1], i), *st = PyTuple_GET_ITEM(a[2], i);
        if (!Tensor_Check(o)) Py_RETURN_NONE;
        Tensor *t = (Tensor *)o;
        if (t->bits || t->sym || t->meta) Py_RETURN_NONE;
        if (st == Py_None) { if (!t->contiguous) Py_RETURN_NONE; continue; }
        if (PyTuple_GET_SIZE(st) != t->ndim) Py_RETURN_NONE;
        for (int d = 0; d < t->ndim; d++) if (PyLong_AsLongLong(PyTuple_GET_ITEM(st, d)) != t->strides[d]) { PyErr_Clear(); Py_RETURN_NONE; }
    }
    Py_ssize_t kept = PyTuple_GET_SIZE(nd->args);
    if (kept && PyTuple_Check(PyTuple_GET_ITEM(nd->args, kept - 1))) kept--;      /* sizes, for Python */
    PyObject *all = PyList_New(kept + grads);
    for (Py_ssize_t i = 0; all && i < kept; i++) {
        PyObject *s = PyTuple_GET_ITEM(nd->args, i), *t = Py_TYPE(s) == &SavedType ? unpacked((Saved *)s, a[0]) : Py_NewRef(s);
        if (!t) { Py_CLEAR(all); break; }
        PyList_SET_ITEM(all, i, t);
        if (!Tensor_Check(t) || ((Tensor *)t)->bits) { Py_DECREF(all); Py_RETURN_NONE; }
    }
    for (Py_ssize_t i = 0; all && i < grads; i++) PyList_SET_ITEM(all, kept + i, Py_NewRef(PyTuple_GET_ITEM(a[1], i)));
    return all;
}
/* apart(tensors): whether all are tensors, and no two of one storage. */
static PyObject *f_apart(PyObject *m, PyObject *seq) {
    PyObject *f = PySequence_Fast(seq, "apart: expected a sequence");
    if (!f) return NULL;
    Py_ssize_t n = PySequence_Fast_GET_SIZE(f), size = 16, found = 1;
    void *few[128], **table = few;
    while (size < 2 * n) size *= 2;
    if (size > 128 && !(table = PyMem_Malloc(size * sizeof *table))) { Py_DECREF(f); return PyErr_NoMemory(); }
    memset(table, 0, size * sizeof *table);
    for (Py_ssize_t i = 0; found && i < n; i++) {
        PyObject *o = PySequence_Fast_GET_ITEM(f, i);
        void *cell = Tensor_Check(o) ? (void *)((Tensor *)o)->storage : NULL;
        size_t at = ((size_t)cell >> 4) * 0x9E3779B97F4A7C15u >> 20 & (size - 1);
        while (table[at] && table[at] != cell) at = (at + 1) & (size - 1);
        found = cell && table[at] != cell;
        table[at] = cell;
    }
    if (table != few) PyMem_Free(table);
    Py_DECREF(f);
    return PyBool_FromLong(found);
}
static PyObject *f_sequence(PyObject *m, PyObject *u) { return PyLong_FromLongLong(sequence); }
static PyMethodDef functions[] = {{"node", (PyCFunction)f_node, METH_FASTCALL}, {"saved", f_saved, METH_VARARGS}, {"recorded", (PyCFunction)f_recorded, METH_FASTCALL}, {"came", (PyCFunction)f_came, METH_FASTCALL}, {"apart", f_apart, METH_O}, {"sequence", f_sequence, METH_NOARGS}, {0}};

int fl_node_init(PyObject *m) {
    PyType_Slot slots[] = {{Py_tp_dealloc, dealloc}, {Py_tp_traverse, traverse}, {Py_tp_clear, clear}, {Py_tp_getset, getset},
        {Py_tp_members, members}, {Py_tp_methods, methods}, {0, NULL}};
    PyType_Spec spec = {"flambeau.autograd.graph.Node", sizeof(Node), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};
    NodeType = (PyTypeObject *)PyType_FromSpec(&spec);
    if (!NodeType || PyModule_AddObjectRef(m, "Node", (PyObject *)NodeType) < 0 || fl_add_type(m, &SavedType)) return -1;
    return PyModule_AddFunctions(m, functions);
}
