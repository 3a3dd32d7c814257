"""Rewrites of functional graphs: what changes nothing but the work."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from flambeau._src.compiler.extents import extents, geometry, is_number
from flambeau._src.core.tensor import Tensor
from flambeau._src.ir.graph import Graph
from flambeau._src.ir.node import Node
from flambeau._src.ops.op import packet
from flambeau._src.ops.overload import OpOverload, overload_of

__all__ = [
    "collapse_views",
    "drop_aliases",
    "drop_dead",
    "merge_equal",
    "op_of",
    "straight",
    "tidy",
]

_ITSELF = frozenset({"alias", "detach", "lift_fresh"})


def op_of(node: Node) -> Any:
    """The operator that a node calls, or None."""
    return (
        node.target._op
        if node.op == "call_function" and isinstance(node.target, OpOverload)
        else None
    )


def is_pure(node: Node) -> bool:
    """Whether a node only computes: no write, no random numbers, no
    assertion."""
    op = op_of(node)
    if op is None:
        return node.op in ("call_function", "get_attr") and not node.is_impure()
    return not op.schema.is_mutable and not op.decl.random and bool(op.schema.returns)


def drop_aliases(graph: Graph) -> None:
    """Views that are the tensor itself become it."""
    for node in list(graph.nodes):
        op = op_of(node)
        if op is None:
            continue
        source = node.args[0] if node.args else None
        same = op.name in _ITSELF or (op.decl.kind == "view" and _same_geometry(node, source))
        if same and isinstance(source, Node):
            node.replace_all_uses_with(source)
            graph.erase_node(node)


def _same_geometry(node: Node, source: Any) -> bool:
    if not isinstance(source, Node):
        return False
    a, b = node.meta.get("val"), source.meta.get("val")
    return (
        isinstance(a, Tensor)
        and isinstance(b, Tensor)
        and a.dtype is b.dtype
        and geometry(a) == geometry(b)
    )


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
    if is_number(value):
        return ("symbolic", *extents((value,)))
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


def collapse_views(graph: Graph) -> None:
    """Every view is one of a value that is no view; one of several views is a view as well."""
    strided = overload_of(packet("as_strided").ops[0])
    roots: dict[Node, Node] = {}
    for node in list(graph.nodes):
        source = _viewed(node)
        if source is None:
            continue
        root = roots.get(source, source)
        roots[node] = root
        val = node.meta.get("val")
        if root is source and node.target is not operator.getitem:
            continue
        if isinstance(val, Tensor) and isinstance(root.meta.get("val"), Tensor):
            node.target = strided
            node.args = (root, list(val.shape), list(val.stride()), val.storage_offset())
            node.kwargs = {}
    drop_dead(graph)


def straight(graph: Graph) -> Graph:
    """A copy in which a view of views that shows just what one of them shows is that one. Results
    stay objects of their own."""
    made = Graph()
    made.output(made.graph_copy(graph, {}))
    results = set(made.output_node().all_input_nodes)
    for node in list(made.nodes):
        source = _viewed(node)
        while source is not None and not _same_geometry(node, source):
            source = _viewed(source)
        if source is None or (
            node in results and (source in results or source.op != "call_function")
        ):
            continue
        node.replace_all_uses_with(source)
        results = set(made.output_node().all_input_nodes)
    drop_dead(made)
    return made


def _viewed(node: Node) -> Node | None:
    """What a node is a view of, as it stands; None for one that is no view."""
    op = op_of(node)
    if op is not None and op.decl.kind == "view" and op.variant == "functional":
        source = node.args[0]
        if isinstance(source, Node) and isinstance(source.meta.get("val"), Tensor):
            val = node.meta.get("val")
            same = not isinstance(val, Tensor) or val.dtype is source.meta["val"].dtype
            return source if same else None
    if node.target is operator.getitem and isinstance(node.args[0], Node):
        many = op_of(node.args[0])
        if many is not None and many.decl.kind == "view":
            return _viewed(node.args[0])
    return None


def tidy(graph: Graph, returned: Sequence[int] = ()) -> None:
    """What serves every back end. `returned`: the outputs, by place, that programs get: those that
    do not share bytes still do not."""
    before = _roots(graph, returned)
    drop_dead(graph)
    drop_aliases(graph)
    merge_equal(graph)
    _part(graph, returned, before)
    drop_dead(graph)


def _roots(graph: Graph, places: Sequence[int]) -> list[Any]:
    """The values whose bytes outputs show."""
    ends = graph.output_node().args[0]
    found = []
    for place in places:
        node: Any = ends[place]
        source = node if isinstance(node, Node) else None
        while source is not None:
            node, source = source, _viewed(source)
        found.append(node)
    return found


def _part(graph: Graph, places: Sequence[int], before: list[Any]) -> None:
    """Give outputs that were made one value bytes of their own again."""
    end = graph.output_node()
    first: dict[Any, Any] = {}
    for place, was, now in zip(places, before, _roots(graph, places), strict=True):
        if not isinstance(now, Node) or first.setdefault(now, was) is was:
            continue
        ends = list(end.args[0])
        with graph.inserting_before(end):
            clone = overload_of(packet("clone").ops[0])
            made = graph.create_node("call_function", clone, (ends[place],), {})
        made.meta = dict(ends[place].meta)
        ends[place] = made
        end.args = (type(end.args[0])(ends),)
