"""A table of names to things, with errors that say what was meant."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, KeysView, ValuesView
from typing import Generic, TypeVar

__all__ = ["Registry", "closest"]

T = TypeVar("T")


class Registry(Generic[T]):
    """Names, each registered once. `what` names the kind of thing in error messages.

    Order of registration is kept. Reading an unknown name raises KeyError with the closest names;
    registering a name twice raises ValueError unless ``override=True``.
    """

    __slots__ = ("_table", "what")

    def __init__(self, what: str) -> None:
        self.what = what
        self._table: dict[str, T] = {}

    def add(self, name: str, value: T, *, override: bool = False) -> T:
        """Register `value` under `name` and return it."""
        if not override and name in self._table:
            raise ValueError(
                f"{self.what} {name!r} is already registered, as {self._table[name]!r}; "
                "pass override=True to replace it"
            )
        self._table[name] = value
        return value

    def register(self, name: str, *, override: bool = False) -> Callable[[T], T]:
        """`add` as a decorator."""

        def decorate(value: T) -> T:
            return self.add(name, value, override=override)

        return decorate

    def remove(self, name: str) -> T:
        """Take `name` out and return what it stood for."""
        self[name]
        return self._table.pop(name)

    def get(self, name: str, default: T | None = None) -> T | None:
        """The value of `name`, or `default`."""
        return self._table.get(name, default)

    def __getitem__(self, name: str) -> T:
        try:
            return self._table[name]
        except KeyError:
            pass
        near = closest(name, self._table)
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise KeyError(f"no {self.what} {name!r} is registered{hint}")

    def __contains__(self, name: object) -> bool:
        return name in self._table

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)

    def keys(self) -> KeysView[str]:
        return self._table.keys()

    def values(self) -> ValuesView[T]:
        return self._table.values()

    def items(self) -> ItemsView[str, T]:
        return self._table.items()

    def __repr__(self) -> str:
        return f"<registry of {len(self)} {self.what}s>"


def closest(name: str, known: Iterator[str] | dict[str, T] | list[str], n: int = 3) -> list[str]:
    """Up to `n` of the `known` names that resemble `name`, best first."""
    import difflib  # lazy: only an error needs it

    return difflib.get_close_matches(str(name), list(known), n=n)
