"""A graph as a function: printed and executed (fast), or node by node (says which one failed)."""

from __future__ import annotations

import itertools
import linecache
import re
from collections.abc import Callable, Mapping
from typing import Any

from flambeau._src.ir import provenance
from flambeau._src.ir.graph import Graph
from flambeau._src.ir.node import Node, map_arg
from flambeau._src.ops.overload import OpOverload

__all__ = ["NodeFailed", "attribute", "printed", "stepwise"]

_number = itertools.count()
_KEPT = ("stack_trace", "nn_module_stack", "source_fn_stack", "custom", "seq_nr")
_AS_THEY_ARE: Mapping[Any, Callable[..., Any]] = {}


class NodeFailed(Exception):
    """An operation of a graph raised: `node` is where, `__cause__` what."""

    def __init__(self, node: Node, error: Exception) -> None:
        super().__init__(f"{node.format_node()}: {type(error).__name__}: {error}")
        self.node = node


class _Attributes:
    """What a printed graph reads as `self.name`; dotted names nest."""

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        for name, value in attributes.items():
            here = self
            *path, last = name.split(".")
            for part in path:
                here = here.__dict__.setdefault(part, _Attributes({}))
            here.__dict__[last] = value


def attribute(attributes: Mapping[str, Any], name: str) -> Any:
    """The value at a dotted name."""
    if name in attributes:
        return attributes[name]
    first, _, rest = name.partition(".")
    found = attributes[first]
    for part in rest.split("."):
        found = getattr(found, part)
    return found


def _bound(text: str, scope: dict[str, Any], bind: Callable[[OpOverload], Any]) -> str:
    """The text with other callables in the place of overloads, as globals of `scope`: what `bind`
    gives for one, where it gives something."""

    def named(found: re.Match[str]) -> str:
        overload: Any = scope["torch"]
        for part in found[0].split(".")[1:]:
            overload = getattr(overload, part)
        other = bind(overload) if isinstance(overload, OpOverload) else None
        if other is None:
            return found[0]
        name = found[0].replace(".", "_")
        scope[name] = other
        return name

    return re.sub(r"\btorch\.ops(?:\.\w+){3}", named, text)


def printed(
    graph: Graph, attributes: Mapping[str, Any], bind: Callable[[OpOverload], Any] | None = None
) -> Callable[..., Any]:
    """The graph as a Python function of its inputs.

    `bind` may name another callable for an overload that the graph calls.
    """
    code = graph.python_code("self")
    file = f"<graph {next(_number)}>"
    scope, text = dict(code.globals), code.src
    if bind is not None and "torch" in scope:
        text = _bound(text, scope, bind)
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    exec(compile(text, file, "exec", dont_inherit=True), scope)
    function: Callable[..., Any] = scope["forward"].__get__(_Attributes(attributes))
    return function


def stepwise(
    graph: Graph, attributes: Mapping[str, Any],
    calls: Mapping[Any, Callable[..., Any]] = _AS_THEY_ARE,
) -> Callable[..., Any]:  # fmt: skip
    """The graph as a function that runs it node by node; what a trace records keeps its origin.

    `calls` names other callables for targets of calls.

    Raises NodeFailed around what an operation raises.
    """
    nodes = list(graph.nodes)
    last: dict[Node, list[Node]] = {}
    seen: set[Node] = set()
    for node in reversed(nodes):
        fresh = [n for n in node.all_input_nodes if n not in seen]
        seen.update(fresh)
        last[node] = fresh

    def run(*inputs: Any) -> Any:
        values: dict[Node, Any] = {}
        given = iter(inputs)
        get = values.__getitem__
        current = provenance.current
        with provenance.preserving():
            for node in nodes:
                if node.op == "placeholder":
                    values[node] = next(given)
                    continue
                if node.op == "output":
                    return map_arg(node.args[0], get)
                current.meta = {k: node.meta[k] for k in _KEPT if k in node.meta}
                try:
                    values[node] = _result(node, attributes, get, calls)
                except Exception as error:
                    raise NodeFailed(node, error) from error
                for n in last[node]:
                    del values[n]
        return None

    return run


def _result(
    node: Node, attributes: Mapping[str, Any], get: Callable[[Node], Any],
    calls: Mapping[Any, Callable[..., Any]],
) -> Any:  # fmt: skip
    if node.op == "get_attr":
        return attribute(attributes, str(node.target))
    args, kwargs = map_arg(node.args, get), map_arg(node.kwargs, get)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    called = node.op == "call_module"
    target: Any = (
        attribute(attributes, str(node.target)) if called else calls.get(node.target, node.target)
    )
    return target(*args, **kwargs)
