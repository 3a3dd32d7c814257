"""Iterators of sequences: a twin at the same place; the real one is moved on after the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau._src.capture.guards import Kind
from flambeau._src.capture.source import CallSource, ItemSource, Source

if TYPE_CHECKING:
    from flambeau._src.capture.heap import Heap

__all__ = ["SEQUENCE_ITERATORS", "enter", "place"]

SEQUENCE_ITERATORS: frozenset[type] = frozenset(
    {type(iter(list[int]())), type(iter(())), type(iter(range(0)))}
)


def place(it: Any) -> int | None:
    """How far an iterator of a sequence has come; None: to its end."""
    parts = it.__reduce__()
    return parts[2] or 0 if len(parts) > 2 else None


def enter(heap: Heap, value: Any, source: Source) -> Any:
    """The twin of an outside iterator of a list, tuple or range."""
    base = CallSource(source, "__reduce__")
    parts = value.__reduce__()
    sequence = heap.enter(parts[1][0], ItemSource(ItemSource(base, 1), 0))
    twin = iter(sequence)
    if len(parts) > 2:
        heap.guard(Kind.EQUALS, ItemSource(base, 2), parts[2])  # no symbol: the twin is there
        if parts[2]:
            twin.__setstate__(parts[2])
    else:  # at its end: what it reduces to is empty
        list(twin)
    known = heap.know(value, twin, source)
    known.before = (place(twin), type(value).__name__)
    return twin
