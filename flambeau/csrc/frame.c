/* The frame-evaluation hook (PEP 523) for CPython 3.11 to 3.13.

   When a frame begins it holds its bound arguments and nothing else: cells and free variables are made by
   its first instructions. So replacement code with the same arguments and free variables can be put into
   that frame, and the interpreter runs, clears and pops it as its own. Where a bigger frame is needed and
   the stack's chunk has no room, the replacement is called as a function and the emptied frame returns its
   result. The hook is in the interpreter only while some thread has a callback. */
#include "guard.h"
#if PY_VERSION_HEX >= 0x030E0000
int fl_frame_init(PyObject *m) { return 0; }        /* other versions have the wrapper in capture/frames.py */
#else
#define Py_BUILD_CORE 1
#include "internal/pycore_frame.h"
#include "internal/pycore_code.h"
#undef Py_BUILD_CORE
#include "opcode.h"
#ifdef __linux__
#include <pthread.h>
#endif

typedef _PyInterpreterFrame Frame;
#if PY_VERSION_HEX >= 0x030D0000
#define CODE_OF(f) ((PyCodeObject *)(f)->f_executable)
#define SET_CODE(f, c) ((f)->f_executable = (PyObject *)(c), (f)->instr_ptr = _PyCode_CODE(c))
#define SKIP_ONE(f) ((f)->instr_ptr++)
#define STARTED(f) ((f)->instr_ptr != _PyCode_CODE(CODE_OF(f)))
#define CALLER(ts) ((ts)->current_frame)         /* of a frame that has not begun */
#else
#define CODE_OF(f) ((f)->f_code)
#define SET_CODE(f, c) ((f)->f_code = (c), (f)->prev_instr = _PyCode_CODE(c) - 1)
#define SKIP_ONE(f) ((f)->prev_instr++)
#define STARTED(f) ((f)->prev_instr != _PyCode_CODE(CODE_OF(f)) - 1)
#define CALLER(ts) ((ts)->cframe->current_frame)
#endif
#if PY_VERSION_HEX >= 0x030C0000
#define FUNCTION_OF(f) ((f)->f_funcobj)
#define SET_FUNCTION(f, x) ((f)->f_funcobj = (x))
#define GET_EXTRA PyUnstable_Code_GetExtra
#define SET_EXTRA PyUnstable_Code_SetExtra
#define REQUEST_EXTRA PyUnstable_Eval_RequestCodeExtraIndex
/* A call through a hook counts twice against the limit of C recursion (1,500 in 3.12.1). The limit that the user
   set is for Python's recursion and still holds; what C's stack has room for is looked at below. */
#define GIVE_BACK(ts, n) ((ts)->c_recursion_remaining += 2 * (n))
#define RECURSION_LEFT(ts) ((ts)->py_recursion_remaining)
#else
#define FUNCTION_OF(f) ((PyObject *)(f)->f_func)
#define SET_FUNCTION(f, x) ((f)->f_func = (PyFunctionObject *)(x))
#define GET_EXTRA _PyCode_GetExtra
#define SET_EXTRA _PyCode_SetExtra
#define REQUEST_EXTRA _PyEval_RequestCodeExtraIndex
#define GIVE_BACK(ts, n) ((void)0)
#define RECURSION_LEFT(ts) ((ts)->recursion_remaining)
#endif
enum { SPECIALS = (sizeof(Frame) - 1) / sizeof(PyObject *), MARGIN = 192 << 10, HEADROOM = 1000,
       MAKES_GENERATOR = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR };

/* ---- what is known of a code object ---- */
typedef struct {                  /* one version */
    PyObject *key, *checker, *info;
    PyCodeObject *code, *flat;    /* flat: all arguments positional, to call it apart; NULL: it is the function's own */
} Version;
typedef struct Known {            /* all versions under one key */
    PyObject *key;
    int skip;
    Py_ssize_t rest;              /* calls that fit no version and are not asked about; negative: none ever is */
    Py_ssize_t n, last;           /* last: the one that held last */
    Version **versions;
    struct Known *next;
} Known;
typedef struct { int skip, resumes; Known *known; } Cache;   /* resumes: see release_arguments */

/* ---- what is known of a thread; kept in its dict, so that its end takes the hook out ---- */
typedef struct { PyObject_HEAD PyObject *callback, *key; int paused; PyObject *only; } Local;
typedef struct { PyObject_HEAD PyObject *key; } Only;   /* stands for a callback that is not to be asked: see run_only */
static _Thread_local Local *local;
static _Thread_local char *stack_floor;
static Py_ssize_t extra_index = -1;
static int threads_on, force_apart;                 /* under the GIL */
static PyObject *drain, *str_key, *str_check;       /* drain: code that returns the value on its stack */
static _PyFrameEvalFunction evaluate = _PyEval_EvalFrameDefault;
static unsigned long count_asked, count_hits, count_apart, count_grown;

static void version_free(Version *v) {
    Py_XDECREF(v->checker); Py_XDECREF(v->info); Py_XDECREF(v->code); Py_XDECREF(v->flat); Py_XDECREF(v->key);
    PyMem_Free(v);
}
static void cache_free(void *p) {
    Cache *c = p;
    if (!c) return;
    for (Known *k = c->known, *next; k; k = next) {
        next = k->next;
        for (Py_ssize_t i = 0; i < k->n; i++) version_free(k->versions[i]);
        PyMem_Free(k->versions); Py_DECREF(k->key); PyMem_Free(k);
    }
    PyMem_Free(c);
}
static inline Cache *cache_of(PyCodeObject *co) {
    void *c = NULL;
    GET_EXTRA((PyObject *)co, extra_index, &c);
    return c;
}
static Cache *cache_made(PyObject *code) {
    if (!PyCode_Check(code)) { PyErr_Format(PyExc_TypeError, "a code object is expected, not %.100s", Py_TYPE(code)->tp_name); return NULL; }
    Cache *c = cache_of((PyCodeObject *)code);
    if (c) return c;
    c = PyMem_Calloc(1, sizeof *c);
    if (!c) { PyErr_NoMemory(); return NULL; }
    if (SET_EXTRA(code, extra_index, c) < 0) { PyMem_Free(c); return NULL; }
    return c;
}
static inline Known *known_under(Cache *c, PyObject *key) {
    for (Known *k = c->known; k; k = k->next) if (k->key == key) return k;
    return NULL;
}
static Known *known_made(Cache *c, PyObject *key) {
    Known *k = known_under(c, key);
    if (k) return k;
    if (!(k = PyMem_Calloc(1, sizeof *k))) { PyErr_NoMemory(); return NULL; }
    k->key = Py_NewRef(key); k->next = c->known; c->known = k;
    return k;
}

/* ---- code ---- */
static inline int arguments_of(PyCodeObject *co) {
    return co->co_argcount + co->co_kwonlyargcount + !!(co->co_flags & CO_VARARGS) + !!(co->co_flags & CO_VARKEYWORDS);
}
static int fits(PyCodeObject *old, PyCodeObject *now) {
    enum { LAYOUT = CO_VARARGS | CO_VARKEYWORDS | CO_OPTIMIZED };
    int same = old->co_argcount == now->co_argcount && old->co_kwonlyargcount == now->co_kwonlyargcount
               && old->co_nfreevars == now->co_nfreevars && !((old->co_flags ^ now->co_flags) & LAYOUT);
    for (int i = 0; same && i < old->co_nfreevars; i++) {
        PyObject *a = PyTuple_GET_ITEM(old->co_localsplusnames, old->co_nlocalsplus - old->co_nfreevars + i);
        PyObject *b = PyTuple_GET_ITEM(now->co_localsplusnames, now->co_nlocalsplus - now->co_nfreevars + i);
        same = PyUnicode_Compare(a, b) == 0;
    }
    if (!same) PyErr_Format(PyExc_ValueError, "code in place of %U must take the same arguments and free variables", old->co_qualname);
    return same;
}
/* The same code with every argument positional: a frame's arguments are already bound. */
static PyCodeObject *flattened(PyCodeObject *co) {
    PyObject *replace = PyObject_GetAttrString((PyObject *)co, "replace"), *none = PyTuple_New(0), *made = NULL;
    PyObject *fields = Py_BuildValue("{sisisisi}", "co_argcount", arguments_of(co), "co_kwonlyargcount", 0, "co_posonlyargcount", 0,
                                     "co_flags", co->co_flags & ~(CO_VARARGS | CO_VARKEYWORDS));
    if (replace && none && fields) made = PyObject_Call(replace, none, fields);
    Py_XDECREF(replace); Py_XDECREF(none); Py_XDECREF(fields);
    Cache *c = made ? cache_made(made) : NULL;
    if (!c) { Py_XDECREF(made); return NULL; }
    c->skip = 1;
    return (PyCodeObject *)made;
}
static PyObject *function_with(PyCodeObject *code, PyFunctionObject *old) {
    PyObject *f = PyFunction_NewWithQualName((PyObject *)code, old->func_globals, old->func_qualname);
    if (!f || (old->func_closure && PyFunction_SetClosure(f, old->func_closure))) { Py_XDECREF(f); return NULL; }
    Py_SETREF(((PyFunctionObject *)f)->func_name, Py_NewRef(old->func_name));      /* a generator's name */
    Py_SETREF(((PyFunctionObject *)f)->func_builtins, Py_NewRef(old->func_builtins));
    return f;
}

/* ---- running a frame ---- */
static PyObject *run(PyThreadState *ts, Frame *f, int throwing) {
    GIVE_BACK(ts, 1);
    PyObject *r = evaluate(ts, f, throwing);
    GIVE_BACK(ts, -1);
    return r;
}
/* Put the code into the frame. 1 done, 0 there is no room, -1 error. */
static int put_into(PyThreadState *ts, Frame *f, PyCodeObject *now) {
    PyCodeObject *old = CODE_OF(f);
    PyObject *function = NULL;
    Py_ssize_t have = old->co_nlocalsplus + old->co_stacksize, need = now->co_nlocalsplus + now->co_stacksize;
    if (need > have || force_apart) {           /* the frame is the newest on the data stack, and grows there */
        PyObject **base = (PyObject **)f, **end = base + SPECIALS + have;
        if (force_apart || ts->datastack_top != end || need - have >= ts->datastack_limit - end) return 0;
    }
    if (now->co_flags & MAKES_GENERATOR && !(function = function_with(now, (PyFunctionObject *)FUNCTION_OF(f))))
        return -1;                               /* a generator is as big as its function's code says */
    if (need > have) { ts->datastack_top = (PyObject **)f + SPECIALS + need; count_grown++; }
    for (int i = old->co_nlocalsplus; i < now->co_nlocalsplus; i++) f->localsplus[i] = NULL;
    f->stacktop = now->co_nlocalsplus;
    Py_INCREF(now);
    SET_CODE(f, now);
    if (function) { PyObject *o = FUNCTION_OF(f); SET_FUNCTION(f, function); Py_DECREF(o); }
    Py_DECREF(old);
    return 1;
}
/* `lambda: None` with other fields. */
static PyObject *small_code(PyObject *fields) {      /* steals */
    PyObject *outer = Py_CompileString("lambda: None", "<frame>", Py_eval_input), *co = NULL, *made = NULL;
    PyObject *consts = outer ? ((PyCodeObject *)outer)->co_consts : NULL;
    for (Py_ssize_t i = 0; consts && i < PyTuple_GET_SIZE(consts); i++)
        if (PyCode_Check(PyTuple_GET_ITEM(consts, i))) co = PyTuple_GET_ITEM(consts, i);
    PyObject *replace = co ? PyObject_GetAttrString(co, "replace") : NULL, *none = PyTuple_New(0);
    if (replace && none && fields) made = PyObject_Call(replace, none, fields);
    Py_XDECREF(outer); Py_XDECREF(replace); Py_XDECREF(none); Py_XDECREF(fields);
    return made;
}
/* Code that returns what is on its stack. */
static PyObject *draining(void) {
    const char text[] = {(char)NOP, 0, (char)RESUME, 0, (char)RETURN_VALUE, 0};    /* at NOP no traceback is made */
    return small_code(Py_BuildValue("{sy#si}", "co_code", text, (Py_ssize_t)6, "co_stacksize", 1));
}
/* Code that returns `value` and needs no stack, for frames that have none (3.12: `def f(): return 1`). */
static PyObject *returning(PyObject *value) { return small_code(Py_BuildValue("{s(O)}", "co_consts", value)); }
/* No room: call the replacement as a function; the frame, emptied, returns its result. */
static PyObject *call_apart(PyThreadState *ts, Frame *f, PyCodeObject *flat) {
    PyCodeObject *old = CODE_OF(f);
    int n = arguments_of(old);
    PyObject *result = NULL, *function = function_with(flat, (PyFunctionObject *)FUNCTION_OF(f)), *last = drain;
    count_apart++;
    if (function) result = PyObject_Vectorcall(function, f->localsplus, n, NULL);
    Py_XDECREF(function);
    for (int i = 0; i < n; i++) Py_CLEAR(f->localsplus[i]);
    int bare = old->co_nlocalsplus + old->co_stacksize == 0;
    if (result && bare && !(last = returning(result))) Py_CLEAR(result);
    f->stacktop = 0;
    SET_CODE(f, (PyCodeObject *)(result && bare ? last : Py_NewRef(drain)));
    Py_DECREF(old);
    if (!result) return run(ts, f, 1);
    if (bare) Py_DECREF(result);
    else { SKIP_ONE(f); SKIP_ONE(f); f->localsplus[0] = result; f->stacktop = 1; }
    return run(ts, f, 0);
}
static PyObject *run_code(PyThreadState *ts, Frame *f, PyCodeObject *code, PyCodeObject *flat) {
    if (code == CODE_OF(f)) return run(ts, f, 0);  /* its guards say that it runs as it is */
    int put = put_into(ts, f, code);
    if (put > 0) return run(ts, f, 0);
    if (put < 0) return run(ts, f, 1);
    PyCodeObject *made = flat ? NULL : flattened(code);
    if (!flat && !made) return run(ts, f, 1);
    PyObject *r = call_apart(ts, f, flat ? flat : made);
    Py_XDECREF(made);
    return r;
}

/* ---- variables of a frame that has not begun ---- */
static PyObject *variables(Frame *f, PyCodeObject *co) {
    PyObject *names = PyDict_New(), *closure = ((PyFunctionObject *)FUNCTION_OF(f))->func_closure;
    int n = arguments_of(co), first_free = co->co_nlocalsplus - co->co_nfreevars;
    for (int i = 0; names && i < n; i++)
        if (f->localsplus[i] && PyDict_SetItem(names, PyTuple_GET_ITEM(co->co_localsplusnames, i), f->localsplus[i]) < 0) Py_CLEAR(names);
    for (int i = 0; names && closure && i < co->co_nfreevars; i++) {
        PyObject *v = PyCell_GET(PyTuple_GET_ITEM(closure, i));
        if (v && PyDict_SetItem(names, PyTuple_GET_ITEM(co->co_localsplusnames, first_free + i), v) < 0) Py_CLEAR(names);
    }
    return names;
}
static int holds(PyObject *checker, Frame *f, PyCodeObject *co) {
    if (!checker) return 1;
    if (fl_is_checker(checker)) {
        Scope scope = {f->localsplus, ((PyFunctionObject *)FUNCTION_OF(f))->func_closure, NULL, f->f_globals, f->f_builtins};
        return fl_guard_check(checker, &scope);
    }
    PyObject *names = variables(f, co), *r = names ? PyObject_CallMethodObjArgs(checker, str_check, names, f->f_globals, NULL) : NULL;
    Py_XDECREF(names);
    if (!r) return -1;
    int ok = PyObject_IsTrue(r);
    Py_DECREF(r);
    return ok;
}
/* 1: a version's guards hold, its code is given (to be released); 0: none's do; -1: error. Guards may run
   Python, and that may add versions or forget them. */
static int find(Known *k, Frame *f, PyCodeObject *co, PyCodeObject **code, PyCodeObject **flat) {
    Py_ssize_t n = k->n, first = k->last < n ? k->last : 0;
    for (Py_ssize_t i = 0; i < n && i < k->n; i++) {
        Py_ssize_t at = i == 0 ? first : i <= first ? i - 1 : i;    /* the last to hold, then in order */
        Version *v = k->versions[at];
        *code = (PyCodeObject *)Py_NewRef(v->code); *flat = (PyCodeObject *)Py_XNewRef(v->flat);
        PyObject *checker = Py_XNewRef(v->checker);
        int ok = holds(checker, f, co);
        Py_XDECREF(checker);
        if (ok > 0) { k->last = at; return 1; }
        Py_DECREF(*code); Py_XDECREF(*flat);
        if (ok < 0) return -1;
    }
    return 0;
}

/* ---- the hook ---- */
static char *find_floor(void) {
#ifdef __linux__
    pthread_attr_t attr; void *base; size_t size;
    if (!pthread_getattr_np(pthread_self(), &attr)) {
        int failed = pthread_attr_getstack(&attr, &base, &size);
        pthread_attr_destroy(&attr);
        if (!failed && size > 2 * MARGIN) return (char *)base + MARGIN;
    }
#endif
    return (char *)1;
}
static PyObject *frame_set(PyObject *m, PyObject *callback);
/* The callback has calls of its own to spare, so that it comes to its end where the program is near its limit. */
static PyObject *ask(PyThreadState *ts, Frame *f, PyCodeObject *co, Local *me) {
    PyObject *names = variables(f, co), *callback = me->callback, *r = NULL;
    count_asked++;
    if (!names) return NULL;
    PyObject *args[] = {NULL, (PyObject *)co, names, f->f_globals, f->f_builtins, FUNCTION_OF(f)};
    int collects = PyGC_IsEnabled();
    Py_INCREF(callback); Py_INCREF(me);
    me->paused++;                                /* what the callback runs is not offered to it */
    RECURSION_LEFT(ts) += HEADROOM;
    r = PyObject_Vectorcall(callback, args + 1, 5 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    RECURSION_LEFT(ts) -= HEADROOM;
    me->paused--;
    if (!r) {                                    /* it may have ended where it could not clean up */
        PyObject *kind, *value, *trace;
        PyErr_Fetch(&kind, &value, &trace);
        if (collects) PyGC_Enable();
        if (me->callback != callback) { PyObject *other = frame_set(NULL, callback); Py_XDECREF(other); }
        PyErr_Restore(kind, value, trace);
    }
    Py_DECREF(me); Py_DECREF(callback); Py_DECREF(names);
    return r;
}
/* With a hook in the interpreter a caller's stack keeps the arguments of a call to its end. What goes on after a
   graph break is called by code that stands before `RESUME` and has nothing else on its stack: there they are
   let go, so that an object ends when the program forgets it. Rounds of loops are given a tuple: it is emptied. */
static void release_arguments(PyThreadState *ts, Frame *f, PyCodeObject *co) {
    Frame *caller = CALLER(ts);
    if (!caller || caller->owner != FRAME_OWNED_BY_THREAD || !STARTED(caller) || !_PyFrame_IsIncomplete(caller)) return;
    PyCodeObject *by = CODE_OF(caller);
    int n = arguments_of(co);
    PyObject **given = caller->localsplus + by->co_nlocalsplus + 2;    /* above the callable and its NULL */
    PyObject *many = n && by->co_stacksize > 2 ? given[0] : NULL;
    if (many && PyTuple_CheckExact(many) && Py_REFCNT(many) == 1 && PyTuple_GET_SIZE(many) == n) {
        int same = 1;
        for (int i = 0; i < n && same; i++) same = PyTuple_GET_ITEM(many, i) == f->localsplus[i];
        for (int i = 0; i < n && same; i++) { PyTuple_SET_ITEM(many, i, Py_NewRef(Py_None)); Py_DECREF(f->localsplus[i]); }
        if (same) return;
    }
    if (2 + n > by->co_stacksize) return;
    for (int i = 0; i < n; i++) if (given[i] != f->localsplus[i] || !given[i]) return;
    for (int i = 0; i < n; i++) { given[i] = Py_NewRef(Py_None); Py_DECREF(f->localsplus[i]); }
}
/* There was no room for guards or for the callback: the program's own call may still have it. */
static int too_deep(void) {
    if (!PyErr_ExceptionMatches(PyExc_RecursionError)) return 0;
    PyErr_Clear();
    return 1;
}
/* Neither the frame nor what it calls is compiled: what there is of versions runs. (A compiled function that is
   called in it puts its own callback in place.) */
static void only_free(Only *o) { Py_DECREF(o->key); PyObject_Free(o); }
static PyObject *only_call(PyObject *o, PyObject *args, PyObject *kwargs) { Py_RETURN_NONE; }
static PyTypeObject OnlyType = {PyVarObject_HEAD_INIT(NULL, 0).tp_name = "flambeau._native.FrameVersionsOnly", .tp_basicsize = sizeof(Only),
    .tp_flags = Py_TPFLAGS_DEFAULT, .tp_dealloc = (destructor)only_free, .tp_call = only_call};
static PyObject *run_only(PyThreadState *ts, Frame *f, Local *me) {
    if (Py_IS_TYPE(me->callback, &OnlyType)) return run(ts, f, 0);
    if (!me->only || ((Only *)me->only)->key != me->key) {
        Only *made = PyObject_New(Only, &OnlyType);
        if (!made) return run(ts, f, 1);
        made->key = Py_NewRef(me->key);
        Py_XSETREF(me->only, (PyObject *)made);
    }
    PyObject *callback = me->callback, *only = Py_NewRef(me->only);
    me->callback = Py_NewRef(only); Py_INCREF(me);
    PyObject *r = run(ts, f, 0);
    if (me->callback == only) { me->callback = callback; Py_DECREF(only); }
    else Py_DECREF(callback);
    Py_DECREF(only); Py_DECREF(me);
    return r;
}
static PyObject *hook(PyThreadState *ts, Frame *f, int throwing) {
    char here;
    if (__builtin_expect(&here < stack_floor, 0) || !stack_floor) {
        if (!stack_floor) stack_floor = find_floor();
        if (&here < stack_floor) {
            if (!throwing) PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded: the thread's stack is full");
            return evaluate(ts, f, 1);
        }
    }
    Local *me = local;
    if (!me || !me->callback || me->paused || throwing || f->owner != FRAME_OWNED_BY_THREAD) return run(ts, f, throwing);
    PyCodeObject *co = CODE_OF(f);
    Cache *c = cache_of(co);
    if (c && c->resumes) release_arguments(ts, f, co);
    if ((c && c->skip) || !(co->co_flags & CO_OPTIMIZED) || STARTED(f)) return run(ts, f, 0);
    Known *k = c ? known_under(c, me->key) : NULL;
    if (k) {
        if (k->skip) return run(ts, f, 0);
        PyCodeObject *code, *flat;
        me->paused++;                            /* guards that run Python are not looked at */
        int found = find(k, f, co, &code, &flat);
        me->paused--;
        if (found < 0) return run(ts, f, too_deep() ? 0 : 1);
        if (found) {
            count_hits++;
            PyObject *r = run_code(ts, f, code, flat);
            Py_DECREF(code); Py_XDECREF(flat);
            return r;
        }
        if (k->rest < 0) return run_only(ts, f, me);
        if (k->rest > 0) { k->rest--; return run(ts, f, 0); }
    }
    if (Py_IS_TYPE(me->callback, &OnlyType)) return run(ts, f, 0);
    PyObject *code = ask(ts, f, co, me);
    if (!code) return run(ts, f, too_deep() ? 0 : 1);
    if (code == Py_None) {
        Py_DECREF(code);
        if ((k || (c = cache_of(co))) && (k || (k = known_under(c, me->key))) && k->rest < 0) return run_only(ts, f, me);
        return run(ts, f, 0);
    }
    if (code == Py_False) { Py_DECREF(code); return run_only(ts, f, me); }
    if (!PyCode_Check(code)) {
        PyErr_Format(PyExc_TypeError, "the frame callback must return code, None or False, not %.100s", Py_TYPE(code)->tp_name);
        Py_DECREF(code);
        return run(ts, f, 1);
    }
    PyObject *r = fits(co, (PyCodeObject *)code) ? run_code(ts, f, (PyCodeObject *)code, NULL) : run(ts, f, 1);
    Py_DECREF(code);
    return r;
}
static void place_hook(void) {
    PyInterpreterState *in = PyInterpreterState_Get();
    _PyFrameEvalFunction now = _PyInterpreterState_GetEvalFrameFunc(in);
    if (threads_on && now != hook) { evaluate = now; _PyInterpreterState_SetEvalFrameFunc(in, hook); }
    else if (!threads_on && now == hook) _PyInterpreterState_SetEvalFrameFunc(in, evaluate);
}

/* ---- threads ---- */
static void local_free(Local *me) {
    if (local == me) local = NULL;
    if (me->callback) { threads_on--; Py_CLEAR(me->callback); place_hook(); }
    Py_XDECREF(me->key); Py_XDECREF(me->only);
    Py_TYPE(me)->tp_free((PyObject *)me);
}
static PyTypeObject LocalType = {PyVarObject_HEAD_INIT(NULL, 0).tp_name = "flambeau._native.FrameThread", .tp_basicsize = sizeof(Local),
    .tp_flags = Py_TPFLAGS_DEFAULT, .tp_dealloc = (destructor)local_free};
static Local *local_made(void) {
    PyObject *dict = PyThreadState_GetDict();
    if (!dict) { PyErr_SetString(PyExc_RuntimeError, "this thread has no state"); return NULL; }
    Local *me = (Local *)LocalType.tp_alloc(&LocalType, 0);
    if (!me) return NULL;
    int failed = PyDict_SetItemString(dict, "flambeau.frame", (PyObject *)me);
    Py_DECREF(me);                               /* the thread's dict holds it */
    return failed ? NULL : (local = me);
}

/* ---- what Python calls ---- */
static PyObject *frame_set(PyObject *m, PyObject *callback) {
    Local *me = local ? local : local_made();
    PyObject *key = NULL;
    if (!me) return NULL;
    if (callback != Py_None) {
        if (!PyCallable_Check(callback)) { PyErr_SetString(PyExc_TypeError, "a callable or None is expected"); return NULL; }
        if (Py_IS_TYPE(callback, &OnlyType)) key = Py_NewRef(((Only *)callback)->key);
        else if (!(key = PyObject_GetAttr(callback, str_key))) {
            if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return NULL;
            PyErr_Clear();
            key = Py_NewRef(callback);
        }
    }
    PyObject *old = me->callback, *old_key = me->key;
    me->callback = key ? Py_NewRef(callback) : NULL;
    me->key = key;
    threads_on += (key != NULL) - (old != NULL);
    place_hook();
    Py_XDECREF(old_key);
    return old ? old : Py_NewRef(Py_None);
}
static PyObject *frame_get(PyObject *m, PyObject *u) { return Py_NewRef(local && local->callback ? local->callback : Py_None); }
static PyObject *frame_add(PyObject *m, PyObject *const *a, Py_ssize_t n) {
    if (n != 5) { PyErr_SetString(PyExc_TypeError, "frame_add(code, key, checker, replacement, entry)"); return NULL; }
    Cache *c = cache_made(a[0]);
    if (!c) return NULL;
    if (!PyCode_Check(a[3])) { PyErr_SetString(PyExc_TypeError, "the replacement must be a code object"); return NULL; }
    if (!fits((PyCodeObject *)a[0], (PyCodeObject *)a[3])) return NULL;
    if (fl_is_checker(a[2]) && fl_guard_bind(a[2], (PyCodeObject *)a[0]) < 0) return NULL;
    Known *k = known_made(c, a[1]);
    Version *v = k ? PyMem_Calloc(1, sizeof *v) : NULL, **grown = v ? PyMem_Realloc(k->versions, (k->n + 1) * sizeof *grown) : NULL;
    if (!grown) { PyMem_Free(v); return k ? PyErr_NoMemory() : NULL; }
    k->versions = grown;
    v->key = Py_NewRef(a[1]); v->checker = a[2] == Py_None ? NULL : Py_NewRef(a[2]);
    v->code = (PyCodeObject *)Py_NewRef(a[3]); v->info = Py_NewRef(a[4]);
    if (a[0] != a[3] && !(v->flat = flattened(v->code))) { version_free(v); return NULL; }
    grown[k->n] = v;
    k->last = k->n++;
    Py_RETURN_NONE;
}
static PyObject *frame_entries(PyObject *m, PyObject *code) {
    PyObject *list = PyList_New(0);
    if (!PyCode_Check(code)) { Py_XDECREF(list); PyErr_SetString(PyExc_TypeError, "a code object is expected"); return NULL; }
    Cache *c = cache_of((PyCodeObject *)code);
    for (Known *k = c ? c->known : NULL; list && k; k = k->next)
        for (Py_ssize_t i = 0; list && i < k->n; i++) {
            Version *v = k->versions[i];
            PyObject *t = PyTuple_Pack(4, v->key, v->checker ? v->checker : Py_None, v->code, v->info);
            if (!t || PyList_Append(list, t) < 0) Py_CLEAR(list);
            Py_XDECREF(t);
        }
    return list;
}
static PyObject *frame_skip(PyObject *m, PyObject *const *a, Py_ssize_t n) {
    if (n != 2) { PyErr_SetString(PyExc_TypeError, "frame_skip(code, key or None)"); return NULL; }
    Cache *c = cache_made(a[0]);
    Known *k = c && a[1] != Py_None ? known_made(c, a[1]) : NULL;
    if (!c || (a[1] != Py_None && !k)) return NULL;
    if (k) k->skip = 1; else c->skip = 1;
    Py_RETURN_NONE;
}
static PyObject *frame_rest(PyObject *m, PyObject *const *a, Py_ssize_t n) {
    if (n != 3) { PyErr_SetString(PyExc_TypeError, "frame_rest(code, key, calls)"); return NULL; }
    Py_ssize_t calls = PyLong_AsSsize_t(a[2]);
    if (calls == -1 && PyErr_Occurred()) return NULL;
    Cache *c = cache_made(a[0]);
    Known *k = c ? known_made(c, a[1]) : NULL;
    if (!k) return NULL;
    k->rest = calls;
    Py_RETURN_NONE;
}
static PyObject *frame_resumes(PyObject *m, PyObject *code) {
    Cache *c = cache_made(code);
    if (!c) return NULL;
    c->resumes = 1;
    Py_RETURN_NONE;
}
static PyObject *frame_skipped(PyObject *m, PyObject *const *a, Py_ssize_t n) {
    if (n != 2 || !PyCode_Check(a[0])) { PyErr_SetString(PyExc_TypeError, "frame_skipped(code, key)"); return NULL; }
    Cache *c = cache_of((PyCodeObject *)a[0]);
    Known *k = c ? known_under(c, a[1]) : NULL;
    return PyBool_FromLong(c && (c->skip || (k && k->skip)));
}
/* A cache in use by a frame further up is emptied, not freed: nothing there is looked at again but `n`. */
static PyObject *frame_reset(PyObject *m, PyObject *code) {
    if (!PyCode_Check(code)) { PyErr_SetString(PyExc_TypeError, "a code object is expected"); return NULL; }
    Cache *c = cache_of((PyCodeObject *)code);
    if (!c) Py_RETURN_NONE;
    c->skip = 0;
    for (Known *k = c->known; k; k = k->next) {
        Version **versions = k->versions;
        Py_ssize_t n = k->n;
        k->versions = NULL; k->n = k->last = k->rest = 0; k->skip = 0;
        for (Py_ssize_t i = 0; i < n; i++) version_free(versions[i]);
        PyMem_Free(versions);
    }
    Py_RETURN_NONE;
}
static PyObject *frame_stats(PyObject *m, PyObject *u) {
    return Py_BuildValue("{sksksksksi}", "asked", count_asked, "hits", count_hits, "apart", count_apart, "grown", count_grown, "threads", threads_on);
}
/* For tests: never put code into frames. */
static PyObject *frame_force_apart(PyObject *m, PyObject *on) { force_apart = PyObject_IsTrue(on); Py_RETURN_NONE; }

static PyMethodDef methods[] = {
    {"frame_set", frame_set, METH_O}, {"frame_get", frame_get, METH_NOARGS}, {"frame_add", (PyCFunction)frame_add, METH_FASTCALL},
    {"frame_entries", frame_entries, METH_O}, {"frame_skip", (PyCFunction)frame_skip, METH_FASTCALL},
    {"frame_rest", (PyCFunction)frame_rest, METH_FASTCALL}, {"frame_skipped", (PyCFunction)frame_skipped, METH_FASTCALL}, {"frame_reset", frame_reset, METH_O},
    {"frame_stats", frame_stats, METH_NOARGS}, {"frame_force_apart", frame_force_apart, METH_O},
    {"frame_resumes", frame_resumes, METH_O}, {0}};
int fl_frame_init(PyObject *m) {
    if ((extra_index = REQUEST_EXTRA(cache_free)) < 0) { PyErr_SetString(PyExc_SystemError, "no room for a code's extra"); return -1; }
    if (!(str_key = PyUnicode_InternFromString("key")) || !(str_check = PyUnicode_InternFromString("check")) || PyType_Ready(&LocalType) < 0
        || PyType_Ready(&OnlyType) < 0) return -1;
    if (!(drain = draining())) return -1;
    return PyModule_AddFunctions(m, methods);
}
#endif
