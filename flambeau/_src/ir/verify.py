"""Checks of a graph: what a user's edit may have broken, and what every stage must hand on.

`lint` is ``Graph.lint``; `verify` is stricter and is what the compiler runs between its stages.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from flambeau._src.ir.node import LEGAL_OPS, Node, map_arg

if TYPE_CHECKING:
    from flambeau._src.ir.graph import Graph

__all__ = ["VerifyError", "lint", "verify"]


class VerifyError(RuntimeError):
    """A graph that no stage may hand on."""


def lint(graph: Graph) -> None:
    """Raise RuntimeError where the graph is not well formed.

    Every node is of this graph and uses only nodes before it; names are unique; targets are of
    the right kind; with an owning module, ``get_attr`` and ``call_module`` targets exist in it.
    """
    seen: set[Node] = set()
    names: set[str] = set()

    def check_argument(arg: Node, user: Node) -> Node:
        if arg.graph is not graph:
            raise RuntimeError(
                f"Argument '{arg}' of Node '{user}' does not belong to this Graph, but was used "
                "as an argument! If you are copying nodes from another graph, make sure to use "
                f"``arg_transform`` on node_copy() to remap values\n{graph}"
            )
        if arg not in seen:
            raise RuntimeError(
                f"Argument '{arg}' of Node '{user}' was used before it has been defined! Please "
                f"check that Nodes in the graph are topologically ordered\n{graph}"
            )
        return arg

    for node in graph.nodes:
        if node.op not in LEGAL_OPS - {"root"}:
            raise RuntimeError(f"Node {node} had unknown opcode {node.op}!")
        if node.graph is not graph:
            raise RuntimeError(f"Node '{node}' does not belong to this Graph!")
        map_arg((node.args, node.kwargs), partial(check_argument, user=node))
        seen.add(node)
        if node.name in names:
            raise RuntimeError(f"Node redefined name {node.name}!")
        names.add(node.name)
        _check_target(node, graph.owning_module)


def _check_target(node: Node, owner: Any) -> None:
    if owner is None:
        return
    if node.op == "call_function":
        if not callable(node.target):
            raise ValueError(
                f"Node {node} target {node.target} has type {type(node.target)} but a Callable is "
                "expected"
            )
        return
    if not isinstance(node.target, str):
        raise ValueError(
            f"Node {node} target {node.target} has type {type(node.target)} but a str is expected"
        )
    if node.op not in ("get_attr", "call_module"):
        return
    place = owner
    parts = node.target.split(".")
    for i, part in enumerate(parts):
        if not hasattr(place, part):
            raise RuntimeError(
                f"Node {node} target {node.target} references nonexistent attribute {part} of "
                f"{'.'.join(parts[:i])}"
            )
        place = getattr(place, part)
    if node.op == "call_module" and not callable(place):
        raise RuntimeError(
            f"Node {node} target {node.target} of type {type(place)} is not callable in module call"
        )


def verify(graph: Graph) -> None:
    """Raise `VerifyError` unless `graph` is well formed in every respect.

    Beyond `lint`: placeholders come first, one output comes last, the records of uses agree in
    both directions, no argument is an erased node, and the order numbers follow the list.
    """
    try:
        lint(graph)
    except (RuntimeError, ValueError) as error:
        raise VerifyError(str(error)) from error
    body_began = False
    previous: Node | None = None
    for node in graph.nodes:
        if node.op == "placeholder":
            if body_began:
                raise VerifyError(f"placeholder {node} comes after the body began\n{graph}")
        else:
            body_began = True
        if previous is not None:
            if previous.op == "output":
                raise VerifyError(f"{node} comes after the output\n{graph}")
            if not previous < node:
                raise VerifyError(f"{node} is out of order\n{graph}")
        _check_uses(node, graph)
        previous = node
    if previous is None or previous.op != "output":
        raise VerifyError(f"the graph has no output\n{graph}")


def _check_uses(node: Node, graph: Graph) -> None:
    found: dict[Node, None] = {}
    map_arg((node.args, node.kwargs), lambda n: found.setdefault(n) or n)
    if list(found) != node.all_input_nodes:
        raise VerifyError(
            f"{node} records the inputs {node.all_input_nodes}, but uses {list(found)}"
        )
    for argument in found:
        if argument._erased:
            raise VerifyError(f"{node} uses {argument}, which was erased")
        if node not in argument.users:
            raise VerifyError(f"{argument} does not know that {node} uses it")
    for user in node.users:
        if user._erased or user.graph is not graph or node not in user._input_nodes:
            raise VerifyError(f"{node} believes that {user} uses it")
