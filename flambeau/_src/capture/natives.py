"""Native functions: which may run on inside values as they are, and when.

A native function is run if it does nothing but compute from its arguments. What it may do to them
matters: *structural* ones move items about; others hash, compare or print them, which would run
Python code of the items' classes unseen. For those the arguments are graded first.
"""

from __future__ import annotations

import _bisect
import _heapq
import _operator
import builtins
import collections
import functools
import itertools
import math
import os
import re
import sys
import types
from typing import TYPE_CHECKING, Any

from flambeau._src.capture import library
from flambeau._src.capture.generators import Generator
from flambeau._src.capture.outcome import Unsupported
from flambeau._src.capture.scalars import FixedScalars, Scalar
from flambeau._src.capture.values.constant import ATOMS, is_reference
from flambeau._src.core.size import Size
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp.fake import FakeTensor

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session

__all__ = [
    "CONTAINERS",
    "ITERATING",
    "ITERATORS",
    "NATIVE",
    "PLAIN",
    "PURE",
    "PYTHON",
    "STRUCTURAL",
    "TENSORS",
    "check_key",
    "grade",
    "stateful",
]

_EMPTY: Any = ()
#: Containers whose methods and protocols are native.
CONTAINERS: frozenset[type] = frozenset(
    (
        *(list, tuple, dict, set, frozenset, collections.deque, collections.OrderedDict),
        *(collections.defaultdict, bytearray, slice, Size),
        *(type({}.keys()), type({}.values()), type({}.items()), types.MappingProxyType),
        *(type(collections.OrderedDict().keys()), type(collections.OrderedDict().values())),
        type(collections.OrderedDict().items()),
    )
)
_ITERATED: tuple[Any, ...] = (
    *([], (), {}, set(), "", "é", b"", range(0), range(1 << 70), bytearray()),
    *({}.values(), {}.items(), collections.deque(), collections.OrderedDict()),
)
#: Iterators of native code.
ITERATORS: frozenset[type] = frozenset(
    (
        *(type(iter(x)) for x in _ITERATED),
        *(type(reversed([])), type(reversed({})), type(reversed(collections.deque()))),
        *(type(reversed({}.values())), type(reversed({}.items()))),
        *(enumerate, zip, map, filter, reversed, type(iter(int, 1))),
        *(v for v in vars(itertools).values() if isinstance(v, type)),
    )
)
#: Objects whose protocols (arithmetic, comparison, indexing, truth) are native.
NATIVE: frozenset[type] = ATOMS | CONTAINERS | ITERATORS | {re.Pattern, re.Match}

#: Grades of a value.
PLAIN, TENSORS, PYTHON = 0, 1, 2

_HASHING = ("__eq__", "__hash__")
#: Special methods that native code calls only when it is asked to make, print or find attributes.
_QUIET = frozenset(
    ("__init__", "__new__", "__repr__", "__str__", "__init_subclass__", "__set_name__", "__call__")
    + ("__class_getitem__", "__post_init__", "__getattr__", "__setattr__", "__delattr__", "__dir__")
    + ("__getstate__", "__setstate__", "__reduce__", "__reduce_ex__", "__copy__", "__deepcopy__")
    + ("__enter__", "__exit__", "__getattribute__", "__sizeof__", "__format__", "__replace__")
    + ("__getnewargs__", "__getnewargs_ex__", "__copy__", "__deepcopy__", "__set_name__")
    + ("__instancecheck__", "__subclasscheck__", "__subclasshook__", "__prepare__", "__missing__")
)


_HEAP_TYPE, _NOT_MADE = 1 << 9, 1 << 7  # flags of types: made at run time; never instantiated


def _functions(module: Any) -> set[Any]:
    return {v for v in vars(module).values() if isinstance(v, types.BuiltinFunctionType)}


#: Functions without effects on anything but their arguments, and whose results depend on nothing
#: else.
PURE: set[Any] = (
    _functions(math)
    | _functions(_operator)
    | _functions(_bisect)
    | _functions(_heapq)
    | {builtins.abs, builtins.all, builtins.any, builtins.ascii, builtins.bin, builtins.chr}
    | {builtins.divmod, builtins.format, builtins.hex, builtins.max, builtins.min, builtins.oct}
    | {builtins.ord, builtins.pow, builtins.repr, builtins.round, builtins.sorted, builtins.sum}
    | {functools.reduce, builtins.hash, int.from_bytes, float.fromhex, str.maketrans}
    | {bytes.fromhex, vars(collections)["_count_elements"]}
    | {v for k, v in vars(sys.modules[os.name]).items() if k.startswith("_path_") or k == "fspath"}
)

#: Methods that only move items, by name; all others of containers hash, compare or print.
STRUCTURAL = frozenset(
    ("append", "appendleft", "extend", "extendleft", "insert", "pop", "popleft", "popitem", "clear")
    + ("copy", "reverse", "rotate", "keys", "values", "items", "__len__", "__iter__", "__next__")
    + ("__reversed__", "move_to_end", "__copy__", "__bool__", "__length_hint__")
)

#: Methods whose arguments are iterated over.
ITERATING = frozenset(
    ("extend", "extendleft", "update", "union", "intersection", "difference", "issubset", "join")
    + ("symmetric_difference", "issuperset", "isdisjoint", "intersection_update", "__init__")
    + ("difference_update", "symmetric_difference_update", "__iadd__", "__ior__", "__new__")
)

#: Methods of a dict or set whose keys must hash natively.
KEYED = frozenset(
    ("__getitem__", "__setitem__", "__delitem__", "__contains__", "get", "setdefault", "update")
    + ("add", "discard", "remove", "pop", "fromkeys")
)


def grade(value: Any, depth: int = 0) -> int:
    """PLAIN if native code may do anything with it, TENSORS if that needs a watch, else PYTHON."""
    kind = type(value)
    if kind in ATOMS:
        return PLAIN
    if kind is FakeTensor:
        return TENSORS
    if depth > 20:
        return PYTHON
    if kind in CONTAINERS:
        if kind is slice:
            return max(grade(v, depth + 1) for v in (value.start, value.stop, value.step))
        worst = PLAIN
        pairs = issubclass(type(value), dict)
        for v in value:
            worst = max(worst, grade(v, depth + 1))
            if pairs:
                worst = max(worst, grade(value[v], depth + 1))
            if worst == PYTHON:
                break
        return worst
    if kind is Generator or kind in ITERATORS:
        return TENSORS
    if is_reference(value) or kind in (types.FunctionType, types.MethodType, types.ModuleType):
        return PLAIN
    if issubclass(kind, (tuple, list)) and passive(kind):
        return max((grade(v, depth + 1) for v in value), default=PLAIN)
    return PLAIN if passive(kind) else PYTHON


def inert(kind: type) -> bool:
    """Whether comparing and hashing the class's instances runs no Python code."""
    return not any(
        type(base.__dict__.get(name)) is types.FunctionType
        for base in kind.__mro__
        for name in _HASHING
    )


def passive(kind: type) -> bool:
    """Whether native code that gets an instance runs no Python code (unless it calls it)."""
    for base in kind.__mro__:
        if base is object:
            continue
        for name, value in base.__dict__.items():
            if name[:2] == "__" and type(value) is types.FunctionType and name not in _QUIET:
                return False
    return True


@functools.cache
def stateful(kind: type) -> bool:
    """Whether instances hold what only native code sees: some base is native code's."""
    for base in kind.__mro__:
        if base is object:
            continue
        new = base.__dict__.get("__new__")
        if not base.__flags__ & _HEAP_TYPE or base.__flags__ & _NOT_MADE:
            return True
        if isinstance(new, types.BuiltinFunctionType):
            return True
    return False


def check_key(s: Session, key: Any) -> None:
    """Refuse a key whose hash or comparison is Python code."""
    kind: Any = type(key)
    if kind in ATOMS or isinstance(key, Tensor):
        return
    if kind is Scalar:
        raise FixedScalars
    if kind is tuple or kind is frozenset:
        for k in key:
            check_key(s, k)
        return
    if isinstance(key, type) or is_reference(key) or inert(kind):
        return
    if isinstance(key, tuple) and type(kind.__hash__) is not types.FunctionType:
        for k in key:
            check_key(s, k)
        return
    if library.is_library(kind.__module__) and kind.__hash__ is object.__hash__:
        return
    raise Unsupported(
        f"A {kind.__name__}, whose hash is a Python method, is a key.",
        "Use a tuple of constants as the key.",
    )
