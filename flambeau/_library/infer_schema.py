"""Schemas from annotations: `def f(x: Tensor, n: int = 1) -> Tensor` as operator text."""

from __future__ import annotations

import collections.abc
import inspect
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any

import flambeau as torch

__all__ = ["infer_schema"]

_ELEMENTS: dict[Any, str] = {
    int: "SymInt", float: "float", bool: "bool", str: "str", torch.Tensor: "Tensor",
    torch.dtype: "ScalarType", torch.device: "Device",
}  # fmt: skip
_RETURNED: dict[Any, str] = {torch.Tensor: "Tensor", int: "SymInt", float: "float", bool: "bool"}
_LISTED = (torch.Tensor, int, float, bool)
_SEQUENCES = (list, collections.abc.Sequence)


def _is_number(kind: Any) -> bool:
    return set(_union(kind)) == {int, float, bool}


def _union(kind: Any) -> tuple[Any, ...]:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return typing.get_args(kind)
    return (kind,)


def _text_of(kind: Any) -> str | None:
    """An annotation as a schema's type, or None when there is none for it."""
    if kind in _ELEMENTS:
        return _ELEMENTS[kind]
    if _is_number(kind):
        return "Scalar"
    members = _union(kind)
    if len(members) > 1 and type(None) in members:
        rest = tuple(m for m in members if m is not type(None))
        inner = (
            "Scalar"
            if set(rest) == {int, float, bool}
            else _text_of(rest[0])
            if len(rest) == 1
            else None
        )
        return None if inner is None else f"{inner}?"
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in _SEQUENCES and len(args) == 1:
        if args[0] in _LISTED:
            return f"{_ELEMENTS[args[0]]}[]"
        if _is_number(args[0]):
            return "Scalar[]"
        if set(_union(args[0])) == {torch.Tensor, type(None)}:
            return "Tensor?[]"
    return None


def _returns(kind: Any) -> str | None:
    if kind is None or kind is type(None):
        return "()"
    if kind in _RETURNED:
        return _RETURNED[kind]
    if _is_number(kind):
        return "Scalar"
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is list and args == (torch.Tensor,):
        return "Tensor[]"
    if origin is tuple:
        parts = [
            _RETURNED.get(a) or ("Tensor[]" if a == list[torch.Tensor] else None) for a in args
        ]
        return None if None in parts else f"({', '.join(parts)})"  # type: ignore[arg-type]
    return None


def _default(value: Any) -> str:
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, (str, torch.device)):
        return f'"{value}"'
    return str(value)


def infer_schema(
    prototype_function: Callable[..., Any],
    /,
    *,
    mutates_args: str | Iterable[str],
    op_name: str | None = None,
) -> str:
    """The schema of a function from its type annotations.

    `mutates_args` names the arguments that it writes ("unknown": all tensors may be). ValueError
    for a signature that has no schema.
    """
    signature = inspect.signature(prototype_function)

    def refuse(what: str) -> typing.NoReturn:
        raise ValueError(f"infer_schema(func): {what} Got func with signature {signature})")

    hints = typing.get_type_hints(prototype_function) if _has_text(signature) else {}
    seen = False
    parts: list[str] = []
    for number, (name, p) in enumerate(signature.parameters.items()):
        if p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
            refuse("We do not support positional-only args, varargs, or varkwargs.")
        if p.kind is p.KEYWORD_ONLY and not seen:
            seen = True
            parts.append("*")
        if p.annotation is p.empty:
            refuse(f"Parameter {name} must have a type annotation.")
        kind = hints.get(name, p.annotation)
        text = _text_of(kind)
        if text is None:
            valid = ", ".join(map(str, _ELEMENTS))
            refuse(
                f"Parameter {name} has unsupported type {kind}. The valid types are: {valid}, "
                "numbers (int | float | bool), lists and options of them."
            )
        if mutates_args == "unknown" or name in mutates_args:
            if text.startswith("Tensor"):
                text = text.replace("Tensor", f"Tensor(a{number}!)", 1)
            elif mutates_args != "unknown":
                refuse(
                    f"Parameter {name} is in mutable_args but only Tensors or collections of "
                    "Tensors can be mutated"
                )
        default = "" if p.default is p.empty else f"={_default(p.default)}"
        parts.append(f"{text} {name}{default}")
    if mutates_args != "unknown":
        missing = set(mutates_args) - set(signature.parameters)
        if missing:
            refuse(
                f"{missing} in mutates_args were not found in the custom op's signature. "
                "mutates_args should contain the names of all args that the custom op mutates, or "
                "just the string 'unknown' if you don't know."
            )
    if signature.return_annotation is signature.empty:
        refuse("No return type annotation was provided. Please add one.")
    returned = hints.get("return", signature.return_annotation)
    result = _returns(returned)
    if result is None:
        refuse(
            f"Return has unsupported type {returned}. The valid types are: Tensor, list[Tensor], "
            "int, float, bool, numbers (int | float | bool), and tuples of them."
        )
    return f"{op_name or ''}({', '.join(parts)}) -> {result}"


def _has_text(signature: inspect.Signature) -> bool:
    kinds = [p.annotation for p in signature.parameters.values()]
    return any(isinstance(k, str) for k in (*kinds, signature.return_annotation))
