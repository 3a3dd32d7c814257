"""Dropout of elements and of whole channels."""

from __future__ import annotations

import warnings

import flambeau as torch
from flambeau import Tensor
from flambeau.overrides import handle_torch_function, has_torch_function_unary

from .overridable import overridable


def _check_p(p: float) -> None:
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero each element with probability p and scale the rest by 1 / (1 - p), when training."""
    if has_torch_function_unary(input):
        return handle_torch_function(
            dropout, (input,), input, p=p, training=training, inplace=inplace
        )
    if p < 0.0 or p > 1.0:
        _check_p(p)
    if not training and isinstance(input, Tensor):
        return input  # as the operator does
    return torch.dropout_(input, p, training) if inplace else torch.dropout(input, p, training)


@overridable("input")
def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Dropout that keeps mean and variance of a SELU network's activations."""
    _check_p(p)
    drop = torch.alpha_dropout_ if inplace else torch.alpha_dropout
    return drop(input, p, training)


@overridable("input")
def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """`alpha_dropout` of whole channels."""
    _check_p(p)
    drop = torch.feature_alpha_dropout_ if inplace else torch.feature_alpha_dropout
    return drop(input, p, training)


_CHANNELS = (
    "Note that dropout{n}d exists to provide channel-wise dropout on inputs with {n} spatial "
    "dimension{s}, a channel dimension, and an optional batch dimension (i.e. {a}D or {b}D inputs)."
)


def _unbatched_feature_dropout(input: Tensor, p: float, training: bool, inplace: bool) -> Tensor:
    if inplace:
        return torch.feature_dropout_(input.unsqueeze_(0), p, training).squeeze_(0)
    return torch.feature_dropout(input.unsqueeze(0), p, training).squeeze(0)


def _feature_dropout(input: Tensor, p: float, training: bool, inplace: bool) -> Tensor:
    drop = torch.feature_dropout_ if inplace else torch.feature_dropout
    return drop(input, p, training)


def _warn_dimensions(n: int, ndim: int) -> None:
    warnings.warn(
        f"dropout{n}d: Received a {ndim}-D input to dropout{n}d, which is deprecated "
        "and will result in an error in a future release. To retain the behavior "
        "and silence this warning, please use dropout instead. "
        + _CHANNELS.format(n=n, s="s", a=n + 1, b=n + 2),
        stacklevel=4,
    )


@overridable("input")
def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Zero whole channels of a (N, C, L) or (C, L) input with probability p."""
    _check_p(p)
    ndim = input.dim()
    if ndim not in (2, 3):
        raise RuntimeError(
            f"dropout1d: Expected 2D or 3D input, but received a {ndim}D input. "
            + _CHANNELS.format(n=1, s="", a=2, b=3)
        )
    if ndim == 2:
        return _unbatched_feature_dropout(input, p, training, inplace)
    return _feature_dropout(input, p, training, inplace)


@overridable("input")
def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Zero whole channels of a (N, C, H, W) input with probability p."""
    _check_p(p)
    ndim = input.dim()
    if ndim not in (3, 4):
        _warn_dimensions(2, ndim)
    if ndim == 3:
        warnings.warn(
            "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise "
            "1D dropout behavior is desired - input is interpreted as shape (N, C, L), where C "
            "is the channel dim. This behavior will change in a future release to interpret the "
            "input as one without a batch dimension, i.e. shape (C, H, W). To maintain the 1D "
            "channel-wise dropout behavior, please switch to using dropout1d instead.",
            stacklevel=3,
        )
    return _feature_dropout(input, p, training, inplace)


@overridable("input")
def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Zero whole channels of a (N, C, D, H, W) or (C, D, H, W) input with probability p."""
    _check_p(p)
    ndim = input.dim()
    if ndim not in (4, 5):
        _warn_dimensions(3, ndim)
    if ndim == 5:
        return _feature_dropout(input, p, training, inplace)
    return _unbatched_feature_dropout(input, p, training, inplace)
