"""Conditions on sizes, and real numbers computed from them.

`Condition` is a relation of integer expressions, a comparison of real ones, or `and`, `or`, `not`
of conditions. `Real` is a tree: floats have no normal form. Everything prints as Python.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from flambeau._src.ir.integers import Expr, Relation

__all__ = ["Condition", "Number", "Real", "junction", "real"]

_OPERATORS: dict[str, tuple[str, Callable[..., Any]]] = {
    "add": ("({} + {})", operator.add),
    "sub": ("({} - {})", operator.sub),
    "mul": ("({} * {})", operator.mul),
    "truediv": ("({} / {})", operator.truediv),
    "floordiv": ("({} // {})", operator.floordiv),
    "mod": ("({} % {})", operator.mod),
    "pow": ("({} ** {})", operator.pow),
    "neg": ("(-{})", operator.neg),
    "abs": ("abs({})", abs),
    "float": ("float({})", float),
    "real": ("{}", lambda x: x),  # a symbol whose values are floats
    "max": ("max({}, {})", max),
    "min": ("min({}, {})", min),
    "lshift": ("({} << {})", operator.lshift),
    "rshift": ("({} >> {})", operator.rshift),
    "and": ("({} & {})", operator.and_),
    "or": ("({} | {})", operator.or_),
    "xor": ("({} ^ {})", operator.xor),
    **{
        n: (f"math.{n}({{}})", getattr(math, n))
        for n in (
            "sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan", "log2",
            "ceil", "floor", "trunc", "exp", "log", "exp2", "expm1", "log1p", "log10", "asinh",
            "acosh", "atanh", "erf", "erfc", "gamma", "lgamma", "degrees", "radians", "fabs",
        )
    },
    **{
        n: (f"math.{n}({{}}, {{}})", getattr(math, n))
        for n in ("atan2", "copysign", "fmod", "hypot", "remainder")
    },
    "round": ("round({})", round),
    "round_to": ("round({}, {})", round),
}  # fmt: skip
_COMPARE = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


@dataclass(frozen=True, slots=True)
class Real:
    """An operation on numbers, at least one of them not an int or not of the algebra."""

    op: str
    args: tuple[Number, ...]

    @property
    def symbols(self) -> frozenset[str]:
        """The names in it."""
        return frozenset[str]().union(
            *(a.symbols for a in self.args if isinstance(a, (Real, Expr)))
        )

    @property
    def name(self) -> str | None:
        """The symbol's name if it is just one."""
        e = self.args[0]
        return e.name if self.op == "real" and isinstance(e, Expr) else None

    def value(self, env: Mapping[str, int]) -> Any:
        """The number it is where symbols have the values in env."""
        name = self.name
        if name is not None:
            return env[name]
        return _OPERATORS[self.op][1](*(_value(a, env) for a in self.args))

    def replaced(self, by: Mapping[str, Any]) -> Number:
        """Symbols replaced; the number that it is where all are known."""
        name = self.name
        if name is not None:
            found = by.get(name, self)
            return found if isinstance(found, (int, float, Real)) else Real("real", (found,))
        return real(self.op, *(_replaced(a, by) for a in self.args))

    def __str__(self) -> str:
        shown = (a.factor() if isinstance(a, Expr) else str(a) for a in self.args)
        return _OPERATORS[self.op][0].format(*shown)


Number: TypeAlias = "Real | Expr | float | int"


def real(op: str, *args: Number) -> Number:
    """An operation; its result where all arguments are known."""
    known = [a.constant if isinstance(a, Expr) else a for a in args]
    if all(isinstance(a, (int, float)) for a in known):
        found: Number = _OPERATORS[op][1](*known)
        return found
    return Real(op, args)


def _value(n: Number, env: Mapping[str, int]) -> Any:
    return n.value(env) if isinstance(n, (Real, Expr)) else n


def _replaced(n: Number, by: Mapping[str, Expr]) -> Number:
    return n.replaced(by) if isinstance(n, (Real, Expr)) else n


@dataclass(frozen=True, slots=True)
class Condition:
    """`kind` is relation (of ints: `relation`; of reals: `op`, `sides`), and, or, not (`parts`)."""

    kind: str
    relation: Relation | None = None
    op: str = ""
    sides: tuple[Number, ...] = ()
    parts: tuple[Condition, ...] = ()

    @staticmethod
    def of(relation: Relation) -> Condition:
        """A relation of ints as a condition."""
        return Condition("relation", relation)

    @staticmethod
    def compare(a: Number, op: str, b: Number) -> Condition:
        """a op b, op one of Python's six."""
        if isinstance(a, (Expr, int)) and isinstance(b, (Expr, int)):
            return Condition("relation", Relation.compare(a, op, b))
        return Condition("relation", op=op, sides=(a, b))

    @property
    def symbols(self) -> frozenset[str]:
        """The names in it."""
        if self.relation is not None:
            return self.relation.left.symbols
        found = [s.symbols for s in self.sides if isinstance(s, (Real, Expr))]
        return frozenset[str]().union(*found, *(p.symbols for p in self.parts))

    @property
    def name(self) -> str | None:
        """The symbol's name if the condition is that symbol, a bool (`u0 == 1`)."""
        r = self.relation
        return (r.left + 1).name if r is not None and r.op == "==" else None

    def value(self, env: Mapping[str, int]) -> bool:
        """Whether it holds."""
        if self.relation is not None:
            return self.relation.value(env)
        if self.kind == "relation":
            return bool(_COMPARE[self.op](*(_value(s, env) for s in self.sides)))
        if self.kind == "not":
            return not self.parts[0].value(env)
        test = all if self.kind == "and" else any
        return test(p.value(env) for p in self.parts)

    def negated(self) -> Condition:
        """The opposite. (Of reals it is a `not`: with a NaN both of `<` and `>=` are false.)"""
        if self.relation is not None:
            return Condition.of(self.relation.negated())
        if self.kind == "not":
            return self.parts[0]
        if self.kind in ("and", "or"):
            other = "or" if self.kind == "and" else "and"
            return junction(other, [p.negated() for p in self.parts])
        return Condition("not", parts=(self,))

    def replaced(self, by: Mapping[str, Expr]) -> Condition:
        """Symbols replaced."""
        if self.relation is not None:
            return Condition.of(self.relation.replaced(by))
        return Condition(
            self.kind,
            None,
            self.op,
            tuple(_replaced(s, by) for s in self.sides),
            tuple(p.replaced(by) for p in self.parts),
        )

    def as_call(self) -> str:
        """The text, (un)equality in PyTorch's form `Eq(a, b)`."""
        text = str(self)
        for op, name in ((" == ", "Eq"), (" != ", "Ne")):
            if self.kind == "relation" and op in text:
                return f"{name}({text.replace(op, ', ')})"
        return text

    def __str__(self) -> str:
        if self.relation is not None:
            return str(self.relation)
        if self.kind == "relation":
            return f"{self.sides[0]} {self.op} {self.sides[1]}"
        if self.kind == "not":
            return f"not ({self.parts[0]})"
        return f" {self.kind} ".join(f"({p})" for p in self.parts)


def junction(kind: str, parts: list[Condition]) -> Condition:
    """`and` or `or` of several; one alone is itself."""
    return parts[0] if len(parts) == 1 else Condition(kind, parts=tuple(parts))
