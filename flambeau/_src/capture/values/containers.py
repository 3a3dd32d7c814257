"""Containers: a twin of the same type over inside items, and a copy of it to compare with."""

from __future__ import annotations

import collections
from collections.abc import Callable
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from flambeau._src.capture.guards import Kind
from flambeau._src.capture.natives import check_key
from flambeau._src.capture.outcome import Unsupported
from flambeau._src.capture.source import AttrSource, ItemSource, KeySource, Source
from flambeau._src.capture.values.constant import is_plain, is_structseq

if TYPE_CHECKING:
    from flambeau._src.capture.heap import Heap

__all__ = ["ENTER", "Exactly", "refuse_attributes", "same_items"]

_BY_VALUE = (int, bool, str, bytes)  # floats are not: 0.0 equals -0.0
_MANY = 32  # a container of more constants is guarded as a whole


class Exactly:
    """A predicate: equal to a container of constants, types of the items included."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self, value: Any) -> bool:
        return _exactly(value, self.value)

    def __repr__(self) -> str:
        return f"exactly({self.value!r})"


def _exactly(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return len(a) == len(b) and all(
            _exactly(x, y) and _exactly(a[x], b[y]) for x, y in zip(a, b, strict=True)
        )
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_exactly, a, b))
    return a is b or bool(a == b)


def _enter_items(heap: Heap, value: Any, source: Source) -> list[Any]:
    if len(value) > _MANY and all(is_plain(v) for v in value):
        heap.guard(Kind.PYTHON, source, Exactly(type(value)(value)))
        return list(value)
    heap.guard(Kind.LENGTH, source, len(value))
    return [heap.enter(v, ItemSource(source, i)) for i, v in enumerate(value)]


def _enter_list(heap: Heap, value: Any, source: Source) -> Any:
    kind: Any = type(value)
    twin = kind.__new__(kind)
    known = heap.know(value, twin, source)
    list.extend(twin, _enter_items(heap, value, source))
    known.before = list(twin)
    return twin


def _enter_tuple(heap: Heap, value: Any, source: Source) -> Any:
    kind = type(value)
    items = _enter_items(heap, value, source)
    twin = kind(items) if is_structseq(kind) else tuple.__new__(kind, items)
    heap.know(value, twin, source)
    return twin


def _enter_deque(heap: Heap, value: Any, source: Source) -> Any:
    twin = type(value)(maxlen=value.maxlen)
    known = heap.know(value, twin, source)
    heap.guard(Kind.EQUALS, AttrSource(source, "maxlen"), value.maxlen)
    collections.deque.extend(twin, _enter_items(heap, value, source))
    known.before = list(twin)
    return twin


def _enter_set(heap: Heap, value: Any, source: Source) -> Any:
    if not all(is_plain(v) for v in value):
        raise Unsupported(
            "A set from outside holds objects that are no constants.",
            "Pass a list or a dict, whose items have a place.",
        )
    heap.guard(Kind.PYTHON, source, _SameSet(frozenset(value)))
    twin = set.copy(value) if isinstance(value, set) else value
    known = heap.know(value, twin, source)
    known.before = set(twin)
    return twin


class _SameSet:
    def __init__(self, value: frozenset[Any]) -> None:
        self.value = value
        self.typed = {(type(v), v) for v in value}

    def __call__(self, value: Any) -> bool:
        return bool(value == self.value) and {(type(v), v) for v in value} == self.typed

    def __repr__(self) -> str:
        return f"same_set({set(self.value)!r})"


def _enter_dict(heap: Heap, value: Any, source: Source) -> Any:
    kind: Any = type(value)
    twin = kind.__new__(kind)
    known = heap.know(value, twin, source)
    if kind is collections.defaultdict:
        twin.default_factory = heap.enter(
            value.default_factory, AttrSource(source, "default_factory")
        )
    store = (
        collections.OrderedDict.__setitem__
        if kind is collections.OrderedDict
        else (dict.__setitem__)
    )
    if len(value) > _MANY and all(is_plain(k) and is_plain(v) for k, v in value.items()):
        heap.guard(Kind.PYTHON, source, Exactly(dict(value)))
        for key, item in value.items():
            store(twin, key, item)
    else:
        heap.guard(Kind.KEYS, source, list(value))
        for i, (key, item) in enumerate(value.items()):
            if is_plain(key):
                place: Source = ItemSource(source, key)
            else:
                place = ItemSource(source, KeySource(source, i))
                check_key(heap.session, key)
                key = heap.enter(key, KeySource(source, i))
            store(twin, key, heap.enter(item, place))
    known.before = list(twin.items())
    return twin


def _enter_proxy(heap: Heap, value: Any, source: Source) -> Any:
    raise Unsupported("A mappingproxy from outside is not followed.")


def refuse_attributes(heap: Heap, value: Any, source: Source) -> Any:
    """Containers that have attributes of their own."""
    raise Unsupported(
        f"A {type(value).__name__} is a container with attributes of its own.",
        "Use a plain container beside an object.",
    )


#: How to enter a container, by its type; subclasses as their first base in this order.
ENTER: dict[type, Callable[[Heap, Any, Source], Any]] = {
    list: _enter_list,
    tuple: _enter_tuple,
    collections.OrderedDict: _enter_dict,
    collections.defaultdict: _enter_dict,
    dict: _enter_dict,
    collections.deque: _enter_deque,
    set: _enter_set,
    frozenset: _enter_set,
    MappingProxyType: _enter_proxy,
}


def same_items(now: list[Any], before: list[Any]) -> bool:
    """Whether two lists hold the same objects."""
    if len(now) != len(before):
        return False
    return all(
        a is b or (type(a) is type(b) and type(a) in _BY_VALUE and a == b)
        for a, b in zip(now, before, strict=True)
    )
