"""Adadelta (Zeiler, arXiv:1212.5701)."""

from __future__ import annotations

from typing import Any

from flambeau import Tensor

from ._parameterwise import Parameterwise, updates
from ._stepping import (
    add_scaled_,
    as_real,
    check_capturable,
    check_lr,
    check_not_negative,
    check_step_tensors,
    new_step,
    setting_defaults,
    zeros_like,
)
from .optimizer import ParamsT

__all__ = ["Adadelta", "adadelta"]


@setting_defaults(("step",), foreach=None, maximize=False, differentiable=False, capturable=False)
class Adadelta(Parameterwise):
    """Steps whose size is the running size of the past steps over that of the gradients.

    ``d = sqrt(a + eps) / sqrt(v + eps) * g``, ``p -= lr * d``, with running means ``v`` of ``g^2``
    and ``a`` of ``d^2``.

    Args:
        params: tensors, ``(name, tensor)`` pairs or dicts (groups).
        lr: factor of the step, a number or a one-element tensor.
        rho: decay rate of the running means.
        eps: as above.
        weight_decay: factor of the parameter that joins the gradient.
        foreach: accepted; the update is the same.
        capturable: keep the counters on the device.
        maximize: go up instead of down.
        differentiable: record the step, so that gradients flow through it.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        check_not_negative("epsilon value", eps)
        check_not_negative("weight_decay value", weight_decay)
        super().__init__(
            params,
            {
                "lr": lr,
                "rho": rho,
                "eps": eps,
                "weight_decay": weight_decay,
                "maximize": maximize,
                "capturable": capturable,
                "foreach": foreach,
                "differentiable": differentiable,
            },
        )

    def _begin(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        return {
            "step": new_step(p, group),
            "square_avg": zeros_like(p),
            "acc_delta": zeros_like(p),
        }


@updates(Adadelta, "square_avg", "acc_delta", "step")
def adadelta(
    params: list[Tensor],
    grads: list[Tensor],
    square_avgs: list[Tensor],
    acc_deltas: list[Tensor],
    state_steps: list[Tensor],
    capturable: bool = False,
    foreach: bool | None = None,
    differentiable: bool = False,
    has_complex: bool = False,
    *,
    lr: float | Tensor,
    rho: float,
    eps: float,
    weight_decay: float,
    maximize: bool,
) -> None:
    """One step of `Adadelta` on parallel lists of tensors, all updated in place."""
    check_step_tensors(state_steps)
    for i, param in enumerate(params):
        step = state_steps[i]
        check_capturable(capturable, param, step)
        step += 1
        grad = -grads[i] if maximize else grads[i]
        if weight_decay != 0:
            grad = grad.add(param, alpha=weight_decay)
        p, g, mean, past = as_real(param, grad, square_avgs[i], acc_deltas[i])
        mean.mul_(rho).addcmul_(g, g, value=1 - rho)
        root = mean.add(eps).sqrt_()
        delta = past.add(eps).sqrt_()
        if differentiable:
            delta = delta.clone()
        delta.div_(root).mul_(g)
        past.mul_(rho).addcmul_(delta, delta, value=1 - rho)
        add_scaled_(p, delta, -lr)
