"""Operators whose result, or its shape, depends on values: on fake tensors, numbers that only
running will tell.

A number is read of the same tensor once: `x.item()` twice is one symbol, and so is the extent of
`x.nonzero()`, of `y[x]` and of `y.masked_select(x)`, until x is written.
"""

from __future__ import annotations

from typing import Any

from flambeau._src.core import state
from flambeau._src.core.symint import SymInt
from flambeau._src.ir.conditions import Condition
from flambeau._src.ir.integers import Range
from flambeau._src.ir.shape_env import ShapeEnv
from flambeau._src.ir.sym_node import expression_of, sym_int, unknown
from flambeau._src.ops.op import Op

__all__ = ["check_extents", "extents_by_value", "item"]

_REMEMBERED = {"nonzero": 0, "masked_select": 1}  # the argument that tells the extent


def item(env: ShapeEnv, t: Any) -> Any:
    """The one element of t: a symbolic int, float or bool; None where t is complex."""
    if t.dtype.is_complex:
        return None

    def make() -> Any:
        if t.dtype.is_floating_point:
            return unknown(env, "float")
        if t.dtype.name == "bool":
            return unknown(env, "bool")
        return unknown(env, "int", Range(0, 255) if t.dtype.name == "uint8" else None)

    return _once(t, "item", make)


def extents_by_value(env: ShapeEnv, op: Op, args: tuple[Any, ...]) -> Any:
    """The specs of an operator's results, by its declaration's `by_value`."""

    def extent(least: Any = 0, most: Any = None) -> Any:
        teller = _REMEMBERED.get(op.base.name)
        if teller is None:
            return made(least, most)
        return _once(args[teller], f"extent up to {most}", lambda: made(least, most))

    def made(least: Any, most: Any) -> Any:
        ends = [v if isinstance(v, int) else None for v in (least, most)]
        n = unknown(env, "int", Range(*ends).meet(Range(0, None)))
        for symbolic, op_ in ((least, ">="), (most, "<=")):
            if isinstance(symbolic, SymInt):
                env.suppose(Condition.compare(expression_of(n), op_, expression_of(symbolic)))
        return sym_int(env, expression_of(n))

    by_value: Any = op.decl.by_value
    return by_value(extent, *args)


def check_extents(args: tuple[Any, ...]) -> None:
    """That extents among the arguments which only running tells are not negative."""
    n: Any
    for v in args:
        if isinstance(v, (list, tuple)):
            for n in v:
                if hasattr(n, "__sym_int__") and n.node.hint is None:
                    (n >= 0).node.expect_true()


def _once(t: Any, what: str, make: Any) -> Any:
    if state.get_inference() or t._inference:
        return make()
    known = t.__dict__.setdefault("_by_value", {})
    found = known.get(what)
    if found is None or found[0] != t._version:
        found = known[what] = (t._version, make())
    return found[1]
