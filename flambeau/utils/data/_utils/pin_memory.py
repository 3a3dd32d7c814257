"""Batches in page-locked memory, from which copies to an accelerator can overlap with work."""

from __future__ import annotations

import collections.abc
from typing import Any

from flambeau import Tensor

from .collate import _rebuilt_mapping, _rebuilt_sequence


def pin_memory(data: Any, device: Any = None) -> Any:
    """`data` with every tensor in it pinned; an own ``pin_memory()`` method is called."""
    if isinstance(data, Tensor):
        return data.pin_memory() if device is None else data.pin_memory(device)
    if hasattr(data, "pin_memory"):
        return data.pin_memory()
    if isinstance(data, (str, bytes)):
        return data
    if isinstance(data, collections.abc.Mapping):
        pinned = {key: pin_memory(value, device) for key, value in data.items()}
        return _rebuilt_mapping(data, pinned)
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(pin_memory(value, device) for value in data))
    if isinstance(data, tuple):
        return [pin_memory(value, device) for value in data]
    if isinstance(data, collections.abc.Sequence):
        return _rebuilt_sequence(data, [pin_memory(value, device) for value in data])
    return data
