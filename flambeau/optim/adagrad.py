"""Adagrad (Duchi, Hazan and Singer, JMLR 12, 2011)."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau import Tensor

from ._parameterwise import Parameterwise
from ._stepping import (
    _device_dtype_check_for_fused,
    _get_value,
    _to_scalar,
    add_quotient_,
    as_real,
    check_lr,
    check_not_negative,
    check_step_tensors,
    fused_operator,
    fused_step,
    new_step,
    setting_defaults,
)
from .optimizer import ParamsT

__all__ = ["Adagrad", "adagrad"]


@setting_defaults(("step",), foreach=None, maximize=False, differentiable=False, fused=None)
class Adagrad(Parameterwise):
    """Gradient descent with a rate for each element: ``p -= clr * g / (sqrt(sum g^2) + eps)``.

    Args:
        params: tensors, ``(name, tensor)`` pairs or dicts (groups).
        lr: learning rate, a number or a one-element tensor.
        lr_decay: ``clr = lr / (1 + (t - 1) * lr_decay)``.
        weight_decay: factor of the parameter that joins the gradient.
        initial_accumulator_value: where the sum begins.
        eps: added to the root, against division by zero.
        foreach: accepted; the update is the same.
        maximize: go up instead of down.
        differentiable: record the step, so that gradients flow through it.
        fused: True for one operator a group.
    """

    _takes_sparse = True

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_lr(lr)
        check_not_negative("lr_decay value", lr_decay)
        check_not_negative("weight_decay value", weight_decay)
        check_not_negative("initial_accumulator_value value", initial_accumulator_value)
        check_not_negative("epsilon value", eps)
        super().__init__(
            params,
            {
                "lr": lr,
                "lr_decay": lr_decay,
                "eps": eps,
                "weight_decay": weight_decay,
                "initial_accumulator_value": initial_accumulator_value,
                "foreach": foreach,
                "maximize": maximize,
                "differentiable": differentiable,
                "fused": fused,
            },
        )
        if fused:
            if differentiable:
                raise RuntimeError("`fused` does not support `differentiable`")
            if foreach:
                raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
            self._need_device_dtype_check_for_fused = True
            self._step_supports_amp_scaling = True
        # All state is there from the beginning, so that it can be shared between processes.
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p] = self._begin(p, group)

    def _begin(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        first = group["initial_accumulator_value"]
        if torch.is_complex(p):
            first = complex(first, first)
        total = torch.full_like(p, first, memory_format=torch.preserve_format)
        return {"step": new_step(p, group), "sum": total}

    def share_memory(self) -> None:
        """Move the sums into shared memory."""
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["sum"].share_memory_()

    def _update(
        self,
        group: dict[str, Any],
        params: list[Tensor],
        grads: list[Tensor],
        states: list[dict[str, Any]],
    ) -> None:
        if group["fused"] and getattr(self, "_need_device_dtype_check_for_fused", True):
            _device_dtype_check_for_fused(params[0])
            self._need_device_dtype_check_for_fused = False
        adagrad(
            params,
            grads,
            [s["sum"] for s in states],
            [s["step"] for s in states],
            lr=_to_scalar(group["lr"]),
            weight_decay=group["weight_decay"],
            lr_decay=group["lr_decay"],
            eps=group["eps"],
            has_sparse_grad=any(g.is_sparse for g in grads),
            foreach=group["foreach"],
            maximize=group["maximize"],
            differentiable=group["differentiable"],
            has_complex=any(torch.is_complex(p) for p in params),
            fused=group["fused"],
            grad_scale=getattr(self, "grad_scale", None),
            found_inf=getattr(self, "found_inf", None),
        )


def adagrad(
    params: list[Tensor],
    grads: list[Tensor],
    state_sums: list[Tensor],
    state_steps: list[Tensor],
    fused: bool | None = None,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
    has_sparse_grad: bool = False,
    foreach: bool | None = None,
    differentiable: bool = False,
    has_complex: bool = False,
    *,
    lr: float | Tensor,
    weight_decay: float,
    lr_decay: float,
    eps: float,
    maximize: bool,
) -> None:
    """One step of `Adagrad` on parallel lists of tensors, all updated in place."""
    check_step_tensors(state_steps)
    if fused:
        if has_sparse_grad or has_complex:
            raise RuntimeError("`fused` does not support sparse grad or complex param")
        if differentiable:
            raise RuntimeError("adagrad with fused=True does not support differentiable=True")
        operator = fused_operator("_fused_adagrad_", params, grads, fused, foreach, True, lr)
        if operator is not None:
            options = {"lr_decay": lr_decay, "weight_decay": weight_decay, "eps": eps}
            lists = [params, grads, state_sums, state_steps]
            fused_step(operator, lists, lr, grad_scale, found_inf, maximize=maximize, **options)
            return
    if grad_scale is not None or found_inf is not None:
        raise AssertionError("Expected grad_scale and found_inf to be None")
    for param, grad, state_sum, step_t in zip(params, grads, state_sums, state_steps, strict=True):
        step_t += 1
        if maximize:
            grad = -grad
        if weight_decay != 0:
            if grad.is_sparse:
                raise RuntimeError("weight_decay option is not compatible with sparse gradients")
            grad = grad.add(param, alpha=weight_decay)
        rate = lr / (1 + (_get_value(step_t) - 1) * lr_decay)
        if grad.is_sparse:
            _sparse_update(param, grad.coalesce(), state_sum, rate, eps)
            continue
        p, g, total = as_real(param, grad, state_sum)
        total.addcmul_(g, g, value=1)
        root = total.sqrt() + eps if differentiable else total.sqrt().add_(eps)
        add_quotient_(p, g, root, -rate)


def _sparse_update(param: Tensor, grad: Tensor, total: Tensor, rate: Any, eps: float) -> None:
    """Only the rows that the gradient has."""
    indices, values = grad._indices(), grad._values()
    size = grad.size()

    def sparse(new: Tensor) -> Tensor:
        if indices.dim() == 0 or values.dim() == 0:
            return torch.empty_like(grad)
        return torch.sparse_coo_tensor(indices, new, size, is_coalesced=True)

    total.add_(sparse(values.pow(2)))
    roots = total.sparse_mask(grad)._values().sqrt_().add_(eps)
    param.add_(sparse(values / roots), alpha=-rate)
