"""Meta's accelerator: not in this build.

Questions are answered; what needs the device is not here.
"""

from __future__ import annotations

from typing import Any

__all__ = ["device_count", "is_available", "is_initialized"]


def is_available() -> bool:
    """False."""
    return False


def is_initialized() -> bool:
    """False."""
    return False


def device_count() -> int:
    """0."""
    return 0


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Harmless without a device."""


manual_seed = manual_seed_all = seed = empty_cache = synchronize = reset_peak_memory_stats = (
    _nothing
)


def memory_allocated(device: Any = None) -> int:
    """0."""
    return 0


max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated


def get_rng_state_all() -> list[Any]:
    """[]: there is no device."""
    return []
