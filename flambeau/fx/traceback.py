"""Where operations come from: carrying ``Node.meta`` through a second trace."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from flambeau._src.ir import provenance
from flambeau._src.ir.provenance import current

__all__ = [
    "annotate",
    "annotate_fn",
    "format_stack",
    "get_current_meta",
    "has_preserved_node_meta",
    "preserve_node_meta",
    "set_current_meta",
    "set_stack_trace",
]

F = TypeVar("F", bound=Callable[..., Any])


def preserve_node_meta(enable: bool = True) -> AbstractContextManager[None]:
    """Within the context, what is recorded keeps the meta of what is being run."""
    return provenance.preserving(enable)


def has_preserved_node_meta() -> bool:
    """Whether `preserve_node_meta` is in effect."""
    return current.preserve


def set_stack_trace(stack: list[str]) -> None:
    """The stack trace that recorded nodes get while metadata is preserved."""
    if current.preserve and stack:
        current.meta["stack_trace"] = "".join(stack)


def format_stack() -> list[str]:
    """The preserved stack trace, else that of the caller, as a list of texts."""
    if current.preserve:
        return [current.meta.get("stack_trace", "")]
    import traceback  # lazy: for a stack only

    return traceback.format_list(traceback.extract_stack()[:-1])


@contextmanager
def set_current_meta(node: Any, pass_name: str = "") -> Iterator[None]:
    """Within the context, recorded nodes are marked as coming from `node`."""
    with provenance.copying_from(node, name=pass_name):
        yield


def get_current_meta() -> dict[str, Any]:
    """The meta that recorded nodes get."""
    return current.meta


def get_current_replay_node() -> Any:
    """The node being run again, or None."""
    return current.replaying


def annotate(annotation_dict: dict[str, Any]) -> AbstractContextManager[None]:
    """Within the context, recorded nodes carry the entries under ``meta["custom"]``."""
    return provenance.annotated(annotation_dict)


def annotate_fn(annotation_dict: dict[str, Any]) -> Callable[[F], F]:
    """`annotate` around every call of a function."""

    def decorate(fn: F) -> F:
        @functools.wraps(fn)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with annotate(annotation_dict):
                return fn(*args, **kwargs)

        return wrapped  # type: ignore[return-value]

    return decorate
