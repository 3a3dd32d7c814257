"""A graph as a flat Python program over kernels: one line a step, values
dropped after their use."""

from __future__ import annotations

import linecache
import math
import operator
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from flambeau._src import _native
from flambeau._src.codegen.cpp import print_kernels
from flambeau._src.compiler.extents import extents, geometry, is_number, row_major, symbols_of
from flambeau._src.compiler.fuse import (
    Fused,
    Group,
    complete_args,
    groups_of,
    kept_in,
    unrounded,
)
from flambeau._src.compiler.numbers import given_by
from flambeau._src.compiler.passes import collapse_views, op_of
from flambeau._src.core import dtype as dt
from flambeau._src.core.slots import slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ir.graph import Graph
from flambeau._src.ir.node import Node
from flambeau._src.ir.shape_env import UNBACKED
from flambeau._src.loops.compile import loader
from flambeau._src.ops.call import make_callable, run
from flambeau._src.ops.op import Declaration, Op, Packet
from flambeau._src.runtime.toolchain import ToolchainMissing
from flambeau._src.util.log import warn_once

__all__ = [
    "Plan", "Program", "assemble", "compile_kernels", "exact", "plan", "served", "write",
]  # fmt: skip

_LITERALS = (int, float, bool, str, type(None))


class Program:
    """A compiled graph. `call(inputs)` takes the placeholders' tensors and returns the outputs as a
    list; `source` is its text, `kernels` what it compiled."""

    def __init__(
        self, source: str, names: dict[str, Any], kernels: list[Fused], number: int
    ) -> None:
        self.source, self.kernels = source, kernels
        file = f"<flambeau program {number}>"
        linecache.cache[file] = (len(source), None, source.splitlines(True), file)
        scope = dict(names)
        exec(compile(source, file, "exec"), scope)
        self.call: Callable[[Sequence[Any]], list[Any]] = scope["call"]

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        return self.call(inputs)

    def __str__(self) -> str:
        return self.source


_count = iter(range(1 << 60))


@dataclass
class Plan:
    """What runs together: the groups of a graph's nodes in their order, the kernels of those that
    are one, and what lies in float32 between kernels."""

    graph: Graph
    groups: list[Group]
    kernels: dict[int, Fused]
    exact: bool
    wide: frozenset[Node]

    def __str__(self) -> str:
        return "\n".join(str(k.kernel) for k in self.kernels.values())


_TOTAL = frozenset(("pointwise", "reduction", "view", "copy", "factory", "like", "question"))


def _may_raise(node: Node) -> bool:
    """Whether values of its arguments may make the step raise."""
    op = op_of(node)
    return op is None or not (op.decl.total or op.decl.kind in _TOTAL)


class _Writer:
    def __init__(
        self, plan: Plan, attributes: dict[str, Any], addresses: dict[str, int] | None,
        onto: Sequence[tuple[int, int]] = (),
    ) -> None:  # fmt: skip
        self.plan, self.graph, self.attributes = plan, plan.graph, attributes
        self.addresses = addresses
        self.lines: list[str] = []
        self.names: dict[str, Any] = {
            "Tensor": Tensor, "alias": _native.alias, "empty": _native.empty, "cpu": _native.cpu,
            "reuse": _native.reuse, "over": _native.over, "run_map": _native.run_map,
            "run_rows": _native.run_rows, "run": run,
            "math": math, "inf": math.inf, "nan": math.nan,
        }  # fmt: skip
        ends: Any = self.graph.output_node().args[0]
        given = [n for n in self.graph.nodes if n.op == "placeholder"]
        self.onto: dict[Node, Node] = {ends[place]: given[i] for i, place in onto}
        self.var: dict[Node, str] = {}
        self.constants: dict[str, str] = {}
        self.symbols: set[str] = set()  # names of sizes that the program reads
        self.given: set[str] = set()  # names of sizes that inputs tell
        self.borrowed: set[Node] = set()  # views that are an input itself
        self.bound: set[str] = set()  # of them, those that a step of its own computes
        self.settled = 0  # from this group on no values make a step raise
        self.last: dict[Node, int] = {}  # the group that uses a value last; results have none

    def run(self) -> Program:
        groups, kernels, addresses = self.plan.groups, self.plan.kernels, self.addresses
        output = self.graph.output_node()
        results = (
            list(output.args[0]) if isinstance(output.args[0], (tuple, list)) else [output.args[0]]
        )
        inputs = [n for n in self.graph.nodes if n.op == "placeholder"]
        self.given = set(given_by(inputs))
        for n in self.graph.nodes:
            if n.op in ("placeholder", "get_attr"):
                self.var[n] = self._name(n.name)
        for n in self.graph.nodes:
            if n.op == "get_attr":
                self.names[self.var[n]] = self.attributes[str(n.target)]
        body: list[str] = []
        if inputs:
            body.append(
                f"{', '.join(self.var[n] for n in inputs)}{',' if len(inputs) == 1 else ''} = "
                "inputs"
            )
        sizes_at = len(body)
        last = self.last = self._last_uses(groups, results)
        raising = [i for i, g in enumerate(groups) if not g.parts and _may_raise(g.nodes[0])]
        self.settled = raising[-1] + 1 if raising else 0
        unused = [self.var[n] for n in inputs if n not in last and n not in results]
        if unused:
            body.append(f"del {', '.join(unused)}")
        for i, g in enumerate(groups):
            self.lines = []
            if g.parts:
                if i < self.settled:
                    self.onto = {n: t for n, t in self.onto.items() if n not in g.nodes}
                self._map(kernels[id(g)], addresses, {n for n, at in last.items() if at == i})
            else:
                self._call(g.nodes[0])
            body += self.lines
            dead = [
                self.var[n]
                for n, at in last.items()
                if at == i and self.var.get(n, "").isidentifier() and n.op != "get_attr"
            ]
            dead = list(dict.fromkeys(dead))
            if dead:
                body.append(f"del {', '.join(dead)}")
        body.append(f"return [{', '.join(self._value(r) for r in results)}]")
        body[sizes_at:sizes_at] = self._sizes(inputs)
        text = "def call(inputs):\n" + "".join(f"    {line}\n" for line in body)
        return Program(text, self.names, list(kernels.values()), next(_count))

    def _sizes(self, inputs: list[Node]) -> list[str]:
        """Where the program takes its symbols from: inputs that have them as a size."""
        lines = []
        wanted = self.symbols - self.bound
        for n in inputs:
            val = n.meta.get("val")
            if is_number(val):
                places = [(self.var[n], val)]
            elif isinstance(val, Tensor) and val._sym is not None:
                places = [(f"{self.var[n]}.shape[{i}]", v) for i, v in enumerate(val.shape)]
            else:
                continue
            for place, e in zip((p for p, _ in places), extents(v for _, v in places), strict=True):
                name = getattr(e, "name", None)
                if name in wanted:
                    wanted.discard(name)
                    lines.append(f"{name} = {place}")
        if wanted:
            raise RuntimeError(f"no input of the graph tells the sizes {', '.join(sorted(wanted))}")
        return lines

    def _text(self, e: Any) -> str:
        """A size, or a tuple of sizes, as the program computes it."""
        if isinstance(e, tuple):
            return _tuple(self._text(v) for v in e)
        self.symbols |= symbols_of(e)
        return str(e)

    def _last_uses(self, groups: list[Group], results: list[Any]) -> dict[Node, int]:
        last: dict[Node, int] = {}
        kept = {r for r in results if isinstance(r, Node)}
        for i, g in enumerate(groups):
            for n in g.nodes:
                if n.users and n not in kept:
                    last.setdefault(n, i)
                for source in n.all_input_nodes:
                    if source not in kept:
                        last[source] = i
                if not n.users and n not in kept:
                    last[n] = i
        outputs = {
            n for g in groups if g.parts for n in g.nodes if all(u in g.nodes for u in n.users)
        }
        return {n: i for n, i in last.items() if n not in outputs}

    def _name(self, name: str) -> str:
        return (
            name
            if name.isidentifier() and name not in self.names and name not in ("call", "inputs")
            else f"v_{name}"
        )

    # ---- steps ----

    def _empty(self, node: Node, val: Tensor) -> str:
        name = self.var[node] = self._name(node.name)
        shape, stride, _ = geometry(val)
        kept = kept_in(node, self.plan.wide)
        self.names[kept.name] = kept
        strides = "" if stride == row_major(shape) else f", {self._text(stride)}"
        return f"{name} = empty({self._text(shape)}, {kept.name}, cpu{strides})"

    def _over(self, node: Node, spent: list[Node]) -> str | None:
        """The result of an elementwise kernel in the place of an operand that nobody needs later,
        or of the input whose new value it is (once nothing raises any more: the function may be run
        again from its beginning): whether its bytes are free is seen when it runs."""
        val, target = node.meta["val"], self.onto.get(node)
        kept = kept_in(node, self.plan.wide)
        if target in spent and self._may_become(target, node):
            old = target.meta["val"]
            if old.dtype is kept and geometry(old)[:2] == geometry(val)[:2]:
                spent.remove(target)
                name = self.var[node] = self._name(node.name)
                return f"{name} = over({self.var[target]})"
        for n in spent:
            if n.op == "placeholder":
                continue
            old = n.meta["val"]
            same = kept_in(n, self.plan.wide) is kept
            if same and geometry(old)[:2] == geometry(val)[:2]:
                spent.remove(n)
                name = self.var[node] = self._name(node.name)
                return f"{name} = reuse({self.var[n]})"
        return None

    def _may_become(self, target: Node, node: Node) -> bool:
        """Whether all views of an input have been read by the time that this kernel reads the
        input itself, and no result shows its bytes, or those of the node that is written there."""
        at = self.last[target]
        views = [n for n in _showing(target) if n is not target]
        if any(n not in self.last or self.last[n] >= at for n in views):
            return False
        return all(n is node or n in self.last for n in _showing(node))

    def _map(self, kernel: Fused, addresses: dict[str, int] | None, last: set[Node]) -> None:
        spent = [n for n in kernel.inputs if n in last and n.op in ("call_function", "placeholder")]
        if kernel.dim is not None or addresses is None:
            spent = []  # a row is read more than once; NumPy writes one result after the other
        for n in kernel.outputs:
            self.lines.append(self._over(n, spent) or self._empty(n, n.meta["val"]))
        if kernel.dim is None:
            outs = _tuple(self.var[n] for n in kernel.outputs)
            ins = _tuple(self.var[n] for n in kernel.inputs)
        else:
            outs = _tuple(self._in_rank(n, kernel, kernel.dim) for n in kernel.outputs)
            ins = _tuple(self._in_rank(n, kernel, kernel.dim) for n in kernel.inputs)
        if not kernel.inputs or addresses is None:
            name = f"evaluate_{kernel.symbol}"
            self.names[name] = _evaluated(kernel)
            given = _tuple(self._text(e) for e in extents(kernel.slots.numbers))
            self.lines.append(f"{name}({outs}, {ins}, {given})")
            return
        numbers = self._slots(kernel)
        self.names[kernel.symbol] = addresses[kernel.symbol]
        if kernel.dim is None:
            self.lines.append(f"run_map({kernel.symbol}, {outs}, {ins}, {numbers})")
        else:
            self.lines.append(f"run_rows({kernel.symbol}, {outs}, {ins}, {kernel.dim}, {numbers})")

    def _slots(self, kernel: Fused) -> str:
        """Numbers that come when the program runs, as the bytes that a kernel takes."""
        if not kernel.slots.numbers:
            return "None"
        format_ = "".join("d" if kind == "f" else "q" for kind in kernel.slots.kinds)
        self.names[f"slots_{format_}"] = struct.Struct(f"={format_}").pack
        return f"slots_{format_}({', '.join(map(self._text, extents(kernel.slots.numbers)))})"

    def _in_rank(self, node: Node, kernel: Fused, dim: int) -> str:
        """An operand of a row kernel with the rank of its rows' shape."""
        name = self.var[node]
        if node.meta["val"].dim() == len(kernel.shape):
            return name
        places = ", ".join(map(self._text, kernel.in_rank(node, dim)))
        return f"alias(Tensor, {name}, {places}, None)"

    def _call(self, node: Node) -> None:
        if node in self.var:
            return  # a result that was bound where it was computed
        op = op_of(node)
        val = node.meta.get("val")
        if is_number(val) and (op is None or op.decl.kind == "question"):
            self.var[node] = f"({self._text(extents((val,))[0])})"
            return
        name = self.var[node] = self._name(node.name)
        if op is None:
            self._function(node, name)
            return
        args = complete_args(node)
        if op.decl.kind == "view" and isinstance(val, Tensor) and op.variant == "functional":
            self.lines.append(f"{name} = {self._view(node, args[0], val)}")
            return
        called = self._from_c(node, op)
        if called is not None:
            self.lines.append(f"{name} = {called}")
            self._measure(node, val)
            return
        inner = ", ".join(self._value(v) for v in args)
        compute = self._compute(node, op, val)
        if compute is None:
            self.names[f"op_{_ident(op)}"] = op
            self.lines.append(
                f"{name} = run(op_{_ident(op)}, ({inner}{',' if len(args) == 1 else ''}))"
            )
            self._measure(node, val)
            return
        if isinstance(val, Tensor):
            self.lines.append(self._empty(node, val))
            self.lines.append(f"{compute}({name}, {inner})")
            return
        self._several(node, val, name, f"{compute}({{}}, {inner})")

    def _measure(self, node: Node, val: Any) -> None:
        """Sizes that only this step tells: the number that it read, how much it found."""
        name = self.var[node]
        if is_number(val):
            places = [(name, val)]
        elif isinstance(val, Tensor):
            places = [(f"{name}.shape[{i}]", n) for i, n in enumerate(val.shape) if is_number(n)]
        else:
            return
        for place, n in places:
            symbol = n.node.value.name
            if symbol is None or symbol in self.given:
                continue
            if symbol.startswith(UNBACKED) and symbol not in self.bound:
                self.bound.add(symbol)
                self.lines.append(f"{symbol} = {place}")

    def _from_c(self, node: Node, op: Op) -> str | None:
        """The call as C makes it without Python: by fast paths, or repeated from a program."""
        if not served(op) or _counts(node):  # what it finds tells a size
            return None
        function = f"call_{_ident(op)}"
        self.names[function] = exact(op)
        parts = [self._value(v) for v in node.args]
        parts += [f"{k}={self._value(v)}" for k, v in node.kwargs.items()]
        return f"{function}({', '.join(parts)})"

    def _several(self, node: Node, val: Any, name: str, call: str) -> None:
        """Several results: each is bound to the node that takes it, none to the tuple."""
        takers: dict[int, list[Node]] = {}
        for user in node.users:
            if user.target is operator.getitem:
                takers.setdefault(user.args[1], []).append(user)
        alone = sum(map(len, takers.values())) == len(node.users)
        parts = []
        unused = []
        for i, v in enumerate(val):
            users = takers.get(i, [])
            stand = (
                users[0]
                if users and alone
                else Node(self.graph, f"{name}_{i}", "call_function", run, (), {})
            )
            self.lines.append(self._empty(stand, v))
            parts.append(self.var[stand])
            for user in users[1:] if alone else ():
                self.lines.append(f"{self._bind(user)} = {parts[-1]}")
            if not (users and alone):
                unused.append(parts[-1])
        if not alone:
            self.lines.append(f"{name} = {_tuple(parts)}")
        self.lines.append(call.format(_tuple(parts)))
        if unused:
            self.lines.append(f"del {', '.join(unused)}")
        if alone:
            self.var.pop(node)

    def _bind(self, node: Node) -> str:
        name = self.var[node] = self._name(node.name)
        return name

    def _compute(self, node: Node, op: Op, val: Any) -> str | None:
        """The name of a function that fills outputs allocated here, or None for a plain call."""
        decl = op.decl
        if (
            hasattr(decl, "run")
            or op.variant != "functional"
            or op.schema.mutates
            or op.namespace != "aten"
        ):
            return None
        vals = val if isinstance(val, (tuple, list)) else (val,)
        if not all(isinstance(v, Tensor) and v.device.type == "cpu" for v in vals):
            return None
        kernel = op.kernels.get("cpu")
        if kernel is not None and decl.compute.__func__ is Declaration.compute.__func__:  # type: ignore[attr-defined]
            name = f"{op.name}_kernel" + (f"_{op.overload}" if op.overload else "")
            self.names[name] = kernel
            return name
        if (
            kernel is None
            and decl.expr is None
            and decl.compute.__func__ is Declaration.compute.__func__  # type: ignore[attr-defined]
        ):
            return None
        name = f"compute_{_ident(op)}"
        self.names[name] = _Compute(op)
        return name

    def _function(self, node: Node, name: str) -> None:
        target = f"f_{getattr(node.target, '__name__', 'function')}"
        self.names[target] = node.target
        args = ", ".join(self._value(v) for v in node.args)
        if target == "f_getitem":
            self.lines.append(f"{name} = {self._value(node.args[0])}[{self._value(node.args[1])}]")
            self._measure(node, node.meta.get("val"))
            return
        keywords = "".join(f", {k}={self._value(v)}" for k, v in node.kwargs.items())
        self.lines.append(f"{name} = {target}({args}{keywords})")
        self._measure(node, node.meta.get("val"))

    def _stands_for(self, node: Node, source: Node) -> bool:
        """Whether a view that shows what its source shows may be the same object: a result is an
        object of its own, unless nobody else holds the source."""
        results = self.graph.output_node().all_input_nodes
        held = source.op != "call_function" or source in self.borrowed
        if node in results:
            return not held and list(source.users) == [node]
        if held:
            self.borrowed.add(node)
        return held or source not in results

    def _view(self, node: Node, source: Node, val: Tensor) -> str:
        base = source.meta["val"]
        name = self.var[source]
        size, stride, offset_of = geometry(val)
        shift = offset_of * val.element_size() - geometry(base)[2] * base.element_size()
        same = val.dtype is base.dtype
        if (
            same
            and shift == 0
            and (size, stride) == geometry(base)[:2]
            and (self._stands_for(node, source))
        ):
            return name
        if same:
            shift //= val.element_size()
            offset = f"{name}.storage_offset() + {self._text(shift)}" if shift != 0 else "None"
            return f"alias(Tensor, {name}, {self._text(size)}, {self._text(stride)}, {offset})"
        self.names[val.dtype.name] = val.dtype
        offset = (
            f"({name}.storage_offset() * {base.element_size()} + {self._text(shift)})"
            f" // {val.element_size()}"
        )
        places = f"{self._text(size)}, {self._text(stride)}, {offset}"
        return f"alias(Tensor, {name}, {places}, {val.dtype.name})"

    def _value(self, v: Any) -> str:
        if isinstance(v, Node):
            return self.var[v]
        if is_number(v):
            return self._text(extents((v,))[0])
        if type(v) in _LITERALS and v == v and v not in (float("inf"), float("-inf")):
            return repr(v)
        if isinstance(v, list) or type(v) is tuple:
            # A graph's lists are of a class that refuses changes; C knows the plain ones.
            inner = [self._value(x) for x in v]
            return f"[{', '.join(inner)}]" if isinstance(v, list) else _tuple(inner)
        if isinstance(v, dt.dtype):
            self.names[v.name] = v
            return v.name
        key = f"c{len(self.constants)}"
        self.constants[key] = key
        self.names[key] = v
        return key


def _showing(node: Node) -> list[Node]:
    """The node and all that may be its bytes."""
    found = [node]
    for n in found:
        for user in n.users:
            op = op_of(user)
            if (
                user.op != "output"
                and user not in found
                and (op is None or op.decl.kind == "view" or op.schema.is_mutable)
            ):
                found.append(user)
    return found


def _counts(node: Node) -> bool:
    """Whether sizes, or the number, that a node gives are known only when it has run."""

    def unbacked(val: Any) -> set[str]:
        if isinstance(val, (tuple, list)):
            return set().union(*map(unbacked, val))
        numbers = val.shape if isinstance(val, Tensor) else (val,)
        names = [n.node.value.name for n in numbers if is_number(n)]
        return {n for n in names if n is not None and n.startswith(UNBACKED)}

    known = set().union(*[unbacked(n.meta.get("val")) for n in node.all_input_nodes])
    return not unbacked(node.meta.get("val")) <= known


def served(op: Op) -> bool:
    """Whether C can make calls of the overload without Python (`exact`)."""
    decl = op.decl
    if op.variant != "functional" or op.schema.mutates or op.namespace != "aten":
        return False
    return not (decl.random or decl.level == "composite" or decl.kind in ("factory", "like"))


_EXACT: dict[Op, Any] = {}


def exact(op: Op) -> Any:
    """One overload as a function of C's, as the public one is of all of them."""
    found = _EXACT.get(op)
    if found is None:
        alone = Packet(op.namespace, op.name)
        alone.ops.append(op)
        found = _EXACT[op] = make_callable(alone, _native.Function)
    return found


class _Compute:
    """An operator's own computation into given outputs."""

    __slots__ = ("decl", "op")

    def __init__(self, op: Op) -> None:
        self.op, self.decl = op, op.decl

    def __call__(self, outs: Any, *args: Any) -> None:
        self.decl.compute(self.op, outs, args)


def _evaluated(kernel: Fused) -> Callable[[Any, Any, Any], None]:
    """The kernel's expression in NumPy: on machines without a compiler, and without operands."""
    common = kernel.in_dtypes[0] if kernel.in_dtypes else kernel.out_dtypes[0]

    def evaluate(outs: Any, ins: Any, numbers: Any) -> None:
        dtype = dt.DTYPES[common]
        slot("evaluate")(kernel.expr, kernel.kind, outs, ins, numbers, kernel.dim, dtype)

    return evaluate


def _ident(op: Op) -> str:
    return (
        f"{op.namespace}_{op.name}_{op.overload}".strip("_")
        if op.namespace != "aten"
        else f"{op.name}_{op.overload}".strip("_")
    )


def _tuple(parts: Any) -> str:
    items = list(parts)
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


_ADDRESSES: dict[str, int] = {}


_TOGETHER = 5  # kernels for which a compiler of their own is started


def _parts(kernels: list[tuple[str, Fused]]) -> list[list[tuple[str, Fused]]]:
    """Kernels in as many texts as there are threads to compile them at the same time, of about
    equal work."""
    count = max(1, min(_native.get_num_threads(), len(kernels) // _TOGETHER, 8))
    parts: list[list[tuple[str, Fused]]] = [[] for _ in range(count)]
    work = [0] * count
    for kernel in sorted(kernels, key=lambda found: -_lines(found[1])):
        least = work.index(min(work))
        parts[least].append(kernel)
        work[least] += _lines(kernel[1])
    return parts


def _lines(kernel: Fused) -> int:
    """About how long a kernel's text is."""
    own = len(kernel.kernel.insts) + 10
    return own if kernel.dim is None else own * len(kernel.schedule.loops) * 2


def compile_kernels(kernels: list[Fused]) -> dict[str, int] | None:
    """The addresses of kernels, compiled together; None when this machine cannot compile."""
    fresh: dict[str, Fused] = {}
    for k in kernels:
        if k.symbol not in _ADDRESSES and k.inputs:
            fresh[k.symbol] = k
    if fresh:
        load = loader()
        if load.sources != "auto":
            return None
        parts = [
            (print_kernels([(s, k.kernel, k.schedule) for s, k in part], load.target), dict(part))
            for part in _parts(list(fresh.items()))
        ]
        try:
            _ADDRESSES.update(load.load_parts([(text, list(part)) for text, part in parts]))
        except ToolchainMissing as e:
            warn_once(
                "no-fusion",
                f"compiled programs evaluate their kernels in NumPy, which is slow: {e}",
            )
            return None
    return _ADDRESSES


def plan(graph: Graph, *, exact: bool = False) -> Plan:
    """Which nodes of a functional graph become kernels. With `exact` every operator rounds as it
    does in eager."""
    collapse_views(graph)
    groups = groups_of(graph, rows=not exact)
    wide: frozenset[Node] = frozenset() if exact else unrounded(groups)
    kernels = {id(g): Fused(g, exact, wide) for g in groups if g.parts}
    return Plan(graph, groups, kernels, exact, wide)


def write(
    plan: Plan, attributes: dict[str, Any], addresses: dict[str, int] | None,
    onto: Sequence[tuple[int, int]] = (),
) -> Program:  # fmt: skip
    """The program of a plan, over the kernels at `addresses` (None: evaluated in NumPy). `onto`:
    by number, placeholders and the results that may be computed in their place."""
    return _Writer(plan, attributes, addresses, onto).run()


def assemble(graph: Graph, attributes: dict[str, Any], *, exact: bool = False) -> Program:
    """The program of a functional graph: `plan`, `compile_kernels` and `write` in one."""
    made = plan(graph, exact=exact)
    return write(made, attributes, compile_kernels(list(made.kernels.values())))
