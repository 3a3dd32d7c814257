"""Types of inside values, and making instances."""

from __future__ import annotations

import abc
import collections
import collections.abc
import enum
import functools
import types
from typing import TYPE_CHECKING, Any

from flambeau._src.capture import arrays
from flambeau._src.capture.generators import Generator
from flambeau._src.capture.guards import Kind
from flambeau._src.capture.iteration import UserIterator, native_iterable
from flambeau._src.capture.lookup import MISSING, lookup, special
from flambeau._src.capture.natives import stateful
from flambeau._src.capture.outcome import Unsupported
from flambeau._src.capture.scalars import Scalar
from flambeau._src.capture.sizes import SYMBOLIC, numbers
from flambeau._src.capture.source import CallSource, ModuleSource
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp.fake import FakeTensor

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session

__all__ = ["check_enumeration", "construct", "instantiate", "is_instance", "is_subclass", "type_of"]


def type_of(s: Session, value: Any) -> type:
    """`type(value)`, as the user sees it."""
    kind = type(value)
    if kind is FakeTensor:
        info = s.tensors.get(id(value))
        return Tensor if info is None else info.kind
    if arrays.is_inside(value):
        return arrays.class_of(value)
    if kind is Scalar:
        return type(value.value)
    if kind is Generator:
        return types.GeneratorType
    if kind is UserIterator:
        raise Unsupported("The type of an iterator is asked for.")
    return SYMBOLIC.get(kind, kind)


def is_instance(s: Session, value: Any, cls: Any) -> bool:
    """`isinstance(value, cls)`."""
    if type(cls) is tuple:
        return any(is_instance(s, value, c) for c in cls)
    if type(cls) is types.UnionType:
        return any(is_instance(s, value, c) for c in cls.__args__)
    if not isinstance(cls, type):
        if type(cls).__module__ == "typing":
            return s.native(isinstance, value, cls)  # type: ignore[no-any-return]
        return s.native(isinstance, value, cls)  # type: ignore[no-any-return]
    if hasattr(cls, arrays.MARK):  # as the programs for NumPy's functions ask
        return isinstance(value, cls)
    kind = type_of(s, value)
    check = special(type(cls), "__instancecheck__")
    if check is type.__instancecheck__ or type(value) is not kind or isinstance(value, Tensor):
        if type(value) is FakeTensor and cls.__name__ in ("Parameter", "Buffer"):
            info = s.tensors.get(id(value))
            marks = {} if info is None else getattr(info.real, "__dict__", {})
            return cls in kind.__mro__ or bool(marks.get(_MARKS[cls.__name__]))
        return is_subclass(s, kind, cls) or _says_so(s, value, kind, cls)
    if type(check) is types.FunctionType and not _abstract(cls) and type(cls) is not enum.EnumMeta:
        answer: bool = s.truth(s.call(check, (cls, value), {}))
        return answer
    _rely_on_registry(s, kind, cls)
    return s.native(isinstance, value, cls)  # type: ignore[no-any-return]


def _says_so(s: Session, value: Any, kind: type, cls: type) -> bool:
    """Whether the object gives another class than its own that fits, as proxies do."""
    if type(special(kind, "__getattribute__")) is not types.FunctionType or type(value) is not kind:
        return False
    said = s.get(value, "__class__")
    return isinstance(said, type) and said is not kind and cls in said.__mro__


_MARKS = {"Parameter": "_is_param", "Buffer": "_is_buffer"}  # of tensors of classes of their own


def _rely_on_registry(s: Session, kind: Any, cls: Any) -> None:
    """Where abc's registries decide whether `kind` is a `cls`, `cls.register` may change that."""
    if isinstance(cls, type) and _abstract(cls) and cls not in getattr(kind, "__mro__", ()):
        source = CallSource(ModuleSource("abc"), "get_cache_token")
        s.heap.guard(Kind.EQUALS, source, abc.get_cache_token())


def _abstract(cls: type) -> bool:
    """Whether the class's metaclass is abc's (whose answer depends on classes alone)."""
    return type(cls).__instancecheck__ is _ABC.__instancecheck__ or (
        type(cls).__module__ in ("abc", "typing")
    )


_ABC = type(collections.abc.Sized)


def is_subclass(s: Session, kind: Any, cls: Any) -> bool:
    """`issubclass(kind, cls)`."""
    for c in cls if type(cls) is tuple else (cls,):
        _rely_on_registry(s, kind, c)
    return s.native(issubclass, kind, cls)  # type: ignore[no-any-return]


#: Native classes whose constructor only computes; True: the arguments are iterables.
_NATIVE: dict[type, bool] = {
    enumerate: True,
    zip: True,
    map: True,
    filter: True,
    reversed: True,
    list: True,
    tuple: True,
    set: True,
    frozenset: True,
    dict: False,
    collections.OrderedDict: False,
    collections.deque: True,
    collections.defaultdict: False,
    slice: False,
    range: False,
    object: False,
    bytearray: False,
    functools.partial: False,
    property: False,
    staticmethod: False,
    classmethod: False,
    types.MethodType: False,
    types.MappingProxyType: False,
    types.CellType: False,
}


def check_enumeration(cls: Any) -> None:
    """Refuse an enumeration that is being made: its members are still coming."""
    if cls.__dict__.get("__new__") is not enum.Enum.__new__:
        raise Unsupported(f"The enumeration {cls.__name__} is still being made.")


def is_native_class(cls: type) -> bool:
    """Whether the class is one whose constructor may run on inside values."""
    return cls in _NATIVE or cls.__module__ in ("itertools", "operator", "_operator")


def takes_iterables(cls: type) -> bool:
    """Whether its positional arguments are iterated over."""
    return _NATIVE.get(cls, True)


def instantiate(s: Session, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`cls(*args, **kwargs)` for a class that Python code defines."""
    meta_call = special(type(cls), "__call__")
    if type(meta_call) is types.FunctionType:
        if isinstance(cls, enum.EnumMeta):
            check_enumeration(cls)
            kwargs = {name: numbers(v) for name, v in kwargs.items()}
            return s.native(cls, *map(numbers, args), **kwargs)
        return s.call(meta_call, (cls, *args), kwargs)
    return construct(s, cls, args, kwargs)


def construct(s: Session, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`type.__call__(cls, *args, **kwargs)`."""
    abstract = getattr(cls, "__abstractmethods__", None)
    if abstract:
        return s.native(object.__new__, cls)
    new = special(cls, "__new__")
    init = special(cls, "__init__")
    value = _new(s, cls, new, init, args, kwargs)
    if cls not in type(value).__mro__:
        return value
    if type(value) is not cls:  # `__new__` chose another class beneath
        init = special(type(value), "__init__")
    if type(init) is types.FunctionType:
        if s.call(init, (value, *args), kwargs) is not None:
            s.raise_(TypeError("__init__() should return None"))
    elif init is not object.__init__ and init is not None:
        _native_init(s, cls, init, value, args, kwargs)
    return value


#: Stands for the traceback of an exception that the program raised: there is one, and what looks
#: into it or keeps it ends the graph. (Its frame is that of a generator that never begins.)
_NEVER: Any = (None for _ in ())
_TRACE = types.TracebackType(None, _NEVER.gi_frame, 0, 1)


def raised(s: Session, error: BaseException) -> tuple[Any, Any, Any]:
    """Class, exception and traceback of what is being handled."""
    from_outside = s.heap.known(error) is not None
    return type(error), error, s.get(error, "__traceback__") if from_outside else _TRACE


def check_end(cls: type) -> None:
    """Refuse to make an instance that is told of its end: that of the one in here would be, too."""
    if type(lookup(cls, "__del__")) not in (type(MISSING), types.WrapperDescriptorType):
        raise Unsupported(f"A {cls.__name__} is made, which is told of its end.")


def _new(
    s: Session, cls: type, new: Any, init: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    if isinstance(new, staticmethod):
        new = new.__func__
    if type(new) is types.FunctionType:
        check_end(cls)
        if new.__globals__.get("__name__") == f"namedtuple_{new.__qualname__.partition('.')[0]}":
            return s.heap.made(s.native(new, cls, *args, **kwargs))
        return s.call(new, (cls, *args), kwargs)
    check_end(cls)
    if new is object.__new__:
        if (args or kwargs) and init is object.__init__:
            return s.raise_(TypeError(f"{cls.__name__}() takes no arguments"))
        if stateful(cls):
            raise Unsupported(f"A {cls.__name__} is made, which native code does not allow.")
        return s.heap.made(object.__new__(cls))
    if issubclass(cls, (BaseException, types.SimpleNamespace)):
        return s.heap.made(s.native(new, cls, *args))
    if issubclass(cls, (list, dict, set, collections.deque)):
        return s.heap.made(s.native(new, cls))
    if issubclass(cls, (tuple, str, int, float, frozenset, bytes)):
        if issubclass(cls, (tuple, frozenset)):
            args = tuple([native_iterable(s, a) for a in args])
        return s.heap.made(s.native(new, cls, *args, **kwargs))
    raise Unsupported(
        f"An instance of {cls.__name__} is made by native code.",
        "Make it outside of the compiled function.",
    )


def _native_init(
    s: Session, cls: type, init: Any, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    if issubclass(cls, (BaseException, types.SimpleNamespace)):
        s.native(init, value, *args, **kwargs)
    elif issubclass(cls, (list, set, collections.deque, dict)):
        first = issubclass(cls, collections.defaultdict)  # what makes items
        given = [native_iterable(s, a) for a in args[first:]]
        if issubclass(cls, collections.OrderedDict) and type(init) is types.WrapperDescriptorType:
            s.call(init, (value, *given), kwargs)  # it sets each by the class's method
            return
        s.native(init, value, *args[:first], *given, **kwargs)
    elif issubclass(cls, (tuple, str, int, float, frozenset, bytes)):
        return
    else:
        raise Unsupported(f"{cls.__name__}.__init__ is native code.")
