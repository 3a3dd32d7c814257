"""Fusion: pointwise operators of one shape become one kernel over all their operands.

`MapOp` says how one node is computed an element at a time; `groups_of` collects nodes that can run
in one pass without a cycle; `Fused` is the kernel of a group, named by its content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from flambeau._src.compiler.passes import op_of
from flambeau._src.core import dtype as dt
from flambeau._src.core.tensor import Tensor
from flambeau._src.ir.graph import Graph
from flambeau._src.ir.kernel import DTYPES, Kernel, compute_type
from flambeau._src.ir.node import Node, map_arg
from flambeau._src.loops.lower import Tracer, Value, common_compute_type, lower
from flambeau._src.ops.kinds import SIXTEEN
from flambeau._src.ops.op import Op

__all__ = ["Fused", "Group", "MapOp", "groups_of", "map_op"]

_NUMERIC = ("Scalar", "float", "int")
MAX_OPERANDS = 16  # outputs and inputs of one kernel (FL_MAXOPS)
MAX_NODES = 48


@dataclass
class MapOp:
    """How a node is computed an element at a time.

    plan    for each schema argument: ('node', Node), ('number', value) for an operand that is a
            Python number, ('param', value) for a scalar parameter, ('baked', value)
    """

    node: Node
    op: Op
    plan: list[tuple[str, Any]]
    keep: list[bool]
    common: dt.dtype
    outs: tuple[dt.dtype, ...]

    @property
    def inputs(self) -> list[Node]:
        return [v for kind, v in self.plan if kind == "node"]

    def emit(self, k: Tracer, value: Any, exact: bool) -> tuple[Value, ...]:
        """The node's results; `value(node)` gives `(Value, dtype name)` of an input."""
        outer = k.compute
        operands = [n.meta["val"].dtype.name if kept else self.common.name
                    for (kind, n), kept in zip(self.plan, self.keep, strict=True) if kind == "node"]  # fmt: skip
        numbers = [
            "float32" if self.common in SIXTEEN else self.common.name for kind, _ in self.plan if kind == "number"
        ]
        k.compute = compute_type(common_compute_type([*operands, *numbers], [d.name for d in self.outs]))
        args = [self._argument(k, kind, v, kept, value, exact) for (kind, v), kept in zip(self.plan, self.keep, strict=True)]
        result = self.op.decl.expr(k, *args)  # type: ignore[misc]
        results = result if isinstance(result, (tuple, list)) else (result,)
        made = []
        for r, d in zip(results, self.outs, strict=True):
            v = k.value(r, None if isinstance(r, Value) else compute_type(d.name))
            made.append(k.cast(v, d.name if exact or d.name.startswith("float8") else compute_type(d.name)))
        k.compute = outer
        return tuple(made)

    def _argument(self, k: Tracer, kind: str, v: Any, kept: bool, value: Any, exact: bool) -> Any:
        if kind == "node":
            loaded, name = value(v)
            if kept or name == self.common.name:
                return loaded
            to = self.common.name
            return k.cast(loaded, to if DTYPES[to].compute != to else compute_type(to))
        if kind == "number":
            to = "float32" if self.common in SIXTEEN else compute_type(self.common.name)
            return k.constant(_fitting(v, to), to)
        if kind == "param":
            floating = DTYPES[k.compute].kind == "f"
            if dt.category(self.common) >= 2:
                return k.constant(float(v), k.compute if floating else "float64")
            return k.constant(int(v), "int64" if floating else k.compute)
        return v


def _fitting(v: Any, name: str) -> Any:
    kind = DTYPES[name].kind
    return bool(v) if kind == "b" else float(v) if kind == "f" else int(v)


def complete_args(node: Node) -> tuple[Any, ...]:
    """A node's arguments in schema order, complete, with nodes in the places of tensors."""
    stands: dict[int, Node] = {}
    alive: list[Any] = []

    def value(n: Node) -> Any:
        v = n.meta["val"]
        if isinstance(v, Tensor):
            stands[id(v)] = n
            alive.append(v)
        return v

    args = map_arg(node.args, value)
    kwargs = map_arg(node.kwargs, value)
    bound = node.target._bound(tuple(args), dict(kwargs))  # type: ignore[union-attr]

    def back(v: Any) -> Any:
        if isinstance(v, Tensor):
            return stands.get(id(v), v)
        if isinstance(v, (list, tuple)) and any(isinstance(x, Tensor) for x in v):
            return [back(x) for x in v]
        return v

    return tuple(back(v) for v in bound)


def with_values(args: Sequence[Any]) -> tuple[Any, ...]:
    """Arguments with the fake tensors of nodes in their places."""

    def one(v: Any) -> Any:
        if isinstance(v, Node):
            return v.meta["val"]
        return [one(x) for x in v] if isinstance(v, list) else v

    return tuple(one(v) for v in args)


def map_op(node: Node) -> MapOp | None:
    """How the node is computed an element at a time, or None when it is not."""
    op = op_of(node)
    val = node.meta.get("val")
    if op is None or not isinstance(val, Tensor) or val.device.type != "cpu" or not val.numel():
        return None
    if op.variant != "functional" or op.schema.is_mutable or val.dtype.is_complex:
        return None
    decl = op.decl
    args = complete_args(node)
    if decl.kind == "pointwise" and decl.expr is not None:
        return _pointwise(node, op, args, val)
    if op.name in ("_to_copy", "clone") and isinstance(args[0], Node):
        return _conversion(node, op, args, val)
    return None


def _pointwise(node: Node, op: Op, args: tuple[Any, ...], val: Tensor) -> MapOp | None:
    decl = op.decl
    common = decl.common_dtype(op, with_values(args))  # type: ignore[attr-defined]
    if common.is_complex or decl.n_outputs != 1:  # type: ignore[attr-defined]
        return None
    plan: list[tuple[str, Any]] = []
    keep = []
    for a, v in zip(op.schema.args, args, strict=True):
        keep.append(a.name in decl.keep)  # type: ignore[attr-defined]
        if isinstance(v, Node):
            if v.meta["val"].dtype.is_complex:
                return None
            plan.append(("node", v))
        elif isinstance(v, Tensor):
            return None
        elif a.type == "Tensor" and not a.is_list and v is not None:
            if isinstance(v, complex):
                return None
            plan.append(("number", v))
        elif a.type in _NUMERIC and not a.is_list and v is not None and not decl.bakes(a.name, v):
            if isinstance(v, complex):
                return None
            plan.append(("param", v))
        else:
            plan.append(("baked", v))
    return MapOp(node, op, plan, keep, common, (val.dtype,))


def _conversion(node: Node, op: Op, args: tuple[Any, ...], val: Tensor) -> MapOp | None:
    """A copy in another dtype or layout."""
    from flambeau._src.ops.copying import _Identity  # the declaration behind every copy

    source = args[0].meta["val"]
    if source.dtype.is_complex or source.device.type != "cpu":
        return None
    return MapOp(node, _Identity.op, [("node", args[0])], [True], source.dtype, (val.dtype,))  # type: ignore[attr-defined]


# ---- groups ----


@dataclass
class Group:
    """Nodes that run together, in order. `maps` is empty for one that is called as it is."""

    nodes: list[Node]
    maps: list[MapOp] = field(default_factory=list)
    shape: tuple[int, ...] = ()
    after: set[int] = field(default_factory=set)  # the groups that this one needs, by number

    @property
    def inputs(self) -> list[Node]:
        inside = set(self.nodes)
        seen: dict[Node, None] = {}
        for m in self.maps:
            for n in m.inputs:
                if n not in inside:
                    seen[n] = None
        return list(seen)


class _Grouping:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.groups: list[Group] = []
        self.of: dict[Node, int] = {}

    def run(self) -> list[Group]:
        open_by_shape: dict[tuple[int, ...], list[int]] = {}
        for node in self.graph.nodes:
            if node.op in ("placeholder", "output", "get_attr"):
                continue
            needs = {self.of[n] for n in node.all_input_nodes if n in self.of}
            m = map_op(node)
            if m is None:
                self._new(Group([node], after=needs), node)
                continue
            shape = tuple(m.node.meta["val"].shape)
            at = self._place(m, needs, open_by_shape.get(shape, ()))
            if at is None:
                at = self._new(Group([node], [m], shape, needs), node)
                open_by_shape.setdefault(shape, []).append(at)
            else:
                g = self.groups[at]
                g.nodes.append(node)
                g.maps.append(m)
                g.after |= needs - {at}
                self.of[node] = at
        return self._ordered()

    def _new(self, group: Group, node: Node) -> int:
        self.groups.append(group)
        self.of[node] = len(self.groups) - 1
        return self.of[node]

    def _place(self, m: MapOp, needs: set[int], candidates: Any) -> int | None:
        """A group of the shape that the node can join: one that it reads from, else a recent one
        that shares an input with it."""
        near = [g for g in candidates if g in needs]
        shared = set(m.inputs)
        near += [g for g in candidates[-4:] if g not in needs and shared & set(self.groups[g].inputs)]
        for at in reversed(near):
            g = self.groups[at]
            if len(g.nodes) >= MAX_NODES or self._reaches(needs - {at}, at):
                continue
            if self._operands(g, m) > MAX_OPERANDS:
                continue
            return at
        return None

    def _operands(self, g: Group, m: MapOp) -> int:
        inside = {*g.nodes, m.node}
        inputs = {n for x in (*g.maps, m) for n in x.inputs if n not in inside}
        outputs = sum(any(u not in inside for u in n.users) for n in inside)
        return len(inputs) + max(outputs, 1)

    def _reaches(self, starts: set[int], goal: int) -> bool:
        """Whether one of the groups needs `goal`, directly or not."""
        seen: set[int] = set()
        stack = list(starts)
        while stack:
            g = stack.pop()
            if g == goal:
                return True
            if g not in seen:
                seen.add(g)
                stack.extend(self.groups[g].after)
        return False

    def _ordered(self) -> list[Group]:
        """The groups, each after what it needs, otherwise as in the graph."""
        done: dict[int, None] = {}
        for start in range(len(self.groups)):
            stack = [(start, False)]
            while stack:
                g, ready = stack.pop()
                if ready:
                    done[g] = None
                elif g not in done:
                    stack.append((g, True))
                    stack.extend((n, False) for n in sorted(self.groups[g].after, reverse=True) if n not in done)
        return [self.groups[g] for g in done]


def groups_of(graph: Graph) -> list[Group]:
    """The nodes of a graph in the order in which they run, pointwise ones together."""
    return _Grouping(graph).run()


# ---- kernels ----


class Fused:
    """The map kernel of a group: which tensors it writes and reads, and its IR."""

    def __init__(self, group: Group, exact: bool = False) -> None:
        self.maps, self.exact = group.maps, exact
        inside = set(group.nodes)
        self.inputs = group.inputs
        self.outputs = [n for n in group.nodes if any(u not in inside for u in n.users)]
        self.in_dtypes = tuple(n.meta["val"].dtype.name for n in self.inputs)
        self.out_dtypes = tuple(n.meta["val"].dtype.name for n in self.outputs)
        self.kernel: Kernel = lower(self.expr, "map", self.in_dtypes, self.out_dtypes)
        text = str(self.kernel)
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        names = "_".join(dict.fromkeys(m.op.name.strip("_") for m in self.maps))
        self.symbol = f"fused_{names[:40]}_{digest}"

    def expr(self, k: Tracer, *loads: Value) -> tuple[Value, ...]:
        """All nodes on one element."""
        known = {n: (v, n.meta["val"].dtype.name) for n, v in zip(self.inputs, loads, strict=True)}
        for m in self.maps:
            (v,) = m.emit(k, known.__getitem__, self.exact)
            known[m.node] = (v, m.outs[0].name)
        return tuple(known[n][0] for n in self.outputs)
