/* Windows that slide over planes: what convolution and pooling come down to beside products. A plane
   has up to three dimensions (fewer: leading extents of 1); float32 and float64. */
#include "native.h"

typedef struct {
    int64_t in[3], out[3], kernel[3], stride[3], pad[3], dilation[3];
    int64_t cells, places, taps;             /* of a plane: in, out, kernel */
    int wide, include;                       /* float64; averages: zeros around count */
    double by;                               /* averages: divided by this unless 0 */
    char *x, *cols, *values;                 /* planes; columns; pooled values */
    int64_t *at;                             /* pooled: flat places in the plane */
    int64_t *offset, *place, *first, *border;/* pooled: of taps; places whose windows lie inside, and where these start; other places */
    int64_t inner, outer;                    /* how many of both */
    int64_t channels, by_image, by_row;      /* columns: elements from one image, from one row, to the next */
} Windows;

/* Where the windows of one tap lie inside: out places [*first, *end) of dimension d. */
static inline void inside(const Windows *w, int d, int64_t tap, int64_t *first, int64_t *end) {
    int64_t shift = tap * w->dilation[d] - w->pad[d], s = w->stride[d], f = shift < 0 ? (-shift + s - 1) / s : 0;
    int64_t room = w->in[d] - shift, e = room <= 0 ? 0 : (room + s - 1) / s;
    if (f > w->out[d]) f = w->out[d];
    if (e > w->out[d]) e = w->out[d];
    *first = f; *end = e < f ? f : e;
}
/* The rows of columns that belong to one plane, gathered from it or added to it. */
#define TAPS(T, INSIDE_ROW, OUTSIDE) \
    for (int64_t a = 0, tap = 0; a < w->kernel[0]; a++) for (int64_t b = 0; b < w->kernel[1]; b++) for (int64_t c = 0; c < w->kernel[2]; c++, tap++) { \
        T *row = (T *)w->cols + image * w->by_image + (channel * w->taps + tap) * w->by_row; \
        int64_t f0, e0, f1, e1, f2, e2; \
        inside(w, 0, a, &f0, &e0); inside(w, 1, b, &f1, &e1); inside(w, 2, c, &f2, &e2); \
        for (int64_t i = 0; i < w->out[0]; i++) for (int64_t j = 0; j < w->out[1]; j++, row += w->out[2]) { \
            if (i < f0 || i >= e0 || j < f1 || j >= e1) { OUTSIDE; continue; } \
            T *p = plane + ((i * w->stride[0] + a * w->dilation[0] - w->pad[0]) * w->in[1] + j * w->stride[1] + b * w->dilation[1] - w->pad[1]) * w->in[2] \
                + c * w->dilation[2] - w->pad[2]; int64_t s = w->stride[2]; \
            INSIDE_ROW; } }
#define GATHER(T) TAPS(T, \
    for (int64_t k = 0; k < f2; k++) row[k] = 0; \
    if (s == 1) memcpy(row + f2, p + f2, (e2 - f2) * sizeof(T)); else for (int64_t k = f2; k < e2; k++) row[k] = p[k * s]; \
    for (int64_t k = e2; k < w->out[2]; k++) row[k] = 0, \
    memset(row, 0, w->out[2] * sizeof(T)))
#define ADD(T) memset(plane, 0, w->cells * sizeof(T)); TAPS(T, if (s == 1) for (int64_t k = f2; k < e2; k++) p[k] += row[k]; else for (int64_t k = f2; k < e2; k++) p[k * s] += row[k], )
#define PLANES(NAME, BODY) \
    static void NAME(void *ctx, int64_t begin, int64_t end) { \
        const Windows *w = ctx; \
        for (int64_t n = begin; n < end; n++) { int64_t image = n / w->channels, channel = n % w->channels; (void)image; (void)channel; \
            if (w->wide) { double *plane = (double *)w->x + n * w->cells; (void)plane; BODY(double); } \
            else { float *plane = (float *)w->x + n * w->cells; (void)plane; BODY(float); } } }
PLANES(gather_planes, GATHER)
PLANES(add_planes, ADD)

/* The largest of each window; a NaN wins over what came before it. Where windows lie inside, some places are done at a
   time without a branch: which element is the largest is not foreseen, so each branch would cost more than the window. */
typedef float floats __attribute__((vector_size(16)));
typedef int32_t float_lanes __attribute__((vector_size(16)));
typedef double doubles __attribute__((vector_size(16)));
typedef int64_t double_lanes __attribute__((vector_size(16)));
#define PICK_floats(p, u) {p[0][u], p[1][u], p[2][u], p[3][u]}
#define PICK_doubles(p, u) {p[0][u], p[1][u]}
#define LARGEST_INSIDE(T, V, I) do { enum { LANES = 16 / sizeof(T) }; \
    for (int64_t g = 0; w->inner >= LANES && g < w->inner; g += LANES) { \
        if (g > w->inner - LANES) g = w->inner - LANES; \
        const int64_t *first = w->first + g, *place = w->place + g; const T *p[LANES]; \
        for (int l = 0; l < LANES; l++) p[l] = plane + first[l]; \
        V top = PICK_##V(p, 0); I seen = {0}; \
        for (int64_t t = 0; t < w->taps; t++) { \
            const int64_t u = w->offset[t]; const V v = PICK_##V(p, u); const I more = (v > top) | (v != v); \
            top = (V)((more & (I)v) | (~more & (I)top)); seen = (more & ((I){0} + (__typeof__(seen[0]))u)) | (~more & seen); } \
        for (int l = 0; l < LANES; l++) { value[place[l]] = top[l]; at[place[l]] = first[l] + seen[l]; } } } while (0)
#define INSIDE_float LARGEST_INSIDE(float, floats, float_lanes)
#define INSIDE_double LARGEST_INSIDE(double, doubles, double_lanes)
#define LARGEST(T) do { T *value = (T *)w->values + n * w->places; int64_t *at = w->at + n * w->places; \
    INSIDE_##T; \
    for (int64_t h = 0; h < w->outer; h++) { const int64_t o = w->border[h], k = o % w->out[2], j = o / w->out[2] % w->out[1], i = o / w->out[2] / w->out[1]; \
        int64_t best = -1; T top = 0; \
        for (int64_t a = 0; a < w->kernel[0]; a++) { int64_t z = i * w->stride[0] - w->pad[0] + a * w->dilation[0]; if (z < 0 || z >= w->in[0]) continue; \
            for (int64_t b = 0; b < w->kernel[1]; b++) { int64_t y = j * w->stride[1] - w->pad[1] + b * w->dilation[1]; if (y < 0 || y >= w->in[1]) continue; \
                int64_t line = (z * w->in[1] + y) * w->in[2], start = k * w->stride[2] - w->pad[2]; \
                for (int64_t c = 0; c < w->kernel[2]; c++) { int64_t u = start + c * w->dilation[2]; if (u < 0 || u >= w->in[2]) continue; \
                    T v = plane[line + u]; if (best < 0 || v > top || v != v) { top = v; best = line + u; } } } } \
        value[o] = top; at[o] = best; } } while (0)
PLANES(pool_planes, LARGEST)

/* What the pooled places got is added where they stand. */
#define PUT(T) do { const T *value = (const T *)w->values + n * w->places; const int64_t *at = w->at + n * w->places; \
    memset(plane, 0, w->cells * sizeof(T)); \
    for (int64_t o = 0; o < w->places; o++) plane[at[o]] += value[o]; } while (0)
PLANES(put_planes, PUT)

/* Where the window of place o lies inside dimension d: [*first, *end); how many of its elements count. */
static inline int64_t counted(const Windows *w, int d, int64_t o, int64_t *first, int64_t *end) {
    int64_t f = o * w->stride[d] - w->pad[d], e = f + w->kernel[d];
    if (e > w->in[d] + w->pad[d]) e = w->in[d] + w->pad[d];
    *first = f < 0 ? 0 : f; *end = e > w->in[d] ? w->in[d] : e;
    return w->include ? e - f : *end - *first;
}
#define AVERAGED(T, BEFORE, EACH, AFTER) do { T *value = (T *)w->values + n * w->places; \
    for (int64_t i = 0, f0, e0, f1, e1, f2, e2; i < w->out[0]; i++) for (int64_t c0 = counted(w, 0, i, &f0, &e0), j = 0; j < w->out[1]; j++) \
        for (int64_t c1 = counted(w, 1, j, &f1, &e1), k = 0; k < w->out[2]; k++, value++) { \
            const int64_t c2 = counted(w, 2, k, &f2, &e2); const T by = w->by ? w->by : (T)(c0 * c1 * c2); BEFORE; \
            for (int64_t a = f0; a < e0; a++) for (int64_t b = f1; b < e1; b++) { T *line = plane + (a * w->in[1] + b) * w->in[2]; \
                for (int64_t c = f2; c < e2; c++) { EACH; } } \
            AFTER; } } while (0)
#define AVERAGE(T) AVERAGED(T, T sum = 0, sum += line[c], *value = sum / by)
#define AVERAGE_BACK(T) memset(plane, 0, w->cells * sizeof(T)); AVERAGED(T, const T share = *value / by, line[c] += share, )
PLANES(average_planes, AVERAGE)
PLANES(average_back_planes, AVERAGE_BACK)

static int three(PyObject *o, int64_t *to, int64_t fill) {
    int64_t v[FL_MAXDIM]; int n = fl_ints(o, v, "windows", "sizes");
    if (n < 0) return -1;
    if (n > 3) { PyErr_SetString(PyExc_ValueError, "windows: at most three dimensions"); return -1; }
    for (int i = 0; i < 3; i++) to[i] = i < 3 - n ? fill : v[i - 3 + n];
    return 0;
}
static Tensor *dense_of(PyObject *o, int code) {
    Tensor *t = Tensor_Check(o) ? (Tensor *)o : NULL;
    if (!t || t->dtype->code != code || !t->contiguous || (t->numel && !t->storage->data)) { PyErr_SetString(PyExc_ValueError, "windows: contiguous tensors of one dtype"); return NULL; }
    return t;
}
/* w from planes x (N, C, *in) and, where given, tuples of the windows. */
static int windows(Windows *w, Tensor *x, PyObject *const *options, const int64_t *out, int d) {
    int nd = x->ndim - 2;
    if (nd < 1 || nd > 3 || (x->dtype->code != FL_F32 && x->dtype->code != FL_F64)) { PyErr_SetString(PyExc_ValueError, "windows: planes of float32 or float64"); return -1; }
    for (int i = 0; i < 3; i++) { w->in[i] = i < 3 - nd ? 1 : x->sizes[2 + i - 3 + nd]; w->out[i] = i < 3 - d ? 1 : out[i - 3 + d]; }
    if (options && (three(options[0], w->kernel, 1) || three(options[1], w->stride, 1) || three(options[2], w->pad, 0) || three(options[3], w->dilation, 1))) return -1;
    w->cells = w->in[0] * w->in[1] * w->in[2]; w->places = w->out[0] * w->out[1] * w->out[2]; w->taps = w->kernel[0] * w->kernel[1] * w->kernel[2];
    w->wide = x->dtype->code == FL_F64; w->x = fl_data(x); w->channels = x->sizes[1] ? x->sizes[1] : 1;
    return 0;
}
static void over_planes(fl_range f, Windows *w, Tensor *x, int64_t each) {
    int64_t planes = x->sizes[0] * x->sizes[1];
    PyThreadState *save = planes * each > 20000 ? PyEval_SaveThread() : NULL;
    fl_parallel_for(f, w, planes, each > 16384 ? 1 : 16384 / (each + 1) + 1, (const void *)(intptr_t)f, planes * each);
    if (save) PyEval_RestoreThread(save);
}
/* columns(cols, x, kernel, stride, padding, dilation, add): the windows of planes x (N, C, *in) as cols
   (N, C, taps, *out), whose last dimensions are contiguous; with `add` x becomes the sum of its windows' cols. */
static PyObject *f_columns(PyObject *m, PyObject *const *a, Py_ssize_t n) {
    Windows w = {0};
    if (n != 7 || !Tensor_Check(a[0]) || !Tensor_Check(a[1])) { PyErr_SetString(PyExc_TypeError, "columns(cols, x, kernel, stride, padding, dilation, add)"); return NULL; }
    Tensor *cols = (Tensor *)a[0], *x = dense_of(a[1], cols->dtype->code);
    if (!x) return NULL;
    int d = x->ndim - 2;
    if (cols->ndim != d + 3 || windows(&w, x, a + 2, cols->sizes + 3, d)) { if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "columns: (N, C, taps, *out)"); return NULL; }
    int64_t inner = 1, good = cols->sizes[0] == x->sizes[0] && cols->sizes[1] == x->sizes[1] && cols->sizes[2] == w.taps && cols->strides[1] == w.taps * cols->strides[2];
    for (int i = d + 2; i > 2; i--) { good &= cols->strides[i] == inner || cols->sizes[i] == 1; inner *= cols->sizes[i]; }
    if (!good) { PyErr_SetString(PyExc_ValueError, "columns: strides that are not served"); return NULL; }
    w.by_image = cols->strides[0]; w.by_row = cols->strides[2];
    if (!x->numel || !cols->numel) Py_RETURN_NONE;
    w.cols = fl_data(cols);
    over_planes(PyObject_IsTrue(a[6]) ? add_planes : gather_planes, &w, x, w.taps * w.places);
    Py_RETURN_NONE;
}
/* The places of the windows, those that lie inside apart from those that reach over the border. */
static int sorted_places(Windows *w) {
    int64_t *o = w->offset = PyMem_RawMalloc((w->taps + 2 * w->places) * sizeof(int64_t)), from[3], inside = 1;
    if (!o) return 0;
    for (int64_t a = 0; a < w->kernel[0]; a++) for (int64_t b = 0; b < w->kernel[1]; b++) for (int64_t c = 0; c < w->kernel[2]; c++)
        *o++ = (a * w->dilation[0] * w->in[1] + b * w->dilation[1]) * w->in[2] + c * w->dilation[2];
    w->place = o; w->first = w->border = o + w->places;  /* `place` is filled from both ends */
    for (int64_t n = 0; n < w->places; n++, inside = 1) {
        int64_t rest = n;
        for (int d = 2; d >= 0; d--) {
            from[d] = rest % w->out[d] * w->stride[d] - w->pad[d]; rest /= w->out[d];
            inside &= from[d] >= 0 && from[d] + (w->kernel[d] - 1) * w->dilation[d] < w->in[d];
        }
        if (inside && w->cells < INT32_MAX) { w->place[w->inner] = n; w->first[w->inner++] = (from[0] * w->in[1] + from[1]) * w->in[2] + from[2]; }
        else *--w->border = n;
    }
    if (w->inner < (w->wide ? 2 : 4)) { w->border = w->place; w->inner = 0; }
    w->outer = w->places - w->inner;
    return 1;
}
/* largest(out, places, x, kernel, stride, padding, dilation): the largest of each window and where it is. */
static PyObject *f_largest(PyObject *m, PyObject *const *a, Py_ssize_t n) {
    Windows w = {0};
    if (n != 7 || !Tensor_Check(a[2])) { PyErr_SetString(PyExc_TypeError, "largest(out, places, x, kernel, stride, padding, dilation)"); return NULL; }
    Tensor *x = (Tensor *)a[2], *out = dense_of(a[0], x->dtype->code), *at = out ? dense_of(a[1], FL_I64) : NULL;
    if (!at || !dense_of(a[2], x->dtype->code)) return NULL;
    if (out->ndim != x->ndim || at->numel != out->numel || windows(&w, x, a + 3, out->sizes + 2, x->ndim - 2)) { if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "largest: ranks differ"); return NULL; }
    if (!out->numel || !x->numel) Py_RETURN_NONE;
    w.values = fl_data(out); w.at = (int64_t *)fl_data(at);
    if (!sorted_places(&w)) return PyErr_NoMemory();
    over_planes(pool_planes, &w, x, w.taps * w.places);
    PyMem_RawFree(w.offset);
    Py_RETURN_NONE;
}
/* put_back(x, values, places): planes x of zeros, the values added at their flat places. */
static PyObject *f_put_back(PyObject *m, PyObject *const *a, Py_ssize_t n) {
    Windows w = {0};
    if (n != 3 || !Tensor_Check(a[0])) { PyErr_SetString(PyExc_TypeError, "put_back(x, values, places)"); return NULL; }
    Tensor *x = (Tensor *)a[0], *v = dense_of(a[1], x->dtype->code), *at = v ? dense_of(a[2], FL_I64) : NULL;
    if (!at || !dense_of(a[0], x->dtype->code)) return NULL;
    if (v->ndim != x->ndim || at->numel != v->numel || windows(&w, x, NULL, v->sizes + 2, x->ndim - 2)) { if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "put_back: ranks differ"); return NULL; }
    const int64_t *p = v->numel ? (const int64_t *)fl_data(at) : NULL;
    for (int64_t i = 0; i < at->numel; i++) if (p[i] < 0 || p[i] >= w.cells) { PyErr_SetString(PyExc_RuntimeError, "put_back: a place outside the plane"); return NULL; }
    if (!x->numel) Py_RETURN_NONE;
    w.values = v->numel ? fl_data(v) : NULL; w.at = (int64_t *)p;
    over_planes(put_planes, &w, x, w.cells + w.places);
    Py_RETURN_NONE;
}
/* averages(places, x, kernel, stride, padding, dilation, include, by, back): the mean of each window, over `by` where that
   is not 0; `include`: zeros around count. With `back`, x becomes what the places' shares add up to. */
static PyObject *f_averages(PyObject *m, PyObject *const *a, Py_ssize_t n) {
    Windows w = {0};
    if (n != 9 || !Tensor_Check(a[1])) { PyErr_SetString(PyExc_TypeError, "averages(places, x, kernel, stride, padding, dilation, include, by, back)"); return NULL; }
    Tensor *x = (Tensor *)a[1], *places = dense_of(a[0], x->dtype->code);
    if (!places || !dense_of(a[1], x->dtype->code)) return NULL;
    w.include = PyObject_IsTrue(a[6]); w.by = PyFloat_AsDouble(a[7]);
    int back = PyObject_IsTrue(a[8]);
    if (PyErr_Occurred()) return NULL;
    if (places->ndim != x->ndim || windows(&w, x, a + 2, places->sizes + 2, x->ndim - 2)) { if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "averages: ranks differ"); return NULL; }
    if (!x->numel || (!back && !places->numel)) Py_RETURN_NONE;
    w.values = places->numel ? fl_data(places) : NULL;
    over_planes(back ? average_back_planes : average_planes, &w, x, w.cells + w.taps * w.places);
    Py_RETURN_NONE;
}
static PyMethodDef functions[] = {{"averages", (PyCFunction)f_averages, METH_FASTCALL}, {"columns", (PyCFunction)f_columns, METH_FASTCALL}, {"largest", (PyCFunction)f_largest, METH_FASTCALL}, {"put_back", (PyCFunction)f_put_back, METH_FASTCALL}, {0}};
int fl_windows_init(PyObject *m) { return PyModule_AddFunctions(m, functions); }
