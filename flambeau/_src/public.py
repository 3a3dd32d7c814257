"""What the composition root takes from each rank: Tensor's further methods, top-level functions,
lazily loaded names. Tables only; rank R9 (it may see everything below the public libraries)."""

from __future__ import annotations

import types
from typing import Any

from flambeau._src import _native, toplevel
from flambeau._src.autograd import anomaly, derived, engine, hooks, modes, saved, tensors, views  # noqa: F401
from flambeau._src.autograd import api as autograd_api
from flambeau._src.core import (
    checks,
    dlpack,
    generator,
    interchange,
    layout,
    printing,
    return_types,
    settings,
    storage,
    symint,
)
from flambeau._src.core.slots import fill
from flambeau._src.interp import function, lazy  # noqa: F401
from flambeau._src.kernels.cpu import gemm, windows  # noqa: F401
from flambeau._src.ops import legacy, registry
from flambeau._src.util import errors

_ENGINE = ("flambeau._src", "flambeau._native")
_IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE
LAZY_MODULES = (
    "nn", "optim", "utils", "autograd", "fx", "func", "linalg", "fft", "special", "distributions",
    "distributed", "cuda", "backends", "jit", "onnx", "export", "compiler", "library", "random",
    "serialization", "multiprocessing", "overrides", "testing", "amp", "hub", "profiler",
    "storage", "types", "version", "return_types", "_utils", "_nn", "_C", "ops", "sparse",
    "accelerator", "cpu", "mps", "xpu", "masked", "nested", "quantization", "ao",
    "_decomp", "_dynamo", "_inductor", "_functorch", "_higher_order_ops", "_prims_common", "_refs",
    "futures", "functional", "torch_version", "_jit_internal", "__config__", "mtia", "_ops",
    "_library", "quasirandom", "signal", "_subclasses", "_logging", "monitor", "package", "_guards",
    *lazy.MODULE_NAMES,
)  # fmt: skip
LAZY_NAMES: dict[str, tuple[str, str]] = {
    "save": ("flambeau.serialization", "save"),
    "load": ("flambeau.serialization", "load"),
    "vmap": ("flambeau.func", "vmap"),
    "no_grad": ("flambeau.autograd.grad_mode", "no_grad"),
    "enable_grad": ("flambeau.autograd.grad_mode", "enable_grad"),
    "set_grad_enabled": ("flambeau.autograd.grad_mode", "set_grad_enabled"),
    "inference_mode": ("flambeau.autograd.grad_mode", "inference_mode"),
    "OutOfMemoryError": ("flambeau._src.util.errors", "OutOfMemoryError"),
    "AcceleratorError": ("flambeau._src.util.errors", "AcceleratorError"),
    "FatalError": ("flambeau._src.util.errors", "FatalError"),
    "JITException": ("flambeau._src.util.errors", "JITException"),
    "Future": ("flambeau.futures", "Future"),
    "lobpcg": ("flambeau._lobpcg", "lobpcg"),
    "ScriptModule": ("flambeau.jit", "ScriptModule"),
    "GradScaler": ("flambeau.amp", "GradScaler"),
    "DisableTorchFunction": ("flambeau._src.interp.function", "DisableTorchFunction"),
    "DisableTorchFunctionSubclass": (
        "flambeau._src.interp.function",
        "DisableTorchFunctionSubclass",
    ),
    "compile": ("flambeau._src.compiler.api", "compile"),
    **lazy.NAMES,
}


def tensor_methods() -> dict[str, Any]:
    """Methods and properties that are Python on every path."""
    return {
        **toplevel.METHODS, **interchange.METHODS, **dlpack.METHODS, **printing.METHODS,
        **storage.METHODS, **autograd_api.METHODS, **hooks.METHODS, **tensors.METHODS,
        **registry.tensor_methods(),
    }  # fmt: skip


def functions() -> dict[str, Any]:
    """Top-level functions that are Python on every path."""
    return {
        "Generator": generator.Generator, "manual_seed": generator.manual_seed,
        "seed": generator.seed,
        "initial_seed": generator.initial_seed, "get_rng_state": generator.get_rng_state,
        "set_rng_state": generator.set_rng_state, "default_generator": generator.default_generator,
        **layout.FORMATS,
        "memory_format": layout.memory_format, "layout": layout.layout,
        **printing.FUNCTIONS, **toplevel.FUNCTIONS, **checks.FUNCTIONS, **symint.FUNCTIONS,
        **settings.FUNCTIONS, **interchange.FUNCTIONS, **dlpack.FUNCTIONS,
        **autograd_api.FUNCTIONS, **modes.FUNCTIONS, **anomaly.FUNCTIONS,
    }  # fmt: skip


def adopt_value(root: str, value: Any) -> Any:
    """Give a thing that the root shows, and the engine defines, the root's name as its module."""
    fixed = isinstance(value, type) and value.__flags__ & _IMMUTABLE
    ours = isinstance(value, (types.FunctionType, type)) and value.__module__.startswith(_ENGINE)
    if ours and not fixed:
        value.__module__ = root
    return value


def adopt(root: str, namespace: dict[str, Any]) -> None:
    """Give what the root shows, and the engine defines, the root's name as its module."""
    for value in namespace.values():
        adopt_value(root, value)
    for value in (_native.Tensor, *legacy.CPU_TYPES.values()):
        value.__module__ = root
    _native.UntypedStorage.__module__ = f"{root}.storage"
    return_types.set_home(f"{root}.return_types")
    for name in errors.__all__:
        error = getattr(errors, name)
        error.__module__ = error.__module__.replace("flambeau", root, 1)


def _graph_module(*args: Any) -> Any:
    from flambeau.fx import GraphModule  # lazy: fx and nn are heavy

    fill("graph_module", GraphModule)
    return GraphModule(*args)


def _optimized_module(*args: Any) -> Any:
    from flambeau._dynamo import OptimizedModule  # lazy: nn is heavy

    fill("optimized_module", OptimizedModule)
    return OptimizedModule(*args)


def _numpy() -> Any:
    from flambeau import _numpy  # lazy: NumPy is heavy

    fill("numpy", lambda: _numpy)
    return _numpy


def _parameter(*args: Any) -> Any:
    from flambeau.nn import Parameter  # lazy: nn is heavy

    fill("parameter", Parameter)
    return Parameter(*args)


def fill_slots() -> None:
    """Fill what the lower ranks call upward through."""
    fill("parameter", _parameter)
    fill("graph_module", _graph_module)
    fill("numpy", _numpy)
    fill("optimized_module", _optimized_module)
    for name, filling in toplevel.SLOTS.items():
        fill(name, filling)
    for name, scalar in toplevel.SCALARS.items():
        _native.set_slot(name.strip("_"), _native.Function(name, scalar))
