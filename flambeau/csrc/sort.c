/* Sorting, the k largest, the k-th smallest, along one dimension, with the places of the elements. */
#include "native.h"
#include "numbers.h"

enum { SORT, STABLE, TOP, KTH };
typedef struct {
    int how, code, item, nd, descending, sorted, failed;
    int64_t n, m, k;                                          /* elements of a row, results of a row, k */
    const char *x; char *v, *p;
    int64_t x0, v0, p0;                                       /* strides along the row, in bytes */
    int64_t size[FL_MAXDIM], sx[FL_MAXDIM], sv[FL_MAXDIM], sp[FL_MAXDIM];
} Job;

static inline int32_t key32(float f) {      /* integers in the order of the floats: -0 is 0, NaN the largest */
    uint32_t u = fbits(f);
    if (f != f) return INT32_MAX;
    return u == 0x80000000u ? 0 : (int32_t)(u & 0x80000000u ? u ^ 0x7fffffffu : u);
}
static inline int64_t key64(double f) {
    uint64_t u; memcpy(&u, &f, 8);
    if (f != f) return INT64_MAX;
    return u == 1ull << 63 ? 0 : (int64_t)(u >> 63 ? u ^ (~0ull >> 1) : u);
}
static inline int64_t key_of(int code, const char *p) {
    switch (code) {
    case FL_F32: return key32(*(const float *)p);
    case FL_F64: return key64(*(const double *)p);
    case FL_BF16: return key32(bf16_to_float(*(const uint16_t *)p));
    case FL_F16: return key32(half_to_float(*(const uint16_t *)p));
    case FL_I64: return *(const int64_t *)p;
    case FL_I32: return *(const int32_t *)p;
    case FL_I16: return *(const int16_t *)p;
    case FL_I8: return *(const int8_t *)p;
    case FL_U16: return *(const uint16_t *)p;
    case FL_U32: return *(const uint32_t *)p;
    case FL_U64: return (int64_t)(*(const uint64_t *)p ^ 1ull << 63);
    case FL_F8E5: return key32(e5m2_to_float(*(const uint8_t *)p));
    case FL_F8E4: return key32(e4m3_to_float(*(const uint8_t *)p));
    case FL_BOOL: return *p != 0;
    default: return *(const uint8_t *)p;
    }
}
#define K int32_t
#define N(x) x##_32
#include "sort_rows.h"
#undef K
#undef N
#define K int64_t
#define N(x) x##_64
#include "sort_rows.h"
#undef K
#undef N

/* order_rows(how, x, values, indices, dim, k, descending, sorted): how is 0 sort (equal elements in any
   order), 1 stable sort, 2 the k first, 3 the k-th; values and indices have x's rank. */
static PyObject *f_order(PyObject *m, PyObject *args) {
    PyObject *x_, *v_, *p_; int how, dim, descending, sorted; long long k;
    if (!PyArg_ParseTuple(args, "iO!O!O!iLpp", &how, TensorType, &x_, TensorType, &v_, TensorType, &p_, &dim, &k, &descending, &sorted)) return NULL;
    Tensor *x = (Tensor *)x_, *v = (Tensor *)v_, *p = (Tensor *)p_; Job j = {.how = how, .k = k, .descending = descending, .sorted = sorted};
    int nd = x->ndim;
    if (v->ndim != nd || p->ndim != nd || dim < 0 || dim >= nd || v->dtype != x->dtype || p->dtype->code != FL_I64 || how < SORT || how > KTH) {
        PyErr_SetString(PyExc_ValueError, "order_rows(how, x, values, indices, dim, k, descending, sorted)"); return NULL;
    }
    j.code = x->dtype->code; j.item = x->dtype->itemsize;
    j.n = x->sizes[dim]; j.m = how == TOP ? k : how == KTH ? 1 : j.n;
    if (k < 0 || k > j.n || v->sizes[dim] < j.m || p->sizes[dim] < j.m) { PyErr_SetString(PyExc_ValueError, "order_rows: k"); return NULL; }
    if (!j.m || !x->numel) Py_RETURN_NONE;
    j.x = fl_data(x); j.v = fl_data(v); j.p = fl_data(p);
    j.x0 = x->strides[dim] * j.item; j.v0 = v->strides[dim] * j.item; j.p0 = p->strides[dim] * 8;
    int64_t rows = 1;
    for (int i = 0; i < nd; i++) if (i != dim) {
        int d = j.nd++;
        j.size[d] = x->sizes[i]; rows *= x->sizes[i];
        j.sx[d] = x->strides[i] * j.item; j.sv[d] = v->strides[i] * j.item; j.sp[d] = p->strides[i] * 8;
    }
    int wide = j.n > INT32_MAX || j.code == FL_F64 || j.code == FL_I64 || j.code == FL_U64 || j.code == FL_U32;
    PyThreadState *save = rows * j.n > 16384 ? PyEval_SaveThread() : NULL;
    fl_parallel(wide ? rows_64 : rows_32, &j, rows, 1 + 16384 / j.n);
    if (save) PyEval_RestoreThread(save);
    if (j.failed) return PyErr_NoMemory();
    Py_RETURN_NONE;
}
static PyMethodDef functions[] = {{"order_rows", f_order, METH_VARARGS}, {0}};
int fl_sort_init(PyObject *m) { return PyModule_AddFunctions(m, functions); }
