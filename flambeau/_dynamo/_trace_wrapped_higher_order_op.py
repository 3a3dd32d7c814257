"""A mode under which indexing a tensor with tensors is one operator that vmap knows."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.overrides import TorchFunctionMode


class TransformGetItemToIndex(TorchFunctionMode):
    """Inside, `x[i]` with tensors of no dimension among the indices is gathered, not read out."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__getitem__:
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            if all(isinstance(i, torch.Tensor) for i in index):
                return torch.ops.aten.index(args[0], list(index))
        return func(*args, **(kwargs or {}))
