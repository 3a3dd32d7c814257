"""Constants: values that carry nothing but themselves, and are compared by value."""

from __future__ import annotations

import enum
import types
from typing import Any

from flambeau._src import _native
from flambeau._src.core.dtype import dtype
from flambeau._src.core.size import Size
from flambeau._src.core.symint import SymBool, SymFloat, SymInt
from flambeau._src.ops.overload import (
    OperatorNamespace,
    Operators,
    OpOverload,
    OpOverloadPacket,
)

__all__ = ["ATOMS", "OPERATORS", "REFERENCES", "is_plain", "is_reference", "is_structseq"]

_NUMBERS = frozenset((SymInt, SymFloat, SymBool))  # not fixed yet: computed where they leave
_LAYOUTS = ("layout", "memory_format")

#: Types whose objects are immutable and equal to themselves rebuilt.
ATOMS: frozenset[type] = frozenset(
    {int, float, bool, str, bytes, complex, type(None), type(Ellipsis), type(NotImplemented)}
    | {dtype, _native.device, range}
    | _NUMBERS
)
#: Types whose objects stand for themselves: the capture uses the outside object as it is.
REFERENCES: frozenset[type] = frozenset(
    {
        types.BuiltinFunctionType,
        types.MethodDescriptorType,
        types.WrapperDescriptorType,
        types.ClassMethodDescriptorType,
        types.GetSetDescriptorType,
        types.MemberDescriptorType,
        types.CodeType,
        types.GenericAlias,
        _native.Function,
        _native.Method,
        OpOverload,
        OpOverloadPacket,
    }
)
#: Modules of operators (`torch.ops`, `torch.ops.aten`).
OPERATORS: frozenset[type] = frozenset({Operators, OperatorNamespace})


def is_structseq(kind: type) -> bool:
    """Whether tuples of this class are native code's, which are made of a sequence."""
    return isinstance(kind.__dict__.get("n_sequence_fields"), int)


def is_reference(value: Any) -> bool:
    """Whether the object itself is part of the program, as code is."""
    kind = type(value)
    if kind is types.BuiltinFunctionType:  # a method of an object is not code alone
        owner = value.__self__
        return owner is None or isinstance(owner, (types.ModuleType, type))
    return (
        kind in REFERENCES
        or issubclass(kind, (type, enum.Enum))
        or kind.__name__ in _LAYOUTS
        or (kind.__module__ in ("typing", "re", "types") and kind is not types.SimpleNamespace)
    )


def is_plain(value: Any) -> bool:
    """Whether the value is a constant: an atom, or a tuple or frozenset of nothing else."""
    kind = type(value)
    if kind in ATOMS:
        return kind not in _NUMBERS
    if kind is tuple or kind is frozenset or kind is Size:
        return all(is_plain(v) for v in value)
    if kind is slice:
        return is_plain(value.start) and is_plain(value.stop) and is_plain(value.step)
    return issubclass(kind, enum.Enum) or kind.__name__ in _LAYOUTS
