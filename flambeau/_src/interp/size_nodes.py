"""Sizes as nodes of a graph: an expression of symbols becomes the nodes that compute it.

A symbol is known where a tensor has it as a size, or as an input that is an int; the node that
reads it is made when it is first needed, and each expression is computed once.
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable
from typing import Any

from flambeau._src.core.symint import MATH, SymBool, SymFloat, SymInt, sym_float, sym_max, sym_min
from flambeau._src.core.tensor import Tensor
from flambeau._src.ir.conditions import Condition, Real
from flambeau._src.ir.integers import Atom, Expr, symbol
from flambeau._src.ir.node import Node
from flambeau._src.ir.sym_node import SymNode
from flambeau._src.ops.op import packet
from flambeau._src.ops.overload import overload_of

__all__ = ["SIZE", "SizeNodes"]

Create = Callable[..., Node]
_OF_ATOM = {"floordiv": operator.floordiv, "mod": operator.mod, "max": builtins.max}
_OF_REAL: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv,
    "floordiv": operator.floordiv, "mod": operator.mod, "pow": operator.pow, "neg": operator.neg,
    "abs": builtins.abs, "float": sym_float, "max": sym_max, "min": sym_min,
    "lshift": operator.lshift, "rshift": operator.rshift, "and": operator.and_,
    "or": operator.or_, "xor": operator.xor, "round": builtins.round, "round_to": builtins.round,
    **MATH,
}  # fmt: skip
_COMPARE = {
    "==": operator.eq, "!=": operator.ne, ">=": operator.ge, ">": operator.gt, "<=": operator.le,
    "<": operator.lt,
}  # fmt: skip
_NUMBERS: dict[str, Any] = {"int": SymInt, "float": SymFloat, "bool": SymBool}
#: What a graph reads one size with.
SIZE = overload_of(next(op for op in packet("sym_size").ops if op.overload == "int"))


class SizeNodes:
    """The nodes of one graph that stand for sizes."""

    def __init__(self, create: Create) -> None:
        self._create = create
        self._made: dict[Any, Node] = {}
        self._tensors: dict[str, tuple[Node, int]] = {}  # where a symbol can be read

    def know(self, t: Tensor, node: Node, *, unbacked: bool = False) -> None:
        """A tensor's sizes can be read from its node; `unbacked`: those that only it tells."""
        for i, n in enumerate(t.shape):
            if isinstance(n, SymInt) and not (unbacked and n.node.has_hint()):
                name = n.node.value.name
                if name is not None:
                    self._tensors.setdefault(name, (node, i))

    def bind(self, n: SymInt | SymFloat | SymBool, node: Node) -> None:
        """The node is this number."""
        self._made[n.node.value] = node

    def has(self, n: SymInt | SymFloat | SymBool) -> bool:
        """Whether a node is this number."""
        return n.node.value in self._made

    def node(self, n: Any) -> Any:
        """A symbolic number as a node's argument: a node, or the number that it is."""
        value = n.node.expr
        return self._value(value, n.node)

    def _value(self, value: Any, like: SymNode) -> Any:
        if isinstance(value, Expr):
            return self._expr(value, like)
        if isinstance(value, Real):
            return self._cached(value, like, lambda: self._real(value, like))
        if isinstance(value, Condition):
            return self._cached(value, like, lambda: self._condition(value, like))
        return value

    def _cached(self, value: Any, like: SymNode, make: Callable[[], Any]) -> Any:
        found = self._made.get(value)
        if found is None:
            found = make()
            if isinstance(found, Node):
                kind = {Expr: "int", Real: "float", Condition: "bool"}[type(value)]
                found.meta["val"] = _NUMBERS[kind](like.like(kind, value))
                self._made[value] = found
        return found

    def _expr(self, e: Expr, like: SymNode) -> Any:
        if e.constant is not None:
            return e.constant
        return self._cached(e, like, lambda: self._sum(e, like))

    def _sum(self, e: Expr, like: SymNode) -> Any:
        if e.name is not None:
            return self._symbol(e.name)
        total: Any = None
        for monomial, c in sorted(e.terms.items(), key=lambda item: (not item[0], item[1] < 0)):
            part = self._product(monomial, abs(c) if total is not None else c, like)
            if total is None:
                total = part
            else:
                total = self._call(operator.add if c > 0 else operator.sub, total, part)
        return total

    def _product(self, monomial: Any, c: int, like: SymNode) -> Any:
        made: Any = None
        for atom, power in monomial:
            factor = self._atom(atom, like)
            for _ in range(power):
                made = factor if made is None else self._call(operator.mul, made, factor)
        if made is None:
            return c
        return made if c == 1 else self._call(operator.mul, made, c)

    def _atom(self, atom: Atom, like: SymNode) -> Any:
        if atom.kind == "symbol":
            return self._expr(symbol(atom.name), like)

        def make() -> Any:
            made, *rest = (self._expr(a, like) for a in atom.args)
            for other in rest:
                made = self._call(_OF_ATOM.get(atom.kind, builtins.min), made, other)
            return made

        return self._cached(Expr({((atom, 1),): 1}), like, make)

    def _symbol(self, name: str) -> Node:
        try:
            node, i = self._tensors[name]
        except KeyError:
            raise RuntimeError(
                f"the size {name} is not that of any tensor of the graph: nothing tells it when "
                "the program runs"
            ) from None
        return self._create("call_function", SIZE, (node, i), {}, "sym_size_int")

    def _real(self, r: Real, like: SymNode) -> Any:
        args = [self._value(a, like) for a in r.args]
        return self._call(_OF_REAL.get(r.op) or getattr(math, r.op), *args)

    def _condition(self, c: Condition, like: SymNode) -> Any:
        if c.relation is not None:
            left = self._expr(c.relation.left, like)
            return self._call(_COMPARE[c.relation.op], left, 0)
        if c.kind == "relation":
            return self._call(_COMPARE[c.op], *(self._value(s, like) for s in c.sides))
        parts = [self._value(p, like) for p in c.parts]
        if c.kind == "not":
            return self._call(operator.not_, parts[0])
        made = parts[0]
        for other in parts[1:]:
            made = self._call(operator.and_ if c.kind == "and" else operator.or_, made, other)
        return made

    def _call(self, function: Any, *args: Any) -> Any:
        if not any(isinstance(a, Node) for a in args):
            return function(*args)
        return self._create("call_function", function, args, {}, function.__name__.strip("_"))
