"""Operators that take functions: `cond` and `while_loop`.

With nothing to see them, they just run. Under a trace `cond` is one node over two graphs; modes are
handed the operator whole; gradients are another `cond`, over the gradients of the branches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from flambeau._src.util import pytree

__all__ = ["HigherOrderOperator", "cond", "cond_op", "while_loop"]

_IN_BRANCH = state.COMPOSITE | state.FUNCTIONALIZE  # a branch is run as a program of its own
_BELOW = state.DISPATCH | state.TRACE | state.FAKE | state.FUNCTIONALIZE


class HigherOrderOperator:
    """An operator whose arguments include functions. Rules: `run`, `fake`, `trace`, `record`."""

    __module__ = "torch._ops"

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

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"{self._name} has no rules")


class SubGraph:
    """A traced branch where no GraphModule is at hand: called node by node."""

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


class Cond(HigherOrderOperator):
    """`cond(pred, true_fn, false_fn, operands)`; the branches return tuples of tensors."""

    def __call__(self, pred: Any, true_fn: Any, false_fn: Any, operands: Sequence[Any]) -> Any:
        operands = tuple(operands)
        active = call_bits((pred, operands), {}, 0)
        if not active & _BELOW:
            return self.run(pred, true_fn, false_fn, operands)
        if active & state.RECORD and any(
            isinstance(t, Tensor) and t.requires_grad for t in operands
        ):
            return self.record(pred, true_fn, false_fn, operands)
        if active & state.FUNCTIONALIZE:
            with fz.inside():
                values = tuple(fz.unwrap(t) for t in operands)
                out = self(fz.unwrap(pred), _functional(true_fn), _functional(false_fn), values)
                return tuple(fz.wrap(t) if isinstance(t, Tensor) else t for t in out)
        handled = call_higher_order(self, (pred, true_fn, false_fn, operands), {})
        if handled is not NotImplemented:
            return handled
        if active & state.DISPATCH and any(hasattr(t, "fake_mode") for t in operands):
            return self.fake(pred, true_fn, false_fn, operands)
        return self.run(pred, true_fn, false_fn, operands)

    def run(self, pred: Any, true_fn: Any, false_fn: Any, operands: tuple[Any, ...]) -> Any:
        """The branch that the predicate picks."""
        return (true_fn if bool(pred) else false_fn)(*operands)

    def fake(self, pred: Any, true_fn: Any, false_fn: Any, operands: tuple[Any, ...]) -> Any:
        """Both branches on fake tensors; they must agree."""
        with state.Resumed(_IN_BRANCH):
            first, second = tuple(true_fn(*operands)), tuple(false_fn(*operands))
        _check_agree(first, second)
        return first

    def trace(
        self, mode: Any, pred: Any, true_fn: Any, false_fn: Any, operands: tuple[Any, ...]
    ) -> Any:
        """One node over two graphs, and the results of both branches checked on fake tensors."""
        tracer = mode.tracer
        nodes = []
        results = []
        for name, fn in (("true_graph", true_fn), ("false_graph", false_fn)):
            module, outs = _trace_branch(mode, fn, operands)
            results.append(outs)
            nodes.append(_attribute(tracer, name, module))
        _check_agree(*results)
        args = (tracer.argument(pred), *nodes, tracer.argument(tuple(operands)))
        node = tracer.create("call_function", self, args, {}, self._name)
        out = (
            results[0]
            if mode.tracing_mode != "real"
            else self.run(pred, true_fn, false_fn, operands)
        )
        tracer.track_tree(tuple(out), node)
        return tuple(out)

    def record(self, pred: Any, true_fn: Any, false_fn: Any, operands: tuple[Any, ...]) -> Any:
        """The operator beneath autograd, and a node whose backward is a `cond` as well."""
        tensors = [t for t in operands if isinstance(t, Tensor)]
        with state.Suspended(state.RECORD | state.COMPOSITE), state.Resumed(state.COMPOSITE):
            outs = tuple(self(pred, true_fn, false_fn, operands))
        wanted = [t.requires_grad for t in tensors]
        node = _native.node(
            CondBackward, _RULE, [t if w else None for t, w in zip(tensors, wanted, strict=True)]
        )
        carrying = [
            i
            for i, o in enumerate(outs)
            if isinstance(o, Tensor) and (o.dtype.is_floating_point or o.dtype.is_complex)
        ]
        node.num_outputs = len(carrying)
        node.args = tuple(
            _native.saved(t) if isinstance(t, Tensor) else t for t in (pred, *operands)
        )
        node.outs = tuple(_native.geometry(outs[i]) for i in carrying)
        node.ctx = (true_fn, false_fn, carrying)
        for nr, i in enumerate(carrying):
            outs[i]._set_history(node, nr, True)
        return outs


class _CondRule:
    """The operator of a cond's nodes (autograd's protocol)."""

    decl = None

    def __repr__(self) -> str:
        return "cond"

    def backward(self, node: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        """Gradients of the operands: a cond over the gradients of the branches."""
        true_fn, false_fn, carrying = node.ctx
        pred, *operands = node.unpack()
        like = node.unpack_outs()
        given = [
            aten.zeros(o.shape, dtype=o.dtype, device=o.device) if g is None else g
            for g, o in zip(grads, like, strict=True)
        ]
        wanted = [e is not None for e, _ in node.edges]
        n = len(operands)

        def of(fn: Callable[..., Any]) -> Callable[..., Any]:
            def gradients(*values: Any) -> Any:
                return _gradients(fn, values[:n], values[n:], wanted, carrying)

            return gradients

        results = iter(cond_op(pred, of(true_fn), of(false_fn), (*operands, *given)))
        return tuple(next(results) if w else None for w in wanted)


_RULE = _CondRule()
CondBackward = type(
    "CondAutogradOpBackward",
    (_native.Node,),
    {"__slots__": (), "__module__": "torch.autograd.function"},
)


def _gradients(
    fn: Callable[..., Any], operands: Any, grads: Any, wanted: list[bool], carrying: list[int]
) -> tuple[Any, ...]:
    """The vector-Jacobian product of a branch, for the tensors that want one."""
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
        pairs = [
            (outs[i], g) for i, g in zip(carrying, grads, strict=True) if outs[i].requires_grad
        ]
        found = engine.run(
            [edge_of(o) for o, _ in pairs], [g for _, g in pairs],
            inputs=[edge_of(t) for t in leaves], accumulate=False
        ) if pairs else [None] * len(leaves)  # fmt: skip
    return tuple(
        aten.zeros(t.shape, dtype=t.dtype, device=t.device) if g is None else g
        for g, t in zip(found, leaves, strict=True)
    )


def _functional(fn: Callable[..., Any]) -> Callable[..., Any]:
    return fz.functionalize(fn) if not isinstance(fn, SubGraph) else fn


def _trace_branch(
    mode: Any, fn: Callable[..., Any], operands: tuple[Any, ...]
) -> tuple[Any, tuple[Any, ...]]:
    """A branch as a module, and its results on fake tensors of the operands' geometry."""
    outer = mode.tracer
    inner = _BranchTracer(outer)
    fake = outer.fake_mode()

    values = [snapshot(t, fake) if isinstance(t, Tensor) else t for t in operands]
    with state.Resumed(_IN_BRANCH), tracing(inner, "fake", mode.decompositions, fake):
        place_inputs(inner, values, [f"arg{i}_1" for i in range(len(values))])
        outs = tuple(fn(*values))
        inner.output(outs)
    make = SLOTS.get("graph_module", SubGraph)
    return make(inner.attributes, inner.graph), outs


class _BranchTracer(GraphTracer):
    """The tracer of a branch: it refuses values of the program around it."""

    def __init__(self, outer: GraphTracer) -> None:
        super().__init__()
        self.outer = outer
        self._mode = outer.fake_mode()

    def argument(self, v: Any) -> Any:
        if isinstance(v, Tensor) and self.seen(v) is None and self.outer.node_of(v) is not None:
            raise RuntimeError(
                "a branch of cond uses a tensor of the program around it: pass it among the "
                "operands"
            )
        return super().argument(v)


def _attribute(tracer: GraphTracer, prefix: str, module: Any) -> Node:
    number = 0
    while f"{prefix}_{number}" in tracer.attributes:
        number += 1
    name = f"{prefix}_{number}"
    tracer.attributes[name] = module
    return tracer.create("get_attr", name, (), {})


def _check_agree(first: tuple[Any, ...], second: tuple[Any, ...]) -> None:
    if len(first) != len(second):
        raise RuntimeError(
            "Expected two return values of torch.cond to have the same number of outputs, but got "
            f"{len(first)} and {len(second)}"
        )
    for a, b in zip(first, second, strict=True):
        if not isinstance(a, Tensor) or not isinstance(b, Tensor):
            continue
        if a.dim() != b.dim():
            raise RuntimeError(
                "When merging two branches' output in torch.cond,  expected same dim but got "
                f"{a.dim()} and {b.dim()}"
            )
        for what, x, y in (
            ("dtype", a.dtype, b.dtype),
            ("shape", tuple(a.shape), tuple(b.shape)),
            ("device", a.device, b.device),
        ):
            if x != y:
                raise RuntimeError(
                    f"When merging two branches' output in torch.cond, expected same {what} but "
                    f"got {x} and {y}"
                )


cond_op = Cond("cond")


def _validate(pred: Any, true_fn: Any, false_fn: Any, operands: Any) -> None:
    if not isinstance(pred, (bool, int, Tensor)):
        raise RuntimeError(f"Expected pred to be bool or tensor, but got {pred}.")
    if isinstance(pred, Tensor) and pred.numel() != 1:
        raise RuntimeError(f"Expected pred to be bool or single-element tensor, but got {pred}.")
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("Expect both branches to be callable.")
    if not isinstance(operands, (tuple, list)):
        raise RuntimeError(
            "Expect operands to be a tuple of possibly nested dict/list/tuple that only consists "
            f"of tensor leaves, but got {operands}."
        )


def cond(
    pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()
) -> Any:
    """`true_fn(*operands)` where `pred` holds, else `false_fn(*operands)`.

    A traced program holds both branches. They must return the same structure of tensors of the same
    geometry, must not write their operands, and see no other tensors of the program when traced.

    Raises:
        RuntimeError: a predicate of several elements, branches that do not agree.
    """
    _validate(pred, true_fn, false_fn, operands)
    operands = tuple(operands)
    if not call_bits((pred, operands), {}, 0) & _BELOW or isinstance(pred, (bool, int)):
        return (true_fn if pred else false_fn)(*operands)
    leaves, spec = pytree.tree_flatten(operands)
    specs: list[Any] = []

    def flat(fn: Callable[..., Any]) -> Callable[..., Any]:
        def branch(*values: Any) -> tuple[Any, ...]:
            out = fn(*pytree.tree_unflatten(list(values), spec))
            items, out_spec = pytree.tree_flatten(out)
            specs.append(out_spec)
            return tuple(items)

        branch.__name__ = getattr(fn, "__name__", "branch")
        return branch

    outs = cond_op(pred, flat(true_fn), flat(false_fn), tuple(leaves))
    return pytree.tree_unflatten(list(outs), specs[0])


def while_loop(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Any
) -> Any:
    """`body_fn` on the carried values as long as `cond_fn` of them holds; the last values.

    Runs step by step; a trace cannot hold it. RuntimeError under a trace, or where the values'
    structure changes.
    """
    values = tuple(carried_inputs)
    if call_bits(values, {}, 0) & _BELOW & ~state.FUNCTIONALIZE:
        raise RuntimeError(
            "while_loop cannot be traced or run on fake tensors: its length depends on values"
        )
    _, spec = pytree.tree_flatten(values)
    while bool(cond_fn(*values)):
        out = body_fn(*values)
        values = tuple(out) if isinstance(out, (tuple, list)) else (out,)
        if pytree.tree_flatten(values)[1] != spec:
            raise RuntimeError("body_fn should return the same structure as carried_inputs")
    return values
