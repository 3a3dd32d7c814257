#include "guard.h"
#include "tape.h"

static struct PyModuleDef def = {PyModuleDef_HEAD_INIT, "_native", "The C part of flambeau.", -1, NULL};
PyObject *fl_hooks;

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *m = PyModule_Create(&def);
    if (!m || !(fl_hooks = PyDict_New()) || PyModule_AddObjectRef(m, "hooks", fl_hooks) < 0) return NULL;
    if (fl_state_init(m) || fl_storage_init(m) || fl_tensor_init(m) || fl_node_init(m) ||
        fl_iterate_init(m) || fl_fast_init(m) || fl_views_init(m) || fl_indexed_init(m) || fl_choose_init(m) || fl_random_init(m) || fl_dlpack_init(m) || fl_structseq_init(m)) return NULL;
    if (fl_sort_init(m) || fl_operators_init(m) || fl_tape_init(m) || fl_backward_init(m) || fl_windows_init(m) || fl_guard_init(m) || fl_frame_init(m)) return NULL;
    if (fl_tape_wrap(m)) return NULL;
    return m;
}
