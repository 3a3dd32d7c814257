"""A module apart from its parameters: what `functorch.make_functional` gives."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau import nn
from flambeau.func import functional_call

__all__ = ["FunctionalModule", "FunctionalModuleWithBuffers"]


def _stateless(module: nn.Module) -> nn.Module:
    """A copy without numbers: parameters and buffers are on the device "meta"."""
    return copy.deepcopy(module).to("meta")


class FunctionalModule(nn.Module):
    """`(parameters, *args, **kwargs)`: the module, with these parameters."""

    def __init__(self, stateless_model: nn.Module, param_names: tuple[str, ...]) -> None:
        super().__init__()
        self.stateless_model = stateless_model
        self.param_names = param_names

    def forward(self, params: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        """The module's result."""
        given = dict(zip(self.param_names, params, strict=True))
        return functional_call(self.stateless_model, given, args, kwargs)


class FunctionalModuleWithBuffers(nn.Module):
    """`(parameters, buffers, *args, **kwargs)`: the module, with these."""

    def __init__(
        self, stateless_model: nn.Module, param_names: tuple[str, ...],
        buffer_names: tuple[str, ...],
    ) -> None:  # fmt: skip
        super().__init__()
        self.stateless_model = stateless_model
        self.param_names, self.buffer_names = param_names, buffer_names

    def forward(
        self, params: Sequence[Any], buffers: Sequence[Any], *args: Any, **kwargs: Any
    ) -> Any:
        """The module's result."""
        given = dict(zip(self.param_names, params, strict=True))
        given.update(zip(self.buffer_names, buffers, strict=True))
        return functional_call(self.stateless_model, given, args, kwargs)


def _values(found: dict[str, Any], plain: bool) -> tuple[Any, ...]:
    return tuple(t.detach() for t in found.values()) if plain else tuple(found.values())


def make_functional(model: nn.Module, disable_autograd_tracking: bool = False) -> Any:
    """(the module as a function of its parameters, the parameters).

    Raises:
        RuntimeError: the module has buffers.
    """
    if any(True for _ in model.buffers()):
        raise RuntimeError(
            "make_functional(model): `model` has buffers. Please use "
            "make_functional_with_buffers(model) instead."
        )
    params = dict(model.named_parameters())
    made = FunctionalModule(_stateless(model), tuple(params))
    return made, _values(params, disable_autograd_tracking)


def make_functional_with_buffers(model: nn.Module, disable_autograd_tracking: bool = False) -> Any:
    """(the module as a function of its parameters and buffers, these, those)."""
    params, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    made = FunctionalModuleWithBuffers(_stateless(model), tuple(params), tuple(buffers))
    return made, _values(params, disable_autograd_tracking), tuple(buffers.values())


def combine_state_for_ensemble(models: Sequence[nn.Module]) -> Any:
    """(one function, the stacked parameters, the stacked buffers) of modules of one architecture.

    Raises:
        RuntimeError: none are given, their modes or classes differ.
    """
    if not models:
        raise RuntimeError("combine_state_for_ensemble: Expected at least one model, got 0.")
    if len({m.training for m in models}) != 1:
        raise RuntimeError(
            "combine_state_for_ensemble: Expected all models to have the same training/eval mode."
        )
    if len({type(m) for m in models}) != 1:
        raise RuntimeError(
            "combine_state_for_ensemble: Expected all models to be of the same class."
        )
    made = [make_functional_with_buffers(m, True) for m in models]
    params, buffers = (
        tuple(torch.stack(list(ts)) for ts in zip(*(m[i] for m in made), strict=True))
        for i in (1, 2)
    )
    return made[0][0], params, buffers
