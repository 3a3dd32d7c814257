"""The CUDA device: not in this build. Questions are answered; work is refused with the reason."""

from __future__ import annotations

from typing import Any, NoReturn


def is_available() -> bool:
    return False


def device_count() -> int:
    return 0


def is_initialized() -> bool:
    return False


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return False


def _refuse(*args: Any, **kwargs: Any) -> NoReturn:
    raise AssertionError("Torch not compiled with CUDA enabled")


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Harmless without a device: seeds, caches, statistics."""
    return None


manual_seed = manual_seed_all = seed = seed_all = empty_cache = reset_peak_memory_stats = _nothing
init = current_device = set_device = synchronize = current_stream = get_device_name = get_device_properties = _refuse
get_device_capability = mem_get_info = get_rng_state = set_rng_state = _refuse


def memory_allocated(device: Any = None) -> int:
    return 0


max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated


def get_rng_state_all() -> list[Any]:
    return []


def set_rng_state_all(states: Any) -> None:
    if list(states):
        _refuse()
