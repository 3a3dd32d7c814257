"""Gradients of convolutions with respect to input and weight, as functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau import Tensor

from .modules._ntuple import _pair, _single, _triple


def _backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    spread: Any,
    geometry: tuple[Any, Any, Any, int],
    for_weight: bool,
) -> Tensor:
    stride, padding, dilation, groups = geometry
    n = spread(0)
    result: Any = torch.ops.aten.convolution_backward(
        grad_output,
        input,
        weight,
        None,
        spread(stride),
        spread(padding),
        spread(dilation),
        False,
        n,
        groups,
        (not for_weight, for_weight, False),
    )
    return result[1 if for_weight else 0]


def _input(
    spread: Any,
    input_size: Sequence[int],
    weight: Tensor,
    grad_output: Tensor,
    geometry: tuple[Any, Any, Any, int],
) -> Tensor:
    # Only the shape of the input matters for its gradient.
    shape = grad_output.new_empty(1).expand(input_size)
    return _backward(grad_output, shape, weight, spread, geometry, False)


def _weight(
    spread: Any,
    input: Tensor,
    weight_size: Sequence[int],
    grad_output: Tensor,
    geometry: tuple[Any, Any, Any, int],
) -> Tensor:
    shape = grad_output.new_empty(1).expand(weight_size)
    return _backward(grad_output, input, shape, spread, geometry, True)


def conv1d_input(
    input_size: Sequence[int],
    weight: Tensor,
    grad_output: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of `conv1d` with respect to an input of size `input_size`."""
    return _input(_single, input_size, weight, grad_output, (stride, padding, dilation, groups))


def conv1d_weight(
    input: Tensor,
    weight_size: Sequence[int],
    grad_output: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of `conv1d` with respect to a weight of size `weight_size`."""
    return _weight(_single, input, weight_size, grad_output, (stride, padding, dilation, groups))


def conv2d_input(
    input_size: Sequence[int],
    weight: Tensor,
    grad_output: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of `conv2d` with respect to an input of size `input_size`."""
    return _input(_pair, input_size, weight, grad_output, (stride, padding, dilation, groups))


def conv2d_weight(
    input: Tensor,
    weight_size: Sequence[int],
    grad_output: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of `conv2d` with respect to a weight of size `weight_size`."""
    return _weight(_pair, input, weight_size, grad_output, (stride, padding, dilation, groups))


def conv3d_input(
    input_size: Sequence[int],
    weight: Tensor,
    grad_output: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of `conv3d` with respect to an input of size `input_size`."""
    return _input(_triple, input_size, weight, grad_output, (stride, padding, dilation, groups))


def conv3d_weight(
    input: Tensor,
    weight_size: Sequence[int],
    grad_output: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of `conv3d` with respect to a weight of size `weight_size`."""
    return _weight(_triple, input, weight_size, grad_output, (stride, padding, dilation, groups))
