/* What the frame hook and the guards agree on: where a frame's variables are before it has begun. */
#pragma once
#include "native.h"

typedef struct {
    PyObject **slots;             /* arguments as bound; NULL: look in `names` */
    PyObject *closure;            /* tuple of cells, or NULL */
    PyObject *names;              /* dict: variables by name */
    PyObject *globals, *builtins;
} Scope;
int fl_guard_bind(PyObject *checker, PyCodeObject *code);   /* its variables' slots in frames of `code` */
int fl_guard_check(PyObject *checker, const Scope *scope);  /* 1 holds, 0 does not, -1 error */
int fl_is_checker(PyObject *checker);
int fl_frame_init(PyObject *), fl_guard_init(PyObject *);
