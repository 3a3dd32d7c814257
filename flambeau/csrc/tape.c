/* Recorded calls. While a tape runs, every call of a public operator and of this module's functions
   is noted: which function, and whether an argument is an input, an earlier result or a constant. A
   program is valid for one key, which holds all that Python code can see of its tensors besides their
   values: dtype, sizes, strides, which of them are the same or share bytes. Code that reads values, or
   gets a tensor from anywhere but an input or a noted call, leaves no program and stays with Python.
   What else Python reads (the default dtype and the like) forgets all programs when it is set. */
#include "tape.h"

enum { IN, STEP, ITEM, CONST, LIST };
typedef struct { int16_t kind, item; int32_t at; } Source;
typedef struct {
    PyObject *fn, *kw;
    int32_t first, n, nkw;
    int suspended, grad;           /* of an operator's call: the state it was made in */
    enum { OPERATOR, NATIVE, NOTHING } how;      /* NOTHING: a native call that must give None, else Python's case */
} Step;
enum { GIVES_TUPLE, GIVES_ONE, GIVES_LIST };
struct Program {
    PyObject *owner;
    uint64_t hash;
    int64_t *key; int nkey;
    int refused, uses_outs, nin, nsteps, nsrc, nout, busy, gives;
    int64_t *offsets;     /* of the inputs, where Python asked for one: the program is for these alone */
    PyObject *op, *node_type, *template, *result_type;      /* how the call records; a call that needs none: op NULL */
    int saves; unsigned carries;
    Step *steps;
    Source *src;          /* all arguments, step by step, then parts of lists */
    Source *out;
    int32_t *drop;        /* by value: the step after which it goes; INT32_MAX: kept to the end */
    PyObject *consts, *pinned;
    Program *next;
};
enum { SLOTS = 4096, MOST = 8192, STEPS = 128, SOURCES = 1024, SEEN = 16384 };
static Program *table[SLOTS];
static uint32_t seen[SEEN];
static int programs, enabled = 1;
static int forget(void);

typedef struct Tape {
    const Inputs *in;
    int bad, uses_outs, nsteps, nsrc, nknown, addresses, used, offsets;
    Step steps[STEPS];
    Source src[SOURCES];
    struct { PyObject *o; Source s; } known[SOURCES];
    PyObject *consts, *alive;
} Tape;
_Thread_local Tape *fl_tape;

void fl_tape_refuse(void) { fl_tape->bad = 1; }
void fl_tape_offsets(void) { if (fl_tape) fl_tape->offsets = 1; }
void fl_tape_outs(void) { if (fl_tape) fl_tape->uses_outs = 1; }

/* ---- keys ---- */
void fl_word(Key *k, int64_t w) { if (k->n < FL_KEY_WORDS) k->w[k->n++] = w; else k->n = FL_KEY_WORDS + 1; }
static int full(const Inputs *in) { return in->key.n > FL_KEY_WORDS || in->nin >= FL_MAX_INPUTS; }
int fl_input(Inputs *in, PyObject *held, Tensor *t) {
    if (t->sym || t->bits & ~FL_L_GEOMETRY || t->flags & (FL_T_CONJ | FL_T_NEG | FL_T_INFERENCE) || t->storage->device->type || full(in)) return 0;
    if (!(t->bits & FL_L_GEOMETRY) && ((!t->storage->data && t->numel) || t->storage->flags & FL_S_READONLY)) return 0;
    int same = in->nin, shares = in->nin;
    for (int i = 0; i < in->nin; i++) {
        if (in->in[i] == held) { same = i; break; }
        if (in->of[i]->storage == t->storage && shares == in->nin) shares = i;
    }
    fl_word(&in->key, 1 | same << 4 | t->dtype->code << 12 | (t->flags & FL_T_WRAPPED ? 1 << 20 : 0) | (t->bits ? 1 << 21 : 0)
        | (fl_recording() && fl_requires_grad(t) ? 1 << 22 : 0) | (Py_TYPE(t) != TensorType ? 1 << 23 : 0) | (int64_t)t->ndim << 24
        | (shares < in->nin && same == in->nin ? (int64_t)(shares + 1) << 32 : 0));
    if (shares < in->nin && same == in->nin) fl_word(&in->key, t->offset - in->of[shares]->offset);
    in->of[in->nin] = t;
    for (int i = 0; i < t->ndim; i++) { fl_word(&in->key, t->sizes[i]); fl_word(&in->key, t->strides[i]); }
    in->in[in->nin++] = held;
    return !full(in);
}
/* Layouts and memory formats: one object each, told by its address. */
static int singleton(PyObject *o) {
    static PyTypeObject *types[8]; static int n;
    for (int i = 0; i < n; i++) if (types[i] == Py_TYPE(o)) return 1;
    const char *name = Py_TYPE(o)->tp_name;
    if (n == 8 || (strcmp(name, "memory_format") && strcmp(name, "layout"))) return 0;
    types[n++] = (PyTypeObject *)Py_NewRef((PyObject *)Py_TYPE(o));
    return 1;
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
    else if (PyComplex_CheckExact(o)) { Py_complex c = PyComplex_AsCComplex(o); int64_t v[2]; memcpy(v, &c, 16); fl_word(k, 12); fl_word(k, v[0]); fl_word(k, v[1]); }
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
    } else if (singleton(o)) { fl_word(k, 13); fl_word(k, (int64_t)(intptr_t)o); }
    else return 0;
    return !full(in);
}
static uint64_t hash_of(PyObject *owner, const Key *k) {
    uint64_t h = 1469598103934665603ull ^ (uint64_t)(intptr_t)owner >> 4;
    for (int i = 0; i < k->n; i++) { h ^= (uint64_t)k->w[i]; h *= 1099511628211ull; h ^= h >> 29; }
    return h;
}
static Program *find(PyObject *owner, const Inputs *in, uint64_t h) {
    const Key *key = &in->key;
    for (Program *p = table[h % SLOTS]; p; p = p->next) {
        if (p->hash != h || p->owner != owner || p->nkey != key->n || memcmp(p->key, key->w, key->n * sizeof *key->w)) continue;
        int here = 1;
        for (int i = 0; p->offsets && here && i < p->nin; i++) here = p->offsets[i] == in->of[i]->offset;
        if (here) return p;
    }
    return NULL;
}
Program *fl_program(PyObject *owner, const Inputs *in, int *refused) {
    *refused = !enabled;
    if (!enabled) return NULL;
    uint64_t h = hash_of(owner, &in->key);
    Program *p = find(owner, in, h);
    if (p) { *refused = p->refused; return p->refused ? NULL : p; }
    uint32_t *met = &seen[h % SEEN], mark = (uint32_t)(h >> 32) | 1;       /* what comes once is not worth a program */
    *refused = *met != mark;
    *met = mark;
    return NULL;
}
int fl_program_uses_outs(const Program *p) { return p->uses_outs; }
static void program_free(Program *p) {
    for (int i = 0; i < p->nsteps; i++) { Py_DECREF(p->steps[i].fn); Py_XDECREF(p->steps[i].kw); }
    Py_XDECREF(p->op); Py_XDECREF(p->node_type); Py_XDECREF(p->template); Py_XDECREF(p->result_type);
    Py_XDECREF(p->owner); Py_XDECREF(p->consts); Py_XDECREF(p->pinned);
    PyMem_Free(p->offsets); PyMem_Free(p->key); PyMem_Free(p->steps); PyMem_Free(p->src); PyMem_Free(p->out); PyMem_Free(p->drop);
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
        || Py_TYPE(o) == &DTypeType || Py_TYPE(o) == &DeviceType || PyBytes_CheckExact(o) || PyType_Check(o)) return 1;
    if (PyTuple_Check(o)) { for (Py_ssize_t i = PyTuple_GET_SIZE(o); i--;) if (!plain_constant(PyTuple_GET_ITEM(o, i))) return 0; return 1; }
    if (PyList_CheckExact(o)) { for (Py_ssize_t i = PyList_GET_SIZE(o); i--;) if (!plain_constant(PyList_GET_ITEM(o, i))) return 0; return 1; }
    return singleton(o);
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
/* Whether an address that was asked for as a number is used as it is (anything derived would go stale). */
static int address_of(Tape *t, PyObject *o, Source *s) {
    if (!t->addresses || !PyLong_CheckExact(o)) return 0;
    if (known(t, o, s)) { t->used++; return 1; }
    int over; long long v = PyLong_AsLongLongAndOverflow(o, &over);
    if (over || v > 1 << 24) t->bad = 1;
    return 0;
}
static void note(Tape *t, PyObject *f, int how, PyObject *const *a, Py_ssize_t n, PyObject *kw, PyObject *r) {
    Py_ssize_t all = n + (kw ? PyTuple_GET_SIZE(kw) : 0); Source args[32], s;
    if (t->nsteps == STEPS || all > 32) { t->bad = 1; return; }
    for (Py_ssize_t i = 0; i < all && !t->bad; i++) if (!address_of(t, a[i], &args[i])) args[i] = source_of(t, a[i]);
    if (t->bad || t->nsrc + all > SOURCES) { t->bad = 1; return; }
    Step *st = &t->steps[t->nsteps];
    *st = (Step){Py_NewRef(f), Py_XNewRef(kw), t->nsrc, (int32_t)n, (int32_t)(all - n), fl_state.suspended, fl_state.grad, how};
    for (Py_ssize_t i = 0; i < all; i++) t->src[t->nsrc++] = args[i];
    int k = t->nsteps++, base = t->in->nin;
    if (Tensor_Check(r)) learn(t, r, (Source){STEP, 0, base + k});
    else if (how == NATIVE) {}              /* None, or what geometry alone decides */
    else if (how == NOTHING) { if (r != Py_None) t->bad = 1; }
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
    else if (!t->bad) note(t, (PyObject *)f, OPERATOR, a, n, kw, r);
    return r;
}
/* A method of a tensor or of a random stream, by the callable that stands for it. */
PyObject *fl_taped_method(PyObject *f, PyObject *const *a, Py_ssize_t n) {
    Tape *t = fl_tape;
    fl_tape = NULL;
    PyObject *r = f ? PyObject_Vectorcall(f, a, n, NULL) : NULL;
    fl_tape = t;
    if (!r) t->bad = 1;
    else if (!t->bad) note(t, f, NATIVE, a, n, NULL, r);
    return r;
}
PyObject *fl_taped_fill(PyObject *stream, const char *name, PyObject *const *a, Py_ssize_t n) {
    PyObject *f = PyObject_GetAttrString(stream, name), *r = f ? fl_taped_method(f, a, n) : NULL;
    Py_XDECREF(f);
    return r;
}
PyObject *fl_taped_address(PyObject *f, PyObject *tensor) {
    Tape *t = fl_tape;
    PyObject *r = fl_taped_method(f, &tensor, 1);
    if (r && !t->bad) { t->addresses++; learn(t, r, (Source){STEP, 0, t->in->nin + t->nsteps - 1}); }
    return r;
}

/* ---- this module's functions, as a tape sees them ---- */
typedef struct { PyObject_HEAD vectorcallfunc vc; PyObject *inner; int how; } Native;
static const struct { const char *name; int how; } noted[] = {
    {"empty", NATIVE}, {"alias", NATIVE}, {"run_map", NATIVE}, {"run_rows", NATIVE}, {"gemm", NATIVE},
    {"copy", NATIVE}, {"zero", NATIVE}, {"store", NATIVE}, {"count_up", NATIVE}, {"spread", NATIVE}, {"indexed", NATIVE}, {"order_rows", NATIVE}, {"beyond", NOTHING},
    {"columns", NATIVE}, {"largest", NATIVE}, {"put_back", NATIVE}, {"averages", NATIVE}, {"chosen", NOTHING}, {"put_chosen", NOTHING}, {NULL, 0}};
/* Functions that neither make nor touch a tensor that a tape follows. */
static const char *const unseen[] = {"get_grad", "set_grad", "get_inference", "get_scoped", "set_scoped", "get_multithread", "set_multithread", "get_active", "set_active",
    "geometry_of", "view_strides", "get_suspended", "set_suspended", "call_bits", "layer_bits", "get_num_threads", "sequence", "backward", "forget_programs", "set_repeating", "programs",
    "set_types", "set_slot", "set_op_types", "set_operator", "prepare", "pending", "run_taped", "describe", NULL};
static PyObject *native_call(PyObject *self, PyObject *const *a, size_t nf, PyObject *kw) {
    Native *f = (Native *)self; Tape *t = fl_tape;
    if (!t) return PyObject_Vectorcall(f->inner, a, nf, kw);
    if (f->how < 0) { t->bad = 1; return PyObject_Vectorcall(f->inner, a, nf, kw); }
    fl_tape = NULL;
    PyObject *r = PyObject_Vectorcall(f->inner, a, nf, kw);
    fl_tape = t;
    if (!r) t->bad = 1;
    else if (!t->bad) note(t, f->inner, f->how, a, PyVectorcall_NARGS(nf), kw, r);
    return r;
}
static void native_dealloc(Native *f) { Py_XDECREF(f->inner); PyObject_Free(f); }
static PyObject *native_get(Native *f, PyObject *name) {       /* __name__, __doc__ and the like are the function's */
    PyObject *r = PyObject_GenericGetAttr((PyObject *)f, name);
    if (r || !PyErr_ExceptionMatches(PyExc_AttributeError)) return r;
    PyErr_Clear();
    return PyObject_GetAttr(f->inner, name);
}
static PyTypeObject NativeType = {PyVarObject_HEAD_INIT(NULL, 0).tp_name = "flambeau._native.NativeFunction", .tp_basicsize = sizeof(Native),
    .tp_dealloc = (destructor)native_dealloc, .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, .tp_getattro = (getattrofunc)native_get,
    .tp_vectorcall_offset = offsetof(Native, vc), .tp_call = PyVectorcall_Call};
int fl_tape_wrap(PyObject *module) {
    PyObject *dict = PyModule_GetDict(module), *items = PyDict_Items(dict);
    int bad = !items || PyType_Ready(&NativeType) < 0;
    for (Py_ssize_t i = 0; !bad && i < PyList_GET_SIZE(items); i++) {
        PyObject *name = PyTuple_GET_ITEM(PyList_GET_ITEM(items, i), 0), *f = PyTuple_GET_ITEM(PyList_GET_ITEM(items, i), 1); int how = -1, skip = 0;
        if (!PyCFunction_CheckExact(f)) continue;
        for (int k = 0; unseen[k]; k++) skip |= !PyUnicode_CompareWithASCIIString(name, unseen[k]);
        if (skip) continue;
        for (int k = 0; noted[k].name; k++) if (!PyUnicode_CompareWithASCIIString(name, noted[k].name)) how = noted[k].how;
        Native *w = PyObject_New(Native, &NativeType);
        if (!w) { bad = 1; break; }
        w->vc = native_call; w->inner = Py_NewRef(f); w->how = how;
        bad = PyDict_SetItem(dict, name, (PyObject *)w) < 0;
        Py_DECREF(w);
    }
    Py_XDECREF(items);
    return bad ? -1 : 0;
}

/* ---- programs ---- */
static void touch(Program *p, Source s, int step) {        /* value s.at is used by this step */
    if (s.kind == CONST) return;
    if (s.kind == LIST) { for (int i = 0; i < p->src[s.at].at; i++) touch(p, p->src[s.at + 1 + i], step); return; }
    if (p->drop[s.at] < step) p->drop[s.at] = step;
}
static int pin(PyObject *list, PyObject *o) {              /* names that stand in the key by address */
    if (PyUnicode_CheckExact(o) || singleton(o)) return PyList_Append(list, o);
    if (PyTuple_Check(o)) { for (Py_ssize_t i = PyTuple_GET_SIZE(o); i--;) if (pin(list, PyTuple_GET_ITEM(o, i))) return -1; }
    else if (PyList_CheckExact(o)) { for (Py_ssize_t i = PyList_GET_SIZE(o); i--;) if (pin(list, PyList_GET_ITEM(o, i))) return -1; }
    return 0;
}
static void *copied(const void *from, size_t bytes) { void *p = PyMem_Malloc(bytes ? bytes : 1); if (p) memcpy(p, from, bytes); return p; }
static Program *finish(Tape *t, PyObject *owner, PyObject *result, PyObject *named) {
    int one = Tensor_Check(result), list = PyList_CheckExact(result); Source out[FL_MAX_INPUTS];
    Py_ssize_t nout = one ? 1 : list || PyTuple_CheckExact(result) ? PySequence_Fast_GET_SIZE(result) : -1;
    if (nout < 0 || nout > FL_MAX_INPUTS || t->used < t->addresses) t->bad = 1;
    for (Py_ssize_t i = 0; !t->bad && i < nout; i++) {
        PyObject *o = one ? result : PySequence_Fast_GET_ITEM(result, i);
        if (o == Py_None) out[i] = (Source){CONST, 0, -1};
        else if (!Tensor_Check(o) || !known(t, o, &out[i])) t->bad = 1;
    }
    Program *p = PyMem_Calloc(1, sizeof *p);
    if (!p) { PyErr_Clear(); return NULL; }
    p->gives = one ? GIVES_ONE : list ? GIVES_LIST : GIVES_TUPLE;
    p->owner = Py_NewRef(owner); p->hash = hash_of(owner, &t->in->key); p->nkey = t->in->key.n; p->refused = t->bad; p->uses_outs = t->uses_outs;
    p->key = copied(t->in->key.w, p->nkey * sizeof(int64_t));
    p->nin = t->in->nin;
    if (t->offsets) {
        int64_t at[FL_MAX_INPUTS];
        for (int i = 0; i < p->nin; i++) at[i] = t->in->of[i]->offset;
        if (!(p->offsets = copied(at, p->nin * sizeof *at))) { program_free(p); return NULL; }
    }
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
    if (bad) { program_free(p); return NULL; }
    return p;
}
static void keep(Program *p) {
    if (programs >= MOST) forget();
    p->next = table[p->hash % SLOTS]; table[p->hash % SLOTS] = p;
    programs++;
}
PyObject *fl_record(PyObject *owner, const Inputs *in, PyObject *function, PyObject *const *args, Py_ssize_t n, PyObject *named, Program **made) {
    Tape *t = PyMem_Calloc(1, sizeof *t), *outer = fl_tape;
    PyObject *r;
    if (!t || !(t->consts = PyList_New(0)) || !(t->alive = PyList_New(0))) { if (t) { Py_XDECREF(t->consts); PyMem_Free(t); } return PyErr_NoMemory(); }
    t->in = in;
    for (int i = 0; i < in->nin; i++) if (Tensor_Check(in->in[i])) learn(t, in->in[i], (Source){IN, 0, i});
    fl_tape = t;
    r = PyObject_Vectorcall(function, args, n, NULL);
    fl_tape = outer;
    if (r) { Program *p = finish(t, owner, r, named); if (made) *made = p; else if (p) keep(p); }
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
static PyObject *operator(Step *st, PyObject *const *args, int n) {
    int suspended = fl_state.suspended, grad = fl_state.grad;
    fl_state.suspended = st->suspended; fl_state.grad = st->grad;
    PyObject *r = st->fn == (PyObject *)fl_slot_fn[FL_SLOT_GETITEM] && n == 2 ? fl_subscript(args[0], args[1]) : fl_call((Function *)st->fn, args, st->n, st->kw);
    fl_state.suspended = suspended; fl_state.grad = grad;
    return r;
}
/* 0 done; -1: an error, or (without one) Python's case after all. */
int fl_repeat(Program *p, PyObject **in, int nout, PyObject **results) {
    PyObject *vals[FL_MAX_INPUTS + STEPS], *args[33]; int k = 0, ok = 0, nin = p->nin;
    if (nout != p->nout) { PyErr_SetString(PyExc_SystemError, "a recorded backward gives another number of gradients"); return -1; }
    memcpy(vals, in, nin * sizeof *in);
    p->busy++;
    for (; k < p->nsteps; k++) {
        Step *st = &p->steps[k]; int n = st->n + st->nkw, j = 0;
        for (; j < n; j++) if (!(args[1 + j] = value(p, vals, p->src[st->first + j]))) break;
        PyObject *r = j < n ? NULL : st->how == OPERATOR ? operator(st, args + 1, n) : PyObject_Vectorcall(st->fn, args + 1, st->n, st->kw);
        while (j--) Py_DECREF(args[1 + j]);
        if (r && st->how == NOTHING && r != Py_None) { Py_DECREF(r); break; }
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

/* ---- public calls ---- */
/* The call of a public function that Python is about to make for the first time (or the second). */
typedef struct { Function *f; PyObject *bound, *flat; Inputs in; Program *made; } Pending;
static _Thread_local Pending *pending;

static int call_key(Inputs *in, Function *f, PyObject *const *a, Py_ssize_t n, PyObject *kw) {
    Py_ssize_t nk = kw ? PyTuple_GET_SIZE(kw) : 0;
    in->key.n = in->nin = 0;
    fl_word(&in->key, n | nk << 8 | fl_recording() << 16);
    for (Py_ssize_t i = 0; i < nk; i++) fl_word(&in->key, (int64_t)(intptr_t)PyTuple_GET_ITEM(kw, i));      /* interned names */
    for (Py_ssize_t i = 0; i < n + nk; i++) if (!fl_constant(in, a[i])) return 0;
    return 1;
}
/* Node for a repeated call, as interp/record.py makes it. */
static int attach(Program *p, PyObject *const *a, PyObject **res) {
    Py_ssize_t na = PyTuple_GET_SIZE(p->template); int nt = 0, e = 0;
    for (Py_ssize_t i = 0; i < na; i++) nt += PyTuple_GET_ITEM(PyTuple_GET_ITEM(p->template, i), 0) == Py_True;
    Node *nd = fl_node((PyTypeObject *)p->node_type, p->op, nt);
    PyObject *args = PyTuple_New(na), *outs = PyTuple_New(p->nout);
    if (!nd || !args || !outs) goto fail;
    for (Py_ssize_t i = 0; i < na; i++) {
        PyObject *entry = PyTuple_GET_ITEM(p->template, i), *v = PyTuple_GET_ITEM(entry, 1), *x;      /* (True, place) or (False, constant) */
        if (PyTuple_GET_ITEM(entry, 0) == Py_True) {
            Tensor *t = (Tensor *)a[PyLong_AsLong(v)];
            if (fl_edge(nd, e, t) < 0) goto fail;
            x = p->saves >> e & 1 ? fl_saved(t, 0) : (PyObject *)fl_geometry(t);
            e++;
        } else x = Py_NewRef(v);
        if (!x) goto fail;
        PyTuple_SET_ITEM(args, i, x);
    }
    nd->args = args; args = NULL;
    nd->needs = p->nout; nd->keeps_number = p->saves >> 15 & 1;
    for (int i = 0; i < p->nout; i++) if (p->carries >> i & 1) fl_attach((Tensor *)res[i], nd, i);
    for (int i = 0; i < p->nout; i++) {
        PyObject *x = !res[i] ? Py_NewRef(Py_None) : p->saves >> (16 + i) & 1 ? fl_saved((Tensor *)res[i], 1) : (PyObject *)fl_geometry((Tensor *)res[i]);
        if (!x) goto fail;
        if (Py_TYPE(x) == &SavedType) ((Saved *)x)->output_nr = i;
        PyTuple_SET_ITEM(outs, i, x);
    }
    nd->outs = outs;
    Py_DECREF(nd);
    return 0;
fail:
    Py_XDECREF(nd); Py_XDECREF(args); Py_XDECREF(outs);
    return -1;
}
PyObject *fl_prepared(Function *f, PyObject *const *a, Py_ssize_t n, PyObject *kw) {
    static _Thread_local Inputs in;
    PyObject *vals[FL_MAX_INPUTS], *res[FL_MAX_INPUTS];
    if (!enabled || fl_state.scoped || !call_key(&in, f, a, n, kw)) return NULL;
    Program *p = find((PyObject *)f, &in, hash_of((PyObject *)f, &in.key));
    if (!p || p->refused) return NULL;
    memcpy(vals, in.in, p->nin * sizeof *vals);      /* the caller's arguments hold them */
    if (fl_repeat(p, vals, p->nout, res)) return NULL;
    if (p->op && attach(p, a, res)) { for (int i = 0; i < p->nout; i++) Py_XDECREF(res[i]); return NULL; }
    if (p->gives == GIVES_ONE) return res[0];
    PyObject *r = p->gives == GIVES_LIST ? PyList_New(p->nout) : PyTuple_New(p->nout);
    for (int i = 0; i < p->nout; i++) {
        PyObject *x = res[i] ? res[i] : Py_NewRef(Py_None);
        if (!r) Py_DECREF(x);
        else if (p->gives == GIVES_LIST) PyList_SET_ITEM(r, i, x);
        else PyTuple_SET_ITEM(r, i, x);
    }
    if (r && p->result_type) Py_SETREF(r, PyObject_CallOneArg(p->result_type, r));
    return r;
}
static void pending_free(Pending *q) { if (q) { if (q->made) program_free(q->made); Py_XDECREF(q->f); Py_XDECREF(q->bound); Py_XDECREF(q->flat); PyMem_Free(q); } }
static int contains(PyObject *o, PyObject *t) {
    if (o == t) return 1;
    if (!PyTuple_Check(o) && !PyList_Check(o)) return 0;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); i++) if (contains(PySequence_Fast_GET_ITEM(o, i), t)) return 1;
    return 0;
}
/* Whether binding left all tensors what they are: one that became a number was read before the tape runs. */
static int all_bound(PyObject *o, PyObject *bound) {
    if (Tensor_Check(o)) return contains(bound, o);
    if (!PyTuple_Check(o) && !PyList_Check(o)) return 1;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); i++) if (!all_bound(PySequence_Fast_GET_ITEM(o, i), bound)) return 0;
    return 1;
}
/* prepare(function, args, kwargs, bound): whether run_taped(bound, ...) shall make a program of this call. */
static PyObject *f_prepare(PyObject *m, PyObject *const *a, Py_ssize_t n) {
    static _Thread_local Inputs in;
    if (n != 4 || !PyTuple_Check(a[1]) || !PyDict_Check(a[2])) { PyErr_SetString(PyExc_TypeError, "prepare(function, args, kwargs, bound)"); return NULL; }
    if ((Py_TYPE(a[0]) != &FunctionType && Py_TYPE(a[0]) != &MethodType) || fl_state.active & ~fl_state.suspended || fl_state.inference || fl_state.scoped || !enabled) Py_RETURN_FALSE;
    Py_ssize_t np = PyTuple_GET_SIZE(a[1]), nk = PyDict_GET_SIZE(a[2]), at = 0; int k = 0, refused; PyObject *key, *value;
    if (np + nk > 32) Py_RETURN_FALSE;
    PyObject *flat = PyTuple_New(np + nk), *kw = nk ? PyTuple_New(nk) : NULL;
    if (!flat || (nk && !kw)) { Py_XDECREF(flat); Py_XDECREF(kw); return NULL; }
    for (Py_ssize_t i = 0; i < np; i++) PyTuple_SET_ITEM(flat, i, Py_NewRef(PyTuple_GET_ITEM(a[1], i)));
    while (PyDict_Next(a[2], &at, &key, &value)) { PyTuple_SET_ITEM(kw, k, Py_NewRef(key)); PyTuple_SET_ITEM(flat, np + k++, Py_NewRef(value)); }
    int ok = call_key(&in, (Function *)a[0], &PyTuple_GET_ITEM(flat, 0), np, kw);
    Py_XDECREF(kw);
    if (ok) ok = all_bound(flat, a[3]);
    if (!ok || fl_program(a[0], &in, &refused) || refused) { Py_DECREF(flat); Py_RETURN_FALSE; }
    Pending *q = PyMem_Calloc(1, sizeof *q);
    if (!q) { Py_DECREF(flat); return PyErr_NoMemory(); }
    *q = (Pending){(Function *)Py_NewRef(a[0]), Py_NewRef(a[3]), flat, in, NULL};
    pending_free(pending);
    pending = q;
    Py_RETURN_TRUE;
}
static PyObject *f_pending(PyObject *m, PyObject *bound) { return PyBool_FromLong(pending && pending->bound == bound && !pending->made); }
/* run_taped(bound, function, *args): function(*args), which does the call that was prepared. */
static PyObject *f_run_taped(PyObject *m, PyObject *const *a, Py_ssize_t n) {
    Pending *q = pending;
    if (n < 2 || !q || q->bound != a[0]) { PyErr_SetString(PyExc_SystemError, "run_taped: no such call is prepared"); return NULL; }
    pending = NULL;
    PyObject *r = fl_record((PyObject *)q->f, &q->in, a[1], a + 2, n - 2, q->flat, &q->made);
    pending_free(pending);
    pending = q;                       /* until describe() has said how it records */
    if (q->made && q->made->refused) { keep(q->made); q->made = NULL; }
    if (!r || !q->made) { pending_free(q); pending = NULL; }
    return r;
}
/* describe(bound, op, node type, template, saves, carries, result type): the prepared call is complete;
   op None: it records nothing by itself; bound None: it cannot be repeated. */
static PyObject *f_describe(PyObject *m, PyObject *const *a, Py_ssize_t n) {
    Pending *q = pending;
    if (n != 7) { PyErr_SetString(PyExc_TypeError, "describe(bound, op, node_type, template, saves, carries, result_type)"); return NULL; }
    if (!q || !q->made || (q->bound != a[0] && a[0] != Py_None)) Py_RETURN_FALSE;
    pending = NULL;
    Program *p = q->made;
    q->made = NULL;
    pending_free(q);
    if (a[0] == Py_None) p->refused = 1;
    if (a[1] != Py_None) {
        p->op = Py_NewRef(a[1]); p->node_type = Py_NewRef(a[2]); p->template = Py_NewRef(a[3]);
        p->saves = (int)PyLong_AsLong(a[4]); p->carries = (unsigned)PyLong_AsLong(a[5]);
    }
    if (a[6] != Py_None) p->result_type = Py_NewRef(a[6]);
    keep(p);
    return PyBool_FromLong(!p->refused);
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
        for (int k = 0; names && !p->refused && k < p->nsteps; k++) PyList_SET_ITEM(names, k, PyObject_GetAttrString(p->steps[k].fn, "__name__"));
        PyObject *x = names ? Py_BuildValue("(ON)", p->owner, names) : NULL;
        if (!x || PyList_Append(l, x)) { Py_XDECREF(x); Py_CLEAR(l); return NULL; }
        Py_DECREF(x);
    }
    return l;
}
/* unrepeatable(): what runs now has an effect besides its result (a warning), or reads what no key holds. */
static PyObject *f_unrepeatable(PyObject *m, PyObject *u) { Py_RETURN_NONE; }
static PyMethodDef functions[] = {{"unrepeatable", f_unrepeatable, METH_NOARGS}, {"forget_programs", f_forget, METH_NOARGS}, {"set_repeating", f_repeating, METH_O}, {"programs", f_programs, METH_NOARGS},
    {"prepare", (PyCFunction)f_prepare, METH_FASTCALL}, {"pending", f_pending, METH_O}, {"run_taped", (PyCFunction)f_run_taped, METH_FASTCALL},
    {"describe", (PyCFunction)f_describe, METH_FASTCALL}, {0}};
int fl_tape_init(PyObject *m) { return PyModule_AddFunctions(m, functions); }
