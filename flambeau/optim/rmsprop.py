"""RMSprop (Hinton, lecture 6e of "Neural Networks for Machine Learning", 2012).

Centered: Graves, arXiv:1308.0850.
"""

from __future__ import annotations

from typing import Any

from flambeau import Tensor

from ._parameterwise import Parameterwise, updates
from ._stepping import (
    add_quotient_,
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

__all__ = ["RMSprop", "rmsprop"]


@setting_defaults(
    ("step",),
    momentum=0,
    centered=False,
    foreach=None,
    maximize=False,
    differentiable=False,
    capturable=False,
)
class RMSprop(Parameterwise):
    """``p -= lr * g / (sqrt(v) + eps)`` with the running mean ``v`` of ``g^2``.

    Args:
        params: tensors, ``(name, tensor)`` pairs or dicts (groups).
        lr: learning rate, a number or a one-element tensor.
        alpha: decay rate of the mean.
        eps: as above.
        weight_decay: factor of the parameter that joins the gradient.
        momentum: of the quotient.
        centered: take the square of the mean gradient from ``v``.
        capturable: keep the counters on the device.
        foreach: accepted; the update is the same.
        maximize: go up instead of down.
        differentiable: record the step, so that gradients flow through it.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        check_not_negative("epsilon value", eps)
        check_not_negative("momentum value", momentum)
        check_not_negative("weight_decay value", weight_decay)
        check_not_negative("alpha value", alpha)
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "alpha": alpha,
                "eps": eps,
                "centered": centered,
                "weight_decay": weight_decay,
                "capturable": capturable,
                "foreach": foreach,
                "maximize": maximize,
                "differentiable": differentiable,
            },
        )

    def _begin(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        state = {"step": new_step(p, group), "square_avg": zeros_like(p)}
        if group["momentum"] > 0:
            state["momentum_buffer"] = zeros_like(p)
        if group["centered"]:
            state["grad_avg"] = zeros_like(p)
        return state


@updates(RMSprop, "square_avg", ("grad_avg", "centered"), ("momentum_buffer", "momentum"), "step")
def rmsprop(
    params: list[Tensor],
    grads: list[Tensor],
    square_avgs: list[Tensor],
    grad_avgs: list[Tensor],
    momentum_buffer_list: list[Tensor],
    state_steps: list[Tensor],
    foreach: bool | None = None,
    maximize: bool = False,
    differentiable: bool = False,
    capturable: bool = False,
    has_complex: bool = False,
    *,
    lr: float | Tensor,
    alpha: float,
    eps: float,
    weight_decay: float,
    momentum: float,
    centered: bool,
) -> None:
    """One step of `RMSprop` on parallel lists of tensors, all updated in place."""
    check_step_tensors(state_steps)
    for i, param in enumerate(params):
        step = state_steps[i]
        check_capturable(capturable, param, step)
        step += 1
        grad = -grads[i] if maximize else grads[i]
        if weight_decay != 0:
            grad = grad.add(param, alpha=weight_decay)
        p, g, square, mean, buffer = as_real(
            param,
            grad,
            square_avgs[i],
            grad_avgs[i] if centered else None,
            momentum_buffer_list[i] if momentum > 0 else None,
        )
        square.mul_(alpha).addcmul_(g, g, value=1 - alpha)
        if centered:
            mean.lerp_(g, 1 - alpha)
            root = square.addcmul(mean, mean, value=-1).sqrt_()
        else:
            root = square.sqrt()
        root = root.add(eps) if differentiable else root.add_(eps)
        if momentum > 0:
            buffer.mul_(momentum).addcdiv_(g, root)
            add_scaled_(p, buffer, -lr)
        else:
            add_quotient_(p, g, root, -lr)
