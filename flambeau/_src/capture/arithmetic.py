"""Operators: on tensors nodes, on native values as they are, on users' objects their methods."""

from __future__ import annotations

import collections
import operator
import types
from typing import TYPE_CHECKING, Any

from flambeau._src.capture import arrays, attributes, iteration, overriding, scalars, strings
from flambeau._src.capture.generators import Generator
from flambeau._src.capture.lookup import MISSING
from flambeau._src.capture.natives import (
    CONTAINERS,
    ITERATORS,
    NATIVE,
    PLAIN,
    PYTHON,
    TENSORS,
    check_key,
    grade,
    inert,
)
from flambeau._src.capture.outcome import Raised, Unsupported
from flambeau._src.capture.scalars import Scalar
from flambeau._src.capture.sizes import SYMBOLIC, is_symbolic, numbers
from flambeau._src.capture.values.constant import ATOMS, is_reference
from flambeau._src.capture.values.tensors import is_tensor
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp.fake import FakeTensor

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session

__all__ = [
    "binary",
    "contains",
    "delete_item",
    "get_item",
    "native_index",
    "same",
    "set_item",
    "truth",
    "unary",
]

#: symbol → (function, method, reflected method)
_BINARY: dict[str, tuple[Any, str, str]] = {
    "+": (operator.add, "__add__", "__radd__"),
    "-": (operator.sub, "__sub__", "__rsub__"),
    "*": (operator.mul, "__mul__", "__rmul__"),
    "@": (operator.matmul, "__matmul__", "__rmatmul__"),
    "/": (operator.truediv, "__truediv__", "__rtruediv__"),
    "//": (operator.floordiv, "__floordiv__", "__rfloordiv__"),
    "%": (operator.mod, "__mod__", "__rmod__"),
    "**": (operator.pow, "__pow__", "__rpow__"),
    "<<": (operator.lshift, "__lshift__", "__rlshift__"),
    ">>": (operator.rshift, "__rshift__", "__rrshift__"),
    "&": (operator.and_, "__and__", "__rand__"),
    "|": (operator.or_, "__or__", "__ror__"),
    "^": (operator.xor, "__xor__", "__rxor__"),
    "<": (operator.lt, "__lt__", "__gt__"),
    "<=": (operator.le, "__le__", "__ge__"),
    ">": (operator.gt, "__gt__", "__lt__"),
    ">=": (operator.ge, "__ge__", "__le__"),
    "==": (operator.eq, "__eq__", "__eq__"),
    "!=": (operator.ne, "__ne__", "__ne__"),
}
_INPLACE: dict[str, tuple[Any, str]] = {
    "+=": (operator.iadd, "__iadd__"),
    "-=": (operator.isub, "__isub__"),
    "*=": (operator.imul, "__imul__"),
    "@=": (operator.imatmul, "__imatmul__"),
    "/=": (operator.itruediv, "__itruediv__"),
    "//=": (operator.ifloordiv, "__ifloordiv__"),
    "%=": (operator.imod, "__imod__"),
    "**=": (operator.ipow, "__ipow__"),
    "<<=": (operator.ilshift, "__ilshift__"),
    ">>=": (operator.irshift, "__irshift__"),
    "&=": (operator.iand, "__iand__"),
    "|=": (operator.ior, "__ior__"),
    "^=": (operator.ixor, "__ixor__"),
}
_UNARY: dict[str, tuple[Any, str]] = {
    "neg": (operator.neg, "__neg__"),
    "invert": (operator.invert, "__invert__"),
    "pos": (operator.pos, "__pos__"),
}
_REAL = frozenset((int, float, bool, *SYMBOLIC))
_COMPARING = frozenset(("<", "<=", ">", ">=", "==", "!="))
SYMBOLS: dict[Any, str] = {fn: symbol for symbol, (fn, *_) in _BINARY.items()}
SYMBOLS |= {fn: symbol for symbol, (fn, _) in _INPLACE.items()}


def binary(s: Session, symbol: str, a: Any, b: Any) -> Any:
    """`a symbol b`."""
    ta, tb = type(a), type(b)
    inplace = _INPLACE.get(symbol)
    plain = symbol[:-1] if inplace is not None else symbol
    fn = inplace[0] if inplace is not None else _BINARY[symbol][0]
    if ta in ATOMS and tb in ATOMS:
        if (ta in SYMBOLIC and tb not in _REAL) or (tb in SYMBOLIC and ta not in _REAL):
            a, b = numbers(a), numbers(b)  # with a complex number, text, None
        return s.native(fn, a, b)
    if s.scalars and (ta is Scalar or tb is Scalar):
        if ta is not FakeTensor and tb is not FakeTensor:
            return scalars.compute(s, symbol, a, b)
        a, b = scalars.numbered(a), scalars.numbered(b)
    if ta is FakeTensor or tb is FakeTensor:
        return _with_tensor(s, symbol, plain, fn, a, b)
    if ta in NATIVE and tb in NATIVE:
        return _native(s, plain, fn, a, b)
    if inplace is not None:
        if ta in CONTAINERS and plain == "+" and ta is list:
            a += iteration.native_iterable(s, b)
            return a
        method = attributes.special(ta, inplace[1])
        if method is not None:
            out = _ask(s, method, a, b)
            if out is not NotImplemented:
                return out
    return _protocol(s, plain, a, b, symbol)


def _with_tensor(s: Session, symbol: str, plain: str, fn: Any, a: Any, b: Any) -> Any:
    a, b = arrays.as_number(a), arrays.as_number(b)
    for v in (a, b):
        if type(v) is not FakeTensor and type(v) not in NATIVE:
            return _protocol(s, plain, a, b, symbol)
    if plain == "%" and type(a) in (str, bytes):
        return strings.percent(s, a, b)
    if type(a) in (list, tuple) and plain in ("+",) and symbol == "+=":
        return s.native(fn, a, iteration.unbound(s, b))
    if type(a) is not FakeTensor:  # nothing to change in place
        fn = _BINARY[plain][0]
    out = _by_classes(s, symbol, plain, fn, a, b)
    if out is not MISSING:
        return out
    return s.recorder.call(fn, fn, (a, b), {})


def _by_classes(s: Session, symbol: str, plain: str, fn: Any, a: Any, b: Any) -> Any:
    """The operator where classes of tensors define it, or have a say; MISSING: they do not."""
    _, forward, backward = _BINARY[plain]
    inplace = _INPLACE.get(symbol)
    first = overriding.method(s, a, forward)
    if inplace is not None:
        first = overriding.method(s, a, inplace[1]) or first
    asks = [(first, a, b), (overriding.method(s, b, backward), b, a)]
    if overriding.kind_of(s, a) in overriding.kind_of(s, b).__mro__:
        asks.reverse()
    for method, x, y in asks:
        if method is not None:
            out = s.call(method, (x, y), {})
            if out is not NotImplemented:
                return out
    try:
        return overriding.protocol(s, fn, a, b)
    except Raised as raised:
        if isinstance(raised.error, TypeError):  # Python asks the other operand then
            raise Unsupported("A class of tensors refuses an operator.") from None
        raise


def _native(s: Session, plain: str, fn: Any, a: Any, b: Any) -> Any:
    if plain == "%" and isinstance(a, (str, bytes)):
        return strings.percent(s, a, b)
    if type(a) in (list, tuple) and type(b) in ITERATORS | {dict, set} and plain == "+":
        return s.native(fn, a, b)
    worst = max(grade(a), grade(b))
    if worst == PLAIN or plain in ("+", "*"):
        return s.native(fn, a, b)
    if plain in _COMPARING and isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return _compare_sequences(s, plain, a, b)
    if plain in ("==", "!=") and isinstance(a, dict) and isinstance(b, dict):
        return _equal_dicts(s, a, b) is (plain == "==")
    if worst == TENSORS or not _compares_items(a, b):
        return s.recorder.watch(fn, (a, b), {})
    raise Unsupported("Containers of objects with comparisons of their own are combined.")


def _compares_items(a: Any, b: Any) -> bool:
    return isinstance(a, (set, frozenset, dict)) or isinstance(b, (set, frozenset, dict))


def _compare_sequences(s: Session, plain: str, a: Any, b: Any) -> Any:
    """Lists and tuples, item by item."""
    if (isinstance(a, list) and not isinstance(b, list)) or (
        isinstance(a, tuple) and not isinstance(b, tuple)
    ):
        return s.native(_BINARY[plain][0], type(a)(), type(b)())
    if len(a) != len(b) and plain in ("==", "!="):
        return plain == "!="
    for x, y in zip(list(a), list(b), strict=False):
        if x is not y and not truth(s, binary(s, "==", x, y)):
            if plain in ("==", "!="):
                return plain == "!="
            return binary(s, plain, x, y)
    return s.native(_BINARY[plain][0], len(a), len(b))


def _equal_dicts(s: Session, a: Any, b: Any) -> bool:
    if len(a) != len(b):
        return False
    for key in a:
        check_key(s, key)
        if key not in b:
            return False
        if a[key] is not b[key] and not truth(s, binary(s, "==", a[key], b[key])):
            return False
    return True


def _ask(s: Session, method: Any, a: Any, b: Any) -> Any:
    """`method(a, b)`, NotImplemented included."""
    if type(method) is types.FunctionType:
        return s.call(method, (a, b), {})
    if type(method) is types.WrapperDescriptorType:
        owner = method.__objclass__
        if method in _PERCENT:
            return strings.percent(s, a, b)
        if type(a) is FakeTensor:
            if not _is_number(b):
                return NotImplemented
            found = overriding.overriding(s, (a, b), {})
            if found:
                return overriding.call(s, getattr(Tensor, method.__name__), found, (a, b), {})
        if owner is object:
            return method(a, b) if method.__name__ in ("__eq__", "__ne__") else NotImplemented
        if max(grade(a), grade(b)) == PYTHON and not (
            isinstance(a, (int, float, str, BaseException))
        ):
            raise Unsupported(
                f"{owner.__name__}.{method.__name__} meets objects of Python classes."
            )
        return s.recorder.watch(method, (a, b), {})
    if method is None:
        return NotImplemented
    return s.call(attributes.bind(s, method, a), (b,), {})


_PERCENT = (str.__mod__, bytes.__mod__)


def _is_number(value: Any) -> bool:
    """Whether an operator of tensors may take the object, or knows of it."""
    kind = type(value)
    return isinstance(value, (int, float, complex, Tensor)) or any(
        attributes.special(kind, n) is not None
        for n in ("__torch_function__", "__float__", "__index__", "__array__", "__complex__")
    )


def _protocol(s: Session, plain: str, a: Any, b: Any, symbol: str) -> Any:
    """Python's protocol of binary operators."""
    _, forward, backward = _BINARY[plain]
    ta, tb = type(a), type(b)
    named = any(is_reference(v) or type(v) is types.FunctionType for v in (a, b))
    native = plain in ("==", "!=") or not _has_python(ta, tb, forward, backward)
    if named and native and _identity(a) and _identity(b):
        return s.native(_BINARY[plain][0], a, b)
    first = None if arrays.is_inside(b) and arrays.is_numpy(a) else attributes.special(ta, forward)
    second = attributes.special(tb, backward)
    if (
        ta is not tb
        and ta in tb.__mro__  # classes that are registered with an ABC do not come first
        and second is not None
        and (plain in _COMPARING or second is not attributes.special(ta, backward))
    ):
        out = _ask(s, second, b, a)
        if out is not NotImplemented:
            return out
        second = None
    if first is not None:
        out = _method(s, first, a, b, plain)
        if out is not NotImplemented:
            return out
    if second is not None and (ta is not tb or plain in _COMPARING):
        out = _method(s, second, b, a, plain)
        if out is not NotImplemented:
            return out
    if plain == "==":
        return a is b
    if plain == "!=":
        return a is not b
    if plain in _COMPARING:
        text = f"'{plain}' not supported between instances of '{ta.__name__}' and '{tb.__name__}'"
    else:
        symbol = "** or pow()" if symbol == "**" else symbol
        text = f"unsupported operand type(s) for {symbol}: '{ta.__name__}' and '{tb.__name__}'"
    return s.raise_(TypeError(text))


def _method(s: Session, method: Any, a: Any, b: Any, plain: str) -> Any:
    if plain == "!=" and method is object.__ne__:
        equal = attributes.special(type(a), "__eq__")
        if type(equal) is types.FunctionType:
            out = s.call(equal, (a, b), {})
            return out if out is NotImplemented else not truth(s, out)
    return _ask(s, method, a, b)


def _identity(value: Any) -> bool:
    return (
        type(value) in ATOMS
        or type(value) is types.FunctionType
        or (is_reference(value) and inert(type(value)))
    )


def _has_python(ta: type, tb: type, forward: str, backward: str) -> bool:
    return any(
        type(attributes.special(t, n)) is types.FunctionType
        for t, n in ((ta, forward), (tb, backward))
    )


def unary(s: Session, name: str, a: Any) -> Any:
    """`-a`, `+a`, `~a`."""
    fn, method = _UNARY[name]
    if is_tensor(a):
        own = overriding.method(s, a, method)
        out = overriding.protocol(s, fn, a) if own is None else s.call(own, (a,), {})
        return s.recorder.call(fn, fn, (a,), {}) if out is MISSING else out
    if type(a) in ATOMS:
        return s.native(fn, numbers(a) if name == "invert" else a)
    if type(a) is Scalar:
        return scalars.compute(s, "*", a, -1) if name == "neg" else s.native(fn, a)
    found = attributes.special(type(a), method)
    if type(found) is types.FunctionType:
        return s.call(found, (a,), {})
    if found is None:
        sign = {"neg": "-", "invert": "~", "pos": "+"}[name]
        text = f"bad operand type for unary {sign}: '{type(a).__name__}'"
        return s.raise_(TypeError(text))
    if grade(a) == PLAIN:
        return s.native(fn, a)
    raise Unsupported(f"`{name}` of a {type(a).__name__}.")


def truth(s: Session, value: Any) -> bool:
    """`bool(value)`."""
    if value is True or value is False:
        return value
    kind = type(value)
    if kind is FakeTensor:
        with s.fake_mode:
            try:
                return bool(s.native(bool, value))
            except Unsupported:
                raise Unsupported(
                    "A branch depends on a value of a tensor.",
                    "Use torch.where or torch.cond, or branch on something Python knows.",
                ) from None
    if kind is Scalar:
        return bool(s.native(bool, value.number))
    if is_symbolic(value):
        return bool(s.native(bool, value))
    if kind in ATOMS or kind in CONTAINERS or kind in ITERATORS or kind is Generator:
        return bool(value)
    method = attributes.special(kind, "__bool__")
    if method is not None:
        if type(method) is not types.FunctionType or isinstance(value, type):
            return s.native(bool, value)  # type: ignore[no-any-return]
        out = s.call(method, (value,), {})
        if type(out) is not bool:
            s.raise_(TypeError(f"__bool__ should return bool, returned {type(out).__name__}"))
        return out  # type: ignore[no-any-return]
    if attributes.special(kind, "__len__") is not None and not isinstance(value, type):
        return iteration.length(s, value) != 0
    return True


def same(s: Session, a: Any, b: Any) -> bool:
    """`a is b`."""
    if a is b:
        return True
    if (is_symbolic(a) and (is_symbolic(b) or type(b) in (int, float))) or (
        is_symbolic(b) and type(a) in (int, float)
    ):
        a, b = numbers(a), numbers(b)  # as objects, symbols say nothing of them
    ta, tb = type(a), type(b)
    if ta is tb and ta in (tuple, str, int, float, bytes) and ta is not bool and a == b:
        if ta is tuple and not a:
            return True
        known = s.heap.known(a), s.heap.known(b)
        if ta is tuple and known[0] is not None and known[1] is not None:
            return False
        raise Unsupported(f"The identity of two equal {ta.__name__}s is asked for.", "Use `==`.")
    if ta is types.MethodType or ta is types.BuiltinFunctionType:
        return False
    return False


def get_item(s: Session, a: Any, key: Any) -> Any:
    """`a[key]`."""
    ta = type(a)
    if ta is FakeTensor:
        own = overriding.method(s, a, "__getitem__")
        if own is not None:
            return s.call(own, (a, key), {})
        if overriding.has_say(overriding.kind_of(s, a)):
            key = _index(s, key)
            out = overriding.protocol(s, operator.getitem, a, key)
            if out is not MISSING:
                return out
        return s.recorder.call(operator.getitem, operator.getitem, (a, _index(s, key)), {})
    if ta in CONTAINERS or ta in ATOMS:
        if isinstance(a, dict):
            check_key(s, key)
            if ta is dict:
                return s.native(dict.__getitem__, a, key)
            if ta is not _MAPPING_PROXY and key not in a:
                factory = getattr(a, "default_factory", None)
                if factory is not None:
                    a[key] = value = s.call(factory, (), {})
                    return value
            return s.native(operator.getitem, a, key)
        return s.native(operator.getitem, a, native_index(s, key))
    if isinstance(a, type):
        return _class_item(s, a, key)
    method = attributes.special(ta, "__getitem__")
    if type(method) is types.FunctionType:
        return s.call(method, (a, key), {})
    if method is None:
        return s.raise_(TypeError(f"'{ta.__name__}' object is not subscriptable"))
    if isinstance(a, dict):
        check_key(s, key)
        if key not in a:
            missing = attributes.special(ta, "__missing__")
            if missing is not None:
                return s.call(missing, (a, key), {})
        return s.native(dict.__getitem__, a, key)
    if isinstance(a, (list, tuple, str, bytes, collections.deque)) or ta.__module__ in (
        "re",
        "types",
        "typing",
    ):
        return s.native(operator.getitem, a, native_index(s, key))
    raise Unsupported(f"An item of a {ta.__name__} is read.")


_MAPPING_PROXY = types.MappingProxyType


def _class_item(s: Session, cls: type, key: Any) -> Any:
    meta = attributes.special(type(cls), "__getitem__")
    if meta is not None:  # an Enum by name
        if type(meta) is types.FunctionType and grade(key) == PLAIN and type(key) in ATOMS:
            return s.native(operator.getitem, cls, key)
        raise Unsupported(f"An item of the class {cls.__name__} is read.")
    if attributes.special(cls, "__class_getitem__") is not None and grade(key) == PLAIN:
        return s.native(operator.getitem, cls, key)
    raise Unsupported(f"An item of the class {cls.__name__} is read.")


def _index(s: Session, key: Any) -> Any:
    """An index of a tensor; objects with `__index__` as ints."""
    key = scalars.numbered(key)
    if type(key) is tuple:
        return tuple([_index(s, k) for k in key])
    if type(key) is range:
        return list(key)
    if type(key) is slice:
        return slice(_index(s, key.start), _index(s, key.stop), _index(s, key.step))
    if type(key) not in NATIVE and type(key) is not FakeTensor:
        method = attributes.special(type(key), "__index__")
        if type(method) is types.FunctionType:
            return s.call(method, (key,), {})
    return key


def native_index(s: Session, key: Any) -> Any:
    key = numbers(scalars.opened(key)) if s.scalars else key
    if is_tensor(key):
        raise Unsupported(
            "A tensor is the index of a Python sequence.", "Stack the items and index the result."
        )
    if type(key) is slice and any(map(is_tensor, (key.start, key.stop, key.step))):
        raise Unsupported("A tensor is the bound of a slice of a Python sequence.")
    if type(key) in ATOMS or type(key) in CONTAINERS:
        return key
    method = attributes.special(type(key), "__index__")
    if type(method) is types.FunctionType:
        return s.call(method, (key,), {})
    return key


def set_item(s: Session, a: Any, key: Any, value: Any) -> None:
    """`a[key] = value`."""
    ta = type(a)
    if ta is FakeTensor:
        own = overriding.method(s, a, "__setitem__")
        if own is not None:
            s.call(own, (a, key, value), {})
            return
        if overriding.protocol(s, operator.setitem, a, _index(s, key), value) is not MISSING:
            return
        s.recorder.call(operator.setitem, operator.setitem, (a, _index(s, key), value), {})
        return
    if ta in CONTAINERS:
        if isinstance(a, dict):
            check_key(s, key)
        elif type(key) is slice:
            value = iteration.native_iterable(s, value)
            key = native_index(s, key)
        else:
            key = native_index(s, key)
        s.native(operator.setitem, a, key, value)
        return
    method = attributes.special(ta, "__setitem__")
    if type(method) is types.FunctionType:
        s.call(method, (a, key, value), {})
    elif method is None:
        s.raise_(TypeError(f"'{ta.__name__}' object does not support item assignment"))
    elif isinstance(a, dict):
        check_key(s, key)
        s.native(method, a, key, value)
    elif isinstance(a, (list, collections.deque)):
        if type(key) is slice:
            value = iteration.native_iterable(s, value)
        s.native(method, a, native_index(s, key), value)
    else:
        raise Unsupported(f"An item of a {ta.__name__} is set.")


def delete_item(s: Session, a: Any, key: Any) -> None:
    """`del a[key]`."""
    ta = type(a)
    if ta in CONTAINERS:
        if isinstance(a, dict):
            check_key(s, key)
        s.native(operator.delitem, a, key)
        return
    method = attributes.special(ta, "__delitem__")
    if type(method) is types.FunctionType:
        s.call(method, (a, key), {})
    elif method is None:
        s.raise_(TypeError(f"'{ta.__name__}' object doesn't support item deletion"))
    elif isinstance(a, dict):
        check_key(s, key)
        s.native(method, a, key)
    elif isinstance(a, (list, collections.deque)):
        s.native(method, a, native_index(s, key))
    else:
        raise Unsupported(f"An item of a {ta.__name__} is deleted.")


def contains(s: Session, box: Any, value: Any) -> bool:
    """`value in box`."""
    tb = type(box)
    if tb is FakeTensor:
        out = overriding.protocol(s, operator.contains, box, value)
        if out is not MISSING:
            return truth(s, out)
        return truth(s, s.recorder.call("__contains__", tb.__contains__, (box, value), {}))
    if tb in CONTAINERS or tb in ATOMS:
        if isinstance(box, (dict, set, frozenset)) or tb in _KEY_VIEWS:
            check_key(s, value)
            return s.native(operator.contains, box, value)  # type: ignore[no-any-return]
        if max(grade(box), grade(value)) == PLAIN:
            return s.native(operator.contains, box, value)  # type: ignore[no-any-return]
        return _search(s, list(box), value)
    method = attributes.special(tb, "__contains__")
    if type(method) is types.FunctionType and not isinstance(box, type):
        return truth(s, s.call(method, (box, value), {}))
    if isinstance(box, type):
        return s.native(operator.contains, box, value)  # type: ignore[no-any-return]
    if method is not None and isinstance(box, (dict, set, frozenset)):
        check_key(s, value)
        return s.native(method, box, value)  # type: ignore[no-any-return]
    return _search(s, iteration.items(s, box), value)


_KEY_VIEWS: tuple[type, ...] = (type({}.keys()), types.MappingProxyType)


def _search(s: Session, items: list[Any], value: Any) -> bool:
    return any(x is value or truth(s, binary(s, "==", x, value)) for x in items)
