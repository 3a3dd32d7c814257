"""What parts want to tell a module that is loaded late: it is told when it is there."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["loaded", "when_loaded"]

_WAITING: dict[str, list[Callable[[], None]]] = {}
_LOADED: set[str] = set()


def when_loaded(name: str, function: Callable[[], None]) -> None:
    """Call `function` as soon as `loaded(name)` has been said: now, or then."""
    if name in _LOADED:
        function()
    else:
        _WAITING.setdefault(name, []).append(function)


def loaded(name: str) -> None:
    """Say, at the end of a module, that it can be used."""
    _LOADED.add(name)
    for function in _WAITING.pop(name, []):
        function()
