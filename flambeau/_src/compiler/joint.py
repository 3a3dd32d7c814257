"""Forward and backward of a function as one graph of operators without writes.

The function runs once on fake tensors under functionalisation and tracing; what it returned is
differentiated in the same trace. `Joint` says what each input and output of the graph is.

*Sources* are the call's tensors, then the synthetic bases: where a tensor is written whose bytes
another one shows, the graph takes one tensor of all these bytes in place of both, and the program
sees views of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flambeau._src import _native
from flambeau._src.autograd import engine
from flambeau._src.autograd.api import edge_of
from flambeau._src.capture.wrappers import is_made_of
from flambeau._src.compiler.extents import hinted, is_number
from flambeau._src.compiler.passes import op_of
from flambeau._src.core import state
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp import functionalize as fz
from flambeau._src.interp.dispatch_mode import modes_suspended
from flambeau._src.interp.fake import FakeTensor, FakeTensorMode
from flambeau._src.interp.trace import GraphTracer, place_inputs, tracing
from flambeau._src.ir.graph import Graph
from flambeau._src.ir.node import Node
from flambeau._src.ops.call import aten
from flambeau._src.ops.op import packet
from flambeau._src.util import pytree

__all__ = [
    "Base", "Joint", "JointTrace", "MadeOfOthers", "Output", "Unsupported", "check_inputs",
    "is_made_of_others", "shared_cells", "sharing", "trace_joint",
]  # fmt: skip


#: In a node's meta: it draws random numbers, or seeds, when the backward runs.
IN_BACKWARD = "in_backward"


class Unsupported(Exception):
    """The function cannot be compiled as it is called; it can be run as it is."""


@dataclass(frozen=True)
class Base:
    """One tensor for several inputs that share their bytes.

    members    the inputs, by number
    root       the input, or `_base` of one, that is the base itself; None: all bytes, flat
    """

    members: tuple[int, ...]
    recorded: bool

    def make(self, inputs: Sequence[Tensor]) -> Tensor:
        """The base of these inputs."""
        first = inputs[self.members[0]]
        if self.recorded:
            return first if first._base is None else first._base
        with state.GradMode(False):
            n = first.untyped_storage().nbytes() // first.element_size()
            return aten.as_strided(first.detach(), (n,), (1,), 0)


@dataclass(frozen=True)
class Slot:
    """In the arguments of a view: the number that stands at a place among the graph's outputs."""

    place: int

    @staticmethod
    def filled(v: Any, outs: Sequence[Any]) -> Any:
        """An argument with its numbers."""
        if isinstance(v, Slot):
            return outs[v.place]
        return type(v)(Slot.filled(x, outs) for x in v) if isinstance(v, (list, tuple)) else v


@dataclass
class Output:
    """One leaf of what the function returned.

    constant   its value, when it is no tensor
    slot       its place among the graph's outputs
    source     its place among the sources, for one that is an input or a view of one
    steps      the views on the way from the slot or source to it
    sized      whether there are `Slot`s in the steps' arguments
    """

    constant: Any = None
    slot: int | None = None
    source: int | None = None
    steps: tuple[fz.Step, ...] = ()
    sized: bool = False


@dataclass
class Joint:
    """The graph and what its ends mean.

    Placeholders: one for each of `order` (`primals`), then one for each output that carries a
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
    written: list[tuple[int, int]] = field(default_factory=list)  # (source, place among outputs)
    reshaped: list[tuple[int, tuple[fz.Step, ...]]] = field(default_factory=list)  # sources
    carrying: list[int] = field(default_factory=list)  # outputs that carry gradients, by place
    wanted: list[int] = field(default_factory=list)  # sources that want gradients
    fakes: list[Any] = field(default_factory=list)
    bases: list[Base] = field(default_factory=list)
    order: list[int] | None = None  # the sources that the graph takes; None: the call's tensors
    spent: list[int] = field(default_factory=list)  # outputs whose history the program went back
    layout: Any = None  # how tensors of users' classes are made of sources and outputs (`whole.py`)
    apart: bool = False  # inputs share bytes that are written: for sizes as numbers, trace again

    def written_primals(self) -> list[int]:
        """The placeholders whose sources are written, by number."""
        places = range(len(self.primals)) if self.order is None else self.order
        number = {source: i for i, source in enumerate(places)}
        return [number[source] for source, _ in self.written]

    def in_place(self) -> list[tuple[int, int]]:
        """The outputs that are nothing but the new value of an input, as `(placeholder, place)`:
        they may be computed where it lies, as the copy into it comes right after the graph."""
        if self.bases or self.layout is not None:
            return []
        told = {r.slot for r in self.results} | {*self.carrying, *self.spent}
        told |= {place for _, place in self.written if self.outputs.count(self.outputs[place]) > 1}
        moved = {i for i, _ in self.reshaped}
        return [(i, place) for i, place in self.written if i not in moved and place not in told]

    def __str__(self) -> str:
        return str(self.graph)


class JointTrace:
    def __init__(
        self, fn: Callable[..., Any], inputs: Sequence[Tensor], decompositions: Any,
        bases: Sequence[Base] = (),
    ) -> None:  # fmt: skip
        self.fn, self.inputs, self.decompositions = fn, inputs, decompositions
        self.bases = list(bases)
        self.sources = [*inputs, *[b.make(inputs) for b in bases]]
        hidden = {i for b in bases for i in b.members}
        self.order = [i for i in range(len(self.sources)) if i not in hidden]
        self.tracer = GraphTracer()
        self.fake = FakeTensorMode(
            allow_non_fake_inputs=True, shape_env=_environment(inputs), static_shapes=True
        )
        self.leaves: dict[int, Tensor] = {}  # by source
        self.given: dict[int, Tensor] = {}  # by source: what the program sees
        self.sizes: dict[int, Any] = {}  # by source: inputs that are symbolic ints
        self.outs: list[Tensor] = []  # functional tensors behind the graph's outputs
        self.whole: dict[int, fz.Base] = {}  # places among outs that stand for all of a base
        self.written: list[tuple[int, int]] = []
        self.reshaped: list[tuple[int, tuple[fz.Step, ...]]] = []

    def run(self) -> Joint:
        tracer = self.tracer
        wants = state.get_grad()
        self.wanted = [
            i for i in self.order if wants and getattr(self.sources[i], "requires_grad", False)
        ]
        fakes = [self._fake(self.sources[i]) for i in self.order]
        with modes_suspended(), tracing(tracer, "fake", self.decompositions, self.fake):
            names = [f"primals_{i + 1}" for i in range(len(fakes))]
            place_inputs(tracer, fakes, names)
            primals = list(tracer.graph.nodes)
            with fz.functional_mode():
                results, spec = self._forward(fakes)
                grown = [
                    i
                    for i, t in enumerate(self.outs)
                    if isinstance(t, Tensor) and t.requires_grad and t.grad_fn is not None
                ]
                spent = [i for i in grown if _is_spent(self.outs[i].grad_fn)]
                carrying = [i for i in grown if i not in spent]
                outputs = [self._node(t, self.whole.get(i)) for i, t in enumerate(self.outs)]
                tangents, gradients = self._backward(carrying)
            # The backward may still have read an output's final value: nodes are looked up first.
            tracer.graph.output((*outputs, *gradients))
        return Joint(
            tracer.graph, tracer.attributes, primals, tangents, outputs, gradients, results, spec,
            self.written, self.reshaped, carrying, self.wanted if carrying else [], fakes,
            self.bases, self.order if self.bases else None, spent,
        )  # fmt: skip

    def _fake(self, t: Tensor) -> Any:
        """A fake tensor with a storage cell of its own, outside every graph; sizes as they are."""
        if not isinstance(t, Tensor):
            return t
        cell = _native.UntypedStorage.fake(t.untyped_storage().nbytes(), t.device)
        made = _native.wrap(FakeTensor, cell, t.dtype, t.shape, t.stride(), t.storage_offset())
        made.fake_mode = self.fake
        made._is_wrapped_number = t._is_wrapped_number
        return made

    def _present(self, fakes: list[Any]) -> list[Tensor]:
        """What the program is called with: functional tensors for sources, views for members."""
        for i, f in zip(self.order, fakes, strict=True):
            if not isinstance(f, Tensor):
                self.sizes[i] = f
                continue
            leaf = fz.wrap(f)
            if i in self.wanted:
                leaf.requires_grad = True
            self.leaves[i] = leaf
            plain = self.sources[i].is_leaf or i not in self.wanted
            self.given[i] = leaf if plain else _recorded(leaf)
        n = len(self.inputs)
        for k, base in enumerate(self.bases):
            whole = self.given[n + k]
            for i in base.members:
                t = self.inputs[i]
                if t is self.sources[n + k]:
                    self.given[i] = whole
                else:
                    place = (tuple(t.shape), t.stride(), t.storage_offset())
                    self.given[i] = aten.as_strided(whole, *place)
        return [self.given[i] if i in self.given else self.sizes[i] for i in range(n)]

    def _forward(self, fakes: list[Any]) -> tuple[list[Output], Any]:
        presented = self._present(fakes)
        shapes = {i: len(fz.info(t).steps) for i, t in self.given.items()}
        returned = self.fn(*presented)
        flat, spec = pytree.tree_flatten(returned)
        for i, t in self.given.items():
            asked = t.requires_grad and t.grad_fn is None and i not in self.wanted
            if asked and i < len(self.inputs) and not self.inputs[i].requires_grad:
                raise Unsupported(f"the program makes input {i} require gradients")
        results = self._results(flat)
        for i in range(len(self.inputs)):
            if i in self.sizes:
                continue
            more = fz.info(self.given[i]).steps[shapes[i] :]
            if more:
                if self.given[i].requires_grad:
                    raise Unsupported(f"the program changes the geometry of input {i} in place")
                self.reshaped.append((i, self._seen(more).steps))
        for i in self.order:
            if i in self.sizes:
                continue
            t = self.given[i]
            if fz.info(t).base.generation:
                self.written.append((i, len(self.outs)))
                if fz.info(t).steps:
                    self.whole[len(self.outs)] = fz.info(t).base
                self.outs.append(t)
        return results, spec

    def _results(self, flat: list[Any]) -> list[Output]:
        if any(map(is_made_of_others, flat)):
            raise MadeOfOthers
        values = [fz.wrap(v) if isinstance(v, Tensor) else v for v in flat]
        showing: dict[int, list[Tensor]] = {}
        for v in values:
            if isinstance(v, Tensor):
                known = showing.setdefault(id(fz.info(v).base), [])
                if not any(v is k for k in known):
                    known.append(v)
        return [self._result(v, showing) for v in values]

    def _result(self, v: Any, showing: dict[int, list[Tensor]]) -> Output:
        if is_number(v):
            return Output(slot=self._place(v))
        if not isinstance(v, Tensor):
            return Output(constant=v)
        for i in range(len(self.inputs)):
            if v is self.given.get(i):
                return Output(source=i)
        f = fz.info(v)
        for i in self.order:
            if i in self.sizes:
                continue
            leaf = fz.info(self.leaves[i])
            if f.base is leaf.base:
                return self._seen(f.steps, source=i)
        several = showing[id(f.base)]
        if len(several) > 1 and f.steps:  # views of one value stay views of one value
            root = v._base
            if root is None or fz.info(root).steps or fz.info(root).base is not f.base:
                root = next((k for k in several if not fz.info(k).steps), None)
            if root is not None and (root.requires_grad or not v.requires_grad):
                return self._seen(f.steps, slot=self._place(root))
        return Output(slot=self._place(v))

    def _seen(self, steps: tuple[fz.Step, ...], **of: int) -> Output:
        """A view of a source or slot; sizes among the views' arguments become outputs."""
        shown = [fz.Step(s.op, self._with_slots(s.rest), s.index) for s in steps]
        sized = any(_has_slots(s.rest) for s in shown)
        return Output(steps=tuple(shown) if sized else steps, sized=sized, **of)

    def _with_slots(self, v: Any) -> Any:
        if is_number(v):
            return Slot(self._place(v))
        return type(v)(map(self._with_slots, v)) if type(v) in (list, tuple) else v

    def _place(self, t: Any) -> int:
        for place, known in enumerate(self.outs):
            if known is t:
                return place
        self.outs.append(t)
        return len(self.outs) - 1

    def _node(self, t: Any, whole: fz.Base | None) -> Any:
        if is_number(t):
            return self.tracer.argument(t)
        with fz.inside():
            value = fz.sync(t) if whole is None else whole.value
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
        node = tangents[0]
        while node is not tracer.graph._root:
            if (op := op_of(node)) is not None and op.decl.random:
                node.meta[IN_BACKWARD] = True
            node = node.next
        return tangents, [None if g is None else self._node(g, None) for g in found]


def _has_slots(v: Any) -> bool:
    return isinstance(v, Slot) or (isinstance(v, (list, tuple)) and any(map(_has_slots, v)))


def _is_spent(node: Any) -> bool:
    """Whether a backward pass of the program itself has freed what this history would need."""
    seen, stack = set(), [node]
    while stack:
        n = stack.pop()
        if n is None or id(n) in seen or not isinstance(n, _native.Node):
            continue
        if n.released:
            return True
        seen.add(id(n))
        stack.extend(target for target, _ in n.edges)
    return False


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


def _environment(inputs: Sequence[Any]) -> Any:
    """The shape environment of inputs with symbolic sizes."""
    for v in inputs:
        if isinstance(v, FakeTensor) and v.fake_mode.shape_env is not None:
            return v.fake_mode.shape_env
        if is_number(v):
            return v.node.shape_env
    return None


class MadeOfOthers(Exception):
    """A result is of a user's class: the trace must be one that takes such tensors apart."""


def is_made_of_others(t: Any) -> bool:
    """Whether a tensor is of a class of users' that says how it is made of others."""
    return isinstance(t, Tensor) and type(t) is not Tensor and is_made_of(type(t))


def check_inputs(inputs: Sequence[Tensor]) -> None:
    """Refuse tensors with layers of their own: what these do cannot be traced beneath them."""
    for i, t in enumerate(inputs):
        if not isinstance(t, Tensor):
            continue
        bits = t._bits & ~(state.get_suspended() & state.FUNCTION)
        if bits & ~state.DISPATCH or (bits and not isinstance(t, FakeTensor)):
            raise Unsupported(f"input {i} is a {type(t).__name__} with layers of its own")


def shared_cells(inputs: Sequence[Tensor]) -> tuple[tuple[int, ...], ...]:
    """The groups of inputs that share a storage cell."""
    cells: dict[int, list[int]] = {}
    for i, t in enumerate(inputs):
        if isinstance(t, Tensor) and hinted((t.numel(),))[0]:
            cells.setdefault(id(t.untyped_storage()), []).append(i)
    if len(cells) == len(inputs):
        return ()
    return tuple(tuple(group) for group in cells.values() if len(group) > 1)


def sharing(inputs: Sequence[Tensor]) -> tuple[Any, ...]:
    """How inputs share their bytes, as a key: who does, and where in them."""
    return tuple(
        (group, inputs[group[0]].untyped_storage().nbytes(), tuple(map(_within, members)))
        for group in shared_cells(inputs)
        if (members := [inputs[i] for i in group])
    )


def _within(t: Tensor) -> tuple[Any, ...]:
    root = t._base
    if root is None or not t.requires_grad:
        return (t.storage_offset(),)
    return (t.storage_offset(), tuple(root.shape), root.stride(), root.storage_offset())


def _base_for(members: tuple[int, ...], inputs: Sequence[Tensor]) -> Base:
    tensors = [inputs[i] for i in members]
    if len({t.dtype for t in tensors}) > 1:
        raise Unsupported(f"inputs {members} show the same bytes as different dtypes")
    if not any(t.requires_grad for t in tensors):
        return Base(members, False)
    roots = {id(t if t._base is None else t._base) for t in tensors}
    root = tensors[0] if tensors[0]._base is None else tensors[0]._base
    if len(roots) > 1 or not root._contiguous():
        raise Unsupported(f"inputs {members} share bytes that are written, and require gradients")
    return Base(members, True)


def trace_joint(
    fn: Callable[..., Any], inputs: Sequence[Tensor], decompositions: Any = None
) -> Joint:
    """The joint graph of `fn(*inputs)`; which inputs require gradients decides what is derived.

    Raises Unsupported for what has no such graph.
    """
    check_inputs(inputs)
    joint = JointTrace(fn, inputs, decompositions).run()
    groups = shared_cells(inputs)
    written = {i for i, _ in joint.written}
    shared = [g for g in groups if written & set(g)]
    if shared and any(isinstance(t, Tensor) and t._sym is not None for t in inputs):
        joint.apart = True
    elif shared:
        bases = [_base_for(g, inputs) for g in shared]
        joint = JointTrace(fn, inputs, decompositions, bases).run()
    return joint
