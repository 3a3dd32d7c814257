"""torch._C: its public parts, and questions about machinery; anything else: AttributeError."""

from __future__ import annotations

import sys
from typing import Any

import flambeau as torch
from flambeau import _nn
from flambeau._src import _native
from flambeau._src.autograd.engine import task_number as _current_graph_task_id  # noqa: F401
from flambeau._src.core import state
from flambeau._src.core.generator import Generator, default_generator  # noqa: F401
from flambeau._src.core.tensor import _disabled_torch_function_impl  # noqa: F401
from flambeau._src.interp.dispatch_key import (  # noqa: F401
    DispatchKey,
    DispatchKeySet,
    ExcludeDispatchKeyGuard,
)
from flambeau._src.interp.function import (  # noqa: F401
    DisableTorchFunction,
    DisableTorchFunctionSubclass,
)

_ExcludeDispatchKeyGuard = ExcludeDispatchKeyGuard
# Pickles name functions of this place; it has no file.
sys.modules["flambeau._C._nn"] = sys.modules[f"{torch.__name__}._C._nn"] = _nn
TensorBase, dtype, device, Size = torch.Tensor, torch.dtype, torch.device, torch.Size
StorageBase = _native.UntypedStorage
_is_multithreading_enabled = _native.get_multithread
_TensorMeta = type(torch.Tensor)
_VariableFunctions = _VariableFunctionsClass = torch


def _log_api_usage_once(name: str) -> None:
    """Nothing: flambeau counts no use."""


def _get_tracing_state() -> None:
    """None: there is no TorchScript tracing."""


def _get_accelerator(check: bool = False) -> Any:
    return torch.accelerator.current_accelerator() or torch.device("cpu")


def _are_functorch_transforms_active() -> bool:
    return bool(state.thread.functorch)


def _current_autograd_node() -> Any:
    return state.thread.running_node


def _get_default_device() -> str:
    return str(torch.get_default_device())


def _get_privateuse1_backend_name() -> str:
    return "privateuseone"
