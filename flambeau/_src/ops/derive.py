"""The public tables: which function, method and nn function each declaration gives."""

from __future__ import annotations

from typing import Any

from flambeau._src import _native
from flambeau._src.ops.call import aten, make_callable
from flambeau._src.ops.op import PACKETS, Packet

# Python's operators: the slot's name -> the method that it calls.
SLOT_METHODS: dict[str, str] = {
    "add": "add", "radd": "add", "sub": "sub", "rsub": "__rsub__", "mul": "mul", "rmul": "mul",
    "truediv": "div", "rtruediv": "__rdiv__", "floordiv": "floor_divide",
    "rfloordiv": "__rfloordiv__",
    "mod": "remainder", "rmod": "__rmod__", "pow": "pow", "rpow": "__rpow__",
    "matmul": "matmul", "rmatmul": "__rmatmul__", "and": "__and__", "rand": "__rand__",
    "or": "__or__", "ror": "__ror__", "xor": "__xor__", "rxor": "__rxor__",
    "lshift": "__lshift__", "rlshift": "__rlshift__", "rshift": "__rshift__",
    "rrshift": "__rrshift__", "neg": "neg", "abs": "abs", "invert": "bitwise_not",
    "lt": "lt", "le": "le", "eq": "eq", "ne": "ne", "gt": "gt", "ge": "ge",
    "iadd": "add_", "isub": "sub_", "imul": "mul_", "itruediv": "div_", "ipow": "pow_",
    "getitem": "__getitem__", "setitem": "__setitem__", "bool": "__bool__", "int": "__int__",
    "float": "__float__", "index": "__index__", "len": "__len__", "complex": "__complex__",
}  # fmt: skip


def _under_all_names(table: dict[str, Any], p: Packet, made: Any) -> None:
    table[p.name] = made
    inplace = p.name.endswith("_") and not p.name.endswith("__")
    for alias in p.aliases:
        table[f"{alias}_" if inplace else alias] = made


def _public(where: str) -> list[Packet]:
    return [p for p in PACKETS.values() if where in p.public and p.namespace == "aten"]


def public_functions() -> dict[str, Any]:
    """Name → function, for the top-level namespace."""
    table: dict[str, Any] = {}
    for p in _public("function"):
        f = (
            make_callable(p, _native.Function, fills=True)
            if p.makes_tensors
            else getattr(aten, p.name)
        )
        _under_all_names(table, p, f)
    return table


def nn_functions() -> dict[str, Any]:
    """Name → function, for the nn functions (torch._C._nn)."""
    return {p.name: getattr(aten, p.name) for p in _public("nn")}


def tensor_methods() -> dict[str, Any]:
    """Name → method, for Tensor."""
    table: dict[str, Any] = {}
    for p in _public("method"):
        _under_all_names(table, p, make_callable(p, _native.Method, fills=p.makes_tensors))
    for name, method in _SAME.items():
        table[name] = make_callable(PACKETS[("aten", method)], _native.Method, name)
    return table


# Methods that do what another one does.
_SAME = {"__radd__": "add", "__rmul__": "mul", "__div__": "div", "__idiv__": "div_"}


def install_operators(methods: dict[str, Any]) -> None:
    """Tell C which method serves each of Python's operators."""
    for slot_name, method in SLOT_METHODS.items():
        if method in methods:
            _native.set_slot(slot_name, methods[method])
