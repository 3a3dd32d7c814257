"""The capture of bytecode, by its name in torch: what programs say to it. It is not there yet."""

from __future__ import annotations

from flambeau._dynamo import config
from flambeau._src.capture.marks import (
    allow_in_graph,
    assume_constant_result,
    disable,
    disallow_in_graph,
    graph_break,
    list_backends,
    mark_dynamic,
    mark_static,
    mark_static_address,
    maybe_mark_dynamic,
    reset,
    set_stance,
    substitute_in_graph,
)
from flambeau.nn import Module

__all__ = [
    "OptimizedModule",
    "allow_in_graph",
    "assume_constant_result",
    "disable",
    "disallow_in_graph",
    "graph_break",
    "is_compiling",
    "list_backends",
    "mark_dynamic",
    "mark_static",
    "mark_static_address",
    "maybe_mark_dynamic",
    "reset",
    "set_stance",
    "substitute_in_graph",
]


def is_compiling() -> bool:
    """Whether this runs while a program is captured."""
    return False


class OptimizedModule(Module):
    """What `compile` makes of a module; none is made yet."""
