"""What programs ask and tell the compiler: a thin face, without the compiler behind it."""

from __future__ import annotations

from flambeau._src.capture.marks import (
    allow_in_graph,
    assume_constant_result,
    cudagraph_mark_step_begin,
    disable,
    list_backends,
    reset,
    set_stance,
    substitute_in_graph,
    wrap_numpy,
)

__all__ = [
    "allow_in_graph",
    "assume_constant_result",
    "cudagraph_mark_step_begin",
    "disable",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "list_backends",
    "reset",
    "set_stance",
    "substitute_in_graph",
    "wrap_numpy",
]


def is_compiling() -> bool:
    """Whether this runs while a program is captured; the capture sees True in its place."""
    return False


def is_dynamo_compiling() -> bool:
    """Whether bytecode is being captured."""
    return False


def is_exporting() -> bool:
    """Whether a program is being exported."""
    return False
