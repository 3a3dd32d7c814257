"""Calls: Python functions are inlined, tensor functions are nodes, native ones run or refuse."""

from __future__ import annotations

import _collections  # type: ignore[import-not-found]
import collections
import functools
import math
import re
import sys
import types
import weakref
from typing import TYPE_CHECKING, Any

from flambeau._src import _native
from flambeau._src.capture import (
    arithmetic,
    arrays,
    attributes,
    bodies,
    builtin_calls,
    classes,
    iteration,
    library,
    number_calls,
    overriding,
    scalars,
    standard_calls,
    transforms,
    wrappers,
)
from flambeau._src.capture.bind import bind_arguments
from flambeau._src.capture.generators import Generator
from flambeau._src.capture.higher_order import HigherOrderOperator
from flambeau._src.capture.interpreter import NULL, Frame, prepare, run
from flambeau._src.capture.lookup import MISSING, lookup, special
from flambeau._src.capture.natives import (
    CONTAINERS,
    ITERATING,
    ITERATORS,
    KEYED,
    NATIVE,
    PLAIN,
    PURE,
    PYTHON,
    STRUCTURAL,
    check_key,
    grade,
)
from flambeau._src.capture.outcome import Forbidden, Unsupported
from flambeau._src.capture.shims import Shim
from flambeau._src.capture.sizes import is_symbolic, numbers
from flambeau._src.capture.source import AttrSource, CallSource, ItemSource, TypeSource
from flambeau._src.capture.strings import printable
from flambeau._src.capture.tables import PREPARED
from flambeau._src.capture.values import tensor_attributes
from flambeau._src.capture.values.constant import ATOMS, is_plain, is_reference
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp.fake import FakeTensor

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session

__all__ = ["call", "call_method", "inline", "run_pure"]

#: Types of bound methods of native code; some of those that know their class have one of their own.
_NATIVE_METHODS = (types.BuiltinFunctionType, types.MethodWrapperType, type(re.compile("").match))
_NO_INLINE = 0x0080 | 0x0200  # coroutines, asynchronous generators
_GENERATOR = 0x0020
_NAMED = (types.FunctionType, types.BuiltinFunctionType, _native.Function, _native.Method)
_SUMPROD = getattr(math, "sumprod", None)  # floats only: more exact than one by one
#: Methods of `itertools`' iterators that warn from 3.12 on.
_STATE = frozenset(("__reduce__", "__reduce_ex__", "__setstate__", "__copy__", "__deepcopy__"))
_TEXT = frozenset((repr, ascii, format))  # numbers that are not fixed have a text of their own


def call(s: Session, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`fn(*args, **kwargs)`."""
    kind = type(fn)
    if s.options.refused and kind in _NAMED and fn in s.options.refused:
        raise Unsupported(f"{fn.__name__} is not allowed in graphs.", "Remove disallow_in_graph.")
    if id(fn) in s.heap.opaque and kind in (*_NATIVE_METHODS, functools.partial):
        raise Unsupported(f"A {kind.__name__} of an outside object is called.")
    if s.options.numpy and arrays.is_numpy(fn):
        return arrays.call(s, fn, args, kwargs)
    if args and type(args[0]) is FakeTensor and (access := overriding.accessed(fn)) is not None:
        how, name = access
        if how == "__get__":
            return tensor_attributes.get(s, args[0], name)
        return tensor_attributes.set_(s, args[0], name, args[1])
    if kind is types.MethodType:
        self_ = fn.__self__
        own = type(fn.__func__) is types.FunctionType
        own = own and library.kind_of_code(fn.__func__.__code__) is None  # a subclass's
        if type(self_) is FakeTensor and not own:
            return _tensor_method(s, fn.__func__, self_, args, kwargs)
        if type(self_) is Generator:
            return fn(*args, **kwargs)
        if is_symbolic(self_):
            return s.native(fn, *args, **kwargs)
        return call(s, fn.__func__, (self_, *args), kwargs)
    if kind is types.FunctionType:
        return _function(s, fn, args, kwargs)
    if kind is _native.Function or kind is _native.Method:
        return _operator(s, fn, args, kwargs)
    if isinstance(fn, type):
        return _class(s, fn, args, kwargs)
    if kind in _NATIVE_METHODS:
        return _builtin(s, fn, args, kwargs)
    if kind in (types.MethodDescriptorType, types.WrapperDescriptorType):
        return _descriptor(s, fn, args, kwargs)
    if kind is functools.partial:
        return call(s, fn.func, (*fn.args, *args), {**fn.keywords, **kwargs})
    return _object(s, fn, args, kwargs)


def call_method(s: Session, obj: Any, name: str, *args: Any) -> Any:
    """`obj.name(*args)`."""
    return call(s, attributes.get(s, obj, name), args, {})


# ---- Python functions ----


def _function(s: Session, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    code = fn.__code__
    handler = builtin_calls.python_handler(s, fn, code)
    if handler is not None:
        if library.kind_of_code(code) is None:
            _guard_function(s, fn, args)
        return handler(s, args, kwargs)
    options = s.options
    disabled = options.is_disabled is not None and options.is_disabled(fn)
    if fn.__dict__.get("_dynamo_forbidden"):
        raise Forbidden(f"Attempt to trace forbidden callable {fn}")
    if disabled or fn.__dict__.get("_torchdynamo_disable"):
        raise Unsupported(
            f"{fn.__qualname__} is marked as disabled.",
            "Remove torch.compiler.disable, or call it outside of the compiled function.",
        )
    if fn in options.leaves:
        return s.recorder.call(fn, fn, args, kwargs)
    substitute = options.substitutes.get(fn)
    if substitute is not None:
        _enter_inner(s, fn, substitute)
        fn, code = substitute, substitute.__code__
    kind = library.kind_of_code(code)
    if kind == library.FACT:
        return arrays.fact(s, fn, args, kwargs)
    if kind == library.LEAF:
        return _leaf(s, fn, args, kwargs)
    return inline(s, fn, args, kwargs)


def _enter_inner(s: Session, fn: Any, substitute: Any) -> None:
    """What a compiled function was compiled from, found by the function."""
    if fn.__dict__.get("_torchdynamo_inline") is substitute:
        source = s.heap.find(fn)
        if source is not None:
            s.heap.enter(substitute, AttrSource(source, "_torchdynamo_inline"))


def _leaf(s: Session, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A Python function of the library: one node, or a fact."""
    if s.scalars:
        args, kwargs = _opened(fn, args, kwargs)
    if args and is_symbolic(args[0]) and fn.__name__.startswith("__"):  # the number's own method
        return s.native(fn, *args, **kwargs)
    if args and arrays.is_inside(args[0]) and fn.__name__ in builtin_calls.CREATORS:
        return arrays.made_of(s, fn, args, kwargs)
    if args and type(args[0]) is FakeTensor and getattr(Tensor, fn.__name__, None) is fn:
        return _tensor_method(s, fn, args[0], args[1:], kwargs)
    found = overriding.overriding(s, args, kwargs)
    if found:
        return overriding.call(s, fn, found, args, kwargs)
    if any(_callable_argument(v) for v in (*args, *kwargs.values())):
        return inline(s, fn, args, kwargs)
    if grade_all(args, kwargs) != PLAIN or fn.__name__ in builtin_calls.CREATORS:
        return s.recorder.call(fn, fn, args, kwargs)
    if fn.__name__ in builtin_calls.QUESTIONS:
        return s.native(fn, *args, **kwargs)
    raise Unsupported(
        f"{fn.__module__}.{fn.__qualname__} changes or reads state of the library.",
        "Call it outside of the compiled function.",
    )


def _opened(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The arguments of an operator with numbers for scalars of NumPy's that are not fixed."""
    found = scalars.opened(args), scalars.opened(kwargs)
    if found[0] is not args and fn.__name__ in builtin_calls.CREATORS and "new" not in fn.__name__:
        raise scalars.FixedScalars  # it may look at their dtypes
    return found


def _callable_argument(value: Any) -> bool:
    return issubclass(type(value), (types.FunctionType, types.MethodType, functools.partial))


def grade_all(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """The worst grade of the arguments."""
    worst = PLAIN
    for v in args:
        if type(v) not in ATOMS:
            worst = max(worst, grade(v))
    for v in kwargs.values():
        if type(v) not in ATOMS:
            worst = max(worst, grade(v))
    return worst


def inline(s: Session, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Interpret the function's code."""
    code = fn.__code__
    if code.co_flags & _NO_INLINE:
        raise Unsupported(f"{fn.__qualname__} is asynchronous.", "Compile what it awaits.")
    prepared = prepare(code, PREPARED)
    locals_: list[Any] = [NULL] * len(prepared.slots)
    defaults, kwdefaults = _defaults(s, fn)
    error = bind_arguments(code, fn.__qualname__, defaults, kwdefaults, args, kwargs, locals_)
    if error is not None:
        s.raise_(TypeError(error))
    if library.kind_of_code(code) is None:
        _guard_function(s, fn, args)
    frame = Frame(prepared, locals_, fn.__globals__, s.frame)
    frame.function = fn
    if code.co_freevars:
        _closure(s, fn, code, locals_)
    run(s, frame)
    result = frame.result
    if code.co_flags & _GENERATOR:
        result.call = (fn, args, kwargs)
    return result


def _guard_function(s: Session, fn: Any, args: tuple[Any, ...]) -> None:
    """A function that no name led to, as a special method: its class must not get another one."""
    heap = s.heap
    if heap.is_made(fn) or heap.source_of(fn) is not None or heap.find(fn) is not None or not args:
        return
    known = heap.known(args[0])
    name = fn.__name__
    if known is not None and lookup(type(known.real), name) is fn:
        heap.enter(fn, AttrSource(TypeSource(known.source), name))


def _defaults(s: Session, fn: Any) -> tuple[Any, Any]:
    defaults, kwdefaults = fn.__defaults__, fn.__kwdefaults__
    if defaults is None and kwdefaults is None:
        return None, None
    heap = s.heap
    if heap.is_made(fn):
        return defaults, kwdefaults
    source = heap.find(fn)
    if source is None:
        for v in (*(defaults or ()), *(kwdefaults or {}).values()):
            code = isinstance(v, (types.FunctionType, types.ModuleType))
            if type(v) not in ATOMS and not is_reference(v) and not code and not is_plain(v):
                raise Unsupported(f"A default of {fn.__qualname__} cannot be guarded.")
        return defaults, kwdefaults
    if defaults is not None:
        defaults = _entered_defaults(s, fn, defaults, AttrSource(source, "__defaults__"))
    if kwdefaults is not None:
        base = AttrSource(source, "__kwdefaults__")
        kwdefaults = {k: heap.enter(v, ItemSource(base, k)) for k, v in kwdefaults.items()}
    return defaults, kwdefaults


def _entered_defaults(s: Session, fn: Any, defaults: Any, base: Any) -> tuple[Any, ...]:
    return tuple([s.heap.enter(v, ItemSource(base, i)) for i, v in enumerate(defaults)])


def _closure(s: Session, fn: Any, code: types.CodeType, locals_: list[Any]) -> None:
    """Put the cells of the function into the slots of its free variables."""
    heap = s.heap
    cells = fn.__closure__ or ()
    first = len(locals_) - len(cells)
    made = heap.is_made(fn)
    source = None if made else heap.find(fn)
    for i, cell in enumerate(cells):
        if made or id(cell) in heap.cells:
            locals_[first + i] = cell
        elif source is not None:
            place = ItemSource(AttrSource(source, "__closure__"), i)
            locals_[first + i] = heap.enter_cell(cell, AttrSource(place, "cell_contents"))
        else:
            try:
                value = cell.cell_contents
            except ValueError:
                raise Unsupported(f"A variable of {fn.__qualname__} has no value yet.") from None
            trusted = type(value) in ATOMS or is_reference(value)
            if not trusted and type(value) is not types.FunctionType:
                raise Unsupported(f"The closure of {fn.__qualname__} cannot be guarded.")
            locals_[first + i] = types.CellType(value)


# ---- tensor functions ----


def _operator(s: Session, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if s.scalars:
        args, kwargs = _opened(fn, args, kwargs)
    found = overriding.overriding(s, args, kwargs)
    if found:
        return overriding.call(s, fn, found, args, kwargs)
    if type(fn) is _native.Method and args and type(args[0]) is FakeTensor:
        return _tensor_method(s, fn, args[0], args[1:], kwargs)
    if fn.__name__ == "resize_as_" and args:  # a function too
        return builtin_calls.TENSOR_METHODS["resize_as_"](s, args[0], args[1:], kwargs)
    return s.recorder.call(fn, fn, args, kwargs)


def _tensor_method(
    s: Session, fn: Any, self_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    name = fn.__name__
    if s.scalars:
        args, kwargs = _opened(fn, args, kwargs)
    if name == "as_subclass":
        return overriding.as_subclass(s, self_, args, kwargs)
    found = overriding.overriding(s, (self_, *args), kwargs)
    if found:
        return overriding.call(s, fn, found, (self_, *args), kwargs)
    handler = builtin_calls.TENSOR_METHODS.get(name)
    if handler is not None:
        return handler(s, self_, args, kwargs)
    own: Any = getattr(Tensor, name, None)
    if own is not fn or overriding.hidden(s, self_, name):
        return s.recorder.call(fn, fn, (self_, *args), kwargs)
    return s.recorder.call(name, fn, (self_, *args), kwargs)


# ---- classes ----


def _class(s: Session, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if cls.__dict__.get("_dynamo_forbidden"):
        raise Forbidden(f"Attempt to trace forbidden callable {cls}")
    if s.scalars and cls in (int, float, range):
        args = scalars.opened(args)
    of_numbers = number_calls.handler(cls, args) if any(map(is_symbolic, args)) else None
    if of_numbers is not None:
        return s.native(of_numbers, *args, **kwargs)
    handler = builtin_calls.CLASSES.get(cls)
    if handler is not None:
        if not builtin_calls.fits(cls, args, kwargs):
            return s.native(cls, *args, **kwargs)
        return handler(s, args, kwargs)
    if classes.is_native_class(cls):
        return _native_class(s, cls, args, kwargs)
    classes.check_end(cls)
    if (
        issubclass(cls, BaseException)
        and cls.__init__ is not object.__init__
        and (
            type(cls.__init__) is types.WrapperDescriptorType
            and type(cls.__new__) is types.BuiltinFunctionType
        )
    ):
        return s.native(cls, *args, **kwargs)
    if library.is_library(cls.__module__) and cls.__name__ in builtin_calls.VALUE_CLASSES:
        return s.native(cls, *args, **kwargs)
    if isinstance(cls, type) and issubclass(cls, Tensor):
        return wrappers.make(s, cls, args, kwargs)
    return classes.instantiate(s, cls, args, kwargs)


def _native_class(s: Session, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if cls is frozenset and len(args) == 1 and type(args[0]) is frozenset:
        return args[0]
    if cls in (set, frozenset) and args:
        found = iteration.items(s, args[0])
        for v in found:
            check_key(s, v)
        return s.native(cls, found)
    if issubclass(cls, dict):
        return _make_dict(s, cls, args, kwargs)
    if classes.takes_iterables(cls):
        args = tuple([native_argument(s, v, True) for v in args])
        kwargs = {k: native_argument(s, v, False) for k, v in kwargs.items()}
        return s.recorder.watch(cls, args, kwargs)
    return s.native(cls, *args, **kwargs)


def _make_dict(s: Session, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    args = tuple(args)
    head: tuple[Any, ...] = ()
    if cls.__name__ == "defaultdict":
        head, args = args[:1], args[1:]
    if args:
        first = args[0]
        if isinstance(first, dict) or attributes.special(type(first), "keys") is not None:
            first = iteration.mapping(s, first)
            pairs: list[Any] = list(first.items())
        else:
            pairs = [iteration.items(s, v) for v in iteration.items(s, first)]
        for pair in pairs:
            if pair:
                check_key(s, pair[0])
        args = (pairs, *args[1:])
    return s.native(cls, *head, *args, **kwargs)


# ---- native functions ----


def native_argument(s: Session, value: Any, iterable: bool) -> Any:
    """An argument as native code can use it."""
    kind = type(value)
    if kind in NATIVE or (kind is FakeTensor and not iterable) or kind is Generator:
        return value
    if kind is iteration.SequenceIterator:
        return iteration.UserIterator(s, value)
    if kind is types.FunctionType or kind is types.MethodType or kind is functools.partial:
        return Shim(s, value)
    if isinstance(value, type):
        return value if value in NATIVE and value is not str else Shim(s, value)
    if kind is types.BuiltinFunctionType:
        return value if value in PURE and value not in _TEXT else Shim(s, value)
    if is_reference(value):
        return Shim(s, value) if callable(value) else value
    if iterable and (kind is FakeTensor or attributes.special(kind, "__iter__") is not None):
        return iteration.native_iterable(s, value)
    if callable(value):
        return Shim(s, value)
    return value


def _builtin(s: Session, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if s.scalars and fn.__module__ == "math":
        args = scalars.opened(args)
    of_numbers = number_calls.handler(fn, args) if any(map(is_symbolic, args)) else None
    if of_numbers is not None:
        return s.native(of_numbers, *args, **kwargs)
    handler = builtin_calls.FUNCTIONS.get(fn)
    if handler is not None:
        if not builtin_calls.fits(fn, args, kwargs):
            return s.native(fn, *args, **kwargs)
        return handler(s, args, kwargs)
    self_ = fn.__self__
    if type(fn) is types.MethodWrapperType and fn.__objclass__ is object:
        unbound = builtin_calls.DESCRIPTORS.get(object.__dict__.get(fn.__name__))
        if unbound is not None:
            return unbound(s, (self_, *args), kwargs)
    if self_ is None or isinstance(self_, types.ModuleType):
        if fn in PURE:
            return run_pure(s, fn, args, kwargs)
        raise _refusal(fn)
    return native_method(s, self_, fn.__name__, fn, args, kwargs)


def _refusal(fn: Any) -> Unsupported:
    name = getattr(fn, "__qualname__", repr(fn))
    module = getattr(fn, "__module__", None)
    name = f"{module}.{name}" if module and module != "builtins" else name
    return Unsupported(
        f"The native function {name} is called, of which nothing is known.",
        "Call it outside of the compiled function, or accept the break.",
    )


def run_pure(s: Session, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A native function that only computes."""
    if fn is _SUMPROD and len(args) == 2:
        args = tuple([numbers(iteration.items(s, v)) for v in args])
    args = tuple([native_argument(s, v, False) for v in args])
    kwargs = {k: native_argument(s, v, False) for k, v in kwargs.items()}
    worst = grade_all(tuple(v for v in args if type(v) is not Shim), {})
    if worst == PLAIN and not any(type(v) is Shim for v in (*args, *kwargs.values())):
        if fn in (repr, ascii, format) and not all(map(printable, args)):
            raise Unsupported("An object is made into text.")
        return s.native(fn, *args, **kwargs)
    if worst == PYTHON and fn is not _collections._count_elements:
        raise Unsupported(
            f"{fn.__name__} meets objects whose comparison or arithmetic is Python code.",
            "Write it as a loop.",
        )
    return s.recorder.watch(fn, args, kwargs)


def native_method(
    s: Session, self_: Any, name: str, bound: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A method of an object of native code."""
    kind = type(self_)
    if kind is FakeTensor:
        return _tensor_method(s, getattr(Tensor, name), self_, args, kwargs)
    if isinstance(self_, type):
        return _native_classmethod(s, self_, name, bound, args, kwargs)
    handler = builtin_calls.METHODS.get((name, isinstance(self_, (str, bytes))))
    if handler is not None:
        return handler(s, bound, args, kwargs)
    contains = kind in CONTAINERS or isinstance(self_, _HOLDERS)
    if contains and kind not in CONTAINERS:
        found = _of_holder(s, self_, name, bound, args, kwargs)
        if found is not MISSING:
            return found
    if kind in NATIVE or contains:
        keyed = isinstance(self_, (dict, set, frozenset, types.MappingProxyType))
        if keyed and name in KEYED and args:
            if name in ("update", "fromkeys"):
                return _update(s, self_, bound, args, kwargs)
            check_key(s, args[0])
            return s.native(bound, *args, **kwargs)
        if name == "__init__":
            rest = tuple([native_argument(s, a, True) for a in args])
            return s.recorder.watch(bound, rest, kwargs)
        wraps = name in ITERATING or not contains  # else an object is taken as it is
        if wraps:
            args = tuple([native_argument(s, v, name in ITERATING) for v in args])
            kwargs = {k: native_argument(s, v, False) for k, v in kwargs.items()}
        if name in _STATE and kind.__module__ == "itertools" and sys.version_info >= (3, 12):
            raise Unsupported("A warning is given.", "Warn outside of the compiled function.")
        if name in STRUCTURAL or kind in ITERATORS:
            return (
                s.recorder.watch(bound, args, kwargs)
                if args and wraps
                else (s.native(bound, *args, **kwargs))
            )
        return _comparing_method(s, self_, name, bound, args, kwargs)
    if isinstance(self_, (str, bytes, int, float, complex)) and grade_all(args, kwargs) == PLAIN:
        return s.native(bound, *args, **kwargs)
    if isinstance(self_, BaseException) and s.heap.known(self_) is None:
        groups = name in ("split", "subgroup", "derive") and grade_all(args, kwargs) == PLAIN
        if name == "with_traceback" and args == (None,):
            s.passed.pop(id(self_), None)
            s.raised.pop(id(self_), None)
        if groups or name in ("with_traceback", "add_note", "__init__"):
            return s.native(bound, *args, **kwargs)
    if is_reference(self_) and grade_all(args, kwargs) == PLAIN and name.startswith("__"):
        return s.native(bound, *args, **kwargs)
    if name == "__get__":
        return s.native(bound, *args, **kwargs)
    raise Unsupported(f"The native method {kind.__name__}.{name} is called.")


_HOLDERS = (list, dict, set, tuple, frozenset, collections.deque)
_ITEM = frozenset(("__getitem__", "__setitem__", "__delitem__"))
#: Methods that take the attributes along.
_COPYING = frozenset(("copy", "__copy__", "__reduce__", "__reduce_ex__", "__getstate__"))
#: Methods of ordered dicts that ask the object's class for its own.
_ASKING = frozenset(("setdefault", "pop", "popitem", "__or__", "__ior__", "__ror__", "__eq__"))


def _of_holder(
    s: Session, self_: Any, name: str, bound: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A native method of a container of a user's class, where that is more than running it."""
    kind = type(self_)
    if name in _COPYING:
        s.heap.check_bare(self_)
    if name in _ITEM and not isinstance(self_, dict) and args and not kwargs:
        index, *rest = args
        if type(index) is slice:
            rest = [iteration.native_iterable(s, v) for v in rest]
        return s.native(bound, arithmetic.native_index(s, index), *rest)
    if name in ("copy", "__copy__") and not isinstance(self_, (list, tuple)):
        made = attributes.special(kind, "__init__"), attributes.special(kind, "__new__")
        if any(type(f) is types.FunctionType for f in made):
            raise Unsupported(f"{kind.__name__}.{name} calls Python code.", "Call the class.")
    if isinstance(self_, collections.OrderedDict):
        if name in ("__init__", "update"):
            for key, value in _make_dict(s, dict, args, kwargs).items():
                arithmetic.set_item(s, self_, key, value)
            return None
        asked = [attributes.special(kind, n) for n in (*_ITEM, "__contains__", "keys", "items")]
        if name in (*_ASKING, "copy") and any(type(f) is types.FunctionType for f in asked):
            raise Unsupported(f"{kind.__name__}.{name} calls Python code.", "Write it as a loop.")
    return MISSING


def _comparing_method(
    s: Session, self_: Any, name: str, bound: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    shims = [v for v in (*args, *kwargs.values()) if type(v) is Shim]
    worst = max(grade(self_), grade_all(tuple(v for v in args if type(v) is not Shim), {}))
    if name == "sort" and shims:
        worst = PLAIN  # the keys are compared, which the shim grades
        return s.recorder.watch(bound, args, kwargs)
    if worst == PLAIN:
        return s.native(bound, *args, **kwargs)
    if name == "__contains__":
        return arithmetic.contains(s, self_, args[0])
    if name in ("index", "remove", "count") and isinstance(self_, (list, tuple)):
        return builtin_calls.search(s, self_, name, args)
    if worst == PYTHON:
        raise Unsupported(
            f"{type(self_).__name__}.{name} meets objects whose comparison is Python code."
        )
    return s.recorder.watch(bound, args, kwargs)


def _update(
    s: Session, self_: Any, bound: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    if isinstance(self_, dict):
        return s.native(bound, _make_dict(s, dict, args, kwargs))
    found = [iteration.items(s, a) for a in args]
    for items in found:
        for v in items:
            check_key(s, v)
    return s.native(bound, *found)


def _native_classmethod(
    s: Session, cls: type, name: str, bound: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    if name == "__new__":
        return _native_new(s, cls, args, kwargs)
    if name == "__call__":
        return classes.construct(s, cls, args, kwargs)
    if name == "fromkeys":
        keys = iteration.items(s, args[0])
        for k in keys:
            check_key(s, k)
        return s.native(bound, keys, *args[1:])
    if cls in NATIVE and grade_all(args, kwargs) == PLAIN:
        return s.native(bound, *args, **kwargs)
    if name == "from_iterable":
        return s.native(bound, iteration.native_iterable(s, args[0]))
    if name in ("__subclasses__", "mro", "__instancecheck__", "__subclasscheck__"):
        return s.native(bound, *args, **kwargs)
    raise Unsupported(f"The native method {cls.__name__}.{name} is called.")


def _native_new(s: Session, base: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`base.__new__(cls, ...)`."""
    cls = args[0]
    if isinstance(cls, type):
        classes.check_end(cls)
    if base is object:
        own, init = special(cls, "__new__"), special(cls, "__init__")
        if (args[1:] or kwargs) and (own is not object.__new__ or init is object.__init__):
            return s.native(object.__new__, cls, None)  # which raises
        return s.heap.made(s.native(object.__new__, cls))
    if base in NATIVE or issubclass(base, BaseException):
        rest = tuple([native_argument(s, a, True) for a in args[1:]])
        made = s.recorder.watch(base.__new__, (cls, *rest), kwargs)
        return s.heap.made(made) if type(made) not in NATIVE else made
    raise Unsupported(f"{base.__name__}.__new__ is called.")


def _descriptor(s: Session, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An unbound method of native code."""
    if not args:
        return s.native(fn, *args, **kwargs)
    handler = builtin_calls.DESCRIPTORS.get(fn)
    if handler is not None:
        return handler(s, args, kwargs)
    self_ = args[0]
    if type(self_) is FakeTensor:
        return _tensor_method(s, fn, self_, args[1:], kwargs)
    if not isinstance(self_, fn.__objclass__):
        return s.native(fn, *args, **kwargs)
    known = s.heap.known(self_)
    owner = fn.__objclass__
    if owner in CONTAINERS or owner in ATOMS or owner in ITERATORS or known is None:
        bound = s.native(fn.__get__, self_, type(self_))
        if fn.__name__ == "__init__" and isinstance(self_, BaseException):
            return s.native(bound, *args[1:], **kwargs)
        ordered = isinstance(self_, collections.OrderedDict)
        if fn.__name__ == "__init__" and isinstance(self_, (dict, list, set)) and not ordered:
            rest = tuple([native_argument(s, a, True) for a in args[1:]])
            return s.recorder.watch(bound, rest, kwargs)
        return native_method(s, self_, fn.__name__, bound, args[1:], kwargs)
    raise Unsupported(f"The native method {owner.__name__}.{fn.__name__} is called.")


# ---- objects that are called ----


def _object(s: Session, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    kind = type(fn)
    if kind is Shim:
        return call(s, fn.fn, args, kwargs)
    if kind is weakref.ReferenceType and not args and not kwargs:
        return _referent(s, fn)
    if kind.__module__ == "functools" and hasattr(fn, "__wrapped__"):  # lru_cache
        return standard_calls.cached_function(s, fn, args, kwargs)
    if kind in transforms.CALLS:
        return transforms.CALLS[kind](s, fn, args, kwargs)
    if isinstance(fn, HigherOrderOperator):
        return bodies.operator_call(s, fn, args, kwargs)
    if library.is_module(fn):
        handler = builtin_calls.module_call(s, fn)
        if handler is not None:
            return call(s, handler, args, kwargs)
    method = attributes.special(kind, "__call__")
    if type(method) is types.FunctionType:
        if library.kind_of_code(method.__code__) == library.LEAF or (
            kind.__name__ in ("OpOverload", "OpOverloadPacket")
        ):
            return s.recorder.call(fn, fn, args, kwargs)
        return call(s, attributes.bind(s, method, fn), args, kwargs)
    if kind.__module__ in ("operator", "_operator"):  # itemgetter, attrgetter, methodcaller
        return builtin_calls.getter(s, fn, args, kwargs)
    if method is None:
        text = f"'{kind.__name__}' object is not callable"
        return s.raise_(TypeError(text))
    raise Unsupported(f"A {kind.__name__}, which native code defines, is called.")


def _referent(s: Session, reference: Any) -> Any:
    """What a weak reference refers to."""
    source = s.heap.source_of(reference)
    if source is None:
        raise Unsupported("A weak reference is made and used in the function.")
    value = reference()
    met = id(value) in s.heap.by_real or id(value) in s.arguments
    # Parameters are their modules'; the library refers so to what its callers hold.
    own = s.frame is not None and library.kind_of_code(s.frame.code) is not None
    if met and not own and not isinstance(value, Tensor):
        raise Unsupported("A weak reference to an object is used that the program may forget.")
    return s.heap.enter(value, CallSource(source, "__call__"))
