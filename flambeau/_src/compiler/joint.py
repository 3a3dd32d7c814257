"""Forward and backward of a function as one graph of operators without writes.

The function runs once on fake tensors under functionalisation and tracing; what it returned is
differentiated in the same trace. `Joint` says what each input and output of the graph is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flambeau._src import _native
from flambeau._src.autograd import engine
from flambeau._src.autograd.api import edge_of
from flambeau._src.core import state
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp import functionalize as fz
from flambeau._src.interp.dispatch_mode import modes_suspended
from flambeau._src.interp.fake import FakeTensor, FakeTensorMode
from flambeau._src.interp.trace import GraphTracer, place_inputs, tracing
from flambeau._src.ir.graph import Graph
from flambeau._src.ir.node import Node
from flambeau._src.ops.op import packet
from flambeau._src.util import pytree

__all__ = ["AliasedInput", "Joint", "Output", "Unsupported", "trace_joint"]


class Unsupported(Exception):
    """The function cannot be compiled as it is called; it can be run as it is."""


@dataclass(frozen=True)
class AliasedInput:
    """An output that is an input (no steps) or a view of one: made again from it, outside."""

    index: int
    steps: tuple[fz.Step, ...]


@dataclass
class Output:
    """One leaf of what the function returned."""

    constant: Any = None  # its value, when it is no tensor
    alias: AliasedInput | None = None
    slot: int | None = None  # its place among the graph's outputs


@dataclass
class Joint:
    """The graph and what its ends mean.

    Placeholders: one for each tensor input (`primals`), then one for each output that carries a
    gradient (`tangents`). Results: `outputs` computed values, among them new values of written
    inputs, then a gradient (or None) for each of `wanted`.
    """

    graph: Graph
    attributes: dict[str, Any]
    primals: list[Node]
    tangents: list[Node]
    outputs: list[Node]
    gradients: list[Node | None]
    results: list[Output] = field(default_factory=list)
    out_spec: Any = None
    written: list[tuple[int, int]] = field(default_factory=list)  # (input, place among outputs)
    carrying: list[int] = field(default_factory=list)  # outputs that carry gradients, by place
    wanted: list[int] = field(default_factory=list)  # inputs that want gradients
    fakes: list[Any] = field(default_factory=list)

    def __str__(self) -> str:
        return str(self.graph)


class _JointTrace:
    def __init__(
        self, fn: Callable[..., Any], inputs: Sequence[Tensor], decompositions: Any
    ) -> None:
        self.fn, self.inputs, self.decompositions = fn, inputs, decompositions
        self.tracer = GraphTracer()
        self.fake = FakeTensorMode(allow_non_fake_inputs=True)
        self.leaves: list[Tensor] = []
        self.given: list[Tensor] = []
        self.outs: list[Tensor] = []  # functional tensors behind the graph's outputs
        self.written: list[tuple[int, int]] = []

    def run(self) -> Joint:
        tracer = self.tracer
        self.wanted = [i for i, t in enumerate(self.inputs) if t.requires_grad and state.get_grad()]
        fakes = [self._fake(t) for t in self.inputs]
        with modes_suspended(), tracing(tracer, "fake", self.decompositions, self.fake):
            names = [f"primals_{i + 1}" for i in range(len(fakes))]
            place_inputs(tracer, fakes, names)
            primals = list(tracer.graph.nodes)
            with fz.functional_mode():
                results, spec = self._forward(fakes)
                carrying = [i for i, t in enumerate(self.outs) if t.requires_grad]
                outputs = [self._node(t) for t in self.outs]
                tangents, gradients = self._backward(carrying)
            # The backward may still have read an output's final value: nodes are looked up first.
            tracer.graph.output((*outputs, *gradients))
        return Joint(
            tracer.graph, tracer.attributes, primals, tangents, outputs, gradients, results, spec,
            self.written, carrying, self.wanted if carrying else [], fakes,
        )  # fmt: skip

    def _fake(self, t: Tensor) -> Any:
        """A fake tensor with a storage cell of its own, outside every graph."""
        cell = _native.UntypedStorage.fake(t.untyped_storage().nbytes(), t.device)
        made = _native.wrap(FakeTensor, cell, t.dtype, t.shape, t.stride(), t.storage_offset())
        made.fake_mode = self.fake
        made._is_wrapped_number = t._is_wrapped_number
        return made

    def _forward(self, fakes: list[Any]) -> tuple[list[Output], Any]:
        for i, (t, f) in enumerate(zip(self.inputs, fakes, strict=True)):
            leaf = fz.wrap(f)
            if i in self.wanted:
                leaf.requires_grad = True
            self.leaves.append(leaf)
            self.given.append(leaf if t.is_leaf or i not in self.wanted else _recorded(leaf))
        returned = self.fn(*self.given)
        flat, spec = pytree.tree_flatten(returned)
        results = [self._result(v) for v in flat]
        for i, t in enumerate(self.given):
            if fz.was_written(t):
                self.written.append((i, len(self.outs)))
                self.outs.append(t)
        return results, spec

    def _result(self, v: Any) -> Output:
        if not isinstance(v, Tensor):
            return Output(constant=v)
        if not fz.is_functional(v):
            v = fz.wrap(v)
        for i, t in enumerate(self.given):
            if v is t:
                return Output(alias=AliasedInput(i, ()))
            if fz.info(v).base is fz.info(t).base and not fz.info(t).steps:
                return Output(alias=AliasedInput(i, fz.info(v).steps))
        for place, known in enumerate(self.outs):
            if known is v:
                return Output(slot=place)
        self.outs.append(v)
        return Output(slot=len(self.outs) - 1)

    def _node(self, t: Tensor) -> Node:
        with fz.inside():
            value = fz.sync(t)
        found: Node = self.tracer.argument(value)
        return found

    def _backward(self, carrying: list[int]) -> tuple[list[Node], list[Node | None]]:
        tracer, tangents, given = self.tracer, [], []
        if not carrying:
            return [], []
        roots = [self.outs[i] for i in carrying]
        for number, root in enumerate(roots):
            like = fz.unwrap(root)
            value = self._fake(like)
            node = tracer.graph.placeholder(f"tangents_{number + 1}")
            tracer.track(value, node)
            tangents.append(node)
            given.append(fz.wrap(value))
        wanted = [self.leaves[i] for i in self.wanted]
        found = engine.run(
            [edge_of(t) for t in roots],
            given,
            inputs=[edge_of(t) for t in wanted],
            accumulate=False,
        )
        return tangents, [None if g is None else self._node(g) for g in found]


def _recorded(leaf: Tensor) -> Tensor:
    """The result of a recorded operator that is the leaf itself: it may be written in place."""
    op = packet("alias").ops[0]
    made = _native.alias(Tensor, leaf)
    made.__dict__["_functional"] = fz.info(leaf)
    made._bits = leaf._bits
    node = _native.node(op.node_type, op, [leaf])
    node.args = (_native.geometry(leaf),)
    made._set_history(node, 0, True)
    return made


def check_inputs(inputs: Sequence[Tensor]) -> None:
    """Refuse inputs that share bytes with each other (a write to one would show in the other)."""
    cells: dict[int, int] = {}
    for i, t in enumerate(inputs):
        if t._bits:
            raise Unsupported(f"input {i} is a {type(t).__name__} with layers of its own")
        other = cells.setdefault(id(t.untyped_storage()), i)
        if other != i and t.numel():
            raise Unsupported(f"inputs {other} and {i} share a storage")


def trace_joint(
    fn: Callable[..., Any], inputs: Sequence[Tensor], decompositions: Any = None
) -> Joint:
    """The joint graph of `fn(*inputs)`; which inputs require gradients decides what is derived."""
    return _JointTrace(fn, inputs, decompositions).run()
