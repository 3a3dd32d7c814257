"""Profiling by its older name. flambeau records no profile yet: the contexts run what is inside,
the lists they give are empty, and entering a profile says so once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from flambeau._src.util.log import warn_once

__all__ = ["EventList", "emit_itt", "emit_nvtx", "profile", "record_function"]

F = TypeVar("F", bound=Callable[..., Any])


class EventList(list[Any]):
    """Events of a profile: none are recorded."""

    def table(self, sort_by: str | None = None, row_limit: int = 100, **_: Any) -> str:
        """The events as text."""
        return "flambeau records no profile: there are no events.\n"

    def total_average(self) -> None:
        """None: there are no events."""

    def key_averages(self, *_: Any, **__: Any) -> EventList:
        """The events by name: none."""
        return EventList()

    def export_chrome_trace(self, path: str) -> None:
        """Write the events as JSON: an empty trace."""
        with open(path, "w") as file:
            file.write('{"traceEvents": []}\n')

    @property
    def self_cpu_time_total(self) -> float:
        """0: there are no events."""
        return 0.0


class _Nothing:
    """A context and a decorator that change nothing."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc: object) -> None:
        """Nothing."""

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return wrapper  # type: ignore[return-value]


class record_function(_Nothing):
    """`with record_function(name):` a name for what is inside, in profiles."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self.args = args


class profile(_Nothing):
    """`with profile() as p:` operators inside would be recorded; they are not."""

    def __init__(self, enabled: bool = True, **_: Any) -> None:
        self.enabled = enabled
        self.function_events = EventList()

    def __enter__(self) -> Any:
        if self.enabled:
            warn_once("profiler", "flambeau records no profile: its events are an empty list")
        return self

    def key_averages(self, *_: Any, **__: Any) -> EventList:
        """The events by name: none."""
        return EventList()

    def table(self, *_: Any, **__: Any) -> str:
        """The events as text."""
        return EventList().table()

    def export_chrome_trace(self, path: str) -> None:
        """Write the events as JSON: an empty trace."""
        EventList().export_chrome_trace(path)

    def total_average(self) -> None:
        """None: there are no events."""

    @property
    def self_cpu_time_total(self) -> float:
        """0: there are no events."""
        return 0.0


class emit_nvtx(_Nothing):
    """Names for NVIDIA's tools: there is no such device."""

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        self.enabled = enabled


class emit_itt(emit_nvtx):
    """Names for Intel's tools: none are given."""
