"""Containers: a twin of the same type over inside items, and a copy of it to compare with."""

from __future__ import annotations

import collections
import gc
import operator
from collections.abc import Callable
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from flambeau._src.capture import library
from flambeau._src.capture.guard_text import same_constant
from flambeau._src.capture.guards import Kind
from flambeau._src.capture.lookup import lookup
from flambeau._src.capture.natives import check_key
from flambeau._src.capture.outcome import Unsupported
from flambeau._src.capture.source import (
    AppliedSource,
    AttrSource,
    CallSource,
    ItemSource,
    KeySource,
    Source,
    applied,
)
from flambeau._src.capture.values.constant import ATOMS, is_plain, is_structseq
from flambeau._src.core.tensor import Tensor

if TYPE_CHECKING:
    from flambeau._src.capture.heap import Heap

__all__ = ["ENTER", "Exactly", "native_writer", "same_items"]

_BY_VALUE = (int, bool, str, bytes)  # floats are not: 0.0 equals -0.0
_DICTS = (collections.OrderedDict, collections.defaultdict, dict)
_MANY = 32  # a container of more constants is guarded as a whole


class Exactly:
    """A predicate: equal to a container of constants, types of the items included."""

    def __init__(self, value: Any) -> None:
        self.value = value
        flat = isinstance(value, (list, tuple)) and all(map(_compares, value))
        #: where native comparison says all but the types
        self.types = list(map(type, value)) if flat else None

    def __call__(self, value: Any) -> bool:
        mine = self.value
        if self.types is None:
            return same_constant(value, mine)
        return type(value) is type(mine) and value == mine and list(map(type, value)) == self.types

    def __repr__(self) -> str:
        return f"exactly({self.value!r})"


def _compares(value: Any) -> bool:
    """Whether what equals the constant and has its type is the same (0.0 equals -0.0)."""
    kind = type(value)
    return kind in ATOMS and kind is not complex and not (kind is float and value == 0)


def _enter_items(heap: Heap, value: Any, source: Source, base: Any) -> list[Any]:
    """Items by the methods of the native type `base`: those of a subclass are the program's."""
    items = list(base.__iter__(value))
    if type(value) is base and len(items) > _MANY and all(map(is_plain, items)):
        _check_size(heap, len(items), 1)
        heap.guard(Kind.PYTHON, source, Exactly(base(items)))
        return items
    _check_size(heap, len(items))
    source = _items_source(type(value), base, source)
    heap.guard(Kind.LENGTH, source, len(items))
    return [heap.enter(v, ItemSource(source, i)) for i, v in enumerate(items)]


def _check_size(heap: Heap, n: int, part: int = 50) -> None:
    """Where captures are bounded, one container takes such a part of it at most."""
    if n * part > heap.session.longest > 0:
        raise Unsupported(f"A container of {n} objects from outside is used.")


def _enter_list(heap: Heap, value: Any, source: Source) -> Any:
    twin: Any = list.__new__(type(value))
    known = heap.know(value, twin, source)
    list.extend(twin, _enter_items(heap, value, source, list))
    known.before = list(list.__iter__(twin))
    return twin


def _enter_tuple(heap: Heap, value: Any, source: Source) -> Any:
    kind = type(value)
    if is_structseq(kind):
        return _enter_record(heap, value, source)
    twin = tuple.__new__(kind, _enter_items(heap, value, source, tuple))
    heap.know(value, twin, source)
    return twin


def _enter_record(heap: Heap, value: Any, source: Source) -> Any:
    """A native record, such as `sys.flags` or a named result of the library."""
    kind: Any = type(value)
    if kind.n_fields != kind.n_sequence_fields:
        raise Unsupported(f"A {kind.__name__} has fields that are no items.")
    if all(map(is_plain, value)):  # some types make no second instance
        heap.guard(Kind.LENGTH, source, len(value))
        for i, v in enumerate(value):
            heap.guard(Kind.EQUALS, ItemSource(source, i), v)
        twin = value
    else:
        twin = kind(_enter_items(heap, value, source, tuple))
    heap.know(value, twin, source)
    return twin


def _enter_deque(heap: Heap, value: Any, source: Source) -> Any:
    deque: Any = collections.deque
    maxlen = deque.maxlen.__get__(value)
    twin = deque.__new__(type(value))
    deque.__init__(twin, (), maxlen)
    known = heap.know(value, twin, source)
    heap.guard(Kind.EQUALS, AttrSource(source, "maxlen"), maxlen)
    deque.extend(twin, _enter_items(heap, value, source, deque))
    known.before = list(deque.__iter__(twin))
    return twin


def _enter_set(heap: Heap, value: Any, source: Source) -> Any:
    if not all(map(is_plain, value)):
        return _enter_objects(heap, value, source)
    twin = _in_order(value) if isinstance(value, set) else value
    heap.guard(Kind.PYTHON, source, _SameSet(value))
    known = heap.know(value, twin, source)
    known.before = set(twin)
    return twin


def _enter_objects(heap: Heap, value: Any, source: Source) -> Any:
    """A set of objects: each has its place in the order in which the set is iterated over."""
    for v in value:
        check_key(heap.session, v)
    if isinstance(value, set) and any(isinstance(v, Tensor) for v in value):
        raise Unsupported("A set from outside holds tensors.", "Pass a list or a dict.")
    items = list(value)
    parts = ItemSource(ItemSource(CallSource(source, "__reduce__"), 1), 0)
    heap.guard(Kind.LENGTH, parts, len(items))
    twin = _in_order(value) if isinstance(value, set) else value
    known = heap.know(value, twin, source)
    for i, v in enumerate(items):
        if heap.enter(v, ItemSource(parts, i)) is not v:
            raise Unsupported(f"A set from outside holds a {type(v).__name__}.", "Pass a list.")
    known.before = set(twin)
    return twin


def _in_order(value: Any) -> Any:
    """A copy whose items come in the same order, which hangs on how a set became what it is."""
    order = list(value)
    for items in (order, order[::-1], sorted(order, key=hash)):
        twin: Any = set.__new__(type(value))
        set.update(twin, items)
        if all(map(operator.is_, twin, order)):
            return twin
    raise Unsupported("A set from outside has an order that no copy of it has.")


class _SameSet:
    """A predicate: the same constants in the same order."""

    def __init__(self, value: Any) -> None:
        self.items = tuple(value)

    def __call__(self, value: Any) -> bool:
        return same_constant(tuple(value), self.items)

    def __repr__(self) -> str:
        return f"same_set({self.items!r})"


def _enter_dict(heap: Heap, value: Any, source: Source) -> Any:
    kind: Any = type(value)
    base: Any = next(k for k in _DICTS if issubclass(kind, k))
    twin = base.__new__(kind)
    known = heap.know(value, twin, source)
    entries = list(base.items(value))
    if base is collections.defaultdict:
        known.factory = twin.default_factory = heap.enter(
            value.default_factory, AttrSource(source, "default_factory")
        )
    store = base.__setitem__
    many = kind is dict and len(entries) > _MANY
    if many and all(is_plain(k) and is_plain(v) for k, v in entries):
        _check_size(heap, len(entries), 1)
        heap.guard(Kind.PYTHON, source, Exactly(dict(value)))
        for key, item in entries:
            store(twin, key, item)
    else:
        _check_size(heap, len(entries))
        source = _items_source(kind, base, source)
        heap.guard(Kind.KEYS, source, [k for k, _ in entries])
        for i, (key, item) in enumerate(entries):
            if is_plain(key):
                place: Source = ItemSource(source, key)
            else:
                place = ItemSource(source, KeySource(source, i))
                check_key(heap.session, key)
                key = heap.enter(key, KeySource(source, i))
            store(twin, key, heap.enter(item, place))
    known.before = list(base.items(twin))
    return twin


def _enter_proxy(heap: Heap, value: Any, source: Source) -> Any:
    (table,) = gc.get_referents(value)
    if type(table) is not dict:
        raise Unsupported("A mappingproxy of a user's mapping is not followed.")
    if id(table) in heap.by_real or heap.dicts.setdefault(id(table), value) is not value:
        raise Unsupported("A dict is used beside what shows it.")
    table = table.copy()
    twin = MappingProxyType(_enter_dict(heap, table, CallSource(source, "copy")))
    heap.know(value, twin, source)
    return twin


@applied
def native_items(value: Any) -> Any:
    """What a container holds, as a plain one: its class may say something else by Python code."""
    base = _native_base(type(value))
    if issubclass(base, dict):
        return dict(base.items(value))
    return list(base.__iter__(value))


def _items_source(kind: type, base: type, source: Source) -> Source:
    """Where guards, which ask a container itself, find the items."""
    if kind is base or all(lookup(kind, name) is lookup(base, name) for name in _READS):
        return source
    return AppliedSource(source, native_items.__name__)


_READS = ("__len__", "__iter__", "__getitem__", "keys", "items")
#: The methods by which a change is written back.
_WRITES = {
    "item": ("__setitem__",),
    "delete item": ("__delitem__",),
    "pop item": ("popitem",),
    "dict": ("clear", "__setitem__"),
    "list": ("__setitem__",),
    "deque": ("clear", "extend"),
    "set": ("clear", "update"),
}


def _native_base(kind: type) -> Any:
    return next(k for k in ENTER if issubclass(kind, k))


def native_writer(kind: type, effect: str) -> Any:
    """The native class by whose methods a change is written back: where Python code would do it,
    which has run already; None: the container does it itself."""
    base = _native_base(kind)
    if library.is_module_table(kind):  # which is to see it
        return None
    same = all(lookup(kind, name) is lookup(base, name) for name in _WRITES[effect])
    return None if same else base


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
