"""Limiting the size of gradients."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import flambeau as torch
from flambeau import Tensor

__all__ = [
    "clip_grad_norm",
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "get_total_norm",
]


def _groups(tensors: list[Tensor]) -> dict[tuple[Any, Any], list[Tensor]]:
    """Tensors by (device, dtype): the `_foreach_` functions take one kind at a time."""
    groups: dict[tuple[Any, Any], list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault((tensor.device, tensor.dtype), []).append(tensor)
    return groups


def _as_list(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [parameters] if isinstance(parameters, Tensor) else list(parameters)


def _together(foreach: bool | None, device: torch.device) -> bool:
    """Whether one call for many tensors pays: on the CPU it does not."""
    if foreach and device.type not in ("cuda", "cpu", "xpu", "mps"):
        raise RuntimeError(
            f"foreach=True was passed, but can't use the foreach API on {device.type} tensors"
        )
    return bool(foreach) or (foreach is None and device.type == "cuda")


@torch.no_grad()
def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of all tensors as one vector, a 0-dim tensor.

    Args:
        norm_type: p; may be inf.
        error_if_nonfinite: raise when the result is nan or inf.
        foreach: norms of many tensors in one call; by default on CUDA.
    """
    tensors = _as_list(tensors)
    norm_type = float(norm_type)
    if len(tensors) == 0:
        return torch.tensor(0.0)
    first_device = tensors[0].device
    norms: list[Tensor] = []
    for (device, _), group in _groups(tensors).items():
        if _together(foreach, device):
            norms.extend(torch._foreach_norm(group, norm_type))
        else:
            norms.extend(torch.linalg.vector_norm(g, norm_type) for g in group)
    total = torch.linalg.vector_norm(
        torch.stack([norm.to(first_device) for norm in norms]), norm_type
    )
    if error_if_nonfinite and torch.logical_or(total.isnan(), total.isinf()):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from "
            "`parameters` is non-finite, so it cannot be clipped. To disable "
            "this error and scale the gradients by the non-finite norm anyway, "
            "set `error_if_nonfinite=False`"
        )
    return total


@torch.no_grad()
def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    total_norm: Tensor,
    foreach: bool | None = None,
) -> None:
    """Scale all gradients by min(1, max_norm / (total_norm + 1e-6)), in place."""
    grads = [p.grad for p in _as_list(parameters) if p.grad is not None]
    max_norm = float(max_norm)
    if len(grads) == 0:
        return
    # Multiplied by even when it is 1: a comparison would wait for the device.
    factor = torch.clamp(max_norm / (total_norm + 1e-6), max=1.0)
    for (device, _), group in _groups(grads).items():
        if _together(foreach, device):
            torch._foreach_mul_(group, factor.to(device))
        else:
            on_device = factor.to(device)
            for grad in group:
                grad.mul_(on_device)


@torch.no_grad()
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale the gradients, in place, so that their norm as one vector is at most `max_norm`.

    Returns the norm before; see `get_total_norm`.
    """
    parameters = _as_list(parameters)
    grads = [p.grad for p in parameters if p.grad is not None]
    total = get_total_norm(grads, norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(parameters, max_norm, total, foreach)
    return total


def clip_grad_norm(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The deprecated name of `clip_grad_norm_`."""
    warnings.warn(
        "`torch.nn.utils.clip_grad_norm` is now deprecated "
        "in favor of `torch.nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


@torch.no_grad()
def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None
) -> None:
    """Clamp every element of the gradients to [-clip_value, clip_value], in place."""
    clip_value = float(clip_value)
    grads = [p.grad for p in _as_list(parameters) if p.grad is not None]
    for (device, _), group in _groups(grads).items():
        if _together(foreach, device):
            torch._foreach_clamp_min_(group, -clip_value)
            torch._foreach_clamp_max_(group, clip_value)
        else:
            for grad in group:
                grad.clamp_(min=-clip_value, max=clip_value)
