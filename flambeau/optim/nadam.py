"""NAdam: Adam with Nesterov momentum (Dozat, ICLR workshop 2016)."""

from __future__ import annotations

from typing import Any

from flambeau import Tensor

from ._parameterwise import Parameterwise, updates
from ._stepping import (
    _counter,
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

__all__ = ["NAdam", "nadam"]


@setting_defaults(
    ("step", "mu_product"),
    maximize=False,
    foreach=None,
    capturable=False,
    differentiable=False,
    decoupled_weight_decay=False,
)
class NAdam(Parameterwise):
    """Adam that looks one step of its momentum ahead.

    The momentum at step t is ``beta1 * (1 - 0.96^(t * momentum_decay) / 2)``.

    Args:
        params: tensors, ``(name, tensor)`` pairs or dicts (groups).
        lr: learning rate, a number or a one-element tensor.
        betas: decay rates of the means of the gradient and of its square.
        eps: added to the root, against division by zero.
        weight_decay: factor of the parameter that joins the gradient.
        momentum_decay: as above.
        decoupled_weight_decay: shrink the parameter itself instead, as AdamW does.
        foreach: accepted; the update is the same.
        maximize: go up instead of down.
        capturable: keep the counters on the device.
        differentiable: record the step, so that gradients flow through it.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
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
        check_not_negative("momentum_decay value", momentum_decay)
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "momentum_decay": momentum_decay,
                "decoupled_weight_decay": decoupled_weight_decay,
                "maximize": maximize,
                "foreach": foreach,
                "capturable": capturable,
                "differentiable": differentiable,
            },
        )

    def _begin(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        return {
            "step": new_step(p, group),
            "mu_product": _counter(p, 1.0, group["capturable"]),
            "exp_avg": zeros_like(p),
            "exp_avg_sq": zeros_like(p),
        }


@updates(NAdam, "exp_avg", "exp_avg_sq", "mu_product", "step")
def nadam(
    params: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    mu_products: list[Tensor],
    state_steps: list[Tensor],
    decoupled_weight_decay: bool = False,
    foreach: bool | None = None,
    capturable: bool = False,
    differentiable: bool = False,
    has_complex: bool = False,
    maximize: bool = False,
    *,
    beta1: float,
    beta2: float,
    lr: float | Tensor,
    weight_decay: float,
    momentum_decay: float,
    eps: float,
) -> None:
    """One step of `NAdam` on parallel lists of tensors, all updated in place."""
    check_step_tensors(state_steps)
    check_step_tensors(mu_products, "mu_products")
    for i, param in enumerate(params):
        step_t, product = state_steps[i], mu_products[i]
        check_capturable(
            capturable, param, product, step_t, names="params, mu_products and state_steps"
        )
        grad = -grads[i] if maximize else grads[i]
        if weight_decay != 0 and decoupled_weight_decay:
            param.mul_(1 - lr * weight_decay)
        elif weight_decay != 0:
            grad = grad.add(param, alpha=weight_decay)
        p, g, mean, square = as_real(param, grad, exp_avgs[i], exp_avg_sqs[i])
        step_t += 1
        step = step_t if capturable else _get_value(step_t)
        mu = beta1 * (1.0 - 0.5 * (0.96 ** (step * momentum_decay)))
        mu_next = beta1 * (1.0 - 0.5 * (0.96 ** ((step + 1) * momentum_decay)))
        product *= mu
        mean.lerp_(g, 1 - beta1)
        square.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        root = square.div(1 - beta2**step).sqrt()
        if differentiable or capturable:
            root = root.add(eps)
            p.addcdiv_(g * (-lr * (1.0 - mu) / (1.0 - product)), root)
            p.addcdiv_(mean * (-lr * mu_next / (1.0 - product * mu_next)), root)
        else:
            so_far = _get_value(product)
            root.add_(eps)
            add_quotient_(p, g, root, -lr * (1.0 - mu) / (1.0 - so_far))
            add_quotient_(p, mean, root, (-lr * mu_next) / (1.0 - so_far * mu_next))
