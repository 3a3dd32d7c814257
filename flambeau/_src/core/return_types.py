"""The types of several named results: torch.return_types.max and its like,
real struct sequences."""

from __future__ import annotations

from typing import Any

from flambeau._src import _native
from flambeau._src.core.size import Size
from flambeau._src.core.slots import fill
from flambeau._src.util.late import when_loaded

TYPES: dict[str, type] = {}
_watchers: list[Any] = []  # called with each new type; filled when pytrees are loaded


def _repr(self: Any) -> str:
    names = type(self).__match_args__
    parts = ",\n".join(f"{n}={v!r}" for n, v in zip(names, self, strict=True))
    return f"torch.return_types.{type(self).__name__}(\n{parts})"


class _Home:
    """The module that the types say they are of; the composition root sets it."""

    name = "flambeau.return_types"


def type_for(name: str, fields: tuple[str, ...]) -> type:
    """The class of that name, made when new."""
    found = TYPES.get(name)
    if found is None:
        found = _native.structseq(f"torch.return_types.{name}", fields)
        found.__repr__ = found.__str__ = _repr  # type: ignore[method-assign]
        found.__module__ = _Home.name
        TYPES[name] = found
        for watcher in _watchers:
            watcher(found)
    return found


def make(name: str, fields: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    """The values as an instance of torch.return_types.<name> (slot 'return_type')."""
    return _native.structseq_of(TYPES.get(name) or type_for(name, fields), values)


def set_home(module: str) -> None:
    """Name the module that the types are found in (pickles look there)."""
    _Home.name = module


def _register() -> None:
    """Make Size and the types nodes of pytrees, as torch does."""
    from flambeau._src.util import pytree  # lazy: it loads slowly, and is there when this runs

    def enter(cls: type) -> None:
        pytree.add_node(
            pytree.NodeDef(cls, lambda t: (list(t), None), lambda c, _: cls(tuple(c)), None)
        )

    pytree.add_node(pytree.NodeDef(Size, lambda t: (list(t), None), lambda c, _: tuple(c), None))
    for cls in TYPES.values():
        enter(cls)
    _watchers.append(enter)


fill("return_type", make)
when_loaded("pytree", _register)
