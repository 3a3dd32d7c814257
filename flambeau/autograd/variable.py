"""Variable: the old name of Tensor."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau._src.autograd import engine

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


class ImperativeEngine:
    """The engine, as far as programs speak to it."""

    @staticmethod
    def queue_callback(callback: Any) -> None:
        """Call this at the end of the backward pass that runs; RuntimeError when none does."""
        engine.queue_callback(callback)


Variable._execution_engine = ImperativeEngine()  # type: ignore[attr-defined]
