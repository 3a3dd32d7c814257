"""What needs a TorchScript compiler: the names, and errors that say what to use instead."""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

from flambeau.nn import Module


def _refuse(name: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(
            f"torch.jit.{name}: TorchScript is not part of flambeau. Use torch.compile to make a "
            "program faster, and torch.export to take it out of Python."
        )

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"RuntimeError: TorchScript, which {name} needs, is not part of flambeau."
    return function


script, script_method, trace = map(_refuse, ("script", "script_method", "trace"))
trace_module, load, save, freeze = map(_refuse, ("trace_module", "load", "save", "freeze"))
optimize_for_inference, interface = map(_refuse, ("optimize_for_inference", "interface"))
strict_fusion = _refuse("strict_fusion")


class Attribute(NamedTuple):
    """A value with the type that it is annotated with."""

    value: Any
    type: Any


class TracerWarning(Warning):
    """Of tracing, which never happens."""


class ScriptFunction:
    """A scripted function: none is ever made."""

    __init__ = _refuse("ScriptFunction")


class CompilationUnit:
    """Compiled functions: none are ever made."""

    __init__ = _refuse("CompilationUnit")


class ScriptModule(Module):
    """A scripted module: none is ever made, and no module is an instance."""

    __init__ = _refuse("ScriptModule")


class RecursiveScriptModule(ScriptModule):
    """A scripted module of scripted modules: none is ever made."""
