"""Operators whose arguments include functions: the rules that all of them share.

With nothing to see it, such an operator just runs. A trace holds it as one node over the graphs of
its functions; modes are handed the operator whole; gradients are another such operator, over the
gradients of the functions. An operator says how its arguments are taken apart (`apart`,
`together`), what its functions are given (`given`) and what comes of their results (`results`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flambeau._src import _native
from flambeau._src.autograd import engine
from flambeau._src.autograd.api import edge_of
from flambeau._src.core import state
from flambeau._src.core.slots import SLOTS
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp import functionalize as fz
from flambeau._src.interp.dispatch_mode import call_higher_order
from flambeau._src.interp.trace import GraphTracer, place_inputs, snapshot, tracing
from flambeau._src.ir.graph import Graph
from flambeau._src.ir.node import Node
from flambeau._src.ops.call import aten, call_bits
from flambeau._src.ops.overload import register_higher_order

__all__ = ["BELOW", "Call", "HigherOrderOperator", "SubGraph", "is_differentiable", "like", "vjp"]

_IN_BODY = state.COMPOSITE | state.FUNCTIONALIZE  # a body is run as a program of its own
BELOW = state.DISPATCH | state.TRACE | state.FAKE | state.FUNCTIONALIZE

Body = Callable[..., Any]


@dataclass(frozen=True)
class Call:
    """A call taken apart: its functions, its operands in a row, and how many are of each kind."""

    bodies: tuple[Body, ...]
    operands: tuple[Any, ...]
    counts: tuple[int, ...] = ()


class HigherOrderOperator:
    """An operator whose arguments include functions (`bodies`: their names in a graph)."""

    __module__ = "torch._ops"
    bodies: tuple[str, ...] = ()

    def __init__(self, name: str) -> None:
        self._name = name
        self.__name__ = self.__qualname__ = name
        self.__module__ = "torch.ops.higher_order"
        self.namespace = "higher_order"
        register_higher_order(name, self)

    def name(self) -> str:
        """The operator's name."""
        return self._name

    def __str__(self) -> str:
        return self._name

    # ---- what an operator says ----

    def apart(self, *args: Any) -> Call:
        """The call with these arguments."""
        raise TypeError(f"{self._name} has no rules")

    def together(self, call: Call) -> tuple[Any, ...]:
        """The arguments of a call."""
        raise NotImplementedError

    def own(self, call: Call) -> int:
        """How many of the operands the bodies do not see as they are."""
        return 0

    def given(self, call: Call, body: int) -> tuple[Any, ...]:
        """What a body is called with, for fake operands."""
        return call.operands

    def results(self, call: Call, outs: Sequence[Any]) -> tuple[Any, ...]:
        """The operator's results, from those of the bodies on fake tensors."""
        raise NotImplementedError

    def run(self, call: Call) -> tuple[Any, ...]:
        """Do it."""
        raise NotImplementedError

    def forward(self, call: Call) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The results beneath autograd, and what the gradients need besides the operands."""
        return tuple(self(*self.together(call))), ()

    def gradients(
        self, call: Call, kept: tuple[Any, ...], grads: list[Any], places: list[int],
        wanted: list[bool],
    ) -> list[Any]:  # fmt: skip
        """Gradients of the operands that want one; `grads` are those of the results at `places`."""
        raise NotImplementedError(f"{self._name} has no gradient")

    # ---- layers ----

    def __call__(self, /, *args: Any) -> Any:
        call = self.apart(*args)
        active = call_bits((call.operands,), {}, 0)
        if not active & BELOW:
            return self.run(call)
        if active & state.RECORD and any(
            isinstance(t, Tensor) and t.requires_grad for t in call.operands
        ):
            return self.record(call)
        if active & state.FUNCTIONALIZE:
            with fz.inside():
                values = tuple(fz.unwrap(t) for t in call.operands)
                bodies = tuple(map(_functional, call.bodies))
                inner = replace(call, bodies=bodies, operands=values)
                out = self(*self.together(inner))
                return tuple(fz.wrap(t) if isinstance(t, Tensor) else t for t in out)
        handled = call_higher_order(self, self.together(call), {})
        if handled is not NotImplemented:
            return handled
        if active & state.DISPATCH and any(hasattr(t, "fake_mode") for t in call.operands):
            return self.fake(*args)
        return self.run(call)

    def fake(self, *args: Any) -> tuple[Any, ...]:
        """The results on fake operands."""
        call = self.apart(*args)
        outs = []
        for i, body in enumerate(call.bodies):
            given = self.given(call, i)
            with state.Resumed(_IN_BODY):
                outs.append(body(*given))
        return self.results(call, outs)

    def trace(self, mode: Any, *args: Any) -> Any:
        """One node over the graphs of the bodies."""
        tracer, call = mode.tracer, self.apart(*args)
        fake = tracer.fake_mode()
        seen = replace(
            call,
            operands=tuple(
                snapshot(t, fake) if isinstance(t, Tensor) else t for t in call.operands
            ),
        )
        nodes: list[Any] = []
        outs = []
        for i, (name, body) in enumerate(zip(self.bodies, call.bodies, strict=True)):
            with fake:
                given = self.given(seen, i)
            module, out = _trace_body(mode, self._name, body, given)
            outs.append(out)
            nodes.append(_attribute(tracer, name, module))
        with fake:
            results = self.results(seen, outs)
        node_args = tracer.argument(self.together(replace(call, bodies=tuple(nodes))))
        node = tracer.create("call_function", self, node_args, {}, self._name)
        made = results if mode.tracing_mode != "real" else self.run(call)
        tracer.track_tree(tuple(made), node)
        return tuple(made)

    def record(self, call: Call) -> Any:
        """The operator beneath autograd, and a node whose backward is such an operator as well."""
        tensors = [t for t in call.operands if isinstance(t, Tensor)]
        with state.Suspended(state.RECORD | state.COMPOSITE), state.Resumed(state.COMPOSITE):
            outs, kept = self.forward(call)
        wanted = [t.requires_grad and is_differentiable(t) for t in tensors]
        node = _native.node(
            self._node_type(),
            _RULE,
            [t if w else None for t, w in zip(tensors, wanted, strict=True)],
        )
        places = [i for i, o in enumerate(outs) if is_differentiable(o)]
        node.num_outputs = len(places)
        node.args = tuple(
            _native.saved(t) if isinstance(t, Tensor) else t for t in (*call.operands, *kept)
        )
        node.outs = tuple(_native.geometry(outs[i]) for i in places)
        node.ctx = (self, replace(call, operands=(len(call.operands),)), places)
        for nr, i in enumerate(places):
            outs[i]._set_history(node, nr, True)
        return outs

    def _node_type(self) -> Any:
        found = _NODE_TYPES.get(self._name)
        if found is None:
            words = self._name.removesuffix("_impl").split("_")
            name = "".join(w.capitalize() for w in words) + "AutogradOpBackward"
            found = _NODE_TYPES[self._name] = type(
                name, (_native.Node,), {"__slots__": (), "__module__": "torch.autograd.function"}
            )
        return found


_NODE_TYPES: dict[str, Any] = {}


def is_differentiable(t: Any) -> bool:
    """Whether it is a tensor that may have a gradient."""
    return isinstance(t, Tensor) and (t.dtype.is_floating_point or t.dtype.is_complex)


def like(t: Any) -> Any:
    """A tensor of the same geometry with bytes of its own; anything else as it is."""
    if not isinstance(t, Tensor):
        return t
    return aten.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device)


class _Rule:
    """The operator of these nodes (autograd's protocol)."""

    decl = None

    def __repr__(self) -> str:
        return "higher order"

    def backward(self, node: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        """Gradients of the operands."""
        op, call, places = node.ctx
        values = node.unpack()
        n = call.operands[0]
        given = [
            aten.zeros(o.shape, dtype=o.dtype, device=o.device) if g is None else g
            for g, o in zip(grads, node.unpack_outs(), strict=True)
        ]
        wanted = [e is not None for e, _ in node.edges]
        call = replace(call, operands=tuple(values[:n]))
        found = iter(op.gradients(call, tuple(values[n:]), given, places, wanted))
        return tuple(next(found) if w else None for w in wanted)


_RULE = _Rule()


def vjp(fn: Body, operands: Any, grads: Any, wanted: list[bool], places: list[int]) -> Any:
    """The vector-Jacobian product of a body, for the tensors that want one; `grads` are those of
    its results at `places`."""
    leaves = []
    entered = []
    flags = iter(wanted)
    with state.GradMode(True), state.Resumed(state.RECORD):
        for v in operands:
            if isinstance(v, Tensor):
                v = aten.detach(v)
                if next(flags):
                    v.requires_grad = True
                    leaves.append(v)
            entered.append(v)
        outs = tuple(fn(*entered))
        pairs = [(outs[i], g) for i, g in zip(places, grads, strict=True) if outs[i].requires_grad]
        found = engine.run(
            [edge_of(o) for o, _ in pairs], [g for _, g in pairs],
            inputs=[edge_of(t) for t in leaves], accumulate=False
        ) if pairs else [None] * len(leaves)  # fmt: skip
    return tuple(
        aten.zeros(t.shape, dtype=t.dtype, device=t.device) if g is None else g
        for g, t in zip(found, leaves, strict=True)
    )


# ---- bodies as graphs ----------------------------------------------------------------------------


class SubGraph:
    """A traced body where no GraphModule is at hand: called node by node."""

    def __init__(self, attributes: dict[str, Any], graph: Graph) -> None:
        self.attributes, self.graph = attributes, graph

    def __call__(self, *args: Any) -> Any:
        values: dict[Node, Any] = {}
        inputs = iter(args)

        def value(v: Any) -> Any:
            if isinstance(v, Node):
                return values[v]
            if isinstance(v, (list, tuple)):
                return type(v)(value(x) for x in v)
            return v

        for node in self.graph.nodes:
            if node.op == "placeholder":
                values[node] = next(inputs)
            elif node.op == "get_attr":
                values[node] = self.attributes[str(node.target)]
            elif node.op == "output":
                return value(node.args[0])
            else:
                keywords = {k: value(v) for k, v in node.kwargs.items()}
                values[node] = node.target(*value(node.args), **keywords)  # type: ignore[operator]
        return None


def _functional(fn: Body) -> Body:
    if isinstance(fn, SubGraph):
        return fn
    functional = fz.functionalize(fn)

    def body(*values: Any) -> Any:
        with state.Resumed(_IN_BODY):
            return functional(*values)

    return body


def _trace_body(mode: Any, name: str, fn: Body, given: tuple[Any, ...]) -> tuple[Any, Any]:
    """A body as a module, and its results on fake tensors."""
    outer = mode.tracer
    inner = _BodyTracer(outer, name)
    fake = outer.fake_mode()
    values = [snapshot(t, fake) if isinstance(t, Tensor) else t for t in given]
    with state.Resumed(_IN_BODY), tracing(inner, "fake", mode.decompositions, fake):
        place_inputs(inner, values, [f"arg{i}_1" for i in range(len(values))])
        outs = fn(*values)
        inner.output(outs)
    make = SLOTS.get("graph_module", SubGraph)
    return make(inner.attributes, inner.graph), outs


class _BodyTracer(GraphTracer):
    """The tracer of a body: it refuses values of the program around it."""

    def __init__(self, outer: GraphTracer, name: str) -> None:
        super().__init__()
        self.outer = outer
        self._name = name
        self._mode = outer.fake_mode()

    def argument(self, v: Any) -> Any:
        if isinstance(v, Tensor) and self.seen(v) is None and self.outer.node_of(v) is not None:
            raise RuntimeError(
                f"a function given to {self._name} uses a tensor of the program around it: pass it "
                "among the operands"
            )
        return super().argument(v)


def _attribute(tracer: GraphTracer, prefix: str, module: Any) -> Node:
    number = 0
    while f"{prefix}_{number}" in tracer.attributes:
        number += 1
    name = f"{prefix}_{number}"
    tracer.attributes[name] = module
    return tracer.create("get_attr", name, (), {})
