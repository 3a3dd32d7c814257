/* Types of several named results, as torch's C++ makes them: real struct sequences. */
#include "native.h"

static char *copied(PyObject *text) {     /* kept for ever: the type points at it */
    const char *s = PyUnicode_AsUTF8(text);
    return s ? strcpy(PyMem_RawMalloc(strlen(s) + 1), s) : NULL;
}
/* structseq(qualified name, field names) -> type */
static PyObject *structseq(PyObject *m, PyObject *args) {
    PyObject *name, *fields;
    if (!PyArg_ParseTuple(args, "UO!", &name, &PyTuple_Type, &fields)) return NULL;
    Py_ssize_t n = PyTuple_GET_SIZE(fields);
    PyStructSequence_Field *f = PyMem_RawCalloc(n + 1, sizeof *f);
    if (!f) return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n; i++) if (!(f[i].name = copied(PyTuple_GET_ITEM(fields, i)))) return NULL;
    PyStructSequence_Desc d = {copied(name), NULL, f, (int)n};
    return d.name ? (PyObject *)PyStructSequence_NewType(&d) : NULL;
}
/* structseq_of(type, values): an instance, without going through type's constructor. */
static PyObject *structseq_of(PyObject *m, PyObject *const *a, Py_ssize_t n) {
    if (n != 2 || !PyType_Check(a[0]) || !PyTuple_Check(a[1])) { PyErr_SetString(PyExc_TypeError, "structseq_of(type, tuple)"); return NULL; }
    PyObject *r = PyStructSequence_New((PyTypeObject *)a[0]);
    for (Py_ssize_t i = 0; r && i < PyTuple_GET_SIZE(a[1]); i++) PyStructSequence_SetItem(r, i, Py_NewRef(PyTuple_GET_ITEM(a[1], i)));
    return r;
}
static PyMethodDef functions[] = {{"structseq", structseq, METH_VARARGS}, {"structseq_of", (PyCFunction)structseq_of, METH_FASTCALL}, {0}};
int fl_structseq_init(PyObject *m) { return PyModule_AddFunctions(m, functions); }
