"""Scalars of NumPy's from outside that change from call to call: numbers that are not fixed.

One is moved about, computed with and given to operators. Whatever else is asked of it (a method,
its text, what native code does with it) has the capture made again with the scalars as constants.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from flambeau._src.capture.outcome import Unsupported
from flambeau._src.capture.sizes import number
from flambeau._src.capture.source import CallSource, Source

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session

__all__ = ["FixedScalars", "Scalar", "compute", "enter", "numbered", "opened"]

_KINDS = frozenset(
    ("float64", "float32", "float16", "int64", "int32", "int16", "int8")
    + ("uint64", "uint32", "uint16", "uint8")
)
_EXACT = frozenset(("float64", "int64"))  # those that compute as Python's numbers do
_COMPARING = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq,
    "!=": operator.ne,
}  # fmt: skip
_ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_DIVIDING = {"/": operator.truediv, "//": operator.floordiv, "%": operator.mod}
_DEPTH = 4


class FixedScalars(Unsupported):
    """More is asked of such a scalar than a number that is not fixed can say."""

    def __init__(self) -> None:
        super().__init__("A scalar of NumPy's is needed as a constant.")


class Scalar:
    """`value` is what it is in this call, `number` what stands for it in all of them."""

    __slots__ = ("number", "value")

    def __init__(self, value: Any, symbolic: Any) -> None:
        self.value, self.number = value, symbolic


def enter(s: Session, value: Any, source: Source) -> Scalar | None:
    """The inside form of an outside scalar; None: it is a constant."""
    if s.fixed_scalars or type(value).__name__ not in _KINDS:
        return None
    found = number(s, value.item(), CallSource(source, "item"))
    return None if found is None else _made(s, value, found)


def _made(s: Session, value: Any, symbolic: Any) -> Scalar:
    made = Scalar(value, symbolic)
    s.scalars.append(made)
    s.heap.opaque[id(made)] = made  # native code that meets it would see another object
    return made


def numbered(value: Any) -> Any:
    """The number of such a scalar; other values as they are."""
    return value.number if type(value) is Scalar else value


def opened(value: Any, depth: int = 0) -> Any:
    """Arguments of an operator with the numbers of scalars in their places."""
    kind = type(value)
    if kind is Scalar:
        return value.number
    if depth > _DEPTH:
        return value
    if kind is list or kind is tuple:
        items = [opened(v, depth + 1) for v in value]
        same = all(a is b for a, b in zip(items, value, strict=True))
        return value if same else kind(items)
    if kind is dict:
        return {k: opened(v, depth + 1) for k, v in value.items()}
    if kind is slice:
        parts = value.start, value.stop, value.step
        return slice(*map(numbered, parts)) if any(type(v) is Scalar for v in parts) else value
    return value


def compute(s: Session, symbol: str, a: Any, b: Any) -> Any:
    """`a symbol b` of numbers, one of which is such a scalar."""
    plain = symbol.removesuffix("=") if symbol not in _COMPARING else symbol
    if not all(type(v) in (Scalar, int, float) for v in (a, b)):
        raise FixedScalars
    if plain in _COMPARING:
        if not _branches(s):  # what comes of it is a bool of NumPy's
            raise FixedScalars
        return s.native(_COMPARING[plain], numbered(a), numbered(b))
    fn = _ARITHMETIC.get(plain)
    if fn is None and type(b) in (int, float) and b != 0:  # NumPy divides by zero
        fn = _DIVIDING.get(plain)
    if fn is None or any(type(v) is Scalar and _name(v.value) not in _EXACT for v in (a, b)):
        raise FixedScalars
    value = fn(*[v.value if type(v) is Scalar else v for v in (a, b)])
    if _name(value) not in _EXACT:
        raise FixedScalars
    return _made(s, value, s.native(fn, numbered(a), numbered(b)))


def _name(value: Any) -> str:
    return type(value).__name__


def _branches(s: Session) -> bool:
    """Whether the next instruction asks for the truth of what this one gives, and drops it."""
    frame = s.frame
    if frame is None:
        return False
    name = frame.prepared.steps[frame.at][1].opname
    return name.startswith("POP_JUMP") or name in ("TO_BOOL", "UNARY_NOT")
