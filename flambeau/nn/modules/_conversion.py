"""Moving and casting the tensors of a module: `_apply` and the arguments of `to`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau import Tensor
from flambeau import __future__ as future

from ..parameter import Parameter


def parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """(device, dtype, non_blocking, memory_format) from the arguments of `Tensor.to`.

    Forms: to(device=None, dtype=None, non_blocking=False), to(dtype, non_blocking=False),
    to(tensor, non_blocking=False); each with `memory_format=` (and `copy`, which is ignored).
    """
    return torch._nn._parse_to(*args, **kwargs)


_PLAIN = (Tensor, Parameter)


def _keeps_object(tensor: Tensor, applied: Tensor) -> bool:
    """Whether the existing object can take over the new values with `.data =`."""
    if future.get_overwrite_module_params_on_conversion():
        return False
    if tensor.is_meta != applied.is_meta or tensor.layout != applied.layout:
        return False  # memory of another kind
    return type(applied) in _PLAIN or type(applied) is type(tensor)


def _swaps(applied: Tensor) -> bool:
    if future.get_swap_module_params_on_conversion():
        return True
    # A subclass that wraps tensors has no storage of its own to be pointed elsewhere.
    return type(applied) not in _PLAIN and hasattr(applied, "__tensor_flatten__")


def _swap(module: Any, key: str, old: Any, new: Any, what: str) -> None:
    if isinstance(new, Tensor):
        new.requires_grad_(old.requires_grad)
    try:
        torch.utils.swap_tensors(old, new)
    except Exception as error:
        raise RuntimeError(f"_apply(): Couldn't swap {module._get_name()}.{key}{what}") from error


def _convert_param(module: Any, key: str, param: Any, fn: Callable[[Tensor], Tensor]) -> None:
    grad = param.grad
    with torch.no_grad():  # the copy is no part of any graph
        applied = fn(param)
    swap = _swaps(applied)
    if swap:
        # The gradient must not be what keeps the old tensor from being swapped.
        param.grad = None
        if not isinstance(applied, Parameter):
            applied = Parameter(applied, requires_grad=param.requires_grad)
        _swap(module, key, param, applied, "")
        out = param
    elif _keeps_object(param, applied):
        param.data = applied
        out = param
    else:
        out = Parameter(applied, param.requires_grad)
        module._parameters[key] = out
    if grad is None:
        return
    with torch.no_grad():
        grad_applied = fn(grad)
    if swap:
        _swap(module, key, grad, grad_applied, ".grad")
        out.grad = grad
    elif out is param and _keeps_object(grad, grad_applied):
        grad.data = grad_applied
    else:
        out.grad = grad_applied.requires_grad_(grad.requires_grad)


def apply_to_tensors(module: Any, fn: Callable[[Tensor], Tensor]) -> None:
    """Replace each parameter, gradient and buffer t of one module by fn(t)."""
    for key, param in module._parameters.items():
        if param is not None:
            _convert_param(module, key, param, fn)
    for key, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[key] = fn(buffer)


def converter(device: Any, dtype: Any, non_blocking: bool, memory_format: Any) -> Any:
    """The function that `Module.to` applies: only floating and complex tensors are cast."""

    def convert(t: Tensor) -> Tensor:
        cast = dtype if t.is_floating_point() or t.is_complex() else None
        try:
            if memory_format is not None and t.dim() in (4, 5):
                return t.to(device, cast, non_blocking, memory_format=memory_format)
            return t.to(device, cast, non_blocking)
        except NotImplementedError as error:
            if str(error) != "Cannot copy out of meta tensor; no data!":
                raise
            raise NotImplementedError(
                f"{error} Please use torch.nn.Module.to_empty() instead of torch.nn.Module.to() "
                "when moving module from meta to a different device."
            ) from None

    return convert
