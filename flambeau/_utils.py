"""What checkpoints and user programs look for under this name: rebuilding, errors across processes.

The names here are part of the checkpoint format: a pickled tensor is a call of
``_rebuild_tensor_v2`` with a storage and a geometry.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import flambeau as torch


class KeyErrorMessage(str):
    """A message whose repr is itself: KeyError prints the repr of its argument."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class ExceptionWrapper:
    """An exception with its traceback as text, so that it can go to another process.

    Made in an ``except`` block. The exception object is not kept: its traceback would keep frames
    alive, and it need not be picklable.

    Args:
        exc_info: as of ``sys.exc_info()``, the default.
        where: completes "Caught <type> ...", e.g. "in DataLoader worker process 0".
    """

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        if exc_info is None:
            exc_info = sys.exc_info()
        self.exc_type = exc_info[0]
        self.exc_msg = "".join(traceback.format_exception(*exc_info))
        self.where = where

    def reraise(self) -> None:
        """Raise an exception of the same type, its text being the whole traceback.

        RuntimeError where the type cannot be made from one text.
        """
        message = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        if self.exc_type is KeyError:
            message = KeyErrorMessage(message)
        try:
            if getattr(self.exc_type, "message", None):
                exception = self.exc_type(message=message)
            else:
                exception = self.exc_type(message)
        except Exception:
            raise RuntimeError(message) from None
        raise exception


def cpu_count() -> int | None:
    """The CPUs that this process may use, None where that cannot be told."""
    if hasattr(os, "sched_getaffinity"):
        try:
            return len(os.sched_getaffinity(0))
        except OSError:
            pass
    return os.cpu_count()
