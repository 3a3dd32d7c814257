"""Modules through ahead-of-time autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.func import functional_call
from flambeau.nn import Module

__all__ = ["AotModule"]


class AotModule(Module):
    """A module whose forward runs compiled; parameters and buffers are the original's."""

    def __init__(
        self, mod: Module, compiled: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> None:
        super().__init__()
        self.orig_module = mod

        def functional(state: dict[str, Any], a: tuple[Any, ...], k: dict[str, Any]) -> Any:
            return functional_call(mod, state, a, k)

        self.compiled_f = compiled(functional, *args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The compiled forward."""
        state = {
            **dict(self.orig_module.named_parameters()),
            **dict(self.orig_module.named_buffers()),
        }
        return self.compiled_f(state, args, kwargs)
