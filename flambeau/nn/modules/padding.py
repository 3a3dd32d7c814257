"""Padding layers: the last dimensions grow on both sides."""

from __future__ import annotations

from typing import Any

from flambeau import Tensor

from .. import functional as F
from ._ntuple import _ntuple, _pair, _quadruple
from .module import Module

__all__ = [
    "CircularPad1d",
    "CircularPad2d",
    "CircularPad3d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ConstantPad3d",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ReplicationPad3d",
    "ZeroPad1d",
    "ZeroPad2d",
    "ZeroPad3d",
]

# `padding` is one number for all sides, or (left, right) of the last dimension, then of the one
# before, ...
_sextuple = _ntuple(6)


class _CircularPadNd(Module):
    __constants__ = ["padding"]
    padding: tuple[int, ...]

    def _check_input_dim(self, input: Tensor) -> None:
        raise NotImplementedError(f"{type(self).__name__} must say which inputs it takes")

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        return F.pad(input, self.padding, "circular")

    def extra_repr(self) -> str:
        return f"{self.padding}"


class CircularPad1d(_CircularPadNd):
    """Pad (N, C, L) or (C, L) with the values of the opposite side."""

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = _pair(padding)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() not in (2, 3):
            raise ValueError(f"expected 2D or 3D input (got {input.dim()}D input)")


class CircularPad2d(_CircularPadNd):
    """Pad (N, C, H, W) or (C, H, W) with the values of the opposite side."""

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = _quadruple(padding)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() not in (3, 4):
            raise ValueError(f"expected 3D or 4D input (got {input.dim()}D input)")


class CircularPad3d(_CircularPadNd):
    """Pad (N, C, D, H, W) or (C, D, H, W) with the values of the opposite side."""

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = _sextuple(padding)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() not in (4, 5):
            raise ValueError(f"expected 4D or 5D input (got {input.dim()}D input)")


class _ConstantPadNd(Module):
    __constants__ = ["padding", "value"]
    value: float
    padding: tuple[int, ...]

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPadNd):
    """Pad (*, L) with a value."""

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(value)
        self.padding = _pair(padding)


class ConstantPad2d(_ConstantPadNd):
    """Pad (*, H, W) with a value."""

    __constants__ = ["padding", "value"]

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(value)
        self.padding = _quadruple(padding)


class ConstantPad3d(_ConstantPadNd):
    """Pad (*, D, H, W) with a value."""

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(value)
        self.padding = _sextuple(padding)


class _ReflectionPadNd(Module):
    __constants__ = ["padding"]
    padding: tuple[int, ...]

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "reflect")

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ReflectionPad1d(_ReflectionPadNd):
    """Pad (N, C, L) or (C, L) with its reflection, without the border."""

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = _pair(padding)


class ReflectionPad2d(_ReflectionPadNd):
    """Pad (N, C, H, W) or (C, H, W) with its reflection, without the border."""

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = _quadruple(padding)


class ReflectionPad3d(_ReflectionPadNd):
    """Pad (N, C, D, H, W) or (C, D, H, W) with its reflection, without the border."""

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = _sextuple(padding)


class _ReplicationPadNd(Module):
    __constants__ = ["padding"]
    padding: tuple[int, ...]

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "replicate")

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ReplicationPad1d(_ReplicationPadNd):
    """Pad (N, C, L) or (C, L) with the values of the border."""

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = _pair(padding)


class ReplicationPad2d(_ReplicationPadNd):
    """Pad (N, C, H, W) or (C, H, W) with the values of the border."""

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = _quadruple(padding)


class ReplicationPad3d(_ReplicationPadNd):
    """Pad (N, C, D, H, W) or (C, D, H, W) with the values of the border."""

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = _sextuple(padding)


class ZeroPad1d(ConstantPad1d):
    """Pad (*, L) with zeros."""

    padding: tuple[int, ...]

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad2d(ConstantPad2d):
    """Pad (*, H, W) with zeros."""

    padding: tuple[int, ...]

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad3d(ConstantPad3d):
    """Pad (*, D, H, W) with zeros."""

    padding: tuple[int, ...]

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"
