"""Resilient backpropagation (Riedmiller and Braun, ICNN 1993)."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau import Tensor

from ._parameterwise import Parameterwise, updates
from ._stepping import (
    _to_scalar,
    as_real,
    check_capturable,
    check_lr,
    check_step_tensors,
    new_step,
    setting_defaults,
    zeros_like,
)
from .optimizer import ParamsT

__all__ = ["Rprop", "rprop"]


@setting_defaults(("step",), foreach=None, maximize=False, differentiable=False, capturable=False)
class Rprop(Parameterwise):
    """Steps of a size of their own for each element, by the sign of the gradient only.

    A size grows by ``etas[1]`` while the sign stays, and shrinks by ``etas[0]`` when it changes.

    Args:
        params: tensors, ``(name, tensor)`` pairs or dicts (groups).
        lr: first size of the steps, a number or a one-element tensor.
        etas: factors of the size, for a changed and for the same sign.
        step_sizes: smallest and largest size.
        capturable: keep the counters on the device.
        foreach: accepted; the update is the same.
        maximize: go up instead of down.
        differentiable: record the step, so that gradients flow through it.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        super().__init__(
            params,
            {
                "lr": lr,
                "etas": etas,
                "step_sizes": step_sizes,
                "foreach": foreach,
                "maximize": maximize,
                "differentiable": differentiable,
                "capturable": capturable,
            },
        )

    def _begin(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        lr = group["lr"]
        if isinstance(lr, Tensor) and torch.compiler.is_compiling():
            size = torch.full_like(p.grad, 1 + 1j if torch.is_complex(p) else 1.0) * lr
        else:
            number = float(_to_scalar(lr))
            size = torch.full_like(
                p.grad, complex(number, number) if torch.is_complex(p) else number
            )
        return {"step": new_step(p, group), "prev": zeros_like(p), "step_size": size}

    def _arguments(self, group: dict[str, Any]) -> dict[str, Any]:
        given = super()._arguments(group)
        given["etaminus"], given["etaplus"] = group["etas"]
        given["step_size_min"], given["step_size_max"] = group["step_sizes"]
        return given


@updates(Rprop, "prev", "step_size", "step")
def rprop(
    params: list[Tensor],
    grads: list[Tensor],
    prevs: list[Tensor],
    step_sizes: list[Tensor],
    state_steps: list[Tensor],
    foreach: bool | None = None,
    capturable: bool = False,
    maximize: bool = False,
    differentiable: bool = False,
    has_complex: bool = False,
    *,
    step_size_min: float,
    step_size_max: float,
    etaminus: float,
    etaplus: float,
) -> None:
    """One step of `Rprop` on parallel lists of tensors, all updated in place."""
    check_step_tensors(state_steps)
    for i, param in enumerate(params):
        step = state_steps[i]
        check_capturable(capturable, param, step)
        step += 1
        grad = -grads[i] if maximize else grads[i]
        p, g, prev, size = as_real(param, grad, prevs[i], step_sizes[i])
        factor = g.mul(prev.clone() if differentiable else prev).sign()
        same, changed = factor.gt(0), factor.lt(0)
        factor = factor.masked_fill(same, etaplus).masked_fill(changed, etaminus)
        factor = factor.masked_fill(factor.eq(0), 1)
        size.mul_(factor).clamp_(step_size_min, step_size_max)
        # Where the sign has changed this step is left out, and the next one has no past.
        g = g.masked_fill(changed, 0)
        p.addcmul_(g.sign(), size, value=-1)
        prev.copy_(g)
