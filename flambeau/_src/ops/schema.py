"""ATen schemas: the signature of an operator, with its aliases and mutations, read from text."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

_MISSING = object()


class Arg:
    """One argument (or result): `type` is the element's type for lists."""

    __slots__ = (
        "name", "type", "is_list", "list_size", "optional", "elem_optional", "default",
        "kwarg_only", "alias", "mutates",
    )  # fmt: skip

    def __init__(
        self, name: str, type: str, is_list: bool = False, list_size: int | None = None,
        optional: bool = False, elem_optional: bool = False, default: Any = _MISSING,
        kwarg_only: bool = False, alias: str | None = None, mutates: bool = False,
    ) -> None:  # fmt: skip
        self.name = name
        self.type = type
        self.is_list = is_list
        self.list_size = list_size
        self.optional = optional
        self.elem_optional = elem_optional
        self.default = default
        self.kwarg_only = kwarg_only
        self.alias = alias
        self.mutates = mutates

    def __repr__(self) -> str:
        return f"Arg({', '.join(f'{k}={getattr(self, k)!r}' for k in self.__slots__)})"

    @property
    def has_default(self) -> bool:
        return self.default is not _MISSING

    @property
    def is_tensor(self) -> bool:
        return self.type == "Tensor"


class Schema:
    """`aten::name.overload(args) -> returns`."""

    def __init__(self, text: str, namespace: str, name: str, overload: str) -> None:
        self.text = text
        self.namespace = namespace
        self.name = name
        self.overload = overload
        self.args: list[Arg] = []
        self.returns: list[Arg] = []

    def __repr__(self) -> str:
        return f"Schema({self})"

    @cached_property
    def positional(self) -> list[Arg]:
        return [a for a in self.args if not a.kwarg_only]

    @cached_property
    def tensor_positions(self) -> tuple[int, ...]:
        return tuple(i for i, a in enumerate(self.args) if a.is_tensor)

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(a.name for a in self.args)

    @cached_property
    def defaults(self) -> tuple[Any, ...]:
        return tuple(a.default if a.has_default else None for a in self.args)

    @cached_property
    def is_view(self) -> bool:
        return any(r.alias and not r.mutates for r in self.returns)

    @cached_property
    def mutates(self) -> tuple[int, ...]:
        return tuple(i for i, a in enumerate(self.args) if a.mutates)

    @property
    def is_mutable(self) -> bool:
        return bool(self.mutates)

    @property
    def qualname(self) -> str:
        return f"{self.namespace}::{self.name}"

    @property
    def arguments(self) -> list[Arg]:
        return self.args

    @property
    def overload_name(self) -> str:
        return self.overload

    def __str__(self) -> str:
        return f"{self.namespace}::{self.text}"


# As text: compiled by the first schema that is read, and kept by `re`.
_WILDCARD = r"\s*->\s*\*|\|[a-z]\b"
_HEAD = r"(?s)^(?:(\w+)::)?([\w.]+?)(?:\.(\w+))?\((.*)\)\s*->\s*(.*)$"
_TYPE = r"^(\w+)(?:\((\w+)(!)?\))?(\?)?(\[(\d*)\])?(?:\((\w+)(!)?\))?(\?)?$"


def _split(text: str) -> list[str]:
    parts, depth, quote, last = [], 0, "", 0
    for i, c in enumerate(text):
        if quote:
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == "," and not depth:
            parts.append(text[last:i].strip())
            last = i + 1
    tail = text[last:].strip()
    return [*parts, tail] if tail else parts


def _value(text: str, kind: str) -> Any:
    simple = {"None": None, "True": True, "False": False, "contiguous_format": "contiguous_format",
              "long": "long", "Mean": 1, "Sum": 2, "strided": "strided"}  # fmt: skip
    if text in simple:
        return simple[text]
    if text[0] in "'\"":
        return text[1:-1]
    if text[0] == "[":
        return [_value(t, kind) for t in _split(text[1:-1])]
    try:
        number = int(text)
    except ValueError:
        return float(text)
    return float(number) if kind == "float" else number


def _arg(text: str, kwarg_only: bool, returned: bool = False) -> Arg:
    type_text, _, rest = text.partition(" ")
    name, default = rest, _MISSING
    if "=" in rest:
        name, _, d = rest.partition("=")
        default = d
    m = re.match(_TYPE, type_text)
    if m is None:
        raise ValueError(f"schema: cannot read the argument {text!r}")
    base, al1, mut1, opt1, lst, size, al2, mut2, opt2 = m.groups()
    base = {"SymInt": "int", "SymBool": "bool"}.get(base, base)
    a = Arg(
        name.strip(),
        base,
        lst is not None,
        int(size) if size else None,
        bool(opt2) if lst else bool(opt1),
        bool(opt1) if lst else False,
        _MISSING,
        kwarg_only,
        al1 or al2,
        bool(mut1 or mut2),
    )
    if default is not _MISSING:
        value = _value(str(default).strip(), base)
        if a.is_list and a.list_size and isinstance(value, (int, float)):
            value = [value] * a.list_size
        a.default = value
    elif a.optional and kwarg_only and not returned and base in ("Generator",):
        a.default = None
    return a


def parse(text: str) -> Schema:
    """Read 'add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor'."""
    text = re.sub(_WILDCARD, "", text.strip())
    m = re.match(_HEAD, text)
    if m is None:
        raise ValueError(f"schema: cannot read {text!r}")
    namespace, name, overload, args, returns = m.groups()
    s = Schema(text, namespace or "aten", name, overload or "")
    kwarg_only = False
    for part in _split(args):
        if part == "*":
            kwarg_only = True
        else:
            s.args.append(_arg(part, kwarg_only))
    returns = returns.strip()
    if returns.startswith("("):
        returns = returns[1:-1] if returns != "()" else ""
        if not returns.strip():
            returns = ""
    for part in _split(returns):
        if part:
            s.returns.append(_arg(part if " " in part else part + " ", False, returned=True))
    return s
