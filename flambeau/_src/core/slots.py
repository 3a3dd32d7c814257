"""Functions of higher ranks that lower ones (and C) call: filled by the composition root."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau._src import _native

SLOTS: dict[str, Callable[..., Any]] = _native.hooks


def fill(name: str, function: Callable[..., Any]) -> None:
    """Fill the slot `name`. Filling it again replaces the function (tests do)."""
    SLOTS[name] = function


def slot(name: str) -> Callable[..., Any]:
    """The function in the slot, or an error that says what is missing."""
    try:
        return SLOTS[name]
    except KeyError:
        raise RuntimeError(f"slot {name!r} is not filled: import flambeau, not its parts") from None
