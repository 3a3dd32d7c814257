"""What programs say to the capture of bytecode: kept where the capture will look for it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from flambeau._src.core.interchange import from_numpy
from flambeau._src.core.tensor import Tensor
from flambeau._src.util import pytree


def graph_break(msg: str = "") -> None:
    """Nothing when it runs; the capture ends a graph here."""


def is_compiling() -> bool:
    """Whether the capture interprets this."""
    return False


def wrap_numpy(fn: Callable[..., Any]) -> Callable[..., Any]:
    """fn over NumPy arrays as a function over tensors; compiled, it gives gradients, and scalars
    are tensors too."""

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        import numpy as np  # lazy: NumPy is heavy

        args, kwargs = pytree.tree_map_only(Tensor, lambda x: x.numpy(), (args, kwargs))
        arrays: Any = (np.ndarray, np.generic) if is_compiling() else np.ndarray
        return pytree.tree_map_only(arrays, from_numpy, fn(*args, **kwargs))

    return wrapper


# ---- marks on tensors ----


def _indices(t: Any, name: str, index: Any) -> None:
    for i in index if isinstance(index, (list, tuple)) else (index,):
        found = getattr(t, name, None)
        if found is None:
            found = set()
            setattr(t, name, found)
        found.add(i)


class _DimRange(NamedTuple):
    """What was said of a dimension's size."""

    dim: int
    min: int | None
    max: int | None


def mark_dynamic(
    t: Any, index: Any, *, hint_override: int | None = None, min: int | None = None,
    max: int | None = None, specialize_on: Any = None,
) -> None:  # fmt: skip
    """The capture takes these dimensions as varying (within min and max), and refuses to fix them.

    `hint_override` and `specialize_on` ask for choices that no back end makes here: kept, unused.
    """
    _indices(t, "_dynamo_dynamic_indices", index)
    for i in index if isinstance(index, (list, tuple)) else (index,):
        ranges: set[_DimRange] = t.__dict__.setdefault("_dynamo_dynamic_range", set())
        ranges.add(_DimRange(i, min, max))


def maybe_mark_dynamic(t: Any, index: Any) -> None:
    """The capture takes these dimensions as varying while it can."""
    _indices(t, "_dynamo_weak_dynamic_indices", index)


def mark_unbacked(t: Any, index: Any, **_: Any) -> None:
    """The capture assumes nothing of these dimensions."""
    _indices(t, "_dynamo_unbacked_indices", index)


def mark_static(t: Any, index: Any = None) -> None:
    """The capture takes these dimensions (all, for None) as fixed; of a class: its attributes."""
    if isinstance(t, type):
        t._dynamo_marked_static = True  # type: ignore[attr-defined]
        return
    _indices(t, "_dynamo_static_indices", list(range(t.dim())) if index is None else index)


def mark_static_address(t: Any, guard: bool = False) -> None:
    """The capture takes the address of this tensor as fixed."""
    t._dynamo_static_input_type = "guarded" if guard else "unguarded"
