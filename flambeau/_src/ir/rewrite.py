"""Rewriting graphs: finding a pattern, putting another program in its place, and clean-ups."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any, NamedTuple

from flambeau._src.ir.graph import Graph
from flambeau._src.ir.node import Node, map_arg

__all__ = [
    "PatternMatch",
    "eliminate_common",
    "find_matches",
    "replace_matches",
    "same_structure",
    "sort_topologically",
]


class PatternMatch(NamedTuple):
    """One place where a pattern occurs.

    ``nodes`` maps the pattern's nodes (its placeholders included) to the graph's; ``anchors`` are
    the graph's nodes for what the pattern returns and does not use itself; ``returning`` the
    graph's nodes for all that it returns; ``inputs`` what stands for its placeholders, in order.
    """

    anchors: list[Node]
    nodes: dict[Node, Any]
    returning: list[Node]
    inputs: list[Any]


def find_matches(
    pattern: Graph,
    graph: Graph,
    *,
    ignore_literals: bool = False,
    overlapping: bool = False,
) -> list[PatternMatch]:
    """The places in `graph` where the nodes of `pattern` occur, in order.

    A placeholder of the pattern stands for any value (the same one wherever it is used); with
    `ignore_literals` a number or string in it too. What the pattern computes inside may be used
    nowhere else in `graph`. Unless `overlapping`, no node is part of two matches.
    """
    output = pattern.output_node()
    returning = output.all_input_nodes
    anchors = [n for n in returning if len(n.users) == 1 and n.op != "placeholder"]
    if not anchors:
        raise ValueError("the pattern computes nothing: it returns its placeholders")
    found: list[PatternMatch] = []
    taken: set[Node] = set()
    for nodes in _candidates(anchors, graph, ignore_literals):
        if not _contained(nodes, set(returning)):
            continue
        inner = {g for p, g in nodes.items() if p.op not in ("placeholder", "output")}
        if not overlapping and not taken.isdisjoint(inner):
            continue
        taken |= inner
        inputs = [nodes.get(node) for node in pattern.nodes if node.op == "placeholder"]
        found.append(
            PatternMatch([nodes[n] for n in anchors], nodes, [nodes[n] for n in returning], inputs)
        )
    return found


def _candidates(
    anchors: list[Node], graph: Graph, ignore_literals: bool
) -> Iterator[dict[Node, Any]]:
    """Every consistent assignment of graph nodes to the anchors and what they depend on."""

    def extend(position: int, nodes: dict[Node, Any]) -> Iterator[dict[Node, Any]]:
        if position == len(anchors):
            yield nodes
            return
        for node in graph.nodes:
            if node.op == "output":
                continue
            attempt = dict(nodes)
            if _match(anchors[position], node, attempt, ignore_literals):
                yield from extend(position + 1, attempt)

    return extend(0, {})


def _match(pattern: Any, value: Any, nodes: dict[Node, Any], ignore_literals: bool) -> bool:
    """Whether `value` is an instance of `pattern`; enters what stands for what into `nodes`."""
    if not isinstance(pattern, Node):
        if isinstance(value, Node):
            return False
        if isinstance(pattern, (list, tuple)) and isinstance(value, (list, tuple)):
            return len(pattern) == len(value) and all(
                _match(p, v, nodes, ignore_literals) for p, v in zip(pattern, value, strict=True)
            )
        if isinstance(pattern, dict) and isinstance(value, dict):
            return pattern.keys() == value.keys() and all(
                _match(p, value[key], nodes, ignore_literals) for key, p in pattern.items()
            )
        if isinstance(pattern, slice) and isinstance(value, slice):
            return all(
                _match(getattr(pattern, part), getattr(value, part), nodes, ignore_literals)
                for part in ("start", "stop", "step")
            )
        return ignore_literals or (type(pattern) is type(value) and bool(pattern == value))
    if pattern in nodes:
        known = nodes[pattern]
        return known is value if isinstance(value, Node) else bool(known == value)
    if pattern.op == "placeholder":
        nodes[pattern] = value
        return True
    if not isinstance(value, Node) or any(known is value for known in nodes.values()):
        return False
    if pattern.op != value.op or not _same_target(pattern, value):
        return False
    nodes[pattern] = value
    pattern_args, value_args = _aligned(pattern, value)
    return _match(pattern_args, value_args, nodes, ignore_literals)


def _same_target(pattern: Node, node: Node) -> bool:
    if pattern.op != "get_attr":
        return pattern.target == node.target
    # The pattern's attributes live in its own module: compare the values, where both are known.
    mine, theirs = pattern.graph.owning_module, node.graph.owning_module
    if mine is None or theirs is None:
        return pattern.target == node.target
    a, b = _attribute(mine, str(pattern.target)), _attribute(theirs, str(node.target))
    return type(a) is type(b) and (a is b or (hasattr(a, "shape") and hasattr(b, "shape")))


def _attribute(owner: Any, path: str) -> Any:
    for part in path.split("."):
        owner = getattr(owner, part, None)
    return owner


def _aligned(pattern: Node, node: Node) -> tuple[Any, Any]:
    """The arguments of both, in one form: as given, or else both by the target's signature."""
    same_form = len(pattern.args) == len(node.args) and pattern.kwargs.keys() == node.kwargs.keys()
    if not same_form and pattern.op == "call_function":
        p = pattern.normalized_arguments(None, normalize_to_only_use_kwargs=True)
        n = node.normalized_arguments(None, normalize_to_only_use_kwargs=True)
        if p is not None and n is not None:
            return (list(p.args), p.kwargs), (list(n.args), n.kwargs)
    return (list(pattern.args), dict(pattern.kwargs)), (list(node.args), dict(node.kwargs))


def _contained(nodes: dict[Node, Any], returning: set[Node]) -> bool:
    """Whether nothing outside the match uses what it computes inside."""
    inside = {g for p, g in nodes.items() if p.op != "placeholder"}
    return all(
        inside.issuperset(g.users)
        for p, g in nodes.items()
        if p.op not in ("placeholder", "get_attr") and p not in returning
    )


def replace_matches(
    graph: Graph,
    matches: list[PatternMatch],
    replacement: Graph | Callable[[PatternMatch], Graph],
) -> list[list[Node]]:
    """Put a copy of `replacement` in the place of each match; returns the new nodes of each.

    The replacement has as many placeholders as the pattern, and returns as many values.
    """
    changed: dict[Node, Node] = {}
    made: list[list[Node]] = []
    for match in matches:
        new = replacement(match) if callable(replacement) else replacement
        placeholders = [node for node in new.nodes if node.op == "placeholder"]
        if len(placeholders) != len(match.inputs):
            raise AssertionError(
                f"the pattern has {len(match.inputs)} placeholders, the replacement "
                f"{len(placeholders)}"
            )
        values = [_latest(value, changed) for value in match.inputs]
        val_map: dict[Node, Any] = dict(zip(placeholders, values, strict=True))
        users = [user for node in match.returning for user in node.users]
        first_user = min(users, key=lambda n: n._order, default=None)
        place = (
            graph.inserting_before(first_user)
            if first_user is not None
            else graph.inserting_after(max(match.returning, key=lambda n: n._order))
        )
        with place:
            result: Any = graph.graph_copy(new, val_map)
        made.append([val_map[n] for n in new.nodes if n.op not in ("placeholder", "output")])
        results = [result] if isinstance(result, Node) else list(result)
        if len(results) != len(match.returning):
            raise AssertionError(
                f"the pattern returns {len(match.returning)} values, the replacement {len(results)}"
            )
        for old, value in zip(match.returning, results, strict=True):
            old.replace_all_uses_with(value)
            changed[old] = value
        for pattern_node, old in sorted(
            ((p, g) for p, g in match.nodes.items() if p.op != "placeholder"),
            key=lambda pair: -pair[1]._order,
        ):
            if not old.users and not old._erased and pattern_node.op != "output":
                graph.erase_node(old)
    return made


def _latest(value: Any, changed: dict[Node, Node]) -> Any:
    while isinstance(value, Node) and value in changed:
        value = changed[value]
    return value


# ---- clean-ups -----------------------------------------------------------------------------------


def eliminate_common(graph: Graph, is_pure: Callable[[Node], bool]) -> int:
    """Compute equal pure calls once. Returns how many nodes were erased.

    `is_pure` says which calls depend on their arguments alone (no mutation, no random numbers).
    """
    seen: dict[Hashable, Node] = {}
    erased = 0
    for node in graph.nodes:
        if node.op not in ("call_function", "call_method", "get_attr") or not is_pure(node):
            continue
        try:
            key = (node.op, node.target, _key(node.args), _key(node.kwargs))
            first = seen.setdefault(key, node)
        except TypeError:  # an argument that cannot be hashed
            continue
        if first is not node:
            node.replace_all_uses_with(first)
            graph.erase_node(node)
            erased += 1
    return erased


def _key(value: Any) -> Hashable:
    # The type is part of the key: 1, 1.0 and True are different arguments.
    if isinstance(value, (list, tuple)):
        return (type(value), tuple(map(_key, value)))
    if isinstance(value, dict):
        return (dict, tuple((k, _key(v)) for k, v in value.items()))
    if isinstance(value, slice):
        return (slice, _key(value.start), _key(value.stop), _key(value.step))
    if isinstance(value, float):
        return (float, value.hex())
    return (type(value), value)


def sort_topologically(graph: Graph) -> None:
    """Reorder the nodes so that each comes after what it uses, changing as little as possible.

    RuntimeError if the uses form a circle.
    """
    done: set[Node] = set()
    active: set[Node] = set()
    ordered: list[Node] = []
    for start in list(graph.nodes):
        stack = [start]
        while stack:
            node = stack[-1]
            if node in done:
                stack.pop()
                continue
            waiting = [n for n in node.all_input_nodes if n not in done]
            if not waiting:
                stack.pop()
                active.discard(node)
                done.add(node)
                ordered.append(node)
                continue
            if node in active:
                raise RuntimeError(f"the uses of {node} form a circle")
            active.add(node)
            stack.extend(reversed(waiting))
    for node in ordered:
        graph._root.prepend(node)


def same_structure(left: Graph, right: Graph) -> bool:
    """Whether two graphs are the same program, names and metadata aside."""
    numbers: dict[Node, int] = {}

    def shape(node: Node) -> tuple[Any, ...]:
        numbers[node] = len(numbers)
        target = node.target if node.op not in ("placeholder", "output") else None
        args = map_arg(node.args, lambda n: f"%{numbers[n]}")
        kwargs = map_arg(node.kwargs, lambda n: f"%{numbers[n]}")
        return node.op, target, repr(args), repr(kwargs)

    lefts = [shape(node) for node in left.nodes]
    numbers.clear()
    return lefts == [shape(node) for node in right.nodes]
