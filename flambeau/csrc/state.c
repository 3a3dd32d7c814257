/* The one thread-local: grad mode, inference mode, and which layers are active. */
#include "native.h"

_Thread_local State fl_state = {.grad = 1, .multithread = 1};

#define FLAG(name)                                                                               \
    static PyObject *get_##name(PyObject *m, PyObject *u) { return PyBool_FromLong(fl_state.name); } \
    static PyObject *set_##name(PyObject *m, PyObject *v) {                                      \
        int b = PyObject_IsTrue(v); if (b < 0) return NULL;                                      \
        int old = fl_state.name; fl_state.name = b; return PyBool_FromLong(old); }
FLAG(grad) FLAG(inference) FLAG(multithread) FLAG(scoped)
#define MASK(name)                                                                               \
    static PyObject *get_##name(PyObject *m, PyObject *u) { return PyLong_FromLong(fl_state.name); } \
    static PyObject *set_##name(PyObject *m, PyObject *v) {                                      \
        long b = PyLong_AsLong(v); if (b == -1 && PyErr_Occurred()) return NULL;                 \
        int old = fl_state.name; fl_state.name = (int)b; return PyLong_FromLong(old); }
MASK(active) MASK(suspended) MASK(level)

/* Objects that are no tensors but override functions (fx.Proxy) ask for the function layer too. */
static int foreign_bits(PyTypeObject *type) {
    if (type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type || type == &PyUnicode_Type || type == Py_TYPE(Py_None)
        || type == &DTypeType || type == &DeviceType || type == &PyComplex_Type || type == &PySlice_Type || type == &PyType_Type) return 0;
    return fl_layer_bits(type) & FL_L_FUNCTION;
}
static int bits_of(PyObject *o) {
    if (Tensor_Check(o)) {
        Tensor *t = (Tensor *)o;
        return t->bits | (fl_requires_grad(t) ? FL_L_RECORD : 0);
    }
    if (PyTuple_Check(o)) {
        int b = 0;
        for (Py_ssize_t i = PyTuple_GET_SIZE(o); i--;) b |= bits_of(PyTuple_GET_ITEM(o, i));
        return b;
    }
    if (PyList_Check(o)) {
        int b = 0;
        for (Py_ssize_t i = PyList_GET_SIZE(o); i--;) b |= bits_of(PyList_GET_ITEM(o, i));
        return b;
    }
    if (PyDict_CheckExact(o)) {
        int b = 0; Py_ssize_t i = 0; PyObject *k, *v;
        while (PyDict_Next(o, &i, &k, &v)) b |= bits_of(v);
        return b;
    }
    return foreign_bits(Py_TYPE(o));
}
/* call_bits(args, kwargs, extra): the layers this call meets, suspended ones left out. */
static PyObject *call_bits(PyObject *m, PyObject *const *a, Py_ssize_t n) {
    if (n != 3) { PyErr_SetString(PyExc_TypeError, "call_bits(args, kwargs, extra)"); return NULL; }
    int b = bits_of(a[0]) | bits_of(a[1]);
    if (PyErr_Occurred()) return NULL;
    if (!fl_recording()) b &= ~FL_L_RECORD;
    b |= fl_state.active | (int)PyLong_AsLong(a[2]);
    return PyLong_FromLong(b & ~fl_state.suspended);
}
/* beneath(layers, function, argument): function(argument) with just these layers suspended, nothing recorded. */
static PyObject *beneath(PyObject *m, PyObject *const *a, Py_ssize_t n) {
    if (n != 3) { PyErr_SetString(PyExc_TypeError, "beneath(layers, function, argument)"); return NULL; }
    long layers = PyLong_AsLong(a[0]);
    if (layers == -1 && PyErr_Occurred()) return NULL;
    int suspended = fl_state.suspended, grad = fl_state.grad;
    fl_state.suspended = (int)layers; fl_state.grad = 0;
    PyObject *r = PyObject_CallOneArg(a[1], a[2]);
    fl_state.suspended = suspended; fl_state.grad = grad;
    return r;
}
static PyMethodDef methods[] = {
    {"get_grad", get_grad, METH_NOARGS}, {"set_grad", set_grad, METH_O},
    {"get_inference", get_inference, METH_NOARGS}, {"set_inference", set_inference, METH_O},
    {"get_multithread", get_multithread, METH_NOARGS}, {"set_multithread", set_multithread, METH_O},
    {"set_scoped", set_scoped, METH_O}, {"get_scoped", get_scoped, METH_NOARGS},
    {"get_active", get_active, METH_NOARGS}, {"set_active", set_active, METH_O},
    {"get_suspended", get_suspended, METH_NOARGS}, {"set_suspended", set_suspended, METH_O},
    {"get_level", get_level, METH_NOARGS}, {"set_level", set_level, METH_O},
    {"call_bits", (PyCFunction)call_bits, METH_FASTCALL}, {"beneath", (PyCFunction)beneath, METH_FASTCALL}, {0}};
int fl_state_init(PyObject *m) { return PyModule_AddFunctions(m, methods); }
