"""Relations of sizes, as small programs of integers that the checker in C runs.

A text such as ``2 <= s0 and (s0 * s1) % 8 == 0`` becomes steps on a stack of 64-bit integers. What
the steps cannot express (true division, powers, `math`) is left to the text as a Python function; a
run that overflows falls back to it as well.
"""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from flambeau._src.capture.guards import Guard
from flambeau._src.capture.source import AttrSource, CallSource, ItemSource, Source
from flambeau._src.ir.shape_env import FLOAT

__all__ = ["Leaf", "Relation", "relation"]

# Numbers of csrc/guard.c.
(
    _CONST, _INT, _SIZE, _STRIDE, _OFFSET, _ADD, _SUB, _MUL, _FLOORDIV, _MOD, _NEG, _ABS, _MIN,
    _MAX, _LT, _LE, _EQ, _NE, _GT, _GE, _NOT, _SKIP_IF_FALSE, _SKIP_IF_TRUE,
) = range(23)  # fmt: skip
_DEPTH = 60  # of the stack in C
_BINARY: dict[type, int] = {
    ast.Add: _ADD, ast.Sub: _SUB, ast.Mult: _MUL, ast.FloorDiv: _FLOORDIV, ast.Mod: _MOD,
}  # fmt: skip
_COMPARE: dict[type, int] = {
    ast.Lt: _LT, ast.LtE: _LE, ast.Eq: _EQ, ast.NotEq: _NE, ast.Gt: _GT, ast.GtE: _GE,
}  # fmt: skip


_KNOWN = frozenset(("max", "min", "abs", "math", "float", "int", "bool", "round", "inf", "nan"))


class Leaf(NamedTuple):
    """Where an int comes from: a tensor's size, stride or offset, or an int itself."""

    kind: int
    source: Source
    number: int


@dataclass(frozen=True)
class Relation:
    """A SHAPE guard taken apart.

    `steps` are (kind, number), with kind None for a leaf; no steps: `function` of the leaves only.
    """

    source_text: str
    leaves: tuple[Leaf, ...]
    steps: tuple[tuple[int | None, int], ...] | None
    function: Callable[..., bool]

    def text(self, names: Mapping[str, str]) -> str:
        """The relation with its names replaced."""
        tree = _parsed(self.source_text)

        class Named(ast.NodeTransformer):
            def visit_Name(self, node: ast.Name) -> ast.AST:
                found = names.get(node.id)
                return node if found is None else ast.parse(found, mode="eval").body

        return ast.unparse(Named().visit(tree))


class _Python(Exception):
    """No steps for this."""


def relation(guard: Guard) -> Relation:
    """The relation of a SHAPE guard. Raises ValueError for a name that is bound to no source."""
    text: str = guard.expected
    sources = dict(guard.names)
    names, steps = _steps(text, frozenset(sources))
    return Relation(text, tuple(_leaf(sources[n]) for n in names), steps, _function(text, names))


@functools.lru_cache(maxsize=4096)
def _steps(
    text: str, sources: frozenset[str]
) -> tuple[tuple[str, ...], tuple[tuple[int | None, int], ...] | None]:
    """The names of a text that have sources, and its steps. The same texts come again and again."""
    tree = _parsed(text)
    used = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name)]
    names = tuple(n for n in dict.fromkeys(used) if n in sources)
    unknown = set(used) - set(names) - _KNOWN
    if unknown:
        raise ValueError(f"the relation {text!r} has names without a source: {sorted(unknown)}")
    steps: list[tuple[int | None, int]] = []
    try:
        _emit(tree.body, {n: i for i, n in enumerate(names)}, steps)
    except _Python:
        return names, None
    return names, None if _deepest(steps) > _DEPTH else tuple(steps)


def _parsed(text: str) -> ast.Expression:
    return ast.parse(text.strip(), mode="eval")


@functools.lru_cache(maxsize=256)
def _function(text: str, names: tuple[str, ...]) -> Callable[..., bool]:
    known = {"math": math, "inf": math.inf, "nan": math.nan}
    made: Callable[..., bool] = eval(f"lambda {', '.join(names)}: ({text})", known)
    return made


def _leaf(source: Source) -> Leaf:
    if isinstance(source, ItemSource) and type(source.key) is int and source.key >= 0:
        base = source.base
        if isinstance(base, CallSource) and base.name in ("size", "stride"):
            return Leaf(_SIZE if base.name == "size" else _STRIDE, base.base, source.key)
        if isinstance(base, AttrSource) and base.name == "shape" and not base.raw:
            return Leaf(_SIZE, base.base, source.key)
    if isinstance(source, CallSource) and source.name == "storage_offset":
        return Leaf(_OFFSET, source.base, 0)
    return Leaf(_INT, source, 0)


def _emit(node: Any, leaves: Mapping[str, int], out: list[tuple[int | None, int]]) -> None:
    """Steps that leave the node's value on the stack."""
    if isinstance(node, ast.Name) and node.id in leaves and not node.id.startswith(FLOAT):
        out.append((None, leaves[node.id]))
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        if abs(node.value) >= 1 << 62:
            raise _Python
        out.append((_CONST, int(node.value)))
    elif isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        _emit(node.left, leaves, out)
        _emit(node.right, leaves, out)
        out.append((_BINARY[type(node.op)], 0))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Not)):
        _emit(node.operand, leaves, out)
        out.append((_NEG if isinstance(node.op, ast.USub) else _NOT, 0))
    elif isinstance(node, ast.BoolOp):
        skip = _SKIP_IF_FALSE if isinstance(node.op, ast.And) else _SKIP_IF_TRUE
        _joined([functools.partial(_emit, v, leaves) for v in node.values], skip, out)
    elif isinstance(node, ast.Compare) and all(type(op) in _COMPARE for op in node.ops):
        operands = [node.left, *node.comparators]
        parts = [
            functools.partial(_emit_pair, operands[i], operands[i + 1], type(op), leaves)
            for i, op in enumerate(node.ops)
        ]
        _joined(parts, _SKIP_IF_FALSE, out)
    elif _is_call(node, "abs", 1):
        _emit(node.args[0], leaves, out)
        out.append((_ABS, 0))
    elif _is_call(node, "min", 2) or _is_call(node, "max", 2):
        _emit(node.args[0], leaves, out)
        for arg in node.args[1:]:
            _emit(arg, leaves, out)
            out.append((_MIN if node.func.id == "min" else _MAX, 0))
    else:
        raise _Python


def _emit_pair(
    a: Any, b: Any, op: type, leaves: Mapping[str, int], out: list[tuple[int | None, int]]
) -> None:
    _emit(a, leaves, out)
    _emit(b, leaves, out)
    out.append((_COMPARE[op], 0))


def _joined(
    parts: Sequence[Callable[[list[tuple[int | None, int]]], None]],
    skip: int,
    out: list[tuple[int | None, int]],
) -> None:
    """Parts of which the first that decides is the value."""
    blocks: list[list[tuple[int | None, int]]] = []
    for part in parts:
        block: list[tuple[int | None, int]] = []
        part(block)
        blocks.append(block)
    for i, block in enumerate(blocks):
        out += block
        rest = blocks[i + 1 :]
        if rest:
            out.append((skip, sum(len(b) for b in rest) + len(rest) - 1))


def _is_call(node: Any, name: str, least: int) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == name
        and not node.keywords
        and len(node.args) >= least
        and not any(isinstance(a, ast.Starred) for a in node.args)
    )


def _deepest(steps: list[tuple[int | None, int]]) -> int:
    depth = deepest = 0
    for kind, _ in steps:
        if kind is None or kind == _CONST:
            depth += 1
        elif kind not in (_NEG, _ABS, _NOT):
            depth -= 1  # a skip as well: where it goes on, it has dropped one
        deepest = max(deepest, depth)
    return deepest
