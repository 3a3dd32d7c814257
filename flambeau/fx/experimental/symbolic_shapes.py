"""Symbolic sizes by PyTorch's names: environments, contexts, questions about numbers."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from flambeau._src.core.symint import SymBool, SymFloat, SymInt
from flambeau._src.core.tensor import Tensor
from flambeau._src.ir.integers import Range
from flambeau._src.ir.shape_env import (
    UNBACKED,
    ConstraintViolationError,
    GuardOnDataDependentSymNode,
    ShapeEnv,
)
from flambeau._src.ir.sym_node import SymNode, expression_of
from flambeau._src.util import pytree
from flambeau.utils._sympy.value_ranges import ValueRanges

__all__ = [
    "ConstraintViolationError", "DimDynamic",
    "GuardOnDataDependentSymNode", "RelaxedUnspecConstraint", "ShapeEnv",
    "StatelessSymbolicContext", "StrictMinMaxConstraint", "SymNode", "SymbolicContext",
    "definitely_false", "definitely_true", "expect_true", "free_symbols", "free_unbacked_symbols",
    "guard_bool", "guard_float", "guard_int", "guard_or_false", "guard_or_true", "guard_scalar",
    "guard_size_oblivious", "has_free_symbols", "has_free_unbacked_symbols", "has_hint",
    "hint_int", "is_concrete_bool", "is_concrete_float", "is_concrete_int", "is_symbolic",
    "size_hint", "statically_known_false", "statically_known_true", "sym_and", "sym_eq", "sym_or",
]  # fmt: skip

_NUMBERS = (SymInt, SymFloat, SymBool)
Int: TypeAlias = "int | SymInt"


# ---- contexts ----


class DimDynamic(enum.Enum):
    """What becomes of a size when its tensor gets a fake form."""

    DYNAMIC = 0
    DUCK = 1
    STATIC = 2
    UNBACKED = 3
    INFER_STRIDE = 4
    OBLIVIOUS_SIZE = 5


_POLICY = {
    DimDynamic.DYNAMIC: "own", DimDynamic.DUCK: "duck", DimDynamic.STATIC: "static",
    DimDynamic.UNBACKED: "unbacked",
}  # fmt: skip


@dataclass(frozen=True)
class StrictMinMaxConstraint:
    """That a size varies through all of a range."""

    warn_only: bool
    vr: ValueRanges


@dataclass(frozen=True)
class RelaxedUnspecConstraint:
    """That a size is not fixed."""

    warn_only: bool


class SymbolicContext:
    """How the sizes of one tensor become symbols."""


@dataclass(frozen=True)
class StatelessSymbolicContext(SymbolicContext):
    """A choice, and perhaps a constraint, for each dimension."""

    dynamic_sizes: Sequence[DimDynamic]
    dynamic_strides: Sequence[DimDynamic] = ()
    constraint_sizes: Sequence[Any] = ()
    constraint_strides: Sequence[Any] = ()
    specialize_on: Any = None
    view_base_context: Any = None
    default: str = field(default="static", init=False)

    @property
    def ranges(self) -> dict[int, Range]:
        """The ranges that constraints give."""
        return {
            i: c.vr.as_range()
            for i, c in enumerate(self.constraint_sizes)
            if isinstance(c, StrictMinMaxConstraint)
        }

    def of(self, i: int) -> str:
        """The policy of dimension i, by the engine's name."""
        constraint = self.constraint_sizes[i] if i < len(self.constraint_sizes) else None
        return "dynamic" if constraint is not None else _POLICY[self.dynamic_sizes[i]]


# ---- questions ----


def _symbols(values: Any) -> set[str]:
    found: set[str] = set()
    for v in pytree.tree_leaves(values):
        if isinstance(v, Tensor):
            if v._sym is not None:
                found |= _symbols([*v.shape, *v.stride(), v.storage_offset()])
        elif isinstance(v, _NUMBERS):
            found |= getattr(expression_of(v), "symbols", frozenset())
    return found


def free_symbols(val: Any) -> set[str]:
    """The names of the symbols in numbers, tensors' geometry and containers of them."""
    return _symbols(val)


def free_unbacked_symbols(x: Any) -> set[str]:
    """Those of them that only running will tell."""
    return {name for name in _symbols(x) if name.startswith(UNBACKED)}


def has_free_symbols(val: Any) -> bool:
    """Whether there is one."""
    return bool(_symbols(val))


def has_free_unbacked_symbols(x: Any) -> bool:
    """Whether there is one that only running will tell."""
    return bool(free_unbacked_symbols(x))


def is_symbolic(val: Any) -> bool:
    """Whether a number is not fixed."""
    return isinstance(val, _NUMBERS) and bool(_symbols(val))


def _concrete(a: Any, plain: type, symbolic: type) -> bool:
    if isinstance(a, plain):
        return True
    if not isinstance(a, symbolic):
        raise AssertionError(f"Expected {plain.__name__} or {symbolic.__name__}, got {type(a)}")
    return not _symbols(a)


def is_concrete_int(a: Any) -> bool:
    """Whether an int is fixed."""
    return _concrete(a, int, SymInt)


def is_concrete_float(a: Any) -> bool:
    """Whether a float is fixed."""
    return _concrete(a, float, SymFloat)


def is_concrete_bool(a: Any) -> bool:
    """Whether a bool is fixed."""
    return _concrete(a, bool, SymBool)


def has_hint(a: Any) -> bool:
    """Whether the number has a value in the call that is being captured."""
    return not isinstance(a, _NUMBERS) or bool(a.node.has_hint())


def hint_int(a: Any, fallback: int | None = None) -> int:
    """The value now, `fallback` where only running will tell; no guard."""
    if not isinstance(a, SymInt):
        assert type(a) is int, a
        return a
    found = a.node.hint
    if found is None and fallback is None:
        raise a.node.shape_env.data_dependent(a.node.expr)
    return int(fallback if found is None else found)  # type: ignore[arg-type]


def size_hint(a: Any, *, allow_none: bool = False) -> int | None:
    """The value now; None where only running will tell, if that is allowed."""
    if allow_none and not has_hint(a):
        return None
    return hint_int(a)


# ---- guards ----


def guard_int(a: Any) -> int:
    """The value, which is fixed thereby."""
    return int(a)


def guard_float(a: Any) -> float:
    """The value, which is fixed thereby."""
    return float(a)


def guard_bool(a: Any) -> bool:
    """The truth in this call: a guard."""
    return bool(a)


def guard_scalar(a: Any) -> Any:
    """The value of a number of any kind, which is fixed thereby."""
    if isinstance(a, (SymBool, bool)):
        return bool(a)
    return int(a) if isinstance(a, (SymInt, int)) else float(a)


def _asked(name: str) -> Callable[[Any], bool]:
    def ask(a: Any) -> bool:
        return bool(getattr(a.node, name)("", 0)) if isinstance(a, SymBool) else bool(a)

    return ask


def guard_or_false(a: Any) -> bool:
    """The truth; False where only running would tell."""
    return _asked("guard_or_false")(a)


def guard_or_true(a: Any) -> bool:
    """The truth; True where only running would tell."""
    return _asked("guard_or_true")(a)


def guard_size_oblivious(expr: Any) -> bool:
    """The truth; sizes that only running would tell count as neither 0 nor 1."""
    return _asked("guard_size_oblivious")(expr)


def statically_known_true(x: Any) -> bool:
    """Whether it is true for every call that passes the guards."""
    return _asked("statically_known_true")(x)


def statically_known_false(x: Any) -> bool:
    """Whether it is false for every call that passes the guards."""
    return _asked("statically_known_false")(x) if isinstance(x, SymBool) else not x


definitely_true = statically_known_true
definitely_false = statically_known_false


def expect_true(a: Any, skip: int = 0) -> bool:
    """From here on it is true; asserted when the program runs where nothing else tells."""
    if not isinstance(a, SymBool):
        assert type(a) is bool, a
        return a
    return _asked("expect_true")(a)


def sym_eq(x: Any, y: Any) -> Any:
    """Whether two numbers, or sequences of them, are equal; symbolic where they are."""
    if isinstance(x, (tuple, list)) and isinstance(y, (tuple, list)):
        return sym_and(*map(sym_eq, x, y)) if len(x) == len(y) else False
    return x == y


def sym_and(*conditions: Any) -> Any:
    """Whether all hold."""
    out: Any = True
    for c in conditions:
        out = c & out if isinstance(c, SymBool) else out & c
    return out


def sym_or(*conditions: Any) -> Any:
    """Whether one holds."""
    out: Any = False
    for c in conditions:
        out = c | out if isinstance(c, SymBool) else out | c
    return out
