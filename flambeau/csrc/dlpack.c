/* DLPack both ways, without copies: capsules "dltensor" and "dltensor_versioned" (protocol 1.0).
   The structures are those of the DLPack specification (https://dmlc.github.io/dlpack). */
#include "native.h"

typedef struct { int32_t type, id; } DLDevice;
typedef struct { uint8_t code, bits; uint16_t lanes; } DLType;
typedef struct { void *data; DLDevice device; int32_t ndim; DLType dtype; int64_t *shape, *strides; uint64_t byte_offset; } DLTensor;
typedef struct Managed { DLTensor t; void *ctx; void (*deleter)(struct Managed *); } Managed;
typedef struct ManagedV { uint32_t major, minor; void *ctx; void (*deleter)(struct ManagedV *); uint64_t flags; DLTensor t; } ManagedV;
enum { READ_ONLY = 1, COPIED = 2 };
enum { DL_INT, DL_UINT, DL_FLOAT, DL_BFLOAT = 4, DL_COMPLEX, DL_TRUTH, DL_E4M3FN = 10, DL_E5M2 = 12 };

static DLType type_of(int code) {
    switch (code) {
    case FL_U8: case FL_U16: case FL_U32: case FL_U64: return (DLType){DL_UINT, (uint8_t)(8 * fl_dtypes[code]->itemsize), 1};
    case FL_I8: case FL_I16: case FL_I32: case FL_I64: return (DLType){DL_INT, (uint8_t)(8 * fl_dtypes[code]->itemsize), 1};
    case FL_F16: case FL_F32: case FL_F64: return (DLType){DL_FLOAT, (uint8_t)(8 * fl_dtypes[code]->itemsize), 1};
    case FL_C32: case FL_C64: case FL_C128: return (DLType){DL_COMPLEX, (uint8_t)(8 * fl_dtypes[code]->itemsize), 1};
    case FL_BOOL: return (DLType){DL_TRUTH, 8, 1};
    case FL_BF16: return (DLType){DL_BFLOAT, 16, 1};
    case FL_F8E5: return (DLType){DL_E5M2, 8, 1};
    case FL_F8E4: return (DLType){DL_E4M3FN, 8, 1};
    }
    return (DLType){0, 0, 0};
}
static int code_of(DLType d) {
    if (d.lanes == 1) for (int code = 0; code < FL_NDTYPES; code++) {
        DLType x = type_of(code);
        if (x.lanes && x.code == d.code && x.bits == d.bits) return code;
    }
    return -1;
}

/* What an exported capsule holds: the cell, and the geometry behind the structure. */
typedef struct { PyObject *cell; int64_t dims[]; } Held;
static Held *held(Tensor *t) {
    Held *h = PyMem_RawMalloc(sizeof(Held) + 2 * (t->ndim + 1) * sizeof(int64_t));
    if (!h) { PyErr_NoMemory(); return NULL; }
    h->cell = Py_NewRef((PyObject *)t->storage);
    return h;
}
static void drop(void *ctx) {
    Held *h = ctx;
    if (Py_IsInitialized()) { PyGILState_STATE s = PyGILState_Ensure(); Py_DECREF(h->cell); PyGILState_Release(s); }
    PyMem_RawFree(h);
}
static void delete_managed(Managed *m) { drop(m->ctx); PyMem_RawFree(m); }
static void delete_versioned(ManagedV *m) { drop(m->ctx); PyMem_RawFree(m); }
static void fill(DLTensor *d, Held *h, Tensor *t, int device, int id) {
    d->data = t->storage->data ? fl_data(t) : NULL;
    d->device = (DLDevice){device, id};
    d->ndim = t->ndim; d->dtype = type_of(t->dtype->code); d->byte_offset = 0;
    d->shape = h->dims; d->strides = h->dims + t->ndim + 1;
    for (int i = 0; i < t->ndim; i++) {
        d->shape[i] = t->sizes[i];
        d->strides[i] = t->strides[i];
    }
}
static void unused_managed(PyObject *capsule) {      /* a capsule that nobody took */
    Managed *m = PyCapsule_IsValid(capsule, "dltensor") ? PyCapsule_GetPointer(capsule, "dltensor") : NULL;
    if (m && m->deleter) m->deleter(m);
}
static void unused_versioned(PyObject *capsule) {
    ManagedV *m = PyCapsule_IsValid(capsule, "dltensor_versioned") ? PyCapsule_GetPointer(capsule, "dltensor_versioned") : NULL;
    if (m && m->deleter) m->deleter(m);
}
/* to_dlpack(tensor, device type, device index, versioned, copied) -> capsule */
static PyObject *to_dlpack(PyObject *mod, PyObject *args) {
    PyObject *o; int device, id, versioned, copied;
    if (!PyArg_ParseTuple(args, "O!iipp", TensorType, &o, &device, &id, &versioned, &copied)) return NULL;
    Tensor *t = (Tensor *)o;
    if (!type_of(t->dtype->code).lanes) { PyErr_Format(PyExc_BufferError, "%U types are not supported by dlpack", t->dtype->name); return NULL; }
    Held *h = held(t);
    if (!h) return NULL;
    if (versioned) {
        ManagedV *m = PyMem_RawCalloc(1, sizeof *m);
        if (!m) { drop(h); return PyErr_NoMemory(); }
        m->major = 1; m->ctx = h; m->deleter = delete_versioned;
        m->flags = (copied ? COPIED : 0) | (t->storage->flags & FL_S_READONLY ? READ_ONLY : 0);
        fill(&m->t, h, t, device, id);
        return PyCapsule_New(m, "dltensor_versioned", unused_versioned);
    }
    Managed *m = PyMem_RawCalloc(1, sizeof *m);
    if (!m) { drop(h); return PyErr_NoMemory(); }
    m->ctx = h; m->deleter = delete_managed;
    fill(&m->t, h, t, device, id);
    return PyCapsule_New(m, "dltensor", unused_managed);
}

static void taken_managed(PyObject *capsule) {
    Managed *m = PyCapsule_GetPointer(capsule, "flambeau_dltensor");
    if (m && m->deleter) m->deleter(m);
}
static void taken_versioned(PyObject *capsule) {
    ManagedV *m = PyCapsule_GetPointer(capsule, "flambeau_dltensor_versioned");
    if (m && m->deleter) m->deleter(m);
}
/* from_dlpack(capsule) -> (address, dtype code or -1, shape, strides or None, device type, index, read-only, owner):
   the capsule is used up; owner frees the bytes. */
static PyObject *from_dlpack(PyObject *mod, PyObject *capsule) {
    int versioned = PyCapsule_IsValid(capsule, "dltensor_versioned");
    if (!versioned && !PyCapsule_IsValid(capsule, "dltensor")) {
        PyErr_SetString(PyExc_RuntimeError, "from_dlpack received an invalid capsule. Note that DLTensor capsules can be consumed only once, so you might have "
                        "already constructed a tensor from it once.");
        return NULL;
    }
    void *p = PyCapsule_GetPointer(capsule, versioned ? "dltensor_versioned" : "dltensor");
    DLTensor *d = versioned ? &((ManagedV *)p)->t : &((Managed *)p)->t;
    int readonly = versioned && ((ManagedV *)p)->flags & READ_ONLY;
    if (versioned && ((ManagedV *)p)->major > 1) {
        PyErr_Format(PyExc_BufferError, "unsupported major DLPack version: %u", ((ManagedV *)p)->major);
        return NULL;
    }
    PyObject *shape = PyTuple_New(d->ndim), *strides = d->strides ? PyTuple_New(d->ndim) : Py_NewRef(Py_None);
    if (!shape || !strides) { Py_XDECREF(shape); Py_XDECREF(strides); return NULL; }
    for (int i = 0; i < d->ndim; i++) {
        PyTuple_SET_ITEM(shape, i, PyLong_FromLongLong(d->shape[i]));
        if (d->strides) PyTuple_SET_ITEM(strides, i, PyLong_FromLongLong(d->strides[i]));
    }
    PyObject *owner = versioned ? PyCapsule_New(p, "flambeau_dltensor_versioned", taken_versioned) : PyCapsule_New(p, "flambeau_dltensor", taken_managed);
    if (!owner) { Py_DECREF(shape); Py_DECREF(strides); return NULL; }
    PyCapsule_SetName(capsule, versioned ? "used_dltensor_versioned" : "used_dltensor");
    PyCapsule_SetDestructor(capsule, NULL);
    return Py_BuildValue("LiNNiiNN", (long long)(intptr_t)d->data + (long long)d->byte_offset, code_of(d->dtype), shape, strides,
                         (int)d->device.type, (int)d->device.id, PyBool_FromLong(readonly), owner);
}
static PyMethodDef functions[] = {{"to_dlpack", to_dlpack, METH_VARARGS}, {"from_dlpack", from_dlpack, METH_O}, {0}};
int fl_dlpack_init(PyObject *m) { return PyModule_AddFunctions(m, functions); }
