"""Adam for sparse gradients: only the rows that a gradient has are updated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau import Tensor

from ._stepping import _to_scalar, check_betas, check_lr, zeros_like
from .optimizer import Optimizer, ParamsT

__all__ = ["SparseAdam"]


class SparseAdam(Optimizer):
    """Adam (see `Adam`) whose means and parameters change only where the gradient has entries.

    Args:
        params: dense tensors whose gradients are sparse, e.g. of ``Embedding(sparse=True)``.
        lr: learning rate, a number or a one-element tensor.
        betas: decay rates of the means of the gradient and of its square.
        eps: added to the root, against division by zero.
        maximize: go up instead of down.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        check_lr(lr)
        if not 0.0 < eps:
            raise ValueError(f"Invalid epsilon value: {eps}")
        check_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        sparse: list[list[int]] = []
        complex_ones: list[list[int]] = []
        for index, group in enumerate(self.param_groups):
            for place, p in enumerate(group["params"]):
                if p.is_sparse:
                    sparse.append([index, place])
                if torch.is_complex(p):
                    complex_ones.append([index, place])
        if sparse:
            raise ValueError(
                f"Sparse params at indices {sparse}: SparseAdam requires dense parameter tensors"
            )
        if complex_ones:
            raise ValueError(
                f"Complex params at indices {complex_ones}: SparseAdam does not support complex "
                "parameters"
            )

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters once; the closure, if any, computes the loss again."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                if not p.grad.is_sparse:
                    raise RuntimeError(
                        "SparseAdam does not support dense gradients, please consider Adam instead"
                    )
                state = self.state[p]
                if not state:
                    state.update(step=0, exp_avg=zeros_like(p), exp_avg_sq=zeros_like(p))
                state["step"] += 1
                _update_rows(p, p.grad, state, group)
        return loss


def _update_rows(param: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
    beta1, beta2 = group["betas"]
    grad = (-grad if group["maximize"] else grad).coalesce()
    indices, values = grad._indices(), grad._values()
    if values.numel() == 0:
        return
    size = grad.size()
    mean, square = state["exp_avg"], state["exp_avg_sq"]

    def sparse(new: Tensor) -> Tensor:
        return torch.sparse_coo_tensor(indices, new, size, is_coalesced=True)

    old_mean = mean.sparse_mask(grad)._values()
    mean_change = values.sub(old_mean).mul_(1 - beta1)
    mean.add_(sparse(mean_change))
    old_square = square.sparse_mask(grad)._values()
    square_change = values.pow(2).sub_(old_square).mul_(1 - beta2)
    square.add_(sparse(square_change))
    # The changes become the new values in place.
    numerator = mean_change.add_(old_mean)
    root = square_change.add_(old_square).sqrt_().add_(group["eps"])
    step = state["step"]
    size_of_step = _to_scalar(group["lr"]) * (1 - beta2**step) ** 0.5 / (1 - beta1**step)
    param.add_(sparse(-size_of_step * numerator.div_(root)))
