/* The C part of flambeau: storage, the tensor record, iteration, threads, and the plain eager call.
   Mechanism only: every fact of an operator comes from its Python declaration. */
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <stdint.h>
#include <string.h>

#define FL_MAXDIM 64      /* as in torch: more dimensions are refused when a tensor is made */
#define FL_INLINE_DIMS 6
#define FL_NDTYPES 18
#define FL_MAXOPS 16

enum { FL_U8, FL_I8, FL_I16, FL_I32, FL_I64, FL_F16, FL_F32, FL_F64, FL_C32, FL_C64, FL_C128,
       FL_BOOL, FL_BF16, FL_F8E5, FL_F8E4, FL_U16, FL_U32, FL_U64 };
enum { FL_FLOATING = 1, FL_COMPLEX = 2, FL_SIGNED = 4 };

/* Layers that an operator call may meet, outermost first; core/state.py holds the same table. */
enum { FL_L_GEOMETRY = 1 << 1, FL_L_DISPATCH = 1 << 2, FL_L_TRACE = 1 << 3, FL_L_FAKE = 1 << 4,
       FL_L_FUNCTIONALIZE = 1 << 5, FL_L_RECORD = 1 << 6, FL_L_COMPOSITE = 1 << 7,
       FL_L_FUNCTORCH = 1 << 8, FL_L_AUTOCAST = 1 << 9, FL_L_FUNCTION = 1 << 10,
       FL_L_FUNCTION_MODE = 1 << 11, FL_L_PROFILE = 1 << 12 };

typedef struct { PyObject_HEAD int code, itemsize, flags; PyObject *name; } DType;
typedef struct { PyObject_HEAD int type, index; } Device;

typedef struct {
    PyObject_HEAD
    char *data;            /* NULL: no bytes (fake, meta, or resized to zero) */
    int64_t nbytes;
    int64_t capacity;      /* size class of our own block; 0 when foreign */
    int64_t version;
    Device *device;
    PyObject *owner;       /* keeps foreign bytes alive */
    PyObject *dict, *weakrefs;
    int flags;
} Storage;
enum { FL_S_FAKE = 1, FL_S_READONLY = 2, FL_S_SHARED = 4, FL_S_FIXED = 8 };

typedef struct { PyObject_HEAD int64_t value; } VersionCell;

typedef struct Tensor {
    PyObject_HEAD
    Storage *storage;
    DType *dtype;
    int64_t offset, numel;
    int64_t *sizes, *strides;
    int64_t inl[2 * FL_INLINE_DIMS];
    int ndim;
    int bits;              /* layers this tensor asks for */
    uint8_t requires_grad; /* leaf flag, or: a recorded result */
    uint8_t contiguous, flags;
    int output_nr, born;   /* born: the innermost grad or jvp level at the time (its serial number) */
    VersionCell *vcell;    /* NULL: the storage's own version */
    PyObject *sym;         /* symbolic geometry, or NULL */
    PyObject *grad, *grad_fn, *meta;
    struct Tensor *base;   /* of a view */
    int64_t attr_version;  /* version at which grad_fn of a view was right */
    PyObject *dict, *weakrefs;
} Tensor;
enum { FL_T_INFERENCE = 1, FL_T_WRAPPED = 2 /* a Python number */, FL_T_CONJ = 4, FL_T_NEG = 8,
       FL_T_NOGRAD_VIEW = 16, FL_T_MULTI_VIEW = 32, FL_T_CUSTOM_VIEW = 64, FL_T_INFERENCE_VIEW = 128,
       FL_T_VIEW_KINDS = 240 /* views that autograd cannot follow through their base */ };

typedef struct { PyObject *target; int nr; } Edge;
typedef struct {
    PyObject_HEAD
    PyObject *op, *args, *outs;   /* args: as in the call, tensors replaced by Saved or geometry */
    PyObject *ctx;                /* what else the backward must restore, or NULL */
    PyObject *hooks, *dict, *weakrefs;
    int64_t seq;
    int needs;                    /* how many outputs the forward had */
    int released, keeps_number;
    Py_ssize_t nedges;
    Edge *edges;
    Edge inl[3];
} Node;
typedef struct {
    PyObject_HEAD
    Tensor *t;          /* an input itself; of an output: an alias without history */
    int64_t version;
    int is_output, output_nr;
    PyObject *packed, *unpack;    /* saved-tensor hooks */
    PyObject *history;            /* of a packed input: its node, or a weak reference to the leaf */
    int history_nr;
} Saved;

/* scoped: a default device of a `with`; level: the innermost grad or jvp (its serial number) */
typedef struct { int grad, inference, active, suspended, multithread, scoped, level; } State;
extern _Thread_local State fl_state;
static inline int fl_recording(void) { return fl_state.grad && !(fl_state.suspended & FL_L_RECORD); }

typedef void (*fl_loop)(char **, const int64_t *, int64_t, int64_t, const void *);

extern PyTypeObject DTypeType, DeviceType, VersionCellType, SavedType;
extern PyTypeObject *StorageType, *TensorType, *NodeType, *SizeType;
extern DType *fl_dtypes[FL_NDTYPES];
extern Device *fl_cpu;
extern PyObject *fl_hooks;   /* dict: names -> Python functions that C calls upward */

#define Tensor_Check(o) PyObject_TypeCheck((PyObject *)(o), TensorType)
static inline char *fl_data(Tensor *t) { return t->storage->data + t->offset * t->dtype->itemsize; }
static inline int64_t fl_version(Tensor *t) { return t->vcell ? t->vcell->value : t->storage->version; }
static inline void fl_bump(Tensor *t) { if (t->vcell) t->vcell->value++; else t->storage->version++; }

/* storage.c */
Storage *fl_storage_new(int64_t nbytes, Device *device);
Storage *fl_storage_fake(int64_t nbytes, Device *device);
/* tensor.c */
Tensor *fl_tensor_alloc(PyTypeObject *type, Storage *s, DType *d, int ndim);   /* steals s */
void fl_tensor_done(Tensor *t);                            /* numel, contiguous from sizes, strides */
Tensor *fl_empty(int ndim, const int64_t *sizes, const int64_t *strides, DType *d, Device *dev);
Tensor *fl_alias(Tensor *t, int ndim, const int64_t *sizes, const int64_t *strides, int64_t offset);
Tensor *fl_geometry(Tensor *t);
int fl_set_grad(Tensor *t, PyObject *g);
int fl_refresh(Tensor *t);                                 /* history of a stale view anew; -1 on error */
static inline int fl_stale_view(Tensor *t) {
    return t->base && t->base->requires_grad && t->attr_version != fl_version(t); }
static inline int fl_requires_grad(Tensor *t) { return t->requires_grad || (t->base && t->base->requires_grad); }
int fl_layer_bits(PyTypeObject *type);
PyObject *fl_size(int n, const int64_t *v);
int fl_ints(PyObject *o, int64_t *out, const char *fname, const char *arg);   /* count, or -1 */
PyObject *fl_item(Tensor *t);
int fl_store_scalar(int code, PyObject *v, void *out);   /* 0 done, 1 not representable, -1 error */
/* indexed.c */
void fl_move(int item, int nd, const int64_t *sizes, char *to, const int64_t *to_strides, char *from, const int64_t *from_strides);
/* node.c */
Node *fl_node(PyTypeObject *type, PyObject *op, Py_ssize_t nedges);
int fl_edge(Node *n, Py_ssize_t i, Tensor *t);            /* edge i leads to what made t */
PyObject *fl_saved(Tensor *t, int is_output);
void fl_attach(Tensor *out, Node *n, int nr);
PyObject *fl_unpacked(PyObject *saved, PyObject *node);   /* the tensor that was kept, its version checked */
void fl_release(Node *n);
/* iterate.c */
int fl_broadcast(int n, Tensor **ts, int64_t *sizes);     /* ndim, or -1 with an exception */
void fl_out_strides(int n, Tensor **ts, int ndim, const int64_t *sizes, int64_t *strides);
void fl_run_map(fl_loop f, int nops, char **ptr, int ndim, const int64_t *sizes,
                const int64_t (*strides)[FL_MAXDIM], const void *params);
void fl_run_rows(fl_loop f, int nops, char **ptr, int64_t n0, const int64_t *st0, int ndim,
                 const int64_t *sizes, const int64_t (*strides)[FL_MAXDIM], const void *params);
typedef void (*fl_range)(void *ctx, int64_t begin, int64_t end);
void fl_parallel(fl_range f, void *ctx, int64_t n, int64_t grain);
void fl_parallel_for(fl_range f, void *ctx, int64_t n, int64_t grain, const void *key, int64_t total);   /* key, total: what is run, on how much */
int fl_num_threads(void);
int fl_operand_strides(Tensor *t, int ndim, const int64_t *sizes, int64_t *out);

int fl_state_init(PyObject *), fl_storage_init(PyObject *), fl_tensor_init(PyObject *), fl_node_init(PyObject *),
    fl_iterate_init(PyObject *), fl_fast_init(PyObject *), fl_views_init(PyObject *), fl_indexed_init(PyObject *), fl_choose_init(PyObject *), fl_random_init(PyObject *), fl_dlpack_init(PyObject *), fl_structseq_init(PyObject *);
int fl_sort_init(PyObject *), fl_operators_init(PyObject *), fl_tape_init(PyObject *), fl_backward_init(PyObject *), fl_windows_init(PyObject *);
static inline int fl_add_type(PyObject *m, PyTypeObject *t) { return PyType_Ready(t) < 0 ? -1 : PyModule_AddType(m, t); }
