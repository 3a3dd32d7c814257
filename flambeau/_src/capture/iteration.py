"""Iterating: over native iterables as they are, over users' by their methods."""

from __future__ import annotations

import collections
import enum
import sys
import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flambeau._src.capture import overriding
from flambeau._src.capture.generators import Generator
from flambeau._src.capture.lookup import MISSING, special
from flambeau._src.capture.natives import CONTAINERS, ITERATORS
from flambeau._src.capture.outcome import Raised, Unsupported
from flambeau._src.capture.values.constant import ATOMS
from flambeau._src.capture.values.tensors import is_tensor

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session

__all__ = [
    "END_FOR_KEEPS_ITERATOR",
    "SequenceIterator",
    "UserIterator",
    "items",
    "iterator",
    "length",
    "mapping",
    "native_iterable",
    "next_",
]

#: From 3.13 on END_FOR leaves the iterator to a POP_TOP.
END_FOR_KEEPS_ITERATOR = sys.version_info >= (3, 13)


class UserIterator:
    """A user's iterator for native code: `__next__` is interpreted."""

    __slots__ = ("inside", "session")

    def __init__(self, session: Session, inside: Any) -> None:
        self.session = session
        self.inside = inside

    def __iter__(self) -> UserIterator:
        return self

    def __next__(self) -> Any:
        try:
            return next_(self.session, self.inside)
        except Raised as raised:
            error = raised.error
        raise error


class SequenceIterator:
    """The iterator of an object that has only `__getitem__`."""

    __slots__ = ("at", "inside")

    def __init__(self, inside: Any) -> None:
        self.inside = inside
        self.at = 0


def _is_native(value: Any) -> bool:
    kind = type(value)
    return kind in CONTAINERS or kind in ITERATORS or kind in ATOMS or kind is Generator


def iterator(s: Session, value: Any) -> Any:
    """`iter(value)`."""
    kind = type(value)
    if kind is Generator or kind in ITERATORS or kind is UserIterator or kind is SequenceIterator:
        return value
    if kind in CONTAINERS or kind in ATOMS:
        return s.native(iter, value)
    if is_tensor(value):
        own = overriding.method(s, value, "__iter__")
        if own is not None:
            return s.call(own, (value,), {})
        out = overriding.protocol(s, iter, value)
        return iter(unbound(s, value)) if out is MISSING else out
    method = special(kind, "__iter__")
    if isinstance(value, enum.EnumMeta):
        if value.__dict__.get("__new__") is not enum.Enum.__new__:
            raise Unsupported(f"The enumeration {value.__name__} is still being made.")
        return iter(list(value))
    if method is None:
        if special(kind, "__getitem__") is not None:
            return SequenceIterator(value)
        return s.raise_(TypeError(f"'{kind.__name__}' object is not iterable"))
    if type(method) is types.FunctionType:
        if isinstance(value, type):
            return s.native(iter, value)
        found = s.call(method, (value,), {})
        if type(found) in ITERATORS or type(found) in (Generator, SequenceIterator):
            return found
        if special(type(found), "__next__") is None:
            text = f"iter() returned non-iterator of type '{type(found).__name__}'"
            return s.raise_(TypeError(text))
        return found
    if isinstance(value, (list, tuple, dict, set, frozenset)):
        return s.native(iter, value)
    raise Unsupported(f"A {kind.__name__} is iterated over.")


def unbound(s: Session, tensor: Any) -> tuple[Any, ...]:
    """A tensor's parts along its first dimension."""
    if tensor.dim() == 0:
        s.raise_(TypeError("iteration over a 0-d tensor"))
    found: tuple[Any, ...] = s.recorder.method("unbind", tensor)
    return found


def next_(s: Session, it: Any) -> Any:
    """`next(it)`. Raises Raised(StopIteration) at the end."""
    kind = type(it)
    if kind is Generator:
        return it.resume()
    if kind in ITERATORS:
        return s.recorder.watch(next, (it,), {}) if kind in _CALLING else s.native(next, it)
    if kind is UserIterator:
        return next_(s, it.inside)
    if kind is SequenceIterator:
        method = special(type(it.inside), "__getitem__")
        try:
            value = s.call(method, (it.inside, it.at), {})
        except Raised as raised:
            if isinstance(raised.error, IndexError):
                return s.raise_(StopIteration())
            raise
        it.at += 1
        return value
    method = special(kind, "__next__")
    if method is None:
        return s.raise_(TypeError(f"'{kind.__name__}' object is not an iterator"))
    return s.call(method, (it,), {})


#: Iterators that compute as they go.
_STORED: tuple[Any, ...] = ([], (), {}, set(), "", range(0))
_CALLING = ITERATORS - {type(iter(x)) for x in _STORED} - {enumerate, zip}


def native_iterable(s: Session, value: Any) -> Any:
    """Something that native code can iterate over."""
    if _is_native(value):
        return value
    if is_tensor(value) and not overriding.overriding(s, (value,), {}):
        return unbound(s, value)
    if isinstance(value, (UserIterator, SequenceIterator)):
        return UserIterator(s, value)
    it = iterator(s, value)
    return it if _is_native(it) else UserIterator(s, it)


#: What gives its items without running anything.
_AT_ONCE: frozenset[Any] = frozenset((range, str, bytes, set, frozenset, dict, collections.deque))


def items(s: Session, value: Any, limit: int | None = None) -> list[Any]:
    """All items of an iterable (one more than `limit` at most)."""
    kind = type(value)
    if kind in (list, tuple):
        return list(value)
    if limit is None and kind in _AT_ONCE:
        s.went_on(len(value))
        return list(value)
    it = iterator(s, value)
    found: list[Any] = []
    while limit is None or len(found) <= limit:
        s.went_on()
        try:
            found.append(next_(s, it))
        except Raised as raised:
            if isinstance(raised.error, StopIteration):
                break
            raise
    return found


def mapping(s: Session, value: Any) -> dict[Any, Any]:
    """A native mapping with the items of any mapping."""
    if isinstance(value, dict) and type(value).keys in (dict.keys, _ODICT_KEYS):
        return value
    if not isinstance(value, Mapping) and special(type(value), "keys") is None:
        s.raise_(TypeError(f"'{type(value).__name__}' object is not a mapping"))
    keys = items(s, s.call_method(value, "keys"))
    return {k: s.get_item(value, k) for k in keys}


_ODICT_KEYS = collections.OrderedDict.keys


def length(s: Session, value: Any) -> int:
    """`len(value)`."""
    kind = type(value)
    own = overriding.method(s, value, "__len__")
    if own is not None:
        return int(s.call(own, (value,), {}))
    if is_tensor(value) and (out := overriding.protocol(s, len, value)) is not MISSING:
        return int(out)
    if is_tensor(value) or kind in CONTAINERS or kind in ATOMS:
        return s.native(len, value)  # type: ignore[no-any-return]
    method = special(kind, "__len__")
    if method is None:
        return s.raise_(TypeError(f"object of type '{kind.__name__}' has no len()"))  # type: ignore[no-any-return]
    if type(method) is types.FunctionType:
        if isinstance(value, type):
            return s.native(len, value)  # type: ignore[no-any-return]
        n = s.call(method, (value,), {})
        if type(n) is not int:
            raise Unsupported("`__len__` gave something that is no int.")
        if n < 0:
            s.raise_(ValueError("__len__() should return >= 0"))
        return n
    return s.native(len, value)  # type: ignore[no-any-return]
