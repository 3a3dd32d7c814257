"""Resizing, sampling on a grid, padding and sliding blocks of images."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau import Tensor, _nn
from flambeau.overrides import handle_torch_function, has_torch_function_unary

from ..modules._ntuple import _pair
from .overridable import overridable
from .pooling import adaptive_avg_pool2d, adaptive_avg_pool3d

_NEEDED = {"linear": 3, "bilinear": 4, "bicubic": 4, "lanczos": 4, "trilinear": 5}


def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """Pad the last dimensions: `pad` is (left, right) of the last, then of the one before, ...

    Args:
        mode: "constant" (with `value`, default 0), "reflect", "replicate" or "circular".
    """
    if has_torch_function_unary(input):
        return handle_torch_function(_pad, (input,), input, pad, mode=mode, value=value)
    return _nn.pad(input, pad, mode, value)


_pad = pad


def _is_integer(x: Any) -> bool:
    return isinstance(x, (int, getattr(torch, "SymInt", int))) or (
        isinstance(x, Tensor) and not x.is_floating_point()
    )


def _sizes(input: Tensor, size: Any, dim: int) -> list[Any]:
    if not isinstance(size, (list, tuple)):
        return [size] * dim
    if len(size) != dim:
        raise ValueError(
            "Input and output must have the same number of spatial dimensions, but got "
            f"input with spatial dimensions of {list(input.shape[2:])} and output size of {size}. "
            "Please provide input tensor in (N, C, d1, d2, ...,dK) format and "
            "output size in (o1, o2, ...,oK) format."
        )
    if not all(_is_integer(x) for x in size):
        raise TypeError(
            "expected size to be one of int or Tuple[int] or Tuple[int, int] or "
            f"Tuple[int, int, int], but got size with types {[type(x) for x in size]}"
        )
    return size


def _scales(input: Tensor, scale_factor: Any, dim: int) -> list[float]:
    if not isinstance(scale_factor, (list, tuple)):
        return [scale_factor] * dim
    if len(scale_factor) != dim:
        raise ValueError(
            "Input and scale_factor must have the same number of spatial dimensions, but "
            f"got input with spatial dimensions of {list(input.shape[2:])} and "
            f"scale_factor of shape {scale_factor}. "
            "Please provide input tensor in (N, C, d1, d2, ...,dK) format and "
            "scale_factor in (s1, s2, ...,sK) format."
        )
    return scale_factor


def _resize(
    input: Tensor, mode: str, align: Any, size: Any, scales: Any, antialias: bool
) -> Tensor:
    """Choose the operator by mode and number of dimensions."""
    ndim = input.dim()
    if mode in ("nearest", "nearest-exact") and 3 <= ndim <= 5:
        prefix = "_upsample_nearest_exact" if mode == "nearest-exact" else "upsample_nearest"
        return getattr(_nn, f"{prefix}{ndim - 2}d")(input, size, scales)
    if mode == "area" and 3 <= ndim <= 5:
        pool = (torch.adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)[ndim - 3]
        return pool(input, size)
    if mode in _NEEDED:
        needed = _NEEDED[mode]
        if ndim == needed:
            if mode == "lanczos" and not antialias:
                raise ValueError("Lanczos mode requires antialias=True")
            if antialias:
                return getattr(_nn, f"_upsample_{mode}2d_aa")(input, size, align, scales)
            return getattr(_nn, f"upsample_{mode}{needed - 2 if needed != 4 else 2}d")(
                input, size, align, scales
            )
        if 3 <= ndim <= 5 and mode in ("linear", "bilinear", "trilinear"):
            raise NotImplementedError(f"Got {ndim}D input, but {mode} mode needs {needed}D input")
    raise NotImplementedError(
        "Input Error: Only 3D, 4D and 5D input Tensors supported"
        f" (got {ndim}D) for the modes: nearest | linear | bilinear | bicubic |"
        f" trilinear | lanczos | area | nearest-exact (got {mode})"
    )


@overridable("input")
def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resize the spatial dimensions of (N, C, ...) to `size`, or by `scale_factor`.

    Args:
        mode: "nearest", "nearest-exact", "area"; by dimensions "linear" (3-D input), "bilinear",
            "bicubic", "lanczos" (4-D), "trilinear" (5-D).
        align_corners: the corner pixels' centres, instead of their outer edges, are aligned.
        recompute_scale_factor: compute with output size / input size, not the given factor.
        antialias: filter when downsampling.
    """
    if mode in ("nearest", "area", "nearest-exact"):
        if align_corners is not None:
            raise ValueError(
                "align_corners option can only be set with the "
                "interpolating modes: linear | bilinear | bicubic | trilinear"
            )
    elif align_corners is None:
        align_corners = False
    dim = input.dim() - 2
    output_size: Any = None
    scales: Any = None
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    if size is not None:
        output_size = _sizes(input, size, dim)
    elif scale_factor is not None:
        scales = _scales(input, scale_factor, dim)
    else:
        raise ValueError("either size or scale_factor should be defined")
    if recompute_scale_factor and size is not None:
        raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
    if output_size is None and (recompute_scale_factor or mode == "area"):
        output_size = [math.floor(float(input.size(i + 2)) * scales[i]) for i in range(dim)]
        scales = None
    if antialias and not (mode in ("bilinear", "bicubic", "lanczos") and input.ndim == 4):
        raise ValueError(
            "Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires"
            " a 4-D tensor as input"
        )
    return _resize(input, mode, align_corners, output_size, scales, antialias)


def upsample(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """The old name of `interpolate`."""
    warnings.warn(
        "`nn.functional.upsample` is deprecated. Use `nn.functional.interpolate` instead.",
        stacklevel=2,
    )
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate(mode="nearest")`."""
    warnings.warn(
        "`nn.functional.upsample_nearest` is deprecated. Use `nn.functional.interpolate` instead.",
        stacklevel=2,
    )
    return interpolate(input, size, scale_factor, mode="nearest")


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate(mode="bilinear", align_corners=True)`."""
    warnings.warn(
        "`nn.functional.upsample_bilinear` is deprecated. Use `nn.functional.interpolate` instead.",
        stacklevel=2,
    )
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


GRID_SAMPLE_INTERPOLATION_MODES = {"bilinear": 0, "nearest": 1, "bicubic": 2}
GRID_SAMPLE_PADDING_MODES = {"zeros": 0, "border": 1, "reflection": 2}
_ALIGN_CHANGED = (
    "Default grid_sample and affine_grid behavior has changed "
    "to align_corners=False since 1.3.0. Please specify "
    "align_corners=True if the old behavior is desired. "
    "See the documentation of grid_sample for details."
)


@overridable("input", "grid")
def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """The input (N, C, H, W) read at the points of `grid` (N, Ho, Wo, 2), or in 3-D alike.

    Points are (x, y) in [-1, 1]; outside: "zeros", "border" or "reflection".
    """
    if mode not in GRID_SAMPLE_INTERPOLATION_MODES:
        raise ValueError(
            "nn.functional.grid_sample(): expected mode to be "
            f"'bilinear', 'nearest' or 'bicubic', but got: '{mode}'"
        )
    if padding_mode not in GRID_SAMPLE_PADDING_MODES:
        raise ValueError(
            "nn.functional.grid_sample(): expected padding_mode "
            "to be 'zeros', 'border', or 'reflection', "
            f"but got: '{padding_mode}'"
        )
    if align_corners is None:
        warnings.warn(_ALIGN_CHANGED, stacklevel=3)
        align_corners = False
    return torch.grid_sampler(
        input,
        grid,
        GRID_SAMPLE_INTERPOLATION_MODES[mode],
        GRID_SAMPLE_PADDING_MODES[padding_mode],
        align_corners,
    )


@overridable("theta")
def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The grid of `grid_sample` for affine maps theta (N, 2, 3) or (N, 3, 4).

    `size` is the size (N, C, H, W) or (N, C, D, H, W) of the output image.
    """
    if align_corners is None:
        warnings.warn(_ALIGN_CHANGED, stacklevel=3)
        align_corners = False
    if not theta.is_floating_point():
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    n = len(size) - 2
    if n not in (2, 3):
        raise NotImplementedError(
            "affine_grid only supports 4D and 5D sizes, "
            "for 2D and 3D affine transforms, respectively. "
            f"Got size {size}."
        )
    if theta.dim() != 3 or theta.size(-2) != n or theta.size(-1) != n + 1:
        raise ValueError(
            f"Expected a batch of {n}D affine matrices of shape Nx{n}x{n + 1} "
            f"for size {size}. Got {theta.shape}."
        )
    if align_corners and min(size[-n:]) == 1:
        warnings.warn(
            "Since version 1.3.0, affine_grid behavior has changed "
            "for unit-size grids when align_corners=True. "
            "This is not an intended use case of affine_grid. "
            "See the documentation of affine_grid for details.",
            stacklevel=3,
        )
    elif min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {size}")
    return torch.affine_grid_generator(theta, size, align_corners)


@overridable("input")
def unfold(
    input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Tensor:
    """Sliding blocks of (N, C, H, W) as columns: (N, C * prod(kernel_size), blocks)."""
    return _nn.im2col(input, _pair(kernel_size), _pair(dilation), _pair(padding), _pair(stride))


@overridable("input")
def fold(
    input: Tensor,
    output_size: Any,
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
) -> Tensor:
    """The reverse of `unfold`: overlapping values are summed."""
    return _nn.col2im(
        input,
        _pair(output_size),
        _pair(kernel_size),
        _pair(dilation),
        _pair(padding),
        _pair(stride),
    )
