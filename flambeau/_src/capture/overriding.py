"""`__torch_function__` of the arguments' classes: asked before a call becomes a node.

A tensor of a subclass is a fake tensor like others; its class stands in `TensorInfo.kind`. Where
the class has a say its handler is called, and the default one is done here. No class is asked while
the graph runs (`emit.py`), and what leaves it is given its class then.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from flambeau._src.capture.lookup import MISSING, special
from flambeau._src.capture.outcome import Unsupported
from flambeau._src.capture.source import AttrSource, Source, TypeSource
from flambeau._src.capture.values.constant import ATOMS
from flambeau._src.capture.wrappers import dispatches
from flambeau._src.core import state
from flambeau._src.core.slots import slot
from flambeau._src.core.tensor import Tensor, _disabled_torch_function_impl, _tensor_function
from flambeau._src.interp.fake import FakeTensor
from flambeau._src.interp.function import DisableTorchFunctionSubclass, full_name
from flambeau._src.ops.call import aten
from flambeau._src.ops.op import packet
from flambeau._src.ops.overload import overload_of

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session

__all__ = ["HANDLERS", "accessed", "as_subclass", "call", "has_say", "method", "overriding"]
__all__ += ["hidden", "kind_of", "own_attribute", "property_of", "protocol"]


def has_say(kind: type) -> bool:
    """Whether a class of tensors has a `__torch_function__` that is asked."""
    return kind is not Tensor and _handler_of(kind) is not _disabled_torch_function_impl


def _handler_of(kind: Any) -> Any:
    return kind.__torch_function__


def kind_of(s: Session, x: Any) -> type:
    """The class of an argument, as the program sees it."""
    if type(x) is not FakeTensor:
        return type(x)
    info = s.tensors.get(id(x))
    return Tensor if info is None else info.kind


def overriding(s: Session, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """One argument for each class that has a say: subclasses before their bases, else in order."""
    found: list[Any] = []
    kinds: list[type] = []
    for v in (*args, *kwargs.values()):
        for x in v if type(v) in (list, tuple) else (v,):
            kind = type(x)
            if kind in ATOMS or isinstance(x, type):
                continue
            if kind is FakeTensor:
                kind = kind_of(s, x)
                if kind is Tensor or kind in kinds or not has_say(kind):
                    continue
            elif (
                isinstance(x, Tensor)
                or special(kind, "__torch_function__") is None
                or kind in kinds
            ):
                continue
            at = next((i for i, y in enumerate(kinds) if issubclass(kind, y)), len(kinds))
            found.insert(at, x)
            kinds.insert(at, kind)
    return [] if found and state.get_suspended() & state.FUNCTION else found


def call(s: Session, fn: Any, found: list[Any], args: Any, kwargs: Any) -> Any:
    """Ask them, until one does not say NotImplemented."""
    kinds = tuple([kind_of(s, x) for x in found])
    for x, kind in zip(found, kinds, strict=True):
        of = kind if type(x) is FakeTensor else x
        out = s.call(s.get(of, "__torch_function__"), (fn, kinds, args, kwargs), {})
        if out is not NotImplemented:
            return out
    lines = [
        f"Multiple dispatch failed for '{full_name(fn)}'; all __torch_function__ handlers "
        "returned NotImplemented:\n",
        *(f"  - tensor subclass {t!r}" for t in kinds),
        "\nFor more information, try re-running with TORCH_LOGS=not_implemented",
    ]
    return s.raise_(TypeError("\n".join(lines)))


# ---- the default handlers ----


def _default(s: Session, args: Any, kwargs: Any) -> Any:
    """`Tensor.__torch_function__(func, types, args, kwargs)`."""
    cls, fn, kinds, given, named = _taken(*args, **kwargs)
    if not all(issubclass(cls, kind) for kind in kinds):
        return NotImplemented
    out = _suspended(s, fn, given, named)
    if fn in slot("default_nowrap_functions")():
        return out
    return _converted(s, out, cls, given)


def _disabled(s: Session, args: Any, kwargs: Any) -> Any:
    """`_disabled_torch_function_impl(func, types, args, kwargs)`."""
    _none, fn, _types, given, named = _taken(None, *args, **kwargs)
    return _suspended(s, fn, given, named)


def _taken(
    cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None
) -> tuple[Any, Any, Any, Any, Any]:
    return cls, func, types, tuple(args), kwargs or {}


def _suspended(s: Session, fn: Any, args: Any, kwargs: Any) -> Any:
    before = state.set_suspended(state.get_suspended() | state.FUNCTION)
    try:
        return s.call(fn, args, kwargs)
    finally:
        state.set_suspended(before)


def _converted(s: Session, value: Any, cls: type, given: Any) -> Any:
    """A result of the default handler: new tensors have the class."""
    if cls is Tensor:
        return value
    if type(value) is FakeTensor and not issubclass(kind_of(s, value), cls):
        info = s.tensors[id(value)]
        if dispatches(cls):
            raise Unsupported(f"A result becomes a {cls.__name__}, which has `__torch_dispatch__`.")
        if info.source is not None or any(value is v for v in given) or info.attrs:
            return _alias(s, value, cls)
        info.kind = cls  # nobody has it yet
        return value
    if isinstance(value, (tuple, list)):
        make: Any = getattr(value, "_make", None) or type(value)
        return make([_converted(s, v, cls, given) for v in value])
    return value


def _alias(s: Session, t: Any, cls: type) -> Any:
    alias = overload_of(packet("alias").ops[0])
    with state.Suspended(state.FUNCTION):
        made = s.recorder.call(alias, alias, (t,), {})
    s.tensors[id(made)].kind = cls
    return made


def as_subclass(s: Session, t: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`t.as_subclass(cls)`."""
    cls: Any = next(iter((*args, *kwargs.values())), None)
    if not isinstance(cls, type) or not issubclass(cls, Tensor):
        return s.native(Tensor.as_subclass, t, *args, **kwargs)
    if dispatches(cls):
        raise Unsupported(f"A tensor becomes a {cls.__name__}, which has `__torch_dispatch__`.")
    return _alias(s, t, cls)


# ---- Python's protocols and attributes ----


class _Asked(Exception):
    """What a class is asked for."""


class _Probe(Tensor):
    """Tells which function its handler is asked for."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise _Asked(func, next(i for i, v in enumerate(args) if isinstance(v, cls)))


@functools.cache
def _asked(fn: Callable[..., Any], place: int, count: int) -> tuple[Any, int]:
    """The function that a class is asked for when `fn` is called with a tensor of it at `place`
    among numbers, and the tensor's place then."""
    args: list[Any] = [1] * count
    args[place] = Tensor.as_subclass(aten.empty((1,)), _Probe)
    try:
        fn(*args)
    except _Asked as asked:
        func, at = asked.args
        return func, at
    raise Unsupported(f"{fn} does not ask the classes of its arguments.")


def protocol(s: Session, fn: Callable[..., Any], *args: Any) -> Any:
    """`fn`, an operator of Python, of tensors whose classes have a say; MISSING: they have none."""
    found = overriding(s, args, {})
    if not found:
        return MISSING
    place = next(i for i, v in enumerate(args) if type(v) is FakeTensor)
    func, at = _asked(fn, place, len(args))
    if at != place:
        args = args[::-1]
    return call(s, func, found, args, {})


def method(s: Session, t: Any, name: str) -> Any:
    """A special method that the tensor's class itself defines in Python, None: it defines none."""
    if type(t) is not FakeTensor:
        return None
    found = _in_class(kind_of(s, t), name)
    return found[0] if found is not None and type(found[0]) is types.FunctionType else None


def hidden(s: Session, t: Any, name: str) -> bool:
    """Whether the tensor's class gives something else under the name than tensors have."""
    kind = kind_of(s, t)
    return kind is not Tensor and _in_class(kind, name) is not None


@functools.cache
def _in_class(kind: type, name: str) -> tuple[Any] | None:
    """What classes of users hold under the name."""
    for base in kind.__mro__[: kind.__mro__.index(Tensor)]:
        if name in base.__dict__ and "__torch_function__" not in (name,):
            if base.__name__ in ("Parameter", "Buffer") and not base.__module__.startswith("__"):
                return None
            return (base.__dict__[name],)
    return None


def own_attribute(s: Session, t: Any, info: Any, name: str) -> Any:
    """What the tensor's class defines under the name; MISSING: nothing."""
    found = _in_class(info.kind, name)
    if found is None:
        return MISSING
    attr = found[0]
    kind = type(attr)
    source = _class_source(s, info)
    if kind is property:
        getter = attr.fget
        if source is not None and type(getter) is types.FunctionType:
            getter = s.heap.enter(getter, AttrSource(AttrSource(source, name), "fget"))
        return s.call(getter, (t,), {})
    if name in info.attrs or name in getattr(info.real, "__dict__", {}):
        return MISSING
    if kind is types.FunctionType:
        if source is not None:
            s.heap.enter(attr, AttrSource(source, name))
        return types.MethodType(attr, t)
    if kind is classmethod:
        return types.MethodType(attr.__func__, info.kind)
    if kind is staticmethod:
        return attr.__func__
    if special(kind, "__get__") is not None:
        raise Unsupported(f"The descriptor {name} of {info.kind.__name__} is read.")
    if source is None:
        raise Unsupported(f"{info.kind.__name__}.{name} cannot be found again to guard it.")
    return s.heap.enter(attr, AttrSource(source, name))


def _class_source(s: Session, info: Any) -> Source | None:
    if info.source is not None:
        return TypeSource(info.source)
    return s.heap.find(info.kind)


def property_of(s: Session, t: Any, kind: type, name: str, *value: Any) -> Any:
    """A property of tensors, read or written, where the class has a say; MISSING: it is a method,
    or it has none."""
    if not has_say(kind) or state.get_suspended() & state.FUNCTION:
        return MISSING
    found = getattr(Tensor, name, None)
    if name.startswith("__") or found is None or _name_of(found) is None:
        return MISSING
    access = found.__set__ if value else found.__get__
    return call(s, access, [t], (t, *value), {})


@functools.cache
def _names() -> dict[int, str]:
    return {
        id(v): k for k, v in vars(Tensor).items()
        if not callable(v) and hasattr(type(v), "__get__") and not k.startswith("__")
    }  # fmt: skip


def _name_of(descriptor: Any) -> str | None:
    return _names().get(id(descriptor))


def accessed(fn: Any) -> tuple[str, str] | None:
    """For the `__get__` or `__set__` of a property of tensors: which, and the property's name."""
    how = getattr(fn, "__name__", None)
    if how not in ("__get__", "__set__"):
        return None
    name = _name_of(getattr(fn, "__self__", None))
    return None if name is None else (how, name)


def _entering(s: Session, args: Any, kwargs: Any) -> Any:
    return s.native(DisableTorchFunctionSubclass.__enter__, *args)


def _leaving(s: Session, args: Any, kwargs: Any) -> Any:
    return s.native(DisableTorchFunctionSubclass.__exit__, *args)


#: Functions of the library, by code, and what is done instead of interpreting them.
HANDLERS: dict[Any, Any] = {
    _tensor_function.__code__: _default,
    _disabled_torch_function_impl.__code__: _disabled,
    DisableTorchFunctionSubclass.__enter__.__code__: _entering,
    DisableTorchFunctionSubclass.__exit__.__code__: _leaving,
}
