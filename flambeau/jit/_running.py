"""What of TorchScript's functions means something in plain Python."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from flambeau.futures import Future

T = TypeVar("T")


def is_tracing() -> bool:
    """False: nothing is ever traced by TorchScript."""
    return False


def annotate(the_type: Any, the_value: T) -> T:
    """The value."""
    return the_value


def script_if_tracing(fn: Callable[..., T]) -> Callable[..., T]:
    """fn, which would be scripted inside a trace."""
    return fn


def fork(func: Callable[..., T], *args: Any, **kwargs: Any) -> Future[T]:
    """Call func now; a future of what it returned."""
    future: Future[T] = Future()
    future.set_result(func(*args, **kwargs))
    return future


def wait(future: Future[T]) -> T:
    """The value of a future."""
    return future.wait()


def set_fusion_strategy(strategy: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Nothing changes; the strategy that was in force (torch's default)."""
    return [("STATIC", 2), ("DYNAMIC", 10)]


@contextlib.contextmanager
def optimized_execution(should_optimize: bool) -> Iterator[None]:
    """Nothing changes inside."""
    yield


def _unwrap_optional(x: T | None) -> T:
    assert x is not None, "Unwrapping null optional"
    return x
