"""What programs ask and tell the compiler: a thin face, without the compiler behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["allow_in_graph", "disable", "is_compiling", "is_dynamo_compiling", "is_exporting"]


def is_compiling() -> bool:
    """Whether this runs while a program is captured; the capture sees True in its place."""
    return False


def is_dynamo_compiling() -> bool:
    """Whether bytecode is being captured."""
    return False


def is_exporting() -> bool:
    """Whether a program is being exported."""
    return False


def allow_in_graph(fn: Any) -> Any:
    """Mark a function as one operator of a graph; returns it."""
    return fn


def disable(fn: Callable[..., Any] | None = None, recursive: bool = True, **_: Any) -> Any:
    """A function that is never captured, or a decorator that makes one."""
    return fn if fn is not None else lambda function: function
