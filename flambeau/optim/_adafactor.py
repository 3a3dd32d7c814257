"""Adafactor (Shazeer and Stern, arXiv:1804.04235), without momentum."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau import Tensor
from flambeau.linalg import vector_norm as _norm

from ._parameterwise import Parameterwise
from ._stepping import (
    _get_scalar_dtype,
    _get_value,
    _to_scalar,
    add_scaled_,
    check_step_tensors,
    setting_defaults,
)
from .optimizer import ParamsT

__all__ = ["Adafactor", "adafactor"]


@setting_defaults(("step",), foreach=None)
class Adafactor(Parameterwise):
    """Adam's division by the root of ``v``, with ``v`` kept as one row and one column a matrix.

    Args:
        params: tensors, ``(name, tensor)`` pairs or dicts (groups).
        lr: largest learning rate; the rate is ``min(lr, 1 / sqrt(t))`` times the parameter's size.
        beta2_decay: the weight of the new square at step t is ``t ** beta2_decay``.
        eps: least square of the gradient's root (None: the dtype's eps), and least size of a
            parameter.
        d: an update whose root mean square is larger is scaled down to it.
        weight_decay: share of ``lr`` by which the parameter shrinks.
        foreach: accepted; the update is the same.
        maximize: go up instead of down.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not 0.0 <= lr:
            raise ValueError(f"Learning rate should be >= 0 but is: {lr}")
        if not 0.0 >= beta2_decay:
            raise ValueError(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        if eps[0] is not None and not 0.0 <= eps[0]:
            raise ValueError(f"epsilon1 should be >= 0 but is: {eps[0]}")
        if not 0.0 <= eps[1]:
            raise ValueError(f"epsilon2 should be >= 0 but is: {eps[1]}")
        if not 1.0 <= d:
            raise ValueError(f"Clipping threshold d should be >= 1 but is: {d}")
        if not 0.0 <= weight_decay:
            raise ValueError(f"weight_decay should be >= 0 but is: {weight_decay}")
        super().__init__(
            params,
            {
                "lr": lr,
                "beta2_decay": beta2_decay,
                "eps": eps,
                "d": d,
                "weight_decay": weight_decay,
                "foreach": foreach,
                "maximize": maximize,
            },
        )

    def _check(self, p: Tensor, grad: Tensor) -> None:
        if torch.is_complex(p):
            raise RuntimeError("Adafactor does not support complex parameters")
        super()._check(p, grad)

    def _begin(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        state = {"step": torch.tensor(0.0, dtype=_get_scalar_dtype())}
        if p.grad.dim() > 1:
            rows, columns = list(p.grad.shape), list(p.grad.shape)
            rows[-1] = 1
            columns[-2] = 1
            state["row_var"] = p.grad.new_zeros(rows)
            state["col_var"] = p.grad.new_zeros(columns)
        else:
            state["variance"] = torch.zeros_like(p.grad, memory_format=torch.preserve_format)
        return state

    def _update(
        self,
        group: dict[str, Any],
        params: list[Tensor],
        grads: list[Tensor],
        states: list[dict[str, Any]],
    ) -> None:
        eps1, eps2 = group["eps"]
        adafactor(
            params,
            grads,
            [s.get("row_var") for s in states],
            [s.get("col_var") for s in states],
            [s.get("variance") for s in states],
            [s["step"] for s in states],
            d=group["d"],
            lr=_to_scalar(group["lr"]),
            beta2_decay=group["beta2_decay"],
            weight_decay=group["weight_decay"],
            eps1=eps1,
            eps2=eps2,
            foreach=group["foreach"],
            maximize=group["maximize"],
            grad_scale=getattr(self, "grad_scale", None),
            found_inf=getattr(self, "found_inf", None),
        )


def adafactor(
    params: list[Tensor],
    grads: list[Tensor],
    row_vars: list[Tensor | None],
    col_vars: list[Tensor | None],
    variances: list[Tensor | None],
    state_steps: list[Tensor],
    foreach: bool | None = None,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
    has_complex: bool = False,
    *,
    d: float,
    lr: float | Tensor,
    beta2_decay: float,
    weight_decay: float,
    eps1: float | None,
    eps2: float,
    maximize: bool,
) -> None:
    """One step of `Adafactor` on parallel lists of tensors, all updated in place."""
    check_step_tensors(state_steps, lead="")
    if grad_scale is not None or found_inf is not None:
        raise AssertionError("Grad scaling should occur outside of optimizer.step()")
    for i, param in enumerate(params):
        grad = -grads[i] if maximize else grads[i]
        state_steps[i] += 1
        step = _get_value(state_steps[i])
        least = torch.finfo(param.dtype).eps if eps1 is None else eps1
        weight = step**beta2_decay
        rate = _least(lr, 1 / (step**0.5))
        size = _greatest(eps2, _get_value(_norm(param)) / (param.numel() ** 0.5))
        if weight_decay != 0:
            param.mul_(1 - lr * weight_decay)
        if grad.dim() > 1:
            estimate = _outer_estimate(grad, row_vars[i], col_vars[i], weight, least)
        else:
            variance = variances[i]
            _towards_(variance, grad.square(), weight)
            estimate = variance.clone()
        update = estimate.clamp_(min=least * least).rsqrt_()
        update.mul_(grad)
        clipping = _greatest(1.0, _get_value(_norm(update)) / ((update.numel() ** 0.5) * d))
        add_scaled_(param, update, -(size * rate) / clipping)


def _least(a: Any, b: Any) -> Any:
    """The smaller number; b is a tensor while compiling."""
    return torch.clamp(b, max=a) if torch.compiler.is_compiling() else min(a, b)


def _greatest(a: float, b: Any) -> Any:
    """The larger number; b is a tensor while compiling."""
    return torch.clamp(b, min=a) if torch.compiler.is_compiling() else max(a, b)


def _towards_(x: Tensor, end: Tensor, weight: Any) -> None:
    """``x.lerp_(end, weight)``; the weight is a tensor while compiling."""
    x.lerp_(end, weight.to(x.dtype) if isinstance(weight, Tensor) else weight)


def _outer_estimate(grad: Tensor, row: Any, column: Any, weight: float, least: float) -> Tensor:
    """The squares of the gradient as the outer product of their row and column means."""
    row_mean = _norm(grad, dim=-1, keepdim=True).square_().div_(grad.size(-1))
    _towards_(row, row_mean, weight)
    column_mean = _norm(grad, dim=-2, keepdim=True).square_().div_(grad.size(-2))
    _towards_(column, column_mean, weight)
    return (row @ column).div_(row.mean(dim=-2, keepdim=True).clamp_(min=least))
