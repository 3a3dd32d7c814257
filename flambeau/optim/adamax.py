"""Adamax: Adam with the infinity norm (Kingma and Ba, arXiv:1412.6980, section 7.1)."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau import Tensor

from ._parameterwise import Parameterwise, updates
from ._stepping import (
    _get_value,
    add_quotient_,
    as_real,
    check_betas,
    check_capturable,
    check_lr,
    check_not_negative,
    check_step_tensors,
    new_step,
    setting_defaults,
    zeros_like,
)
from .optimizer import ParamsT

__all__ = ["Adamax", "adamax"]


@setting_defaults(("step",), foreach=None, maximize=False, differentiable=False, capturable=False)
class Adamax(Parameterwise):
    """``p -= lr / (1 - beta1^t) * m / u`` with ``u = max(beta2 * u, |g| + eps)``.

    Args:
        params: tensors, ``(name, tensor)`` pairs or dicts (groups).
        lr: learning rate, a number or a one-element tensor.
        betas: decay rates of the mean ``m`` of the gradient and of its largest size ``u``.
        eps: as above.
        weight_decay: factor of the parameter that joins the gradient.
        foreach: accepted; the update is the same.
        maximize: go up instead of down.
        differentiable: record the step, so that gradients flow through it.
        capturable: keep the counters on the device.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_lr(lr)
        check_not_negative("epsilon value", eps)
        check_betas(betas)
        check_not_negative("weight_decay value", weight_decay)
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "foreach": foreach,
                "maximize": maximize,
                "differentiable": differentiable,
                "capturable": capturable,
            },
        )

    def _begin(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        return {"step": new_step(p, group), "exp_avg": zeros_like(p), "exp_inf": zeros_like(p)}


@updates(Adamax, "exp_avg", "exp_inf", "step")
def adamax(
    params: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_infs: list[Tensor],
    state_steps: list[Tensor],
    foreach: bool | None = None,
    maximize: bool = False,
    differentiable: bool = False,
    capturable: bool = False,
    has_complex: bool = False,
    *,
    eps: float,
    beta1: float,
    beta2: float,
    lr: float | Tensor,
    weight_decay: float,
) -> None:
    """One step of `Adamax` on parallel lists of tensors, all updated in place."""
    check_step_tensors(state_steps)
    for i, param in enumerate(params):
        step = state_steps[i]
        check_capturable(capturable, param, step)
        step += 1
        grad = -grads[i] if maximize else grads[i]
        if weight_decay != 0:
            grad = grad.add(param, alpha=weight_decay)
        p, g, mean, largest = as_real(param, grad, exp_avgs[i], exp_infs[i])
        mean.lerp_(g, 1 - beta1)
        if differentiable:
            largest.copy_(torch.maximum(largest * beta2, g.abs().add_(eps)))
        else:
            torch.maximum(largest.mul_(beta2), g.abs().add_(eps), out=largest)
        if capturable:
            factor = (beta1**step - 1).div_(lr)
            p.addcdiv_(mean, largest * factor)
        else:
            add_quotient_(p, mean, largest, -(lr / (1 - beta1 ** _get_value(step))))
