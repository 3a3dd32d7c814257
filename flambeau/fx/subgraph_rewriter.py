"""Replacing a pattern in a graph by another program."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

from flambeau._src.ir.graph import Graph
from flambeau._src.ir.node import Node
from flambeau._src.ir.rewrite import PatternMatch, find_matches, replace_matches
from flambeau.fx._symbolic_trace import symbolic_trace
from flambeau.fx.graph_module import GraphModule, _get_attr, _has_attr
from flambeau.nn import Module, Parameter

__all__ = [
    "Match",
    "ReplacedPatterns",
    "replace_pattern",
    "replace_pattern_with_filters",
]

Pattern = Callable[..., Any] | Graph | GraphModule


class Match(NamedTuple):
    """One replaced place: the pattern's last node there, and what stood for each of its nodes."""

    anchor: Node
    nodes_map: dict[Node, Node]


class ReplacedPatterns(NamedTuple):
    """A `Match` and the nodes that were put in its place."""

    anchor: Node
    nodes_map: dict[Node, Node]
    replacements: list[Node]


class InternalMatch:
    """What filters and callbacks see of a match."""

    def __init__(self, match: PatternMatch) -> None:
        self.anchors = match.anchors
        self.nodes_map = match.nodes
        self.placeholder_nodes = match.inputs
        self.returning_nodes = match.returning
        self.name_node_map = {p.name: g for p, g in match.nodes.items() if isinstance(g, Node)}


def replace_pattern(gm: GraphModule, pattern: Pattern, replacement: Pattern) -> list[Match]:
    """Replace every occurrence of `pattern` in `gm` by `replacement`, in place.

    Both are functions (traced), graphs or graph modules with the same parameters; a parameter
    stands for any value. What the pattern computes on the way may be used nowhere else. Returns
    the matches; ``gm`` is recompiled.
    """
    done = _replace(gm, pattern, replacement)
    return [Match(anchor, nodes) for anchor, nodes, _ in done]


def replace_pattern_with_filters(
    gm: GraphModule,
    pattern: Pattern,
    replacement: Pattern | None = None,
    match_filters: list[Callable[[InternalMatch, Graph, Graph], bool]] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Callable[[InternalMatch, Graph, Graph], Graph] | None = None,
    node_name_match: str = "",
) -> list[ReplacedPatterns]:
    """`replace_pattern` where all of `match_filters` agree.

    Filters get the match, the graph and the pattern. With `ignore_literals`, numbers and strings
    of the graph may stand for parameters of the pattern. `replacement_callback` makes the
    replacement of each match. With `node_name_match`, only patterns ending in a node of that name.
    """
    filters = list(match_filters or ())
    if node_name_match:
        filters.append(lambda match, graph, pattern: match.anchors[0].name == node_name_match)
    return _replace(gm, pattern, replacement, filters, ignore_literals, replacement_callback)


def _graph_of(program: Pattern) -> Graph:
    if isinstance(program, GraphModule):
        return program.graph
    if isinstance(program, Graph):
        return program
    return symbolic_trace(program).graph


def _replace(
    gm: GraphModule,
    pattern: Pattern,
    replacement: Pattern | None,
    filters: list[Callable[[InternalMatch, Graph, Graph], bool]] | None = None,
    ignore_literals: bool = False,
    callback: Callable[[InternalMatch, Graph, Graph], Graph] | None = None,
) -> list[ReplacedPatterns]:
    graph = gm.graph
    pattern_graph = _graph_of(pattern)
    if replacement is None and callback is None:
        raise AssertionError("Must provide either replacement GraphModule or replacement_callback")
    common = _graph_of(replacement) if replacement is not None else None
    found = find_matches(pattern_graph, graph, ignore_literals=ignore_literals)
    matches = [
        match
        for match in found
        if all(f(InternalMatch(match), graph, pattern_graph) for f in filters or ())
    ]

    def choose(match: PatternMatch) -> Graph:
        if callback is not None:
            return callback(InternalMatch(match), graph, pattern_graph)
        assert common is not None
        return common

    made = replace_matches(graph, matches, choose)
    gm.recompile()
    if isinstance(replacement, Module):
        _take_attributes(gm, replacement)
    return [
        ReplacedPatterns(match.anchors[0], match.nodes, nodes)
        for match, nodes in zip(matches, made, strict=True)
    ]


def _take_attributes(gm: GraphModule, replacement: Module) -> None:
    """Give `gm` the modules and tensors that the replacement's nodes refer to."""
    gm.delete_all_unused_submodules()
    if isinstance(replacement, GraphModule):
        replacement.graph.lint()
    for node in gm.graph.nodes:
        if node.op not in ("call_module", "get_attr"):
            continue
        target = str(node.target)
        if _has_attr(gm, target):
            continue
        if not _has_attr(replacement, target):
            raise RuntimeError(
                'Attempted to create a "',
                node.op,
                '" node during subgraph rewriting '
                f"with target {node.target}, but the referenced attribute does not exist in the "
                "replacement GraphModule",
            )
        value = _get_attr(replacement, target)
        if isinstance(value, Module):
            gm.add_submodule(target, copy.deepcopy(value))
        else:
            place, _, field = target.rpartition(".")
            owner: Any = gm.get_submodule(place) if place else gm
            setattr(owner, field, value if isinstance(value, Parameter) else copy.copy(value))
    gm.graph.lint()
