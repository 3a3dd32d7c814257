"""Convolutions and transposed convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import flambeau as torch
from flambeau import Tensor

from .. import functional as F
from .. import init
from ..parameter import Parameter, UninitializedParameter
from ._ntuple import _pair, _reverse_repeat_tuple, _single, _triple
from .lazy import LazyModuleMixin
from .module import Module

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "LazyConv1d",
    "LazyConv2d",
    "LazyConv3d",
    "LazyConvTranspose1d",
    "LazyConvTranspose2d",
    "LazyConvTranspose3d",
]

_PADDING_STRINGS = {"same", "valid"}
_PADDING_MODES = {"zeros", "reflect", "replicate", "circular"}


def _check_channels(in_channels: int, out_channels: int, groups: int) -> None:
    if groups <= 0:
        raise ValueError("groups must be a positive integer")
    if in_channels % groups != 0:
        raise ValueError("in_channels must be divisible by groups")
    if out_channels % groups != 0:
        raise ValueError("out_channels must be divisible by groups")


def _check_padding(padding: Any, padding_mode: str, stride: Sequence[int]) -> None:
    if isinstance(padding, str):
        if padding not in _PADDING_STRINGS:
            raise ValueError(
                f"Invalid padding string {padding!r}, should be one of {_PADDING_STRINGS}"
            )
        if padding == "same" and any(s != 1 for s in stride):
            raise ValueError("padding='same' is not supported for strided convolutions")
    if padding_mode not in _PADDING_MODES:
        raise ValueError(
            f"padding_mode must be one of {_PADDING_MODES}, but got padding_mode='{padding_mode}'"
        )


def _explicit_padding(
    padding: Any, kernel_size: Sequence[int], dilation: Sequence[int]
) -> tuple[int, ...]:
    """The padding as `functional.pad` takes it: (left, right) from the last dimension on."""
    if not isinstance(padding, str):
        return _reverse_repeat_tuple(padding, 2)
    sides = [0, 0] * len(kernel_size)
    if padding == "same":
        n = len(kernel_size)
        for i, (d, k) in enumerate(zip(dilation, kernel_size, strict=True)):
            total = d * (k - 1)
            left = total // 2
            place = 2 * (n - 1 - i)
            sides[place : place + 2] = [left, total - left]
    return sides  # type: ignore[return-value]


class _ConvNd(Module):
    __constants__ = [
        "stride",
        "padding",
        "dilation",
        "groups",
        "padding_mode",
        "output_padding",
        "in_channels",
        "out_channels",
        "kernel_size",
    ]
    bias: Tensor | None
    in_channels: int
    _reversed_padding_repeated_twice: Any
    out_channels: int
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: Any
    dilation: tuple[int, ...]
    transposed: bool
    output_padding: tuple[int, ...]
    groups: int
    padding_mode: str
    weight: Tensor

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} does not say how it convolves")

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: tuple[int, ...],
        stride: tuple[int, ...],
        padding: Any,
        dilation: tuple[int, ...],
        transposed: bool,
        output_padding: tuple[int, ...],
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        _check_channels(in_channels, out_channels, groups)
        _check_padding(padding, padding_mode, stride)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.transposed = transposed
        self.output_padding = output_padding
        self.groups = groups
        self.padding_mode = padding_mode
        self._reversed_padding_repeated_twice = _explicit_padding(padding, kernel_size, dilation)
        if transposed:
            shape = (in_channels, out_channels // groups, *kernel_size)
        else:
            shape = (out_channels, in_channels // groups, *kernel_size)
        self.weight = Parameter(torch.empty(shape, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(torch.empty(out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias from U(-k, k), k = sqrt(groups / (in_channels * prod(kernel)))."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            if fan_in != 0:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        n = len(self.kernel_size)
        parts = [f"{self.in_channels}, {self.out_channels}"]
        parts.append(f"kernel_size={self.kernel_size}, stride={self.stride}")
        if self.padding != (0,) * n:
            parts.append(f"padding={self.padding}")
        if self.dilation != (1,) * n:
            parts.append(f"dilation={self.dilation}")
        if self.output_padding != (0,) * n:
            parts.append(f"output_padding={self.output_padding}")
        if self.groups != 1:
            parts.append(f"groups={self.groups}")
        if self.bias is None:
            parts.append("bias=False")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode}")
        return ", ".join(parts)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("padding_mode", "zeros")

    def _padded(self, input: Tensor) -> Tensor:
        return F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)


class _Forwards(_ConvNd):
    """What the convolutions of one, two and three dimensions share."""

    #: A number for each dimension, from one or several.
    _spread: Callable[[Any], tuple[int, ...]]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            self._spread(kernel_size),
            self._spread(stride),
            padding if isinstance(padding, str) else self._spread(padding),
            self._spread(dilation),
            False,
            self._spread(0),
            groups,
            bias,
            padding_mode,
            device=device,
            dtype=dtype,
        )

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)


class Conv1d(_Forwards):
    """Cross-correlation of (N, C_in, L) or (C_in, L) with `out_channels` kernels.

    Args:
        kernel_size, stride, padding, dilation: one number or a tuple of one.
        padding: also "valid" (none) or "same" (the output is as long as the input).
        groups: channels are split into so many groups, each with its own kernels.
        bias: a number added to each output channel.
        padding_mode: "zeros", "reflect", "replicate" or "circular".
    """

    _spread = staticmethod(_single)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            input, padding = self._padded(input), (0,)
        return F.conv1d(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class Conv2d(_Forwards):
    """Cross-correlation of (N, C_in, H, W) or (C_in, H, W); the arguments are `Conv1d`'s."""

    _spread = staticmethod(_pair)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            input, padding = self._padded(input), (0, 0)
        return F.conv2d(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class Conv3d(_Forwards):
    """Cross-correlation of (N, C_in, D, H, W) or (C_in, D, H, W); the arguments are `Conv1d`'s."""

    _spread = staticmethod(_triple)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            input, padding = self._padded(input), (0, 0, 0)
        return F.conv3d(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class _ConvTransposeNd(_ConvNd):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: tuple[int, ...],
        stride: tuple[int, ...],
        padding: tuple[int, ...],
        dilation: tuple[int, ...],
        transposed: bool,
        output_padding: tuple[int, ...],
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ValueError(
                f'Only "zeros" padding mode is supported for {self.__class__.__name__}'
            )
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            transposed,
            output_padding,
            groups,
            bias,
            padding_mode,
            device=device,
            dtype=dtype,
        )

    def _output_padding(
        self,
        input: Tensor,
        output_size: Any,
        stride: Sequence[int],
        padding: Sequence[int],
        kernel_size: Sequence[int],
        num_spatial_dims: int,
        dilation: Sequence[int] | None = None,
    ) -> Any:
        """What must be added at one side for the output to have the size asked for."""
        if output_size is None:
            return _single(self.output_padding)
        n = num_spatial_dims
        before = input.dim() - n  # the batch's dimension, if any, and the channels'
        if len(output_size) == before + n:
            output_size = output_size[before:]
        if len(output_size) != n:
            raise ValueError(
                f"ConvTranspose{n}D: for {input.dim()}D input, output_size must have {n} or"
                f" {before + n} elements (got {len(output_size)})"
            )
        smallest = []
        for d in range(n):
            step = 1 if dilation is None else dilation[d]
            reach = step * (kernel_size[d] - 1)
            smallest.append((input.size(d + before) - 1) * stride[d] - 2 * padding[d] + reach + 1)
        largest = [smallest[d] + stride[d] - 1 for d in range(n)]
        for size, low, high in zip(output_size, smallest, largest, strict=True):
            if size < low or size > high:
                raise ValueError(
                    f"requested an output size of {output_size}, but valid sizes range "
                    f"from {smallest} to {largest} (for an input of {input.size()[2:]})"
                )
        return [output_size[d] - smallest[d] for d in range(n)]

    def _extra(self, input: Tensor, output_size: Any, n: int) -> Any:
        if self.padding_mode != "zeros":
            raise ValueError(f"Only `zeros` padding mode is supported for ConvTranspose{n}d")
        return self._output_padding(
            input, output_size, self.stride, self.padding, self.kernel_size, n, self.dilation
        )


class _Backwards(_ConvTransposeNd):
    """What the transposed convolutions of one, two and three dimensions share."""

    _spread: Callable[[Any], tuple[int, ...]]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            self._spread(kernel_size),
            self._spread(stride),
            self._spread(padding),
            self._spread(dilation),
            True,
            self._spread(output_padding),
            groups,
            bias,
            padding_mode,
            device=device,
            dtype=dtype,
        )


class ConvTranspose1d(_Backwards):
    """The gradient of `Conv1d` with respect to its input, as a layer ("deconvolution").

    Args:
        output_padding: added to one side of the output's size.

    The others are those of `Conv1d`; padding is taken off the output.
    """

    _spread = staticmethod(_single)

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        """`output_size` chooses among the sizes that the stride leaves possible."""
        extra = self._extra(input, output_size, 1)
        return F.conv_transpose1d(
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            extra,
            self.groups,
            self.dilation,
        )


class ConvTranspose2d(_Backwards):
    """The gradient of `Conv2d` with respect to its input, as a layer; see `ConvTranspose1d`."""

    _spread = staticmethod(_pair)

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        """`output_size` chooses among the sizes that the stride leaves possible."""
        extra = self._extra(input, output_size, 2)
        return F.conv_transpose2d(
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            extra,
            self.groups,
            self.dilation,
        )


class ConvTranspose3d(_Backwards):
    """The gradient of `Conv3d` with respect to its input, as a layer; see `ConvTranspose1d`."""

    _spread = staticmethod(_triple)

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        """`output_size` chooses among the sizes that the stride leaves possible."""
        extra = self._extra(input, output_size, 3)
        return F.conv_transpose3d(
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            extra,
            self.groups,
            self.dilation,
        )


class _LazyConvXdMixin(LazyModuleMixin):
    """A convolution whose `in_channels` is the first input's number of channels."""

    groups: int
    transposed: bool
    in_channels: int
    out_channels: int
    kernel_size: tuple[int, ...]
    weight: UninitializedParameter
    bias: UninitializedParameter
    _num_spatial_dims = 0

    def __init__(
        self,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        # No bias at first: there is nothing to draw yet.
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode)
        self._await_input(out_channels, bias, device, dtype)

    def _await_input(self, out_channels: int, bias: bool, device: Any, dtype: Any) -> None:
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_channels = out_channels
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self: Any) -> None:
        """Draw weight and bias anew, once their shapes are known."""
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()

    def initialize_parameters(self: Any, input: Tensor, *args: Any, **kwargs: Any) -> None:
        if not self.has_uninitialized_params():
            return
        self.in_channels = self._get_in_channels(input)
        if self.in_channels % self.groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        if self.transposed:
            shape = (self.in_channels, self.out_channels // self.groups, *self.kernel_size)
        else:
            shape = (self.out_channels, self.in_channels // self.groups, *self.kernel_size)
        self.weight.materialize(shape)
        if self.bias is not None:
            self.bias.materialize((self.out_channels,))
        self.reset_parameters()

    def _get_in_channels(self, input: Tensor) -> int:
        n = self._get_num_spatial_dims()
        if input.dim() not in (n + 2, n + 1):
            raise RuntimeError(
                f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input "
                f"to {self.__class__.__name__}, but "
                f"got input of size: {input.shape}"
            )
        return input.shape[1] if input.dim() == n + 2 else input.shape[0]

    def _get_num_spatial_dims(self) -> int:
        return self._num_spatial_dims


class _LazyConvTransposeXdMixin(_LazyConvXdMixin):
    def __init__(
        self,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        LazyModuleMixin.__init__(
            self,
            0,
            0,
            kernel_size,
            stride,
            padding,
            output_padding,
            groups,
            False,
            dilation,
            padding_mode,
        )
        self._await_input(out_channels, bias, device, dtype)


class LazyConv1d(_LazyConvXdMixin, Conv1d):
    """A Conv1d whose `in_channels` is the first input's."""

    cls_to_become = Conv1d
    _num_spatial_dims = 1


class LazyConv2d(_LazyConvXdMixin, Conv2d):
    """A Conv2d whose `in_channels` is the first input's."""

    cls_to_become = Conv2d
    _num_spatial_dims = 2


class LazyConv3d(_LazyConvXdMixin, Conv3d):
    """A Conv3d whose `in_channels` is the first input's."""

    cls_to_become = Conv3d
    _num_spatial_dims = 3


class LazyConvTranspose1d(_LazyConvTransposeXdMixin, ConvTranspose1d):
    """A ConvTranspose1d whose `in_channels` is the first input's."""

    cls_to_become = ConvTranspose1d
    _num_spatial_dims = 1


class LazyConvTranspose2d(_LazyConvTransposeXdMixin, ConvTranspose2d):
    """A ConvTranspose2d whose `in_channels` is the first input's."""

    cls_to_become = ConvTranspose2d
    _num_spatial_dims = 2


class LazyConvTranspose3d(_LazyConvTransposeXdMixin, ConvTranspose3d):
    """A ConvTranspose3d whose `in_channels` is the first input's."""

    cls_to_become = ConvTranspose3d
    _num_spatial_dims = 3
