"""Libraries beside the core: data loading, hooks, pytrees, checkpointing. Loaded on first use."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any


def set_module(obj: Any, mod: Any) -> None:
    """Make `obj` say that it was defined in the module named `mod`."""
    if not isinstance(mod, str):
        raise TypeError("The mod argument should be a string")
    obj.__module__ = mod


def __getattr__(name: str) -> Any:
    dunder = name.startswith("__")
    if not dunder and importlib.util.find_spec(f"flambeau.utils.{name}") is not None:
        return importlib.import_module(f"flambeau.utils.{name}")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
