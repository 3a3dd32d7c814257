"""The accelerator of this machine, whatever its kind: a thin face of `flambeau.cuda`."""

from __future__ import annotations

from typing import Any

import flambeau as torch

__all__ = [
    "current_accelerator",
    "current_device_index",
    "current_stream",
    "device_count",
    "is_available",
    "set_device_index",
    "set_stream",
    "synchronize",
]


def is_available() -> bool:
    """Whether there is an accelerator that works."""
    return torch.cuda.is_available()


def device_count() -> int:
    """How many there are."""
    return torch.cuda.device_count() if is_available() else 0


def current_accelerator(check_available: bool = False) -> Any:
    """The device without an index, None where there is no accelerator."""
    return torch.device("cuda") if is_available() else None


def _cuda() -> Any:
    if not is_available():
        raise RuntimeError("Cannot access accelerator device when none is available.")
    return torch.cuda


def current_device_index() -> int:
    """The index of the device in use. RuntimeError where there is none."""
    return _cuda().current_device()


def set_device_index(device: Any) -> None:
    """Use this device from now on in this thread."""
    _cuda().set_device(device)


def current_stream(device: Any = None) -> Any:
    """The stream in use on a device."""
    return _cuda().current_stream(device)


def set_stream(stream: Any) -> None:
    """Use this stream from now on in this thread."""
    _cuda().set_stream(stream)


def synchronize(device: Any = None) -> None:
    """Wait until a device has done all that it was given."""
    _cuda().synchronize(device)
