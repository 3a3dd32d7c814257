"""Calling a module with other parameters, and many modules as one."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau import Tensor, nn

__all__ = ["construct_stacked_leaf", "functional_call", "stack_module_state"]


def functional_call(
    module: nn.Module, parameter_and_buffer_dicts: Any, args: Any = None, kwargs: Any = None, *,
    tie_weights: bool = True, strict: bool = False,
) -> Any:  # fmt: skip
    """Call a module with the given tensors in the place of its parameters and buffers.

    Args:
        module: the module; unchanged afterwards.
        parameter_and_buffer_dicts: name → tensor, or a sequence of such dicts.
        args: positional arguments; a tuple, or the only one.
        kwargs: keyword arguments.
        tie_weights: tensors that are one in the module stay one.
        strict: all names must be given, and no others.

    Raises:
        ValueError: the dicts repeat a name.
    """
    if isinstance(parameter_and_buffer_dicts, dict):
        given = parameter_and_buffer_dicts
    elif isinstance(parameter_and_buffer_dicts, Sequence):
        if not all(isinstance(d, dict) for d in parameter_and_buffer_dicts):
            raise ValueError(
                "Expected all elements of parameter_and_buffer_dicts to be dictionaries"
            )
        names = [name for d in parameter_and_buffer_dicts for name in d]
        repeated = {name for name in names if names.count(name) > 1}
        if repeated:
            raise ValueError(
                f"{sorted(repeated)} appeared in multiple dictionaries; behavior of functional "
                "call is ambiguous"
            )
        given = {name: t for d in parameter_and_buffer_dicts for name, t in d.items()}
    else:
        raise ValueError(
            "Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got "
            f"{type(parameter_and_buffer_dicts)}"
        )
    return nn.utils.stateless._functional_call(
        module, given, args, kwargs, tie_weights=tie_weights, strict=strict
    )


def stack_module_state(models: Sequence[nn.Module]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters and the buffers of several modules of one architecture, each stacked along a
    new first dimension: what `vmap` of `functional_call` runs an ensemble with.

    Raises:
        RuntimeError: no modules, of several classes, or in different modes.
    """
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if not (all(m.training for m in models) or all(not m.training for m in models)):
        raise RuntimeError(
            "stack_module_state: Expected all models to have the same training/eval mode."
        )
    first = type(models[0])
    if not all(type(m) is first for m in models):
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    params = [dict(m.named_parameters()) for m in models]
    buffers = [dict(m.named_buffers()) for m in models]
    return (
        {k: construct_stacked_leaf(tuple(p[k] for p in params), k) for k in params[0]},
        {k: construct_stacked_leaf(tuple(b[k] for b in buffers), k) for k in buffers[0]},
    )


def construct_stacked_leaf(tensors: tuple[Tensor, ...], name: str) -> Tensor:
    """The tensors stacked, a leaf that requires gradients where all of them do."""
    wants = [t.requires_grad for t in tensors]
    if any(wants) and not all(wants):
        raise RuntimeError(f"Expected {name} from each model to have the same .requires_grad")
    result = torch.stack(tensors).detach()
    return result.requires_grad_() if all(wants) else result


_ = copy
