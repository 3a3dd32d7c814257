"""A call's arguments by the signature of what is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau._src.ir.arguments import ArgsKwargsPair, normalize, signature_of
from flambeau._src.ir.graph import Graph

__all__ = ["ArgsKwargsPair", "get_signature_for_torch_op", "normalize_function", "normalize_module"]


def get_signature_for_torch_op(op: Callable[..., Any], return_schemas: bool = False) -> Any:
    """The signatures of an operator as a list, or None where it has none.

    With `return_schemas`, ``(signatures, schemas)``.
    """
    signature = signature_of(op)
    if signature is None:
        return (None, None) if return_schemas else None
    return ([signature], [getattr(op, "_schema", None)]) if return_schemas else [signature]


def normalize_function(
    target: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    arg_types: tuple[Any, ...] | None = None,
    kwarg_types: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """``(args, kwargs)`` in the order of the signature, or None where there is none."""
    node = Graph().call_function(target, args, kwargs or {})
    return normalize(node, None, normalize_to_only_use_kwargs)


def normalize_module(
    root: Any,
    target: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """The same for a call of the submodule `target` of `root`."""
    node = Graph().call_module(target, args, kwargs or {})
    return normalize(node, root, normalize_to_only_use_kwargs)
