"""`torch._dynamo.export`: a function captured from bytecode as one module of torch functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from flambeau._src.compiler.api import Recipe
from flambeau._src.compiler.errors import UserError, UserErrorType
from flambeau._src.core.slots import slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.export import trace
from flambeau._src.export.calling import ExportCodeGen
from flambeau._src.ir.graph import Graph
from flambeau._src.ir.node import Node
from flambeau._src.util import pytree

__all__ = ["ExportResult", "capture_whole", "export"]


class ExportResult(NamedTuple):
    """The module, and the guards under which it stands for the function."""

    graph_module: Any
    guards: Any


class _Seen:
    """A back end that keeps its graph, its inputs and what it returned."""

    def __init__(self) -> None:
        self.module: Any = None
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []

    def __call__(self, gm: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        self.module = gm

        def run(*inputs: Any) -> Any:
            self.inputs = list(inputs)
            self.outputs = list(map(_told_apart, gm.forward(*inputs)))
            return self.outputs

        return run


class _Int(int):
    """A number that the graph gives: no other object is it."""


class _Float(float):
    """The same of floats."""


def _told_apart(value: Any) -> Any:
    if type(value) is int:
        return _Int(value)
    return _Float(value) if type(value) is float else value


_MARK = "_dynamo_weak_dynamic_indices"


@contextmanager
def _open_sizes(values: Any) -> Iterator[None]:
    """Within it the sizes of these tensors are symbols, unless the program needs to know them."""
    tensors = [t for t in pytree.tree_leaves(values) if isinstance(t, Tensor)]
    before = [t.__dict__.get(_MARK) for t in tensors]
    for t in tensors:
        t.__dict__[_MARK] = {*(t.__dict__.get(_MARK) or ()), *range(t.dim())}
    try:
        yield
    finally:
        for t, marks in zip(tensors, before, strict=True):
            if marks is None:
                t.__dict__.pop(_MARK, None)
            else:
                t.__dict__[_MARK] = marks


def capture_whole(
    f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], symbolic: bool = False
) -> tuple[_Seen, Any, Any]:
    """Run f captured in one graph: what was seen, the compiler, and f's result. `symbolic`: for
    all sizes of the arguments that f treats alike.

    Raises what `compile(fullgraph=True)` raises where that cannot be.
    """
    seen = _Seen()
    compiled = Recipe(seen, fullgraph=True)(f)
    with _open_sizes((args, kwargs) if symbolic else ()):
        result = compiled(*args, **kwargs)
    return seen, compiled.compiler(), result  # type: ignore[attr-defined]


def export(
    f: Callable[..., Any], *extra_args: Any, aten_graph: bool = False, pre_dispatch: bool = False,
    decomposition_table: Any = None, tracing_mode: str = "symbolic", dynamic_shapes: Any = None,
    specialize_float: bool = True, assume_static_by_default: bool = False,
    same_signature: bool = True, disable_constraint_solver: bool = False,
    prefer_deferred_runtime_asserts_over_guards: bool = False, **extra_kwargs: Any,
) -> Any:  # fmt: skip
    """`export(f)(*args)`: f as one graph module that is called as f is.

    Args:
        f: a function or module.
        tracing_mode: "symbolic": for all sizes of the arguments that f treats alike; others: for
            those of the example, as with assume_static_by_default.
        aten_graph: of operators instead of torch functions.
        decomposition_table: with aten_graph, functions to trace in place of operators.
        same_signature: the module takes f's arguments; False: the graph's own inputs.

    Raises:
        Unsupported: f cannot be captured in one graph. UserError: no operator on tensors in it.
    """

    def inner(*args: Any, **kwargs: Any) -> ExportResult:
        symbolic = tracing_mode == "symbolic" and not assume_static_by_default
        seen, compiler, result = capture_whole(f, args, kwargs, symbolic)
        if seen.module is None:
            raise UserError(UserErrorType.ANTI_PATTERN, "The function has no operator on tensors.")
        guards = [g for e in compiler.entries for g in e.guards]
        graph, attributes = seen.module.graph, _members(seen.module)
        graph, attributes = _unlifted(f, graph, attributes, seen, args, kwargs)
        if aten_graph:
            graph, attributes = _operators(graph, attributes, args, kwargs, decomposition_table)
        if same_signature:
            _signature(f, graph, seen, args, kwargs, result)
        return ExportResult(slot("graph_module")(attributes, graph, "GraphModule"), guards)

    return inner(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else inner


def _members(module: Any) -> dict[str, Any]:
    names = [str(n.target) for n in module.graph.nodes if n.op in ("get_attr", "call_module")]
    return {name: getattr(module, name) for name in names}


def _unlifted(
    f: Any, graph: Graph, attributes: dict[str, Any], seen: _Seen, args: Any, kwargs: Any
) -> tuple[Graph, dict[str, Any]]:
    """The graph with an input for each of the user's leaves, in their order; what else it took
    (parameters, buffers, tensors of closures) is read from the module."""
    leaves = pytree.tree_leaves((args, kwargs))
    held = {}
    if hasattr(f, "named_modules"):
        held = {id(h.value): h.name for h in trace.held_tensors(f)}
    out, users = Graph(), {}
    for i, leaf in enumerate(leaves):
        users[id(leaf)] = out.placeholder(f"arg{i}")
    new: dict[Node, Node] = {}
    holders = [n for n in graph.nodes if n.op == "placeholder"]
    for node, value in zip(holders, seen.inputs, strict=True):
        user = users.get(id(value))
        if user is None:
            name = held.get(id(value), node.name)
            attributes[name] = value
            user = out.get_attr(name)
        user.meta.update(node.meta)
        new[node] = user
    for node in graph.nodes:
        if node.op != "placeholder":
            new[node] = out.node_copy(node, new.__getitem__)
    return out, attributes


def _operators(
    graph: Graph, attributes: dict[str, Any], args: Any, kwargs: Any, table: Any
) -> tuple[Graph, dict[str, Any]]:
    module = slot("graph_module")(attributes, graph, "GraphModule")
    leaves = pytree.tree_leaves((args, kwargs))
    places = [n for n in graph.nodes if n.op == "placeholder"]
    leaves = [n.meta.get("val", v) for n, v in zip(places, leaves, strict=True)]
    tracer = trace.operators(module.forward, leaves, [f"arg{i}" for i in range(len(leaves))], table)
    return tracer.graph, tracer.attributes


def _signature(
    f: Any, graph: Graph, seen: _Seen, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> None:
    """Make the graph take f's arguments, and return what f returned, nested as it was."""
    leaves, in_spec = pytree.tree_flatten((args, kwargs))
    inputs = {id(v): n for v, n in zip(leaves, graph.nodes, strict=False)}
    end = graph.output_node()
    outputs = {id(v): n for v, n in zip(seen.outputs, end.args[0], strict=True)}
    flat, out_spec = pytree.tree_flatten(result)

    def node_of(value: Any) -> Any:
        if not isinstance(value, (Tensor, _Int, _Float)):
            return value
        found = outputs.get(id(value)) or inputs.get(id(value))
        if found is None:
            raise UserError(
                UserErrorType.INVALID_OUTPUT,
                "A tensor among the results is neither computed in the graph nor an argument.",
            )
        return found

    end.args = ([node_of(v) for v in flat],)
    callee = f.forward if hasattr(f, "named_modules") else f
    names = list(inspect.signature(callee).bind(*args).arguments)
    graph.set_codegen(ExportCodeGen([*names, *kwargs], in_spec, out_spec))
