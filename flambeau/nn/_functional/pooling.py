"""Pooling functions that take more than one operator: indices on demand, defaults, checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau import Tensor, _nn
from flambeau.overrides import handle_torch_function, has_torch_function_unary

from ..modules._ntuple import _list_with_default, _pair, _single, _triple
from .activation import relu
from .operators import operator
from .overridable import overridable


def _max_pool(name: str, with_indices: Any, plain: Any, doc: str) -> tuple[Any, Any]:
    """The pair (max_poolNd, max_poolNd_with_indices)."""

    @overridable("input")
    def indexed(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> tuple[Tensor, Tensor]:
        if stride is None:
            stride = []
        return with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)

    def pool(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        if has_torch_function_unary(input):
            return handle_torch_function(
                pool,
                (input,),
                input,
                kernel_size,
                stride=stride,
                padding=padding,
                dilation=dilation,
                ceil_mode=ceil_mode,
                return_indices=return_indices,
            )
        if stride is None:
            stride = []
        if return_indices:
            return with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)
        return plain(input, kernel_size, stride, padding, dilation, ceil_mode)

    for fn, suffix in ((pool, ""), (indexed, "_with_indices")):
        fn.__name__ = fn.__qualname__ = name + suffix
        fn.__doc__ = doc
    return pool, indexed


_MAX_DOC = """The maximum of each window of a (N, C, {0}) or (C, {0}) input.

    Args:
        kernel_size, stride, padding, dilation: one number or one for each dimension; the stride's
            default is the kernel size; padding is with -inf.
        ceil_mode: also windows that begin inside but end outside.
        return_indices: also the flat position of each maximum.
    """
max_pool1d, max_pool1d_with_indices = _max_pool(
    "max_pool1d",
    operator(torch, "max_pool1d_with_indices"),
    operator(torch, "max_pool1d"),
    _MAX_DOC.format("L"),
)
max_pool2d, max_pool2d_with_indices = _max_pool(
    "max_pool2d",
    operator(_nn, "max_pool2d_with_indices"),
    operator(torch, "max_pool2d"),
    _MAX_DOC.format("H, W"),
)
max_pool3d, max_pool3d_with_indices = _max_pool(
    "max_pool3d",
    operator(_nn, "max_pool3d_with_indices"),
    operator(torch, "max_pool3d"),
    _MAX_DOC.format("D, H, W"),
)


def _adaptive_max(name: str, op: Any, sizes: bool, doc: str) -> tuple[Any, Any]:
    @overridable("input")
    def indexed(
        input: Tensor, output_size: Any, return_indices: bool = False
    ) -> tuple[Tensor, Tensor]:
        if sizes:
            output_size = _list_with_default(output_size, input.size())
        return op(input, output_size)

    @overridable("input")
    def pool(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        if sizes:
            output_size = _list_with_default(output_size, input.size())
        result = op(input, output_size)
        return result if return_indices else result[0]

    for fn, suffix in ((pool, ""), (indexed, "_with_indices")):
        fn.__name__ = fn.__qualname__ = name + suffix
        fn.__doc__ = doc
    return pool, indexed


_ADAPTIVE_DOC = """The maximum of windows chosen so that the output has `output_size`.

    A None in `output_size` keeps the input's size. With `return_indices` also their positions.
    """
adaptive_max_pool1d, adaptive_max_pool1d_with_indices = _adaptive_max(
    "adaptive_max_pool1d", operator(torch, "adaptive_max_pool1d"), False, _ADAPTIVE_DOC
)
adaptive_max_pool2d, adaptive_max_pool2d_with_indices = _adaptive_max(
    "adaptive_max_pool2d", operator(_nn, "adaptive_max_pool2d"), True, _ADAPTIVE_DOC
)
adaptive_max_pool3d, adaptive_max_pool3d_with_indices = _adaptive_max(
    "adaptive_max_pool3d", operator(_nn, "adaptive_max_pool3d"), True, _ADAPTIVE_DOC
)


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """The mean of windows chosen so that the output is (N, C, *output_size)."""
    if has_torch_function_unary(input):
        return handle_torch_function(adaptive_avg_pool2d, (input,), input, output_size)
    return _nn.adaptive_avg_pool2d(input, _list_with_default(output_size, input.size()))


@overridable("input")
def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """The mean of windows chosen so that the output is (N, C, *output_size)."""
    return _nn.adaptive_avg_pool3d(input, _list_with_default(output_size, input.size()))


def _fractional(n: int, op: Any, spread: Any) -> tuple[Any, Any]:
    name = f"fractional_max_pool{n}d"

    @overridable("input", "_random_samples")
    def indexed(
        input: Tensor,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        if output_size is None and output_ratio is None:
            raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
        if output_size is None:
            if n == 3:
                output_ratio = spread(output_ratio)  # in two dimensions it must be a sequence
            if len(output_ratio) > n:
                raise ValueError(
                    f"{name} requires output_ratio to either be a single Int or tuple of Ints."
                )
            ratio = spread(output_ratio)
            output_size = [int(input.size(i - n) * ratio[i]) for i in range(n)]
        if _random_samples is None:
            batch = 1 if input.dim() == n + 1 else input.size(0)
            _random_samples = torch.rand(
                batch, input.size(-n - 1), n, dtype=input.dtype, device=input.device
            )
        return op(input, kernel_size, output_size, _random_samples)

    @overridable("input", "_random_samples")
    def pool(
        input: Tensor,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> Any:
        result = indexed(
            input, kernel_size, output_size, output_ratio, return_indices, _random_samples
        )
        return result if return_indices else result[0]

    for fn, suffix in ((pool, ""), (indexed, "_with_indices")):
        fn.__name__ = fn.__qualname__ = name + suffix
        fn.__doc__ = "The maximum of windows of random steps (Graham 2014)."
    return pool, indexed


fractional_max_pool2d, fractional_max_pool2d_with_indices = _fractional(
    2, operator(_nn, "fractional_max_pool2d"), _pair
)
fractional_max_pool3d, fractional_max_pool3d_with_indices = _fractional(
    3, operator(_nn, "fractional_max_pool3d"), _triple
)


def _unpool_output_size(
    input: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    output_size: Sequence[int] | None,
) -> list[int]:
    """The size before pooling: the smallest possible one, or the one asked for, checked."""
    n = len(kernel_size)
    spatial = input.size()[-n:]
    default = [(spatial[d] - 1) * stride[d] + kernel_size[d] - 2 * padding[d] for d in range(n)]
    if output_size is None:
        return default
    if len(output_size) == n + 2:
        output_size = output_size[2:]
    if len(output_size) != n:
        raise ValueError(
            "output_size should be a sequence containing "
            f"{n} or {n + 2} elements, but it has a length of '{len(output_size)}'"
        )
    for d in range(n):
        low, high = default[d] - stride[d], default[d] + stride[d]
        if not low < output_size[d] < high:
            raise ValueError(
                f'invalid output_size "{output_size}" (dim {d} must be between {low} and {high})'
            )
    return list(output_size)


def _check_unpool_output_size(output_size: Sequence[int], dim: int) -> None:
    if len(output_size) != dim:
        raise ValueError(
            f"There should be exactly {dim} elements in output_size, but got {len(output_size)}"
        )


@overridable("input")
def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Any = None,
) -> Tensor:
    """Put each value back where `max_pool1d` found it (`indices`), zeros elsewhere."""
    kernel = _single(kernel_size)
    step = kernel if stride is None else _single(stride)
    size = _unpool_output_size(input, kernel, step, _single(padding), output_size)
    flat = _nn.max_unpool2d(input.unsqueeze(-1), indices.unsqueeze(-1), [*size, 1])
    return flat.squeeze(-1)


@overridable("input")
def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Any = None,
) -> Tensor:
    """Put each value back where `max_pool2d` found it (`indices`), zeros elsewhere."""
    kernel = _pair(kernel_size)
    step = kernel if stride is None else _pair(stride)
    size = _unpool_output_size(input, kernel, step, _pair(padding), output_size)
    return _nn.max_unpool2d(input, indices, size)


@overridable("input")
def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Any = None,
) -> Tensor:
    """Put each value back where `max_pool3d` found it (`indices`), zeros elsewhere."""
    kernel = _triple(kernel_size)
    step = kernel if stride is None else _triple(stride)
    pad = _triple(padding)
    size = _unpool_output_size(input, kernel, step, pad, output_size)
    return _nn.max_unpool3d(input, indices, size, step, pad)


def _lp_pool(
    avg_pool: Any, input: Tensor, norm_type: float, kernel: Any, stride: Any, ceil: bool
) -> Tensor:
    powers = input.pow(norm_type)
    size = 1
    for k in kernel if isinstance(kernel, (tuple, list)) else (kernel,):
        size *= k
    if stride is not None:
        out = avg_pool(powers, kernel, stride, 0, ceil)
    else:
        out = avg_pool(powers, kernel, padding=0, ceil_mode=ceil)
    return (torch.sign(out) * relu(torch.abs(out))).mul(size).pow(1.0 / norm_type)


@overridable("input")
def lp_pool1d(
    input: Tensor,
    norm_type: int | float,
    kernel_size: int,
    stride: Any = None,
    ceil_mode: bool = False,
) -> Tensor:
    """(sum of x ** p) ** (1 / p) of each window, p = `norm_type`; (N, C, L)."""
    return _lp_pool(torch.avg_pool1d, input, norm_type, kernel_size, stride, ceil_mode)


@overridable("input")
def lp_pool2d(
    input: Tensor,
    norm_type: int | float,
    kernel_size: Any,
    stride: Any = None,
    ceil_mode: bool = False,
) -> Tensor:
    """(sum of x ** p) ** (1 / p) of each window, p = `norm_type`; (N, C, H, W)."""
    kernel = _pair(kernel_size)
    return _lp_pool(_nn.avg_pool2d, input, norm_type, kernel, stride, ceil_mode)


@overridable("input")
def lp_pool3d(
    input: Tensor,
    norm_type: int | float,
    kernel_size: Any,
    stride: Any = None,
    ceil_mode: bool = False,
) -> Tensor:
    """(sum of x ** p) ** (1 / p) of each window, p = `norm_type`; (N, C, D, H, W)."""
    kernel = _triple(kernel_size)
    return _lp_pool(_nn.avg_pool3d, input, norm_type, kernel, stride, ceil_mode)
