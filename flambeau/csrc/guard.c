/* Guards: whether compiled code may run for the values of a call.

   A checker is a tree of accessors, so that what paths share is read once. At each node stand the guards of
   its value; those that relate values of several nodes come last and find them in registers. Nothing here
   raises but what is no Exception (KeyboardInterrupt): a value that cannot be read fails its guard. */
#include "guard.h"

enum { A_LOCAL, A_GLOBAL, A_BUILTIN, A_MODULE, A_ATTR, A_RAW, A_ITEM, A_KEY, A_VALUE, A_TYPE, A_CALL, A_APPLY };
enum { G_TYPE, G_ID, G_WEAK, G_EQUALS, G_NONE, G_LENGTH, G_KEYS, G_HAS_KEY, G_NO_KEY, G_HAS_ATTR, G_NO_ATTR,
       G_TENSOR, G_TREE, G_FUNCTION, G_ITERATOR, G_PYTHON, G_SAME, G_DIFFERENT, G_SHAPE, G_STATE };
enum { S_CONST, S_INT, S_SIZE, S_STRIDE, S_OFFSET, S_ADD, S_SUB, S_MUL, S_FLOORDIV, S_MOD, S_NEG, S_ABS, S_MIN, S_MAX,
       S_LT, S_LE, S_EQ, S_NE, S_GT, S_GE, S_NOT, S_SKIP_IF_FALSE, S_SKIP_IF_TRUE };   /* skips keep what they test */
enum { STACK = 64, ANY = INT64_MIN };

typedef struct {                  /* what is checked of a tensor; ANY among sizes and strides: any number */
    PyTypeObject *type; DType *dtype; int device, index, requires_grad, leaf, bits, flags, ndim;
    int64_t *sizes, *strides;
} Facts;
typedef struct { int op; int64_t a, b; } Step;
typedef struct { PyObject *owner, *name, *want; } Setting;       /* owner.name is, or equals, want */
typedef struct { int grad, inference, active, suspended, n; Setting *settings; } Modes;
typedef struct { PyObject *tensor; Facts *facts; int place; } Held;
typedef struct {                  /* a tree of modules: see ModuleFacts in capture/guards.py */
    PyObject *clock;              /* list of one int */
    int64_t at;
    Py_ssize_t n, nheld;
    PyObject **modules;           /* weak references */
    int64_t *stamps;
    uint64_t *tags, changes;      /* versions of the modules' dicts; 3.13: of all that are watched */
    PyTypeObject *table; Py_ssize_t table_stamp;                  /* where a table keeps its stamp */
    PyObject *read, *owned;       /* checkers: what was read of them; what stands in the log and they own */
    struct Attribute *attributes; /* of what was read, what stands in the modules' own dicts (3.13) */
    Py_ssize_t nattributes;
    Held *held;                   /* the tensors among `owned`, found when the clock last moved */
    Py_ssize_t room;
    int filled, loose, busy;
} Tree;
typedef struct { int kind, place; PyObject *want; Py_ssize_t number; void *data; } Guard;
typedef struct Attribute { Py_ssize_t module; PyObject *name; Guard guard; } Attribute;    /* no name: the dict itself */
typedef struct { int kind, reg; PyObject *key; Py_ssize_t number; int slot; int nchildren, nguards, first; int *children; Guard *guards; } Path;
typedef struct {
    PyObject_HEAD
    int nroots, npaths, nlate, nregs;
    int *roots;
    Path *paths;
    Guard *late;
    int bound;
} Checker;
typedef struct { Checker *c; const Scope *scope; PyObject **regs; Tree *fill; int failed; } Run;

static PyTypeObject CheckerType;
static PyObject *str_dict, *str_stamp, *str_builtins, *str_tables[3];
static int check(Checker *c, const Scope *scope, int *failed, Tree *fill);
static int holds(Guard *g, PyObject *v, Run *r);
static int settled(int ok);

int fl_is_checker(PyObject *o) { return PyObject_TypeCheck(o, &CheckerType); }

/* ---- reading ---- */
static PyObject *deref(PyObject *ref) {           /* borrowed, or NULL */
    PyObject *o = ((PyWeakReference *)ref)->wr_object;
    return o == Py_None || Py_REFCNT(o) <= 0 ? NULL : o;
}
static PyObject *by_slot(const Scope *s, Path *p) {
    if (s->names) return Py_XNewRef(PyDict_GetItemWithError(s->names, p->key));
    if (p->slot >= 0) return Py_XNewRef(s->slots[p->slot]);
    PyObject *cells = s->closure;
    Py_ssize_t i = -1 - p->slot;
    return cells && i < PyTuple_GET_SIZE(cells) ? Py_XNewRef(PyCell_GET(PyTuple_GET_ITEM(cells, i))) : NULL;
}
static PyObject *of_builtins(const Scope *s, PyObject *key) {
    PyObject *b = s->builtins;
    if (!b) {
        b = PyDict_GetItemWithError(s->globals, str_builtins);
        if (b && PyModule_Check(b)) b = PyModule_GetDict(b);
    }
    if (!b) return NULL;
    return PyDict_Check(b) ? Py_XNewRef(PyDict_GetItemWithError(b, key)) : PyObject_GetItem(b, key);
}
static PyObject *dict_of(PyObject *v) {           /* the instance's own; new reference */
    return Py_TYPE(v)->tp_dictoffset ? PyObject_GenericGetDict(v, NULL) : PyObject_GetAttr(v, str_dict);
}
static PyObject *item_of(PyObject *v, Path *p) {
    PyTypeObject *t = Py_TYPE(v);
    if (t->tp_as_mapping && t->tp_as_mapping->mp_subscript == PyDict_Type.tp_as_mapping->mp_subscript && PyDict_Check(v)) {
        PyObject *found = PyDict_GetItemWithError(v, p->key);
        if (found) return Py_NewRef(found);
        return t == &PyDict_Type || PyErr_Occurred() ? NULL : PyObject_GetItem(v, p->key);    /* __missing__ */
    }
    if (p->number >= 0) {
        if (PyTuple_CheckExact(v)) return p->number < PyTuple_GET_SIZE(v) ? Py_NewRef(PyTuple_GET_ITEM(v, p->number)) : NULL;
        if (PyList_CheckExact(v)) return p->number < PyList_GET_SIZE(v) ? Py_NewRef(PyList_GET_ITEM(v, p->number)) : NULL;
    }
    return PyObject_GetItem(v, p->key);
}
static PyObject *nth_of(PyObject *v, Py_ssize_t n, int want_value) {
    PyObject *key, *value;
    if (PyDict_Check(v) && Py_TYPE(v)->tp_iter == PyDict_Type.tp_iter) {
        Py_ssize_t i = 0;
        while (PyDict_Next(v, &i, &key, &value)) if (n-- == 0) return Py_NewRef(want_value ? value : key);
        return NULL;
    }
    PyObject *keys = PySequence_List(v);
    key = keys && n < PyList_GET_SIZE(keys) ? Py_NewRef(PyList_GET_ITEM(keys, n)) : NULL;
    Py_XDECREF(keys);
    if (!key || !want_value) return key;
    value = PyObject_GetItem(v, key);
    Py_DECREF(key);
    return value;
}
static PyObject *read_path(Run *r, Path *p, PyObject *v) {
    const Scope *s = r->scope;
    switch (p->kind) {
    case A_LOCAL: return by_slot(s, p);
    case A_GLOBAL: return Py_XNewRef(PyDict_GetItemWithError(s->globals, p->key));
    case A_BUILTIN: return of_builtins(s, p->key);
    case A_MODULE: { PyObject *all = PyImport_GetModuleDict(); return Py_XNewRef(PyDict_GetItemWithError(all, p->key)); }
    case A_ATTR:                                   /* a program's `__getattribute__` is not asked for `__dict__` */
        if (p->key == str_dict && !PyType_Check(v) && Py_TYPE(v)->tp_dictoffset) return PyObject_GenericGetDict(v, NULL);
        return PyObject_GetAttr(v, p->key);
    case A_RAW: {
        PyObject *d = dict_of(v), *found = NULL;
        if (d) found = PyDict_Check(d) ? Py_XNewRef(PyDict_GetItemWithError(d, p->key)) : PyObject_GetItem(d, p->key);
        Py_XDECREF(d);
        return found;
    }
    case A_ITEM: return item_of(v, p);
    case A_KEY: return nth_of(v, p->number, 0);
    case A_VALUE: return nth_of(v, p->number, 1);
    case A_TYPE: return Py_NewRef((PyObject *)Py_TYPE(v));
    case A_APPLY: return PyObject_CallOneArg(p->key, v);
    default: return PyObject_CallMethodNoArgs(v, p->key);
    }
}

/* ---- checking one value ---- */
/* Equal and of one type, items included; floats by their bits, so that NaN is itself and -0.0 is not 0.0. */
static int same_constant(PyObject *a, PyObject *b) {
    if (a == b) return 1;
    PyTypeObject *t = Py_TYPE(a);
    if (t != Py_TYPE(b)) return 0;
    if (t == &PyFloat_Type) return !memcmp(&((PyFloatObject *)a)->ob_fval, &((PyFloatObject *)b)->ob_fval, sizeof(double));
    if (t == &PyComplex_Type) return !memcmp(&((PyComplexObject *)a)->cval, &((PyComplexObject *)b)->cval, sizeof(Py_complex));
    if (t == &PyTuple_Type || t == SizeType) {
        Py_ssize_t n = PyTuple_GET_SIZE(a);
        int same = n == PyTuple_GET_SIZE(b);
        for (Py_ssize_t i = 0; same > 0 && i < n; i++) same = same_constant(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i));
        return same;
    }
    if (t == &PySlice_Type) {
        PySliceObject *x = (PySliceObject *)a, *y = (PySliceObject *)b;
        int same = same_constant(x->start, y->start);
        if (same > 0) same = same_constant(x->stop, y->stop);
        return same > 0 ? same_constant(x->step, y->step) : same;
    }
    if (t == &PyRange_Type) {                                   /* ranges with the same items are equal */
        PyObject *x = PyObject_CallMethod(a, "__reduce__", NULL), *y = x ? PyObject_CallMethod(b, "__reduce__", NULL) : NULL;
        int same = y ? same_constant(x, y) : -1;                /* (range, (start, stop, step)) */
        Py_XDECREF(x);
        Py_XDECREF(y);
        return same;
    }
    if (t == &PyFrozenSet_Type) {                               /* the order hangs on how it became what it is */
        PyObject *x = PySequence_Tuple(a), *y = x ? PySequence_Tuple(b) : NULL;
        int same = y ? same_constant(x, y) : -1;
        Py_XDECREF(x);
        Py_XDECREF(y);
        return same;
    }
    return PyObject_RichCompareBool(a, b, Py_EQ);
}
static int has_facts(PyObject *v, const Facts *f) {
    if (Py_TYPE(v) != f->type) return 0;
    Tensor *t = (Tensor *)v;
    if (t->dtype != f->dtype || t->ndim != f->ndim || t->sym || t->bits != f->bits
        || (t->flags & (FL_T_CONJ | FL_T_NEG)) != f->flags
        || t->storage->device->type != f->device || t->storage->device->index != f->index) return 0;
    for (int i = 0; i < t->ndim; i++)
        if ((f->sizes[i] != ANY && t->sizes[i] != f->sizes[i]) || (f->strides[i] != ANY && t->strides[i] != f->strides[i])) return 0;
    int requires = fl_requires_grad(t);
    if (requires < 0) return -1;
    if (requires && fl_stale_view(t) && fl_refresh(t) < 0) return -1;
    return requires == f->requires_grad && (t->grad_fn == NULL) == f->leaf;
}
static int has_length(PyObject *v, Py_ssize_t n) {
    Py_ssize_t m = PyObject_Size(v);
    return m < 0 ? -1 : m == n;
}
/* Keys: strings, numbers and tuples of them by value, anything else by identity. */
static int same_key(PyObject *a, PyObject *b) {
    PyTypeObject *t = Py_TYPE(a);
    if (a == b) return 1;
    if (t == &PyTuple_Type && Py_TYPE(b) == t) {
        Py_ssize_t n = PyTuple_GET_SIZE(a);
        int same = n == PyTuple_GET_SIZE(b);
        for (Py_ssize_t i = 0; same > 0 && i < n; i++) same = same_key(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i));
        return same;
    }
    return t == &PyUnicode_Type || t == &PyLong_Type || t == &PyBool_Type || t == &PyFloat_Type || t == &PyComplex_Type || t == &PyBytes_Type
        ? same_constant(a, b) : 0;
}
static int has_keys(PyObject *v, PyObject *want) {         /* want: tuple */
    Py_ssize_t n = PyTuple_GET_SIZE(want), i = 0, at = 0;
    PyObject *key, *value, *listed = NULL;
    int same = 1;
    if (PyDict_Check(v) && Py_TYPE(v)->tp_iter == PyDict_Type.tp_iter) {
        if (PyDict_GET_SIZE(v) != n) return 0;
        while (same > 0 && PyDict_Next(v, &at, &key, &value)) same = same_key(key, PyTuple_GET_ITEM(want, i++));
        return same;
    }
    if (!(listed = PySequence_List(v))) return -1;
    same = PyList_GET_SIZE(listed) == n;
    for (; same > 0 && i < n; i++) same = same_key(PyList_GET_ITEM(listed, i), PyTuple_GET_ITEM(want, i));
    Py_DECREF(listed);
    return same;
}
static int has_key(PyObject *v, PyObject *key) {
    return PyDict_CheckExact(v) ? PyDict_Contains(v, key) : PySequence_Contains(v, key);
}
static int has_attribute(PyObject *v, PyObject *name) {
    PyObject *found = PyObject_GetAttr(v, name);
    if (found) { Py_DECREF(found); return 1; }
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
    PyErr_Clear();
    return 0;
}
static int predicate(PyObject *f, PyObject *v) {
    PyObject *r = PyObject_CallOneArg(f, v);
    int ok = r ? PyObject_IsTrue(r) : -1;
    Py_XDECREF(r);
    return ok;
}

/* ---- modules ---- */
static int64_t as_int(PyObject *o) { return o && PyLong_Check(o) ? PyLong_AsLongLong(o) : -1; }
/* When a module last changed, its tables included; -1: that is not known. */
static int64_t stamp_of(Tree *t, PyObject *module) {
    PyObject *d = dict_of(module);
    if (!d) { PyErr_Clear(); return -1; }
    int64_t stamp = as_int(PyDict_GetItemWithError(d, str_stamp));
    for (int i = 0; stamp >= 0 && i < 3; i++) {
        PyObject *table = PyDict_GetItemWithError(d, str_tables[i]);
        if (!table || Py_TYPE(table) != t->table) { stamp = -1; break; }
        int64_t s = as_int(*(PyObject **)((char *)table + t->table_stamp));
        if (s < 0 || s > stamp) stamp = s;
    }
    Py_DECREF(d);
    return stamp;
}
/* Writes to a module's __dict__ that go around its __setattr__: 3.11 and 3.12 number the states of dicts,
   3.13 tells of changes to dicts that are watched, but not of attributes that are set: they are read. */
#if PY_VERSION_HEX >= 0x030D0000
static int watcher = -1;
static uint64_t watched_changes;
static int dict_changed(PyDict_WatchEvent event, PyObject *dict, PyObject *key, PyObject *value) { watched_changes++; return 0; }
static int dicts_moved(Tree *t) { return t->changes != watched_changes; }
static void note_dicts(Tree *t) {
    if (watcher < 0 && (watcher = PyDict_AddWatcher(dict_changed)) < 0) { PyErr_Clear(); t->loose = 1; return; }
    for (Py_ssize_t i = 0; i < t->n; i++) {
        PyObject *module = deref(t->modules[i]), *d = module ? dict_of(module) : NULL;
        if (!d || PyDict_Watch(watcher, d) < 0) { PyErr_Clear(); t->loose = 1; }
        Py_XDECREF(d);
    }
    t->changes = watched_changes;
}
#else
static uint64_t tag_of(PyObject *module) {
    PyObject **d = module ? _PyObject_GetDictPtr(module) : NULL;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"      /* in 3.12; it is still kept there */
    return d && *d ? ((PyDictObject *)*d)->ma_version_tag : 0;
#pragma GCC diagnostic pop
}
static int dicts_moved(Tree *t) {
    for (Py_ssize_t i = 0; i < t->n; i++) if (tag_of(deref(t->modules[i])) != t->tags[i]) return 1;
    return 0;
}
static void note_dicts(Tree *t) { for (Py_ssize_t i = 0; i < t->n; i++) t->tags[i] = tag_of(deref(t->modules[i])); }
#endif
static int held_hold(Tree *t, int *failed) {
    for (Py_ssize_t i = 0; i < t->nheld; i++) {
        PyObject *v = deref(t->held[i].tensor);
        int ok = v ? has_facts(v, t->held[i].facts) : 0;
        if (ok <= 0) { *failed = t->held[i].place; return ok; }
    }
    return 1;
}
static int attribute_holds(Tree *t, Attribute *a) {
    PyObject *module = deref(t->modules[a->module]), *d = module ? dict_of(module) : NULL;
    PyObject *v = !d || !PyDict_Check(d) ? NULL : a->name == Py_None ? d : PyDict_GetItemWithError(d, a->name);
    Run nothing = {0};
    Py_XINCREF(v);
    int ok = settled(v ? holds(&a->guard, v, &nothing) : -1);
    Py_XDECREF(v); Py_XDECREF(d);
    return ok;
}
static int tree_holds(Tree *t, const Scope *scope, int *failed) {
    int64_t now = as_int(PyList_GET_ITEM(t->clock, 0));
    int moved = t->loose || dicts_moved(t), ok, inner = -1;
    for (Py_ssize_t i = 0; !moved && i < t->nattributes; i++) {
        if ((ok = attribute_holds(t, &t->attributes[i])) < 0) return ok;
        moved = !ok;
    }
    if (now == t->at && t->filled && !moved) return held_hold(t, failed);
    for (Py_ssize_t i = 0; i < t->n; i++) {
        PyObject *module = deref(t->modules[i]);
        if (!module) return 0;
        int64_t stamp = stamp_of(t, module);
        if (stamp < 0 || stamp != t->stamps[i]) moved = 1;
    }
    if (!moved && t->filled) {                    /* other modules have changed */
        t->at = now;
        return held_hold(t, failed);
    }
    if (moved && (ok = check((Checker *)t->read, scope, &inner, NULL)) <= 0) return ok;
    if (t->busy) return check((Checker *)t->owned, scope, failed, NULL);        /* another thread is at it */
    t->busy = 1;
    for (Py_ssize_t i = 0; i < t->nheld; i++) Py_CLEAR(t->held[i].tensor);
    t->nheld = t->filled = 0;
    ok = check((Checker *)t->owned, scope, failed, t);
    for (Py_ssize_t i = 0; ok > 0 && i < t->n; i++) {
        PyObject *module = deref(t->modules[i]);
        t->stamps[i] = module ? stamp_of(t, module) : -1;
        if (t->stamps[i] < 0) t->loose = 1;
    }
    if (ok > 0) { note_dicts(t); t->at = now; t->filled = 1; }
    t->busy = 0;
    return ok;
}
static int hold(Tree *t, PyObject *tensor, Facts *facts, int place) {
    if (t->nheld >= t->room) { PyErr_SetString(PyExc_SystemError, "more tensors than guards on them"); return -1; }
    PyObject *ref = PyWeakref_NewRef(tensor, NULL);
    if (!ref) return -1;
    t->held[t->nheld++] = (Held){ref, facts, place};
    return 1;
}

/* ---- what relates several values ---- */
static int shape_holds(Guard *g, Run *r) {
    int64_t stack[STACK]; int n = 0;
    Step *steps = g->data;
    for (Py_ssize_t i = 0; i < g->number; i++) {
        Step *s = &steps[i];
        int64_t x, y, out;
        if (s->op <= S_OFFSET) {
            PyObject *v = s->op == S_CONST ? NULL : r->regs[s->a];
            if (s->op == S_CONST) out = s->a;
            else if (s->op == S_INT) {
                if (!PyLong_Check(v)) return 0;
                int over; out = PyLong_AsLongLongAndOverflow(v, &over);
                if (over) return 2;
            } else {
                if (!Tensor_Check(v) || ((Tensor *)v)->sym || (s->op != S_OFFSET && s->b >= ((Tensor *)v)->ndim)) return 0;
                Tensor *t = (Tensor *)v;
                out = s->op == S_SIZE ? t->sizes[s->b] : s->op == S_STRIDE ? t->strides[s->b] : t->offset;
            }
            stack[n++] = out;
            continue;
        }
        if (s->op >= S_SKIP_IF_FALSE) {               /* of `a and b`, `a or b`: the first one decides, or is dropped */
            if ((stack[n - 1] != 0) == (s->op == S_SKIP_IF_TRUE)) i += s->a;
            else n--;
            continue;
        }
        y = stack[--n];
        if (s->op == S_NEG || s->op == S_NOT || s->op == S_ABS) {
            if (y == INT64_MIN) return 2;
            stack[n++] = s->op == S_NEG ? -y : s->op == S_NOT ? !y : y < 0 ? -y : y;
            continue;
        }
        x = stack[--n];
        switch (s->op) {
        case S_ADD: if (__builtin_add_overflow(x, y, &out)) return 2; break;
        case S_SUB: if (__builtin_sub_overflow(x, y, &out)) return 2; break;
        case S_MUL: if (__builtin_mul_overflow(x, y, &out)) return 2; break;
        case S_FLOORDIV: case S_MOD: {
            if (y == 0) return 0;
            if (y == -1) { if (x == INT64_MIN) return 2; out = s->op == S_MOD ? 0 : -x; break; }
            int64_t q = x / y, m = x % y;
            if (m && (m < 0) != (y < 0)) { q--; m += y; }
            out = s->op == S_MOD ? m : q;
            break;
        }
        case S_MIN: out = x < y ? x : y; break;
        case S_MAX: out = x > y ? x : y; break;
        case S_LT: out = x < y; break;
        case S_LE: out = x <= y; break;
        case S_EQ: out = x == y; break;
        case S_NE: out = x != y; break;
        case S_GT: out = x > y; break;
        default: out = x >= y;
        }
        stack[n++] = out;
    }
    return stack[0] != 0;
}
/* In Python, on the values of the names: what the steps above cannot express, and what overflows them. */
static int shape_in_python(Guard *g, Run *r) {
    PyObject *f = PyTuple_GET_ITEM(g->want, 0), *leaves = PyTuple_GET_ITEM(g->want, 1);
    Py_ssize_t n = PyTuple_GET_SIZE(leaves);
    PyObject *values = PyTuple_New(n);
    for (Py_ssize_t i = 0; values && i < n; i++) {
        PyObject *leaf = PyTuple_GET_ITEM(leaves, i), *v;
        int64_t op = as_int(PyTuple_GET_ITEM(leaf, 0)), b = as_int(PyTuple_GET_ITEM(leaf, 2));
        v = r->regs[as_int(PyTuple_GET_ITEM(leaf, 1))];
        if (op == S_INT) Py_INCREF(v);
        else {
            if (!Tensor_Check(v) || ((Tensor *)v)->sym || (op != S_OFFSET && b >= ((Tensor *)v)->ndim)) { Py_DECREF(values); return 0; }
            Tensor *t = (Tensor *)v;
            v = PyLong_FromLongLong(op == S_SIZE ? t->sizes[b] : op == S_STRIDE ? t->strides[b] : t->offset);
        }
        if (!v) Py_CLEAR(values); else PyTuple_SET_ITEM(values, i, v);
    }
    PyObject *out = values ? PyObject_CallObject(f, values) : NULL;
    int ok = out ? PyObject_IsTrue(out) : -1;
    Py_XDECREF(values); Py_XDECREF(out);
    return ok;
}
static int modes_hold(Modes *m) {
    if (fl_state.grad != m->grad || fl_state.inference != m->inference || fl_state.active != m->active
        || fl_state.suspended != m->suspended) return 0;
    for (int i = 0; i < m->n; i++) {
        Setting *s = &m->settings[i];
        PyObject *now = s->name == Py_None ? PyObject_CallNoArgs(s->owner) : PyObject_GetAttr(s->owner, s->name);
        if (!now) return -1;
        int same = same_constant(now, s->want);
        Py_DECREF(now);
        if (same <= 0) return same;
    }
    return 1;
}
static int different(Guard *g, Run *r) {
    Py_ssize_t n = PyTuple_GET_SIZE(g->want);
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *a = r->regs[as_int(PyTuple_GET_ITEM(g->want, i))];
        for (Py_ssize_t k = 0; k < i; k++) if (a == r->regs[as_int(PyTuple_GET_ITEM(g->want, k))]) return 0;
    }
    return 1;
}

static int holds(Guard *g, PyObject *v, Run *r) {
    switch (g->kind) {
    case G_TYPE: return (PyObject *)Py_TYPE(v) == g->want;
    case G_ID: return v == g->want;
    case G_WEAK: return v == deref(g->want);
    case G_EQUALS: return same_constant(v, g->want);
    case G_NONE: return v == Py_None;
    case G_LENGTH: return has_length(v, g->number);
    case G_KEYS: return has_keys(v, g->want);
    case G_HAS_KEY: return has_key(v, g->want);
    case G_NO_KEY: { int h = has_key(v, g->want); return h < 0 ? h : !h; }
    case G_HAS_ATTR: return has_attribute(v, g->want);
    case G_NO_ATTR: { int h = has_attribute(v, g->want); return h < 0 ? h : !h; }
    case G_TENSOR: {
        int ok = has_facts(v, g->data);
        return ok > 0 && r->fill ? hold(r->fill, v, g->data, g->place) : ok;
    }
    case G_TREE: { int failed = g->place, ok = tree_holds(g->data, r->scope, &failed); r->failed = failed; return ok; }
    case G_FUNCTION: return PyFunction_Check(v) && ((PyFunctionObject *)v)->func_code == deref(g->want);
    case G_ITERATOR: {
        if ((PyObject *)Py_TYPE(v) != PyTuple_GET_ITEM(g->want, 0)) return 0;
        Py_ssize_t n = PyObject_LengthHint(v, -1);
        return n == g->number;
    }
    case G_PYTHON: return predicate(g->want, v);
    case G_SAME: return r->regs[g->number >> 16] == r->regs[g->number & 0xffff];
    case G_DIFFERENT: return different(g, r);
    case G_SHAPE: { int ok = g->data ? shape_holds(g, r) : 2; return ok == 2 ? shape_in_python(g, r) : ok; }
    case G_STATE: return modes_hold(g->data);
    default: return 0;
    }
}

/* ---- the walk ---- */
static int settled(int ok) {      /* an Exception is a guard that does not hold */
    if (ok >= 0) { if (PyErr_Occurred()) PyErr_Clear(); return ok; }
    if (!PyErr_Occurred()) return 0;
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return -1;
    PyErr_Clear();
    return 0;
}
static int walk(Run *r, int at, PyObject *parent) {
    Path *p = &r->c->paths[at];
    PyObject *v = read_path(r, p, parent);
    if (!v) { r->failed = p->first; return settled(-1); }
    int ok = 1;
    for (int i = 0; ok > 0 && i < p->nguards; i++) {
        r->failed = p->guards[i].place;
        if ((ok = holds(&p->guards[i], v, r)) <= 0) ok = settled(ok);
    }
    for (int i = 0; ok > 0 && i < p->nchildren; i++) ok = walk(r, p->children[i], v);
    if (p->reg >= 0 && ok > 0) r->regs[p->reg] = v; else Py_DECREF(v);
    return ok;
}
static int check(Checker *c, const Scope *scope, int *failed, Tree *fill) {
    PyObject *few[32], **regs = c->nregs <= 32 ? few : PyMem_Malloc(c->nregs * sizeof *regs);
    if (!regs) { PyErr_NoMemory(); return -1; }
    memset(regs, 0, c->nregs * sizeof *regs);
    Run r = {c, scope, regs, fill, -1};
    int ok = 1;
    for (int i = 0; ok > 0 && i < c->nroots; i++) ok = walk(&r, c->roots[i], NULL);
    for (int i = 0; ok > 0 && i < c->nlate; i++) {
        r.failed = c->late[i].place;
        if ((ok = holds(&c->late[i], NULL, &r)) <= 0) ok = settled(ok);
    }
    for (int i = 0; i < c->nregs; i++) Py_XDECREF(regs[i]);
    if (regs != few) PyMem_Free(regs);
    *failed = r.failed;
    return ok;
}
int fl_guard_check(PyObject *o, const Scope *scope) {
    int failed;
    if (!scope->names && !((Checker *)o)->bound) { PyErr_SetString(PyExc_SystemError, "a checker that no code was given to"); return -1; }
    return check((Checker *)o, scope, &failed, NULL);
}
static int bind(Checker *c, PyCodeObject *co) {
    int n = co->co_argcount + co->co_kwonlyargcount + !!(co->co_flags & CO_VARARGS) + !!(co->co_flags & CO_VARKEYWORDS);
    for (int i = 0; i < c->npaths; i++) {
        Path *p = &c->paths[i];
        for (int k = 0; k < p->nguards; k++)
            if (p->guards[k].kind == G_TREE) {
                Tree *t = p->guards[k].data;
                if (bind((Checker *)t->read, co) < 0 || bind((Checker *)t->owned, co) < 0) return -1;
            }
        if (p->kind != A_LOCAL) continue;
        int found = 0;
        for (int k = 0; k < co->co_nlocalsplus && !found; k++) {
            int free_index = k - (co->co_nlocalsplus - co->co_nfreevars);
            if ((k >= n && free_index < 0) || PyUnicode_Compare(PyTuple_GET_ITEM(co->co_localsplusnames, k), p->key)) continue;
            p->slot = k < n ? k : -1 - free_index;
            found = 1;
        }
        if (!found) { PyErr_Format(PyExc_ValueError, "guards on %R, which is no argument or free variable of %U", p->key, co->co_qualname); return -1; }
    }
    c->bound = 1;
    return 0;
}
int fl_guard_bind(PyObject *o, PyCodeObject *co) { return bind((Checker *)o, co); }

/* ---- building: checker(roots, paths, late, registers) ---- */
static int number(PyObject *t, Py_ssize_t i) { return (int)PyLong_AsLong(PyTuple_GET_ITEM(t, i)); }
/* (type, dtype, device, requires_grad, leaf, bits, conjugated, negated, sizes, strides) */
static Facts *facts_of(PyObject *t) {
    Facts *f = PyMem_Calloc(1, sizeof *f);
    PyObject *sizes = PyTuple_GET_ITEM(t, 8), *strides = PyTuple_GET_ITEM(t, 9);
    if (!f) { PyErr_NoMemory(); return NULL; }
    f->type = (PyTypeObject *)Py_NewRef(PyTuple_GET_ITEM(t, 0));
    f->dtype = (DType *)Py_NewRef(PyTuple_GET_ITEM(t, 1));
    Device *d = (Device *)PyTuple_GET_ITEM(t, 2);
    f->device = d->type; f->index = d->index;
    f->requires_grad = number(t, 3); f->leaf = number(t, 4); f->bits = number(t, 5);
    f->flags = (number(t, 6) ? FL_T_CONJ : 0) | (number(t, 7) ? FL_T_NEG : 0);
    f->ndim = (int)PyTuple_GET_SIZE(sizes);
    f->sizes = PyMem_Calloc(2 * f->ndim + 1, sizeof(int64_t)); f->strides = f->sizes + f->ndim;
    for (int i = 0; i < f->ndim; i++) {
        PyObject *a = PyTuple_GET_ITEM(sizes, i), *b = PyTuple_GET_ITEM(strides, i);
        f->sizes[i] = a == Py_None ? ANY : PyLong_AsLongLong(a);
        f->strides[i] = b == Py_None ? ANY : PyLong_AsLongLong(b);
    }
    return f;
}
/* (clock, at, modules, stamps, table type, the slot of its stamp, read, owned, tensors among owned,
   attributes) */
static int guard_of(PyObject *t, Guard *g);
static Tree *tree_of(PyObject *t) {
    Tree *m = PyMem_Calloc(1, sizeof *m);
    if (!m) { PyErr_NoMemory(); return NULL; }
    PyObject *modules = PyTuple_GET_ITEM(t, 2), *stamps = PyTuple_GET_ITEM(t, 3);
    m->clock = Py_NewRef(PyTuple_GET_ITEM(t, 0)); m->at = as_int(PyTuple_GET_ITEM(t, 1));
    m->n = PyTuple_GET_SIZE(modules);
    m->modules = PyMem_Calloc(m->n + 1, sizeof *m->modules); m->stamps = PyMem_Calloc(m->n + 1, sizeof *m->stamps);
    m->table = (PyTypeObject *)Py_NewRef(PyTuple_GET_ITEM(t, 4)); m->table_stamp = ((PyMemberDescrObject *)PyTuple_GET_ITEM(t, 5))->d_member->offset;
    m->read = Py_NewRef(PyTuple_GET_ITEM(t, 6)); m->owned = Py_NewRef(PyTuple_GET_ITEM(t, 7));
    m->room = as_int(PyTuple_GET_ITEM(t, 8));
    PyObject *attributes = PyTuple_GET_ITEM(t, 9);    /* ((module, name, guard), ...) */
    m->attributes = PyMem_Calloc(PyTuple_GET_SIZE(attributes) + 1, sizeof *m->attributes);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(attributes); i++) {
        PyObject *a = PyTuple_GET_ITEM(attributes, i);
        m->attributes[i].module = as_int(PyTuple_GET_ITEM(a, 0)); m->attributes[i].name = Py_NewRef(PyTuple_GET_ITEM(a, 1));
        guard_of(PyTuple_GET_ITEM(a, 2), &m->attributes[i].guard);
        m->nattributes++;
    }
    m->held = PyMem_Calloc(m->room + 1, sizeof *m->held);
    m->tags = PyMem_Calloc(m->n + 1, sizeof *m->tags);
    for (Py_ssize_t i = 0; i < m->n; i++) {
        m->modules[i] = Py_NewRef(PyTuple_GET_ITEM(modules, i));
        m->stamps[i] = as_int(PyTuple_GET_ITEM(stamps, i));
        PyObject *module = deref(m->modules[i]);
        if (module && stamp_of(m, module) < 0) m->loose = 1;
    }
    note_dicts(m);
    return m;
}
/* (grad, inference, active, suspended, ((owner, name, wanted), ...)); without a name the owner is called */
static Modes *modes_of(PyObject *t) {
    Modes *m = PyMem_Calloc(1, sizeof *m);
    if (!m) { PyErr_NoMemory(); return NULL; }
    m->grad = number(t, 0); m->inference = number(t, 1); m->active = number(t, 2); m->suspended = number(t, 3);
    PyObject *settings = PyTuple_GET_ITEM(t, 4);
    m->n = (int)PyTuple_GET_SIZE(settings);
    m->settings = PyMem_Calloc(m->n + 1, sizeof *m->settings);
    for (int i = 0; i < m->n; i++) {
        PyObject *s = PyTuple_GET_ITEM(settings, i);
        m->settings[i] = (Setting){Py_NewRef(PyTuple_GET_ITEM(s, 0)), Py_NewRef(PyTuple_GET_ITEM(s, 1)), Py_NewRef(PyTuple_GET_ITEM(s, 2))};
    }
    return m;
}
static Step *steps_of(PyObject *t, Py_ssize_t *n) {
    *n = PyTuple_GET_SIZE(t);
    Step *steps = PyMem_Calloc(*n + 1, sizeof *steps);
    for (Py_ssize_t i = 0; steps && i < *n; i++) {
        PyObject *s = PyTuple_GET_ITEM(t, i);
        steps[i] = (Step){number(s, 0), PyLong_AsLongLong(PyTuple_GET_ITEM(s, 1)), PyLong_AsLongLong(PyTuple_GET_ITEM(s, 2))};
    }
    return steps;
}
static int guard_of(PyObject *t, Guard *g) {          /* (kind, place, wanted, number) */
    g->kind = number(t, 0); g->place = number(t, 1);
    g->want = Py_NewRef(PyTuple_GET_ITEM(t, 2)); g->number = PyLong_AsSsize_t(PyTuple_GET_ITEM(t, 3));
    if (g->kind == G_TENSOR) g->data = facts_of(g->want);
    else if (g->kind == G_TREE) g->data = tree_of(g->want);
    else if (g->kind == G_STATE) g->data = modes_of(g->want);
    else if (g->kind == G_SHAPE && PyTuple_GET_ITEM(g->want, 2) != Py_None) g->data = steps_of(PyTuple_GET_ITEM(g->want, 2), &g->number);
    return PyErr_Occurred() ? -1 : 0;
}
static Guard *guards_of(PyObject *t, int *n) {
    *n = (int)PyTuple_GET_SIZE(t);
    Guard *out = PyMem_Calloc(*n + 1, sizeof *out);
    for (int i = 0; out && i < *n; i++) if (guard_of(PyTuple_GET_ITEM(t, i), &out[i]) < 0) { *n = i + 1; break; }
    return out;
}
static int *ints_of(PyObject *t, int *n) {
    *n = (int)PyTuple_GET_SIZE(t);
    int *out = PyMem_Calloc(*n + 1, sizeof *out);
    for (int i = 0; out && i < *n; i++) out[i] = number(t, i);
    return out;
}
static PyObject *checker_new(PyTypeObject *type, PyObject *args, PyObject *kw) {
    PyObject *roots, *paths, *late; int nregs;
    if (!PyArg_ParseTuple(args, "O!O!O!i", &PyTuple_Type, &roots, &PyTuple_Type, &paths, &PyTuple_Type, &late, &nregs)) return NULL;
    Checker *c = (Checker *)type->tp_alloc(type, 0);
    if (!c) return NULL;
    c->nregs = nregs;
    c->roots = ints_of(roots, &c->nroots);
    c->paths = PyMem_Calloc(PyTuple_GET_SIZE(paths) + 1, sizeof *c->paths);
    for (Py_ssize_t i = 0; c->paths && i < PyTuple_GET_SIZE(paths) && !PyErr_Occurred(); i++) {
        PyObject *t = PyTuple_GET_ITEM(paths, i);     /* (kind, key, number, register, first, children, guards) */
        Path *p = &c->paths[i];
        p->kind = number(t, 0); p->key = Py_NewRef(PyTuple_GET_ITEM(t, 1)); p->number = PyLong_AsSsize_t(PyTuple_GET_ITEM(t, 2));
        p->reg = number(t, 3); p->first = number(t, 4);
        p->children = ints_of(PyTuple_GET_ITEM(t, 5), &p->nchildren);
        p->guards = guards_of(PyTuple_GET_ITEM(t, 6), &p->nguards);
        c->npaths++;
    }
    c->late = guards_of(late, &c->nlate);
    if (PyErr_Occurred()) { Py_DECREF(c); return NULL; }
    return (PyObject *)c;
}
static void guards_free(Guard *gs, int n) {
    for (int i = 0; i < n; i++) {
        Guard *g = &gs[i];
        if (g->kind == G_TENSOR && g->data) { Facts *f = g->data; Py_XDECREF(f->type); Py_XDECREF(f->dtype); PyMem_Free(f->sizes); }
        if (g->kind == G_STATE && g->data) {
            Modes *m = g->data;
            for (int k = 0; k < m->n; k++) { Py_XDECREF(m->settings[k].owner); Py_XDECREF(m->settings[k].name); Py_XDECREF(m->settings[k].want); }
            PyMem_Free(m->settings);
        }
        if (g->kind == G_TREE && g->data) {
            Tree *t = g->data;
            for (Py_ssize_t k = 0; k < t->n; k++) Py_XDECREF(t->modules[k]);
            for (Py_ssize_t k = 0; k < t->nheld; k++) Py_XDECREF(t->held[k].tensor);
            Py_XDECREF(t->clock); Py_XDECREF(t->table); Py_XDECREF(t->read); Py_XDECREF(t->owned);
            for (Py_ssize_t k = 0; k < t->nattributes; k++) { Py_XDECREF(t->attributes[k].name); Py_XDECREF(t->attributes[k].guard.want); }
            PyMem_Free(t->attributes);
            PyMem_Free(t->modules); PyMem_Free(t->stamps); PyMem_Free(t->held); PyMem_Free(t->tags);
        }
        PyMem_Free(g->data); Py_XDECREF(g->want);
    }
    PyMem_Free(gs);
}
static void checker_free(Checker *c) {
    for (int i = 0; i < c->npaths; i++) {
        Path *p = &c->paths[i];
        guards_free(p->guards, p->nguards);
        PyMem_Free(p->children); Py_XDECREF(p->key);
    }
    guards_free(c->late, c->nlate);
    PyMem_Free(c->paths); PyMem_Free(c->roots);
    Py_TYPE(c)->tp_free((PyObject *)c);
}
/* The place of the guard that fails for these variables; None: all hold. */
static PyObject *checker_failing(Checker *c, PyObject *const *a, Py_ssize_t n) {
    if (n != 2 || !PyDict_Check(a[0]) || !PyDict_Check(a[1])) { PyErr_SetString(PyExc_TypeError, "failing(variables, globals): two dicts"); return NULL; }
    Scope scope = {NULL, NULL, a[0], a[1], NULL};
    int failed = -1, ok = check(c, &scope, &failed, NULL);
    if (ok < 0) return NULL;
    if (ok) Py_RETURN_NONE;
    return PyLong_FromLong(failed);
}
static PyObject *checker_check(Checker *c, PyObject *const *a, Py_ssize_t n) {
    PyObject *failed = checker_failing(c, a, n);
    if (!failed) return NULL;
    Py_DECREF(failed);
    return PyBool_FromLong(failed == Py_None);
}
static PyMethodDef checker_methods[] = {{"check", (PyCFunction)checker_check, METH_FASTCALL}, {"failing", (PyCFunction)checker_failing, METH_FASTCALL}, {0}};
static PyTypeObject CheckerType = {PyVarObject_HEAD_INIT(NULL, 0).tp_name = "flambeau._native.Checker", .tp_basicsize = sizeof(Checker),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, .tp_new = checker_new, .tp_dealloc = (destructor)checker_free, .tp_methods = checker_methods};

int fl_guard_init(PyObject *m) {
    static const char *tables[] = {"_parameters", "_buffers", "_modules"};
    for (int i = 0; i < 3; i++) if (!(str_tables[i] = PyUnicode_InternFromString(tables[i]))) return -1;
    str_dict = PyUnicode_InternFromString("__dict__"); str_stamp = PyUnicode_InternFromString("_stamp");
    str_builtins = PyUnicode_InternFromString("__builtins__");
    if (!str_dict || !str_stamp || !str_builtins) return -1;
    return fl_add_type(m, &CheckerType);
}
