"""Temporary changes of attributes and dictionaries, undone in reverse order."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

__all__ = ["Patcher"]

_MISSING: Any = object()


class Patcher(AbstractContextManager["Patcher"]):
    """Collects changes; leaving the context undoes them."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self._visited: set[int] = set()

    def attribute(self, owner: Any, name: str, value: Any) -> None:
        """Set ``owner.name`` in the owner's own dictionary."""
        old = owner.__dict__.get(name, _MISSING)
        if old is _MISSING:
            self._undo.append(lambda: delattr(owner, name))
        else:
            self._undo.append(lambda: setattr(owner, name, old))
        setattr(owner, name, value)

    def item(self, table: dict[str, Any], name: str, value: Any) -> None:
        """Set ``table[name]``; a name missing there hides a builtin for the time."""
        old = table.get(name, _MISSING)
        if old is _MISSING:
            self._undo.append(lambda: table.pop(name, None))
        else:
            self._undo.append(lambda: table.__setitem__(name, old))
        table[name] = value

    def first_visit(self, thing: Any) -> bool:
        """True the first time that this very object is asked about."""
        known = id(thing) in self._visited
        self._visited.add(id(thing))
        return not known

    def revert(self) -> None:
        """Undo everything now."""
        while self._undo:
            self._undo.pop()()
        self._visited.clear()

    def __exit__(self, *error: object) -> None:
        self.revert()


def lookup(table: dict[str, Any], name: str) -> Any:
    """What a global name means: in the module, else in the builtins."""
    return table[name] if name in table else getattr(builtins, name)
