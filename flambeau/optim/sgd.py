"""Stochastic gradient descent, with momentum (Sutskever et al., ICML 2013) and weight decay."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau import Tensor

from ._parameterwise import Parameterwise
from ._stepping import (
    _device_dtype_check_for_fused,
    _to_scalar,
    add_scaled_,
    check_lr,
    check_not_negative,
    fused_operator,
    fused_step,
    setting_defaults,
)
from .optimizer import ParamsT

__all__ = ["SGD", "sgd"]

#: Elements of a parameter from which on one pass over memory is worth more than it costs to set up:
#: the plain step is one operator a parameter, two or three with momentum and decay.
_WORTH = 1 << 16


@setting_defaults(nesterov=False, maximize=False, foreach=None, differentiable=False, fused=False)
class SGD(Parameterwise):
    """Gradient descent: ``p -= lr * b``.

    Here ``g`` is the gradient plus ``weight_decay * p``, and ``b`` is ``g`` itself or, with
    momentum, ``b = momentum * b + (1 - dampening) * g`` (the first ``b`` is ``g``); with
    ``nesterov`` the step goes along ``g + momentum * b``.

    Args:
        params: tensors, ``(name, tensor)`` pairs or dicts (groups).
        lr: learning rate, a number or a one-element tensor.
        momentum, dampening, weight_decay, nesterov: as above.
        maximize: go up instead of down.
        foreach: accepted; the update is the same.
        differentiable: record the step, so that gradients flow through it.
        fused: True for one operator a group, False never; None where it changes no result.
    """

    _takes_sparse = True

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float | Tensor = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_lr(lr)
        check_not_negative("momentum value", momentum)
        check_not_negative("weight_decay value", weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "dampening": dampening,
                "weight_decay": weight_decay,
                "nesterov": nesterov,
                "maximize": maximize,
                "foreach": foreach,
                "differentiable": differentiable,
                "fused": fused,
            },
        )
        if fused:
            self._step_supports_amp_scaling = True
            self._need_device_dtype_check_for_fused = True
            if differentiable:
                raise RuntimeError("`fused` does not support `differentiable`")
            if foreach:
                raise RuntimeError("`fused` and `foreach` cannot be `True` together.")

    def _state_of(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        # Without momentum there is nothing to remember, and no entry is made.
        return self.state[p] if group["momentum"] != 0 else self.state.get(p, {})

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
        momentum = group["momentum"]
        buffers: list[Tensor | None] = []
        if momentum != 0:
            buffers = [s.get("momentum_buffer") for s in states]
        sgd(
            params,
            grads,
            buffers,
            weight_decay=group["weight_decay"],
            momentum=momentum,
            lr=_to_scalar(group["lr"]),
            dampening=group["dampening"],
            nesterov=group["nesterov"],
            maximize=group["maximize"],
            has_sparse_grad=any(g.is_sparse for g in grads),
            foreach=False if group["differentiable"] else group["foreach"],
            fused=False if group["differentiable"] else group["fused"],
            grad_scale=getattr(self, "grad_scale", None),
            found_inf=getattr(self, "found_inf", None),
        )
        for state, buffer in zip(states, buffers, strict=False):
            state["momentum_buffer"] = buffer


def sgd(
    params: list[Tensor],
    d_p_list: list[Tensor],
    momentum_buffer_list: list[Tensor | None],
    has_sparse_grad: bool = False,
    foreach: bool | None = None,
    fused: bool | None = None,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
    *,
    weight_decay: float,
    momentum: float,
    lr: float | Tensor,
    dampening: float,
    nesterov: bool,
    maximize: bool,
) -> None:
    """One step of `SGD` on parallel lists of tensors.

    Parameters and buffers are updated in place; a buffer that is None is made.
    """
    if fused and has_sparse_grad:
        raise RuntimeError("`_fused_sgd` does not support sparse gradients")
    plain = not has_sparse_grad and not isinstance(weight_decay, Tensor)
    if fused is None and (momentum == 0 or sum(p.numel() for p in params) < _WORTH * len(params)):
        plain = False
    operator = fused_operator("_fused_sgd_", params, d_p_list, fused, foreach, plain, lr)
    if operator is not None:
        first = momentum != 0 and all(b is None for b in momentum_buffer_list)
        if first:
            for i, g in enumerate(d_p_list):
                momentum_buffer_list[i] = torch.empty_like(g)
        if not any(b is None for b in momentum_buffer_list):
            fused_step(
                operator,
                [params, d_p_list, momentum_buffer_list],
                lr,
                grad_scale,
                found_inf,
                counted=False,
                weight_decay=weight_decay,
                momentum=momentum,
                dampening=dampening,
                nesterov=nesterov,
                maximize=maximize,
                is_first_step=first,
            )
            return
    if grad_scale is not None or found_inf is not None:
        raise AssertionError("Expected grad_scale and found_inf to be None")
    decays = isinstance(weight_decay, Tensor) or weight_decay != 0
    for i, param in enumerate(params):
        grad = -d_p_list[i] if maximize else d_p_list[i]
        if decays:
            grad = _decayed(grad, param, weight_decay)
        if momentum != 0:
            buffer = momentum_buffer_list[i]
            if buffer is None:
                buffer = momentum_buffer_list[i] = grad.detach().clone()
            else:
                buffer.mul_(momentum).add_(grad, alpha=1 - dampening)
            grad = grad.add(buffer, alpha=momentum) if nesterov else buffer
        if isinstance(lr, Tensor) and lr.requires_grad:
            param.addcmul_(grad, lr, value=-1)
        else:
            add_scaled_(param, grad, -lr)


def _decayed(grad: Tensor, param: Tensor, weight_decay: Any) -> Tensor:
    if isinstance(weight_decay, Tensor) and weight_decay.requires_grad:
        return grad.addcmul(param.clone(), weight_decay)
    return grad.add(param, alpha=weight_decay)
