"""A graph as a function: printed and executed (fast), or node by node (says which one failed)."""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable, Mapping
from typing import Any

from flambeau._src.ir import provenance
from flambeau._src.ir.graph import Graph
from flambeau._src.ir.node import Node, map_arg
from flambeau._src.ops.overload import OperatorNamespace, OpOverload, OpOverloadPacket

__all__ = ["NodeFailed", "attribute", "printed", "stepwise"]

_number = itertools.count()
_KEPT = ("stack_trace", "nn_module_stack", "source_fn_stack", "custom", "seq_nr")


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


class _Bound:
    """`torch` as a printed graph reads it, with other callables in the place of overloads: what
    `bind` gives for one, where it gives something."""

    def __init__(self, real: Any, bind: Callable[[OpOverload], Any]) -> None:
        self._real, self._bind = real, bind

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        if isinstance(found, OpOverload):
            found = self._bind(found) or found
        elif name == "ops" or isinstance(found, (OperatorNamespace, OpOverloadPacket)):
            found = _Bound(found, self._bind)
        self.__dict__[name] = found
        return found


def printed(
    graph: Graph, attributes: Mapping[str, Any], bind: Callable[[OpOverload], Any] | None = None
) -> Callable[..., Any]:
    """The graph as a Python function of its inputs.

    `bind` may name another callable for an overload that the graph calls.
    """
    code = graph.python_code("self")
    file = f"<graph {next(_number)}>"
    linecache.cache[file] = (len(code.src), None, code.src.splitlines(True), file)
    scope = dict(code.globals)
    if bind is not None and "torch" in scope:
        scope["torch"] = _Bound(scope["torch"], bind)
    exec(compile(code.src, file, "exec", dont_inherit=True), scope)
    function: Callable[..., Any] = scope["forward"].__get__(_Attributes(attributes))
    return function


def stepwise(graph: Graph, attributes: Mapping[str, Any]) -> Callable[..., Any]:
    """The graph as a function that runs it node by node; what a trace records keeps its origin.

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
                    values[node] = _result(node, attributes, get)
                except Exception as error:
                    raise NodeFailed(node, error) from error
                for n in last[node]:
                    del values[n]
        return None

    return run


def _result(node: Node, attributes: Mapping[str, Any], get: Callable[[Node], Any]) -> Any:
    if node.op == "get_attr":
        return attribute(attributes, str(node.target))
    args, kwargs = map_arg(node.args, get), map_arg(node.kwargs, get)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    called = node.op == "call_module"
    target: Any = attribute(attributes, str(node.target)) if called else node.target
    return target(*args, **kwargs)
