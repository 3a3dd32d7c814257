"""Variable: the old name of Tensor."""

from __future__ import annotations

from typing import Any

import flambeau as torch

__all__ = ["Variable"]


class VariableMeta(type):
    """Every tensor is an instance of Variable."""

    def __instancecheck__(cls, other: Any) -> bool:
        return isinstance(other, torch.Tensor)


class Variable(metaclass=VariableMeta):
    """Deprecated: calling it gives the tensor itself, with requires_grad set.

    Args:
        data: a tensor.
        requires_grad: the flag of the result.
    """

    def __new__(cls, data: Any = None, requires_grad: bool = False, volatile: Any = None) -> Any:
        if data is None:
            data = torch.empty(0)
        if data.grad_fn is not None and not requires_grad:
            return data.detach()
        new = data.detach() if data.requires_grad != requires_grad else data.view_as(data).detach()
        return new.requires_grad_(requires_grad)


Variable._execution_engine = None  # type: ignore[attr-defined]
