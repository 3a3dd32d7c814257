"""What replacement code calls: rounds of loops, one after the other, and iterators on their way."""

from __future__ import annotations

import itertools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from flambeau._src.capture import frames
from flambeau._src.core import state
from flambeau._src.core.tensor import Tensor

__all__ = [
    "Again", "AtOnce", "at_items", "at_keys", "at_values", "finished", "once_more", "put_unasked",
    "raised", "unasked", "wrapped",
]  # fmt: skip


class Again:
    """A round of a loop is over: `function(*args)` goes on."""

    __slots__ = ("args", "function")

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.function = function
        self.args = args


class AtOnce:
    """A graph that writes its inputs at once, whatever its back end is said to do."""

    __slots__ = ("run",)

    def __init__(self, run: Callable[..., Any]) -> None:
        self.run = run

    def __call__(self, *inputs: Any) -> Any:
        return self.run(*inputs)


def once_more(
    error: BaseException, graph: Any, function: Callable[..., Any], args: tuple[Any, ...]
) -> Any:
    """The function, whose graph raised the error, as it is."""
    if not isinstance(error, Exception) or type(graph) is AtOnce:
        raise error
    callback = frames.set_callback(None)
    try:
        return function(*args)
    finally:
        frames.set_callback(callback)


def raised(error: BaseException) -> None:
    """Note that the calling frame raised the error in the line that it is in."""
    frame = sys._getframe(1)
    error.__traceback__ = types.TracebackType(None, frame, frame.f_lasti, frame.f_lineno)


def finished() -> Iterator[Any]:
    """A generator that has come to its end."""
    nothing: tuple[Any, ...] = ()
    made = (x for x in nothing)
    next(made, None)
    return made


def _advanced(it: Iterator[Any], count: int) -> Iterator[Any]:
    next(itertools.islice(it, count, count), None)
    return it


def at_keys(table: dict[Any, Any], count: int) -> Iterator[Any]:
    """An iterator over a dict that has given `count` keys."""
    return _advanced(iter(table), count)


def at_values(table: dict[Any, Any], count: int) -> Iterator[Any]:
    """An iterator over a dict's values that has given `count` of them."""
    return _advanced(iter(table.values()), count)


def at_items(table: dict[Any, Any], count: int) -> Iterator[Any]:
    """An iterator over a dict's items that has given `count` of them."""
    return _advanced(iter(table.items()), count)


def unasked(run: Callable[..., Any], *inputs: Any) -> Any:
    """A graph of inputs whose classes have been asked already; what their operators run is not
    offered to be compiled."""
    before = state.set_suspended(state.get_suspended() | state.FUNCTION)
    callback = frames.set_callback(None)
    try:
        return run(*inputs)
    finally:
        frames.set_callback(callback)
        state.set_suspended(before)


def put_unasked(t: Tensor, name: str, value: Any) -> None:
    """Set an attribute of a tensor whose class is not asked."""
    with state.Suspended(state.FUNCTION):
        setattr(t, name, value)


def wrapped(t: Tensor, cls: type) -> Tensor:
    """A result of a graph in the class that the program gave it."""
    return Tensor.as_subclass(t, cls)
