"""Text of values: native where the value is, else by the methods of its class."""

from __future__ import annotations

import builtins
import types
from typing import TYPE_CHECKING, Any

from flambeau._src import _native
from flambeau._src.capture import library
from flambeau._src.capture.lookup import special
from flambeau._src.capture.natives import CONTAINERS
from flambeau._src.capture.outcome import Unsupported
from flambeau._src.capture.sizes import numbers
from flambeau._src.capture.values.constant import ATOMS, is_reference
from flambeau._src.core.size import Size
from flambeau._src.interp.fake import FakeTensor

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session

__all__ = ["convert", "format_", "percent", "printable"]

#: How exceptions of native code become text: by their arguments and native attributes.
_EXCEPTIONS = frozenset(
    c.__str__
    for c in vars(builtins).values()
    if isinstance(c, type) and issubclass(c, BaseException)
)
_PLAIN_CONTAINERS = CONTAINERS - {slice}


#: Functions whose text is their name, without an address.
_NAMED: tuple[type, ...] = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.GetSetDescriptorType,
)
_NAMED += (_native.Function, _native.Method)


def printable(value: Any, depth: int = 0) -> bool:
    """Whether native code prints the value without running Python code or showing an address."""
    kind: Any = type(value)
    if kind in ATOMS or kind is Size:
        return True
    if depth > 20:
        return False
    if kind in _PLAIN_CONTAINERS or kind is slice:
        if kind is slice:
            return all(printable(v, depth + 1) for v in (value.start, value.stop, value.step))
        if isinstance(value, (dict, types.MappingProxyType)):
            return all(printable(v, depth + 1) for kv in value.items() for v in kv)
        return all(printable(v, depth + 1) for v in value)
    if isinstance(value, BaseException):
        native = kind.__str__ in _EXCEPTIONS
        return (
            native and kind.__repr__ is BaseException.__repr__ and printable(value.args, depth + 1)
        )
    if isinstance(value, type):
        return type(kind.__repr__) is types.WrapperDescriptorType
    if is_reference(value):
        named = kind.__name__ in ("dtype", "layout", "memory_format") or kind in _NAMED
        return named or kind.__module__ == "typing"
    return False


def convert(s: Session, how: str, value: Any) -> str:
    """`str(value)`, `repr(value)` or `ascii(value)`."""
    value = numbers(value)
    kind = type(value)
    _refuse_tensors(kind)
    if isinstance(value, BaseException) and s.heap.known(value) is not None:
        return _outside_exception(s, how, value)
    if printable(value):
        return s.native(getattr(builtins, how), value)  # type: ignore[no-any-return]
    names = ("__str__", "__repr__") if how == "str" else ("__repr__",)
    for name in names:
        method = special(kind, name)
        if type(method) is types.FunctionType and not isinstance(value, type):
            if isinstance(value, tuple) and library.kind_of_code(method.__code__) is not None:
                for item in value:  # an operator's results
                    _refuse_tensors(type(item))
            text = s.call(method, (value,), {})
            if how == "ascii":
                text = s.native(ascii, text)
            return text  # type: ignore[no-any-return]
        if method is not object.__str__ and name == "__str__":
            if method is BaseException.__str__:
                args = value.args
                return "" if not args else convert(s, "str", args[0] if len(args) == 1 else args)
            break
    if kind in (list, tuple, dict) and _shallow(value, 0):
        return _container(s, value)
    raise Unsupported(
        f"A {kind.__name__} is made into text.",
        "Format it outside of the compiled function, or after it.",
    )


def _refuse_tensors(kind: type) -> None:
    """What a capture has of a tensor does not have its values."""
    if kind is FakeTensor:
        raise Unsupported(
            "A tensor is made into text.", "Format it outside of the compiled function, or after."
        )


def _outside_exception(s: Session, how: str, value: Any) -> str:
    kind: Any = type(value)
    plain = (BaseException.__str__, KeyError.__str__, AttributeError.__str__)
    if kind.__repr__ is not BaseException.__repr__ or kind.__str__ not in plain:
        raise Unsupported(f"A {kind.__name__} from outside is made into text.")
    args = s.get(value, "args")
    if how != "str":
        return f"{kind.__name__}({', '.join(convert(s, how, v) for v in args)})"
    if len(args) != 1:
        return convert(s, "str", args) if args else ""
    return convert(s, "repr" if kind.__str__ is KeyError.__str__ else "str", args[0])


def _shallow(value: Any, depth: int) -> bool:
    """Whether nested containers end somewhere near: they may contain themselves."""
    if depth > 20:
        return False
    parts = value.values() if isinstance(value, dict) else value
    return all(_shallow(v, depth + 1) for v in parts if type(v) in (list, tuple, dict))


def _container(s: Session, value: Any) -> str:
    if isinstance(value, dict):
        inside = ", ".join(
            f"{convert(s, 'repr', k)}: {convert(s, 'repr', v)}" for k, v in value.items()
        )
        return "{" + inside + "}"
    inside = ", ".join(convert(s, "repr", v) for v in value)
    if isinstance(value, list):
        return f"[{inside}]"
    return f"({inside},)" if len(value) == 1 else f"({inside})"


def format_(s: Session, value: Any, spec: str) -> str:
    """`format(value, spec)`."""
    value = numbers(value)
    kind = type(value)
    _refuse_tensors(kind)
    if isinstance(value, BaseException) and not spec:
        return convert(s, "str", value)
    if kind is str and not spec:
        return value  # type: ignore[no-any-return]
    if printable(value):
        return s.native(format, value, spec)  # type: ignore[no-any-return]
    method = special(kind, "__format__")
    if type(method) is types.FunctionType:
        return s.call(method, (value, spec), {})  # type: ignore[no-any-return]
    if method is object.__format__:
        if spec:
            text = f"unsupported format string passed to {kind.__name__}.__format__"
            return s.raise_(TypeError(text))  # type: ignore[no-any-return]
        return convert(s, "str", value)
    raise Unsupported(f"A {kind.__name__} is formatted.", "Format it outside of the function.")


def percent(s: Session, text: Any, value: Any) -> Any:
    """`text % value`."""
    value = tuple(map(numbers, value)) if isinstance(value, tuple) else numbers(value)
    if not printable(value):
        raise Unsupported("Objects are formatted with %.", "Format them outside of the function.")
    return s.native((str if isinstance(text, str) else bytes).__mod__, text, value)
