"""The standard library's multiprocessing, with tensors that go between processes by sharing.

A tensor that is sent through a Queue or Pipe, or given to a process that is spawned, is moved into
shared memory; the receiver has the same bytes, not a copy.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing import *  # noqa: F403
from typing import Any

from .reductions import init_reductions
from .spawn import (
    ProcessContext,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
    start_processes,
)

__all__ = [
    "ProcessContext",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "set_sharing_strategy",
    "spawn",
    "start_processes",
    *multiprocessing.__all__,  # type: ignore[attr-defined]
]

_STRATEGIES = frozenset({"file_descriptor", "file_system"})


class _Strategy:
    current = "file_descriptor"


def set_sharing_strategy(new_strategy: str) -> None:
    """Choose how memory is shared.

    Accepted for compatibility: the memory has no name in either case, and its descriptor is sent.
    """
    if new_strategy not in _STRATEGIES:
        raise AssertionError(
            f"invalid sharing strategy {new_strategy!r}, expected one of {set(_STRATEGIES)}"
        )
    _Strategy.current = new_strategy


def get_sharing_strategy() -> str:
    """The strategy that was chosen."""
    return _Strategy.current


def get_all_sharing_strategies() -> set[str]:
    """The strategies that can be chosen."""
    return set(_STRATEGIES)


def __getattr__(name: str) -> Any:
    # Modules such as multiprocessing.context, and private names.
    return getattr(multiprocessing, name)


init_reductions()
