"""`Dim`: sizes that may vary, and what is said about them."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from flambeau._src.compiler.errors import UserError, UserErrorType

__all__ = ["Dim", "DimHint", "check"]

_HOME = "flambeau.export.dynamic_shapes"


class DimHint(enum.Enum):
    """What may become of a size: decided by the trace, varying, fixed."""

    AUTO = 1
    STATIC = 2
    DYNAMIC = 3

    def __repr__(self) -> str:
        return f"DimHint({self.name})"

    __str__ = __repr__


class Dim:
    """A size with a name and a range; `2 * batch` and `batch + 1` are sizes too.

    ValueError, AssertionError: a name that is no identifier, an empty range.
    """

    AUTO, STATIC, DYNAMIC = DimHint.AUTO, DimHint.STATIC, DimHint.DYNAMIC

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        low = 0 if min is None else min
        assert name.isidentifier(), f"Dim name must be a valid identifier, got {name}"
        if max is not None:
            assert max > low, f"Cannot create Dim with inconsistent min={min}, max={max}"
        self.__name__, self.min, self.max = name, low, max

    def __repr__(self) -> str:
        parts = [repr(self.__name__)]
        if self.max is None or self.min not in (0, 1, 2):
            parts.append(f"min={self.min}")
        if self.max is not None:
            parts.append(f"max={self.max}")
        return f"Dim({', '.join(parts)})"

    def __mul__(self, other: int) -> Derived:
        return Derived(self, other, 0)

    __rmul__ = __mul__

    def __add__(self, other: int) -> Derived:
        return Derived(self, 1, other)

    __radd__ = __add__

    def __sub__(self, other: int) -> Derived:
        return Derived(self, 1, -other)


class Derived(Dim):
    """`scale * root + shift`."""

    def __init__(self, root: Dim, scale: int, shift: int) -> None:
        self.root, self.scale, self.shift = root, scale, shift
        text = root.__name__ if scale == 1 else f"{scale}*{root.__name__}"
        self.__name__ = text if not shift else f"{text}{shift:+d}"
        self.min = root.min * scale + shift
        self.max = None if root.max is None else root.max * scale + shift


Dim.__module__ = DimHint.__module__ = Derived.__module__ = _HOME


def check(
    forward: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], shapes: Any
) -> None:
    """Refuse what is said of sizes where it does not fit the arguments, or asks for what a trace
    of fixed sizes cannot give."""
    if shapes is None:
        return
    names = list(inspect.signature(forward).bind(*args, **kwargs).arguments)
    if isinstance(shapes, Mapping) and set(shapes) != set(names):
        raise UserError(
            UserErrorType.INVALID_INPUT,
            "When `dynamic_shapes` is specified as a dict, its top-level keys must be the arg "
            f"names {names} of `inputs`, but here they are {list(shapes)}. Alternatively, you "
            "could also ignore arg names entirely and specify `dynamic_shapes` as a list/tuple "
            "matching `inputs`.",
        )
    for found in _dims(shapes):
        if isinstance(found, Dim) or found is DimHint.DYNAMIC:
            raise UserError(
                UserErrorType.DYNAMIC_DIM,
                f"{found} is to vary, but this export traces with fixed sizes: leave it out "
                "or use Dim.AUTO or Dim.STATIC.",
            )


def _dims(shapes: Any) -> list[Any]:
    if isinstance(shapes, Mapping):
        return [d for v in shapes.values() for d in _dims(v)]
    if isinstance(shapes, (list, tuple)):
        return [d for v in shapes for d in _dims(v)]
    return [shapes]
