"""A joint graph cut in two: a forward that also gives what the backward needs, and the backward."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from flambeau._src.compiler.joint import Joint
from flambeau._src.compiler.passes import op_of
from flambeau._src.core.tensor import Tensor
from flambeau._src.ir.graph import Graph
from flambeau._src.ir.node import Node, map_arg

__all__ = ["Cut", "default_partition"]


@dataclass
class Cut:
    """Forward: primals → outputs and saved values. Backward: saved values, tangents → gradients.

    `saved` are the joint graph's nodes behind the forward's last outputs and the backward's first
    inputs; those that are no tensors (numbers) come last.
    """

    forward: Graph
    backward: Graph
    saved: list[Node]


def _ancestors(ends: Iterable[Any], stop: set[Node] | None = None) -> set[Node]:
    found: set[Node] = set()
    stack = [n for n in ends if isinstance(n, Node)]
    while stack:
        node = stack.pop()
        if node in found or (stop is not None and node in stop):
            continue
        found.add(node)
        stack.extend(node.all_input_nodes)
    return found


def _descendants(starts: Iterable[Node]) -> set[Node]:
    found: set[Node] = set()
    stack = list(starts)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack.extend(node.users)
    return found


def is_view(node: Node) -> bool:
    """Whether a node only looks at its input in another way."""
    op = op_of(node)
    return op is not None and op.decl.kind == "view" and isinstance(node.meta.get("val"), Tensor)


def default_partition(joint: Joint) -> Cut:
    """The forward computes what its outputs need; what the backward takes from it is saved.

    Views are made again from what they show, and values that only the backward needs are computed
    there, so that each saved value is one that the forward holds anyway.
    """
    forward = _ancestors(joint.outputs)
    forward.update(joint.primals)
    # Writes and random numbers happen in the forward, needed or not.
    late = _descendants(joint.tangents)
    for node in joint.graph.nodes:
        op = op_of(node)
        if op is not None and (op.schema.is_mutable or op.decl.random) and node not in late:
            forward.update(_ancestors([node]))
    backward = _ancestors(joint.gradients, forward)
    backward.difference_update(joint.tangents)
    for node in list(backward):  # one of several results: the forward takes it apart
        if node.target is operator.getitem and node.args[0] in forward:
            backward.discard(node)
            forward.add(node)
    saved: dict[Node, None] = {}

    def need(node: Node) -> None:
        """The backward uses a value of the forward."""
        if node.op == "get_attr":
            backward.add(node)
        elif is_view(node):
            backward.add(node)
            for source in node.all_input_nodes:
                if source in forward and source not in backward:
                    need(source)
        else:
            saved[node] = None

    for node in list(backward):
        for source in node.all_input_nodes:
            if source in forward and source not in backward:
                need(source)
    for end in joint.gradients:
        if isinstance(end, Node) and end in forward and end not in backward:
            saved[end] = None
    order = {node: i for i, node in enumerate(joint.graph.nodes)}
    kept = sorted(saved, key=order.__getitem__)
    first = _extract(joint.graph, joint.primals, [*joint.outputs, *kept], forward)
    second = _extract(joint.graph, [*kept, *joint.tangents], joint.gradients, backward)
    return Cut(first, second, kept)


def _extract(source: Graph, inputs: list[Node], outputs: list[Any], body: set[Node]) -> Graph:
    """The nodes of `body` as a graph of their own."""
    graph = Graph()
    new: dict[Node, Node] = {}
    for node in inputs:
        made = graph.placeholder(node.name)
        made.meta = dict(node.meta)
        new[node] = made
    for node in source.nodes:
        if node in body and node not in new and node.op not in ("placeholder", "output"):
            new[node] = graph.node_copy(node, new.__getitem__)
    graph.output(map_arg(tuple(outputs), new.__getitem__))
    return graph
