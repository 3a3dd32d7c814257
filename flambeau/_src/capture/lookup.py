"""Names in classes, as Python's method resolution order has them."""

from __future__ import annotations

import types
from typing import Any

from flambeau._src.capture.outcome import Unsupported
from flambeau._src.capture.scalars import FixedScalars, Scalar

__all__ = ["MISSING", "is_hidden", "lookup", "own_dict", "special"]

MISSING: Any = object()


def lookup(kind: type, name: str) -> Any:
    """The entry of the first class in the method resolution order; MISSING if there is none."""
    if kind is Scalar:
        raise FixedScalars
    for base in kind.__mro__:
        d = base.__dict__
        if name in d:
            return d[name]
    return MISSING


def own_dict(value: Any) -> Any:
    """The `__dict__` of an instance as its class's layout has it, without asking its methods; None
    where there is none."""
    for base in type(value).__mro__:
        found: Any = base.__dict__.get("__dict__")
        if type(found) in (types.GetSetDescriptorType, types.MemberDescriptorType):
            return found.__get__(value)
    return None


def is_hidden(kind: type, name: str) -> bool:
    """Whether setting the name asks a descriptor of the class: what is in an instance's `__dict__`
    under it was put there around that."""
    found = lookup(kind, name)
    slot = (types.MemberDescriptorType, types.GetSetDescriptorType)
    if found is MISSING or type(found) in slot:
        return False
    return any(lookup(type(found), n) is not MISSING for n in ("__set__", "__delete__"))


def special(kind: type, name: str) -> Any:
    """A special method of a class, None if it has none. A class that takes one away by setting it
    to None is another thing, which native code tells apart (hashing apart: many classes do it)."""
    found = lookup(kind, name)
    if found is MISSING:
        return None
    if found is None and name != "__hash__":
        raise Unsupported(f"{kind.__name__}.{name} is None.")
    return found.__func__ if isinstance(found, staticmethod) else found
