"""Calling a module with other parameters."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

from flambeau import Tensor
from flambeau.nn.modules.module import Module

from ._named_member_accessor import NamedMemberAccessor

__all__ = ["functional_call"]


def _untie_named_tensors_map(
    module: Module, parameters_and_buffers: dict[str, Tensor]
) -> dict[str, Tensor]:
    """The given tensors, also under the other names of tensors that the module ties together."""
    names: dict[Tensor, set[str]] = {}
    for table in (module.named_parameters, module.named_buffers):
        for name, tensor in table(remove_duplicate=False):
            names.setdefault(tensor, set()).add(name)
    tied = [group for group in names.values() if len(group) > 1]
    given = set(parameters_and_buffers)
    result = dict(parameters_and_buffers)
    for group in tied:
        known = group & given
        if not known:
            continue
        if len(known) > 1 and len({parameters_and_buffers[name] for name in known}) != 1:
            raise ValueError(
                f"functional_call got multiple values for keys {sorted(known)}, "
                f"which are tied. Consider using tie_weights=False"
            )
        value = parameters_and_buffers[sorted(known)[0]]
        for name in group - known:
            result[name] = value
    return result


@contextlib.contextmanager
def _reparametrize_module(
    module: Module,
    parameters_and_buffers: dict[str, Tensor],
    tie_weights: bool = False,
    strict: bool = False,
    stack_weights: bool = False,
) -> Iterator[None]:
    """Inside, the module has the given tensors in the places of its own."""
    if tie_weights:
        tensors = _untie_named_tensors_map(module, parameters_and_buffers)
    else:
        tensors = parameters_and_buffers
    accessor = NamedMemberAccessor(module)
    if strict:
        missing, unexpected = accessor.check_keys(tensors)
        messages = []
        if unexpected:
            messages.append(f"Unexpected key(s): {', '.join(map(repr, unexpected))}.")
        if missing:
            messages.append(f"Missing key(s): {', '.join(map(repr, missing))}.")
        if messages:
            lines = "\n\t".join(messages)
            raise RuntimeError(f"Error(s) in reparametrizing for {module._get_name()}:\n\t{lines}")
    originals: dict[str, Any] = {}
    try:
        originals, _ = accessor.swap_tensors_dict(tensors, allow_missing=True)
        yield
    finally:
        if stack_weights:
            originals = dict(reversed(originals.items()))
        replaced, _ = accessor.swap_tensors_dict(originals, allow_missing=True)
        # What forward assigned in place of a given tensor, the caller sees in the dict.
        for name in parameters_and_buffers:
            if name in replaced and replaced[name] is not parameters_and_buffers[name]:
                parameters_and_buffers[name] = replaced[name]


def _functional_call(
    module: Module,
    parameters_and_buffers: dict[str, Tensor],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    if args is None:
        args = ()
    elif not isinstance(args, tuple):
        args = (args,)
    if kwargs is None:
        kwargs = {}
    with _reparametrize_module(
        module, parameters_and_buffers, tie_weights=tie_weights, strict=strict
    ):
        return module(*args, **kwargs)


def functional_call(
    module: Module,
    parameters_and_buffers: dict[str, Tensor],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Deprecated here; `torch.func.functional_call` is the same.

    Args:
        parameters_and_buffers: tensors by dotted name, used in place of the module's own.
        args, kwargs: of the call; one positional argument may come without a tuple.
        tie_weights: a tensor given for one of several tied names stands for all of them.
        strict: all names of the module must be given, and no others.
    """
    warnings.warn(
        "`torch.nn.utils.stateless.functional_call` is deprecated as of PyTorch "
        "2.0 and will be removed in a future version of PyTorch. "
        "Please use `torch.func.functional_call` instead which is a drop-in replacement.",
        FutureWarning,
        stacklevel=2,
    )
    return _functional_call(
        module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict
    )
