"""Numbers in graphs: sizes that nodes compute, written into the arguments and back into nodes.

Between tracing and the halves' programs a size is an argument (a symbolic int), not a node: views
and fresh tensors then depend on tensors only, and either half computes the sizes that it needs
from its own inputs. Numbers that only running tells (`.item()`) stay nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flambeau._src.compiler.extents import extents, is_number, symbols_of
from flambeau._src.core.symint import SymBool
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp.size_nodes import SizeNodes
from flambeau._src.ir.graph import Graph
from flambeau._src.ir.node import Node, map_arg
from flambeau._src.ir.shape_env import UNBACKED, ShapeEnv
from flambeau._src.ir.sym_node import AsStands
from flambeau._src.ops.op import packet
from flambeau._src.ops.overload import overload_of

__all__ = ["as_nodes", "assertions", "given_by", "inline", "needed_by", "own_symbols", "symbolic"]


ASSERT = overload_of(packet("_assert_scalar").ops[0])


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
    return name.startswith(UNBACKED)


def inline(graph: Graph) -> None:
    """Nodes that compute sizes become arguments of their users."""
    if not symbolic(graph):
        return

    def shown(node: Node) -> Any:
        val: Any = node.meta.get("val")
        if is_number(val) and not any(map(_is_unknown, _symbols(val))):
            return val
        return node

    for node in graph.nodes:
        if node.op != "output":
            node.args = map_arg(node.args, shown)
            node.kwargs = map_arg(node.kwargs, shown)
    for node in reversed(list(graph.nodes)):
        unused = node.op == "call_function" and not node.users
        told = any(map(_is_unknown, own_symbols(node.meta.get("val"))))
        if unused and not told and shown(node) is not node:
            graph.erase_node(node)


def as_nodes(graph: Graph) -> None:
    """Symbolic numbers among arguments become nodes that compute them from the graph's inputs."""
    if not symbolic(graph):
        return
    sizes = SizeNodes(graph.create_node)
    for node in list(graph.nodes):
        val: Any = node.meta.get("val")
        if node.op != "placeholder":
            with graph.inserting_before(node):
                node.args = _with_nodes(node.args, sizes)
                node.kwargs = _with_nodes(node.kwargs, sizes)
        if isinstance(val, Tensor) and val._sym is not None:
            sizes.know(val, node)
        elif is_number(val):
            sizes.bind(val, node)


def _with_nodes(v: Any, sizes: SizeNodes) -> Any:
    if is_number(v):
        return sizes.node(v)
    if isinstance(v, (list, tuple)):
        return type(v)(_with_nodes(x, sizes) for x in v)
    if isinstance(v, dict):
        return {k: _with_nodes(x, sizes) for k, x in v.items()}
    return v


def assertions(graph: Graph) -> None:
    """What was assumed of numbers that only running tells becomes nodes that check it, each right
    after the last number that it speaks of."""
    env = _environment(graph)
    if env is None or not env.asserts:
        return
    sizes = SizeNodes(graph.create_node)
    left, told = list(dict.fromkeys(env.asserts)), set[str]()
    for node in list(graph.nodes):
        val: Any = node.meta.get("val")
        if isinstance(val, Tensor) and val._sym is not None:
            sizes.know(val, node)
        elif is_number(val):
            sizes.bind(val, node)
        fresh = own_symbols(val) - told
        told |= fresh
        if not fresh or (node.op == "placeholder" and node.next.op == "placeholder"):
            continue
        ready = [c for c in left if c.symbols <= told]
        left = [c for c in left if c not in ready]
        with graph.inserting_before(node.next):
            for c in ready:
                # As it stands: what was learnt since would make it true.
                holds = sizes.node(SymBool(AsStands(env, "bool", c)))
                args = (holds, f"Runtime assertion failed for expression {c.as_call()}")
                graph.create_node("call_function", ASSERT, args, {}, "_assert_scalar")


def _environment(graph: Graph) -> ShapeEnv | None:
    for node in graph.nodes:
        val: Any = node.meta.get("val")
        for v in val.shape if isinstance(val, Tensor) and val._sym is not None else (val,):
            if is_number(v):
                env: ShapeEnv = v.node.env
                return env
    return None


def own_symbols(val: Any) -> set[str]:
    """The symbols that a value itself tells, whatever was learnt of them since."""
    values = val.shape if isinstance(val, Tensor) and val._sym is not None else (val,)
    names = (v.node.value.name for v in values if is_number(v))
    return {n for n in names if n is not None}


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
        val: Any = node.meta.get("val")
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
