"""Convolution weights in a given memory format."""

from __future__ import annotations

from typing import Any

from flambeau.nn.modules.conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]


def _convert(module: Any, kinds: tuple[type, ...], memory_format: Any) -> Any:
    if isinstance(module, kinds):
        weight = module.weight.detach()
        module.weight.data = weight.clone(memory_format=memory_format)
    for child in module.children():
        _convert(child, kinds, memory_format)
    return module


def convert_conv2d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """Give the weights of all Conv2d and ConvTranspose2d below a memory format, in place."""
    return _convert(module, (Conv2d, ConvTranspose2d), memory_format)


def convert_conv3d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """Give the weights of all Conv3d and ConvTranspose3d below a memory format, in place."""
    return _convert(module, (Conv3d, ConvTranspose3d), memory_format)
