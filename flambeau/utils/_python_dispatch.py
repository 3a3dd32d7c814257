"""Modes and subclasses that see every operator: torch's public names for `interp/dispatch_mode`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import flambeau as torch
from flambeau._src.interp import dispatch_mode as _layer
from flambeau._src.interp.dispatch_mode import TorchDispatchMode

__all__ = [
    "BaseTorchDispatchMode",
    "TorchDispatchMode",
    "is_traceable_wrapper_subclass",
    "is_traceable_wrapper_subclass_type",
    "return_and_correct_aliasing",
    "transform_subclass",
]


class BaseTorchDispatchMode(TorchDispatchMode):
    """A mode that only goes on."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


def _get_current_dispatch_mode() -> Any:
    """The top mode, or None."""
    modes = _layer.current_modes()
    return modes[-1] if modes else None


def _get_current_dispatch_mode_stack() -> list[Any]:
    """All modes, the lowest first."""
    return _layer.current_modes()


def _len_torch_dispatch_stack() -> int:
    return len(_layer.current_modes())


def _get_dispatch_stack_at(i: int) -> Any:
    return _layer.current_modes()[i]


def _push_mode(mode: TorchDispatchMode) -> None:
    _layer.push_mode(mode)


def _pop_mode(k: Any = None) -> Any:
    return _layer.pop_mode(k)


@contextmanager
def _pop_mode_temporarily(k: Any = None) -> Iterator[Any]:
    """Without the top mode."""
    mode = _layer.pop_mode(k)
    try:
        yield mode
    finally:
        _layer.push_mode(mode)


def _disable_current_modes() -> AbstractContextManager[list[Any]]:
    """Without any mode; yields those that were active."""
    return _layer.modes_suspended()


def _disable_infra_mode(key: int) -> AbstractContextManager[Any]:
    """Without the library's own mode of that kind."""
    return _layer.infra_suspended(key)


def is_in_torch_dispatch_mode(include_infra_modes: bool = True) -> bool:
    """Whether a mode is active."""
    modes = _layer.current_modes()
    return bool(modes) if include_infra_modes else any(not m.is_infra_mode() for m in modes)


def any_torch_dispatch_mode_on_stack(*, include_infra_modes: bool = True) -> bool:
    """The same, under its newer name."""
    return is_in_torch_dispatch_mode(include_infra_modes)


class TensorWithFlatten(Protocol):
    """What a wrapper that compilers can take apart offers."""

    def __tensor_flatten__(self) -> tuple[Sequence[str], object]: ...

    @staticmethod
    def __tensor_unflatten__(inner: Any, ctx: Any, size: Any, stride: Any) -> torch.Tensor: ...


def is_traceable_wrapper_subclass(t: object) -> bool:
    """Whether `t` is a tensor subclass that can be flattened into inner tensors and made again."""
    return (
        type(t) is not torch.Tensor
        and isinstance(t, torch.Tensor)
        and (is_traceable_wrapper_subclass_type(type(t)))
    )


def is_traceable_wrapper_subclass_type(t: type) -> bool:
    """The same of a class."""
    return issubclass(t, torch.Tensor) and (
        hasattr(t, "__tensor_flatten__") and hasattr(t, "__tensor_unflatten__")
    )


def transform_subclass(
    t: Any, callback: Callable[[str, Any], Any], outer_size: Any = None, outer_stride: Any = None
) -> Any:
    """A wrapper like `t` around `callback(name, inner)` of each inner tensor.

    AssertionError if the result's size or strides are not `outer_size`, `outer_stride` (default:
    those of `t`).
    """
    outer_size = t.size() if outer_size is None else outer_size
    outer_stride = t.stride() if outer_stride is None else outer_stride
    names, ctx = t.__tensor_flatten__()
    inner = {name: callback(name, getattr(t, name)) for name in names}
    made = type(t).__tensor_unflatten__(inner, ctx, outer_size, outer_stride)
    if made.shape != outer_size:
        raise AssertionError(
            f"Expected return value from {type(t)}__tensor_unflatten__() to have shape equal to "
            f"{outer_size}, but got: {made.shape}"
        )
    if made.stride() != tuple(outer_stride):
        raise AssertionError(
            f"Expected return value from {type(t)}__tensor_unflatten__() to have stride equal to "
            f"{outer_stride}, but got: {made.stride()}"
        )
    return made


def return_and_correct_aliasing(func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """`out` as a `__torch_dispatch__` must return it: written arguments are returned themselves,
    and the outputs of views share the storage cell of the argument they are views of."""
    schema = func._schema
    named = list(zip(schema.arguments, args, strict=False))
    named += [(a, kwargs[a.name]) for a in schema.arguments if a.name in (kwargs or {})]
    writes: dict[str, Any] = {}
    sources: dict[str, Any] = {}
    for a, value in named:
        if a.alias_info is None or not a.alias_info.before_set:
            continue
        (name,) = a.alias_info.before_set
        (writes if a.alias_info.is_write else sources)[name] = value
    outs = list(out) if isinstance(out, (tuple, list)) else [out]
    result = []
    for i, o in enumerate(outs):
        r = schema.returns[min(i, len(schema.returns) - 1)]
        name = (
            next(iter(r.alias_info.before_set | r.alias_info.after_set)) if r.alias_info else None
        )
        if name in writes and r.alias_info.is_write:
            result.append(writes[name])
            continue
        source = sources.get(name) if name is not None else None
        if source is None and r.alias_info and sources:
            source = next(iter(sources.values()))
        if isinstance(source, torch.Tensor) and isinstance(o, torch.Tensor) and o is not source:
            with _layer.torch_dispatch_disabled():
                o._set(
                    source.untyped_storage(),
                    o.storage_offset(),
                    tuple(o.shape),
                    o.stride(),
                    o.dtype,
                )
        result.append(o)
    if not isinstance(out, (tuple, list)):
        return result[0]
    return type(out)(result) if not hasattr(out, "_fields") else type(out)(*result)
