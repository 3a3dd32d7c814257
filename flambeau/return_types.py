"""The types of several named results (`torch.return_types.max`), made when first asked for."""

from __future__ import annotations

from typing import Any

from flambeau._src.core.return_types import type_for as _type_for
from flambeau._src.ops.op import PACKETS as _PACKETS
from flambeau._src.ops.op import resolve_lazy as _resolve_lazy

all_return_types: list[Any]  # made when asked for, by `__getattr__`

__all__ = ["all_return_types"]


def _fields(name: str) -> tuple[str, ...]:
    """The names of the results of the operator `name`, () where they have none."""
    packet = _PACKETS.get(("aten", name))
    for op in _resolve_lazy(packet) if packet is not None else ():
        found = tuple(r.name for r in op.schema.returns)
        if len(found) > 1 and all(found):
            return found
    return ()


def _operators() -> list[str]:
    return sorted(name for space, name in _PACKETS if space == "aten" and _fields(name))


def __getattr__(name: str) -> Any:
    if name == "all_return_types":
        return [_type_for(n, _fields(n)) for n in _operators()]
    fields = () if name.startswith("__") else _fields(name.removesuffix("_out"))
    if not fields:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return _type_for(name, fields)


def __dir__() -> list[str]:
    return ["all_return_types", *_operators()]
