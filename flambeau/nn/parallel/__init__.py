"""Modules on several devices."""

from __future__ import annotations

import importlib
from typing import Any

from .data_parallel import DataParallel, data_parallel
from .parallel_apply import parallel_apply
from .replicate import replicate
from .scatter_gather import gather, scatter

__all__ = [
    "replicate",
    "scatter",
    "parallel_apply",
    "gather",
    "data_parallel",
    "DataParallel",
    "DistributedDataParallel",
]


def __getattr__(name: str) -> Any:
    if name == "DistributedDataParallel":  # loads the process groups
        return importlib.import_module(f"{__name__}.distributed").DistributedDataParallel
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
