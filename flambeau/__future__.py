"""Switches for how modules convert their parameters."""

from __future__ import annotations


class _Conversion:
    overwrite = False
    swap = False


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Whether `Module.to` and the like make new parameters instead of changing `.data`."""
    _Conversion.overwrite = value


def get_overwrite_module_params_on_conversion() -> bool:
    """See `set_overwrite_module_params_on_conversion`; False by default."""
    return _Conversion.overwrite


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Whether conversion and `load_state_dict` exchange tensors with `swap_tensors`."""
    _Conversion.swap = value


def get_swap_module_params_on_conversion() -> bool:
    """See `set_swap_module_params_on_conversion`; False by default."""
    return _Conversion.swap
