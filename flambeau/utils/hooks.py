"""Handles of registered hooks, and the backward hooks of modules."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import flambeau as torch
from flambeau import Tensor
from flambeau._src.autograd.hooks import RemovableHandle

__all__ = ["BackwardHook", "RemovableHandle", "unserializable_hook", "warn_if_has_hooks"]


def unserializable_hook(f: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a tensor's hook as one that saving the tensor need not warn of."""
    f.__torch_unserializable__ = True  # type: ignore[attr-defined]
    return f


def warn_if_has_hooks(tensor: Tensor) -> None:
    """Say which backward hooks will be lost when the tensor is saved."""
    for hook in (getattr(tensor, "_backward_hooks", None) or {}).values():
        if not hasattr(hook, "__torch_unserializable__"):
            warnings.warn(
                f"backward hook {hook!r} on tensor will not be serialized.  If this is expected,"
                " you can decorate the function with @torch.utils.hooks.unserializable_hook to"
                " suppress this warning",
                stacklevel=2,
            )


def _spread(places: list[int], values: Iterable[Any], size: int) -> tuple[Any, ...]:
    result = [None] * size
    for place, value in zip(places, values, strict=True):
        result[place] = value
    return tuple(result)


class BackwardHook:
    """The full backward hooks of one call of a module.

    Inputs and outputs each pass through one identity node: the output node's pre-hook collects
    `grad_output`, the input node's hook runs the user's hooks with both. If no input needs a
    gradient, they run at the output node.

    Args:
        module: the module, handed to the hooks.
        user_hooks: ``hook(module, grad_input, grad_output) -> None or new grad_input``.
        user_pre_hooks: ``hook(module, grad_output) -> None or new grad_output``.
    """

    def __init__(self, module: Any, user_hooks: list[Any], user_pre_hooks: list[Any]) -> None:
        self.module = module
        self.user_hooks = user_hooks
        self.user_pre_hooks = user_pre_hooks
        self.grad_outputs: tuple[Any, ...] | None = None
        self.n_inputs = -1
        self.n_outputs = -1
        self.input_tensors_index: list[int] | None = None
        self.output_tensors_index: list[int] | None = None

    @staticmethod
    def function() -> Any:
        """The function through whose node the tensors pass."""
        from flambeau.nn.modules._functions import BackwardHookFunction  # lazy: loads nn, autograd

        return BackwardHookFunction

    def _through_node(
        self, attach: Callable[[Any], None], args: tuple[Any, ...]
    ) -> tuple[tuple[Any, ...], list[int] | None]:
        """The arguments with their tensors behind one node; the places of those tensors."""
        places = [i for i, arg in enumerate(args) if isinstance(arg, Tensor)]
        tensors = [args[i] for i in places]
        if not (any(t.requires_grad for t in tensors) and torch.is_grad_enabled()):
            return args, None
        new_tensors = self.function().apply(*tensors)
        nodes = [t.grad_fn for t in new_tensors if t.grad_fn is not None]
        if not nodes:
            raise RuntimeError(
                "Error while setting up backward hooks. Please open an issue with a code sample"
                " to reproduce this."
            )
        attach(nodes[0])
        result = list(args)
        for place, tensor in zip(places, new_tensors, strict=True):
            result[place] = tensor
        if type(args) is not tuple and hasattr(args, "_fields"):
            return type(args)(*result), places  # a named tuple stays one
        return tuple(result), places

    def _run_hooks_at_inputs(self, grad_input: Any) -> Any:
        if self.grad_outputs is None:
            # The gradient reached the inputs by another way than the outputs (double backward).
            return None
        places = self.input_tensors_index
        assert places is not None
        grads = _spread(places, grad_input, self.n_inputs)
        for hook in self.user_hooks:
            out = hook(self.module, grads, self.grad_outputs)
            if out is None:
                continue
            if isinstance(out, Tensor):
                out = (out,)
            if len(out) != len(grads):
                raise RuntimeError(
                    "Backward hook returned an invalid number of grad_input, "
                    f"got {len(out)}, but expected {len(grads)}"
                )
            grads = out
        self.grad_outputs = None
        return tuple(grads[i] for i in places)

    def setup_input_hook(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments to call forward with."""

        def attach(node: Any) -> None:
            node.register_hook(lambda grad_input, _: self._run_hooks_at_inputs(grad_input))

        result, self.input_tensors_index = self._through_node(attach, args)
        self.n_inputs = len(args)
        return result

    def _run_pre_hooks(self) -> None:
        assert self.grad_outputs is not None
        expected = len(self.grad_outputs)
        for hook in self.user_pre_hooks:
            out = hook(self.module, self.grad_outputs)
            if out is None:
                continue
            if isinstance(out, Tensor):
                out = (out,)
            if len(out) != expected:
                raise RuntimeError(
                    "Backward pre hook returned an invalid number of grad_output, "
                    f"got {len(out)}, but expected {expected}"
                )
            self.grad_outputs = out

    def _run_hooks_at_outputs(self) -> None:
        warnings.warn(
            "Full backward hook is firing when gradients are computed with respect to module"
            " outputs since no inputs require gradients. See"
            " https://docs.pytorch.org/docs/main/generated/torch.nn.Module.html"
            "#torch.nn.Module.register_full_backward_hook for more details.",
            stacklevel=5,
        )
        for hook in self.user_hooks:
            out = hook(self.module, (None,) * self.n_inputs, self.grad_outputs)
            if out is not None and not (isinstance(out, tuple) and all(g is None for g in out)):
                raise RuntimeError(
                    "Backward hook for Modules where no input requires gradient should always"
                    " return None or None for all gradients."
                )
        self.grad_outputs = None

    def _at_outputs(self, grad_output: Any) -> Any:
        places = self.output_tensors_index
        assert places is not None
        self.grad_outputs = _spread(places, grad_output, self.n_outputs)
        self._run_pre_hooks()
        grads = self.grad_outputs
        if self.input_tensors_index is None:
            self._run_hooks_at_outputs()
        return tuple(grads[i] for i in places)

    def setup_output_hook(self, args: Any) -> Any:
        """What the call returns instead of forward's result."""

        def attach(node: Any) -> None:
            node.register_prehook(self._at_outputs)

        single = not isinstance(args, tuple)
        outputs = (args,) if single else args
        result, self.output_tensors_index = self._through_node(attach, outputs)
        self.n_outputs = len(outputs)
        return result[0] if single else result
