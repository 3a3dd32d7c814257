/* The backward pass of a plain graph: nodes of operators and leaves, without hooks. Nodes run when all
   gradients for them have come, the newest first; a leaf is written as soon as its last one has.
   autograd/engine.py is the reference, and runs everything else. */
#include "tape.h"

typedef struct {
    PyObject *key;                 /* a node or a leaf, held */
    int count, leaf;               /* gradients that are still to come */
    int reached;                   /* a node that got its slots */
    PyObject **slots, *one;        /* by output number */
} Entry;
typedef struct {
    Entry *e; int n, room;
    int32_t *map; int mask;        /* open addressing, -1 empty */
    int32_t *heap; int nheap;
    int32_t *ready; int nready;    /* leaves */
} Pass;
static PyObject *op_types, *str_backward, *str_add_, *str_detach;

static int place(const Pass *p, PyObject *key) {
    uint64_t h = (uint64_t)(intptr_t)key;
    int i = (int)((h >> 4 ^ h >> 15) & p->mask);
    while (p->map[i] >= 0 && p->e[p->map[i]].key != key) i = (i + 1) & p->mask;
    return i;
}
static int grow(Pass *p) {
    int room = p->room ? p->room * 2 : 64;
    Entry *e = PyMem_Realloc(p->e, room * sizeof *e);
    if (e) p->e = e;
    int32_t *map = PyMem_Malloc(4 * room * sizeof *map), *heap = PyMem_Realloc(p->heap, room * sizeof *heap);
    if (heap) p->heap = heap;
    int32_t *ready = PyMem_Realloc(p->ready, room * sizeof *ready);
    if (ready) p->ready = ready;
    if (!e || !map || !heap || !ready) { PyMem_Free(map); PyErr_NoMemory(); return -1; }
    PyMem_Free(p->map);
    p->map = map; p->room = room; p->mask = 4 * room - 1;
    memset(map, -1, 4 * room * sizeof *map);
    for (int i = 0; i < p->n; i++) map[place(p, p->e[i].key)] = i;
    return 0;
}
/* The entry of a node or leaf, made when new (*fresh); -1 on error. */
static int entry(Pass *p, PyObject *key, int *fresh) {
    if (p->n == p->room && grow(p)) return -1;
    int i = place(p, key);
    *fresh = p->map[i] < 0;
    if (!*fresh) return p->map[i];
    p->map[i] = p->n;
    p->e[p->n] = (Entry){.key = Py_NewRef(key), .leaf = Tensor_Check(key)};
    return p->n++;
}
static void pass_free(Pass *p) {
    for (int i = 0; i < p->n; i++) {
        Entry *e = &p->e[i];
        if (e->slots) {
            int k = e->leaf ? 1 : ((Node *)e->key)->needs;
            for (int j = 0; j < k; j++) Py_XDECREF(e->slots[j]);
            if (k > 1) PyMem_Free(e->slots);
        }
        Py_XDECREF(e->one);
    }
    for (int i = 0; i < p->n; i++) Py_DECREF(p->e[i].key);
    PyMem_Free(p->e); PyMem_Free(p->map); PyMem_Free(p->heap); PyMem_Free(p->ready);
}
static int64_t seq_of(const Pass *p, int i) { return ((Node *)p->e[i].key)->seq; }
static void push(Pass *p, int x) {
    int i = p->nheap++;
    for (; i && seq_of(p, p->heap[(i - 1) / 2]) < seq_of(p, x); i = (i - 1) / 2) p->heap[i] = p->heap[(i - 1) / 2];
    p->heap[i] = x;
}
static int pop(Pass *p) {
    int top = p->heap[0], x = p->heap[--p->nheap], i = 0;
    for (;;) {
        int c = 2 * i + 1;
        if (c >= p->nheap) break;
        if (c + 1 < p->nheap && seq_of(p, p->heap[c + 1]) > seq_of(p, p->heap[c])) c++;
        if (seq_of(p, p->heap[c]) <= seq_of(p, x)) break;
        p->heap[i] = p->heap[c]; i = c;
    }
    if (p->nheap) p->heap[i] = x;
    return top;
}

/* ---- which graphs are plain ---- */
static int plain_leaf(PyObject *o) {
    Tensor *t = (Tensor *)o;
    return !t->meta && !t->sym && !t->bits && t->storage->device->type == 0;
}
static int plain_node(PyObject *o) {
    if (!PyObject_TypeCheck(o, NodeType) || ((Node *)o)->hooks) return 0;
    for (Py_ssize_t i = PyTuple_GET_SIZE(op_types); i--;) if ((PyObject *)Py_TYPE(((Node *)o)->op) == PyTuple_GET_ITEM(op_types, i)) return 1;
    return 0;
}
/* Count the edges that lead to each node and leaf. 1: plain, 0: Python's engine, -1: error. */
static int count(Pass *p, PyObject *roots) {
    int fresh, x;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(roots); i++) {
        PyObject *r = PyList_GET_ITEM(roots, i), *t = PyTuple_Check(r) && PyTuple_GET_SIZE(r) == 2 ? PyTuple_GET_ITEM(r, 0) : NULL;
        if (!t || (Tensor_Check(t) ? !plain_leaf(t) : !plain_node(t))) return 0;
        if ((x = entry(p, t, &fresh)) < 0) return -1;
        if (Tensor_Check(t)) p->e[x].count++;      /* a gradient comes to a leaf from outside */
    }
    for (int at = 0; at < p->n; at++) {            /* entries are the queue */
        if (p->e[at].leaf) continue;
        Node *n = (Node *)p->e[at].key;
        for (Py_ssize_t i = 0; i < n->nedges; i++) {
            PyObject *t = n->edges[i].target;
            if (!t) continue;
            if ((x = entry(p, t, &fresh)) < 0) return -1;
            if (fresh && (Tensor_Check(t) ? !plain_leaf(t) : !plain_node(t))) return 0;
            p->e[x].count++;
        }
    }
    return 1;
}

/* ---- one node ---- */
/* Values of the held inputs; as Python's node.unpack() does, all saved inputs are checked. */
static int unpack_all(Node *n, const Inputs *in, int first_out, int outs, PyObject **vals) {
    for (int i = 0; i < in->nin; i++) {
        PyObject *h = in->in[i];
        if (Py_TYPE(h) != &SavedType) vals[i] = Py_NewRef(h);
        else if (i >= first_out && !outs) vals[i] = Py_NewRef((PyObject *)((Saved *)h)->t);
        else if (!(vals[i] = fl_unpacked(h, (PyObject *)n))) { while (i--) Py_DECREF(vals[i]); return -1; }
    }
    return 0;
}
static int repeatable(PyObject *op) {
    PyObject *decl = PyObject_GetAttrString(op, "decl"), *flag = decl ? PyObject_GetAttrString(decl, "repeatable") : NULL;
    int r = flag == Py_True;
    Py_XDECREF(decl); Py_XDECREF(flag);
    PyErr_Clear();
    return r;
}
/* The node's gradients into res (new references or NULL): repeated where known, else Python's. */
static int run_node(Node *n, PyObject **grads, PyObject **res) {
    static _Thread_local Inputs scratch;
    Inputs *in = &scratch; PyObject *vals[FL_MAX_INPUTS], *function, *args[3]; int refused = 1, ok = -1, first_out = 0;
    in->key.n = in->nin = 0;
    int can = !n->ctx && !n->released && n->args && !(fl_state.active & ~fl_state.suspended) && !fl_state.inference && !fl_tape;
    int64_t wanted = 0;
    for (Py_ssize_t i = 0; i < n->nedges; i++) wanted = wanted * 2 + (n->edges[i].target != NULL);
    fl_word(&in->key, n->nedges); fl_word(&in->key, wanted); fl_word(&in->key, n->needs);
    for (int i = 0; can && i < n->needs; i++) can = grads[i] ? Tensor_Check(grads[i]) && fl_input(in, grads[i], (Tensor *)grads[i]) : (fl_word(&in->key, 2), 1);
    if (can) can = n->nedges < 60 && fl_constant(in, n->args);
    first_out = in->nin;
    if (can && n->outs) can = fl_constant(in, n->outs);
    Program *p = can ? fl_program(n->op, in, &refused) : NULL;
    if (p) {
        if (unpack_all(n, in, first_out, fl_program_uses_outs(p), vals)) return -1;
        int k = in->nin;      /* in is free for a backward inside of this one from here on */
        ok = fl_repeat(p, vals, (int)n->nedges, res);
        while (k--) Py_DECREF(vals[k]);
        return ok;
    }
    PyObject *tuple = PyTuple_New(n->needs), *r = NULL;
    if (!tuple) return -1;
    for (int i = 0; i < n->needs; i++) PyTuple_SET_ITEM(tuple, i, Py_NewRef(grads[i] ? grads[i] : Py_None));
    if ((function = PyObject_GetAttr(n->op, str_backward))) {
        args[0] = (PyObject *)n; args[1] = tuple; args[2] = NULL;
        if (can && !refused && repeatable(n->op)) {
            Inputs *own = PyMem_Malloc(sizeof *own);
           if (own) {
                memcpy(own, in, sizeof *own);
                PyObject *named = Py_NewRef(n->args);
                r = fl_record(n->op, own, function, args, 2, named, NULL);
                Py_DECREF(named);
                PyMem_Free(own);
            } else PyErr_NoMemory();
        } else r = PyObject_Vectorcall(function, args, 2, NULL);
        Py_DECREF(function);
    }
    Py_DECREF(tuple);
    PyObject *seq = r ? PySequence_Fast(r, "a backward gives a tuple of gradients") : NULL;
    Py_XDECREF(r);
    if (!seq) return -1;
    if (PySequence_Fast_GET_SIZE(seq) < n->nedges) PyErr_SetString(PyExc_IndexError, "tuple index out of range");
    else {
        for (Py_ssize_t i = 0; i < n->nedges; i++) { PyObject *g = PySequence_Fast_GET_ITEM(seq, i); res[i] = g == Py_None ? NULL : Py_NewRef(g); }
        ok = 0;
    }
    Py_DECREF(seq);
    return ok;
}

/* ---- leaves ---- */
static int same_strides(const Tensor *a, const Tensor *b) { return a->ndim == b->ndim && !memcmp(a->strides, b->strides, a->ndim * sizeof *a->strides); }
/* Nobody but the caller holds g or its bytes (a base may, that only g refers to). */
static int alone(Tensor *g) {
    if (Py_REFCNT(g) != 1) return 0;
    return g->base ? Py_REFCNT(g->storage) == 2 && Py_REFCNT(g->base) == 1 : Py_REFCNT(g->storage) == 1;
}
/* Add g, which the caller holds once, to t.grad; a gradient that nobody else holds is taken as it is. */
static int accumulate(Tensor *t, PyObject *g_) {
    Tensor *g = (Tensor *)g_; PyObject *r;
    if (t->grad) {
        r = PyObject_CallMethodOneArg(t->grad, str_add_, g_);
    } else if (Tensor_Check(g_) && alone(g) && same_strides(g, t)) {
        if (!g->grad_fn && !g->base && !g->bits) return fl_set_grad(t, g_);
        if (!(r = PyObject_CallMethodNoArgs(g_, str_detach))) return -1;
        int bad = fl_set_grad(t, r);
        Py_DECREF(r);
        return bad;
    } else {
        PyObject *f = PyDict_GetItemString(fl_hooks, "accumulate_copy");
        if (!f) { PyErr_SetString(PyExc_SystemError, "flambeau._native: hook accumulate_copy is not filled; import flambeau first"); return -1; }
        r = PyObject_CallFunctionObjArgs(f, (PyObject *)t, g_, NULL);
    }
    Py_XDECREF(r);
    return r ? 0 : -1;
}
/* *to += g (steals g). */
static int add(PyObject **to, PyObject *g) {
    if (!*to) { *to = g; return 0; }
    PyObject *sum = PyNumber_Add(*to, g);
    Py_DECREF(g);
    if (!sum) return -1;
    Py_SETREF(*to, sum);
    return 0;
}
static int slots_of(Entry *e) {
    if (e->slots) return 0;
    int k = e->leaf ? 1 : ((Node *)e->key)->needs;
    e->slots = k <= 1 ? &e->one : PyMem_Calloc(k, sizeof(PyObject *));
    if (!e->slots) { PyErr_NoMemory(); return -1; }
    e->reached = 1;
    return 0;
}
static int to_leaf(Pass *p, int x, PyObject *g) {        /* steals g */
    Entry *e = &p->e[x];
    if (g && add(&e->one, g)) return -1;
    if (!--p->e[x].count) p->ready[p->nready++] = x;
    return 0;
}
static int flush(Pass *p) {
    int n = p->nready;
    for (int i = 0; i < n; i++) {
        Entry *e = &p->e[p->ready[i]]; PyObject *g = e->one;
        if (!g) continue;
        e->one = NULL;
        int bad = accumulate((Tensor *)e->key, g);
        Py_DECREF(g);
        if (bad) return -1;
    }
    p->nready = 0;
    return 0;
}
static int to_node(Pass *p, int x, int nr, PyObject *g) {  /* steals g */
    Entry *e = &p->e[x];
    if (slots_of(e)) { Py_XDECREF(g); return -1; }
    if (nr < 0 || nr >= ((Node *)e->key)->needs) { Py_XDECREF(g); PyErr_SetString(PyExc_IndexError, "list index out of range"); return -1; }
    return g ? add(&e->slots[nr], g) : 0;
}
static int run(Pass *p, PyObject *roots, PyObject *grads, int retain) {
    int fresh;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(roots); i++) {
        PyObject *r = PyList_GET_ITEM(roots, i), *t = PyTuple_GET_ITEM(r, 0), *g = Py_NewRef(PySequence_Fast_GET_ITEM(grads, i));
        int nr = (int)PyLong_AsLong(PyTuple_GET_ITEM(r, 1)), x = entry(p, t, &fresh);
        if (x < 0) { Py_DECREF(g); return -1; }
        if (p->e[x].leaf) { if (to_leaf(p, x, g)) return -1; continue; }
        if (!p->e[x].reached && !p->e[x].count) push(p, x);
        if (to_node(p, x, nr, g)) return -1;
    }
    if (p->nready && flush(p)) return -1;
    while (p->nheap) {
        int at = pop(p), bad = 0;
        Node *n = (Node *)p->e[at].key;
        PyObject *few[16], **res = n->nedges > 16 ? PyMem_Calloc(n->nedges, sizeof *res) : few;
        if (!res) { PyErr_NoMemory(); return -1; }
        memset(res, 0, n->nedges * sizeof *res);
        Py_ssize_t edges = n->nedges;
        PyObject *given[1], **slots = p->e[at].slots;
        if (n->needs == 1) { given[0] = p->e[at].one; p->e[at].one = NULL; p->e[at].slots = NULL; slots = given; }
        else p->e[at].slots = NULL;
        bad = run_node(n, slots, res);
        if (!bad && !retain) fl_release(n);
        for (int j = 0; j < n->needs; j++) Py_XDECREF(slots[j]);
        if (slots != given) PyMem_Free(slots);
        for (Py_ssize_t i = 0; i < edges; i++) {
            PyObject *t = i < n->nedges ? n->edges[i].target : NULL, *g = res[i];
            if (bad || !t) { Py_XDECREF(g); continue; }
            int x = entry(p, t, &fresh);
            if (x < 0) { Py_XDECREF(g); bad = -1; continue; }
            if (p->e[x].leaf) { bad = to_leaf(p, x, g); continue; }
            bad = to_node(p, x, n->edges[i].nr, g);
            if (!bad && !--p->e[x].count) push(p, x);
        }
        if (res != few) PyMem_Free(res);
        if (bad || (p->nready && flush(p))) return -1;
    }
    return 0;
}
/* backward(roots, grads, retain): True when the pass was run, False when Python's engine must. */
static PyObject *f_backward(PyObject *m, PyObject *const *a, Py_ssize_t n) {
    if (n != 3 || !PyList_Check(a[0]) || !PyList_Check(a[1]) || PyList_GET_SIZE(a[0]) != PyList_GET_SIZE(a[1])) { PyErr_SetString(PyExc_TypeError, "backward(roots, grads, retain): two lists of one length"); return NULL; }
    int retain = PyObject_IsTrue(a[2]);
    if (retain < 0) return NULL;
    if (!op_types || fl_state.active & ~fl_state.suspended || fl_state.inference) Py_RETURN_FALSE;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(a[1]); i++) if (!Tensor_Check(PyList_GET_ITEM(a[1], i))) Py_RETURN_FALSE;
    Pass p = {0};
    int plain = grow(&p) ? -1 : count(&p, a[0]);
    if (plain > 0 && run(&p, a[0], a[1], retain)) plain = -1;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    pass_free(&p);
    PyErr_Restore(type, value, trace);
    return plain < 0 ? NULL : PyBool_FromLong(plain);
}
/* set_op_types(types of operators whose backward depends on the node alone) -> those before. */
static PyObject *f_op_types(PyObject *m, PyObject *t) {
    if (!PyTuple_CheckExact(t)) { PyErr_SetString(PyExc_TypeError, "set_op_types(tuple of types)"); return NULL; }
    PyObject *old = op_types ? op_types : PyTuple_New(0);
    op_types = Py_NewRef(t);
    return old;
}
static PyMethodDef functions[] = {{"backward", (PyCFunction)f_backward, METH_FASTCALL}, {"set_op_types", f_op_types, METH_O}, {0}};
int fl_backward_init(PyObject *m) {
    str_backward = PyUnicode_InternFromString("backward"); str_add_ = PyUnicode_InternFromString("add_"); str_detach = PyUnicode_InternFromString("detach");
    return PyModule_AddFunctions(m, functions);
}
