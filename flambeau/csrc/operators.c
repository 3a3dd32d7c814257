/* Tensor's reflected operators as attributes, and slots that stay in C in spite of them.

   x + y reaches C through the type's number slots. Python would point those slots at its generic
   dispatcher as soon as Tensor or a subclass has a `__radd__` that is not the slot's own wrapper, and
   torch's are not: Tensor.__radd__(x, y) is x + y. So the attributes are written past the slots, and
   the metatype gives every subclass that changes no operator of its own its parent's slots back. */
#include "native.h"

#define SLOT(name, field) {"__" name "__", "__r" name "__", offsetof(PyNumberMethods, field)}
static const struct { const char *forward, *reflected; size_t at; } slots[] = {
    SLOT("add", nb_add), SLOT("sub", nb_subtract), SLOT("mul", nb_multiply), SLOT("truediv", nb_true_divide),
    SLOT("floordiv", nb_floor_divide), SLOT("mod", nb_remainder), SLOT("pow", nb_power), SLOT("matmul", nb_matrix_multiply),
    SLOT("and", nb_and), SLOT("or", nb_or), SLOT("xor", nb_xor), SLOT("lshift", nb_lshift), SLOT("rshift", nb_rshift)};
enum { COUNT = sizeof slots / sizeof *slots };
static PyTypeObject MetaType;

/* Whether looking name up on type finds what Tensor itself has. */
static int inherited(PyTypeObject *type, const char *name) {
    PyObject *key = PyUnicode_InternFromString(name);
    int same = key && _PyType_Lookup(type, key) == _PyType_Lookup(TensorType, key);
    Py_XDECREF(key);
    return same;
}
static int meta_init(PyObject *self, PyObject *args, PyObject *kw) {
    if (PyType_Type.tp_init(self, args, kw) < 0) return -1;
    PyTypeObject *type = (PyTypeObject *)self;
    if (!PyType_IsSubtype(type, TensorType) || !type->tp_as_number) return 0;
    for (int i = 0; i < COUNT; i++)
        if (inherited(type, slots[i].forward) && inherited(type, slots[i].reflected))
            memcpy((char *)type->tp_as_number + slots[i].at, (char *)TensorType->tp_as_number + slots[i].at, sizeof(void *));
    return 0;
}
/* set_operator(name, value): an attribute of Tensor that leaves the slots alone; False: no operator's name. */
static PyObject *f_operator(PyObject *m, PyObject *args) {
    const char *name; PyObject *value;
    if (!PyArg_ParseTuple(args, "sO", &name, &value)) return NULL;
    for (int i = 0; i < COUNT; i++)
        if (!strcmp(name, slots[i].forward) || !strcmp(name, slots[i].reflected)) {
            PyObject *key = PyUnicode_InternFromString(name);
            int bad = !key || PyDict_SetItem(TensorType->tp_dict, key, value) < 0;
            Py_XDECREF(key);
            if (bad) return NULL;
            PyType_Modified(TensorType);
            Py_RETURN_TRUE;
        }
    Py_RETURN_FALSE;
}
static PyMethodDef functions[] = {{"set_operator", f_operator, METH_VARARGS}, {0}};
static PyTypeObject MetaType = {PyVarObject_HEAD_INIT(NULL, 0).tp_name = "flambeau._native.TensorMeta",
    .tp_doc = "The metatype of Tensor.", .tp_base = &PyType_Type, .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, .tp_init = meta_init};

int fl_operators_init(PyObject *m) {
    if (fl_add_type(m, &MetaType) < 0) return -1;
    Py_SET_TYPE(TensorType, &MetaType);      /* PyType_FromMetaclass came with 3.12 */
    return PyModule_AddFunctions(m, functions);
}
