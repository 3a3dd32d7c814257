/* Guards in C. */
#include "guard.h"
int fl_is_checker(PyObject *c) { return 0; }
int fl_guard_bind(PyObject *c, PyCodeObject *co) { return 0; }
int fl_guard_check(PyObject *c, const Scope *s) { return 1; }
int fl_guard_init(PyObject *m) { return 0; }
