/* Recorded calls. While a tape runs, every call of a public operator is noted: which function, and
   whether an argument is an input, an earlier result or a constant. A program is valid for one key,
   which holds all that Python code can see of its tensors besides their values: dtype, sizes,
   strides, which of them are the same. Code that reads values, or gets a tensor from anywhere but an
   input or a noted call, leaves no program and stays with Python. */
#include "tape.h"

enum { IN, STEP, ITEM, CONST, LIST };
typedef struct { int16_t kind, item; int32_t at; } Source;
typedef struct { Function *fn; PyObject *kw; int32_t first, n, nkw; } Step;
struct Program {
    PyObject *owner;
    uint64_t hash;
    int64_t *key; int nkey;
    int refused, uses_outs, nin, nsteps, nsrc, nout, busy;
    Step *steps;
    Source *src;          /* all arguments, step by step, then parts of lists */
    Source *out;
    int32_t *drop;        /* by value: the step after which it goes; INT32_MAX: kept to the end */
    PyObject *consts, *pinned;
    Program *next;
};
enum { SLOTS = 4096, MOST = 8192, STEPS = 128, SOURCES = 1024 };
static Program *table[SLOTS];
static int programs, enabled = 1;
static int forget(void);

typedef struct Tape {
    const Inputs *in;
    int bad, uses_outs, nsteps, nsrc, nknown;
    Step steps[STEPS];
    Source src[SOURCES];
    struct { PyObject *o; Source s; } known[SOURCES];
    PyObject *consts, *alive;
} Tape;
_Thread_local Tape *fl_tape;

void fl_tape_refuse(void) { fl_tape->bad = 1; }
void fl_tape_outs(void) { if (fl_tape) fl_tape->uses_outs = 1; }

/* ---- keys ---- */
void fl_word(Key *k, int64_t w) { if (k->n < FL_KEY_WORDS) k->w[k->n++] = w; else k->n = FL_KEY_WORDS + 1; }
static int full(const Inputs *in) { return in->key.n > FL_KEY_WORDS || in->nin >= FL_MAX_INPUTS; }
int fl_input(Inputs *in, PyObject *held, Tensor *t) {
    if (t->sym || t->bits & ~FL_L_GEOMETRY || t->flags & (FL_T_CONJ | FL_T_NEG | FL_T_INFERENCE) || t->storage->device->type || full(in)) return 0;
    if (!(t->bits & FL_L_GEOMETRY) && !t->storage->data && t->numel) return 0;
    int same = in->nin;
    for (int i = 0; i < in->nin; i++) if (in->in[i] == held) { same = i; break; }
    fl_word(&in->key, 1 | same << 4 | t->dtype->code << 12 | (t->flags & FL_T_WRAPPED ? 1 << 20 : 0) | (t->bits ? 1 << 21 : 0) | (int64_t)t->ndim << 24);
    for (int i = 0; i < t->ndim; i++) { fl_word(&in->key, t->sizes[i]); fl_word(&in->key, t->strides[i]); }
    in->in[in->nin++] = held;
    return !full(in);
}
int fl_constant(Inputs *in, PyObject *o) {
    Key *k = &in->key;
    if (o == Py_None) fl_word(k, 2);
    else if (PyBool_Check(o)) fl_word(k, 3 | (o == Py_True) << 4);
    else if (PyLong_CheckExact(o)) {
        int over; int64_t v = PyLong_AsLongLongAndOverflow(o, &over);
        if (over) return 0;
        fl_word(k, 4); fl_word(k, v);
    } else if (PyFloat_CheckExact(o)) { double d = PyFloat_AS_DOUBLE(o); int64_t v; memcpy(&v, &d, 8); fl_word(k, 5); fl_word(k, v); }
    else if (Py_TYPE(o) == &DTypeType) fl_word(k, 6 | (int64_t)((DType *)o)->code << 4);
    else if (Py_TYPE(o) == &DeviceType) fl_word(k, 7 | (int64_t)((Device *)o)->type << 4 | (int64_t)(((Device *)o)->index + 1) << 16);
    else if (PyUnicode_CheckExact(o)) { fl_word(k, 8); fl_word(k, (int64_t)(intptr_t)o); }      /* the program keeps it alive */
    else if (PyTuple_CheckExact(o) || Py_TYPE(o) == SizeType) {
        Py_ssize_t n = PyTuple_GET_SIZE(o);
        fl_word(k, 9 | (int64_t)n << 4);
        for (Py_ssize_t i = 0; i < n; i++) if (!fl_constant(in, PyTuple_GET_ITEM(o, i))) return 0;
    } else if (PyList_CheckExact(o)) {
        Py_ssize_t n = PyList_GET_SIZE(o);
        fl_word(k, 10 | (int64_t)n << 4);
        for (Py_ssize_t i = 0; i < n; i++) if (!fl_constant(in, PyList_GET_ITEM(o, i))) return 0;
    } else if (Tensor_Check(o)) return fl_input(in, o, (Tensor *)o);
    else if (Py_TYPE(o) == &SavedType) {
        Saved *s = (Saved *)o;
        if (!s->t || s->unpack) return 0;
        /* An input itself is told by the tensor, so that saving it twice shows. */
        if (!fl_input(in, s->is_output ? o : (PyObject *)s->t, s->t)) return 0;
        in->in[in->nin - 1] = o;
        for (int i = 0; !s->is_output && i < in->nin - 1; i++)
            if (in->in[i] == (PyObject *)s->t || (Py_TYPE(in->in[i]) == &SavedType && !((Saved *)in->in[i])->is_output && ((Saved *)in->in[i])->t == s->t)) { fl_word(k, 11 | (int64_t)i << 4); break; }
    } else return 0;
    return !full(in);
}
static uint64_t hash_of(PyObject *owner, const Key *k) {
    uint64_t h = 1469598103934665603ull ^ (uint64_t)(intptr_t)owner >> 4;
    for (int i = 0; i < k->n; i++) { h ^= (uint64_t)k->w[i]; h *= 1099511628211ull; h ^= h >> 29; }
    return h;
}
Program *fl_program(PyObject *owner, const Key *key, int *refused) {
    *refused = !enabled;
    if (!enabled) return NULL;
    uint64_t h = hash_of(owner, key);
    for (Program *p = table[h % SLOTS]; p; p = p->next)
        if (p->hash == h && p->owner == owner && p->nkey == key->n && !memcmp(p->key, key->w, key->n * sizeof *key->w)) { *refused = p->refused; return p->refused ? NULL : p; }
    return NULL;
}
int fl_program_uses_outs(const Program *p) { return p->uses_outs; }
static void program_free(Program *p) {
    for (int i = 0; i < p->nsteps; i++) { Py_DECREF(p->steps[i].fn); Py_XDECREF(p->steps[i].kw); }
    Py_XDECREF(p->owner); Py_XDECREF(p->consts); Py_XDECREF(p->pinned);
    PyMem_Free(p->key); PyMem_Free(p->steps); PyMem_Free(p->src); PyMem_Free(p->out); PyMem_Free(p->drop);
    PyMem_Free(p);
}

/* ---- writing ---- */
static int known(Tape *t, PyObject *o, Source *s) {
    for (int i = t->nknown; i--;) if (t->known[i].o == o) { *s = t->known[i].s; return 1; }
    return 0;
}
static void learn(Tape *t, PyObject *o, Source s) {
    Source old;
    if (known(t, o, &old)) return;
    if (t->nknown == SOURCES || PyList_Append(t->alive, o)) { PyErr_Clear(); t->bad = 1; return; }
    t->known[t->nknown].o = o; t->known[t->nknown++].s = s;
}
void fl_tape_unpacked(PyObject *saved, PyObject *tensor) {
    Tape *t = fl_tape;
    if (!t) return;
    for (int i = 0; i < t->in->nin; i++) if (t->in->in[i] == saved) { learn(t, tensor, (Source){IN, 0, i}); return; }
    t->bad = 1;
}
static int holds_tensor(PyObject *o) {
    if (Tensor_Check(o)) return 1;
    Py_ssize_t n = PyTuple_Check(o) ? PyTuple_GET_SIZE(o) : PyList_Check(o) ? PyList_GET_SIZE(o) : 0;
    for (Py_ssize_t i = 0; i < n; i++) if (holds_tensor(PyTuple_Check(o) ? PyTuple_GET_ITEM(o, i) : PyList_GET_ITEM(o, i))) return 1;
    return 0;
}
static int plain_constant(PyObject *o) {       /* what a later call may be given again: nothing that changes */
    if (o == Py_None || PyBool_Check(o) || PyLong_CheckExact(o) || PyFloat_CheckExact(o) || PyComplex_CheckExact(o) || PyUnicode_CheckExact(o)
        || Py_TYPE(o) == &DTypeType || Py_TYPE(o) == &DeviceType) return 1;
    if (PyTuple_Check(o)) { for (Py_ssize_t i = PyTuple_GET_SIZE(o); i--;) if (!plain_constant(PyTuple_GET_ITEM(o, i))) return 0; return 1; }
    if (PyList_CheckExact(o)) { for (Py_ssize_t i = PyList_GET_SIZE(o); i--;) if (!plain_constant(PyList_GET_ITEM(o, i))) return 0; return 1; }
    PyObject *mod = PyObject_GetAttrString((PyObject *)Py_TYPE(o), "__module__");      /* layouts and memory formats */
    int ok = mod && PyUnicode_Check(mod) && !PyUnicode_CompareWithASCIIString(mod, "flambeau") && !PyCallable_Check(o);
    PyErr_Clear();
    Py_XDECREF(mod);
    return ok;
}
static Source source_of(Tape *t, PyObject *o) {
    Source s = {CONST, 0, 0};
    if (Tensor_Check(o)) { if (!known(t, o, &s)) t->bad = 1; return s; }
    if (holds_tensor(o)) {
        int list = PyList_CheckExact(o); Py_ssize_t n = PySequence_Fast_GET_SIZE(o); Source part[64];
        if (n > 63 || !(list || PyTuple_CheckExact(o))) { t->bad = 1; return s; }
        for (Py_ssize_t i = 0; i < n && !t->bad; i++) part[i] = source_of(t, PySequence_Fast_GET_ITEM(o, i));
        if (t->bad || t->nsrc + n + 1 > SOURCES) { t->bad = 1; return s; }
        s = (Source){LIST, (int16_t)list, t->nsrc};
        t->src[t->nsrc++] = (Source){CONST, 0, (int32_t)n};
        for (Py_ssize_t i = 0; i < n; i++) t->src[t->nsrc++] = part[i];
        return s;
    }
    if (!plain_constant(o)) { t->bad = 1; return s; }
    PyObject *c = PyList_CheckExact(o) ? PyList_GetSlice(o, 0, PyList_GET_SIZE(o)) : Py_NewRef(o);
    s.at = (int32_t)PyList_GET_SIZE(t->consts);
    if (!c || PyList_Append(t->consts, c)) { PyErr_Clear(); t->bad = 1; }
    Py_XDECREF(c);
    return s;
}
static void note(Tape *t, Function *f, PyObject *const *a, Py_ssize_t n, PyObject *kw, PyObject *r) {
    Py_ssize_t all = n + (kw ? PyTuple_GET_SIZE(kw) : 0); Source args[32], s;
    if (t->nsteps == STEPS || all > 32) { t->bad = 1; return; }
    for (Py_ssize_t i = 0; i < all; i++) args[i] = source_of(t, a[i]);
    if (t->bad || t->nsrc + all > SOURCES) { t->bad = 1; return; }
    Step *st = &t->steps[t->nsteps];
    *st = (Step){(Function *)Py_NewRef((PyObject *)f), Py_XNewRef(kw), t->nsrc, (int32_t)n, (int32_t)(all - n)};
    for (Py_ssize_t i = 0; i < all; i++) t->src[t->nsrc++] = args[i];
    int k = t->nsteps++, base = t->in->nin;
    if (Tensor_Check(r)) learn(t, r, (Source){STEP, 0, base + k});
    else if (PyTuple_Check(r) || PyList_CheckExact(r)) {
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(r); i++) {
            PyObject *x = PySequence_Fast_GET_ITEM(r, i);
            if (Tensor_Check(x)) { if (known(t, x, &s)) t->bad = 1; else learn(t, x, (Source){ITEM, (int16_t)i, base + k}); }
            else if (x != Py_None) t->bad = 1;
        }
        if (PyList_Append(t->alive, r)) { PyErr_Clear(); t->bad = 1; }
    } else t->bad = 1;                      /* a number or a truth value: it may depend on values */
}
PyObject *fl_taped_call(Function *f, PyObject *const *a, Py_ssize_t n, PyObject *kw) {
    Tape *t = fl_tape;
    fl_tape = NULL;
    PyObject *r = fl_call(f, a, n, kw);
    fl_tape = t;
    if (!r) t->bad = 1;
    else if (!t->bad) note(t, f, a, n, kw, r);
    return r;
}
static void touch(Program *p, Source s, int step) {        /* value s.at is used by this step */
    if (s.kind == CONST) return;
    if (s.kind == LIST) { for (int i = 0; i < p->src[s.at].at; i++) touch(p, p->src[s.at + 1 + i], step); return; }
    if (p->drop[s.at] < step) p->drop[s.at] = step;
}
static int pin(PyObject *list, PyObject *o) {              /* names that stand in the key by address */
    if (PyUnicode_CheckExact(o)) return PyList_Append(list, o);
    if (PyTuple_Check(o)) { for (Py_ssize_t i = PyTuple_GET_SIZE(o); i--;) if (pin(list, PyTuple_GET_ITEM(o, i))) return -1; }
    else if (PyList_CheckExact(o)) { for (Py_ssize_t i = PyList_GET_SIZE(o); i--;) if (pin(list, PyList_GET_ITEM(o, i))) return -1; }
    return 0;
}
static void *copied(const void *from, size_t bytes) { void *p = PyMem_Malloc(bytes ? bytes : 1); if (p) memcpy(p, from, bytes); return p; }
static void finish(Tape *t, PyObject *owner, PyObject *result, PyObject *named) {
    PyObject *seq = result && PyTuple_Check(result) ? result : NULL; Source out[FL_MAX_INPUTS];
    Py_ssize_t nout = seq ? PyTuple_GET_SIZE(seq) : 0;
    if (!seq || nout > FL_MAX_INPUTS) t->bad = 1;
    for (Py_ssize_t i = 0; !t->bad && i < nout; i++) {
        PyObject *o = PyTuple_GET_ITEM(seq, i);
        if (o == Py_None) out[i] = (Source){CONST, 0, -1};
        else if (!Tensor_Check(o) || !known(t, o, &out[i])) t->bad = 1;
    }
    Program *p = PyMem_Calloc(1, sizeof *p);
    if (!p) return;
    p->owner = Py_NewRef(owner); p->hash = hash_of(owner, &t->in->key); p->nkey = t->in->key.n; p->refused = t->bad; p->uses_outs = t->uses_outs;
    p->key = copied(t->in->key.w, p->nkey * sizeof(int64_t));
    p->nin = t->in->nin;
    p->pinned = PyList_New(0);
    int bad = !p->key || !p->pinned;
    if (!bad) bad = pin(p->pinned, named) < 0;
    if (!bad && !t->bad) {
        p->nsteps = t->nsteps; p->nsrc = t->nsrc; p->nout = (int)nout;
        p->steps = copied(t->steps, t->nsteps * sizeof(Step)); p->src = copied(t->src, t->nsrc * sizeof(Source)); p->out = copied(out, nout * sizeof(Source));
        p->drop = PyMem_Calloc(p->nin + p->nsteps + 1, sizeof(int32_t));
        bad = !p->steps || !p->src || !p->out || !p->drop;
        if (bad) p->nsteps = 0;
        else {
            for (int i = 0; i < p->nsteps; i++) { Py_INCREF(p->steps[i].fn); Py_XINCREF(p->steps[i].kw); }
            for (int i = 0; i < p->nsteps; i++) p->drop[p->nin + i] = i;
            for (int i = 0; i < p->nsteps; i++) for (int j = 0; j < p->steps[i].n + p->steps[i].nkw; j++) touch(p, p->src[p->steps[i].first + j], i);
            for (int i = 0; i < p->nout; i++) if (p->out[i].kind != CONST) touch(p, p->out[i], INT32_MAX);
            p->consts = Py_NewRef(t->consts);
        }
    }
    PyErr_Clear();
    if (bad) { program_free(p); return; }
    if (programs >= MOST) forget();
    p->next = table[p->hash % SLOTS]; table[p->hash % SLOTS] = p;
    programs++;
}
PyObject *fl_record(PyObject *owner, const Inputs *in, PyObject *function, PyObject *const *args, Py_ssize_t n, PyObject *named) {
    Tape *t = PyMem_Calloc(1, sizeof *t), *outer = fl_tape;
    PyObject *r;
    if (!t || !(t->consts = PyList_New(0)) || !(t->alive = PyList_New(0))) { if (t) { Py_XDECREF(t->consts); PyMem_Free(t); } return PyErr_NoMemory(); }
    t->in = in;
    for (int i = 0; i < in->nin; i++) if (Tensor_Check(in->in[i])) learn(t, in->in[i], (Source){IN, 0, i});
    fl_tape = t;
    r = PyObject_Vectorcall(function, args, n, NULL);
    fl_tape = outer;
    if (r) finish(t, owner, r, named);
    for (int i = 0; i < t->nsteps; i++) { Py_DECREF(t->steps[i].fn); Py_XDECREF(t->steps[i].kw); }
    Py_DECREF(t->consts); Py_DECREF(t->alive);
    PyMem_Free(t);
    return r;
}

/* ---- repeating ---- */
static PyObject *value(Program *p, PyObject **vals, Source s) {       /* new reference */
    switch (s.kind) {
    case IN: case STEP: return Py_NewRef(vals[s.at]);
    case ITEM: return Py_NewRef(PySequence_Fast_GET_ITEM(vals[s.at], s.item));
    case CONST: return Py_NewRef(PyList_GET_ITEM(p->consts, s.at));
    default: {
        int n = p->src[s.at].at; PyObject *l = s.item ? PyList_New(n) : PyTuple_New(n);
        for (int i = 0; l && i < n; i++) {
            PyObject *x = value(p, vals, p->src[s.at + 1 + i]);
            if (!x) { Py_CLEAR(l); break; }
            if (s.item) PyList_SET_ITEM(l, i, x); else PyTuple_SET_ITEM(l, i, x);
        }
        return l;
    } }
}
int fl_repeat(Program *p, PyObject **in, int nout, PyObject **results) {
    PyObject *vals[FL_MAX_INPUTS + STEPS], *args[33]; int k = 0, ok = 0, nin = p->nin;
    if (nout != p->nout) { PyErr_SetString(PyExc_SystemError, "a recorded backward gives another number of gradients"); return -1; }
    memcpy(vals, in, nin * sizeof *in);
    p->busy++;
    for (; k < p->nsteps; k++) {
        Step *st = &p->steps[k]; int n = st->n + st->nkw, j = 0;
        for (; j < n; j++) if (!(args[1 + j] = value(p, vals, p->src[st->first + j]))) break;
        PyObject *r = j < n ? NULL : st->fn == fl_slot_fn[FL_SLOT_GETITEM] && n == 2 ? fl_subscript(args[1], args[2]) : fl_call(st->fn, args + 1, st->n, st->kw);
        while (j--) Py_DECREF(args[1 + j]);
        vals[nin + k] = r;
        if (!r) break;
        for (int v = nin; v <= nin + k; v++) if (p->drop[v] == k) Py_CLEAR(vals[v]);
    }
    if (k == p->nsteps) {
        ok = 1;
        for (int i = 0; i < nout; i++) results[i] = p->out[i].kind == CONST ? NULL : value(p, vals, p->out[i]);
    }
    for (int v = nin; v < nin + k; v++) Py_XDECREF(vals[v]);
    p->busy--;
    return ok ? 0 : -1;
}

/* ---- for Python ---- */
static int forget(void) {
    int n = programs; Program *all = NULL;
    for (int i = 0; i < SLOTS; i++) while (table[i]) { Program *p = table[i]; table[i] = p->next; p->next = all; all = p; }
    programs = 0;
    while (all) { Program *p = all; all = p->next; if (!p->busy) program_free(p); }      /* one that runs is left to itself */
    return n;
}
static PyObject *f_forget(PyObject *m, PyObject *u) { return PyLong_FromLong(forget()); }     /* forget_programs() -> how many there were */
static PyObject *f_repeating(PyObject *m, PyObject *v) {   /* set_repeating(on) -> what it was */
    int on = PyObject_IsTrue(v), old = enabled;
    if (on < 0) return NULL;
    enabled = on;
    return PyBool_FromLong(old);
}
static PyObject *f_programs(PyObject *m, PyObject *u) {    /* programs() -> [(owner, steps, or None where refused)] */
    PyObject *l = PyList_New(0);
    for (int i = 0; l && i < SLOTS; i++) for (Program *p = table[i]; p; p = p->next) {
        PyObject *names = p->refused ? Py_NewRef(Py_None) : PyList_New(p->nsteps);
        for (int k = 0; names && k < p->nsteps; k++) PyList_SET_ITEM(names, k, Py_NewRef(p->steps[k].fn->name));
        PyObject *x = names ? Py_BuildValue("(ON)", p->owner, names) : NULL;
        if (!x || PyList_Append(l, x)) { Py_XDECREF(x); Py_CLEAR(l); return NULL; }
        Py_DECREF(x);
    }
    return l;
}
static PyMethodDef functions[] = {{"forget_programs", f_forget, METH_NOARGS}, {"set_repeating", f_repeating, METH_O}, {"programs", f_programs, METH_NOARGS}, {0}};
int fl_tape_init(PyObject *m) { return PyModule_AddFunctions(m, functions); }
