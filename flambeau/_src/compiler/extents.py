"""Sizes as the compiler holds them: ints, or expressions that compare and hash as values.

Comparing symbolic ints is a guard; a stage after capture may not add one, so it compares these.
Expressions print as Python over the symbols' names, which a program binds from its inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from flambeau._src.core import symbolic
from flambeau._src.core.symint import SymBool, SymFloat, SymInt
from flambeau._src.core.tensor import Tensor
from flambeau._src.ir.sym_node import expression_of

__all__ = ["extents", "geometry", "hinted", "is_input", "is_number", "row_major", "symbols_of"]


def extents(values: Iterable[Any]) -> tuple[Any, ...]:
    """Sizes, strides or offsets: symbolic ints as their expressions, others as they are."""
    return tuple(expression_of(v) for v in values)


def geometry(t: Tensor) -> tuple[tuple[Any, ...], tuple[Any, ...], Any]:
    """(sizes, strides, offset) of a tensor, to compare and to print."""
    return extents(t.shape), extents(t.stride()), expression_of(t.storage_offset())


def hinted(values: Sequence[Any]) -> tuple[int, ...]:
    """The numbers that they are in the call being compiled, for choices that are always right."""
    found = symbolic.hints(values)
    return tuple(values) if found is None else tuple(int(v) for v in found)


def row_major(shape: Sequence[Any]) -> tuple[Any, ...]:
    """Contiguous strides; extents of 0 count as 1."""
    out: list[Any] = []
    c: Any = 1
    for n in reversed(shape):
        out.append(c)
        c = c * (1 if n == 0 else n)
    return tuple(reversed(out))


def is_number(v: Any) -> bool:
    """Whether v is a symbolic number."""
    return isinstance(v, (SymInt, SymFloat, SymBool))


def is_input(v: Any) -> bool:
    """Whether v is given to a graph when it runs: a tensor, or a number that is no constant."""
    return isinstance(v, (Tensor, SymInt, SymFloat))


def symbols_of(v: Any) -> frozenset[str]:
    """The names in an expression; none in a number."""
    found: frozenset[str] = getattr(v, "symbols", frozenset())
    return found
