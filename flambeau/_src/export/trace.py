"""A module's forward as a graph: its operators as the program calls them, its state as inputs."""

from __future__ import annotations

import functools
import inspect
import linecache
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from flambeau._src.compiler.numbers import assertions
from flambeau._src.core import state
from flambeau._src.core.tensor import Tensor
from flambeau._src.export.constraints import Sizes
from flambeau._src.interp import functionalize as fz
from flambeau._src.interp.dispatch_mode import modes_suspended
from flambeau._src.interp.fake import FakeTensor, FakeTensorMode
from flambeau._src.interp.sizes import Dims
from flambeau._src.interp.trace import GraphTracer, ProxyTorchDispatchMode, place_inputs, tracing
from flambeau._src.ir.graph import Graph
from flambeau._src.ir.node import Node
from flambeau._src.ir.shape_env import ShapeEnv
from flambeau._src.ir.sym_node import sym_int
from flambeau._src.ops.op import Op
from flambeau._src.ops.overload import OpOverload
from flambeau._src.util import pytree, pytree_keys

__all__ = [
    "Held", "WholeOperators", "composites", "functional", "held_tensors", "lift_attributes",
    "operators", "trace_module",
]  # fmt: skip

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class WholeOperators(ProxyTorchDispatchMode):
    """Records operators before they dissolve: `linear` is one node."""

    def run_op(self, op: Op, args: tuple[Any, ...]) -> Any:
        """Record one operator, whole; what it is made of runs unseen."""
        if not self.enable_tracing:
            return super().run_op(op, args)
        return self._record(
            op, args, [t for t in pytree.tree_leaves(args) if isinstance(t, Tensor)]
        )

    def _record(self, op: Op, args: tuple[Any, ...], tensors: list[Tensor]) -> Any:
        self.tracer.note_place()  # type: ignore[attr-defined]
        self.enable_tracing = False
        try:
            with state.Resumed(state.COMPOSITE):
                return super()._record(op, args, tensors)
        finally:
            self.enable_tracing = True


class PlacedTracer(GraphTracer):
    """A tracer whose nodes know the user's line."""

    def __init__(self) -> None:
        super().__init__()
        self.place = ""

    def note_place(self) -> None:
        """Remember where the program is."""
        frame: Any = sys._getframe(2)
        lines: list[str] = []
        while frame is not None:
            code, number = frame.f_code, frame.f_lineno
            if not code.co_filename.startswith((_HERE, "<")):
                source = linecache.getline(code.co_filename, number).strip()
                place = f'  File "{code.co_filename}", line {number}, in {code.co_name}'
                lines.append(f"{place}\n    {source}\n")
            elif lines:
                break
            frame = frame.f_back
        self.place = "".join(reversed(lines))

    def create(self, *args: Any, **kwargs: Any) -> Node:
        """A node with its place."""
        node = super().create(*args, **kwargs)
        if self.place:
            node.meta.setdefault("stack_trace", self.place)
        return node


class Held:
    """A tensor that a module holds: its dotted name, and where it stands."""

    def __init__(self, kind: str, name: str, value: Tensor, persistent: bool | None) -> None:
        self.kind, self.name, self.value, self.persistent = kind, name, value, persistent
        self.places: list[tuple[dict[str, Any], str]] = []

    @property
    def placeholder(self) -> str:
        """Its name in the graph: `p_lin_weight`."""
        return f"{self.kind}_{self.name}".replace(".", "_")


def held_tensors(module: Any) -> list[Held]:
    """Parameters, then buffers, then other tensors of a module and all below it; each once."""
    found: dict[int, Held] = {}

    def note(kind: str, table: dict[str, Any], prefix: str, skip: set[str]) -> None:
        for name, value in list(table.items()):
            if isinstance(value, Tensor):
                persistent = name not in skip if kind == "b" else None
                held = found.setdefault(id(value), Held(kind, prefix + name, value, persistent))
                held.places.append((table, name))

    modules = [(f"{n}." if n else "", m) for n, m in module.named_modules()]
    for prefix, m in modules:
        note("p", m._parameters, prefix, set())
    for prefix, m in modules:
        note("b", m._buffers, prefix, m._non_persistent_buffers_set)
    for prefix, m in modules:
        note("c", m.__dict__, prefix, set())
    order = {"p": 0, "b": 1, "c": 2}
    return sorted(found.values(), key=lambda h: order[h.kind])


@contextmanager
def _standing_in(held: Sequence[Held], values: Sequence[Tensor]) -> Iterator[None]:
    """Within the context the module holds `values`."""
    for h, v in zip(held, values, strict=True):
        for table, name in h.places:
            dict.__setitem__(table, name, v)
    try:
        yield
    finally:
        for h in held:
            for table, name in h.places:
                dict.__setitem__(table, name, h.value)


def trace_module(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], env: ShapeEnv, sizes: Sizes
) -> tuple[GraphTracer, list[Held], Any, Any]:
    """Run a module on fake tensors, whose sizes are those of `sizes`, and record what it does.

    Returns the tracer with a finished graph (placeholders: what the module holds, then the user's
    leaves), what it holds, and the structures of arguments and result.
    """
    held = held_tensors(module)
    leaves, in_spec = pytree.tree_flatten((args, kwargs))
    names = _names(module.forward, args, kwargs)
    fake = FakeTensorMode(allow_non_fake_inputs=True, shape_env=env, static_shapes=True)
    shown = [fake.from_tensor(h.value) for h in held]
    given = [_shown(fake, env, v, i, sizes) for i, v in enumerate(leaves)]
    tracer = PlacedTracer()
    with modes_suspended(), fake, WholeOperators(tracer, "fake"), state.GradMode(False):
        place_inputs(tracer, [*shown, *given], [*[h.placeholder for h in held], *names])
        with _standing_in(held, shown), state.Suspended(state.COMPOSITE):
            a, k = pytree.tree_unflatten(given, in_spec)
            result = module(*a, **k)
        flat, out_spec = pytree.tree_flatten(result)
        tracer.graph.output(tuple(tracer.argument(v) for v in flat))
    for node, h in zip(tracer.graph.nodes, held, strict=False):
        node.meta["val"].requires_grad = h.value.requires_grad
    assertions(tracer.graph)
    return tracer, held, in_spec, out_spec


def _shown(fake: FakeTensorMode, env: ShapeEnv, v: Any, i: int, sizes: Sizes) -> Any:
    """A leaf of the arguments as the program is shown it."""
    if i in sizes.numbers:
        return sym_int(env, sizes.numbers[i])
    if not isinstance(v, Tensor):
        return v
    if not sizes.given[i]:
        return fake.from_tensor(v)
    dims = Dims(default="static", given=sizes.given[i])
    return fake.from_tensor(v, static_shapes=False, symbolic_context=dims)


def _names(forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """A name a leaf: the parameter's, and the path within it. TypeError if the call is wrong."""
    bound = inspect.signature(forward).bind(*args, **kwargs)
    names: list[str] = []
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            parts = [(f"{name}_{i}", v) for i, v in enumerate(value)]
        elif kind is inspect.Parameter.VAR_KEYWORD:
            parts = list(value.items())
        else:
            parts = [(name, value)]
        for part, v in parts:
            for path, _ in pytree_keys.tree_leaves_with_path(v):
                names.append("_".join([part, *[_step(k) for k in path]]))
    return names


def _step(key: Any) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            text = str(getattr(key, attribute))
            return "".join(c if c.isalnum() else "_" for c in text)
    return str(key)


def operators(
    run: Callable[..., Any], inputs: Sequence[Any], names: Sequence[str], decompositions: Any
) -> GraphTracer:
    """`run(*inputs)` as a graph of operators, writes included."""
    tracer = GraphTracer()
    modes = [v.fake_mode for v in inputs if isinstance(v, FakeTensor)]
    fake = modes[0] if modes else FakeTensorMode(allow_non_fake_inputs=True)
    given = [
        fake.from_tensor(v) if isinstance(v, Tensor) and not isinstance(v, FakeTensor) else v
        for v in inputs
    ]
    with modes_suspended(), tracing(tracer, "fake", decompositions, fake):
        place_inputs(tracer, given, names)
        tracer.output(run(*given))
    return tracer


def composites(
    graph: Graph, table: Any
) -> tuple[dict[Any, Callable[..., Any]], frozenset[Any]]:  # fmt: skip
    """How the graph's composites are called, where not as they are: by the table's function, or
    whole; and those that stay whole."""
    calls: dict[Any, Callable[..., Any]] = {}
    kept = set()
    for overload in {n.target for n in graph.nodes if isinstance(n.target, OpOverload)}:
        op = overload._op
        if op.decl.level != "composite" or op.variant != "functional":
            continue
        if overload in table:
            calls[overload] = table[overload]
        elif not (op.schema.is_view or op.schema.mutates):
            calls[overload] = functools.partial(_undissolved, overload)
            kept.add(overload)
    return calls, frozenset(kept)


def _undissolved(overload: Any, *args: Any, **kwargs: Any) -> Any:
    with state.Suspended(state.COMPOSITE):
        return overload(*args, **kwargs)


def functional(
    run: Callable[..., Any], inputs: Sequence[Any], names: Sequence[str], decompositions: Any,
    kept: frozenset[Any] = frozenset(),
) -> tuple[GraphTracer, list[int]]:  # fmt: skip
    """`run(*inputs)` as a graph without writes: its outputs are the new values of written inputs,
    whose numbers are returned, then what `run` returns. `kept`: composites that do not dissolve."""
    tracer = GraphTracer()
    tracer.kept = kept
    given = list(inputs)
    modes = [v.fake_mode for v in given if isinstance(v, FakeTensor)]
    fake = modes[0] if modes else FakeTensorMode(allow_non_fake_inputs=True)
    with modes_suspended(), tracing(tracer, "fake", decompositions, fake), state.GradMode(False):
        place_inputs(tracer, given, names)
        with fz.functional_mode():
            wrapped = [fz.wrap(v) if isinstance(v, Tensor) else v for v in given]
            returned = run(*wrapped)
            written = [
                i for i, v in enumerate(wrapped) if isinstance(v, Tensor) and fz.was_written(v)
            ]
            ends = [wrapped[i] for i in written] + list(returned)
            with fz.inside():
                values = [fz.sync(v) if fz.is_functional(v) else v for v in ends]
                nodes = tuple(tracer.argument(v) for v in values)
        tracer.graph.output(nodes)
    return tracer, written


def lift_attributes(graph: Graph, attributes: dict[str, Any], after: Node | None) -> list[Node]:
    """Tensors that the graph reads from its module become inputs, placed after a node."""
    made: dict[str, Node] = {}
    for node in list(graph.nodes):
        if node.op != "get_attr" or not isinstance(attributes.get(str(node.target)), Tensor):
            continue
        name = str(node.target)
        if name not in made:
            with graph.inserting_after(after) if after else graph.inserting_before():
                number = name.removeprefix("_tensor_constant")
                made[name] = after = graph.placeholder(f"c_lifted_tensor_{number}")
            made[name].meta = dict(node.meta)
        node.replace_all_uses_with(made[name])
        graph.erase_node(node)
    return list(made.values())
