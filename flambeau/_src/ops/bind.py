"""Binding a Python call to an overload: positions, keywords, conversions, and the error texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core.symint import sym_float
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.op import Op, Packet, resolve_lazy
from flambeau._src.ops.refuse import shown, type_text
from flambeau._src.ops.schema import Arg

_NO = object()
_RENAMES = {"input": "self", "axis": "dim", "keepdims": "keepdim", "x": "self", "x2": "other"}


def _int(v: Any, a: Arg) -> Any:
    if type(v) is int:
        return v
    if isinstance(v, bool):
        return _NO
    if isinstance(v, int) or hasattr(v, "__sym_int__"):
        return v
    if isinstance(v, Tensor):
        if v.dim() == 0 and dt.is_integral(v.dtype, with_bool=False):
            return v.item()
        return _NO
    index = getattr(v, "__index__", None)
    if index is None or isinstance(v, type):
        return _NO
    try:
        return index()
    except TypeError:  # an array of more than one element has the method too
        return _NO


def _float(v: Any, a: Arg) -> Any:
    if isinstance(v, (float, int)):
        return v if isinstance(v, float) else float(v)
    if hasattr(v, "__sym_float__"):
        return v
    if isinstance(v, Tensor):
        return (
            sym_float(v.item())
            if v.dim() == 0 and not v.requires_grad and not v.is_complex()
            else _NO
        )
    f = getattr(v, "__float__", None)
    return f() if f is not None and not isinstance(v, (type, str)) else _NO


def _number(v: Any, a: Arg) -> Any:
    if (
        isinstance(v, (bool, int, float, complex))
        or hasattr(v, "__sym_int__")
        or hasattr(v, "__sym_float__")
        or hasattr(v, "__sym_bool__")
    ):
        return v
    if isinstance(v, Tensor):
        return v.item() if v.dim() == 0 and not v.requires_grad else _NO
    item = getattr(v, "item", None)  # NumPy's scalars; its arrays of no dimension are no numbers
    if item is not None and getattr(v, "ndim", 1) == 0 and not hasattr(v, "__setitem__"):
        return item()
    return _NO


def _bool(v: Any, a: Arg) -> Any:
    if isinstance(v, bool):
        return v
    if type(v).__name__ in ("bool_", "bool") or hasattr(v, "__sym_bool__"):
        return v if hasattr(v, "__sym_bool__") else bool(v)
    return _NO


def _tensor(v: Any, a: Arg) -> Any:
    return v if isinstance(v, Tensor) else _NO


def _dtype(v: Any, a: Arg) -> Any:
    if isinstance(v, _native.dtype):
        return v
    return dt.FROM_PYTHON.get(v, _NO) if isinstance(v, type) else _NO


def _device(v: Any, a: Arg) -> Any:
    if isinstance(v, _native.device):
        return v
    if isinstance(v, str) or (isinstance(v, int) and not isinstance(v, bool)):
        return _native.device(v)
    return _NO


def _string(v: Any, a: Arg) -> Any:
    return v if isinstance(v, str) else _NO


def _any(v: Any, a: Arg) -> Any:
    return v


CONVERT: dict[str, Callable[[Any, Arg], Any]] = {
    "Tensor": _tensor, "int": _int, "float": _float, "Scalar": _number, "bool": _bool,
    "ScalarType": _dtype, "Device": _device, "str": _string, "Layout": _any,
    "MemoryFormat": _any, "Generator": _any, "Storage": _any, "Stream": _any,
}  # fmt: skip


def _list(v: Any, a: Arg) -> Any:
    if isinstance(v, (tuple, list)):
        one = CONVERT.get(a.type, _any)
        out: list[Any] = []
        for x in v:
            if x is None and a.elem_optional:
                out.append(None)
                continue
            if out and isinstance(x, bool) and a.type == "int":
                x = int(x)  # the first one decides whether these are numbers
            y = one(x, a)
            if y is _NO:
                return _NO
            out.append(y)
        if a.type == "bool" or a.type == "Tensor":
            return out if a.type == "Tensor" else tuple(out)
        if a.list_size and len(out) == 1 and a.list_size > 1:
            return tuple(out) * a.list_size
        return tuple(out)
    if a.list_size is not None and a.type in ("int", "bool", "float"):
        y = CONVERT[a.type](v, a)
        if y is _NO or isinstance(v, Tensor):
            return _NO
        return (y,) * a.list_size
    return _NO


def convert(v: Any, a: Arg, numbers: bool) -> Any:
    """v as the argument a wants it, or _NO."""
    if v is None and a.optional:
        return None
    if v is None and a.is_list and a.default == []:
        return ()  # such a list may be left out by name: max_pool2d(x, 2, stride=None)
    if a.is_list:
        return _list(v, a)
    r = CONVERT.get(a.type, _any)(v, a)
    if r is _NO and numbers and a.type == "Tensor":
        return _number(v, a)
    return r


def bind(
    op: Op,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    reasons: list[str] | None = None,
    loose: bool = True,
) -> Any:
    """The complete arguments in schema order, or None when the overload does not fit. `loose`:
    sizes may stand one by one, as methods and functions take them and overloads do not."""
    schema, numbers = op.schema, op.decl.numbers
    if kwargs and reasons is None and not schema.names.issuperset(kwargs):
        return None  # before any argument is converted: that may read a tensor's value
    positional = schema.positional
    npos = len(positional)
    n = len(args)
    first = 1 if positional and positional[0].is_tensor and not positional[0].is_list else 0
    # x.view(2, 3): where sizes are the only argument they may stand one by one
    if (
        loose
        and npos == first + 1
        and n > first
        and positional[first].is_list
        and positional[first].type == "int"
        and not isinstance(args[first], (tuple, list))
        and all(isinstance(x, int) or hasattr(x, "__index__") for x in args[first:])
    ):
        args = (*args[:first], tuple(args[first:]))
        n = len(args)
    if n > npos:
        if reasons is not None:
            reasons.append(f"takes {npos} positional arguments but {n} were given")
        return None
    out: list[Any] = []
    used = 0
    for i, a in enumerate(schema.args):
        if i < n and not a.kwarg_only:
            v = args[i]
        elif kwargs and a.name in kwargs:
            v = kwargs[a.name]
            used += 1
        elif a.has_default:
            out.append(tuple(a.default) if isinstance(a.default, list) else a.default)
            continue
        elif a.optional and a.kwarg_only:
            out.append(None)
            continue
        else:
            if reasons is not None:
                reasons.append(f'missing 1 required positional arguments: "{shown(a, i)}"')
            return None
        if type(v) is Tensor and a.type == "Tensor" and not a.is_list:
            out.append(v)
            continue
        c = convert(v, a, numbers)
        if c is _NO:
            if reasons is not None:
                where = (
                    f" (position {i + 1 - (1 if schema.args[0].name == 'self' and False else 0)})"
                    if i < n
                    else ""
                )
                want = type_text(a)
                reasons.append(
                    f"argument '{shown(a, i)}'{where} must be {want}, not {type(v).__name__}"
                )
            return None
        out.append(c)
    if used != len(kwargs):
        names = {a.name for a in schema.args}
        bad = next((k for k in kwargs if k not in names), None)
        if reasons is not None:
            twice = next((k for k in kwargs if k in names), None)
            reasons.append(
                f"got multiple values for argument '{twice}'"
                if bad is None
                else f"got an unexpected keyword argument '{bad}'"
            )
        return None
    return tuple(out)


def rename(kwargs: dict[str, Any], op: Op) -> dict[str, Any]:
    """NumPy's names and `input` are understood where the schema uses the ATen name."""
    names = {a.name for a in op.schema.args}
    return {
        (_RENAMES[k] if k not in names and _RENAMES.get(k) in names else k): v
        for k, v in kwargs.items()
    }


def resolve(p: Packet, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Op, tuple[Any, ...]]:
    """The first overload that takes the arguments, and the arguments; TypeError when none does."""
    ops = resolve_lazy(p)
    for op in ops:
        bound = bind(op, args, rename(kwargs, op) if kwargs else kwargs)
        if bound is not None:
            return op, bound
    raise Unbound


class Unbound(TypeError):
    """No overload takes the arguments; the words are the caller's, who knows what was called."""


def takes(value: Any, a: Arg, numbers: bool) -> bool:
    """Whether a value can stand for an argument."""
    return convert(value, a, numbers) is not _NO
