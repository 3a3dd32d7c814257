"""What programs ask and tell the compiler."""

from __future__ import annotations

from flambeau._src.capture.marks import wrap_numpy
from flambeau._src.compiler.api import DEFAULT, compile, disable, set_default_backend
from flambeau._src.compiler.backends import list_backends
from flambeau._src.compiler.driver import reset
from flambeau._src.compiler.marks import (
    cudagraph_mark_step_begin,
    keep_tensor_guards_unsafe,
    skip_all_guards_unsafe,
    skip_guard_on_all_nn_modules_unsafe,
    skip_guard_on_globals_unsafe,
    skip_guard_on_inbuilt_nn_modules_unsafe,
)
from flambeau._src.compiler.stance import set_stance
from flambeau._src.compiler.told import (
    allow_in_graph,
    assume_constant_result,
    nonstrict_trace,
    substitute_in_graph,
)
from flambeau.compiler import config

__all__ = [
    "allow_in_graph", "assume_constant_result", "compile", "config", "cudagraph_mark_step_begin",
    "disable", "get_default_backend", "is_compiling", "is_dynamo_compiling", "is_exporting",
    "keep_tensor_guards_unsafe", "list_backends", "reset", "set_default_backend", "set_stance",
    "skip_all_guards_unsafe", "skip_guard_on_all_nn_modules_unsafe", "skip_guard_on_globals_unsafe",
    "skip_guard_on_inbuilt_nn_modules_unsafe", "substitute_in_graph", "wrap_numpy",
]  # fmt: skip


def get_default_backend() -> object:
    """The back end that `compile` uses where none is named."""
    return DEFAULT.backend or "inductor"


def is_compiling() -> bool:
    """Whether this runs while a program is captured; the capture sees True in its place."""
    return False


def is_dynamo_compiling() -> bool:
    """Whether bytecode is being captured."""
    return False


def is_exporting() -> bool:
    """Whether a program is being exported."""
    return False
