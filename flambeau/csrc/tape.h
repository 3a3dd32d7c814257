/* Recorded calls: a Python function over tensors, run once and then repeated from C as the calls it made. */
#pragma once
#include "fast.h"

enum { FL_KEY_WORDS = 384, FL_MAX_INPUTS = 48 };
typedef struct { int64_t w[FL_KEY_WORDS]; int n; } Key;
/* What one call gets: the tensors (as they are held: Saved, or the tensor), and the key that tells calls apart. */
typedef struct { Key key; PyObject *in[FL_MAX_INPUTS]; Tensor *of[FL_MAX_INPUTS]; int nin; } Inputs;
typedef struct Program Program;

/* The tape that this thread writes; NULL inside of a call that is on it already. */
extern _Thread_local struct Tape *fl_tape;
void fl_tape_refuse(void);
/* Something happened that a repetition would not see: values were read, or bytes written directly. */
#define FL_UNSEEN() do { if (fl_tape) fl_tape_refuse(); } while (0)
PyObject *fl_taped_call(Function *f, PyObject *const *a, Py_ssize_t n, PyObject *kw);
void fl_tape_unpacked(PyObject *saved, PyObject *tensor);
void fl_tape_outs(void);
void fl_tape_offsets(void);         /* Python asked where in its storage a tensor begins */
PyObject *fl_taped_method(PyObject *f, PyObject *const *a, Py_ssize_t n);
PyObject *fl_taped_fill(PyObject *stream, const char *name, PyObject *const *a, Py_ssize_t n);
PyObject *fl_taped_address(PyObject *f, PyObject *tensor);
PyObject *fl_prepared(Function *f, PyObject *const *a, Py_ssize_t n, PyObject *kw);      /* NULL without an error: Python's case */
int fl_tape_wrap(PyObject *module);
PyObject *fl_call(Function *f, PyObject *const *a, Py_ssize_t n, PyObject *kw);
PyObject *fl_subscript(PyObject *a, PyObject *k);

void fl_word(Key *k, int64_t w);
int fl_input(Inputs *in, PyObject *held, Tensor *t);      /* 0: not a call that can be repeated */
int fl_constant(Inputs *in, PyObject *o);                 /* numbers, names, dtypes, tuples and tensors among them */
/* The program of (owner, inputs), NULL when there is none yet; *refused: there never will be. */
Program *fl_program(PyObject *owner, const Inputs *in, int *refused);
int fl_program_uses_outs(const Program *p);
/* Repeat: vals (borrowed) are the inputs as tensors; results are new references, NULL for None. */
int fl_repeat(Program *p, PyObject **vals, int nout, PyObject **results);
/* function(*args) with a tape running; what it did becomes the program. The result, as function gave
   it. named: the arguments whose names stand in the key. */
PyObject *fl_record(PyObject *owner, const Inputs *in, PyObject *function, PyObject *const *args, Py_ssize_t n, PyObject *named, Program **made);
