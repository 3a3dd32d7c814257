"""`make_tensor`: random inputs of any dtype."""

from __future__ import annotations

import math
import warnings
from typing import Any

import flambeau as torch
from flambeau import Tensor

__all__ = ["make_tensor"]


def _interval(low: Any, high: Any, dtype: Any, defaults: tuple[float, float]) -> tuple[Any, Any]:
    """The values to draw from: what was asked for, within what the dtype holds."""
    if dtype is torch.bool:
        lowest, beyond = 0, 2
    elif dtype.is_floating_point or dtype.is_complex:
        real = torch.finfo(dtype)
        lowest, beyond = real.min, real.max
    else:
        whole = torch.iinfo(dtype)
        lowest, beyond = whole.min, whole.max + (dtype is not torch.int64)
    low, high = defaults[0] if low is None else low, defaults[1] if high is None else high
    if any(isinstance(v, float) and math.isnan(v) for v in (low, high)):
        raise ValueError(f"`low` and `high` cannot be NaN, but got {low=} and {high=}")
    if low == high and (dtype.is_floating_point or dtype.is_complex):
        warnings.warn(
            "Passing `low==high` to `torch.testing.make_tensor` for floating or complex types is "
            "deprecated since 2.1 and will be removed in 2.3. Use `torch.full(...)` instead.",
            FutureWarning,
            stacklevel=4,
        )
    elif low >= high:
        raise ValueError(f"`low` must be less than `high`, but got {low} >= {high}")
    if high < lowest or low >= beyond:
        raise ValueError(
            f"The value interval specified by `low` and `high` is [{low}, {high}), "
            f"but {dtype} only supports [{lowest}, {beyond})"
        )
    low, high = max(low, lowest), min(high, beyond)
    return (
        (low, high)
        if dtype.is_floating_point or dtype.is_complex
        else (math.ceil(low), math.ceil(high))
    )


def _drawn(shape: Any, dtype: Any, device: Any, low: Any, high: Any) -> Tensor:
    """Fresh values of [low, high)."""
    if dtype.is_complex or (dtype.is_floating_point and dtype.itemsize > 1):
        low, high = _interval(low, high, dtype, (-9, 9))
        made = torch.empty(shape, device=device, dtype=dtype)
        flat = torch.view_as_real(made) if dtype.is_complex else made
        flat.uniform_(low, high)
        return made
    if dtype.is_floating_point:
        low, high = _interval(low, high, dtype, (-9, 9))
        return torch.empty(shape, device=device, dtype=torch.float32).uniform_(low, high).to(dtype)
    unsigned = not dtype.is_signed
    low, high = _interval(
        low, high, dtype, (0, 2) if dtype is torch.bool else (0 if unsigned else -9, 10)
    )
    return torch.randint(low, high, shape, device=device, dtype=dtype)


def make_tensor(
    *shape: Any,
    dtype: Any,
    device: Any,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """A tensor of random numbers of [low, high).

    Args:
        shape: extents, or one sequence of them.
        dtype, device: of the tensor.
        low, high: by default -9 and 9 (integers: 10; unsigned ones from 0; bools: 0 and 2).
        requires_grad: whether it is a leaf that does.
        noncontiguous: make the last stride 2, where there are at least two elements.
        exclude_zero: put the smallest positive number in the place of zeros.
        memory_format: not together with noncontiguous.

    Raises:
        ValueError: the interval is empty or beyond the dtype, or options exclude each other.
    """
    if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
        shape = tuple(shape[0])
    if noncontiguous and memory_format is not None:
        raise ValueError(
            "The parameters `noncontiguous` and `memory_format` are mutually exclusive, "
            f"but got {noncontiguous=} and {memory_format=}"
        )
    exact = not (dtype.is_floating_point or dtype.is_complex)
    if requires_grad and exact:
        raise ValueError(
            "`requires_grad=True` is not supported for boolean and integral dtypes, but got "
            f"{dtype=}"
        )
    made = _drawn(shape, dtype, device, low, high)
    if noncontiguous and made.numel() > 1:
        made = torch.repeat_interleave(made, 2, dim=-1)[..., ::2]
    elif memory_format is not None:
        made = made.clone(memory_format=memory_format)
    if exclude_zero:
        made[made == 0] = 1 if exact else torch.finfo(dtype).tiny
    if requires_grad:
        made.requires_grad = True
    return made
