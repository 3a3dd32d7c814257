"""Tracing: the operators that reach the kernels become the nodes of a `Graph`.

`ProxyTorchDispatchMode` stands just above fake tensors. Every tensor it has seen is known to a
`GraphTracer` by identity; tensors it has not seen enter the graph as attributes.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from flambeau._src import _native
from flambeau._src.core import state
from flambeau._src.core.slots import fill
from flambeau._src.core.symint import SymBool, SymFloat, SymInt
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp.dispatch_mode import (
    FAKE_KEY,
    PROXY_KEY,
    TorchDispatchMode,
    infra_mode,
    infra_suspended,
    modes_suspended,
    pop_mode,
    push_mode,
    shown_arguments,
)
from flambeau._src.interp.fake import FakeTensor, FakeTensorMode
from flambeau._src.interp.record import dissolved
from flambeau._src.interp.size_nodes import SizeNodes
from flambeau._src.ir import provenance
from flambeau._src.ir.graph import Graph
from flambeau._src.ir.node import Node
from flambeau._src.ops.call import ALL, aten, dispatch
from flambeau._src.ops.op import Op, packet
from flambeau._src.ops.overload import overload_of
from flambeau._src.ops.tags import DATA_DEPENDENT

__all__ = [
    "GraphTracer",
    "ProxyTorchDispatchMode",
    "get_proxy_mode",
    "snapshot",
    "trace_flat",
    "tracing",
]

_CONSTANT_NUMEL = 1
_NO_VALUE = (
    "It appears that you're trying to get value out of a tracing tensor with {} - erroring out! "
    "It's likely that this is caused by data-dependent control flow or similar.  It may be "
    "possible to trace this with dynamic shapes; try setting tracing_mode='symbolic' in your "
    "make_fx call."
)


def snapshot(t: Tensor, mode: FakeTensorMode) -> FakeTensor:
    """The geometry that t has now, as a fake tensor (later in-place changes of it do not show)."""
    kept: FakeTensor
    if isinstance(t, FakeTensor):
        kept = _native.alias(FakeTensor, t)
        kept.fake_mode = t.fake_mode
        return kept
    cell = _native.UntypedStorage.fake(t.untyped_storage().nbytes(), t.device)
    kept = _native.wrap(FakeTensor, cell, t.dtype, t.shape, t.stride(), t.storage_offset())
    kept.fake_mode = mode
    return kept


class _Seen:
    """What the tracer knows of a tensor: its node, and its value when that is fixed."""

    __slots__ = ("ref", "node", "constant")

    def __init__(self, ref: Any, node: Node, constant: Any) -> None:
        self.ref, self.node, self.constant = ref, node, constant


class GraphTracer:
    """A graph being recorded: nodes by tensor, and the attributes that nodes read."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.attributes: dict[str, Any] = {}
        self._seen: dict[int, _Seen] = {}
        self._attribute_names: dict[int, str] = {}
        self._mode: FakeTensorMode | None = None
        self.sizes = SizeNodes(self.create)
        #: Composites that are recorded whole.
        self.kept: frozenset[Any] = frozenset()
        #: Called with every node and the tensor it stands for.
        self.on_track: Callable[[Node, Tensor], None] | None = None

    def fake_mode(self) -> FakeTensorMode:
        """The mode of the fake tensors in `meta["val"]`."""
        if self._mode is None:
            self._mode = infra_mode(FAKE_KEY) or FakeTensorMode()
        return self._mode

    # ---- what is known ----

    def seen(self, t: Tensor) -> _Seen | None:
        """What is known of a tensor, or None."""
        found = self._seen.get(id(t))
        return found if found is not None and found.ref() is t else None

    def node_of(self, t: Tensor) -> Node | None:
        """The node that stands for a tensor, or None."""
        found = self.seen(t)
        return None if found is None else found.node

    def track(self, t: Tensor, node: Node, constant: Any = None) -> None:
        """From now on `node` stands for t."""
        self._seen[id(t)] = _Seen(weakref.ref(t), node, constant)
        if t._sym is not None:
            self.sizes.know(t, node)
        if "val" not in node.meta:
            node.meta["val"] = snapshot(t, self.fake_mode())
            if self.on_track is not None:
                self.on_track(node, t)

    def track_tree(self, value: Any, node: Node, constant: Any = None) -> None:
        """The results of an operator: items of a list or tuple get a node of their own."""
        if isinstance(value, Tensor):
            self.track(value, node, constant)
        elif isinstance(value, (list, tuple)):
            mode = self.fake_mode()
            node.meta["val"] = type(value)(
                [snapshot(v, mode) if isinstance(v, Tensor) else v for v in value]
            )
            for i, v in enumerate(value):
                if isinstance(v, (Tensor, list, tuple)):
                    item = self.create("call_function", operator.getitem, (node, i), {}, "getitem")
                    self.track_tree(v, item, None if constant is None else constant[i])
        elif value is not None:
            node.meta["val"] = value
            if isinstance(value, (SymInt, SymFloat, SymBool)):
                self.sizes.bind(value, node)

    # ---- nodes ----

    def create(
        self,
        op: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
    ) -> Node:
        """A new node, with where it comes from in its meta."""
        node = self.graph.create_node(op, target, args, kwargs, name)
        current = provenance.current
        if current.preserve:
            node.meta.update(current.meta)
        return node

    def attribute(self, value: Any, prefix: str) -> Node:
        """A node that reads `value` from the module."""
        name = self._attribute_names.get(id(value))
        if name is None:
            number = 0
            while f"{prefix}{number}" in self.attributes:
                number += 1
            name = self._attribute_names[id(value)] = f"{prefix}{number}"
            self.attributes[name] = value
        return self.create("get_attr", name, (), {})

    def argument(self, v: Any) -> Any:
        """A value as a node's argument."""
        if isinstance(v, Tensor):
            found = self.seen(v)
            if found is not None:
                return found.node
            if v._bits & state.GEOMETRY:
                return self._stand_in(v)
            if v._is_wrapped_number and not v._bits:
                return v.item()
            param = type(v).__name__ == "Parameter" or getattr(v, "_is_param", False)
            node = self.attribute(v, "_param_constant" if param else "_tensor_constant")
            node.meta["val"] = snapshot(v, self.fake_mode())
            return node
        if isinstance(v, (list, tuple)):
            items = [self.argument(x) for x in v]
            return (
                items
                if type(v) is list
                else type(v)(*items)
                if hasattr(v, "_fields")
                else tuple(items)
            )
        if isinstance(v, dict):
            return {k: self.argument(x) for k, x in v.items()}
        if isinstance(v, (SymInt, SymFloat, SymBool)):
            return self.sizes.node(v)
        return v

    def _stand_in(self, t: Tensor) -> Node:
        """A tensor of which only the shape was kept: unset bytes of that geometry."""
        options = {"dtype": t.dtype, "device": t.device}
        target = overload_of(packet("empty_strided").ops[0])
        node = self.create(
            "call_function",
            target,
            self.argument((list(t.shape), list(t.stride()))),
            options,
            "empty_strided",
        )
        node.meta["val"] = snapshot(t, self.fake_mode())
        return node

    def output(self, value: Any) -> Node:
        """End the graph."""
        return self.graph.output(self.argument(value))


class ProxyTorchDispatchMode(TorchDispatchMode):
    """Records every operator that reaches it and runs it beneath.

    decomposition_table   functions that are run in place of an operator, by overload
    """

    __module__ = "flambeau.fx.experimental.proxy_tensor"
    _mode_key = PROXY_KEY

    def __init__(
        self, tracer: GraphTracer, tracing_mode: str = "real", decomposition_table: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.tracer = tracer
        self.tracing_mode = tracing_mode
        self.decompositions: dict[Any, Callable[..., Any]] = dict(decomposition_table or {})
        self.enable_tracing = True
        self._outer: list[Any] = []

    def __enter__(self) -> ProxyTorchDispatchMode:
        outer = infra_mode(PROXY_KEY)
        if outer is not None:
            pop_mode(PROXY_KEY)
        self._outer.append(outer)
        push_mode(self)
        state.thread.trace = [*state.thread.trace, self]
        return self

    def __exit__(self, *error: object) -> None:
        state.thread.trace = state.thread.trace[:-1]
        pop_mode(PROXY_KEY)
        outer = self._outer.pop()
        if outer is not None:
            push_mode(outer)

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return self.run_op(func._op, func._bound(args, kwargs or {}))

    def run_higher_order(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The operator's own rule for tracing."""
        return op.trace(self, *args, **kwargs)

    def run_op(self, op: Op, args: tuple[Any, ...]) -> Any:
        """Record one operator."""
        if not self.enable_tracing:
            return dispatch(op, args)
        tracer = self.tracer
        tensors = list(_flat(args))
        for t in tensors:
            if type(t) is not Tensor and not _plain(t) and tracer.seen(t) is None:
                return NotImplemented
        if self.decompositions:
            table = self.decompositions.get(overload_of(op))
            if table is not None:
                shown, kwargs = shown_arguments(op, args)
                with self:
                    result = table(*shown, **kwargs)
                if result is not NotImplemented:
                    return result
        if op.decl.level == "composite" and overload_of(op) not in tracer.kept:
            with self, state.Resumed(state.DISPATCH | state.COMPOSITE):
                return dissolved(op, args)
        return self._record(op, args, tensors)

    def _record(self, op: Op, args: tuple[Any, ...], tensors: list[Tensor]) -> Any:
        tracer = self.tracer
        constants = _constants(tracer, tensors)
        if op.base.name in DATA_DEPENDENT:
            if constants is not None:
                return _on_values(op, args, constants)
            if self.tracing_mode == "real" and op.base.name != "equal":
                raise RuntimeError(_NO_VALUE.format(overload_of(op)))
        if op.name == "lift_fresh":
            op = packet("lift_fresh_copy").ops[0]
        shown, kwargs = shown_arguments(op, args)
        node_args = tracer.argument(shown)
        node_kwargs = {k: tracer.argument(v) for k, v in kwargs.items()}
        node = tracer.create(
            "call_function",
            overload_of(op),
            node_args,
            node_kwargs,
            tracer.graph._target_to_str(op.name),
        )
        if op.name.endswith("_") and not op.name.endswith("__") and isinstance(args[0], Tensor):
            tracer._seen[id(args[0])] = _Seen(weakref.ref(args[0]), node, None)
        result = dispatch(op, args)
        constant = None
        if op.name == "lift_fresh_copy" and tracer.node_of(tensors[0]) is None:
            with modes_suspended(), state.Suspended(ALL & ~state.COMPOSITE):
                constant = args[0].detach().clone()
        elif (
            constants is not None
            and _small(result)
            and not op.schema.mutates
            and not op.decl.random
        ):
            constant = _on_values(op, args, constants)
        tracer.track_tree(result, node, constant)
        return result


def _plain(t: Tensor) -> bool:
    """Whether t is of a class that the tracer may handle itself."""
    return not t._bits & state.DISPATCH or isinstance(t, FakeTensor)


def _flat(values: Any) -> Iterator[Tensor]:
    for v in values:
        if isinstance(v, Tensor):
            yield v
        elif isinstance(v, (list, tuple)):
            yield from _flat(v)


def _small(result: Any) -> bool:
    return all(t._sym is None and t.numel() <= _CONSTANT_NUMEL for t in _flat((result,)))


def _constants(tracer: GraphTracer, tensors: list[Tensor]) -> dict[int, Any] | None:
    """The fixed values of the tensors, by identity, when all are known."""
    values = {}
    for t in tensors:
        seen = tracer.seen(t)
        if seen is None or seen.constant is None:
            return None
        values[id(t)] = seen.constant
    return values or None


def _on_values(op: Op, args: tuple[Any, ...], values: dict[int, Any]) -> Any:
    def value(v: Any) -> Any:
        if isinstance(v, Tensor):
            return values[id(v)]
        return [value(x) for x in v] if isinstance(v, list) else v

    with modes_suspended(), state.Suspended(ALL & ~state.COMPOSITE):
        return dispatch(op, tuple(value(v) for v in args))


def get_proxy_mode() -> ProxyTorchDispatchMode | None:
    """The active tracing mode, or None."""
    found: ProxyTorchDispatchMode | None = infra_mode(PROXY_KEY)
    return found


def _step(name: str) -> Any:
    """The operator of that name if calls are being traced, else None."""
    mode = get_proxy_mode()
    return None if mode is None or not mode.enable_tracing else getattr(aten, name)


fill("generator.traced", _step)


@contextmanager
def tracing(
    tracer: GraphTracer, mode: str = "real", decompositions: Any = None, fake: Any = None
) -> Iterator[ProxyTorchDispatchMode]:
    """Operators called inside are recorded; with `fake` they run on fake tensors."""
    with ExitStack() as stack:
        if fake is not None:
            stack.enter_context(fake)
        yield stack.enter_context(ProxyTorchDispatchMode(tracer, mode, decompositions))


def place_inputs(tracer: GraphTracer, inputs: Sequence[Any], names: Sequence[str]) -> None:
    """A placeholder for each input; tensors among them are known from now on."""
    for value, name in zip(inputs, names, strict=True):
        node = tracer.graph.placeholder(name)
        if isinstance(value, Tensor):
            _announce(value)
            tracer.track(value, node)
        else:
            node.meta["val"] = value
            if isinstance(value, (SymInt, SymFloat)):
                tracer.sizes.bind(value, node)


def _announce(t: Tensor) -> None:
    """Modes outside a trace see how the geometry of a real input is noted."""
    if isinstance(t, FakeTensor) or not any(
        m._mode_key is None for m in state.thread.dispatch_modes
    ):
        return
    with infra_suspended(PROXY_KEY), FakeTensorMode():
        op = packet("empty_strided").ops[0]
        dispatch(op, (tuple(t.shape), tuple(t.stride()), t.dtype, None, t.device, False))


def trace_flat(
    fn: Callable[..., Any], inputs: Sequence[Any], names: Sequence[str] | None = None, *,
    mode: str = "real", decompositions: Any = None, fake: Any = None, on_track: Any = None,
) -> GraphTracer:  # fmt: skip
    """Trace `fn(*inputs)`, whose result is a list of values: a tracer with the finished graph."""
    tracer = GraphTracer()
    tracer.on_track = on_track
    names = [f"arg{i}_1" for i in range(len(inputs))] if names is None else names
    with tracing(tracer, mode, decompositions, fake):
        place_inputs(tracer, inputs, names)
        tracer.output(fn(*inputs))
    return tracer
