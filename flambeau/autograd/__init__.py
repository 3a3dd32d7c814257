"""Automatic differentiation: gradients of tensors with respect to others."""

from __future__ import annotations

import importlib
from typing import Any

from flambeau import Tensor
from flambeau._src.autograd.api import backward, grad
from flambeau._src.autograd.modes import (
    is_multithreading_enabled,
    is_view_replay_enabled,
)
from flambeau._src.autograd.saved import SavedTensor
from flambeau._src.core.state import thread
from flambeau.autograd import grad_mode, graph, variable
from flambeau.autograd.anomaly_mode import detect_anomaly, set_detect_anomaly
from flambeau.autograd.function import Function, NestedIOFunction
from flambeau.autograd.grad_mode import (
    _force_original_view_tracking,
    _unsafe_preserve_version_counter,
    enable_grad,
    inference_mode,
    no_grad,
    set_grad_enabled,
    set_multithreading_enabled,
)
from flambeau.autograd.variable import Variable

_LAZY = {
    "gradcheck": "gradcheck", "gradgradcheck": "gradcheck", "functional": "", "forward_ad": "",
    "profiler": "",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    found = importlib.import_module(f"{__name__}.{module or name}")
    if not module:
        return found
    for other, home in _LAZY.items():  # all of them: the import made `gradcheck` name the module
        if home == module:
            globals()[other] = getattr(found, other)
    return globals()[name]


__all__ = [
    "Function",
    "NestedIOFunction",
    "SavedTensor",
    "Tensor",
    "Variable",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "grad",
    "grad_mode",
    "graph",
    "inference_mode",
    "is_multithreading_enabled",
    "is_view_replay_enabled",
    "no_grad",
    "set_detect_anomaly",
    "set_grad_enabled",
    "set_multithreading_enabled",
    "variable",
]


def _is_checkpoint_valid() -> bool:
    """False inside `grad`, or a backward with `inputs`: those leave gradients out."""
    this = thread.backward_pass
    return this is None or not this.limited
