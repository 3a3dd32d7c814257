"""Rewrites of functional graphs: what changes nothing but the work."""

from __future__ import annotations

from typing import Any

from flambeau._src.core.tensor import Tensor
from flambeau._src.ir.graph import Graph
from flambeau._src.ir.node import Node
from flambeau._src.ops.overload import OpOverload

__all__ = ["drop_aliases", "drop_dead", "merge_equal", "op_of", "tidy"]

_ITSELF = frozenset({"alias", "detach", "lift_fresh"})


def op_of(node: Node) -> Any:
    """The operator that a node calls, or None."""
    return node.target._op if node.op == "call_function" and isinstance(node.target, OpOverload) else None


def is_pure(node: Node) -> bool:
    """Whether a node only computes: no write, no random numbers."""
    op = op_of(node)
    if op is None:
        return node.op in ("call_function", "get_attr") and not node.is_impure()
    return not op.schema.is_mutable and not op.decl.random


def drop_aliases(graph: Graph) -> None:
    """Views that are the tensor itself become it."""
    for node in list(graph.nodes):
        op = op_of(node)
        if op is None:
            continue
        source = node.args[0] if node.args else None
        if op.name in _ITSELF or (op.decl.kind == "view" and _same_geometry(node, source)):
            if isinstance(source, Node):
                node.replace_all_uses_with(source)
                graph.erase_node(node)


def _same_geometry(node: Node, source: Any) -> bool:
    if not isinstance(source, Node):
        return False
    a, b = node.meta.get("val"), source.meta.get("val")
    return (
        isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape and a.dtype is b.dtype
        and a.stride() == b.stride() and a.storage_offset() == b.storage_offset()
    )  # fmt: skip


def drop_dead(graph: Graph) -> None:
    """Nodes that nothing uses and that only compute are erased."""
    for node in reversed(list(graph.nodes)):
        if node.op not in ("placeholder", "output") and not node.users and is_pure(node):
            graph.erase_node(node)


def _key(value: Any) -> Any:
    if isinstance(value, Node):
        return value
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, *map(_key, value))
    if isinstance(value, dict):
        return tuple((k, _key(v)) for k, v in value.items())
    if isinstance(value, float):
        return ("float", value.hex())  # 0.0 and -0.0 differ
    return (type(value).__name__, value)


def merge_equal(graph: Graph) -> None:
    """Equal computations are made once. What is written in place stays apart."""
    known: dict[Any, Node] = {}
    for node in list(graph.nodes):
        if node.op == "get_attr":
            key: Any = ("get_attr", node.target)
        elif node.op == "call_function" and is_pure(node):
            if any(_writes(user) for user in node.users):
                continue
            try:
                key = (node.target, _key(node.args), _key(node.kwargs))
                hash(key)
            except TypeError:
                continue
        else:
            continue
        first = known.setdefault(key, node)
        if first is not node:
            node.replace_all_uses_with(first)
            graph.erase_node(node)


def _writes(node: Node) -> bool:
    op = op_of(node)
    return op is not None and op.schema.is_mutable


def tidy(graph: Graph) -> None:
    """All of them."""
    drop_dead(graph)
    drop_aliases(graph)
    merge_equal(graph)
    drop_dead(graph)
