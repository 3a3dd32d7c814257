"""The capture of bytecode and its driver, by the name that programs know them under."""

from __future__ import annotations

from flambeau._dynamo import backends, config, decorators, exc, external_utils, testing, utils
from flambeau._dynamo.eval_frame import OptimizedModule, is_dynamo_supported, optimize, run
from flambeau._src.capture.marks import (
    graph_break,
    mark_dynamic,
    mark_static,
    mark_static_address,
    maybe_mark_dynamic,
)
from flambeau._src.compiler.api import disable
from flambeau._src.compiler.backends import list_backends, lookup_backend, register_backend
from flambeau._src.compiler.driver import reset
from flambeau._src.compiler.explain import explain
from flambeau._src.compiler.stance import set_stance
from flambeau._src.compiler.told import (
    allow_in_graph,
    assume_constant_result,
    disallow_in_graph,
    error_on_graph_break,
    forbid_in_graph,
    nonstrict_trace,
    substitute_in_graph,
)
from flambeau.compiler import is_compiling

__all__ = [
    "OptimizedModule", "allow_in_graph", "assume_constant_result", "backends", "config", "disable",
    "decorators", "disallow_in_graph", "error_on_graph_break", "exc", "explain", "export",
    "external_utils", "forbid_in_graph", "graph_break", "is_compiling", "is_dynamo_supported",
    "is_inductor_supported", "list_backends", "lookup_backend", "mark_dynamic", "mark_static",
    "mark_static_address", "maybe_mark_dynamic", "nonstrict_trace",
    "optimize", "optimize_assert", "register_backend", "reset", "run", "set_stance",
    "substitute_in_graph", "testing", "utils",
]  # fmt: skip

is_inductor_supported = is_dynamo_supported


def optimize_assert(backend: object, **settings: object) -> object:
    """`optimize` without graph breaks."""
    return optimize(backend, nopython=True, **settings)


def __getattr__(name: str) -> object:
    if name != "export":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from flambeau._src.export.graphs import export  # lazy: few programs export

    return export
