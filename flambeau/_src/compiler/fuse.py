"""Fusion: pointwise and row operators over one shape become one kernel over all their operands.

`MapOp` says how a node is computed an element at a time, `RowOp` along one dimension; `groups_of`
collects nodes that can run in one kernel without a cycle; `Fused` is the kernel of a group, named
by its content.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from flambeau._src.compiler.extents import extents, hinted, is_number
from flambeau._src.compiler.passes import op_of
from flambeau._src.core import dtype as dt
from flambeau._src.core.symint import SymFloat
from flambeau._src.core.tensor import Tensor
from flambeau._src.ir.graph import Graph
from flambeau._src.ir.kernel import DTYPES, Kernel, Schedule, compute_type
from flambeau._src.ir.node import Node, map_arg
from flambeau._src.loops.lower import Tracer, Value, common_compute_type, lower
from flambeau._src.loops.schedule import schedule
from flambeau._src.ops.copying import _Identity
from flambeau._src.ops.kinds import SIXTEEN, Pointwise, Reduction, row_loops, wrap_dim, wrap_dims
from flambeau._src.ops.op import Declaration, Op

__all__ = ["Fused", "Group", "MapOp", "RowOp", "groups_of", "map_op", "row_op"]

_NUMERIC = ("Scalar", "float", "int")
MAX_OPERANDS = 16  # outputs and inputs of one kernel (FL_MAXOPS)
MAX_NODES = 48
MAX_NUMBERS = 32  # parameters of one kernel (256 bytes)


class Slots:
    """The parameters of a kernel: numbers that are not fixed, each once."""

    def __init__(self, numbers: Sequence[Any]) -> None:
        found = zip(extents(numbers), numbers, strict=True)
        self.of: dict[Any, int] = {}
        self.numbers: list[Any] = []
        for e, n in found:
            if self.of.setdefault(e, len(self.numbers)) == len(self.numbers):
                self.numbers.append(n)
        self.kinds = tuple("f" if isinstance(n, SymFloat) else "i" for n in self.numbers)

    def value(self, k: Tracer, number: Any, dtype: str) -> Value:
        """A number as a value of a dtype."""
        return k.emit("param", (), dtype, self.of[extents((number,))[0]])


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

    @property
    def unfixed(self) -> list[Any]:
        """Symbolic numbers among the arguments: parameters of the kernel."""
        return [v for kind, v in self.plan if kind in ("number", "param") and is_number(v)]

    def emit(self, k: Tracer, value: Any, exact: bool, slots: Slots) -> tuple[Value, ...]:
        """The node's results; `value(node)` gives `(Value, dtype name)` of an input."""
        outer = k.compute
        operands = [
            n.meta["val"].dtype.name if kept else self.common.name
            for (kind, n), kept in zip(self.plan, self.keep, strict=True)
            if kind == "node"
        ]
        numbers = [
            "float32" if self.common in SIXTEEN else self.common.name
            for kind, _ in self.plan
            if kind == "number"
        ]
        k.compute = compute_type(
            common_compute_type([*operands, *numbers], [d.name for d in self.outs])
        )
        args = [
            self._argument(k, kind, v, kept, value, exact, slots)
            for (kind, v), kept in zip(self.plan, self.keep, strict=True)
        ]
        result = self.op.decl.expr(k, *args)  # type: ignore[misc]
        results = result if isinstance(result, (tuple, list)) else (result,)
        made = []
        for r, d in zip(results, self.outs, strict=True):
            v = k.value(r, None if isinstance(r, Value) else compute_type(d.name))
            made.append(
                k.cast(v, d.name if exact or d.name.startswith("float8") else compute_type(d.name))
            )
        k.compute = outer
        return tuple(made)

    def _argument(
        self, k: Tracer, kind: str, v: Any, kept: bool, value: Any, exact: bool, slots: Slots
    ) -> Any:
        if kind == "node":
            loaded, name = value(v)
            if kept or name == self.common.name:
                return loaded
            to = self.common.name
            return k.cast(loaded, to if DTYPES[to].compute != to else compute_type(to))
        if kind == "number":
            to = "float32" if self.common in SIXTEEN else compute_type(self.common.name)
            return slots.value(k, v, to) if is_number(v) else k.constant(_fitting(v, to), to)
        if kind == "param":
            floating = DTYPES[k.compute].kind == "f"
            if dt.category(self.common) >= 2:
                to = k.compute if floating else "float64"
                return slots.value(k, v, to) if is_number(v) else k.constant(float(v), to)
            to = "int64" if floating else k.compute
            return slots.value(k, v, to) if is_number(v) else k.constant(int(v), to)
        return v


@dataclass
class RowOp:
    """How a node is computed along one dimension: `expr(k, *operands, *numbers, *baked)`."""

    node: Node
    op: Op
    expr: Any
    operands: list[Node]
    dim: int
    numbers: list[Any]
    baked: list[Any]
    work: dt.dtype | None  # what the operands are brought to (None: each stays what it is)
    outs: tuple[dt.dtype, ...]

    @property
    def inputs(self) -> list[Node]:
        return self.operands

    @property
    def unfixed(self) -> list[Any]:
        """Symbolic numbers among the arguments: parameters of the kernel."""
        return [v for v in self.numbers if is_number(v)]

    def emit(self, k: Tracer, value: Any, exact: bool, slots: Slots) -> tuple[Value, ...]:
        """The node's results: values of the row, or of its elements."""
        outer = k.compute
        names = [
            self.work.name if self.work is not None else n.meta["val"].dtype.name
            for n in self.operands
        ]
        k.compute = compute_type(common_compute_type(names, [d.name for d in self.outs]))
        args: list[Any] = []
        for n, to in zip(self.operands, names, strict=True):
            v, name = value(n)
            args.append(v if name == to else k.cast(v, compute_type(to)))
        floating = DTYPES[k.compute].kind == "f"
        args += [
            slots.value(k, v, k.compute)
            if is_number(v)
            else k.constant(float(v) if floating else int(v), k.compute)
            for v in self.numbers
        ]
        result = self.expr(k, *args, *self.baked)
        results = result if isinstance(result, (tuple, list)) else (result,)
        made = [
            k.cast(
                k.value(r, None if isinstance(r, Value) else compute_type(d.name)),
                compute_type(d.name),
            )
            for r, d in zip(results, self.outs, strict=True)
        ]
        k.compute = outer
        return tuple(made)


@dataclass
class Take:
    """One of several results of a node in the same group."""

    node: Node
    source: Node
    index: int

    @property
    def inputs(self) -> list[Node]:
        return []

    @property
    def unfixed(self) -> list[Any]:
        return []


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
    if op is None or not isinstance(val, Tensor) or val.device.type != "cpu":
        return None
    if op.variant != "functional" or op.schema.is_mutable or val.dtype.is_complex:
        return None
    if 0 in extents(val.shape):
        return None
    decl = op.decl
    args = complete_args(node)
    if decl.kind == "pointwise" and decl.expr is not None:
        return _pointwise(node, op, args, val)
    if op.name in ("_to_copy", "clone") and isinstance(args[0], Node):
        return _conversion(node, op, args[0], val)
    if op.name == "copy" and isinstance(args[1], Node):
        return _conversion(node, op, args[1], val)
    return None


def _pointwise(node: Node, op: Op, args: tuple[Any, ...], val: Tensor) -> MapOp | None:
    decl = op.decl
    common = decl.common_dtype(op, with_values(args))  # type: ignore[attr-defined]
    if common.is_complex or decl.n_outputs != 1:  # type: ignore[attr-defined]
        return None
    plan: list[tuple[str, Any]] = []
    keep = []
    if any(map(is_number, args)) and not _any_number(decl, common):
        return None
    settled = decl.settle(op, with_values(args))  # type: ignore[attr-defined]
    args = tuple(
        v if isinstance(v, (Node, list)) else s for v, s in zip(args, settled, strict=True)
    )
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


def _any_number(decl: Any, common: dt.dtype) -> bool:
    """Whether the kernel is the same for all numbers, so that one may come when it runs."""
    bakes: Any = Declaration.bakes
    settle: Any = Pointwise.settle
    own = decl.bakes.__func__ is bakes.__func__ and decl.settle.__func__ is settle.__func__
    return own and dt.category(common) >= 2


def _conversion(node: Node, op: Op, given: Node, val: Tensor) -> MapOp | None:
    """A copy in another dtype or layout."""
    source = given.meta["val"]
    if source.dtype.is_complex or source.device.type != "cpu":
        return None
    return MapOp(node, _Identity.op, [("node", given)], [True], source.dtype, (val.dtype,))


def row_op(node: Node) -> RowOp | None:
    """How the node is computed along one dimension, or None when it is not."""
    op = op_of(node)
    if op is None or op.variant != "functional" or op.schema.is_mutable:
        return None
    decl = op.decl
    vals = node.meta.get("val")
    vals = vals if isinstance(vals, (tuple, list)) else (vals,)
    if not all(
        isinstance(v, Tensor) and v.device.type == "cpu" and not v.dtype.is_complex for v in vals
    ):
        return None
    args = complete_args(node)
    outs = tuple(v.dtype for v in vals)
    if decl.kind == "reduction" and issubclass(decl, Reduction) and decl.expr is not None:
        if decl.compute.__func__ is not Reduction.compute.__func__:  # type: ignore[attr-defined]
            return None
        named = decl.named(op, args)
        x = named["self"]
        if not isinstance(x, Node) or x.meta["val"].dtype.is_complex:
            return None
        shape = x.meta["val"].shape
        dims = wrap_dims(named.get("dim"), len(shape), empty_is_all=decl.empty_is_all)
        if len(dims) != 1:
            return None
        work = decl.input_dtype(x.meta["val"], named.get("dtype"))
        numbers, baked = decl.params(named), decl.baked(named)
        if any(map(is_number, baked)) or not _are_slots(numbers, [x]):
            return None
        return RowOp(node, op, decl.expr, [x], dims[0], numbers, baked, work, outs)
    if decl.rows is None:
        return None
    form = decl.rows(*args)
    if form is None:
        return None
    expr, operands, dim, numbers = form
    if not all(isinstance(n, Node) and not n.meta["val"].dtype.is_complex for n in operands):
        return None
    if not _are_slots(numbers, operands):
        return None
    ndim = operands[0].meta["val"].dim()
    return (
        RowOp(node, op, expr, operands, wrap_dim(dim, ndim), numbers, [], None, outs)
        if ndim
        else None
    )


def _are_slots(numbers: Sequence[Any], operands: Sequence[Node]) -> bool:
    """Whether the numbers that are not fixed can come when the kernel runs: floats of floats."""
    floating = all(n.meta["val"].dtype.is_floating_point for n in operands)
    return all(type(v) is SymFloat and floating for v in numbers if is_number(v))


# ---- groups ----

_FEW_ROWS = 16  # a row kernel is spread over threads by rows: with fewer, big ones stay apart
_SMALL = 32768


@dataclass
class Group:
    """Nodes that run together, in order. `parts` is empty for one that is called as it is; `dim` is
    the dimension along which a row kernel runs (None: a map)."""

    nodes: list[Node]
    parts: list[Any] = field(default_factory=list)
    shape: tuple[Any, ...] = ()
    dim: int | None = None
    after: set[int] = field(default_factory=set)  # the groups that this one needs, by number

    @property
    def inputs(self) -> list[Node]:
        inside = set(self.nodes)
        seen: dict[Node, None] = {}
        for m in self.parts:
            for n in m.inputs:
                if n not in inside:
                    seen[n] = None
        return list(seen)

    def is_row(self, shape: tuple[Any, ...]) -> bool:
        """Whether a shape is that of this group's rows' results."""
        return self.dim is not None and _reduced(self.shape, self.dim) == shape


def _numbers(g: Group, m: Any) -> int:
    return sum(len(p.unfixed) for p in (*g.parts, m))


def _reduced(shape: tuple[Any, ...], dim: int) -> tuple[Any, ...]:
    return (*shape[:dim], 1, *shape[dim + 1 :])


class _Grouping:
    def __init__(self, graph: Graph, rows: bool) -> None:
        self.graph, self.rows = graph, rows
        self.groups: list[Group] = []
        self.of: dict[Node, int] = {}
        self.by_shape: dict[tuple[Any, ...], list[int]] = {}
        self.writers: dict[Node, int] = {}  # the group that wrote a value last
        self.drawn: set[int] = set()  # the group that used a stream of random numbers last
        self.needed: set[int] = set()  # groups that another one needs

    def run(self) -> list[Group]:
        for node in self.graph.nodes:
            if node.op in ("placeholder", "output", "get_attr"):
                continue
            needs = {self.of[n] for n in node.all_input_nodes if n in self.of}
            needs |= {self.writers[n] for n in node.all_input_nodes if n in self.writers}
            op = op_of(node)
            if op is not None and op.decl.random:
                needs |= self.drawn
                self.drawn = {len(self.groups)}  # the group that is made of it below
            if op is not None and op.schema.is_mutable:
                self._write(node, needs)
                continue
            if self._take(node):
                continue
            m = map_op(node)
            if m is not None:
                self._add(m, extents(node.meta["val"].shape), None, needs)
                continue
            r = row_op(node) if self.rows else None
            if r is not None and self._fits(r):
                self._add(r, extents(r.operands[0].meta["val"].shape), r.dim, needs)
                continue
            self._new(Group([node], after=needs), node)
        self._merge()
        return self._ordered()

    def _merge(self) -> None:
        """Elementwise groups of one shape of which one reads what the other makes become one. A
        node joins a group when it is met; here meet those that had both begun by then. What else
        reads from the first comes after the second, so that one order serves throughout."""
        place = {id(g): i for i, g in enumerate(self._ordered())}
        position = [place[id(g)] for g in self.groups]
        order = {node: i for i, node in enumerate(self.graph.nodes)}
        readers: list[set[int]] = [set() for _ in self.groups]
        for at, g in enumerate(self.groups):
            for before in g.after:
                readers[before].add(at)
        for at, g in enumerate(self.groups):
            for before in sorted(g.after):
                if before not in g.after or not self._one(self.groups[before], g, before):
                    continue
                early = any(position[r] < position[at] for r in readers[before])
                if early or self._between(before, at, position):
                    continue
                first = self.groups[before]
                nodes = sorted(zip(first.nodes + g.nodes, first.parts + g.parts, strict=True),
                               key=lambda pair: order[pair[0]])  # fmt: skip
                g.nodes, g.parts = [n for n, _ in nodes], [m for _, m in nodes]
                self.of.update(dict.fromkeys(first.nodes, at))
                g.after = (g.after | first.after) - {before}
                for n in first.after:
                    readers[n].add(at)
                for reader in readers[before] - {at}:
                    self.groups[reader].after.discard(before)
                    self.groups[reader].after.add(at)
                    readers[at].add(reader)
                first.nodes, first.parts, first.after = [], [], set()
                readers[before] = set()

    def _one(self, a: Group, b: Group, at: int) -> bool:
        """Whether group `a`, number `at`, and `b`, which reads from it, fit into one kernel."""
        if not a.parts or not b.parts or a.shape != b.shape or (a.dim, b.dim) != (None, None):
            return False
        if len(a.nodes) + len(b.nodes) > MAX_NODES:
            return False
        if not any(self.of.get(n) == at for m in b.parts for n in m.inputs):
            return False
        if sum(len(m.unfixed) for m in (*a.parts, *b.parts)) > MAX_NUMBERS:
            return False
        inside = {*a.nodes, *b.nodes}
        inputs = {n for m in (*a.parts, *b.parts) for n in m.inputs} - inside
        outputs = sum(any(u not in inside for u in n.users) for n in inside)
        return len(inputs) + max(outputs, 1) <= MAX_OPERANDS

    def _between(self, first: int, last: int, position: list[int]) -> bool:
        """Whether a third group needs `first` and is needed by `last`."""
        seen: set[int] = set()
        stack = [n for n in self.groups[last].after if n != first]
        while stack:
            at = stack.pop()
            if at == first:
                return True
            if at not in seen and position[at] > position[first]:
                seen.add(at)
                stack.extend(self.groups[at].after)
        return False

    def _write(self, node: Node, needs: set[int]) -> None:
        """A write: after all that read what it may write so far, before all that read it later."""
        for n in node.all_input_nodes:
            needs |= {self.of[u] for u in n.users if u in self.of}
        at = self._new(Group([node], after=needs), node)
        self.writers.update(dict.fromkeys(node.all_input_nodes, at))

    def _take(self, node: Node) -> bool:
        """One of several results of a row operator goes with it."""
        if node.target is not operator.getitem or node.args[0] not in self.of:
            return False
        at = self.of[node.args[0]]
        g = self.groups[at]
        if not any(isinstance(p, RowOp) and p.node is node.args[0] for p in g.parts):
            return False
        g.nodes.append(node)
        g.parts.append(Take(node, node.args[0], node.args[1]))
        self.of[node] = at
        return True

    def _fits(self, r: RowOp) -> bool:
        shape = extents(r.operands[0].meta["val"].shape)
        if 0 in shape or not shape:
            return False
        if len(r.outs) > 1 and any(u.target is not operator.getitem for u in r.node.users):
            return False
        for n in r.operands:
            other = extents(n.meta["val"].shape)
            if len(other) > len(shape) or any(
                a not in (1, b) for a, b in zip(other[::-1], shape[::-1], strict=False)
            ):
                return False
        rows = 1
        sizes = hinted(r.operands[0].meta["val"].shape)
        for i, extent in enumerate(sizes):
            rows *= extent if i != r.dim else 1
        return rows >= _FEW_ROWS or rows * sizes[r.dim] <= _SMALL

    def _new(self, group: Group, node: Node) -> int:
        self.groups.append(group)
        self.needed |= group.after
        self.of[node] = len(self.groups) - 1
        return self.of[node]

    def _add(self, m: Any, shape: tuple[Any, ...], dim: int | None, needs: set[int]) -> None:
        node = m.node
        at = self._place(m, shape, dim, needs)
        if at is None:
            at = self._new(Group([node], [m], shape, dim, needs), node)
            self.by_shape.setdefault(shape, []).append(at)
            return
        g = self.groups[at]
        g.nodes.append(node)
        g.parts.append(m)
        g.after |= needs - {at}
        self.needed |= g.after
        if g.dim is None:
            g.dim = dim
        self.of[node] = at

    def _place(
        self, m: Any, shape: tuple[Any, ...], dim: int | None, needs: set[int]
    ) -> int | None:
        """A group that the node can join: one that it reads from, else a recent one of its shape
        that shares an input with it."""
        near = [at for at in sorted(needs) if self._joins(self.groups[at], m, shape, dim)]
        shared = set(m.inputs)
        for at in self.by_shape.get(shape, ())[-4:]:
            if (
                at not in needs
                and self._joins(self.groups[at], m, shape, dim)
                and shared & set(self.groups[at].inputs)
            ):
                near.insert(0, at)
        for at in reversed(near):
            g = self.groups[at]
            if (
                len(g.nodes) >= MAX_NODES
                or _numbers(g, m) > MAX_NUMBERS
                or self._reaches(needs - {at}, at)
            ):
                continue
            if self._operands(g, m) > MAX_OPERANDS:
                continue
            return at
        return None

    def _joins(self, g: Group, m: Any, shape: tuple[Any, ...], dim: int | None) -> bool:
        if not g.parts:
            return False
        if g.shape == shape:
            return dim is None or g.dim is None or g.dim == dim
        # A pointwise operator on the results of rows: all its operands are such.
        return (
            dim is None
            and g.is_row(shape)
            and all(
                (n in self.of and self.of[n] == self.groups.index(g)) or not n.meta["val"].dim()
                for n in m.inputs
            )
        )

    def _operands(self, g: Group, m: Any) -> int:
        inside = {*g.nodes, m.node}
        inputs = {n for x in (*g.parts, m) for n in x.inputs if n not in inside}
        outputs = 0
        for n in inside:
            if isinstance(n.meta.get("val"), Tensor):
                outputs += any(u not in inside for u in n.users)
            else:
                outputs += sum(any(v not in inside for v in u.users) for u in n.users)
        return len(inputs) + max(outputs, 1)

    def _reaches(self, starts: set[int], goal: int) -> bool:
        """Whether one of the groups needs `goal`, directly or not."""
        if goal not in self.needed and goal not in starts:
            return False
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
                    stack.extend(
                        (n, False)
                        for n in sorted(self.groups[g].after, reverse=True)
                        if n not in done
                    )
        return [self.groups[g] for g in done if self.groups[g].nodes]


def groups_of(graph: Graph, *, rows: bool = True) -> list[Group]:
    """The nodes of a graph in the order in which they run, those of one kernel together."""
    groups = _Grouping(graph, rows).run()
    for g in groups:
        taking = all(isinstance(p, (RowOp, Take)) for p in g.parts)
        if taking and sum(isinstance(p, RowOp) for p in g.parts) == 1:
            # Alone, a row operator runs as in eager.
            g.parts, g.dim = [], None
    return _apart(groups)


def _apart(groups: list[Group]) -> list[Group]:
    """Groups that are called as they are have one node each."""
    out = []
    for g in groups:
        if g.parts or len(g.nodes) == 1:
            out.append(g)
        else:
            out += [Group([n]) for n in g.nodes]
    return out


def unrounded(groups: list[Group]) -> frozenset[Node]:
    """The rows' results of 16 bits that only kernels read: between them they are kept in float32,
    as inside of one. They are few; a mean of sums that cancel is no nearer to the truth otherwise
    than where every operator rounds."""
    fused = {n for g in groups if g.parts for n in g.nodes}
    return frozenset(
        n
        for g in groups
        if g.parts
        for n in g.nodes
        if isinstance(n.meta["val"], Tensor)
        and n.meta["val"].dtype in SIXTEEN
        and g.dim is not None
        and extents(n.meta["val"].shape)
        in (_reduced(g.shape, g.dim), (*g.shape[: g.dim], *g.shape[g.dim + 1 :]))
        and n.users.keys() <= fused
    )


def kept_in(node: Node, wide: frozenset[Node]) -> dt.dtype:
    """The dtype of a result's bytes between kernels."""
    return dt.float32 if node in wide else node.meta["val"].dtype


# ---- kernels ----

_LOWERED: dict[Any, tuple[Kernel, Schedule, str]] = {}  # elementwise kernels, by `Fused._key`


class Fused:
    """The kernel of a group: which tensors it writes and reads, and its IR."""

    def __init__(
        self, group: Group, exact: bool = False, wide: frozenset[Node] = frozenset()
    ) -> None:
        self.parts, self.exact = group.parts, exact
        self.shape, self.dim = group.shape, group.dim
        inside = set(group.nodes)
        self.inputs = group.inputs
        self.outputs = [
            n
            for n in group.nodes
            if isinstance(n.meta["val"], Tensor) and any(u not in inside for u in n.users)
        ]
        self.in_dtypes = tuple(kept_in(n, wide).name for n in self.inputs)
        self.out_dtypes = tuple(kept_in(n, wide).name for n in self.outputs)
        self.kind = "map" if self.dim is None else "row"
        self.slots = Slots([v for m in self.parts for v in m.unfixed])
        key = self._key()
        found = None if key is None else _LOWERED.get(key)
        if found is None:
            found = self._lowered()
            if key is not None:
                _LOWERED[key] = found
        self.kernel: Kernel = found[0]
        self.schedule: Schedule = found[1]
        self.symbol: str = found[2]

    def _key(self) -> Any:
        """What decides an elementwise kernel: a model has the same one for each of its layers."""
        if self.dim is not None or self.slots.numbers:
            return None
        number: dict[Node, int] = {n: i for i, n in enumerate(self.inputs)}
        parts = []
        for m in self.parts:
            plan = tuple(
                (kind, number[v]) if kind == "node" else (kind, type(v), repr(v))
                for kind, v in m.plan
            )
            parts.append((m.op, plan, tuple(m.keep), m.common.name, tuple(d.name for d in m.outs)))
            number[m.node] = len(number)
        outs = tuple(number[n] for n in self.outputs)
        return (tuple(parts), self.in_dtypes, self.out_dtypes, outs, self.exact)

    def _lowered(self) -> tuple[Kernel, Schedule, str]:
        kinds = self.slots.kinds
        kernel = lower(self.expr, self.kind, self.in_dtypes, self.out_dtypes, len(kinds), kinds)
        planned = schedule(kernel, self._loops())
        printed = f"{kernel}{planned.loops}"
        digest = hashlib.sha256(printed.encode()).hexdigest()[:16]
        names = "_".join(
            dict.fromkeys(m.op.name.strip("_") for m in self.parts if not isinstance(m, Take))
        )
        return kernel, planned, f"fused_{names[:40]}_{digest}"

    def _loops(self) -> str:
        """The kind of kernel, by what is known of sizes and strides."""
        if self.dim is None:
            return self.kind
        outs, ins = (
            [self.in_rank(n, self.dim) for n in side] for side in (self.outputs, self.inputs)
        )
        known = all(type(v) is int for p in (*outs, *ins) for part in p for v in part)
        found = row_loops(outs, ins, self.dim) if known and ins else self.kind
        # Along rows every layout is read right, whatever the operands turn out to be.
        return found if found == "row_along" else self.kind

    def in_rank(self, node: Node, dim: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Sizes and strides of an operand of a row kernel with the rank of its rows' shape."""
        val, shape = node.meta["val"], self.shape
        size, stride = list(extents(val.shape)), list(extents(val.stride()))
        if len(size) == len(shape):
            return tuple(size), tuple(stride)
        if node in self.outputs and size == [*shape[:dim], *shape[dim + 1 :]]:
            size.insert(dim, 1)
            stride.insert(dim, 0)
        else:
            missing = len(shape) - len(size)
            size, stride = [1] * missing + size, [0] * missing + stride
        return tuple(size), tuple(stride)

    def expr(self, k: Tracer, *loads: Value) -> tuple[Value, ...]:
        """All nodes on one element."""
        known: dict[Node, Any] = {
            n: (v, n.meta["val"].dtype.name) for n, v in zip(self.inputs, loads, strict=False)
        }
        several: dict[Node, tuple[Value, ...]] = {}
        for m in self.parts:
            if isinstance(m, Take):
                known[m.node] = (several[m.source][m.index], m.node.meta["val"].dtype.name)
                continue
            made = m.emit(k, known.__getitem__, self.exact, self.slots)
            several[m.node] = made
            known[m.node] = (made[0], m.outs[0].name)
        return tuple(known[n][0] for n in self.outputs)
