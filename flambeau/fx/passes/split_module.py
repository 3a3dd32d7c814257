"""Splitting a graph into submodules by a function from nodes to partitions."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from flambeau._src.ir.graph import Graph
from flambeau._src.ir.node import Node, map_arg
from flambeau.fx.graph_module import GraphModule, _get_attr
from flambeau.nn import Module

__all__ = ["split_module"]


class _Part:
    """One partition: its graph, what goes in and what comes out."""

    def __init__(self, name: str) -> None:
        self.name = f"submod_{name}"
        self.nodes: list[Node] = []
        self.inputs: dict[Node, None] = {}
        self.outputs: dict[Node, None] = {}
        self.depends_on: dict[str, None] = {}
        self.graph = Graph()
        self.environment: dict[Node, Any] = {}
        self.attributes: dict[str, Any] = {}


def split_module(
    m: GraphModule,
    root_m: Module,
    split_callback: Callable[[Node], int | str],
    qualname_map: dict[str, str] | None = None,
    keep_original_order: bool | None = False,
    keep_original_node_name: bool | None = False,
    keep_original_input_name: bool = True,
    *,
    partition_affix: str | None = None,
) -> GraphModule:
    """A module that calls one submodule ``submod_<p>`` for each partition p of the nodes of `m`.

    `split_callback` gives each operation's partition. `qualname_map` is filled with the new paths
    of the submodules called. RuntimeError if the partitions depend on each other in a circle.
    """
    parts: dict[str, _Part] = {}
    home: dict[Node, str] = {}
    for node in m.graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        key = str(split_callback(node))
        label = key if partition_affix is None else f"{partition_affix}_{key}"
        parts.setdefault(key, _Part(label)).nodes.append(node)
        home[node] = key
    _connect(m.graph, parts, home)
    order = list(parts) if keep_original_order else _in_order(parts)
    for key in order:
        _fill(parts[key], m, home, key, bool(keep_original_node_name), qualname_map)
    return _assemble(m, root_m, [parts[key] for key in order])


def _connect(graph: Graph, parts: dict[str, _Part], home: dict[Node, str]) -> None:
    for node in graph.nodes:
        for used in node.all_input_nodes:
            source, target = home.get(used), home.get(node)
            if node.op == "output":
                if source is not None:
                    parts[source].outputs[used] = None
            elif source != target and target is not None:
                if used.op == "get_attr":
                    continue  # read inside the partition
                parts[target].inputs[used] = None
                if source is not None:
                    parts[source].outputs[used] = None
                    parts[target].depends_on[source] = None


def _in_order(parts: dict[str, _Part]) -> list[str]:
    done: list[str] = []
    waiting = list(parts)
    while waiting:
        ready = [key for key in waiting if all(d in done for d in parts[key].depends_on)]
        if not ready:
            raise RuntimeError("cycle exists between partitions!")
        done.append(ready[0])
        waiting.remove(ready[0])
    return done


def _fill(
    part: _Part,
    m: GraphModule,
    home: dict[Node, str],
    key: str,
    keep_names: bool,
    qualname_map: dict[str, str] | None,
) -> None:
    for used in part.inputs:
        placeholder = part.graph.placeholder(used.name, type_expr=used.type)
        placeholder.meta = dict(used.meta)
        part.environment[used] = placeholder

    def load(used: Node) -> Node:
        if used not in part.environment:  # an attribute of the whole
            target = str(used.target).replace(".", "_")
            part.attributes[target] = _get_attr(m, str(used.target))
            copied = part.graph.get_attr(target)
            copied.meta = dict(used.meta)
            part.environment[used] = copied
        return part.environment[used]

    for node in part.nodes:
        args, kwargs = map_arg(node.args, load), map_arg(node.kwargs, load)
        target = node.target
        if node.op == "call_module":
            target = str(node.target).replace(".", "_")
            part.attributes[target] = _get_attr(m, str(node.target))
            if qualname_map is not None:
                qualname_map[f"{part.name}.{target}"] = str(node.target)
        new = part.graph.create_node(
            node.op, target, args, kwargs, node.name if keep_names else None, node.type
        )
        new.meta = dict(node.meta)
        part.environment[node] = new
    outputs = tuple(part.environment[node] for node in part.outputs)
    part.graph.output(outputs[0] if len(outputs) == 1 else outputs)


def _assemble(m: GraphModule, root_m: Module, parts: list[_Part]) -> GraphModule:
    graph = Graph()
    environment: dict[Node, Any] = {}
    attributes: dict[str, Any] = {}
    for node in m.graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            environment[node] = graph.node_copy(node)
            if node.op == "get_attr":
                attributes[str(node.target)] = _get_attr(m, str(node.target))
    for part in parts:
        attributes[part.name] = GraphModule(part.attributes, part.graph)
        call = graph.call_module(part.name, tuple(environment[node] for node in part.inputs))
        if len(part.outputs) == 1:
            environment[next(iter(part.outputs))] = call
        else:
            for i, node in enumerate(part.outputs):
                environment[node] = graph.call_function(operator.getitem, (call, i))
    for node in m.graph.nodes:
        if node.op == "output":
            new = graph.output(map_arg(node.args[0], environment.__getitem__))
            new.meta = dict(node.meta)
    for node in list(graph.nodes):
        if node.op == "get_attr" and not node.users:
            graph.erase_node(node)
    graph.set_codegen(m.graph._codegen)
    return GraphModule(attributes, graph)
