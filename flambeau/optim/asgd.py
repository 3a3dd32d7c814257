"""Averaged stochastic gradient descent (Polyak and Juditsky, SIAM J. Control Optim. 30, 1992)."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau import Tensor

from ._parameterwise import Parameterwise, updates
from ._stepping import (
    _get_scalar_dtype,
    _get_value,
    _to_scalar,
    add_scaled_,
    as_real,
    check_capturable,
    check_lr,
    check_not_negative,
    setting_defaults,
    zeros_like,
)
from .optimizer import ParamsT

__all__ = ["ASGD", "asgd"]


@setting_defaults(
    ("step", "eta", "mu"), foreach=None, maximize=False, differentiable=False, capturable=False
)
class ASGD(Parameterwise):
    """Gradient descent with a falling rate, and in ``state["ax"]`` the average of the parameters.

    Args:
        params: tensors, ``(name, tensor)`` pairs or dicts (groups).
        lr: learning rate, a number or a one-element tensor.
        lambd: the rate is ``lr / (1 + lambd * lr * t) ** alpha``, and the parameter shrinks by
            ``lambd`` times it.
        alpha: as above.
        t0: the step from which on parameters are averaged.
        weight_decay: factor of the parameter that joins the gradient.
        foreach: accepted; the update is the same.
        maximize: go up instead of down.
        differentiable: record the step, so that gradients flow through it.
        capturable: keep the counters on the device.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_lr(lr)
        check_not_negative("weight_decay value", weight_decay)
        super().__init__(
            params,
            {
                "lr": lr,
                "lambd": lambd,
                "alpha": alpha,
                "t0": t0,
                "weight_decay": weight_decay,
                "foreach": foreach,
                "maximize": maximize,
                "differentiable": differentiable,
                "capturable": capturable,
            },
        )

    def _begin(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        # These counters are on the parameter's device in any case.
        where: dict[str, Any] = {"device": p.device, "dtype": _get_scalar_dtype()}
        lr = _to_scalar(group["lr"])
        return {
            "step": torch.zeros((), **where),
            "eta": torch.as_tensor(lr, **where).clone().detach(),
            "mu": torch.ones((), **where),
            "ax": zeros_like(p),
        }


@updates(ASGD, "ax", "mu", "eta", "step")
def asgd(
    params: list[Tensor],
    grads: list[Tensor],
    axs: list[Tensor],
    mus: list[Tensor],
    etas: list[Tensor],
    state_steps: list[Tensor],
    foreach: bool | None = None,
    maximize: bool = False,
    differentiable: bool = False,
    capturable: bool = False,
    has_complex: bool = False,
    *,
    lambd: float,
    lr: float | Tensor,
    t0: float,
    alpha: float,
    weight_decay: float,
) -> None:
    """One step of `ASGD` on parallel lists of tensors, all updated in place."""
    for i, param in enumerate(params):
        mu, eta, step_t = mus[i], etas[i], state_steps[i]
        names = "params, mus, etas, and state_steps"
        check_capturable(capturable, param, mu, eta, step_t, names=names)
        grad = -grads[i] if maximize else grads[i]
        p, g, average = as_real(param, grad, axs[i])
        step_t += 1
        step = step_t if capturable else _get_value(step_t)
        if weight_decay != 0:
            g = g.add(p, alpha=weight_decay)
        if capturable:
            p.mul_(1 - lambd * eta)
            p.addcmul_(g, eta, value=-1.0)
        else:
            rate = _get_value(eta)
            p.mul_(1 - lambd * rate)
            add_scaled_(p, g, -rate)
        on_device = capturable or torch.compiler.is_compiling()
        if on_device or _get_value(mu) != 1:
            average.add_(p.sub(average).mul_(mu))
        else:
            average.copy_(p)
        next_eta = lr / ((1 + lambd * lr * step) ** alpha)
        if on_device:
            eta.copy_(next_eta)
            mu.copy_(1 / torch.maximum(step - t0, torch.ones_like(step)))
        else:
            eta.copy_(torch.as_tensor(next_eta))
            mu.copy_(torch.as_tensor(1 / max(1, step - t0)))
