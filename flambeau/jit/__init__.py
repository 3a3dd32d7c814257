"""TorchScript is not part of flambeau: marks are kept, questions answered,
and scripting refused."""

from typing import Final

from flambeau._jit_internal import (
    Future,
    _isinstance,
    _overload,
    _overload_method,
    export,
    ignore,
    is_scripting,
    unused,
)
from flambeau._src.util.errors import JITException as Error
from flambeau.jit import annotations
from flambeau.jit._refused import (
    Attribute,
    CompilationUnit,
    RecursiveScriptModule,
    ScriptFunction,
    ScriptModule,
    TracerWarning,
    freeze,
    interface,
    load,
    optimize_for_inference,
    save,
    script,
    script_method,
    strict_fusion,
    trace,
    trace_module,
)
from flambeau.jit._running import (
    _unwrap_optional,
    annotate,
    fork,
    is_tracing,
    optimized_execution,
    script_if_tracing,
    set_fusion_strategy,
    wait,
)

_fork, _wait, _script_if_tracing = fork, wait, script_if_tracing
isinstance = _isinstance


def enable_onednn_fusion(enabled: bool) -> None:
    """Nothing: there are no scripted graphs."""


def onednn_fusion_enabled() -> bool:
    """False."""
    return False
