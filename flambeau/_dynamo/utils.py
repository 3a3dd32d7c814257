"""Counts and times of what was compiled."""

from __future__ import annotations

from typing import Any

from flambeau._src.compiler.history import COUNTERS as counters
from flambeau._src.compiler.history import compile_times
from flambeau._src.compiler.timeline import draw as draw_history

__all__ = ["compile_times", "counters", "draw_history", "is_compile_supported"]


def is_compile_supported(device_type: Any) -> bool:
    """Whether `compile` generates code for a device."""
    return str(device_type).split(":")[0] == "cpu"
