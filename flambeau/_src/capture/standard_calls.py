"""Functions of Python's standard library that are not interpreted: what to do instead.

A handler takes (session, function, arguments, keywords).
"""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import itertools
import re
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from flambeau._src.capture import classes, copies, iteration, natives, stand_ins
from flambeau._src.capture.guards import Kind
from flambeau._src.capture.lookup import special
from flambeau._src.capture.outcome import Raised, Unsupported
from flambeau._src.capture.source import AttrSource, ItemSource
from flambeau._src.capture.values.constant import ATOMS, is_plain, is_reference
from flambeau._src.capture.values.tensors import is_tensor

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session

__all__ = ["CLASSES", "FUNCTIONS", "cached_function", "handler"]

Handler = Callable[["Session", Any, tuple[Any, ...], dict[str, Any]], Any]

_RE = frozenset(
    v
    for k, v in vars(re).items()
    if isinstance(v, types.FunctionType) and k in re.__all__ and k not in ("purge", "template")
)


def handler(fn: Any, code: types.CodeType) -> Handler | None:
    """What to do with a Python function of the standard library, None: interpret it."""
    return _BY_CODE.get(code.co_qualname) if code.co_qualname in _BY_CODE else _by_object(fn)


def _by_object(fn: Any) -> Handler | None:
    if fn is copy.deepcopy:
        return lambda s, fn, args, kwargs: copies.deep(s, args, kwargs)
    if fn is copy.copy:
        return lambda s, fn, args, kwargs: copies.shallow(s, args, kwargs)
    if fn is inspect.signature:
        return _signature
    return _expression if fn in _RE else None


def _signature(s: Session, fn: Any, args: Any, kwargs: Any) -> Any:
    """`inspect.signature` of functions and methods: it reads what guards speak of."""
    asked = args[0] if len(args) == 1 and not kwargs else None
    function: Any = asked
    while type(function) is types.MethodType:
        function = function.__func__
    for found in _wrapped(s, function):
        if type(found) is not types.FunctionType or not _is_plainly_signed(s, found):
            return s.inline(fn, args, kwargs)
    made = s.heap.made(s.native(fn, asked))
    for parameter in made.parameters.values():
        s.heap.made(parameter)
    return made


def _wrapped(s: Session, function: Any) -> Iterator[Any]:
    """A function, and those that it is around."""
    heap, met = s.heap, set()
    while id(function) not in met:
        met.add(id(function))
        yield function
        inner = function.__dict__.get("__wrapped__")
        source = heap.find(function)
        if inner is None or source is None or heap.is_made(function):
            return
        heap.enter(inner, AttrSource(source, "__wrapped__"))
        function = inner


def _is_plainly_signed(s: Session, function: Any) -> bool:
    """Whether the signature follows from the function's code and from constants (guarded)."""
    heap = s.heap
    own = function.__dict__
    if "__signature__" in own or ("__wrapped__" in own and heap.is_made(function)):
        return False
    values = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    if not all(type(v) in ATOMS or is_reference(v) for v in values):
        return False
    if heap.is_made(function):
        return True
    source = heap.find(function)
    if source is None:
        return False
    for name in ("__wrapped__", "__signature__"):
        if name not in own:
            heap.guard(Kind.NO_KEY, AttrSource(source, "__dict__"), name)
    for i, value in enumerate(function.__defaults__ or ()):
        heap.enter(value, ItemSource(AttrSource(source, "__defaults__"), i))
    for name, value in (function.__kwdefaults__ or {}).items():
        heap.enter(value, ItemSource(AttrSource(source, "__kwdefaults__"), name))
    return True


def _expression(s: Session, fn: Any, args: Any, kwargs: Any) -> Any:
    """A function of `re`: it only computes, unless it is given a function, prints or warns."""
    given = (*args, *kwargs.values())
    if any(isinstance(v, (types.FunctionType, types.MethodType)) for v in given) or any(
        natives.grade(v) != natives.PLAIN for v in given
    ):
        return s.inline(fn, args, kwargs)
    if any(isinstance(v, int) and v & re.DEBUG for v in given):
        raise Unsupported("A regular expression is printed.")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # so what warns is not kept in the cache of `re` either
        try:
            return s.native(fn, *args, **kwargs)
        except Raised as raised:
            if not isinstance(raised.error, Warning):
                raise
    raise Unsupported("A regular expression is warned of.")


def _once(s: Session, fn: Any, args: Any, kwargs: Any) -> Any:
    """The wrapper that stops a `__repr__` that calls itself: there is none that does not end."""
    return s.call(_free(s, fn, "user_function"), args, kwargs)


def _free(s: Session, fn: Any, name: str) -> Any:
    """What a free variable of a function holds."""
    place = fn.__code__.co_freevars.index(name)
    cell = fn.__closure__[place]
    if s.heap.is_made(fn):
        return s.heap.read_cell(cell)
    source = s.heap.find(fn)
    if source is None:
        return cell.cell_contents
    at = ItemSource(AttrSource(source, "__closure__"), place)
    return s.heap.enter(cell.cell_contents, AttrSource(at, "cell_contents"))


class _Gives:
    """A predicate: a function with a cache gives this value for these arguments."""

    def __init__(self, args: tuple[Any, ...], value: Any) -> None:
        self.args = args
        self.value = value

    def __call__(self, fn: Any) -> bool:
        found = fn(*self.args)
        return found is self.value or (type(found) is type(self.value) and found == self.value)

    def __repr__(self) -> str:
        return f"gives({', '.join(map(repr, self.args))}, {self.value!r})"


def cached_function(s: Session, fn: Any, args: Any, kwargs: Any) -> Any:
    """A function under `functools.lru_cache`. A constant that it holds for constants is given as it
    would be given (guarded); otherwise the function is interpreted without the cache."""
    if s.options.own_caches:
        raise Unsupported("The cache of a function is kept by native code.")
    if not kwargs and all(map(is_plain, args)) and _holds(fn, args):
        source = s.heap.find(fn)
        if source is not None and is_plain(value := fn(*args)):
            s.heap.guard(Kind.PYTHON, source, _Gives(args, value))
            return value
    return s.call(s.get(fn, "__wrapped__"), args, kwargs)


def _holds(fn: Any, args: tuple[Any, ...]) -> bool:
    """Whether the cache of a function has an entry for the arguments."""
    own = fn.__dict__
    tables = [t for t in gc.get_referents(fn) if type(t) is dict and t is not own]
    if len(tables) != 1 or fn.cache_parameters()["typed"]:
        return False
    alone = len(args) == 1 and type(args[0]) in (int, str)  # such a one is its own key
    return (args[0] if alone else args) in tables[0]


class _Dispatches:
    """A predicate: a class goes to this function."""

    def __init__(self, kind: type, found: Any) -> None:
        self.kind = kind
        self.found = found

    def __call__(self, fn: Any) -> bool:
        return getattr(fn, "dispatch", fn)(self.kind) is self.found

    def __repr__(self) -> str:
        return f"dispatches({self.kind.__name__})"


def _single_dispatch(s: Session, fn: Any, args: Any, kwargs: Any) -> Any:
    """A function of `functools.singledispatch`."""
    if not args or "dispatch" not in fn.__dict__ or not _remembers(fn.dispatch):
        return s.inline(fn, args, kwargs)
    kind = classes.type_of(s, args[0])
    found = s.native(fn.dispatch, kind)
    source = s.heap.find(fn)
    if source is None:
        raise Unsupported("A function with singledispatch cannot be found again to guard it.")
    s.heap.guard(Kind.PYTHON, source, _Dispatches(kind, found))
    return s.call(found, args, kwargs)


def _remembers(dispatch: Any) -> bool:
    """Whether what it keeps for the next call is seen by nobody."""
    cells = dict(zip(dispatch.__code__.co_freevars, dispatch.__closure__, strict=True))
    cache = cells.get("dispatch_cache")
    return cache is not None and type(cache.cell_contents) is weakref.WeakKeyDictionary


def _dispatch(s: Session, fn: Any, args: Any, kwargs: Any) -> Any:
    """`dispatch` of such a function."""
    if not _remembers(fn):
        return s.inline(fn, args, kwargs)
    (kind,) = args
    source = s.heap.source_of(fn)
    if source is None:
        raise Unsupported("A function with singledispatch cannot be found again to guard it.")
    found = s.native(fn, kind)
    s.heap.guard(Kind.PYTHON, source, _Dispatches(kind, found))
    return found


_BY_CODE: dict[str, Handler] = {
    "_recursive_repr.<locals>.wrapper": _once,
    "recursive_repr.<locals>.decorating_function.<locals>.wrapper": _once,
    "singledispatch.<locals>.wrapper": _single_dispatch,
    "singledispatch.<locals>.dispatch": _dispatch,
}


# ---- native functions: (session, arguments, keywords) ----


def _tee(s: Session, args: Any, kwargs: Any) -> Any:
    value, *rest = args
    return s.native(itertools.tee, iteration.native_iterable(s, value), *rest)


def _compared_by(s: Session, args: Any, kwargs: Any) -> Any:
    return s.call(stand_ins.cmp_to_key, args, kwargs)


def _reversed(s: Session, args: Any, kwargs: Any) -> Any:
    (value,) = args
    kind = type(value)
    method = special(kind, "__reversed__")
    if type(method) is types.FunctionType:
        return s.call(method, (value,), {})
    if method is None and type(special(kind, "__getitem__")) is types.FunctionType:
        return s.call(stand_ins.backwards, (value,), {})
    return s.native(reversed, iteration.unbound(s, value) if is_tensor(value) else value)


CLASSES: dict[Any, Any] = {reversed: _reversed}
FUNCTIONS: dict[Any, Any] = {
    itertools.tee: _tee,
    functools.cmp_to_key: _compared_by,
}
