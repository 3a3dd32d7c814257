/* The plain eager call: exact tensors, no layer active, one dtype. Anything else goes to Python. */
#pragma once
#include "native.h"

enum { FL_K_NONE, FL_K_MAP, FL_K_MAP_INPLACE, FL_K_MM, FL_K_ADDMM, FL_K_SUM, FL_K_LINEAR, FL_K_VIEW, FL_K_RESHAPE, FL_K_T, FL_K_TRANSPOSE,
       FL_K_PERMUTE, FL_K_UNSQUEEZE, FL_K_SQUEEZE, FL_K_SELECT, FL_K_SLICE, FL_K_EXPAND, FL_K_DETACH, FL_K_GETITEM,
       FL_K_FLATTEN, FL_K_NARROW, FL_K_SPLIT, FL_K_CHUNK, FL_K_UNBIND, FL_K_CAT, FL_K_STACK };
enum { FL_MAXPARAMS = 4 };
typedef struct Fast Fast;
typedef PyObject *(*fast_call)(Fast *, PyObject *const *, Py_ssize_t, PyObject *);
struct Fast {
    PyObject_HEAD
    int kind, ntensors, nparams, out_bool, swap, numbers, own_strides;
    PyObject *names[FL_MAXPARAMS];             /* keyword-only scalar parameters, interned */
    PyObject *defaults[FL_MAXPARAMS];
    void *loops[FL_NDTYPES];
    void *along[FL_NDTYPES], *across[FL_NDTYPES];   /* of reductions: kernels with one of the two loops */
    int save[8];                               /* by which inputs need a gradient: what to save; -1 unknown */
    PyObject *op, *node_type;                  /* node_type NULL: recording goes to Python */
    PyObject *tail;                            /* further arguments of the recorded call */
    Fast *other;                               /* of the name's next overload, tried where this one declines */
    Fast *next, *also;                         /* parts that a composed call records as */
    fast_call call;
};
typedef struct { PyObject_HEAD vectorcallfunc vc; PyObject *name, *qualname, *slow; Fast *fast; PyObject *dict, *weakrefs;
    Py_ssize_t most;                  /* most: positional arguments that the fast path may take */
    uint64_t lists; } Function;       /* which of them must be tuples or lists, as bits */
extern PyTypeObject FastType, FunctionType, MethodType;
PyObject *fl_view_call(Fast *f, PyObject *const *a, Py_ssize_t n, PyObject *kw);
PyObject *fl_getitem(PyObject *self, PyObject *key);
int fl_setitem(PyObject *self, PyObject *key, PyObject *value);
PyObject *fl_join_call(Fast *f, PyObject *const *a, Py_ssize_t n, PyObject *kw);
PyObject *fl_view_of(Fast *f, Tensor *t, int nd, const int64_t *sizes, const int64_t *strides, int64_t off, PyObject *rest);
extern Function *fl_slot_fn[];
enum { FL_SLOT_GETITEM = 40 };
