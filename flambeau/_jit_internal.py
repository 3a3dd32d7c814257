"""Marks that programs put on functions for TorchScript. flambeau has none: the marks are kept,
and the functions run as they are."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any, Dict, Final, List, Optional, Tuple, TypeVar, Union  # noqa: F401, UP035

from flambeau.futures import Future  # noqa: F401

F = TypeVar("F", bound=Callable[..., Any])
_UNUSED = "unused (ignored and replaced with raising of an exception)"
_IGNORED = "ignore (leave as a call to Python, cannot be torch.jit.save'd)"
_EXPORTED = "export (compile this function even if nothing calls it)"
_MARK = "_torchscript_modifier"


def _marked(function: Any, mark: str) -> Any:
    for f in (function.fget, function.fset) if isinstance(function, property) else (function,):
        if f is not None:
            setattr(f, _MARK, mark)
    return function


def export(fn: F) -> F:
    """Mark a method to be compiled even where nothing calls it; returns it."""
    return _marked(fn, _EXPORTED)


def unused(fn: F) -> F:
    """Mark a function to be left out of compiled code; returns it."""
    return _marked(fn, _UNUSED)


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """Mark a function to stay a call of Python; returns it, or a decorator
    where `drop` is a bool."""
    if callable(drop):
        return _marked(drop, _IGNORED)
    if not isinstance(drop, bool):
        raise RuntimeError(
            f"Argument to @torch.jit.ignore must be a bool or a function but got {drop}"
        )
    mark = _UNUSED if drop or kwargs.get("drop_on_export") else _IGNORED
    return lambda function: _marked(function, mark)


def _overload(func: F) -> F:
    """A declaration of an overload; returns it."""
    return func


_overload_method = _overload


def is_scripting() -> bool:
    """False: nothing is ever scripted."""
    return False


class BroadcastingListCls:
    """`BroadcastingList2[int]`: an annotation for an int that stands for two."""

    def __getitem__(self, types: Any) -> None:
        return None


for _n in range(1, 7):
    globals()[f"BroadcastingList{_n}"] = BroadcastingListCls()


def _fits(obj: Any, kind: Any) -> bool:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind is None or kind is type(None):
        return obj is None
    if origin is None:
        return isinstance(obj, kind)
    if origin is Union or str(origin) == "<class 'types.UnionType'>":
        return any(_fits(obj, a) for a in args)
    if not isinstance(obj, origin):
        return False
    if not args or not obj:
        return True
    if origin is dict:
        return all(_fits(k, args[0]) and _fits(v, args[1]) for k, v in obj.items())
    if origin is tuple and args[-1] is not ...:
        return len(obj) == len(args) and all(map(_fits, obj, args))
    return all(_fits(x, args[0]) for x in obj)


def _isinstance(obj: Any, target_type: Any) -> bool:
    """`isinstance` that also looks at the elements of containers (`List[int]`)."""
    kinds = target_type if isinstance(target_type, tuple) else (target_type,)
    return any(_fits(obj, kind) for kind in kinds)
