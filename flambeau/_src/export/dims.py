"""`Dim`: sizes that may vary, by name."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["Derived", "Dim", "DimHint", "dims"]

_HOME = "flambeau.export.dynamic_shapes"


class DimHint:
    """What may become of a size that has no name.

    `AUTO`: the trace decides; `DYNAMIC`: it varies, or the export fails; `STATIC`: it is fixed.
    The first two may be called to say how far: `Dim.AUTO(min=2, max=64)`.
    """

    AUTO: DimHint
    DYNAMIC: DimHint
    STATIC: DimHint

    def __init__(self, kind: str, min: int | None = None, max: int | None = None) -> None:
        self.kind, self.min, self.max = kind, min, max

    def __call__(self, min: int | None = None, max: int | None = None) -> DimHint:
        """The same within a range. TypeError for STATIC, AssertionError for a bad range."""
        if self.kind == "STATIC":
            raise TypeError("'DimHint' object is not callable")
        assert min is None or min >= 0, "min must be non-negative"
        assert max is None or max >= 0, "max must be non-negative"
        assert min is None or max is None or min <= max, "min must be <= max"
        return DimHint(self.kind, min, max)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DimHint) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((self.kind, self.min, self.max))

    def __repr__(self) -> str:
        parts = [self.kind]
        parts += [f"{n}={v}" for n, v in (("min", self.min), ("max", self.max)) if v is not None]
        return f"DimHint({', '.join(parts)})"


DimHint.AUTO, DimHint.DYNAMIC, DimHint.STATIC = (
    DimHint("AUTO"), DimHint("DYNAMIC"), DimHint("STATIC"),
)  # fmt: skip


class Dim:
    """A size with a name and a range; `2 * batch` and `batch + 1` are sizes too.

    `max` is `math.inf` where there is none. AssertionError: a name that is no identifier, an
    empty range. NotImplementedError for another arithmetic than with ints, increasing.
    """

    AUTO, STATIC, DYNAMIC = DimHint.AUTO, DimHint.STATIC, DimHint.DYNAMIC
    scale, shift = 1, 0

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        low, high = 0 if min is None else min, math.inf if max is None else max
        assert name.isidentifier(), f"Dim name must be a valid identifier, got {name}"
        assert high > low, f"Cannot create Dim with inconsistent min={min}, max={max}"
        self.__name__ = name
        self.min: int = low
        self.max: float = high

    @property
    def root(self) -> Dim:
        """The size that it is computed from."""
        return self

    def __repr__(self) -> str:
        parts = [repr(self.__name__), f"min={self.min}"]
        if self.max != math.inf:
            parts.append(f"max={self.max}")
        return f"Dim({', '.join(parts)})"

    def of(self, n: int) -> int | None:
        """The root's size where this one is n; None if no int gives n."""
        quotient, rest = divmod(n - self.shift, self.scale)
        return None if rest else quotient

    def __mul__(self, other: Any) -> Dim:
        if type(other) is not int or other <= 0:
            raise NotImplementedError(
                f"Attempted to multiply {other} with {self.__name__}, where a positive integer was "
                "expected. (Only increasing linear operations with integer coefficients are "
                "supported.)"
            )
        return Derived(self.root, self.scale * other, self.shift * other)

    __rmul__ = __mul__

    def __add__(self, other: Any) -> Dim:
        if type(other) is not int:
            raise NotImplementedError(
                f"Attempted to add {other} to {self.__name__}, where an integer was expected. "
                "(Only increasing linear operations with integer coefficients are supported.)"
            )
        return Derived(self.root, self.scale, self.shift + other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Dim:
        if type(other) is not int:
            raise NotImplementedError(
                f"Attempted to subtract {other} from {self.__name__}, where an integer was "
                "expected. (Only increasing linear operations with integer coefficients are "
                "supported.)"
            )
        return self + -other

    def __rsub__(self, other: Any) -> Dim:
        raise NotImplementedError(
            f"Attempted to negate {self.__name__}. (Only increasing linear operations with "
            "integer coefficients are supported.)"
        )


class Derived(Dim):
    """`scale * root + shift`."""

    def __init__(self, root: Dim, scale: int, shift: int) -> None:
        self._root, self.scale, self.shift = root, scale, shift
        text = root.__name__ if scale == 1 else f"{scale}*{root.__name__}"
        self.__name__ = text + (f" {'+' if shift > 0 else '-'} {abs(shift)}" if shift else "")
        self.min = root.min * scale + shift
        self.max = root.max * scale + shift

    @property
    def root(self) -> Dim:
        return self._root

    def __repr__(self) -> str:
        return self.__name__


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:
    """A `Dim` a name, all of one range."""
    return tuple(Dim(name, min=min, max=max) for name in names)


Dim.__module__ = Derived.__module__ = DimHint.__module__ = dims.__module__ = _HOME
Derived.__name__ = Derived.__qualname__ = "_DerivedDim"
DimHint.__name__ = DimHint.__qualname__ = "_DimHint"
