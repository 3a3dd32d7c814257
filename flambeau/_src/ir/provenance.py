"""Where recorded operations come from: what a tracer copies into ``Node.meta``.

A program being re-traced (a graph run by an interpreter that records) keeps the origin of each
operation by putting it here for the time of the call. Public as ``flambeau.fx.traceback``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["annotated", "copying_from", "current", "preserving", "with_meta"]


class _Current(threading.local):
    def __init__(self) -> None:
        self.meta: dict[str, Any] = {}
        self.preserve = False
        self.replaying: Any = None


#: This thread's state: ``meta`` to copy, and whether to copy it.
current = _Current()


@contextmanager
def preserving(enable: bool = True) -> Iterator[None]:
    """Within the context tracers copy the current meta; it ends as it began."""
    before = current.preserve, current.meta
    current.preserve = enable
    current.meta = dict(current.meta) if enable else current.meta
    try:
        yield
    finally:
        current.preserve, current.meta = before


@contextmanager
def with_meta(meta: dict[str, Any]) -> Iterator[None]:
    """Within the context the current meta is `meta`."""
    before = current.meta
    current.meta = meta
    try:
        yield
    finally:
        current.meta = before


@contextmanager
def copying_from(node: Any, *, name: str | None = None) -> Iterator[dict[str, Any]]:
    """Within the context, recorded nodes are marked as coming from `node`.

    Does nothing unless the current meta is being preserved.
    """
    if not current.preserve:
        yield current.meta
        return
    meta = {k: v for k, v in node.meta.items() if k not in ("val", "tensor_meta", "type")}
    source = (node.name, node.target)
    meta["from_node"] = [*node.meta.get("from_node", []), source]
    replaying, current.replaying = current.replaying, node
    try:
        with with_meta(meta):
            yield meta
    finally:
        current.replaying = replaying


@contextmanager
def annotated(annotation: dict[str, Any]) -> Iterator[None]:
    """Within the context, recorded nodes carry `annotation` under ``meta["custom"]``."""
    custom = {**current.meta.get("custom", {}), **annotation}
    preserve, current.preserve = current.preserve, True
    try:
        with with_meta({**current.meta, "custom": custom}):
            yield
    finally:
        current.preserve = preserve
