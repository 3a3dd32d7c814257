"""How tensors print."""

from __future__ import annotations

from typing import Any

from flambeau._src.core.tensor import Tensor


def __repr__(self: Tensor, *, tensor_contents: Any = None) -> str:
    return f"tensor({self.tolist()}, dtype={self.dtype})"


METHODS: dict[str, Any] = {"__repr__": __repr__}
