"""The `reduction=` argument of losses: names, ATen codes and the legacy flags."""

from __future__ import annotations

import warnings

_CODES = {"none": 0, "mean": 1, "elementwise_mean": 1, "sum": 2}


def get_enum(reduction: str) -> int:
    """ATen's code of a reduction name: none 0, mean 1, sum 2."""
    if reduction == "elementwise_mean":
        warnings.warn(
            "reduction='elementwise_mean' is deprecated. Please use reduction='mean' instead.",
            stacklevel=2,
        )
    code = _CODES.get(reduction, -1) if isinstance(reduction, str) else -1
    if code < 0:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return code


def legacy_get_string(
    size_average: bool | None, reduce: bool | None, emit_warning: bool = True
) -> str:
    """The reduction name that the deprecated pair of flags stands for (None counts as True)."""
    average = size_average is None or size_average
    if reduce is None or reduce:
        name = "mean" if average else "sum"
    else:
        name = "none"
    if emit_warning:
        warnings.warn(
            f"size_average and reduce args will be deprecated, please use reduction='{name}'"
            " instead.",
            stacklevel=2,
        )
    return name


def legacy_get_enum(
    size_average: bool | None, reduce: bool | None, emit_warning: bool = True
) -> int:
    """ATen's code for the deprecated pair of flags."""
    return get_enum(legacy_get_string(size_average, reduce, emit_warning))
