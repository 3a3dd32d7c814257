"""Saving and loading the state of a module: the work behind `state_dict` and its reverse."""

from __future__ import annotations

import warnings
from collections import OrderedDict, namedtuple
from collections.abc import Mapping
from typing import Any

import flambeau as torch
from flambeau import __future__ as future
from flambeau.overrides import is_tensor_like

from ..parameter import Parameter, is_lazy

EXTRA_STATE = "_extra_state"


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """What `load_state_dict` returns: the keys that were missing and those not known."""

    __slots__ = ()

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


def save_own(module: Any, destination: Any, prefix: str, keep_vars: bool, extra: bool) -> None:
    """Write one module's parameters, persistent buffers and extra state into `destination`."""
    for name, param in module._parameters.items():
        if param is not None:
            destination[prefix + name] = param if keep_vars else param.detach()
    transient = module._non_persistent_buffers_set
    for name, buffer in module._buffers.items():
        if buffer is not None and name not in transient:
            destination[prefix + name] = buffer if keep_vars else buffer.detach()
    if extra:
        destination[prefix + EXTRA_STATE] = module.get_extra_state()


def save(module: Any, destination: Any, prefix: str, keep_vars: bool) -> Any:
    """Write a module and all below it; returns `destination`, or what a hook put in its place."""
    if destination is None:
        destination = OrderedDict()
        destination._metadata = OrderedDict()
    local_metadata = {"version": module._version}
    if hasattr(destination, "_metadata"):
        destination._metadata[prefix[:-1]] = local_metadata
    for hook in module._state_dict_pre_hooks.values():
        hook(module, prefix, keep_vars)
    module._save_to_state_dict(destination, prefix, keep_vars)
    for name, child in module._modules.items():
        if child is not None:
            child.state_dict(
                destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars
            )
    for hook in module._state_dict_hooks.values():
        replaced = hook(module, destination, prefix, local_metadata)
        if getattr(hook, "_from_public_api", False):
            if replaced is not None:
                raise RuntimeError("state_dict post-hook must return None")
        elif replaced is not None:
            destination = replaced
    return destination


def _assign_value(module: Any, name: str, old: Any, new: Any) -> None:
    """`assign=True`: the tensor of the checkpoint itself becomes the parameter or buffer."""
    if isinstance(old, Parameter):
        if isinstance(new, Parameter):
            new.requires_grad_(old.requires_grad)
        else:
            new = Parameter(new, requires_grad=old.requires_grad)
    setattr(module, name, new)


def _swap_value(module: Any, name: str, old: Any, new: Any, assign: bool) -> None:
    loaded = old.module_load(new, assign=assign)
    if id(loaded) in (id(new), id(old)):
        raise RuntimeError(
            "module_load returned one of self or other, please .detach() "
            "the result if returning one of the inputs in module_load"
        )
    if isinstance(old, Parameter) and not isinstance(loaded, Parameter):
        loaded = Parameter(loaded, requires_grad=old.requires_grad)
    elif isinstance(old, Parameter):
        loaded.requires_grad_(old.requires_grad)
    torch.utils.swap_tensors(old, loaded)


def _load_one(module: Any, key: str, name: str, old: Any, new: Any, assign: bool) -> str | None:
    """Load one tensor; returns the error message if it cannot be."""
    if not is_tensor_like(new):
        return (
            f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like '
            f"object from checkpoint but received {type(new)}"
        )
    lazy = is_lazy(old)
    if not lazy:
        # Checkpoints of version 0.3 hold one element where a scalar is meant.
        if len(old.shape) == 0 and len(new.shape) == 1:
            new = new[0]
        if new.shape != old.shape:
            return (
                f"size mismatch for {key}: copying a param with shape {new.shape} from checkpoint, "
                f"the shape in current model is {old.shape}."
            )
    if old.is_meta and not new.is_meta and not assign:
        warnings.warn(
            f"for {key}: copying from a non-meta parameter in the checkpoint to a meta "
            "parameter in the current model, which is a no-op. (Did you mean to pass "
            "`assign=True` to assign items in the state dictionary to their corresponding "
            "key in the module instead of copying them in place?)",
            stacklevel=2,
        )
    swap = future.get_swap_module_params_on_conversion()
    try:
        with torch.no_grad():
            if swap:
                _swap_value(module, name, old, new, assign)
            elif assign:
                _assign_value(module, name, old, new)
            elif not (lazy and is_lazy(new)):  # of two without values there is nothing to copy
                old.copy_(new)
    except Exception as error:
        return (
            f'While {"swapping" if swap else "copying"} the parameter named "{key}", '
            f"whose dimensions in the model are {old.size()} and "
            f"whose dimensions in the checkpoint are {new.size()}, "
            f"an exception occurred : {error.args}."
        )
    return None


def load_own(
    module: Any,
    state_dict: Mapping[str, Any],
    prefix: str,
    local_metadata: dict[str, Any],
    strict: bool,
    missing_keys: list[str],
    unexpected_keys: list[str],
    error_msgs: list[str],
    extra: bool,
) -> None:
    """Fill one module (not its children) from the entries of `state_dict` below `prefix`."""
    for hook in module._load_state_dict_pre_hooks.values():
        hook(
            state_dict,
            prefix,
            local_metadata,
            strict,
            missing_keys,
            unexpected_keys,
            error_msgs,
        )
    transient = module._non_persistent_buffers_set
    own = {k: v for k, v in module._parameters.items() if v is not None}
    for name, buffer in module._buffers.items():
        if buffer is not None and name not in transient:
            own[name] = buffer
    assign = local_metadata.get("assign_to_params_buffers", False)
    for name, old in own.items():
        key = prefix + name
        if key in state_dict:
            message = _load_one(module, key, name, old, state_dict[key], assign)
            if message is not None:
                error_msgs.append(message)
        elif strict:
            missing_keys.append(key)
    extra_key = prefix + EXTRA_STATE
    if extra:
        if extra_key in state_dict:
            module.set_extra_state(state_dict[extra_key])
        elif strict:
            missing_keys.append(extra_key)
    elif strict and extra_key in state_dict:
        unexpected_keys.append(extra_key)
    if strict:
        for key in state_dict:
            if not key.startswith(prefix) or key == extra_key:
                continue
            first, dot, _ = key[len(prefix) :].partition(".")
            if first not in (module._modules if dot else own):
                unexpected_keys.append(key)


_POST_HOOK_RETURNED = (
    "Hooks registered with ``register_load_state_dict_post_hook`` are not "
    "expected to return new values, if incompatible_keys need to be modified, "
    "it should be done inplace."
)


def load(module: Any, given: Any, strict: bool, assign: bool) -> _IncompatibleKeys:
    """Fill a module and all below it; raises with every problem found."""
    if not isinstance(given, Mapping):
        raise TypeError(f"Expected state_dict to be dict-like, got {type(given)}.")
    missing_keys: list[str] = []
    unexpected_keys: list[str] = []
    error_msgs: list[str] = []
    metadata = getattr(given, "_metadata", None)
    state_dict: Any = OrderedDict(given)  # hooks may edit it
    if metadata is not None:
        state_dict._metadata = metadata

    def visit(target: Any, local: Any, prefix: str) -> None:
        local_metadata = {} if metadata is None else metadata.get(prefix[:-1], {})
        if assign:
            local_metadata["assign_to_params_buffers"] = assign
        target._load_from_state_dict(
            local, prefix, local_metadata, True, missing_keys, unexpected_keys, error_msgs
        )
        for name, child in target._modules.items():
            if child is not None:
                below = f"{prefix}{name}."
                visit(child, {k: v for k, v in local.items() if k.startswith(below)}, below)
        incompatible = _IncompatibleKeys(missing_keys, unexpected_keys)
        for hook in target._load_state_dict_post_hooks.values():
            if hook(target, incompatible) is not None:
                raise AssertionError(_POST_HOOK_RETURNED)

    visit(module, state_dict, "")
    if strict:
        for what, keys in (("Unexpected", unexpected_keys), ("Missing", missing_keys)):
            if keys:
                quoted = ", ".join(f'"{k}"' for k in keys)
                error_msgs.insert(0, f"{what} key(s) in state_dict: {quoted}. ")
    if error_msgs:
        listed = "\n\t".join(error_msgs)
        raise RuntimeError(
            f"Error(s) in loading state_dict for {type(module).__name__}:\n\t{listed}"
        )
    return _IncompatibleKeys(missing_keys, unexpected_keys)
