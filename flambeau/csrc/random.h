/* Random streams of the CPU: one Mersenne Twister a generator, drawn from word for word as torch's
   CPU generator is, so that the same seed gives the same bits. See random.c. */
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Adds the type `RandomStream` to the module: 0, or -1 with an exception. */
int fl_random_init(PyObject *module);
