"""Adam (Kingma and Ba, arXiv:1412.6980) and its AMSGrad variant (Reddi et al., 2018)."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau import Tensor

from ._parameterwise import Parameterwise, updates
from ._stepping import (
    _device_dtype_check_for_fused,
    _get_value,
    _to_scalar,
    add_quotient_,
    as_real,
    check_capturable,
    check_step_tensors,
    fused_operator,
    fused_step,
    new_step,
    setting_defaults,
    zeros_like,
)
from .optimizer import ParamsT

__all__ = ["Adam", "adam"]


@setting_defaults(
    ("step",),
    amsgrad=False,
    maximize=False,
    foreach=None,
    capturable=False,
    differentiable=False,
    decoupled_weight_decay=False,
    fused=None,
)
class Adam(Parameterwise):
    r"""Adam: steps along a running mean of the gradient over the root of its mean square.

    With the gradient :math:`g_t` (plus ``weight_decay`` times the parameter)::

        m = beta1 m + (1 - beta1) g            v = beta2 v + (1 - beta2) g^2
        p = p - lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)

    Args:
        params: tensors, ``(name, tensor)`` pairs or dicts (groups).
        lr: learning rate, a number or a one-element tensor.
        betas: decay rates of the two running means.
        eps: added to the root, against division by zero.
        weight_decay: factor of the parameter that joins the gradient.
        amsgrad: divide by the largest `v` so far.
        foreach: accepted; the update is the same.
        maximize: go up instead of down.
        capturable: keep the counters on the device, without synchronisation.
        differentiable: record the step, so that gradients flow through it.
        fused: True for one operator a group, False never; None where it changes no result.
        decoupled_weight_decay: shrink the parameter itself instead (`AdamW`).
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        _check_options(lr, betas, eps, weight_decay, foreach, capturable)
        betas = tuple(b.squeeze() if isinstance(b, Tensor) and b.dim() else b for b in betas)
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "amsgrad": amsgrad,
                "maximize": maximize,
                "foreach": foreach,
                "capturable": capturable,
                "differentiable": differentiable,
                "fused": fused,
                "decoupled_weight_decay": decoupled_weight_decay,
            },
        )
        if fused:
            if differentiable:
                raise RuntimeError("`fused` does not support `differentiable`")
            self._step_supports_amp_scaling = True
            if foreach:
                raise RuntimeError("`fused` and `foreach` cannot be `True` together.")

    def _check(self, p: Tensor, grad: Tensor) -> None:
        if grad.is_sparse:
            raise RuntimeError(
                "Adam does not support sparse gradients, please consider SparseAdam instead"
            )

    def _begin(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        if group["fused"]:
            _device_dtype_check_for_fused(p)
        state = {
            "step": new_step(p, group),
            "exp_avg": zeros_like(p),
            "exp_avg_sq": zeros_like(p),
        }
        if group["amsgrad"]:
            state["max_exp_avg_sq"] = zeros_like(p)
        return state

    def _update(
        self,
        group: dict[str, Any],
        params: list[Tensor],
        grads: list[Tensor],
        states: list[dict[str, Any]],
    ) -> None:
        if group["differentiable"] and any(s["step"].requires_grad for s in states):
            raise RuntimeError("`requires_grad` is not supported for `step` in differentiable mode")
        if group["foreach"] and isinstance(group["lr"], Tensor) and not group["capturable"]:
            raise RuntimeError(
                "lr as a Tensor is not supported for capturable=False and foreach=True"
            )
        super()._update(group, params, grads, states)

    def _arguments(self, group: dict[str, Any]) -> dict[str, Any]:
        given = super()._arguments(group)
        return given | {
            "beta1": _to_scalar(given["beta1"]),
            "beta2": _to_scalar(given["beta2"]),
            "grad_scale": getattr(self, "grad_scale", None),
            "found_inf": getattr(self, "found_inf", None),
        }


def _check_options(
    lr: Any, betas: Any, eps: Any, weight_decay: Any, foreach: bool | None, capturable: bool
) -> None:
    if isinstance(lr, Tensor):
        if foreach and not capturable:
            raise ValueError(
                "lr as a Tensor is not supported for capturable=False and foreach=True"
            )
        if lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
    if not 0.0 <= lr:
        raise ValueError(f"Invalid learning rate: {lr}")
    if not 0.0 <= eps:
        raise ValueError(f"Invalid epsilon value: {eps}")
    for index in range(2):
        if not 0.0 <= betas[index] < 1.0:
            raise ValueError(f"Invalid beta parameter at index {index}: {betas[index]}")
    if not 0.0 <= weight_decay:
        raise ValueError(f"Invalid weight_decay value: {weight_decay}")
    if isinstance(betas[0], Tensor) != isinstance(betas[1], Tensor):
        raise ValueError("betas must be either both floats or both Tensors")
    for index in range(2):
        if not isinstance(betas[index], Tensor):
            continue
        if foreach and not capturable:
            raise ValueError(
                f"betas[{index}] as a Tensor is not supported for capturable=False and foreach=True"
            )
        if betas[index].numel() != 1:
            raise ValueError(f"Tensor betas[{index}] must be 1-element")


@updates(Adam, "exp_avg", "exp_avg_sq", ("max_exp_avg_sq", "amsgrad"), "step")
def adam(
    params: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    max_exp_avg_sqs: list[Tensor],
    state_steps: list[Tensor],
    foreach: bool | None = None,
    capturable: bool = False,
    differentiable: bool = False,
    fused: bool | None = None,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
    has_complex: bool = False,
    decoupled_weight_decay: bool = False,
    *,
    amsgrad: bool,
    beta1: float | Tensor,
    beta2: float | Tensor,
    lr: float | Tensor,
    weight_decay: float,
    eps: float,
    maximize: bool,
) -> None:
    """One step of `Adam` on parallel lists of tensors, all updated in place."""
    check_step_tensors(state_steps)
    if fused and differentiable:
        raise RuntimeError("Adam with fused=True does not support differentiable=True")
    numbers = not isinstance(beta1, Tensor) and not isinstance(beta2, Tensor)
    plain = numbers and not differentiable and not (capturable and not fused)
    name = "_fused_adamw_" if decoupled_weight_decay else "_fused_adam_"
    operator = fused_operator(name, params, grads, fused, foreach, plain, lr)
    if operator is not None:
        fused_step(
            operator,
            [params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps],
            lr,
            grad_scale,
            found_inf,
            beta1=beta1,
            beta2=beta2,
            weight_decay=weight_decay,
            eps=eps,
            amsgrad=amsgrad,
            maximize=maximize,
        )
        return
    if grad_scale is not None or found_inf is not None:
        raise AssertionError("Expected grad_scale and found_inf to be None")
    follow = _follow_on_device if capturable or differentiable else _follow
    for i, param in enumerate(params):
        grad = -grads[i] if maximize else grads[i]
        step = state_steps[i]
        check_capturable(capturable, param, step)
        step += 1
        if weight_decay != 0:
            if decoupled_weight_decay:
                param.mul_(1 - lr * weight_decay)
            else:
                grad = grad.add(param, alpha=weight_decay)
        largest = max_exp_avg_sqs[i] if amsgrad else None
        real = param, grad, exp_avgs[i], exp_avg_sqs[i], largest
        if torch.is_complex(param):
            real = tuple(as_real(*real))
        follow(*real, step, lr, beta1, beta2, eps, differentiable)


def _follow(
    param: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    largest: Tensor | None,
    step_t: Tensor,
    lr: Any,
    beta1: Any,
    beta2: Any,
    eps: float,
    differentiable: bool,
) -> None:
    """Update the means and step, with the bias corrections as Python numbers."""
    exp_avg.lerp_(grad, 1 - beta1)
    exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    step = _get_value(step_t)
    step_size = lr / (1 - beta1**step)
    root_correction = (1 - beta2**step) ** 0.5
    if largest is None:
        largest = exp_avg_sq
    else:
        torch.maximum(largest, exp_avg_sq, out=largest)
    denominator = (largest.sqrt() / root_correction).add_(eps)
    add_quotient_(param, exp_avg, denominator, -step_size)


def _follow_on_device(
    param: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    largest: Tensor | None,
    step: Tensor,
    lr: Any,
    beta1: Any,
    beta2: Any,
    eps: float,
    differentiable: bool,
) -> None:
    """The same with the bias corrections as tensors: no synchronisation, and differentiable."""
    exp_avg.lerp_(grad, 1 - beta1)
    if differentiable and isinstance(beta2, Tensor) and beta2.requires_grad:
        exp_avg_sq.lerp_(torch.square(grad), 1 - beta2)
    else:
        exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    step_size = (lr / (1 - beta1**step)).neg()
    root_correction = (1 - beta2**step).sqrt()
    if largest is None:
        largest = exp_avg_sq
    else:
        before = largest.clone() if differentiable else largest
        largest.copy_(torch.maximum(before, exp_avg_sq))
    # The step size is moved into the denominator: one operator less on the parameter.
    denominator = (largest.sqrt() / (root_correction * step_size)).add_(eps / step_size)
    param.addcdiv_(exp_avg.clone() if differentiable else exp_avg, denominator)
