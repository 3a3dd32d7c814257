"""Options of `linear_cross_entropy`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flambeau as torch

__all__ = ["LinearCrossEntropyOptions"]

_POLICIES = ("accurate", "balanced", "compact", "auto")


def _valid_method(method: Any) -> bool:
    if method is None or method == "auto":
        return True
    name, _, ratio = str(method).partition(":")
    return name == "aspect_ratio" and ratio.isdigit() and int(ratio) > 0


@dataclass(frozen=True, slots=True)
class LinearCrossEntropyOptions:
    """How PyTorch splits the batch to save memory; the result does not depend on it.

    Attributes:
        allow_retain_graph: the backward pass may run more than once.
        batch_chunk_size: rows at a time; None: by `chunking_method`.
        chunking_method: "auto", "aspect_ratio:<n>" or None.
        acc_policy: "accurate", "balanced", "compact" or "auto".
        acc_dtype: the dtype of sums.
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: torch.dtype | None = None

    def __post_init__(self) -> None:
        size = self.batch_chunk_size
        if size is not None and not (isinstance(size, int) and size > 0):
            raise ValueError(f"batch_chunk_size must be positive int or None, got {size}")
        if not _valid_method(self.chunking_method):
            raise ValueError(f"invalid chunking_method: {self.chunking_method!r}")
        if self.acc_policy not in _POLICIES:
            raise ValueError(f"invalid acc_policy: {self.acc_policy!r}")
        dtypes = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
        if self.acc_dtype is not None and self.acc_dtype not in dtypes:
            listed = ", ".join(str(d) for d in (None, *dtypes))
            raise ValueError(
                f"acc_dtype must be one of {{{listed}}}, got {self.acc_dtype}."
                " Pass acc_dtype=None to let the op pick automatically."
            )
