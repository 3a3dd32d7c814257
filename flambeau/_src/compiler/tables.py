"""Tables of decompositions as back ends use them: chosen by operator, and added to."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, TypeVar

from flambeau._src.compiler.core_aten import core_decompositions
from flambeau._src.compiler.decompose import decompositions
from flambeau._src.ops.overload import OpOverload, OpOverloadPacket

__all__ = [
    "core_aten_decompositions", "decomposition_table", "get_decompositions",
    "register_decomposition", "remove_decompositions",
]  # fmt: skip

Table = MutableMapping[Any, Callable[..., Any]]
F = TypeVar("F", bound=Callable[..., Any])

#: Every operator that can be taken apart; what is left then are the primitives.
decomposition_table: dict[Any, Callable[..., Any]] = {
    **core_decompositions(composites=False), **decompositions(whole=True)
}  # fmt: skip
_TABLES: dict[str, dict[Any, Callable[..., Any]]] = {
    "post_autograd": decomposition_table, "pre_autograd": {}, "meta": {},
}  # fmt: skip


def core_aten_decompositions() -> dict[Any, Callable[..., Any]]:
    """The decompositions that leave Core ATen, for a back end that has kernels of that."""
    return core_decompositions()


def _table(kind: str) -> dict[Any, Callable[..., Any]]:
    if kind not in _TABLES:
        raise AssertionError(
            f"type must be one of post_autograd, pre_autograd, or meta, got {kind}"
        )
    return _TABLES[kind]


def _overloads(op: Any) -> list[Any]:
    if isinstance(op, OpOverloadPacket):
        return [getattr(op, name) for name in op.overloads()]
    if not isinstance(op, OpOverload):
        raise AssertionError(f"expected OpOverloadPacket, got {type(op)}")
    return [op]


def get_decompositions(
    aten_ops: Sequence[Any], type: str = "post_autograd"
) -> dict[Any, Callable[..., Any]]:
    """Overload → function for those of the operators (packets: all overloads) that have one."""
    table = _table(type)
    return {o: table[o] for op in aten_ops for o in _overloads(op) if o in table}


def remove_decompositions(decompositions: Table, aten_ops: Sequence[Any]) -> None:
    """Take the operators (packets: all overloads) out of a table."""
    for op in aten_ops:
        for o in _overloads(op):
            decompositions.pop(o, None)


def register_decomposition(
    aten_op: Any, registry: Table | None = None, *, type: str = "post_autograd",
    unsafe: bool = False,
) -> Callable[[F], F]:  # fmt: skip
    """Enter the decorated function as decomposition of operators; AssertionError for other objects,
    RuntimeError where a table of one's own has one already."""
    table = _table(type) if registry is None else registry

    def enter(fn: F) -> F:
        ops = aten_op if isinstance(aten_op, (list, tuple, set)) else (aten_op,)
        for o in (o for op in ops for o in _overloads(op)):
            if o in table and (table is not decomposition_table or o in _REGISTERED):
                raise RuntimeError(f"duplicate registrations for {o}")
            table[o] = fn
            if table is decomposition_table:
                _REGISTERED.add(o)
        return fn

    return enter


#: What programs have put in place of ours.
_REGISTERED: set[Any] = set()
