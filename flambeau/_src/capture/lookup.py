"""Names in classes, as Python's method resolution order has them."""

from __future__ import annotations

from typing import Any

from flambeau._src.capture.outcome import Unsupported

__all__ = ["MISSING", "lookup", "special"]

MISSING: Any = object()


def lookup(kind: type, name: str) -> Any:
    """The entry of the first class in the method resolution order; MISSING if there is none."""
    for base in kind.__mro__:
        d = base.__dict__
        if name in d:
            return d[name]
    return MISSING


def special(kind: type, name: str) -> Any:
    """A special method of a class, None if it has none. A class that takes one away by setting it
    to None is another thing, which native code tells apart (hashing apart: many classes do it)."""
    found = lookup(kind, name)
    if found is MISSING:
        return None
    if found is None and name != "__hash__":
        raise Unsupported(f"{kind.__name__}.{name} is None.")
    return found.__func__ if isinstance(found, staticmethod) else found
