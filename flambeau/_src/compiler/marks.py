"""Small things that programs say while they run compiled code, and filters of guards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = [
    "cudagraph_mark_step_begin", "keep_tensor_guards_unsafe", "skip_all_guards_unsafe",
    "skip_guard_on_all_nn_modules_unsafe", "skip_guard_on_globals_unsafe",
    "skip_guard_on_inbuilt_nn_modules_unsafe",
]  # fmt: skip


def cudagraph_mark_step_begin() -> None:
    """Say that outputs of the step before are not needed: nothing to do without CUDA graphs."""


# Filters for `options={"guard_filter_fn": ...}`: each gives a bool for every guard.


def skip_all_guards_unsafe(guard_entries: Sequence[Any]) -> list[bool]:
    """Check nothing."""
    return [False for _ in guard_entries]


def keep_tensor_guards_unsafe(
    guard_entries: Sequence[Any], keep_parameters: bool = False
) -> list[bool]:
    """Check tensors only, and among them parameters only if asked."""
    keep = []
    for entry in guard_entries:
        parameter = getattr(getattr(entry, "value", None), "_is_param", False)
        keep.append(entry.guard_type == "TENSOR_MATCH" and (keep_parameters or not parameter))
    return keep


def skip_guard_on_globals_unsafe(guard_entries: Sequence[Any]) -> list[bool]:
    """Do not check globals."""
    return [not entry.is_global for entry in guard_entries]


def skip_guard_on_all_nn_modules_unsafe(guard_entries: Sequence[Any]) -> list[bool]:
    """Do not check modules."""
    return [not entry.is_module for entry in guard_entries]


def skip_guard_on_inbuilt_nn_modules_unsafe(guard_entries: Sequence[Any]) -> list[bool]:
    """Do not check the library's own modules."""
    return [not (entry.is_module and entry.is_inbuilt) for entry in guard_entries]
