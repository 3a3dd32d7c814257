/* dtype, device and the tensor record: (storage, dtype, offset, sizes, strides) plus what autograd
   keeps beside it. Public methods are attached from Python (core/tensor.py and the operator table). */
#include "native.h"
#include "numbers.h"
#include "tape.h"

DType *fl_dtypes[FL_NDTYPES];
Device *fl_cpu;
PyTypeObject *TensorType, *SizeType;
static PyObject *str_function, *str_dispatch, *disabled_function;

/* ---- dtype ---- */
static PyObject *dtype_new(PyTypeObject *tp, PyObject *args, PyObject *kw) {
    const char *name; int code, size, flags;
    if (!PyArg_ParseTuple(args, "siii", &name, &code, &size, &flags)) return NULL;
    if (code < 0 || code >= FL_NDTYPES) { PyErr_SetString(PyExc_ValueError, "dtype code out of range"); return NULL; }
    if (fl_dtypes[code]) return Py_NewRef((PyObject *)fl_dtypes[code]);
    DType *d = PyObject_New(DType, &DTypeType);
    if (!d) return NULL;
    d->code = code; d->itemsize = size; d->flags = flags; d->name = PyUnicode_InternFromString(name);
    fl_dtypes[code] = (DType *)Py_NewRef((PyObject *)d);
    return (PyObject *)d;
}
static PyObject *dtype_repr(DType *d) { return PyUnicode_FromFormat("torch.%U", d->name); }
static PyObject *dtype_reduce(DType *d, PyObject *u) { return Py_NewRef(d->name); }
static PyObject *dtype_flag(DType *d, void *f) { return PyBool_FromLong(d->flags & (int)(intptr_t)f); }
static PyGetSetDef dtype_getset[] = {
    {"is_floating_point", (getter)dtype_flag, NULL, NULL, (void *)FL_FLOATING},
    {"is_complex", (getter)dtype_flag, NULL, NULL, (void *)FL_COMPLEX},
    {"is_signed", (getter)dtype_flag, NULL, NULL, (void *)FL_SIGNED}, {0}};
static PyMemberDef dtype_members[] = {
    {"itemsize", T_INT, offsetof(DType, itemsize), READONLY}, {"code", T_INT, offsetof(DType, code), READONLY},
    {"name", T_OBJECT, offsetof(DType, name), READONLY}, {0}};
static PyObject *call_hook(const char *name, PyObject *args);
static PyObject *dtype_real(PyObject *d, PyObject *u) { return call_hook("dtype_to_real", Py_BuildValue("(O)", d)); }
static PyObject *dtype_complex(PyObject *d, PyObject *u) { return call_hook("dtype_to_complex", Py_BuildValue("(O)", d)); }
static PyMethodDef dtype_methods[] = {{"__reduce__", (PyCFunction)dtype_reduce, METH_NOARGS}, {"to_real", dtype_real, METH_NOARGS},
    {"to_complex", dtype_complex, METH_NOARGS}, {0}};
PyTypeObject DTypeType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "flambeau.dtype", .tp_basicsize = sizeof(DType), .tp_new = dtype_new,
    .tp_repr = (reprfunc)dtype_repr, .tp_flags = Py_TPFLAGS_DEFAULT, .tp_getset = dtype_getset,
    .tp_members = dtype_members, .tp_methods = dtype_methods};

/* ---- device ---- */
static const char *device_names[] = {"cpu", "cuda", "mkldnn", "opengl", "opencl", "ideep", "hip", "fpga", "maia", "xla", "vulkan",
    "metal", "xpu", "mps", "meta", "hpu", "ve", "lazy", "ipu", "mtia", "privateuseone"};
enum { NDEVICE = sizeof device_names / sizeof *device_names };
static PyObject *device_make(int type, int index) {
    Device *d = PyObject_New(Device, &DeviceType);
    if (d) { d->type = type; d->index = index; }
    return (PyObject *)d;
}
static int device_parse(const char *s, int *type, int *index) {
    const char *colon = strchr(s, ':');
    size_t n = colon ? (size_t)(colon - s) : strlen(s);
    *index = -1;
    for (*type = 0; *type < NDEVICE; ++*type)
        if (strlen(device_names[*type]) == n && !strncmp(s, device_names[*type], n)) break;
    if (*type == NDEVICE) {
        if (!n) PyErr_SetString(PyExc_RuntimeError, "Device string must not be empty");
        else {
            PyObject *head = PyUnicode_FromStringAndSize(s, n);
            if (head) PyErr_Format(PyExc_RuntimeError, "Expected one of cpu, cuda, ipu, xpu, mkldnn, opengl, opencl, ideep, hip, ve, fpga, maia, xla, lazy, "
                     "vulkan, mps, meta, hpu, mtia, privateuseone device type at start of device string: %U", head);
            Py_XDECREF(head);
        }
        return -1;
    }
    if (colon) {
        char *end; long v = strtol(colon + 1, &end, 10);
        if (end == colon + 1 || *end || v < 0 || v > 127 || (colon[1] == '0' && colon[2])) { PyErr_Format(PyExc_RuntimeError, "Invalid device string: '%s'", s); return -1; }
        *index = (int)v;
    }
    return 0;
}
static PyObject *device_new(PyTypeObject *tp, PyObject *args, PyObject *kw) {
    static char *names[] = {"type", "index", NULL};
    PyObject *o = NULL, *idx = NULL; int type, index;
    if (PyTuple_GET_SIZE(args) == 0 && kw && PyDict_GetItemString(kw, "device")) {
        static char *alt[] = {"device", NULL};
        if (!PyArg_ParseTupleAndKeywords(args, kw, "O", alt, &o)) return NULL;
    } else if (!PyArg_ParseTupleAndKeywords(args, kw, "O|O", names, &o, &idx)) return NULL;
    if (Py_TYPE(o) == &DeviceType) return Py_NewRef(o);
    if (PyLong_Check(o)) { PyErr_SetString(PyExc_RuntimeError, "Cannot access accelerator device when none is available."); return NULL; }
    if (!PyUnicode_Check(o)) { PyErr_Format(PyExc_TypeError, "device(): argument 'type' must be str, not %.100s", Py_TYPE(o)->tp_name); return NULL; }
    const char *s = PyUnicode_AsUTF8(o);
    if (!s || device_parse(s, &type, &index)) return NULL;
    if (idx && idx != Py_None) {
        if (index >= 0) { PyErr_Format(PyExc_RuntimeError, "type (string) must not include an index because index was passed explicitly: %s", s); return NULL; }
        index = (int)PyLong_AsLong(idx);
        if (index < 0) { if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "Device index must not be negative"); return NULL; }
    }
    return device_make(type, index);
}
static PyObject *device_str(Device *d) {
    return d->index < 0 ? PyUnicode_FromString(device_names[d->type]) : PyUnicode_FromFormat("%s:%d", device_names[d->type], d->index);
}
static PyObject *device_repr(Device *d) {
    return d->index < 0 ? PyUnicode_FromFormat("device(type='%s')", device_names[d->type])
                        : PyUnicode_FromFormat("device(type='%s', index=%d)", device_names[d->type], d->index);
}
static Py_hash_t device_hash(Device *d) { return d->type * 131 + d->index + 7; }
static PyObject *device_compare(Device *a, PyObject *b, int op) {
    if (Py_TYPE(b) != &DeviceType || (op != Py_EQ && op != Py_NE)) Py_RETURN_NOTIMPLEMENTED;
    int eq = a->type == ((Device *)b)->type && a->index == ((Device *)b)->index;
    return PyBool_FromLong(eq == (op == Py_EQ));
}
static PyObject *device_type(Device *d, void *c) { return PyUnicode_FromString(device_names[d->type]); }
static PyObject *device_index(Device *d, void *c) { if (d->index < 0) Py_RETURN_NONE; return PyLong_FromLong(d->index); }
static PyObject *device_reduce(Device *d, PyObject *u) {
    return d->index < 0 ? Py_BuildValue("O(s)", &DeviceType, device_names[d->type]) : Py_BuildValue("O(si)", &DeviceType, device_names[d->type], d->index);
}
static PyObject *call_hook(const char *name, PyObject *args) {   /* steals args */
    PyObject *f = PyDict_GetItemString(fl_hooks, name), *r = NULL;
    if (!args) return NULL;
    if (!f) PyErr_Format(PyExc_SystemError, "flambeau._native: hook %s is not filled; import flambeau first", name);
    else r = PyObject_CallObject(f, args);
    Py_DECREF(args);
    return r;
}
static PyObject *device_enter(PyObject *d, PyObject *u) { return call_hook("device_enter", Py_BuildValue("(O)", d)); }
static PyObject *device_exit(PyObject *d, PyObject *a) { return call_hook("device_exit", Py_BuildValue("(O)", d)); }
static PyGetSetDef device_getset[] = {{"type", (getter)device_type}, {"index", (getter)device_index}, {0}};
static PyMethodDef device_methods[] = {{"__reduce__", (PyCFunction)device_reduce, METH_NOARGS},
    {"__enter__", device_enter, METH_NOARGS}, {"__exit__", device_exit, METH_VARARGS}, {0}};
PyTypeObject DeviceType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "flambeau.device", .tp_basicsize = sizeof(Device), .tp_new = device_new,
    .tp_repr = (reprfunc)device_repr, .tp_str = (reprfunc)device_str, .tp_hash = (hashfunc)device_hash,
    .tp_richcompare = (richcmpfunc)device_compare, .tp_flags = Py_TPFLAGS_DEFAULT, .tp_getset = device_getset,
    .tp_methods = device_methods};

/* ---- version cells ---- */
PyTypeObject VersionCellType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "flambeau._native.VersionCell", .tp_basicsize = sizeof(VersionCell), .tp_flags = Py_TPFLAGS_DEFAULT};

/* ---- making tensors ---- */
PyObject *fl_size(int n, const int64_t *v) {
    PyObject *t = SizeType->tp_alloc(SizeType, n);
    for (int i = 0; t && i < n; i++) {
        PyObject *x = PyLong_FromLongLong(v[i]);
        if (!x) { Py_CLEAR(t); break; }
        PyTuple_SET_ITEM(t, i, x);
    }
    return t;
}
int fl_layer_bits(PyTypeObject *type) {
    int bits = 0;
    PyObject *f = _PyType_Lookup(type, str_function), *d = _PyType_Lookup(type, str_dispatch);
    if (f && f != disabled_function) bits |= FL_L_FUNCTION;
    if (d && d != disabled_function && d != Py_None) bits |= FL_L_DISPATCH;
    PyErr_Clear();
    return bits;
}
Tensor *fl_tensor_alloc(PyTypeObject *type, Storage *s, DType *d, int ndim) {
    if (!s) return NULL;
    Tensor *t = (Tensor *)type->tp_alloc(type, 0);
    if (!t) { Py_DECREF(s); return NULL; }
    t->storage = s;
    t->dtype = (DType *)Py_NewRef((PyObject *)d);
    t->ndim = ndim;
    t->born = fl_state.level;
    if (ndim <= FL_INLINE_DIMS) { t->sizes = t->inl; t->strides = t->inl + FL_INLINE_DIMS; }
    else {
        t->sizes = PyMem_Malloc(2 * ndim * sizeof(int64_t)); t->strides = t->sizes + ndim;
        if (!t->sizes) { t->sizes = t->inl; Py_DECREF(t); PyErr_NoMemory(); return NULL; }
    }
    if (type != TensorType) t->bits = fl_layer_bits(type);
    return t;
}
void fl_tensor_done(Tensor *t) {
    int64_t n = 1, c = 1, dense = 1;
    for (int i = t->ndim; i--;) {
        if (t->sizes[i] != 1) { dense &= t->strides[i] == c; c *= t->sizes[i]; }
        n *= t->sizes[i];
    }
    t->numel = n; t->contiguous = n == 0 || dense;
}
static int64_t span(int ndim, const int64_t *sizes, const int64_t *strides) {
    int64_t n = 1;
    for (int i = 0; i < ndim; i++) { if (!sizes[i]) return 0; n += (sizes[i] - 1) * strides[i]; }
    return n;
}
Tensor *fl_empty(int ndim, const int64_t *sizes, const int64_t *strides, DType *d, Device *dev) {
    int64_t n;
    if (strides) n = span(ndim, sizes, strides);
    else { n = 1; for (int i = 0; i < ndim; i++) n *= sizes[i]; }
    Storage *s = dev->type == 0 ? fl_storage_new(n * d->itemsize, dev) : fl_storage_fake(n * d->itemsize, dev);
    Tensor *t = fl_tensor_alloc(TensorType, s, d, ndim);
    if (!t) return NULL;
    if (strides) {
        for (int i = 0; i < ndim; i++) { t->sizes[i] = sizes[i]; t->strides[i] = strides[i]; }
        fl_tensor_done(t);
    } else {
        int64_t c = 1, all = 1;
        for (int i = ndim; i--;) { t->sizes[i] = sizes[i]; t->strides[i] = c; c *= sizes[i] > 1 ? sizes[i] : 1; all *= sizes[i]; }
        t->numel = all; t->contiguous = 1;
    }
    if (fl_state.inference) t->flags |= FL_T_INFERENCE;
    return t;
}
static Tensor *alias_as(PyTypeObject *type, Tensor *t, int ndim, const int64_t *sizes, const int64_t *strides, int64_t offset) {
    Tensor *v = fl_tensor_alloc(type, (Storage *)Py_NewRef((PyObject *)t->storage), t->dtype, ndim);
    if (!v) return NULL;
    for (int i = 0; i < ndim; i++) { v->sizes[i] = sizes[i]; v->strides[i] = strides[i]; }
    v->offset = offset;
    v->vcell = (VersionCell *)Py_XNewRef((PyObject *)t->vcell);
    v->sym = Py_XNewRef(t->sym);
    v->flags = t->flags & (FL_T_INFERENCE | FL_T_CONJ | FL_T_NEG);
    v->born = t->born;
    fl_tensor_done(v);
    return v;
}
Tensor *fl_alias(Tensor *t, int ndim, const int64_t *sizes, const int64_t *strides, int64_t offset) {
    return alias_as(TensorType, t, ndim, sizes, strides, offset);
}
Tensor *fl_geometry(Tensor *t) {
    Tensor *g = fl_tensor_alloc(TensorType, fl_storage_fake(t->storage->nbytes, t->storage->device), t->dtype, t->ndim);
    if (!g) return NULL;
    memcpy(g->sizes, t->sizes, t->ndim * sizeof(int64_t));
    memcpy(g->strides, t->strides, t->ndim * sizeof(int64_t));
    g->numel = t->numel; g->contiguous = t->contiguous; g->offset = t->offset; g->bits = FL_L_GEOMETRY;
    g->sym = Py_XNewRef(t->sym);
    return g;
}

static int traverse(Tensor *t, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(t)); Py_VISIT(t->grad); Py_VISIT(t->grad_fn); Py_VISIT(t->base); Py_VISIT(t->meta); Py_VISIT(t->dict); Py_VISIT(t->sym);
    return 0;
}
static int clear(Tensor *t) {
    Py_CLEAR(t->grad); Py_CLEAR(t->grad_fn); Py_CLEAR(t->base); Py_CLEAR(t->meta); Py_CLEAR(t->dict);
    return 0;
}
static void dealloc(Tensor *t) {
    PyTypeObject *tp = Py_TYPE(t);
    PyObject_GC_UnTrack(t);
    Py_TRASHCAN_BEGIN(t, dealloc)
    if (t->weakrefs) PyObject_ClearWeakRefs((PyObject *)t);
    clear(t);
    Py_XDECREF(t->sym); Py_XDECREF(t->vcell); Py_XDECREF(t->storage); Py_XDECREF(t->dtype);
    if (t->sizes && t->sizes != t->inl) PyMem_Free(t->sizes);
    tp->tp_free((PyObject *)t);
    Py_DECREF(tp);
    Py_TRASHCAN_END
}
static PyObject *tensor_new(PyTypeObject *tp, PyObject *args, PyObject *kw) {
    return call_hook("new_tensor", Py_BuildValue("(OOO)", tp, args, kw ? kw : Py_None));
}

/* ---- arguments ---- */
int fl_ints(PyObject *o, int64_t *out, const char *fname, const char *arg) {
    PyObject **v; Py_ssize_t n;
    if (PyTuple_Check(o)) { v = &PyTuple_GET_ITEM(o, 0); n = PyTuple_GET_SIZE(o); }
    else if (PyList_Check(o)) { v = &PyList_GET_ITEM(o, 0); n = PyList_GET_SIZE(o); }
    else { v = &o; n = 1; }
    if (n > FL_MAXDIM) { PyErr_Format(PyExc_RuntimeError, "%s(): too many dimensions: %zd", fname, n); return -1; }
    for (Py_ssize_t i = 0; i < n; i++) {
        if (!PyLong_Check(v[i])) {
            PyErr_Format(PyExc_TypeError, "%s(): argument '%s' must be tuple of ints, but found element of type %.100s at pos %zd", fname, arg, Py_TYPE(v[i])->tp_name, i);
            return -1;
        }
        out[i] = PyLong_AsLongLong(v[i]);
        if (out[i] == -1 && PyErr_Occurred()) return -1;
    }
    return (int)n;
}

static PyObject *call_hook(const char *name, PyObject *args);
/* As fl_ints, symbolic ints by their hint; *symbolic is set when there is one. */
static int ints_or_symbols(PyObject *o, int64_t *out, const char *fname, const char *arg, int *symbolic) {
    Py_ssize_t n = PyTuple_Check(o) || PyList_Check(o) ? PySequence_Fast_GET_SIZE(o) : -1;
    int any = 0;
    for (Py_ssize_t i = 0; i < n && !any; i++) any = !PyLong_Check(PySequence_Fast_GET_ITEM(o, i));
    if (!any) return fl_ints(o, out, fname, arg);
    PyObject *hints = call_hook("size_hints", Py_BuildValue("(O)", o));     /* None: no symbolic int among them */
    if (!hints) return -1;
    if (hints == Py_None) { Py_DECREF(hints); return fl_ints(o, out, fname, arg); }
    *symbolic = 1;
    int k = fl_ints(hints, out, fname, arg);
    Py_DECREF(hints);
    return k;
}
static int one_int_or_symbol(PyObject *o, int64_t *out, int *symbolic) {
    if (PyLong_Check(o)) { *out = PyLong_AsLongLong(o); return *out == -1 && PyErr_Occurred() ? -1 : 0; }
    PyObject *t = PyTuple_Pack(1, o);
    int k = t ? ints_or_symbols(t, out, "as_strided", "storage_offset", symbolic) : -1;
    Py_XDECREF(t);
    return k < 0 ? -1 : 0;
}
/* What programs see of t's geometry from now on: (Size, strides, offset) with symbolic ints, or plain numbers. */
static int take_symbols(Tensor *t, int symbolic, PyObject *size, PyObject *stride, PyObject *offset) {
    PyObject *sym = symbolic ? call_hook("symbolic_geometry", Py_BuildValue("(OOO)", size, stride, offset)) : NULL;
    if (symbolic && !sym) return -1;
    Py_XSETREF(t->sym, sym);
    return 0;
}

/* ---- scalars ---- */
PyObject *fl_element(int code, const char *p) {
    switch (code) {
    case FL_BOOL: return PyBool_FromLong(*(uint8_t *)p);
    case FL_U8: return PyLong_FromLong(*(uint8_t *)p);
    case FL_I8: return PyLong_FromLong(*(int8_t *)p);
    case FL_I16: return PyLong_FromLong(*(int16_t *)p);
    case FL_U16: return PyLong_FromLong(*(uint16_t *)p);
    case FL_I32: return PyLong_FromLong(*(int32_t *)p);
    case FL_U32: return PyLong_FromUnsignedLong(*(uint32_t *)p);
    case FL_I64: return PyLong_FromLongLong(*(int64_t *)p);
    case FL_U64: return PyLong_FromUnsignedLongLong(*(uint64_t *)p);
    case FL_F16: return PyFloat_FromDouble(half_to_float(*(uint16_t *)p));
    case FL_BF16: return PyFloat_FromDouble(bf16_to_float(*(uint16_t *)p));
    case FL_F8E5: return PyFloat_FromDouble(e5m2_to_float(*(uint8_t *)p));
    case FL_F8E4: return PyFloat_FromDouble(e4m3_to_float(*(uint8_t *)p));
    case FL_F32: return PyFloat_FromDouble(*(float *)p);
    case FL_F64: return PyFloat_FromDouble(*(double *)p);
    case FL_C32: return PyComplex_FromDoubles(half_to_float(((uint16_t *)p)[0]), half_to_float(((uint16_t *)p)[1]));
    case FL_C64: return PyComplex_FromDoubles(((float *)p)[0], ((float *)p)[1]);
    default: return PyComplex_FromDoubles(((double *)p)[0], ((double *)p)[1]);
    }
}
/* Store a Python number at out in the given dtype: 1 when the dtype's class cannot hold it. */
int fl_store_scalar(int code, PyObject *v, void *out) {
    int isb = PyBool_Check(v), isi = PyLong_Check(v), isf = PyFloat_Check(v), isc = PyComplex_Check(v);
    if (!isi && !isf && !isc) return 1;
    if (code == FL_C64 || code == FL_C128 || code == FL_C32) {
        Py_complex c = PyComplex_AsCComplex(v);
        if (c.real == -1 && PyErr_Occurred()) return -1;
        if (code == FL_C128) { ((double *)out)[0] = c.real; ((double *)out)[1] = c.imag; }
        else if (code == FL_C64) { ((float *)out)[0] = (float)c.real; ((float *)out)[1] = (float)c.imag; }
        else { ((uint16_t *)out)[0] = float_to_half((float)c.real); ((uint16_t *)out)[1] = float_to_half((float)c.imag); }
        return 0;
    }
    if (isc) return 1;
    if (code == FL_F32 || code == FL_F64 || code == FL_F16 || code == FL_BF16 || code == FL_F8E5 || code == FL_F8E4) {
        double d = isf ? PyFloat_AS_DOUBLE(v) : PyLong_AsDouble(v);
        if (d == -1 && PyErr_Occurred()) return -1;
        switch (code) {
        case FL_F64: *(double *)out = d; break;
        case FL_F32: *(float *)out = (float)d; break;
        case FL_F16: *(uint16_t *)out = float_to_half((float)d); break;
        case FL_BF16: *(uint16_t *)out = float_to_bf16((float)d); break;
        case FL_F8E5: *(uint8_t *)out = float_to_e5m2((float)d); break;
        default: *(uint8_t *)out = float_to_e4m3((float)d);
        }
        return 0;
    }
    if (isf) return 1;
    if (code == FL_BOOL) { if (!isb) return 1; *(uint8_t *)out = v == Py_True; return 0; }
    int over; long long x = PyLong_AsLongLongAndOverflow(v, &over);
    if (over) {
        if (code != FL_U64 || over < 0) return 1;
        unsigned long long u = PyLong_AsUnsignedLongLong(v);
        if (PyErr_Occurred()) { PyErr_Clear(); return 1; }
        *(uint64_t *)out = u;
        return 0;
    }
    switch (code) {
    case FL_U8: *(uint8_t *)out = (uint8_t)x; return 0;
    case FL_I8: *(int8_t *)out = (int8_t)x; return 0;
    case FL_I16: case FL_U16: *(uint16_t *)out = (uint16_t)x; return 0;
    case FL_I32: case FL_U32: *(uint32_t *)out = (uint32_t)x; return 0;
    default: *(int64_t *)out = x; return 0;
    }
}
PyObject *fl_item(Tensor *t) {
    FL_UNSEEN();
    if (t->numel != 1) { PyErr_Format(PyExc_RuntimeError, "a Tensor with %lld elements cannot be converted to Scalar", (long long)t->numel); return NULL; }
    if (!t->storage->data) return call_hook("item_without_bytes", Py_BuildValue("(O)", t));
    PyObject *v = fl_element(t->dtype->code, fl_data(t));
    if (v && t->flags & (FL_T_CONJ | FL_T_NEG)) {
        if (t->flags & FL_T_CONJ && PyComplex_Check(v)) { Py_complex c = PyComplex_AsCComplex(v); Py_SETREF(v, PyComplex_FromDoubles(c.real, -c.imag)); }
        if (t->flags & FL_T_NEG) Py_SETREF(v, PyNumber_Negative(v));
    }
    return v;
}
static PyObject *item(Tensor *t, PyObject *u) {
    if ((t->bits & ~FL_L_FUNCTION) | (fl_state.active & ~FL_L_PROFILE & ~fl_state.suspended)) return call_hook("item", Py_BuildValue("(O)", t));
    return fl_item(t);
}
static PyObject *nested(Tensor *t, int dim, const char *p) {
    if (dim == t->ndim) return fl_element(t->dtype->code, p);
    PyObject *l = PyList_New(t->sizes[dim]);
    for (int64_t i = 0; l && i < t->sizes[dim]; i++) {
        PyObject *x = nested(t, dim + 1, p + i * t->strides[dim] * t->dtype->itemsize);
        if (!x) { Py_CLEAR(l); break; }
        PyList_SET_ITEM(l, i, x);
    }
    return l;
}
static PyObject *tolist(Tensor *t, PyObject *u) {
    FL_UNSEEN();
    if (t->bits || t->flags & (FL_T_CONJ | FL_T_NEG) || (!t->storage->data && t->numel)) return call_hook("tolist", Py_BuildValue("(O)", t));
    return nested(t, 0, fl_data(t));
}

/* ---- properties and methods ---- */
static PyObject *sym_part(Tensor *t, int i) { return Py_NewRef(PyTuple_GET_ITEM(t->sym, i)); }   /* (Size, strides tuple, offset) */
static PyObject *g_shape(Tensor *t, void *c) { return t->sym ? sym_part(t, 0) : fl_size(t->ndim, t->sizes); }
static PyObject *g_dtype(Tensor *t, void *c) { return Py_NewRef((PyObject *)t->dtype); }
static PyObject *g_device(Tensor *t, void *c) { return Py_NewRef((PyObject *)t->storage->device); }
static PyObject *g_ndim(Tensor *t, void *c) { return PyLong_FromLong(t->ndim); }
static PyObject *g_requires(Tensor *t, void *c) { int r = fl_requires_grad(t); return r < 0 ? NULL : PyBool_FromLong(r); }
static int s_requires(Tensor *t, PyObject *v, void *c) {
    PyObject *r = call_hook("set_requires_grad", Py_BuildValue("(OO)", t, v ? v : Py_None));
    Py_XDECREF(r);
    return r ? 0 : -1;
}
static PyObject *g_grad(Tensor *t, void *c) { FL_UNSEEN();
    if (!t->grad && t->requires_grad && t->grad_fn) { PyObject *r = call_hook("nonleaf_grad", Py_BuildValue("(O)", t)); if (!r) return NULL; Py_DECREF(r); }
    return Py_NewRef(t->grad ? t->grad : Py_None);
}
static PyObject *g_plain_grad(Tensor *t, void *c) { return Py_NewRef(t->grad ? t->grad : Py_None); }
int fl_set_grad(Tensor *t, PyObject *v);
static int s_grad(Tensor *t, PyObject *v, void *c) { return fl_set_grad(t, v); }
int fl_set_grad(Tensor *t, PyObject *v) {
    FL_UNSEEN();
    if (v && v != Py_None) {
        Tensor *g = (Tensor *)v;
        if (!Tensor_Check(v) || g->dtype != t->dtype || g->ndim != t->ndim || v == (PyObject *)t || g->storage->device->type != t->storage->device->type
            || memcmp(g->sizes, t->sizes, t->ndim * sizeof(int64_t))) {
            PyObject *r = call_hook("check_grad", Py_BuildValue("(OO)", t, v));
            if (!r) return -1;
            Py_DECREF(r);
        }
        Py_XSETREF(t->grad, Py_NewRef(v));
    } else Py_CLEAR(t->grad);
    return 0;
}
int fl_refresh(Tensor *t) {
    PyObject *r = call_hook("refresh_view", Py_BuildValue("(O)", t));
    Py_XDECREF(r);
    return r ? 0 : -1;
}
static PyObject *g_history(Tensor *t, void *c) { FL_UNSEEN(); return Py_NewRef(t->grad_fn ? t->grad_fn : Py_None); }
static PyObject *g_grad_fn(Tensor *t, void *c) { FL_UNSEEN();
    if (fl_stale_view(t) && fl_refresh(t) < 0) return NULL;
    return Py_NewRef(t->grad_fn ? t->grad_fn : Py_None);
}
static PyObject *g_leaf(Tensor *t, void *c) { FL_UNSEEN();
    if (fl_stale_view(t) && fl_refresh(t) < 0) return NULL;
    return PyBool_FromLong(!t->grad_fn);
}
static PyObject *g_version(Tensor *t, void *c) { FL_UNSEEN();
    if (t->flags & FL_T_INFERENCE) { PyErr_SetString(PyExc_RuntimeError, "Inference tensors do not track version counter."); return NULL; }
    return PyLong_FromLongLong(fl_version(t));
}
static PyObject *g_base(Tensor *t, void *c) { FL_UNSEEN(); return Py_NewRef(t->base ? (PyObject *)t->base : Py_None); }
static int s_base(Tensor *t, PyObject *v, void *c) {
    FL_UNSEEN();
    if (v && v != Py_None && !Tensor_Check(v)) { PyErr_SetString(PyExc_TypeError, "_base must be a Tensor or None"); return -1; }
    Py_XSETREF(t->base, v && v != Py_None ? (Tensor *)Py_NewRef(v) : NULL);
    return 0;
}
static PyObject *g_nbytes(Tensor *t, void *c) {
    if (t->sym) return call_hook("symbolic_nbytes", Py_BuildValue("(O)", t));
    return PyLong_FromLongLong(t->numel * t->dtype->itemsize);
}
static PyObject *g_itemsize(Tensor *t, void *c) { return PyLong_FromLong(t->dtype->itemsize); }
static PyObject *g_meta(Tensor *t, void *c) { return Py_NewRef(t->meta ? t->meta : Py_None); }
static int s_meta(Tensor *t, PyObject *v, void *c) { Py_XSETREF(t->meta, v == Py_None ? NULL : Py_XNewRef(v)); return 0; }
static PyObject *g_sym(Tensor *t, void *c) { return Py_NewRef(t->sym ? t->sym : Py_None); }
static int s_sym(Tensor *t, PyObject *v, void *c) { Py_XSETREF(t->sym, v == Py_None ? NULL : Py_XNewRef(v)); return 0; }
static PyObject *g_bits(Tensor *t, void *c) { return PyLong_FromLong(t->bits); }
static int s_bits(Tensor *t, PyObject *v, void *c) { FL_UNSEEN(); t->bits = (int)PyLong_AsLong(v); return PyErr_Occurred() ? -1 : 0; }
static PyObject *g_flag(Tensor *t, void *f) { return PyBool_FromLong(t->flags & (int)(intptr_t)f); }
static int s_flag(Tensor *t, PyObject *v, void *f) {
    FL_UNSEEN();
    int b = PyObject_IsTrue(v);
    if (b < 0) return -1;
    t->flags = b ? t->flags | (int)(intptr_t)f : t->flags & ~(int)(intptr_t)f;
    return 0;
}
static PyObject *g_view_kind(Tensor *t, void *c) { return PyBool_FromLong(t->flags & FL_T_VIEW_KINDS); }
static PyObject *g_stale(Tensor *t, void *c) { return PyBool_FromLong(fl_stale_view(t)); }

static PyGetSetDef getset[] = {
    {"shape", (getter)g_shape}, {"dtype", (getter)g_dtype}, {"device", (getter)g_device}, {"ndim", (getter)g_ndim},
    {"requires_grad", (getter)g_requires, (setter)s_requires}, {"grad", (getter)g_grad, (setter)s_grad}, {"_grad", (getter)g_plain_grad, (setter)s_grad},
    {"grad_fn", (getter)g_grad_fn}, {"_history", (getter)g_history}, {"is_leaf", (getter)g_leaf}, {"_version", (getter)g_version},
    {"_base", (getter)g_base, (setter)s_base}, {"nbytes", (getter)g_nbytes}, {"itemsize", (getter)g_itemsize},
    {"_autograd", (getter)g_meta, (setter)s_meta}, {"_sym", (getter)g_sym, (setter)s_sym}, {"_bits", (getter)g_bits, (setter)s_bits},
    {"_is_wrapped_number", (getter)g_flag, (setter)s_flag, NULL, (void *)FL_T_WRAPPED},
    {"_inference", (getter)g_flag, (setter)s_flag, NULL, (void *)FL_T_INFERENCE},
    {"_nograd_view", (getter)g_flag, (setter)s_flag, NULL, (void *)FL_T_NOGRAD_VIEW},
    {"_multi_view", (getter)g_flag, (setter)s_flag, NULL, (void *)FL_T_MULTI_VIEW},
    {"_inference_view", (getter)g_flag, (setter)s_flag, NULL, (void *)FL_T_INFERENCE_VIEW},
    {"_custom_view", (getter)g_flag, (setter)s_flag, NULL, (void *)FL_T_CUSTOM_VIEW},
    {"_conj_flag", (getter)g_flag, (setter)s_flag, NULL, (void *)FL_T_CONJ},
    {"_neg_flag", (getter)g_flag, (setter)s_flag, NULL, (void *)FL_T_NEG},
    {"_stale_view", (getter)g_stale}, {"_view_kind", (getter)g_view_kind}, {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict}, {0}};
static PyMemberDef members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(Tensor, dict), READONLY}, {"__weaklistoffset__", T_PYSSIZET, offsetof(Tensor, weakrefs), READONLY},
    {"output_nr", T_INT, offsetof(Tensor, output_nr), READONLY}, {"_born", T_INT, offsetof(Tensor, born)}, {"_attr_version", T_LONGLONG, offsetof(Tensor, attr_version)}, {0}};

/* What modes and subclasses see like a function: public properties, and the methods below. */
#define OVERRIDDEN(t) (((t)->bits | fl_state.active) & (FL_L_FUNCTION | FL_L_FUNCTION_MODE) & ~fl_state.suspended)
static PyObject *public_get(Tensor *t, void *c) {
    PyGetSetDef *d = c;
    if (OVERRIDDEN(t)) return call_hook("property_layer", Py_BuildValue("(sO)", d->name, t));
    return d->get((PyObject *)t, d->closure);
}
static int public_set(Tensor *t, PyObject *v, void *c) {
    PyGetSetDef *d = c;
    if (OVERRIDDEN(t)) {
        PyObject *r = call_hook("property_layer", v ? Py_BuildValue("(sOO)", d->name, t, v) : Py_BuildValue("(sO)", d->name, t));
        Py_XDECREF(r);
        return r ? 0 : -1;
    }
    return d->set((PyObject *)t, v, d->closure);
}
enum { NGETSET = sizeof getset / sizeof *getset };
static PyGetSetDef overridable[NGETSET];
static PyGetSetDef *overridable_properties(void) {
    for (int i = 0; i < NGETSET; i++) {
        overridable[i] = getset[i];
        const char *n = getset[i].name;
        if (!n || (n[0] == '_' && strcmp(n, "_base") && strcmp(n, "_grad") && strcmp(n, "_version"))) continue;
        overridable[i].get = (getter)public_get;
        if (getset[i].set) overridable[i].set = (setter)public_set;
        overridable[i].closure = &getset[i];
    }
    return overridable;
}
static PyObject *method_layer(const char *name, Tensor *t, PyObject *const *a, Py_ssize_t n, PyObject *kw) {
    PyObject *args = PyTuple_New(n + 1), *kwargs = PyDict_New();
    if (!args || !kwargs) { Py_XDECREF(args); Py_XDECREF(kwargs); return NULL; }
    PyTuple_SET_ITEM(args, 0, Py_NewRef((PyObject *)t));
    for (Py_ssize_t i = 0; i < n; i++) PyTuple_SET_ITEM(args, i + 1, Py_NewRef(a[i]));
    for (Py_ssize_t i = 0; kw && i < PyTuple_GET_SIZE(kw); i++) PyDict_SetItem(kwargs, PyTuple_GET_ITEM(kw, i), a[n + i]);
    return call_hook("method_layer", Py_BuildValue("(sNN)", name, args, kwargs));
}
#define PUBLIC0(name, impl) static PyObject *o_##name(Tensor *t, PyObject *u) { return OVERRIDDEN(t) ? method_layer(#name, t, NULL, 0, NULL) : impl(t, u); }
#define PUBLICN(name, impl) static PyObject *o_##name(Tensor *t, PyObject *const *a, Py_ssize_t n, PyObject *kw) { \
    return OVERRIDDEN(t) ? method_layer(#name, t, a, n, kw) : impl(t, a, n, kw); }

static PyObject *at_dim(Tensor *t, PyObject *d, const int64_t *v, int part) {
    if (!PyLong_Check(d)) { PyErr_Format(PyExc_TypeError, "%s(): argument 'dim' (position 1) must be int, not %.100s", part ? "stride" : "size", Py_TYPE(d)->tp_name); return NULL; }
    long i = PyLong_AsLong(d);
    if (i == -1 && PyErr_Occurred()) return NULL;
    int n = t->ndim ? t->ndim : 1;
    if (i < -n || i >= n || !t->ndim) {
        if (!t->ndim) PyErr_Format(PyExc_IndexError, "Dimension specified as %ld but tensor has no dimensions", i);
        else PyErr_Format(PyExc_IndexError, "Dimension out of range (expected to be in range of [%d, %d], but got %ld)", -n, n - 1, i);
        return NULL;
    }
    if (i < 0) i += t->ndim;
    if (t->sym) return Py_NewRef(PyTuple_GET_ITEM(PyTuple_GET_ITEM(t->sym, part), i));
    return PyLong_FromLongLong(v[i]);
}
static PyObject *dim_arg(PyObject *const *a, Py_ssize_t n, PyObject *kw, PyObject **d) {
    Py_ssize_t nk = kw ? PyTuple_GET_SIZE(kw) : 0;
    *d = n + nk > 0 ? a[0] : Py_None;
    if (n + nk > 1) { PyErr_SetString(PyExc_TypeError, "takes at most one argument: dim"); return NULL; }
    return Py_None;
}
static PyObject *m_size(Tensor *t, PyObject *const *a, Py_ssize_t n, PyObject *kw) {
    PyObject *d;
    if (!dim_arg(a, n, kw, &d)) return NULL;
    return d == Py_None ? g_shape(t, NULL) : at_dim(t, d, t->sizes, 0);
}
static PyObject *m_stride(Tensor *t, PyObject *const *a, Py_ssize_t n, PyObject *kw) {
    PyObject *d;
    if (!dim_arg(a, n, kw, &d)) return NULL;
    if (d != Py_None) return at_dim(t, d, t->strides, 1);
    if (t->sym) return sym_part(t, 1);
    PyObject *r = PyTuple_New(t->ndim);
    for (int i = 0; r && i < t->ndim; i++) PyTuple_SET_ITEM(r, i, PyLong_FromLongLong(t->strides[i]));
    return r;
}
static PyObject *m_dim(Tensor *t, PyObject *u) { return PyLong_FromLong(t->ndim); }
static PyObject *m_numel(Tensor *t, PyObject *u) {
    if (t->sym) return call_hook("symbolic_numel", Py_BuildValue("(O)", t));
    return PyLong_FromLongLong(t->numel);
}
static PyObject *m_element_size(Tensor *t, PyObject *u) { return PyLong_FromLong(t->dtype->itemsize); }
static PyObject *m_offset(Tensor *t, PyObject *u) { fl_tape_offsets(); return t->sym ? sym_part(t, 2) : PyLong_FromLongLong(t->offset); }
static PyObject *m_storage(Tensor *t, PyObject *u) { return Py_NewRef((PyObject *)t->storage); }
static PyObject *method_of(const char *name) { return PyDict_GetItemString(TensorType->tp_dict, name); }
static PyObject *m_ptr(Tensor *t, PyObject *u) {
    if (t->bits & FL_L_FUNCTORCH) {                          /* a batched tensor has no address of its own */
        PyObject *r = call_hook("transformed_value", Py_BuildValue("(O)", t));
        if (!r) return NULL;
        Py_DECREF(r);
    }
    if (fl_tape) return fl_taped_address(method_of("data_ptr"), (PyObject *)t);
    if (t->storage->flags & FL_S_FAKE && t->storage->device->type == 0) { PyErr_SetString(PyExc_RuntimeError, "Cannot access data pointer of a tensor that has no bytes (it is fake, or was kept only for its shape)"); return NULL; }
    return PyLong_FromVoidPtr(t->storage->data ? fl_data(t) : NULL);
}
static PyObject *m_float(Tensor *t, PyObject *u) { return PyBool_FromLong(t->dtype->flags & FL_FLOATING); }
static PyObject *m_complex(Tensor *t, PyObject *u) { return PyBool_FromLong(t->dtype->flags & FL_COMPLEX); }
static PyObject *m_signed(Tensor *t, PyObject *u) { return PyBool_FromLong(t->dtype->flags & FL_SIGNED); }
static PyObject *m_contiguous(Tensor *t, PyObject *u) {
    if (t->sym) return call_hook("symbolic_contiguous", Py_BuildValue("(O)", t));
    return PyBool_FromLong(t->contiguous);
}
static PyObject *m_bump(Tensor *t, PyObject *u) {
    PyObject *self = (PyObject *)t;
    if (fl_tape) return fl_taped_method(method_of("_bump_version"), &self, 1);
    fl_bump(t); Py_RETURN_NONE; }
static PyObject *m_cur_version(Tensor *t, PyObject *u) { FL_UNSEEN(); return PyLong_FromLongLong(fl_version(t)); }
/* _set_version(n): what _unsafe_preserve_version_counter puts back. */
static PyObject *m_set_version(Tensor *t, PyObject *v) {
    FL_UNSEEN();
    int64_t n = PyLong_AsLongLong(v);
    if (n == -1 && PyErr_Occurred()) return NULL;
    if (t->vcell) t->vcell->value = n; else t->storage->version = n;
    Py_RETURN_NONE;
}
/* _set_history(node or None, output number, requires_grad) */
static PyObject *m_history(Tensor *t, PyObject *args) {
    FL_UNSEEN();
    PyObject *fn; int nr, rg;
    if (!PyArg_ParseTuple(args, "Oip", &fn, &nr, &rg)) return NULL;
    Py_XSETREF(t->grad_fn, fn == Py_None ? NULL : Py_NewRef(fn));
    t->output_nr = nr; t->requires_grad = rg; t->attr_version = fl_version(t);
    Py_RETURN_NONE;
}
/* _fresh_version(): stop sharing the version with aliases (.data, inference results). */
static PyObject *m_fresh(Tensor *t, PyObject *u) {
    FL_UNSEEN();
    VersionCell *c = PyObject_New(VersionCell, &VersionCellType);
    if (!c) return NULL;
    c->value = 0;
    Py_XSETREF(t->vcell, c);
    Py_RETURN_NONE;
}
static int take_geometry(Tensor *t, int n, const int64_t *sizes, const int64_t *strides, int64_t off) {
    if (n > FL_INLINE_DIMS && n != t->ndim) {
        int64_t *p = PyMem_Malloc(2 * n * sizeof(int64_t));
        if (!p) { PyErr_NoMemory(); return -1; }
        if (t->sizes != t->inl) PyMem_Free(t->sizes);
        t->sizes = p; t->strides = p + n;
    } else if (n <= FL_INLINE_DIMS && t->sizes != t->inl) {
        PyMem_Free(t->sizes); t->sizes = t->inl; t->strides = t->inl + FL_INLINE_DIMS;
    }
    t->ndim = n;
    memcpy(t->sizes, sizes, n * sizeof(int64_t)); memcpy(t->strides, strides, n * sizeof(int64_t));
    t->offset = off;
    fl_tensor_done(t);
    return 0;
}
/* _set(storage, offset, size, stride, dtype): re-point this very tensor. */
static PyObject *m_set(Tensor *t, PyObject *args) {
    FL_UNSEEN();
    PyObject *st, *sz, *sd, *of, *dt = (PyObject *)t->dtype; int64_t off, a[FL_MAXDIM], b[FL_MAXDIM]; int symbolic = 0, n, m;
    if (!PyArg_ParseTuple(args, "O!OOO|O!", StorageType, &st, &of, &sz, &sd, &DTypeType, &dt)) return NULL;
    if ((n = ints_or_symbols(sz, a, "set_", "size", &symbolic)) < 0 || (m = ints_or_symbols(sd, b, "set_", "stride", &symbolic)) < 0
        || one_int_or_symbol(of, &off, &symbolic)) return NULL;
    if (n != m) { PyErr_Format(PyExc_RuntimeError, "set_: mismatch in length of strides and shape: %d and %d", m, n); return NULL; }
    Py_INCREF(st); Py_SETREF(t->storage, (Storage *)st);
    Py_INCREF(dt); Py_SETREF(t->dtype, (DType *)dt);
    if (take_geometry(t, n, a, b, off) || take_symbols(t, symbolic, sz, sd, of)) return NULL;
    return Py_NewRef((PyObject *)t);
}
/* _take(other): become other in place (storage, geometry, dtype, version cell), keeping identity. */
static PyObject *m_take(Tensor *t, PyObject *o) {
    FL_UNSEEN();
    if (!Tensor_Check(o)) { PyErr_SetString(PyExc_TypeError, "_take needs a Tensor"); return NULL; }
    Tensor *s = (Tensor *)o;
    Py_INCREF(s->storage); Py_SETREF(t->storage, s->storage);
    Py_INCREF(s->dtype); Py_SETREF(t->dtype, s->dtype);
    Py_XINCREF(s->sym); Py_XSETREF(t->sym, s->sym);
    if (take_geometry(t, s->ndim, s->sizes, s->strides, s->offset)) return NULL;
    Py_RETURN_NONE;
}
PUBLICN(size, m_size) PUBLICN(stride, m_stride)
PUBLIC0(dim, m_dim) PUBLIC0(ndimension, m_dim) PUBLIC0(numel, m_numel) PUBLIC0(nelement, m_numel) PUBLIC0(element_size, m_element_size)
PUBLIC0(storage_offset, m_offset) PUBLIC0(untyped_storage, m_storage) PUBLIC0(data_ptr, m_ptr) PUBLIC0(is_floating_point, m_float)
PUBLIC0(is_complex, m_complex) PUBLIC0(is_signed, m_signed) PUBLIC0(item, item) PUBLIC0(tolist, tolist)
static PyMethodDef methods[] = {
    {"size", (PyCFunction)o_size, METH_FASTCALL | METH_KEYWORDS}, {"stride", (PyCFunction)o_stride, METH_FASTCALL | METH_KEYWORDS},
    {"dim", (PyCFunction)o_dim, METH_NOARGS}, {"ndimension", (PyCFunction)o_ndimension, METH_NOARGS}, {"numel", (PyCFunction)o_numel, METH_NOARGS},
    {"nelement", (PyCFunction)o_nelement, METH_NOARGS}, {"element_size", (PyCFunction)o_element_size, METH_NOARGS},
    {"storage_offset", (PyCFunction)o_storage_offset, METH_NOARGS}, {"untyped_storage", (PyCFunction)o_untyped_storage, METH_NOARGS},
    {"data_ptr", (PyCFunction)o_data_ptr, METH_NOARGS}, {"is_floating_point", (PyCFunction)o_is_floating_point, METH_NOARGS},
    {"is_complex", (PyCFunction)o_is_complex, METH_NOARGS}, {"is_signed", (PyCFunction)o_is_signed, METH_NOARGS},
    {"_contiguous", (PyCFunction)m_contiguous, METH_NOARGS}, {"_bump_version", (PyCFunction)m_bump, METH_NOARGS},
    {"_current_version", (PyCFunction)m_cur_version, METH_NOARGS}, {"_set_history", (PyCFunction)m_history, METH_VARARGS}, {"_set_version", (PyCFunction)m_set_version, METH_O},
    {"_fresh_version", (PyCFunction)m_fresh, METH_NOARGS}, {"_set", (PyCFunction)m_set, METH_VARARGS}, {"_take", (PyCFunction)m_take, METH_O},
    {"item", (PyCFunction)o_item, METH_NOARGS}, {"tolist", (PyCFunction)o_tolist, METH_NOARGS}, {0}};

extern PyType_Slot fl_number_slots[];

/* ---- module functions ---- */
static PyObject *f_empty(PyObject *m, PyObject *const *a, Py_ssize_t n) {   /* empty(size, dtype, device, strides=None) */
    int64_t sz[FL_MAXDIM], st[FL_MAXDIM]; int nd, ns, symbolic = 0;
    if (n < 3 || Py_TYPE(a[1]) != &DTypeType || Py_TYPE(a[2]) != &DeviceType) { PyErr_SetString(PyExc_TypeError, "empty(size, dtype, device, strides=None)"); return NULL; }
    if ((nd = ints_or_symbols(a[0], sz, "empty", "size", &symbolic)) < 0) return NULL;
    if (symbolic) { PyErr_SetString(PyExc_RuntimeError, "a tensor with bytes needs sizes that are numbers, not symbolic ints"); return NULL; }
    for (int i = 0; i < nd; i++) if (sz[i] < 0) {
        PyObject *l = PySequence_List(a[0]);
        PyErr_Format(PyExc_RuntimeError, "Trying to create tensor with negative dimension %lld: %R", (long long)sz[i], l);
        Py_XDECREF(l); return NULL;
    }
    if (n > 3 && a[3] != Py_None) {
        if ((ns = fl_ints(a[3], st, "empty", "stride")) < 0) return NULL;
        if (ns != nd) { PyErr_Format(PyExc_RuntimeError, "dimensionality of sizes (%d) must match dimensionality of strides (%d)", nd, ns); return NULL; }
        return (PyObject *)fl_empty(nd, sz, st, (DType *)a[1], (Device *)a[2]);
    }
    return (PyObject *)fl_empty(nd, sz, NULL, (DType *)a[1], (Device *)a[2]);
}
/* reuse(t): t where the caller's one variable is all that holds it and its bytes, else a fresh tensor of its geometry. */
static PyObject *f_reuse(PyObject *m, PyObject *o) {
    if (!Tensor_Check(o)) { PyErr_SetString(PyExc_TypeError, "reuse: expected a tensor"); return NULL; }
    Tensor *t = (Tensor *)o; Storage *s = t->storage;
    int ours = Py_TYPE(o) == TensorType && Py_REFCNT(o) == 2 && Py_REFCNT(s) == 1 && s->capacity && s->data && !s->owner && !s->flags;
    int plain = !t->bits && !t->sym && !t->flags && !t->requires_grad && !t->grad_fn && !t->base && !t->vcell && !t->meta && !t->dict && !t->weakrefs;
    if (ours && plain && !t->offset && s->nbytes == t->numel * t->dtype->itemsize) return Py_NewRef(o);
    return (PyObject *)fl_empty(t->ndim, t->sizes, t->strides, t->dtype, s->device);
}
/* over(t): t where nobody but it looks at its bytes, else a fresh tensor of its geometry. */
static PyObject *f_over(PyObject *m, PyObject *o) {
    if (!Tensor_Check(o)) { PyErr_SetString(PyExc_TypeError, "over: expected a tensor"); return NULL; }
    Tensor *t = (Tensor *)o; Storage *s = t->storage;
    int own = Py_REFCNT(s) == 1 && s->data && !s->owner && !s->flags && !t->offset && s->nbytes == t->numel * t->dtype->itemsize;
    if (own && !t->bits && !t->sym && !t->flags && !t->grad_fn) return Py_NewRef(o);
    return (PyObject *)fl_empty(t->ndim, t->sizes, t->strides, t->dtype, s->device);
}
/* alias(cls, t, size, stride, offset, dtype=None): the same bytes and version under another geometry, without history. */
static PyObject *f_alias(PyObject *m, PyObject *const *a, Py_ssize_t n) {
    int64_t sz[FL_MAXDIM], st[FL_MAXDIM], off; int nd, ns, symbolic = 0;
    if (n < 2 || !PyType_Check(a[0]) || !PyType_IsSubtype((PyTypeObject *)a[0], TensorType) || !Tensor_Check(a[1])) { PyErr_SetString(PyExc_TypeError, "alias(cls, tensor, size, stride, offset, dtype=None)"); return NULL; }
    Tensor *t = (Tensor *)a[1];
    if (n == 2) return (PyObject *)alias_as((PyTypeObject *)a[0], t, t->ndim, t->sizes, t->strides, t->offset);
    if (n < 5) { PyErr_SetString(PyExc_TypeError, "alias(cls, tensor, size, stride, offset, dtype=None)"); return NULL; }
    PyObject *begin = a[4] != Py_None ? Py_NewRef(a[4]) : t->sym ? Py_NewRef(PyTuple_GET_ITEM(t->sym, 2)) : PyLong_FromLongLong(t->offset);   /* None: where t begins */
    Tensor *r = NULL;
    if (begin && (nd = ints_or_symbols(a[2], sz, "as_strided", "size", &symbolic)) >= 0
        && (ns = ints_or_symbols(a[3], st, "as_strided", "stride", &symbolic)) >= 0 && !one_int_or_symbol(begin, &off, &symbolic)) {
        if (nd != ns) PyErr_Format(PyExc_RuntimeError, "mismatch in length of strides and shape");
        else r = alias_as((PyTypeObject *)a[0], t, nd, sz, st, off);
    }
    if (r && (r->sym || symbolic) && take_symbols(r, symbolic, a[2], a[3], begin)) Py_CLEAR(r);
    Py_XDECREF(begin);
    if (r && n > 5 && a[5] != Py_None) { Py_INCREF(a[5]); Py_SETREF(r->dtype, (DType *)a[5]); }
    return (PyObject *)r;
}
/* wrap(cls, storage, dtype, size, stride, offset): a tensor over given bytes. */
static PyObject *f_wrap(PyObject *m, PyObject *const *a, Py_ssize_t n) {
    int64_t sz[FL_MAXDIM], st[FL_MAXDIM], off; int nd, ns, symbolic = 0;
    if (n != 6 || !PyType_Check(a[0]) || Py_TYPE(a[1]) != StorageType || Py_TYPE(a[2]) != &DTypeType) { PyErr_SetString(PyExc_TypeError, "wrap(cls, storage, dtype, size, stride, offset)"); return NULL; }
    if ((nd = ints_or_symbols(a[3], sz, "set_", "size", &symbolic)) < 0 || (ns = ints_or_symbols(a[4], st, "set_", "stride", &symbolic)) < 0
        || one_int_or_symbol(a[5], &off, &symbolic)) return NULL;
    if (nd != ns) { PyErr_Format(PyExc_RuntimeError, "mismatch in length of strides and shape"); return NULL; }
    Tensor *t = fl_tensor_alloc((PyTypeObject *)a[0], (Storage *)Py_NewRef(a[1]), (DType *)a[2], nd);
    if (!t) return NULL;
    memcpy(t->sizes, sz, nd * sizeof *sz); memcpy(t->strides, st, nd * sizeof *st);
    t->offset = off;
    fl_tensor_done(t);
    if (symbolic && take_symbols(t, symbolic, a[3], a[4], a[5])) { Py_DECREF(t); return NULL; }
    return (PyObject *)t;
}
/* view_kind(source, view): mark what view autograd cannot follow, by the mode or by its source. */
static PyObject *f_view_kind(PyObject *m, PyObject *const *a, Py_ssize_t n) {
    if (n != 2 || !Tensor_Check(a[0]) || !Tensor_Check(a[1])) { PyErr_SetString(PyExc_TypeError, "view_kind(source, view)"); return NULL; }
    Tensor *v = (Tensor *)a[1];
    v->flags |= fl_state.grad ? ((Tensor *)a[0])->flags & FL_T_VIEW_KINDS : fl_state.inference ? FL_T_INFERENCE_VIEW : FL_T_NOGRAD_VIEW;
    v->attr_version = fl_version(v);
    Py_RETURN_NONE;
}
static PyObject *f_geometry(PyObject *m, PyObject *t) {
    if (!Tensor_Check(t)) { PyErr_SetString(PyExc_TypeError, "geometry(tensor)"); return NULL; }
    return (PyObject *)fl_geometry((Tensor *)t);
}
static PyObject *f_store(PyObject *m, PyObject *const *a, Py_ssize_t n) {   /* store(tensor, offset, number): one element */
    if (n != 3 || !Tensor_Check(a[0])) { PyErr_SetString(PyExc_TypeError, "store(tensor, offset, number)"); return NULL; }
    Tensor *t = (Tensor *)a[0];
    int r = fl_store_scalar(t->dtype->code, a[2], t->storage->data + (t->offset + PyLong_AsLongLong(a[1])) * t->dtype->itemsize);
    if (r < 0 || PyErr_Occurred()) return NULL;
    return PyBool_FromLong(!r);
}
static PyObject *f_zero(PyObject *m, PyObject *o) {   /* zero(tensor): bytes to 0 when dense, else False */
    if (!Tensor_Check(o)) { PyErr_SetString(PyExc_TypeError, "zero(tensor)"); return NULL; }
    Tensor *t = (Tensor *)o;
    if (!t->contiguous || (!t->storage->data && t->numel)) Py_RETURN_FALSE;
    if (t->numel) memset(fl_data(t), 0, t->numel * t->dtype->itemsize);
    Py_RETURN_TRUE;
}
/* count_up(tensor, start, step): start + i * step, in int64 or float64, and then the tensor's dtype.
   False: a dtype or layout that this is not for. */
static PyObject *f_count_up(PyObject *m, PyObject *const *a, Py_ssize_t n) {
    if (n != 3 || !Tensor_Check(a[0])) { PyErr_SetString(PyExc_TypeError, "count_up(tensor, start, step)"); return NULL; }
    Tensor *t = (Tensor *)a[0]; int code = t->dtype->code; char *p = fl_data(t);
    if (!t->contiguous || !t->storage->data) Py_RETURN_FALSE;
    if (code == FL_F32 || code == FL_F64) {
        double s = PyFloat_AsDouble(a[1]), d = PyFloat_AsDouble(a[2]);
        if (PyErr_Occurred()) return NULL;
        if (code == FL_F64) for (int64_t i = 0; i < t->numel; i++) ((double *)p)[i] = s + (double)i * d;
        else for (int64_t i = 0; i < t->numel; i++) ((float *)p)[i] = (float)(s + (double)i * d);
        Py_RETURN_TRUE;
    }
    if (code != FL_I64 && code != FL_I32) Py_RETURN_FALSE;
    uint64_t s = (uint64_t)PyLong_AsLongLong(a[1]), d = (uint64_t)PyLong_AsLongLong(a[2]);
    if (PyErr_Occurred()) { PyErr_Clear(); Py_RETURN_FALSE; }
    if (code == FL_I64) for (int64_t i = 0; i < t->numel; i++) ((uint64_t *)p)[i] = s + (uint64_t)i * d;
    else for (int64_t i = 0; i < t->numel; i++) ((uint32_t *)p)[i] = (uint32_t)(s + (uint64_t)i * d);
    Py_RETURN_TRUE;
}
/* spread(tensor, start, end): numel numbers from start to end, the second half counted from the end;
   each rounded once, in float32 for float32 and else in float64. False: not for this one. */
static PyObject *f_spread(PyObject *m, PyObject *const *a, Py_ssize_t n) {
    if (n != 3 || !Tensor_Check(a[0])) { PyErr_SetString(PyExc_TypeError, "spread(tensor, start, end)"); return NULL; }
    Tensor *t = (Tensor *)a[0]; int code = t->dtype->code; char *p = fl_data(t); int64_t count = t->numel, half = count > 1 ? count / 2 : 1;
    if (!t->contiguous || !t->storage->data || (code != FL_F32 && code != FL_F64 && code != FL_I64)) Py_RETURN_FALSE;
    double s = PyFloat_AsDouble(a[1]), e = PyFloat_AsDouble(a[2]);
    if (PyErr_Occurred()) return NULL;
    if (code == FL_F32) {
        float fs = (float)s, fe = (float)e, step = (fe - fs) / (float)(count - 1);
        for (int64_t i = 0; i < count; i++) ((float *)p)[i] = i < half ? (count > 1 ? fmaf(step, (float)i, fs) : fs) : fmaf(-step, (float)(count - 1 - i), fe);
        Py_RETURN_TRUE;
    }
    double step = (e - s) / (double)(count - 1);
    for (int64_t i = 0; i < count; i++) {
        double v = i < half ? (count > 1 ? fma(step, (double)i, s) : s) : fma(-step, (double)(count - 1 - i), e);
        if (code == FL_F64) ((double *)p)[i] = v; else ((int64_t *)p)[i] = (int64_t)v;
    }
    Py_RETURN_TRUE;
}
static int fill_nested(int code, int itemsize, char **p, int depth, int ndim, const int64_t *sizes, PyObject *o);
/* What nested lists and tuples of plain numbers say: their extents, and the widest kind of number
   (1 bool, 2 int, 3 float). 0: something else stands there, or the lists are not of one length. */
static int survey(PyObject *o, int depth, int *ndim, int64_t *sizes) {
    if (PyList_CheckExact(o) || PyTuple_CheckExact(o)) {
        Py_ssize_t n = PySequence_Fast_GET_SIZE(o); int kind = 1;
        if (!n || depth == 8 || (*ndim >= 0 && depth >= *ndim)) return 0;
        if (sizes[depth] < 0) sizes[depth] = n;
        else if (sizes[depth] != n) return 0;
        for (Py_ssize_t i = 0; i < n; i++) {
            int k = survey(PySequence_Fast_GET_ITEM(o, i), depth + 1, ndim, sizes);
            if (!k) return 0;
            if (k > kind) kind = k;
        }
        return kind;
    }
    int kind = PyFloat_CheckExact(o) ? 3 : PyLong_CheckExact(o) ? 2 : PyBool_Check(o) ? 1 : 0;
    if (*ndim < 0) *ndim = depth;
    return *ndim == depth ? kind : 0;
}
/* of_numbers(data, dtype or None, the float dtype): a tensor of nested plain numbers, None: Python's case. */
static PyObject *f_of_numbers(PyObject *m, PyObject *const *a, Py_ssize_t n) {
    int64_t sizes[FL_MAXDIM] = {-1, -1, -1, -1, -1, -1, -1, -1, -1}; int nd = -1;
    if (n != 3 || Py_TYPE(a[2]) != &DTypeType) { PyErr_SetString(PyExc_TypeError, "of_numbers(data, dtype, default)"); return NULL; }
    int kind = survey(a[0], 0, &nd, sizes);
    if (!kind || fl_state.active & ~fl_state.suspended) Py_RETURN_NONE;
    DType *natural = kind == 3 ? (DType *)a[2] : fl_dtypes[kind == 2 ? FL_I64 : FL_BOOL];
    if (a[1] != Py_None && a[1] != (PyObject *)natural) Py_RETURN_NONE;
    Tensor *t = fl_empty(nd, sizes, NULL, natural, fl_cpu);
    if (!t) return NULL;
    char *p = fl_data(t);
    int r = fill_nested(natural->code, natural->itemsize, &p, 0, nd, sizes, a[0]);
    if (!r) return (PyObject *)t;
    Py_DECREF(t);
    if (r < 0) PyErr_Clear();
    Py_RETURN_NONE;
}
static PyObject *f_types(PyObject *m, PyObject *args) {   /* set_types(Size, disabled_torch_function) */
    PyObject *s, *d;
    if (!PyArg_ParseTuple(args, "OO", &s, &d)) return NULL;
    Py_INCREF(s); Py_XSETREF(SizeType, (PyTypeObject *)s);
    Py_INCREF(d); Py_XSETREF(disabled_function, d);
    Py_RETURN_NONE;
}
static PyObject *f_layer_bits(PyObject *m, PyObject *t) { return PyLong_FromLong(fl_layer_bits((PyTypeObject *)t)); }
static int fill_nested(int code, int itemsize, char **p, int depth, int ndim, const int64_t *sizes, PyObject *o) {
    if (depth == ndim) {
        int r = fl_store_scalar(code, o, *p);
        *p += itemsize;
        return r;
    }
    if (!PyList_Check(o) && !PyTuple_Check(o)) return 1;
    Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
    if (n != sizes[depth]) { PyErr_Format(PyExc_ValueError, "expected sequence of length %lld at dim %d (got %zd)", (long long)sizes[depth], depth, n); return -1; }
    for (Py_ssize_t i = 0; i < n; i++) {
        int r = fill_nested(code, itemsize, p, depth + 1, ndim, sizes, PySequence_Fast_GET_ITEM(o, i));
        if (r) return r;
    }
    return 0;
}
/* fill_nested(contiguous tensor, nested lists): True when every leaf was an exact number of the dtype's class. */
static PyObject *f_fill(PyObject *m, PyObject *const *a, Py_ssize_t n) {
    if (n != 2 || !Tensor_Check(a[0])) { PyErr_SetString(PyExc_TypeError, "fill_nested(tensor, data)"); return NULL; }
    Tensor *t = (Tensor *)a[0]; char *p = fl_data(t);
    FL_UNSEEN();
    int r = fill_nested(t->dtype->code, t->dtype->itemsize, &p, 0, t->ndim, t->sizes, a[1]);
    return r < 0 ? NULL : PyBool_FromLong(!r);
}
static PyMethodDef functions[] = {
    {"empty", (PyCFunction)f_empty, METH_FASTCALL}, {"alias", (PyCFunction)f_alias, METH_FASTCALL}, {"reuse", f_reuse, METH_O}, {"over", f_over, METH_O}, {"wrap", (PyCFunction)f_wrap, METH_FASTCALL},
    {"geometry", f_geometry, METH_O}, {"view_kind", (PyCFunction)f_view_kind, METH_FASTCALL}, {"store", (PyCFunction)f_store, METH_FASTCALL}, {"set_types", f_types, METH_VARARGS},
    {"zero", f_zero, METH_O}, {"count_up", (PyCFunction)f_count_up, METH_FASTCALL}, {"spread", (PyCFunction)f_spread, METH_FASTCALL}, {"of_numbers", (PyCFunction)f_of_numbers, METH_FASTCALL}, {"layer_bits", f_layer_bits, METH_O}, {"fill_nested", (PyCFunction)f_fill, METH_FASTCALL}, {0}};

int fl_tensor_init(PyObject *m) {
    str_function = PyUnicode_InternFromString("__torch_function__");
    str_dispatch = PyUnicode_InternFromString("__torch_dispatch__");
    if (fl_add_type(m, &DTypeType) || fl_add_type(m, &DeviceType) || PyType_Ready(&VersionCellType) < 0) return -1;
    if (!(fl_cpu = (Device *)device_make(0, -1)) || PyModule_AddObjectRef(m, "cpu", (PyObject *)fl_cpu) < 0) return -1;
    PyType_Slot slots[80]; int k = 0;
    slots[k++] = (PyType_Slot){Py_tp_dealloc, dealloc}; slots[k++] = (PyType_Slot){Py_tp_traverse, traverse};
    slots[k++] = (PyType_Slot){Py_tp_clear, clear}; slots[k++] = (PyType_Slot){Py_tp_new, tensor_new};
    slots[k++] = (PyType_Slot){Py_tp_getset, overridable_properties()}; slots[k++] = (PyType_Slot){Py_tp_members, members};
    slots[k++] = (PyType_Slot){Py_tp_methods, methods};
    slots[k++] = (PyType_Slot){Py_tp_doc, "A strided, typed view of a storage cell, with what autograd keeps beside it."};
    for (PyType_Slot *s = fl_number_slots; s->slot; s++) slots[k++] = *s;
    slots[k] = (PyType_Slot){0, NULL};
    PyType_Spec spec = {"flambeau.Tensor", sizeof(Tensor), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};
    TensorType = (PyTypeObject *)PyType_FromSpec(&spec);
    if (!TensorType || PyModule_AddObjectRef(m, "Tensor", (PyObject *)TensorType) < 0) return -1;
    TensorType->tp_name = "Tensor";      /* as errors name it; the module is an attribute of its own */
    return PyModule_AddFunctions(m, functions);
}
