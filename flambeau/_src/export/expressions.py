"""Expressions of sizes as JSON, and back: nested lists, the first item says what it is."""

from __future__ import annotations

from typing import Any

from flambeau._src.ir.conditions import Condition, Real
from flambeau._src.ir.integers import Atom, Expr, Range, Relation
from flambeau._src.ir.shape_env import ShapeEnv, Symbol

__all__ = ["dumped", "environment", "loaded", "symbols"]


def dumped(value: Any) -> Any:
    """A number, an expression or a condition as JSON."""
    if isinstance(value, Expr):
        terms = [
            [c, [[_atom(atom), power] for atom, power in monomial]]
            for monomial, c in value.terms.items()
        ]
        return ["sum", terms]
    if isinstance(value, Real):
        return ["real", value.op, [dumped(a) for a in value.args]]
    if isinstance(value, Condition):
        if value.relation is not None:
            return ["compare", value.relation.op, dumped(value.relation.left)]
        sides, parts = [dumped(s) for s in value.sides], [dumped(p) for p in value.parts]
        return ["condition", value.kind, value.op, sides, parts]
    if isinstance(value, float):
        return ["float", value.hex()]
    return value


def _atom(atom: Atom) -> Any:
    return [atom.kind, atom.name, [dumped(a) for a in atom.args]]


def _loaded_atom(kind: str, name: str, args: list[Any]) -> Atom:
    return Atom(kind, name, tuple(map(loaded, args)))


def loaded(value: Any) -> Any:
    """What `dumped` wrote."""
    if not isinstance(value, list):
        return value
    kind, *rest = value
    if kind == "float":
        return float.fromhex(rest[0])
    if kind == "sum":
        return Expr({tuple((_loaded_atom(*a), power) for a, power in m): c for c, m in rest[0]})
    if kind == "real":
        return Real(rest[0], tuple(map(loaded, rest[1])))
    if kind == "compare":
        return Condition.of(Relation(rest[0], loaded(rest[1])))
    what, op, sides, parts = rest
    return Condition(what, None, op, tuple(map(loaded, sides)), tuple(map(loaded, parts)))


def symbols(env: ShapeEnv) -> list[Any]:
    """The symbols of an environment that are left, with their hints and ranges, as JSON."""
    return [
        [s.name, s.hint, s.range.lo, s.range.hi]
        for s in env.symbols.values()
        if s.name not in env.replacements
    ]


def environment(described: list[Any]) -> ShapeEnv:
    """An environment of the symbols that `symbols` described."""
    env = ShapeEnv(duck_shape=False)
    for name, hint, lo, hi in described:
        env.symbols[name] = Symbol(name, hint, Range(lo, hi))
    return env
