/* Storage cells and the caching allocator.
   Blocks are kept by size class (four classes a power of two), so that a fresh large output costs no
   page faults after the first. All calls hold the GIL. */
#include "tape.h"
#include <stdlib.h>
#include <sys/mman.h>

#define NCLASS 256
#define LARGE (1 << 20)
typedef struct Block { struct Block *next; } Block;
static Block *cache[NCLASS];
static int64_t cached_bytes, live_bytes, peak_bytes, allocs, cache_limit = (int64_t)2 << 30;

static int size_class(int64_t n, int64_t *size) {
    if (n <= 64) { *size = 64; return 0; }
    int p = 63 - __builtin_clzll((uint64_t)(n - 1));      /* 2^p < n <= 2^(p+1) */
    int64_t step = (int64_t)1 << (p - 2), q = (n - 1 - ((int64_t)1 << p)) / step;
    *size = ((int64_t)1 << p) + (q + 1) * step;
    return (p - 6) * 4 + (int)q + 1;
}
static void os_free(void *p, int64_t size) { if (size >= LARGE) munmap(p, size); else free(p); }
static void drop_cache(void) {
    for (int c = 0; c < NCLASS; c++)
        for (Block *b; (b = cache[c]);) {
            cache[c] = b->next;
            int64_t size = 64;      /* undo size_class */
            if (c) { int p = (c - 1) / 4 + 6, q = (c - 1) % 4; size = ((int64_t)1 << p) + (int64_t)(q + 1) * ((int64_t)1 << (p - 2)); }
            os_free(b, size);
        }
    cached_bytes = 0;
}
static char *block_get(int64_t n, int64_t *size) {
    int c = size_class(n, size);
    Block *b = c < NCLASS ? cache[c] : NULL;
    if (b) { cache[c] = b->next; cached_bytes -= *size; }
    else if (*size >= LARGE) {
        for (int tries = 0; ; tries++) {
            b = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (b != MAP_FAILED) break;
            if (tries) return NULL;
            drop_cache();
        }
#ifdef MADV_HUGEPAGE
        if (*size >= 4 * LARGE) madvise(b, *size, MADV_HUGEPAGE);
#endif
    } else if (posix_memalign((void **)&b, 64, *size)) return NULL;
    allocs++;
    live_bytes += *size;
    if (live_bytes > peak_bytes) peak_bytes = live_bytes;
    return (char *)b;
}
static void block_put(char *p, int64_t size) {
    int64_t same;
    int c = size_class(size, &same);
    live_bytes -= size;
    if (c >= NCLASS || cached_bytes + size > cache_limit) { os_free(p, size); return; }
    ((Block *)p)->next = cache[c]; cache[c] = (Block *)p; cached_bytes += size;
}

static Storage *bare(int64_t nbytes, Device *device) {
    Storage *s = PyObject_New(Storage, StorageType);
    if (!s) return NULL;
    s->data = NULL; s->nbytes = nbytes; s->capacity = 0; s->version = 0; s->flags = 0;
    s->owner = s->dict = s->weakrefs = NULL;
    s->device = (Device *)Py_NewRef((PyObject *)device);
    return s;
}
static int acquire(Storage *s, int64_t nbytes) {
    if (!nbytes) { s->data = NULL; s->capacity = 0; s->nbytes = 0; return 0; }
    s->data = block_get(nbytes, &s->capacity);
    if (!s->data) {
        s->capacity = 0;
        PyErr_Format(PyExc_RuntimeError, "DefaultCPUAllocator: can't allocate memory: you tried to allocate %lld bytes. "
                     "Use smaller tensors or free others first.", (long long)nbytes);
        return -1;
    }
    s->nbytes = nbytes;
    return 0;
}
static void release(Storage *s) {
    if (s->capacity) block_put(s->data, s->capacity);
    s->data = NULL; s->capacity = 0;
    Py_CLEAR(s->owner);
}
Storage *fl_storage_new(int64_t nbytes, Device *device) {
    Storage *s = bare(nbytes, device);
    if (s && acquire(s, nbytes)) { Py_DECREF(s); return NULL; }
    return s;
}
Storage *fl_storage_fake(int64_t nbytes, Device *device) {
    Storage *s = bare(nbytes, device);
    if (s) s->flags = FL_S_FAKE;
    return s;
}
static void dealloc(Storage *s) {
    if (s->weakrefs) PyObject_ClearWeakRefs((PyObject *)s);
    release(s);
    Py_DECREF(s->device);
    Py_XDECREF(s->dict);
    PyTypeObject *type = Py_TYPE(s);
    PyObject_Free(s);
    Py_DECREF(type);
}
/* UntypedStorage(nbytes=0, device=cpu); other arguments (a sequence of bytes, a device by name) are Python's. */
static PyObject *make(PyTypeObject *type, PyObject *args, PyObject *kw) {
    Py_ssize_t n = PyTuple_GET_SIZE(args);
    if ((n == 1 && PyLong_CheckExact(PyTuple_GET_ITEM(args, 0)) && !kw) || (!n && !kw)) {
        long long nbytes = n ? PyLong_AsLongLong(PyTuple_GET_ITEM(args, 0)) : 0;
        if (nbytes == -1 && PyErr_Occurred()) return NULL;
        if (nbytes >= 0) return (PyObject *)fl_storage_new(nbytes, fl_cpu);
    }
    PyObject *f = PyDict_GetItemString(fl_hooks, "new_storage");
    if (!f) { PyErr_SetString(PyExc_SystemError, "flambeau._native: hook new_storage is not filled; import flambeau first"); return NULL; }
    return PyObject_CallFunctionObjArgs(f, (PyObject *)type, args, kw ? kw : Py_None, NULL);
}
/* allocate(nbytes, device): the cell itself. */
static PyObject *allocate(PyObject *cls, PyObject *args) {
    long long n; PyObject *dev;
    if (!PyArg_ParseTuple(args, "LO!", &n, &DeviceType, &dev)) return NULL;
    if (n < 0) { PyErr_Format(PyExc_RuntimeError, "a storage cannot have %lld bytes", n); return NULL; }
    return (PyObject *)(((Device *)dev)->type == 0 ? fl_storage_new(n, (Device *)dev) : fl_storage_fake(n, (Device *)dev));
}
/* from_pointer(address, nbytes, owner, readonly=False): foreign bytes, kept alive by owner. */
static PyObject *from_pointer(PyObject *cls, PyObject *args) {
    long long addr, n; PyObject *owner; int readonly = 0;
    if (!PyArg_ParseTuple(args, "LLO|p", &addr, &n, &owner, &readonly)) return NULL;
    Storage *s = bare(n, fl_cpu);
    if (!s) return NULL;
    s->data = (char *)(intptr_t)addr; s->owner = Py_NewRef(owner); s->flags = (readonly ? FL_S_READONLY : 0) | FL_S_FIXED;
    return (PyObject *)s;
}
static PyObject *fake(PyObject *cls, PyObject *args) {
    long long n; PyObject *dev;
    if (!PyArg_ParseTuple(args, "LO!", &n, &DeviceType, &dev)) return NULL;
    return (PyObject *)fl_storage_fake(n, (Device *)dev);
}
/* resize_(nbytes): live views keep the cell; the common part of the bytes is kept. */
static PyObject *resize(Storage *s, PyObject *v) {
    FL_UNSEEN();
    long long n = PyLong_AsLongLong(v);
    if (n == -1 && PyErr_Occurred()) return NULL;
    if (n < 0) { PyErr_Format(PyExc_RuntimeError, "resize_: size must be non-negative, got %lld bytes", n); return NULL; }
    if (s->flags & FL_S_FAKE) { s->nbytes = n; return Py_NewRef((PyObject *)s); }
    if (s->flags & FL_S_FIXED) { PyErr_SetString(PyExc_RuntimeError, "Trying to resize storage that is not resizable"); return NULL; }
    if (s->capacity && n <= s->capacity && n > 0) { s->nbytes = n; return Py_NewRef((PyObject *)s); }
    char *old = s->data; int64_t oldn = s->nbytes, oldcap = s->capacity;
    if (n == 0) { release(s); s->nbytes = 0; return Py_NewRef((PyObject *)s); }
    s->data = NULL;
    if (acquire(s, n)) { s->data = old; s->capacity = oldcap; return NULL; }
    if (old && oldn > 0) memcpy(s->data, old, oldn < n ? oldn : n);
    if (oldcap) block_put(old, oldcap);
    return Py_NewRef((PyObject *)s);
}
/* repoint(address, nbytes, owner): the same cell with other bytes (shared memory, mmap). */
static PyObject *repoint(Storage *s, PyObject *args) {
    FL_UNSEEN();
    long long addr, n; PyObject *owner; int shared = 0;
    if (!PyArg_ParseTuple(args, "LLO|p", &addr, &n, &owner, &shared)) return NULL;
    Py_INCREF(owner);
    release(s);
    s->data = (char *)(intptr_t)addr; s->nbytes = n; s->owner = owner;
    s->flags |= FL_S_FIXED | (shared ? FL_S_SHARED : 0);
    Py_RETURN_NONE;
}
static PyObject *s_nbytes(Storage *s, PyObject *u) { FL_UNSEEN(); return PyLong_FromLongLong(s->nbytes); }
static PyObject *s_ptr(Storage *s, PyObject *u) { FL_UNSEEN(); return PyLong_FromVoidPtr(s->data); }
static Py_ssize_t s_len(Storage *s) { return (Py_ssize_t)s->nbytes; }
static PyObject *g_device(Storage *s, void *c) { return Py_NewRef((PyObject *)s->device); }
static PyObject *g_flag(Storage *s, void *c) { return PyBool_FromLong(s->flags & (int)(intptr_t)c); }
static int s_fixed(Storage *s, PyObject *v, void *c) {
    int b = v ? PyObject_IsTrue(v) : 0;
    if (b < 0) return -1;
    s->flags = b ? s->flags | FL_S_FIXED : s->flags & ~FL_S_FIXED;
    return 0;
}
static PyObject *g_version(Storage *s, void *c) { return PyLong_FromLongLong(s->version); }
static PyObject *g_owner(Storage *s, void *c) { return Py_NewRef(s->owner ? s->owner : Py_None); }
static PyGetSetDef getset[] = {
    {"device", (getter)g_device}, {"is_fake", (getter)g_flag, NULL, NULL, (void *)FL_S_FAKE},
    {"readonly", (getter)g_flag, NULL, NULL, (void *)FL_S_READONLY},
    {"_shared", (getter)g_flag, NULL, NULL, (void *)FL_S_SHARED},
    {"_fixed", (getter)g_flag, (setter)s_fixed, NULL, (void *)FL_S_FIXED},
    {"_owner", (getter)g_owner}, {"_version", (getter)g_version}, {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict}, {0}};
static PyMethodDef methods[] = {
    {"from_pointer", from_pointer, METH_VARARGS | METH_CLASS}, {"allocate", allocate, METH_VARARGS | METH_CLASS}, {"fake", fake, METH_VARARGS | METH_CLASS},
    {"resize_", (PyCFunction)resize, METH_O}, {"repoint", (PyCFunction)repoint, METH_VARARGS},
    {"nbytes", (PyCFunction)s_nbytes, METH_NOARGS}, {"size", (PyCFunction)s_nbytes, METH_NOARGS},
    {"data_ptr", (PyCFunction)s_ptr, METH_NOARGS}, {0}};
static int getbuffer(Storage *s, Py_buffer *b, int flags) {
    static char empty[1];
    FL_UNSEEN();
    if (!s->data && s->nbytes) { PyErr_SetString(PyExc_BufferError, "this storage has no bytes (fake or meta tensor)"); return -1; }
    return PyBuffer_FillInfo(b, (PyObject *)s, s->data ? s->data : empty, s->nbytes, !!(s->flags & FL_S_READONLY), flags);
}
/* A heap type, so that Python can attach what is not mechanism (core/storage.py). */
PyTypeObject *StorageType;
static PyMemberDef members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(Storage, dict), READONLY},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Storage, weakrefs), READONLY}, {0}};
static PyType_Slot slots[] = {
    {Py_tp_dealloc, dealloc}, {Py_tp_new, make}, {Py_tp_methods, methods}, {Py_tp_getset, getset},
    {Py_tp_members, members}, {Py_bf_getbuffer, getbuffer}, {Py_sq_length, s_len},
    {Py_tp_doc, "The bytes that tensors share: aliases hold the same cell."}, {0, NULL}};

static PyObject *stats(PyObject *m, PyObject *u) {
    return Py_BuildValue("{sLsLsLsL}", "live_bytes", (long long)live_bytes, "peak_bytes", (long long)peak_bytes,
                         "cached_bytes", (long long)cached_bytes, "allocations", (long long)allocs);
}
static PyObject *empty_cache(PyObject *m, PyObject *u) { drop_cache(); Py_RETURN_NONE; }
static PyObject *set_limit(PyObject *m, PyObject *v) {
    long long n = PyLong_AsLongLong(v);
    if (n == -1 && PyErr_Occurred()) return NULL;
    cache_limit = n;
    Py_RETURN_NONE;
}
static PyMethodDef module_methods[] = {
    {"memory_stats", stats, METH_NOARGS}, {"empty_cache", empty_cache, METH_NOARGS},
    {"set_cache_limit", set_limit, METH_O}, {0}};
int fl_storage_init(PyObject *m) {
    PyType_Spec spec = {"flambeau.UntypedStorage", sizeof(Storage), 0, Py_TPFLAGS_DEFAULT, slots};
    StorageType = (PyTypeObject *)PyType_FromSpec(&spec);
    if (!StorageType || PyModule_AddObjectRef(m, "UntypedStorage", (PyObject *)StorageType) < 0) return -1;
    StorageType->tp_name = "UntypedStorage";
    return PyModule_AddFunctions(m, module_methods);
}
