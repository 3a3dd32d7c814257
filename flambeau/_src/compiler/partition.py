"""A joint graph cut in two: a forward that also gives what the backward needs, and the backward."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from flambeau._src.capture.recompute import CHOICE, REGION
from flambeau._src.compiler.extents import extents, hinted, is_number
from flambeau._src.compiler.flow import Network
from flambeau._src.compiler.fuse import Fused, Group, map_op
from flambeau._src.compiler.joint import IN_BACKWARD, Joint
from flambeau._src.compiler.numbers import as_nodes, given_by, needed_by
from flambeau._src.compiler.passes import is_pure, op_of
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp.size_nodes import SIZE
from flambeau._src.ir.graph import Graph
from flambeau._src.ir.node import Node, map_arg

__all__ = ["Cut", "default_partition", "min_cut_partition"]


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


def _drawn_late(joint: Joint) -> list[Node]:
    """What draws random numbers, or seeds, in the backward itself: needed or not."""
    return [n for n in joint.graph.nodes if n.meta.get(IN_BACKWARD)]


def _late(joint: Joint) -> set[Node]:
    """What only the backward can compute."""
    return _descendants([*joint.tangents, *_drawn_late(joint)])


def is_view(node: Node) -> bool:
    """Whether a node only looks at its input in another way."""
    op = op_of(node)
    return op is not None and op.decl.kind == "view" and isinstance(node.meta.get("val"), Tensor)


def _forward_nodes(joint: Joint) -> set[Node]:
    """What the outputs need, and what happens whether needed or not: writes, random numbers."""
    forward = _ancestors(joint.outputs)
    forward.update(joint.primals)
    late = _late(joint)
    for node in joint.graph.nodes:
        op = op_of(node)
        if op is None or node in late:
            continue
        if op.schema.is_mutable or op.decl.random or node.is_impure():
            forward.update(_ancestors([node]))
    return forward


def _made_again(joint: Joint, forward: set[Node]) -> set[Node]:
    """Values inside of checkpoints: none is saved. What leaves a checkpoint may be, and random
    numbers and writes are never made twice."""
    ends = {n for n in joint.outputs if isinstance(n, Node)}
    found = set()
    for node in forward:
        region = node.meta.get(REGION)
        if region is None or node in ends or not is_pure(node):
            continue
        users = [u for u in node.users if u in forward]
        if all(u.meta.get(REGION) == region for u in users) and "RECOMPUTE" in _choice(node):
            found.add(node)
    return found


def _choice(node: Node) -> str:
    """What the program says of a node in a checkpoint: the name of a policy."""
    source = node
    while source.target is operator.getitem and isinstance(source.args[0], Node):
        source = source.args[0]
    choose = source.meta.get(CHOICE)
    if choose is None or op_of(source) is None:
        return "MUST_RECOMPUTE"

    def value(n: Node) -> Any:
        return n.meta.get("val")

    args, kwargs = map_arg(source.args, value), map_arg(source.kwargs, value)
    name: str = choose(source.target, args, kwargs, value(source)).name
    return name


def default_partition(joint: Joint) -> Cut:
    """The forward computes what its outputs need; what the backward takes from it is saved.

    Views are made again from what they show, and values that only the backward needs are computed
    there, so that each saved value is one that the forward holds anyway. What stands in checkpoints
    is computed again.
    """
    forward = _forward_nodes(joint)
    again = _made_again(joint, forward)
    backward = _ancestors([*joint.gradients, *_drawn_late(joint)], forward)
    backward.difference_update(joint.tangents)
    for node in list(backward):  # one of several results: the forward takes it apart
        if node.target is operator.getitem and node.args[0] in forward - again:
            backward.discard(node)
            forward.add(node)
    saved: dict[Node, None] = {}

    def need(node: Node) -> None:
        """The backward uses a value of the forward."""
        if node.op == "get_attr":
            backward.add(node)
        elif is_view(node) or node in again:
            waiting.append(node)
        else:
            saved[node] = None

    waiting = list(backward)
    while waiting:
        node = waiting.pop()
        backward.add(node)
        for source in node.all_input_nodes:
            if source in forward and source not in backward:
                need(source)
    for end in joint.gradients:
        if isinstance(end, Node) and end in forward and end not in backward:
            saved[end] = None
    return _cut(joint, forward, backward, saved, bool(again))


def _cut(
    joint: Joint, forward: set[Node], backward: set[Node], saved: Iterable[Node],
    late: bool = False,
) -> Cut:  # fmt: skip
    """`late`: the backward computes forward values again just before they are needed."""
    kept = [*saved, *_sizes(joint, backward, saved)]
    forward |= {n for n in kept if n.op != "placeholder"}
    order = {node: i for i, node in enumerate(joint.graph.nodes)}
    kept = sorted(kept, key=order.__getitem__)
    first = _extract(joint.graph, joint.primals, [*joint.outputs, *kept], forward)
    second = _extract(
        joint.graph, [*kept, *joint.tangents], joint.gradients, backward,
        _in_need(joint, backward) if late else None,
    )  # fmt: skip
    return Cut(first, second, kept)


def _in_need(joint: Joint, backward: set[Node]) -> list[Node]:
    """The backward's nodes: what is computed from gradients in its order, anything else just before
    its first use, so that few values that are made again live at the same time."""
    late = _late(joint)
    ends = {n for n in joint.gradients if isinstance(n, Node)}
    out: dict[Node, None] = {}
    for root in joint.graph.nodes:
        if root not in backward or (root not in late and root not in ends and not root.is_impure()):
            continue
        waiting = [root]
        while waiting:
            node = waiting[-1]
            inputs = [n for n in node.all_input_nodes if n in backward and n not in out]
            if node in out or not inputs:
                waiting.pop()
                out[node] = None
            else:
                waiting += reversed(inputs)
    return list(out)


def _sizes(joint: Joint, backward: set[Node], saved: Iterable[Node]) -> list[Node]:
    """Numbers that the backward computes with and that none of its inputs tells."""
    given = given_by([*saved, *joint.tangents])
    missing = needed_by([*backward, *saved, *joint.tangents]) - set(given)
    if not missing:
        return []
    places = given_by(n for n in joint.graph.nodes if n not in backward)
    first = next(n for n in joint.graph.nodes if n.op != "placeholder")
    found = []
    for name in sorted(missing & set(places)):
        node, dim = places[name]
        if dim is not None:
            before = first if node.op == "placeholder" else node.next
            with joint.graph.inserting_before(before):
                made = joint.graph.create_node("call_function", SIZE, (node, dim), {}, "sym_size")
            made.meta["val"] = node.meta["val"].shape[dim]
            node = made
        found.append(node)
    return found


# ---- the fewest bytes ----------------------------------------------------------------------------

_DEAR = frozenset(
    {
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin",
        "acos",
        "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "atan2", "erf", "erfc", "erfinv",
        "lgamma", "digamma", "sigmoid", "pow", "fmod", "remainder", "hypot", "nextafter",
    }
)  # fmt: skip
_CHEAP: dict[Any, bool] = {}


def is_cheap(node: Node, anything: bool = False) -> bool:
    """Whether to compute a node twice costs little: views, and elementwise operators without
    transcendental functions (`anything`: with them)."""
    op = op_of(node)
    if op is None or op.schema.is_mutable or op.decl.random:
        return node.target is operator.getitem
    if is_view(node):
        return True
    if op.decl.kind == "factory" or not any(
        isinstance(n.meta.get("val"), Tensor) for n in node.all_input_nodes
    ):
        return not node.all_input_nodes
    found = map_op(node)
    if found is None:
        return False
    names = tuple(n.meta["val"].dtype.name for n in found.inputs)
    key = (op, names, tuple((k, repr(v)) for k, v in found.plan if k != "node"))
    if key not in _CHEAP:
        kernel = Fused(Group([node], [found], extents(node.meta["val"].shape))).kernel
        _CHEAP[key] = not any(inst.op in _DEAR for inst in kernel.insts)
    return anything or _CHEAP[key]


def _bytes(node: Node) -> int:
    """What saving a node costs. Several results, or none of a size, are not saved as they are."""
    val: Any = node.meta.get("val")
    if isinstance(val, Tensor):
        return int(max(hinted((val.numel(),))[0] * val.element_size(), 1))
    return 1 if isinstance(val, (int, float, bool)) or is_number(val) else Network.INFINITE


def min_cut_partition(joint: Joint, aggressive: bool = False) -> Cut:
    """Save as few bytes as can be for the backward, which computes again what is cheap.

    A minimum cut between what is there anyway or must not be computed again (inputs, products,
    reductions, random numbers, writes) and what the backward reads. Inputs that the program writes
    are saved only where nothing else will do. `aggressive`: every elementwise operator is cheap.
    """
    late = _late(joint)
    ends = [n for n in joint.gradients if isinstance(n, Node)] + _drawn_late(joint)
    needed = {n for end in ends for n in ([end] if end not in late else [])}
    wanted = _ancestors(ends)
    for node in wanted & late:
        needed.update(n for n in node.all_input_nodes if n not in late)
    early = _ancestors(needed)
    forward = _forward_nodes(joint)
    written = {joint.primals[i] for i in joint.written_primals()}
    again = _made_again(joint, forward)
    network, number = _network(joint, early, needed, forward, written, aggressive, again)
    network.maximum(0, 1)
    # Of equal cuts the one nearest to the backward: it computes the least again.
    far = network.far(1)
    saved = [n for n, v in number.items() if v not in far and v + 1 in far]
    stop = {*saved, *joint.tangents}
    backward = _ancestors(ends, stop)
    forward |= _ancestors(saved)
    return _cut(joint, forward, backward, saved, bool(again))


def _network(
    joint: Joint, early: set[Node], needed: set[Node], forward: set[Node], written: set[Node],
    aggressive: bool, again: set[Node],
) -> tuple[Network, dict[Node, int]]:  # fmt: skip
    """A vertex before and after each value: the arc between them is cut where it is saved."""
    nodes = [n for n in joint.graph.nodes if n in early and n.op != "get_attr"]
    number = {n: 2 + 2 * i for i, n in enumerate(nodes)}
    network = Network(2 + 2 * len(nodes))
    primals = set(joint.primals)
    for node, v in number.items():
        price = _bytes(node)
        if node in primals:
            # Already there; but what is written before the backward runs has changed by then.
            price = Network.INFINITE >> 10 if node in written else 1 + price // 16
        elif is_view(node) or node in again:
            price = Network.INFINITE  # kept alive is what it shows
        elif node not in forward:
            price *= 2  # nobody else holds it
        network.add(v, v + 1, price)
        kept = node.meta.get(CHOICE) is not None and _choice(node).startswith("MUST_SAVE")
        kept = kept and not is_view(node)
        if node in primals or kept or not (node in again or is_cheap(node, aggressive)):
            network.add(0, v, Network.INFINITE)
        if node in needed:
            network.add(v + 1, 1, Network.INFINITE)
        for user in node.users:
            if user in number:
                network.add(v + 1, number[user], Network.INFINITE)
    return network, number


def _extract(
    source: Graph, inputs: list[Node], outputs: list[Any], body: set[Node],
    order: Iterable[Node] | None = None,
) -> Graph:  # fmt: skip
    """The nodes of `body` as a graph of their own, in the order given or the source's."""
    graph = Graph()
    new: dict[Node, Node] = {}
    for node in inputs:
        made = graph.placeholder(node.name)
        made.meta = dict(node.meta)
        new[node] = made
    for node in source.nodes if order is None else order:
        if node in body and node not in new and node.op not in ("placeholder", "output"):
            new[node] = graph.node_copy(node, new.__getitem__)
    graph.output(map_arg(tuple(outputs), new.__getitem__))
    as_nodes(graph)
    return graph
