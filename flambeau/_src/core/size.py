"""`Size`: the shape of a tensor, a tuple of ints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Size(tuple[Any, ...]):
    """A tuple of extents. `numel()` is their product; slices and sums stay `Size`."""

    __slots__ = ()

    def __new__(cls, sizes: Iterable[Any] = ()) -> Size:
        items = []
        for i, s in enumerate(sizes):
            if not isinstance(s, int):
                index = getattr(s, "__index__", None)
                if index is None:
                    raise TypeError(
                        "torch.Size() takes an iterable of 'int' "
                        f"(item {i} is '{type(s).__name__}')"
                    )
                s = s if hasattr(s, "__sym_int__") else index()
            items.append(s)
        return tuple.__new__(cls, items)

    def numel(self) -> int:
        n = 1
        for s in self:
            n *= s
        return n

    def __getitem__(self, i: Any) -> Any:
        r = tuple.__getitem__(self, i)
        return tuple.__new__(Size, r) if isinstance(i, slice) else r

    def __add__(self, other: Any) -> Size:
        if not isinstance(other, tuple):
            raise TypeError(
                f'can only concatenate tuple (not "{type(other).__name__}") to torch.Size'
            )
        return Size(tuple.__add__(self, other))

    def __radd__(self, other: Any) -> Size:
        return Size(tuple(other) + tuple(self))

    def __mul__(self, n: Any) -> Size:
        return tuple.__new__(Size, tuple.__mul__(self, n))

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return f"torch.Size([{', '.join(map(repr, self))}])"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Size, (tuple(self),))
