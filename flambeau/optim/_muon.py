"""Muon: momentum whose update is made orthogonal (Jordan et al., 2024, "Muon: An optimizer for
hidden layers"; Liu et al., arXiv:2502.16982)."""

from __future__ import annotations

import math
from typing import Any

import flambeau as torch
from flambeau import Tensor

from ._parameterwise import Parameterwise
from ._stepping import _to_scalar
from .optimizer import ParamsT

__all__ = ["Muon", "muon"]

_COEFFICIENTS = (3.4445, -4.775, 2.0315)


class Muon(Parameterwise):
    """Momentum for matrices; the update is replaced by the orthogonal matrix nearest to it.

    Args:
        params: matrices only; other parameters need another optimizer.
        lr: learning rate.
        weight_decay: share of ``lr`` by which the parameter shrinks.
        momentum: decay rate of the mean of the gradient.
        nesterov: look one step of the momentum ahead.
        ns_coefficients: of the quintic in the Newton-Schulz iteration.
        eps: against division by zero.
        ns_steps: iterations.
        adjust_lr_fn: how the rate depends on the shape (A, B): ``"original"`` (None), times
            ``sqrt(max(1, A / B))``, or ``"match_rms_adamw"``, times ``0.2 * sqrt(max(A, B))``.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = _COEFFICIENTS,
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not 0.0 <= lr:
            raise ValueError(f"Learning rate should be >= 0 but is: {lr}")
        if not 0.0 <= momentum:
            raise ValueError(f"momentum should be >= 0 but is: {momentum}")
        if not 0.0 <= weight_decay:
            raise ValueError(f"weight decay should be >= 0 but is: {weight_decay}")
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        super().__init__(
            params,
            {
                "lr": lr,
                "weight_decay": weight_decay,
                "momentum": momentum,
                "nesterov": nesterov,
                "ns_coefficients": ns_coefficients,
                "eps": eps,
                "ns_steps": ns_steps,
                "adjust_lr_fn": adjust_lr_fn,
            },
        )
        for group in self.param_groups:
            for p in group["params"]:
                if p.ndim != 2:
                    raise ValueError(
                        "Muon only supports 2D parameters whereas we found a parameter with size: "
                        f"{p.size()}"
                    )

    def _check(self, p: Tensor, grad: Tensor) -> None:
        if torch.is_complex(p):
            raise RuntimeError("Muon does not support complex parameters")
        super()._check(p, grad)

    def _begin(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        return {"momentum_buffer": torch.zeros_like(p.grad, memory_format=torch.preserve_format)}

    def _update(
        self,
        group: dict[str, Any],
        params: list[Tensor],
        grads: list[Tensor],
        states: list[dict[str, Any]],
    ) -> None:
        muon(
            params,
            grads,
            [s["momentum_buffer"] for s in states],
            lr=_to_scalar(group["lr"]),
            weight_decay=group["weight_decay"],
            momentum=group["momentum"],
            nesterov=group["nesterov"],
            ns_coefficients=group["ns_coefficients"],
            eps=group["eps"],
            ns_steps=group["ns_steps"],
            adjust_lr_fn=group["adjust_lr_fn"],
            has_complex=False,
        )


def _orthogonal(
    grad: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float
) -> Tensor:
    """About the nearest orthogonal matrix, in bfloat16, by Newton-Schulz iteration."""
    if steps >= 100:
        raise ValueError("Number of steps must be less than 100 for computational efficiency")
    if grad.dim() != 2:
        raise ValueError("Input tensor gradient must be a 2D matrix")
    if len(coefficients) != 3:
        raise ValueError("Coefficients must be a tuple of exactly 3 values")
    a, b, c = coefficients
    x = grad.bfloat16()
    tall = grad.size(0) > grad.size(1)
    if tall:
        x = x.T
    x.div_(torch.linalg.vector_norm(x).clamp(min=eps))
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


def _rate(lr: Any, how: str | None, shape: Any) -> Any:
    a, b = shape[:2]
    if how == "match_rms_adamw":
        return lr * (0.2 * math.sqrt(max(a, b)))
    return lr * math.sqrt(max(1, a / b))


def muon(
    params: list[Tensor],
    grads: list[Tensor],
    muon_momentum_bufs: list[Tensor],
    *,
    foreach: bool | None = None,
    lr: float,
    weight_decay: float,
    momentum: float,
    nesterov: bool,
    ns_coefficients: tuple[float, float, float],
    ns_steps: int,
    eps: float,
    adjust_lr_fn: str | None,
    has_complex: bool,
) -> None:
    """One step of `Muon` on parallel lists of matrices, all updated in place."""
    if foreach:
        raise RuntimeError("Foreach is not supported for Muon yet")
    if has_complex:
        raise ValueError("Complex parameters are not supported")
    for param, grad, buffer in zip(params, grads, muon_momentum_bufs, strict=True):
        if grad.ndim != 2:
            raise ValueError("Param gradient must be a 2D matrix")
        buffer.lerp_(grad, 1 - momentum)
        update = grad.lerp(buffer, momentum) if nesterov else buffer
        update = _orthogonal(update, ns_coefficients, ns_steps, eps)
        param.mul_(1 - lr * weight_decay)
        param.add_(update, alpha=-_rate(lr, adjust_lr_fn, param.shape))
