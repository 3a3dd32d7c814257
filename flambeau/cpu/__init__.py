"""The CPU as a device, with the names that accelerators have.

It has one stream, which waits for nothing.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import flambeau as torch

__all__ = [
    "Event",
    "Stream",
    "StreamContext",
    "current_device",
    "current_stream",
    "device_count",
    "is_available",
    "is_initialized",
    "set_device",
    "stream",
    "synchronize",
]


def is_available() -> bool:
    """True."""
    return True


def is_initialized() -> bool:
    """True."""
    return True


def synchronize(device: Any = None) -> None:
    """Nothing: operators are done when they return."""


class Stream:
    """The one stream of the CPU."""

    def __init__(self, priority: int = -1) -> None:
        """Nothing."""

    def wait_stream(self, stream: Any) -> None:
        """Nothing."""

    def record_event(self) -> None:
        """Nothing."""

    def wait_event(self, event: Any) -> None:
        """Nothing."""


class Event:
    """A moment of that stream."""

    def query(self) -> bool:
        """Whether it has passed: always."""
        return True

    def record(self, stream: Any = None) -> None:
        """Nothing."""

    def synchronize(self) -> None:
        """Nothing."""

    def wait(self, stream: Any = None) -> None:
        """Nothing."""


_STREAM = Stream()


def current_stream(device: Any = None) -> Stream:
    """The stream in use: the one there is."""
    return _STREAM


class StreamContext(AbstractContextManager[None]):
    """`with StreamContext(stream):` nothing changes."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __exit__(self, *exc: object) -> None:
        """Nothing."""


def stream(stream: Any) -> StreamContext:
    """A context in which the stream is in use."""
    return StreamContext(stream)


def device_count() -> int:
    """1."""
    return 1


def set_device(device: Any) -> None:
    """Nothing: there is one."""


def current_device() -> str:
    """'cpu'."""
    return torch.device("cpu").type
