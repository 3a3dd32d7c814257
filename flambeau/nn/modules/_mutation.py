"""A clock of module mutations: what lets a compiled call see that no module has changed.

`clock[0]` advances whenever any module changes (an attribute, a parameter's or a child's
registration, a hook); each module and each table keeps the time of its own last change. A guard
compares the clock; only if it has moved are the stamps of its own modules compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flambeau._src.core.slots import fill

clock = [0]


def now() -> int:
    """The time of the last change of any module in the process."""
    return clock[0]


def stamp_of(module: Any) -> int:
    """The time of a module's last change (its children not included)."""
    d = module.__dict__
    stamp = d["_stamp"]
    for name in ("_parameters", "_buffers", "_modules"):
        table = d[name]
        if type(table) is not Table:
            return clock[0]  # a foreign dict: nothing is known of it
        if table.stamp > stamp:
            stamp = table.stamp
    return stamp


class Table(dict):
    """`_parameters`, `_buffers` or `_modules`: a dict that notes when it changed.

    It pickles and copies as a plain dict, so that saved modules do not depend on it.
    """

    __slots__ = ("stamp",)

    def __init__(self, items: Iterable[Any] = ()) -> None:
        super().__init__(items)
        self._touch()

    def _touch(self) -> None:
        clock[0] += 1
        self.stamp = clock[0]

    def __setitem__(self, key: str, value: Any) -> None:
        dict.__setitem__(self, key, value)
        clock[0] += 1
        self.stamp = clock[0]

    def __delitem__(self, key: str) -> None:
        dict.__delitem__(self, key)
        self._touch()

    def pop(self, *args: Any) -> Any:
        self._touch()
        return dict.pop(self, *args)

    def popitem(self) -> tuple[str, Any]:
        self._touch()
        return dict.popitem(self)

    def clear(self) -> None:
        dict.clear(self)
        self._touch()

    def update(self, *args: Any, **kwargs: Any) -> None:
        dict.update(self, *args, **kwargs)
        self._touch()

    def setdefault(self, *args: Any) -> Any:
        self._touch()
        return dict.setdefault(self, *args)

    def __ior__(self, other: Any) -> Any:
        self.update(other)
        return self

    def copy(self) -> Table:
        return Table(self)

    def __reduce_ex__(self, proto: Any) -> tuple[Any, ...]:
        return dict, (), None, None, iter(self.items())


# How guards find both without importing a public library.
fill("module_clock", lambda: (clock, Table))
