"""Symbolic numbers: an int, float or bool that stands for an expression of a shape environment.

A number holds a node (`node.add(other) -> node` and so on), and gives its operations to it; which
nodes there are is the shape environment's business. `sym_max` and its kind work on both sorts.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

_BINARY = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "truediv", "floordiv": "floordiv",
    "mod": "mod", "pow": "pow", "and": "and_", "or": "or_", "xor": "bitwise_xor",
    "lshift": "lshift", "rshift": "rshift",
}  # fmt: skip
_COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
_UNARY = {
    "neg": "neg",
    "abs": "abs",
    "ceil": "ceil",
    "floor": "floor",
    "trunc": "trunc",
    "pos": "pos",
}


class NotSymbolic(Exception):
    """The operation has no symbolic result for these numbers: it is that of the numbers."""


def _wrapped(node: Any) -> Any:
    """The number of a node, of the kind that the node says it is."""
    if node.is_int():
        return SymInt(node)
    return SymBool(node) if node.is_bool() else SymFloat(node)


def _node_of(value: Any, like: Any) -> Any:
    """value as a node beside `like`; NotImplemented where it is no number."""
    if type(value) is int:
        return like.wrap_int(value)
    if isinstance(value, SymNumber):
        return value.node
    if isinstance(value, bool):
        return like.wrap_bool(value)
    if isinstance(value, int):
        return like.wrap_int(value)
    if isinstance(value, float):
        return like.wrap_float(value)
    return NotImplemented


def _binary(method: str, reflected: bool) -> Callable[[Any, Any], Any]:
    def operation(self: Any, other: Any) -> Any:
        node = _node_of(other, self.node)
        if node is NotImplemented:
            return NotImplemented
        a, b = (node, self.node) if reflected else (self.node, node)
        try:
            return _wrapped(getattr(a, method)(b))
        except NotSymbolic:
            x, y = (other, self) if reflected else (self, other)
            return getattr(operator, method)(plain(x), plain(y))

    return operation


def plain(value: Any) -> Any:
    """The number that a symbolic one is, which fixes it."""
    kind = _PLAIN.get(type(value))
    return value if kind is None else kind(value)


def _unary(method: str) -> Callable[[Any], Any]:
    return lambda self: _wrapped(getattr(self.node, method)())


class SymNumber:
    """What the three kinds have in common: a node, and the operations it knows."""

    def __init__(self, node: Any) -> None:
        self.node = node

    def __repr__(self) -> str:
        return str(self.node)

    def __divmod__(self, other: Any) -> Any:
        return (self // other, self % other)

    def __rdivmod__(self, other: Any) -> Any:
        return (other // self, other % self)

    def __bool__(self) -> bool:
        if isinstance(self, SymBool):
            return bool(self.node.guard_bool("", 0))
        return bool(operator.ne(self, 0))

    def __hash__(self) -> int:
        """Of the number, which is fixed thereby: equal keys of a dict hash alike."""
        if not isinstance(self, SymBool) and self.node.has_hint():
            return hash(plain(self))
        return hash(type(self)) ^ hash(self.node)


for _name, _method in _BINARY.items():
    setattr(SymNumber, f"__{_name}__", _binary(_method, False))
    setattr(SymNumber, f"__r{_name}__", _binary(_method, True))
for _name in _COMPARE:
    setattr(SymNumber, f"__{_name}__", _binary(_name, False))
for _name, _method in _UNARY.items():
    setattr(SymNumber, f"__{_name}__", _unary(_method))


class SymInt(SymNumber):
    """A symbolic int; `int(s)` is its value, and a guard on it."""

    def __sym_int__(self) -> SymInt:
        return self

    def __sym_float__(self) -> Any:
        return SymFloat(self.node.sym_float())

    def __int__(self) -> int:
        return int(self.node.guard_int("", 0))

    __index__ = __int__

    def __float__(self) -> float:
        return float(int(self))


class SymFloat(SymNumber):
    """A symbolic float."""

    def __sym_float__(self) -> SymFloat:
        return self

    def __float__(self) -> float:
        return float(self.node.guard_float("", 0))

    def __int__(self) -> int:
        return int(float(self))

    def __round__(self, digits: int | None = None) -> Any:
        return _wrapped(self.node.round(digits))

    def is_integer(self) -> Any:
        """Whether it has no fraction."""
        return SymBool(self.node.is_integer())


class SymBool(SymNumber):
    """A symbolic bool."""

    def __sym_bool__(self) -> SymBool:
        return self

    def __sym_not__(self) -> SymBool:
        return SymBool(self.node.sym_not())

    def __int__(self) -> int:
        return int(bool(self))


_PLAIN: dict[type, Any] = {SymInt: int, SymFloat: float, SymBool: bool}


# ---- functions of both sorts ----


def sym_not(a: Any) -> Any:
    """`not a`, symbolic where a is."""
    return a.__sym_not__() if hasattr(a, "__sym_not__") else not a


def sym_int(a: Any) -> Any:
    """`int(a)`: towards zero."""
    if isinstance(a, SymInt):
        return a
    return SymInt(a.node.trunc()) if isinstance(a, SymFloat) else int(a)


def sym_float(a: Any) -> Any:
    """`float(a)`."""
    return a.__sym_float__() if isinstance(a, (SymInt, SymFloat)) else float(a)


def _extreme(name: str, choose: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    def function(a: Any, b: Any) -> Any:
        for x, y in ((a, b), (b, a)):
            if isinstance(x, SymNumber):
                return _wrapped(getattr(x.node, name)(_node_of(y, x.node)))
        result = choose(a, b)
        # Of two kinds the result is a float, whichever number it is.
        return float(result) if isinstance(a, float) or isinstance(b, float) else result

    function.__name__ = name
    function.__doc__ = (
        f"The {'larger' if choose is max else 'smaller'} of two numbers; a float if either is one."
    )
    return function


sym_max, sym_min = _extreme("sym_max", max), _extreme("sym_min", min)


def sym_sum(args: Any) -> Any:
    """The sum of several numbers, in one operation where one is symbolic."""
    return sum(args[1:], start=args[0]) if args else 0


def sym_ite(b: Any, t: Any, f: Any) -> Any:
    """t if b else f."""
    if isinstance(b, SymBool):
        return _wrapped(b.node.sym_ite(_node_of(t, b.node), _node_of(f, b.node)))
    return t if b else f


def of_math(name: str, *args: Any) -> Any:
    """The function of `math` with this name on numbers, one of them symbolic."""
    like = next(a.node for a in args if isinstance(a, SymNumber))
    try:
        first, *others = (_node_of(a, like) for a in args)
        return _wrapped(first.of_math(name, *others))
    except NotSymbolic:
        return getattr(math, name)(*map(plain, args))


def _math(name: str) -> Callable[..., Any]:
    of_numbers = getattr(math, name)

    def function(*args: Any) -> Any:
        if any(isinstance(a, SymNumber) for a in args):
            return of_math(name, *args)
        return of_numbers(*args)

    function.__name__ = f"_sym_{name}"
    function.__doc__ = f"math.{name}, symbolic where an argument is."
    return function


#: What `math` has of one float or of two, as functions of numbers of both sorts.
MATH: dict[str, Callable[..., Any]] = {
    name: _math(name)
    for name in (
        "sqrt cos cosh sin sinh tan tanh asin acos atan log2 exp exp2 expm1 log log1p log10 asinh "
        "acosh atanh erf erfc gamma lgamma degrees radians fabs atan2 copysign fmod hypot remainder"
    ).split()
}
_PUBLIC = "sqrt cos cosh sin sinh tan tanh asin acos atan log2".split()
FUNCTIONS: dict[str, Any] = {
    "SymInt": SymInt, "SymFloat": SymFloat, "SymBool": SymBool, "sym_not": sym_not,
    "sym_int": sym_int, "sym_float": sym_float, "sym_max": sym_max, "sym_min": sym_min,
    "sym_sum": sym_sum, "sym_ite": sym_ite, "sym_sqrt": MATH["sqrt"],
    **{f"_sym_{name}": MATH[name] for name in _PUBLIC},
}  # fmt: skip
