"""Training in several processes: not in this build. `is_available()` says so, and what needs a
group is no attribute."""

from __future__ import annotations

import enum
from typing import Any

from flambeau._src.util.errors import (
    DistBackendError,
    DistError,
    DistNetworkError,
    DistStoreError,
    QueueEmptyError,
)

__all__ = [
    "DistBackendError",
    "DistError",
    "DistNetworkError",
    "DistStoreError",
    "ProcessGroup",
    "QueueEmptyError",
    "ReduceOp",
    "group",
    "is_available",
    "is_initialized",
]


def is_available() -> bool:
    """False."""
    return False


def is_initialized() -> bool:
    """False: there is no group."""
    return False


def _no_backend() -> bool:
    """False: there are no back ends."""
    return False


is_nccl_available = is_gloo_available = is_mpi_available = is_ucc_available = _no_backend
is_xccl_available = is_torchelastic_launched = is_backend_available = _no_backend


class ProcessGroup:
    """Processes that work together: none can be made here."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError("torch.distributed is not part of this build: is_available() is False")


class _RedOpType(enum.Enum):
    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7
    PREMUL_SUM = 8


class ReduceOp:
    """How numbers of several processes become one."""

    RedOpType = _RedOpType
    SUM, AVG, PRODUCT, MIN = _RedOpType.SUM, _RedOpType.AVG, _RedOpType.PRODUCT, _RedOpType.MIN
    MAX, BAND, BOR, BXOR = _RedOpType.MAX, _RedOpType.BAND, _RedOpType.BOR, _RedOpType.BXOR
    PREMUL_SUM = _RedOpType.PREMUL_SUM


class group:
    """The group of all processes: there is none."""

    WORLD: Any = None


class GroupMember:
    """Whether this process is in a group."""

    WORLD: Any = None
    NON_GROUP_MEMBER = -100
