"""Parameters as one vector and back."""

from __future__ import annotations

from collections.abc import Iterable

import flambeau as torch
from flambeau import Tensor

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def _check_param_device(param: Tensor, old_param_device: int | None) -> int:
    """The parameter's device number (-1: CPU), which must be that of those before."""
    device = param.get_device() if param.is_cuda else -1
    if old_param_device is not None and device != old_param_device:
        raise TypeError(
            "Found two parameters on different devices, this is currently not supported."
        )
    return device


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters, flattened, one after the other."""
    device = None
    parts = []
    for param in parameters:
        device = _check_param_device(param, device)
        parts.append(param.view(-1))
    return torch.cat(parts)


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Make the parameters views of consecutive pieces of a vector."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {torch.typename(vec)}")
    device = None
    begin = 0
    for param in parameters:
        device = _check_param_device(param, device)
        end = begin + param.numel()
        param.data = vec[begin:end].view_as(param).data
        begin = end
