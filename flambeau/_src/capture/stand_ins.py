"""Python code that programs run in place of native functions of the standard library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["backwards", "cmp_to_key"]


def cmp_to_key(compare: Callable[[Any, Any], Any]) -> Any:
    """`functools.cmp_to_key`."""

    def made(value: Any) -> _Key:
        return _Key(compare, value)

    return made


def backwards(sequence: Any) -> Iterator[Any]:
    """`reversed` of an object that has only `__getitem__` and `__len__`."""
    for i in range(len(sequence) - 1, -1, -1):
        yield sequence[i]


class _Key:
    __slots__ = ("compare", "obj")

    def __init__(self, compare: Callable[[Any, Any], Any], value: Any) -> None:
        self.compare = compare
        self.obj = value

    def __lt__(self, other: _Key) -> Any:
        return self.compare(self.obj, other.obj) < 0

    def __gt__(self, other: _Key) -> Any:
        return self.compare(self.obj, other.obj) > 0

    def __le__(self, other: _Key) -> Any:
        return self.compare(self.obj, other.obj) <= 0

    def __ge__(self, other: _Key) -> Any:
        return self.compare(self.obj, other.obj) >= 0

    def __eq__(self, other: object) -> Any:
        return self.compare(self.obj, other.obj) == 0  # type: ignore[attr-defined]

    __hash__ = None  # type: ignore[assignment]
