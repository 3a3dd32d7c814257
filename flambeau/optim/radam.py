"""RAdam: Adam with a rectified variance (Liu et al., arXiv:1908.03265)."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau import Tensor

from ._parameterwise import Parameterwise, updates
from ._stepping import (
    _get_value,
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

__all__ = ["RAdam", "radam"]

#: Below this length of the moving average its variance is not to be trusted.
_TRUSTED = 5.0


@setting_defaults(
    ("step",),
    foreach=None,
    maximize=False,
    differentiable=False,
    decoupled_weight_decay=False,
    capturable=False,
)
class RAdam(Parameterwise):
    """Adam whose division by the root waits until enough gradients have been seen.

    Args:
        params: tensors, ``(name, tensor)`` pairs or dicts (groups).
        lr: learning rate, a number or a one-element tensor.
        betas: decay rates of the means of the gradient and of its square.
        eps: added to the root, against division by zero.
        weight_decay: factor of the parameter that joins the gradient.
        decoupled_weight_decay: shrink the parameter itself instead, as AdamW does.
        foreach: accepted; the update is the same.
        maximize: go up instead of down.
        capturable: keep the counters on the device.
        differentiable: record the step, so that gradients flow through it.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
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
                "maximize": maximize,
                "foreach": foreach,
                "capturable": capturable,
                "decoupled_weight_decay": decoupled_weight_decay,
                "differentiable": differentiable,
            },
        )

    def _begin(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        return {"step": new_step(p, group), "exp_avg": zeros_like(p), "exp_avg_sq": zeros_like(p)}


@updates(RAdam, "exp_avg", "exp_avg_sq", "step")
def radam(
    params: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    state_steps: list[Tensor],
    decoupled_weight_decay: bool = False,
    foreach: bool | None = None,
    differentiable: bool = False,
    capturable: bool = False,
    has_complex: bool = False,
    maximize: bool = False,
    *,
    beta1: float,
    beta2: float,
    lr: float | Tensor,
    weight_decay: float,
    eps: float,
) -> None:
    """One step of `RAdam` on parallel lists of tensors, all updated in place."""
    check_step_tensors(state_steps)
    longest = 2 / (1 - beta2) - 1
    for i, param in enumerate(params):
        step_t = state_steps[i]
        check_capturable(capturable, param, step_t)
        step_t += 1
        step = step_t if capturable else _get_value(step_t)
        grad = -grads[i] if maximize else grads[i]
        if weight_decay != 0 and decoupled_weight_decay:
            param.mul_(1 - lr * weight_decay)
        elif weight_decay != 0:
            grad = grad.add(param, alpha=weight_decay)
        p, g, mean, square = as_real(param, grad, exp_avgs[i], exp_avg_sqs[i])
        mean.lerp_(g, 1 - beta1)
        square.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        correction2 = 1 - beta2**step
        corrected = mean / (1 - beta1**step)
        length = longest - 2 * step * (beta2**step) / correction2

        def rectified(length: Any = length) -> Any:
            top = (length - 4) * (length - 2) * longest
            return (top / ((longest - 4) * (longest - 2) * length)) ** 0.5

        def adaptive(square: Tensor = square, correction2: Any = correction2) -> Tensor:
            root = square.sqrt()
            root = root.add(eps) if differentiable else root.add_(eps)
            return (correction2**0.5) / root

        if capturable or torch.compiler.is_compiling():
            update = torch.where(length > _TRUSTED, rectified() * adaptive(), 1.0)
            p.add_(corrected * lr * update, alpha=-1.0)
        elif length > _TRUSTED:
            p.add_(corrected * lr * adaptive() * rectified(), alpha=-1.0)
        else:
            p.add_(corrected * lr, alpha=-1.0)
