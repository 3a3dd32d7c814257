"""The classes of operators' public faces, under torch's private path (`torch._ops`)."""

from flambeau._src.ops.overload import (
    HIGHER_ORDER,
    OperatorNamespace,
    Operators,
    OpOverload,
    OpOverloadPacket,
    ops,
)

_Ops = Operators
_OpNamespace = OperatorNamespace
_HigherOrderNamespace = type(HIGHER_ORDER)

__all__ = ["OpOverload", "OpOverloadPacket", "ops"]
