"""Neural networks: modules, their functional forms, initialisers and utilities."""

from __future__ import annotations

import importlib
from typing import Any

from .parameter import (  # isort: skip
    Buffer,
    Parameter,
    UninitializedBuffer,
    UninitializedParameter,
)
from .modules import *  # noqa: F403 isort: skip
from .modules import LinearCrossEntropyOptions  # isort: skip
from . import functional, init, modules, parallel, utils
from .parallel import DataParallel

__all__ = [
    "Buffer",
    "DataParallel",
    "LinearCrossEntropyOptions",
    "Parameter",
    "UninitializedBuffer",
    "UninitializedParameter",
    *modules.__all__,
]
_FILES = ("attention", "common_types", "grad")


def factory_kwargs(kwargs: dict[str, Any] | None) -> dict[str, Any]:
    """Device, dtype and memory format out of a module's keyword arguments.

    `factory_kwargs={...}` may give them too; what is given twice, or unknown, is an error.
    """
    if kwargs is None:
        return {}
    simple = {"device", "dtype", "memory_format"}
    expected = simple | {"factory_kwargs"}
    unknown = kwargs.keys() - expected
    if unknown:
        raise TypeError(f"unexpected kwargs {unknown}")
    result = dict(kwargs.get("factory_kwargs", {}))
    for key in simple:
        if key in kwargs:
            if key in result:
                raise TypeError(f"{key} specified twice, in **kwargs and in factory_kwargs")
            result[key] = kwargs[key]
    return result


def __getattr__(name: str) -> Any:
    if name in _FILES:  # loaded on first use
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
