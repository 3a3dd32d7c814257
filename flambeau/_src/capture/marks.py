"""What programs say to the capture of bytecode: kept where the capture will look for it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, TypeVar

from flambeau._src.core.interchange import from_numpy
from flambeau._src.core.tensor import Tensor
from flambeau._src.util import pytree

F = TypeVar("F", bound=Callable[..., Any])


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None, **_: Any) -> Any:
    """A function that is never captured, or a decorator that makes one."""

    def mark(function: Any) -> Any:
        # Built-in functions have no attributes, and are never captured.
        with contextlib.suppress(AttributeError):
            function._torchdynamo_disable = True
        return function

    return mark if fn is None else mark(fn)


def allow_in_graph(fn: Any) -> Any:
    """Mark a function (or each of a list) as one operator of a graph; returns it."""
    if isinstance(fn, (list, tuple)):
        return [allow_in_graph(f) for f in fn]
    if not callable(fn):
        raise AssertionError("allow_in_graph expects a callable")
    return fn


def disallow_in_graph(fn: Any) -> Any:
    """Mark a function to break the graph; returns it."""
    return fn


def assume_constant_result(fn: F) -> F:
    """Mark a function whose result is taken for a constant of the graph; returns it."""
    fn._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return fn


def substitute_in_graph(original_fn: Any, **_: Any) -> Callable[[F], F]:
    """A decorator: its function is captured in place of original_fn. Returned as it is."""
    return lambda function: function


def graph_break(msg: str = "") -> None:
    """Nothing when it runs; the capture ends a graph here."""


def reset() -> None:
    """Forget what was compiled: nothing is."""


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """The back ends that `compile` knows."""
    return []


def cudagraph_mark_step_begin() -> None:
    """Say that outputs of the step before are not needed: nothing to do without CUDA graphs."""


class set_stance:
    """What compiled code may do from here on, or inside a `with`: nothing is compiled."""

    def __init__(self, stance: str = "default", **_: Any) -> None:
        self.stance = stance

    def __call__(self, function: F) -> F:
        return function

    def __enter__(self) -> None:
        """Nothing."""

    def __exit__(self, *exc: object) -> None:
        """Nothing."""


def wrap_numpy(fn: Callable[..., Any]) -> Callable[..., Any]:
    """fn over NumPy arrays as a function over tensors."""

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        import numpy as np  # lazy: NumPy is heavy

        args, kwargs = pytree.tree_map_only(Tensor, lambda x: x.numpy(), (args, kwargs))
        return pytree.tree_map_only(np.ndarray, from_numpy, fn(*args, **kwargs))

    return wrapper


# ---- marks on tensors ----


def _indices(t: Any, name: str, index: Any) -> None:
    for i in index if isinstance(index, (list, tuple)) else (index,):
        found = getattr(t, name, None)
        if found is None:
            found = set()
            setattr(t, name, found)
        found.add(i)


def mark_dynamic(t: Any, index: Any, **_: Any) -> None:
    """The capture takes these dimensions as varying, and refuses to fix them."""
    _indices(t, "_dynamo_dynamic_indices", index)


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
