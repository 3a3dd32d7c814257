"""Modules that learn the shapes of their parameters from the first input."""

from __future__ import annotations

import itertools
from typing import Any

import flambeau as torch

from ..parameter import is_lazy

__all__ = ["LazyModuleMixin"]


class LazyModuleMixin:
    """A mixin for modules with uninitialised parameters.

    `initialize_parameters` is called with the first input, before `forward`; then the module
    becomes an instance of `cls_to_become`. Move it to its device before the first call, and run a
    dummy batch before handing the parameters to an optimiser.
    """

    cls_to_become: type | None = None

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[misc]
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = self.register_forward_pre_hook(
            self._infer_parameters, with_kwargs=True
        )

    def _save_to_state_dict(self: Any, destination: Any, prefix: str, keep_vars: bool) -> None:
        # As a module's, but an uninitialised tensor cannot be detached.
        for name, param in self._parameters.items():
            if param is not None:
                whole = is_lazy(param) or keep_vars
                destination[prefix + name] = param if whole else param.detach()
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                whole = is_lazy(buffer) or keep_vars
                destination[prefix + name] = buffer if whole else buffer.detach()

    def _lazy_load_hook(
        self: Any,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: Any,
        unexpected_keys: Any,
        error_msgs: Any,
    ) -> None:
        """Take the shapes of a checkpoint that has them."""
        for name, param in itertools.chain(self._parameters.items(), self._buffers.items()):
            key = prefix + name
            if key not in state_dict or param is None:
                continue
            loaded = state_dict[key]
            if is_lazy(param) and not is_lazy(loaded):
                with torch.no_grad():
                    param.materialize(loaded.shape)

    def initialize_parameters(self: Any, *args: Any, **kwargs: Any) -> None:
        """Give every parameter its shape, from the arguments of `forward`."""
        raise NotImplementedError(
            f"initialize_parameters is not implemented for {self.__class__.__name__}"
        )

    def has_uninitialized_params(self: Any) -> bool:
        """Whether a parameter or buffer still waits for its shape."""
        values = itertools.chain(self._parameters.values(), self._buffers.values())
        return any(is_lazy(value) for value in values)

    def _infer_parameters(self: Any, module: Any, args: Any, kwargs: Any = None) -> None:
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise RuntimeError(f"module {self._get_name()} has not been fully initialized")
        module._initialize_hook.remove()
        module._load_hook.remove()
        del module._initialize_hook
        del module._load_hook
        if not (module._forward_hooks or module._forward_pre_hooks):
            module._hooked.clear()  # or what is compiled during this call would guard on it
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become

    def _replicate_for_data_parallel(self: Any) -> Any:
        raise RuntimeError(
            "Modules with uninitialized parameters can't be used with `DataParallel`. "
            "Run a dummy forward pass to correctly initialize the modules"
        )
