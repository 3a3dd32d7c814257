"""Numbers in graphs: sizes that nodes compute, written into the arguments and back into nodes.

Between tracing and the halves' programs a size is an argument (a symbolic int), not a node: views
and fresh tensors then depend on tensors only, and either half computes the sizes that it needs
from its own inputs. Numbers that only running tells (`.item()`) stay nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flambeau._src.compiler.extents import extents, is_number, symbols_of
from flambeau._src.core.symint import SymInt
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp.size_nodes import SizeNodes
from flambeau._src.ir.graph import Graph
from flambeau._src.ir.node import Node, map_arg

__all__ = ["as_nodes", "given_by", "inline", "needed_by", "symbolic"]


def symbolic(graph: Graph) -> bool:
    """Whether a graph has sizes that are no numbers."""
    return any(_symbols(n.meta.get("val")) for n in graph.nodes if n.op == "placeholder") or any(
        is_number(n.meta.get("val")) for n in graph.nodes
    )


def _symbols(val: Any) -> frozenset[str]:
    """The names in a value: a number's expression, a tensor's geometry."""
    if is_number(val):
        return symbols_of(extents((val,))[0])
    if isinstance(val, Tensor) and val._sym is not None:
        every = extents((*val.shape, *val.stride(), val.storage_offset()))
        return frozenset[str]().union(*map(symbols_of, every))
    if isinstance(val, (list, tuple)):
        return frozenset[str]().union(*map(_symbols, val))
    if isinstance(val, dict):
        return _symbols(list(val.values()))
    return frozenset()


def _is_unknown(name: str) -> bool:
    return name.startswith("u")


def inline(graph: Graph) -> None:
    """Nodes that compute sizes become arguments of their users."""
    if not symbolic(graph):
        return

    def shown(node: Node) -> Any:
        val = node.meta.get("val")
        if is_number(val) and not any(map(_is_unknown, _symbols(val))):
            return val
        return node

    for node in graph.nodes:
        if node.op != "output":
            node.args = map_arg(node.args, shown)
            node.kwargs = map_arg(node.kwargs, shown)
    for node in reversed(list(graph.nodes)):
        unused = node.op == "call_function" and not node.users
        if unused and shown(node) is not node:
            graph.erase_node(node)


def as_nodes(graph: Graph) -> None:
    """Symbolic numbers among arguments become nodes that compute them from the graph's inputs."""
    if not symbolic(graph):
        return
    sizes = SizeNodes(graph.create_node)
    for node in list(graph.nodes):
        val = node.meta.get("val")
        if node.op != "placeholder":
            with graph.inserting_before(node):
                node.args = _with_nodes(node.args, sizes)
                node.kwargs = _with_nodes(node.kwargs, sizes)
        if isinstance(val, Tensor) and val._sym is not None:
            sizes.know(val, node)
        elif isinstance(val, SymInt):
            sizes.bind(val, node)


def _with_nodes(v: Any, sizes: SizeNodes) -> Any:
    if is_number(v):
        return sizes.node(v)
    if isinstance(v, (list, tuple)):
        return type(v)(_with_nodes(x, sizes) for x in v)
    if isinstance(v, dict):
        return {k: _with_nodes(x, sizes) for k, x in v.items()}
    return v


def needed_by(nodes: Iterable[Node]) -> set[str]:
    """The symbols that nodes compute with: of their arguments and of their results' geometry."""
    found: set[str] = set()
    for node in nodes:
        found |= _symbols(node.meta.get("val"))
        found |= _symbols(list(node.args)) | _symbols(dict(node.kwargs))
    return found


def given_by(nodes: Iterable[Node]) -> dict[str, tuple[Node, int | None]]:
    """Where symbols can be read: a node that is one, or a dimension of a tensor."""
    found: dict[str, tuple[Node, int | None]] = {}
    for node in nodes:
        val = node.meta.get("val")
        if is_number(val):
            places: Iterable[tuple[int | None, Any]] = [(None, val)]
        elif isinstance(val, Tensor) and val._sym is not None:
            places = enumerate(val.shape)
        else:
            continue
        for i, e in ((i, extents((v,))[0]) for i, v in places):
            name = getattr(e, "name", None)
            if name is not None:
                found.setdefault(name, (node, i))
    return found
