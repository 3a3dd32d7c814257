"""Choosing the implementation of scaled dot product attention."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator
from typing import Any

import flambeau as torch

__all__ = ["SDPBackend", "sdpa_kernel", "WARN_FOR_UNFUSED_KERNELS"]

# Whether attention says why a fused implementation cannot be used.
WARN_FOR_UNFUSED_KERNELS = False


class SDPBackend(enum.Enum):
    """The implementations of attention."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4

    def __int__(self) -> int:
        return self.value

    __index__ = __int__

    def __hash__(self) -> int:
        return self.value


# The part of each name in `backends.cuda`: `enable_<name>_sdp`, `<name>_sdp_enabled`.
_NAMES = {
    SDPBackend.CUDNN_ATTENTION: "cudnn",
    SDPBackend.FLASH_ATTENTION: "flash",
    SDPBackend.EFFICIENT_ATTENTION: "mem_efficient",
    SDPBackend.MATH: "math",
}


def _cur_sdpa_kernel_backends(with_priority: bool = False) -> list[SDPBackend]:
    """The implementations that are allowed now."""
    cuda = torch.backends.cuda
    return [b for b, name in _NAMES.items() if getattr(cuda, f"{name}_sdp_enabled")()]


def _allow(backends: Any) -> None:
    cuda = torch.backends.cuda
    for backend, name in _NAMES.items():
        getattr(cuda, f"enable_{name}_sdp")(backend in backends)


@contextlib.contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[dict[str, Any]]:
    """Inside, attention uses only the given implementation, or one of a list.

    Args:
        backends: an SDPBackend or a list of them.
        set_priority: the list is in order of preference; there is one choice a device here, which
            an order does not change.
    """
    if not isinstance(backends, (list, SDPBackend)):
        raise AssertionError(
            "Backend must be an instance of SDPBackend or a list of SDPBackend instances, "
            f"got {type(backends).__name__}"
        )
    if isinstance(backends, SDPBackend):
        backends = [backends]
    before = _cur_sdpa_kernel_backends()
    try:
        _allow(backends)
        yield {}
    finally:
        _allow(before)


@contextlib.contextmanager
def _sdpa_kernel_variadic(*backends: SDPBackend) -> Iterator[None]:
    with sdpa_kernel(list(backends)):
        yield
