"""Batch normalisation over the batches of several processes."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau import Tensor


def _spread(t: Tensor, ndim: int) -> Tensor:
    """(C,) as (1, C, 1, ...)."""
    return t.reshape(1, -1, *([1] * (ndim - 2)))


def sync_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    eps: float,
    momentum: float,
    process_group: Any,
) -> Tensor:
    """Normalise (N, C, ...) with the statistics of all processes' batches, N being any size.

    Gradients take part in the statistics of all processes, too.
    """
    from flambeau.distributed.nn.functional import all_reduce  # lazy: loads process groups

    ndim = input.dim()
    others = [d for d in range(ndim) if d != 1]
    wide = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
    count = wide.new_full((1,), input.numel() // input.size(1))
    totals = all_reduce(torch.cat([wide.sum(others), count]), group=process_group)
    n = totals[-1].detach()
    mean = totals[:-1] / n
    centred = wide - _spread(mean, ndim)
    var = all_reduce(centred.pow(2).sum(others), group=process_group) / n
    with torch.no_grad():
        if running_mean is not None:
            running_mean.mul_(1 - momentum).add_(mean.detach(), alpha=momentum)
        if running_var is not None:
            unbiased = var.detach() * (n / (n - 1))
            running_var.mul_(1 - momentum).add_(unbiased, alpha=momentum)
    out = centred * torch.rsqrt(_spread(var, ndim) + eps)
    if weight is not None:
        out = out * _spread(weight, ndim)
    if bias is not None:
        out = out + _spread(bias, ndim)
    return out.to(input.dtype)
