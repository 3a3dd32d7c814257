"""A node's arguments in the order of its target's signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from flambeau._src.ir.node import Node

__all__ = ["ArgsKwargsPair", "normalize", "signature_of"]


class ArgsKwargsPair(NamedTuple):
    """A call's arguments."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def signature_of(target: Any) -> inspect.Signature | None:
    """The signature of a callable: from its operator schema, else from Python; None if unknown."""
    schema = getattr(target, "_schema", None)
    if schema is not None and hasattr(schema, "arguments"):
        return inspect.Signature([_parameter(argument) for argument in schema.arguments])
    try:
        return inspect.signature(target)
    except (TypeError, ValueError):
        return None


def _parameter(argument: Any) -> inspect.Parameter:
    kind = (
        inspect.Parameter.KEYWORD_ONLY
        if getattr(argument, "kwarg_only", False)
        else inspect.Parameter.POSITIONAL_OR_KEYWORD
    )
    default = inspect.Parameter.empty
    optional = getattr(argument, "has_default_value", False)
    if optional() if callable(optional) else optional:
        default = argument.default_value
    # `self` and `from` are fine in a schema; the second is no Python parameter name.
    name = f"{argument.name}_" if argument.name == "from" else argument.name
    return inspect.Parameter(name, kind, default=default)


def normalize(node: Node, root: Any, only_kwargs: bool) -> ArgsKwargsPair | None:
    """See `Node.normalized_arguments`."""
    target: Callable[..., Any]
    if node.op == "call_function":
        target = node.target  # type: ignore[assignment]
    elif node.op == "call_module":
        target = root.get_submodule(node.target).forward
    else:
        return None
    signature = signature_of(target)
    if signature is None:
        return None
    try:
        bound = signature.bind(*node.args, **node.kwargs)
    except TypeError:
        return None
    bound.apply_defaults()
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for name, parameter in signature.parameters.items():
        value = bound.arguments[name]
        if parameter.kind is parameter.VAR_POSITIONAL:
            if only_kwargs and value:
                return None
            args.extend(value)
        elif parameter.kind is parameter.VAR_KEYWORD:
            kwargs.update(value)
        elif (
            (only_kwargs and parameter.kind is not parameter.POSITIONAL_ONLY)
            or parameter.kind is parameter.KEYWORD_ONLY
            or (parameter.default is not parameter.empty and not _later_varargs(signature, name))
        ):
            kwargs[name] = value
        else:
            args.append(value)
    return ArgsKwargsPair(tuple(args), kwargs)


def _later_varargs(signature: inspect.Signature, name: str) -> bool:
    names = list(signature.parameters)
    later = names[names.index(name) + 1 :]
    return any(signature.parameters[n].kind is inspect.Parameter.VAR_POSITIONAL for n in later)
