"""Small passes that others build on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flambeau._src.ir.node import Node
from flambeau._src.ir.rewrite import sort_topologically
from flambeau.fx.graph_module import GraphModule

__all__ = ["get_node_target", "is_node_output_tensor", "legalize_graph", "stable_topological_sort"]

NodeList = list[Node]
NodeSet = set[Node]
Names = list[str]
CALLABLE_NODE_OPS = {"call_module", "call_function", "call_method"}


def legalize_graph(gm: GraphModule) -> GraphModule:
    """Put the nodes in an order in which each comes after what it uses.

    RuntimeError if the uses form a circle.
    """
    sort_topologically(gm.graph)
    return gm


stable_topological_sort = legalize_graph


def get_node_target(submodules: dict[str, Any], node: Node) -> str:
    """The name of what a node calls: a module's type, a function's or a method's name."""
    if node.op not in CALLABLE_NODE_OPS:
        raise AssertionError(f"Expected op to be one of {CALLABLE_NODE_OPS}, got {node.op}")
    if node.op == "call_module":
        module = submodules[str(node.target)]
        return f"{type(module).__module__}.{type(module).__name__}"
    if node.op == "call_function":
        return node._pretty_print_target(node.target)
    return str(node.target)


def is_node_output_tensor(node: Node) -> bool:
    """Whether `ShapeProp` found that the node's value is a tensor."""
    kind = node.meta.get("type")
    return isinstance(kind, type) and hasattr(kind, "requires_grad")


def nodes_of(names: Iterable[str], gm: GraphModule) -> list[Node]:
    """The nodes with the given names."""
    wanted = set(names)
    return [node for node in gm.graph.nodes if node.name in wanted]
