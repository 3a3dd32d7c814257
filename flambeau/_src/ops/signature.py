"""An operator's signature as users read it: `op._schema` with torch's attribute names."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from flambeau._src.ops.bind import _NO, convert
from flambeau._src.ops.schema import Arg, Schema

__all__ = ["AliasInfo", "Argument", "FunctionSchema", "JitType"]

_SHOWN = {
    "int": "int", "float": "float", "bool": "bool", "Scalar": "number", "str": "str",
    "Tensor": "Tensor",
    "ScalarType": "ScalarType", "Layout": "Layout", "Device": "Device",
    "MemoryFormat": "MemoryFormat", "Generator": "Generator", "complex": "complex",
}  # fmt: skip


class JitType:
    """The type of an argument or a result."""

    __slots__ = ("kind_", "element")

    def __init__(self, kind: str, element: JitType | None = None) -> None:
        self.kind_, self.element = kind, element

    def __repr__(self) -> str:
        return self.kind_ if self.element is None else f"{self.kind_}[{self.element}]"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JitType) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def kind(self) -> str:
        """'TensorType', 'ListType', …: torch's name of the type's class."""
        return {"number": "NumberType", "str": "StringType"}.get(
            self.kind_,
            f"{self.kind_.capitalize()}Type" if self.kind_.islower() else f"{self.kind_}Type",
        )

    def getElementType(self) -> JitType:
        """What a list or an optional holds."""
        if self.element is None:
            raise RuntimeError(f"{self} has no element type")
        return self.element

    def isSubtypeOf(self, other: JitType) -> bool:
        """Whether a value of this type may stand where `other` is asked for."""
        return self == other or (other.kind_ == "Optional" and self == other.element)

    @property
    def annotation_str(self) -> str:
        """The type as Python writes it."""
        return repr(self)


def type_of(a: Arg, real: bool = False) -> JitType:
    """The type of an argument; `real` keeps enumerations, which otherwise show as int."""
    name = _SHOWN.get(a.type, a.type)
    if not real and name in ("ScalarType", "Layout", "MemoryFormat"):
        name = "int"
    t = JitType(name)
    if a.elem_optional:
        t = JitType("Optional", t)
    if a.is_list:
        t = JitType("List", t)
    return JitType("Optional", t) if a.optional else t


class AliasInfo:
    """Which arguments and results share bytes, and whether they are written."""

    __slots__ = ("is_write", "before_set", "after_set")

    def __init__(self, name: str, write: bool) -> None:
        before, _, after = name.partition("->")
        self.is_write = write
        self.before_set = {before.strip()}
        self.after_set = {(after or before).strip()}


class Argument:
    """One argument or result of an operator."""

    __slots__ = ("_arg", "name", "kwarg_only", "N", "alias_info", "optional")

    def __init__(self, arg: Arg, name: str | None = None) -> None:
        self._arg = arg
        self.name = arg.name if name is None else name
        self.kwarg_only = arg.kwarg_only
        self.N = arg.list_size
        self.optional = arg.optional
        self.alias_info = AliasInfo(arg.alias, arg.mutates) if arg.alias else None

    @property
    def type(self) -> JitType:
        return type_of(self._arg)

    @property
    def real_type(self) -> JitType:
        return type_of(self._arg, real=True)

    @property
    def default_value(self) -> Any:
        if not self._arg.has_default:
            return None
        from flambeau._src.core.layout import FORMATS  # a rare read

        value = self._arg.default
        return (
            FORMATS.get(value, value)
            if isinstance(value, str) and self._arg.type in ("MemoryFormat", "Layout")
            else value
        )

    def has_default_value(self) -> bool:
        """Whether the argument may be left out."""
        return self._arg.has_default

    @property
    def is_out(self) -> bool:
        """Whether this is an `out=` argument."""
        return self._arg.mutates and self.kwarg_only

    @property
    def is_write(self) -> bool:
        """Whether the operator writes into it."""
        return self._arg.mutates

    def accepts(self, value: Any, numbers: bool) -> bool:
        """Whether the value can stand for it."""
        return convert(value, self._arg, numbers) is not _NO

    def takes_item(self, value: Any) -> bool:
        """Whether the value can be an item of the list."""
        return convert([value], self._arg, False) is not _NO

    def __repr__(self) -> str:
        return f"Argument({self.name}: {self.type})"


class FunctionSchema:
    """A whole signature: `name` is 'aten::add', `str()` gives the text."""

    __module__ = "flambeau"

    def __init__(self, schema: Schema, namespace: str) -> None:
        self._schema = schema
        self.name = f"{namespace}::{schema.name}"
        self.overload_name = schema.overload
        head, _, _ = schema.text.partition("(")
        self._text = schema.text if "::" in head else f"{namespace}::{schema.text}"

    @cached_property
    def arguments(self) -> list[Argument]:
        return [Argument(a) for a in self._schema.args]

    @cached_property
    def returns(self) -> list[Argument]:
        return [Argument(a) for a in self._schema.returns]

    @property
    def positional(self) -> list[Argument]:
        return [a for a in self.arguments if not a.kwarg_only]

    @property
    def is_mutable(self) -> bool:
        """Whether an argument is written."""
        return self._schema.is_mutable

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FunctionSchema) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)
