"""x[...] and x[...] = v: integers, slices, None and Ellipsis become views; tensors gather."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import state, symbolic
from flambeau._src.core.slots import slot
from flambeau._src.core.symint import SymInt
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten, dispatch
from flambeau._src.ops.creation import tensor
from flambeau._src.ops.op import packet
from flambeau._src.ops.promote import check_number
from flambeau._src.ops.views import LAST, unknown

_PUBLIC = state.FUNCTION | state.FUNCTION_MODE
_MASKS = (dt.uint8, dt.bool_)
_TUPLE_AT_MOST = 32  # longer sequences are always one index


def fresh_data(t: Tensor) -> Tensor:
    """t as data that enters the program here (modes see `lift_fresh`)."""
    return aten.lift_fresh(t) if state.get_active() & ~state.get_suspended() else t


def select_at(t: Tensor, dim: int, index: int, position: int) -> Tensor:
    """t[..., index, ...] along dim; `position` is what the error names."""
    if not t.dim() and index == 0:
        raise IndexError(
            "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or "
            "`tensor.item<T>()` in C++ to convert a 0-dim tensor to a number"
        )
    n = t.shape[dim] if t.dim() else 1
    if not unknown(index < n) and not -n <= index < n:
        raise IndexError(f"index {index} is out of bounds for dimension {position} with size {n}")
    return aten.select(t, dim, index)


def _bound(v: Any, default: int) -> int:
    if v is None:
        return default
    if isinstance(v, Tensor):
        v = v.item()
    if isinstance(v, int):
        return v
    if isinstance(v, SymInt):
        n: Any = v  # behaves as one
        return n  # type: ignore[no-any-return]
    index = getattr(v, "__index__", None)
    if index is None:
        raise TypeError("slice indices must be integers or None or have an __index__ method")
    return int(index())


def slice_at(t: Tensor, dim: int, key: slice, *, always: bool) -> Tensor:
    """t with the slice taken along dim; a slice of everything is left out unless `always`."""
    step = _bound(key.step, 1)
    if step == 0:
        raise ValueError("slice step cannot be zero")
    if step < 0:
        raise ValueError("step must be greater than zero")
    start, stop = _bound(key.start, 0), _bound(key.stop, LAST)
    if not always and t.dim() and step == 1 and type(start) is int and start == 0:
        unbounded = type(stop) is int and stop == LAST
        if unbounded or (not unknown(stop >= t.shape[dim]) and stop >= t.shape[dim]):
            return t
    return aten.slice(t, dim, start, stop, step)


def is_tuple_like(key: Any) -> bool:
    """Whether a sequence stands for several indices: a tuple, or a short list of non-numbers."""
    if isinstance(key, tuple):
        return True
    if (
        isinstance(key, (Tensor, str, bytes))
        or not hasattr(key, "__getitem__")
        or not hasattr(key, "__len__")
    ):
        return False
    if hasattr(key, "__array_interface__") or len(key) >= _TUPLE_AT_MOST:
        return False
    return any(
        x is None or x is Ellipsis or isinstance(x, (Tensor, slice))
        or (hasattr(x, "__len__") and hasattr(x, "__getitem__"))
        for x in key
    )  # fmt: skip


def _is_sequence(x: Any) -> bool:
    return hasattr(x, "__getitem__") and hasattr(x, "__len__") and not isinstance(x, dict)


def _is_int(x: Any) -> bool:
    if isinstance(x, bool):
        return False
    return isinstance(x, int) or hasattr(x, "__sym_int__") or (
        hasattr(x, "__index__") and getattr(x, "ndim", 0) == 0 and not isinstance(x, Tensor)
        and type(x).__name__ not in ("bool_", "bool")
    )  # fmt: skip


def _truth(x: Any) -> bool | None:
    """The value of a Python or NumPy bool; None for anything else."""
    if isinstance(x, bool):
        return x
    return bool(x) if type(x).__name__ in ("bool_", "bool") and getattr(x, "ndim", 1) == 0 else None


def _wanted(keys: Sequence[Any]) -> int:
    """How many dimensions the indices use up."""
    n = 0
    for k in keys:
        if isinstance(k, Tensor):
            n += k.dim() if k.dtype in _MASKS else 1
        elif k is not None and k is not Ellipsis and _truth(k) is None:
            n += 1
    return n


def _flag(t: Tensor, on: bool) -> Tensor:
    """The index that a bool stands for, over a new dimension of extent one."""
    made = aten.empty((1 if on else 0,), dtype=dt.int64, device=t.device)
    return aten.fill_(made, 0) if on else made


def apply(t: Tensor, keys: Sequence[Any]) -> tuple[Tensor, list[Any]]:
    """The view that all but the tensors among the indices give, and the tensors by dimension."""
    wanted = _wanted(keys)
    if wanted > t.dim():
        raise IndexError(f"too many indices for tensor of dimension {t.dim()}")
    result, dim = t, 0
    found: list[Any] = []  # an entry a dimension of the result that is passed by
    for position, k in enumerate(keys):
        if type(k) is int or _is_int(k):
            at: Any = k if isinstance(k, (int, SymInt)) else k.__index__()
            result = select_at(result, dim, at, position)
            continue
        if isinstance(k, slice):
            result = slice_at(result, dim, k, always=False)
            found.append(None)
        elif k is Ellipsis:
            dim += t.dim() - wanted
            found.extend([None] * (t.dim() - wanted))
            continue
        elif k is None:
            result = aten.unsqueeze(result, dim)
            found.append(None)
        elif (on := _truth(k)) is not None:
            result = aten.unsqueeze(result, dim)
            found.append(_flag(result, on))
        elif isinstance(k, Tensor):
            if k.dim() == 0 and dt.is_integral(k.dtype):
                if k.dtype not in _MASKS:
                    result = select_at(result, dim, int(k.item()), position)
                    continue
                result = aten.unsqueeze(result, dim)
                found.append(_flag(result, bool(k.item())))
            else:
                found.append(k)
                dim += k.dim() - 1 if k.dtype in _MASKS else 0
        elif _is_sequence(k):
            found.append(_as_index(k))
        else:
            raise IndexError(
                "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables "
                "are "
                f"valid indices (got {type(k).__name__})"
            )
        dim += 1
    while found and found[-1] is None:
        found.pop()
    return result, found


def _as_index(k: Any) -> Tensor:
    if isinstance(k, str):
        raise TypeError("new(): invalid data type 'str'")
    data = list(k) if isinstance(k, range) else k
    made = (
        tensor(data, dtype=dt.int64) if hasattr(data, "__len__") and not len(data) else tensor(data)
    )
    return made


def index_op(name: str, overload: str | None = None) -> Any:
    """An operator that serves indices; its arguments are passed on complete."""
    return packet(name).ops[0] if overload is None else packet(name).overload(overload)


def getitem(self: Tensor, key: Any) -> Tensor:
    """self[key], as torch defines it: views for basic indices, `index` for tensors."""
    if _native.call_bits((self, key), {}, 0) & _PUBLIC:
        return slot("function_layer")(Tensor.__getitem__, (self, key), {})
    if key is None:
        return aten.unsqueeze(self, 0)
    if key is Ellipsis:
        return aten.alias(self)
    if type(key) is int:
        return select_at(self, 0, key, 0)
    if isinstance(key, slice):
        if not self.dim():
            raise IndexError("slice() cannot be applied to a 0-dim tensor.")
        return slice_at(self, 0, key, always=True)
    if type(key) is Tensor and key.dim() and self.dim():
        return dispatch(index_op("index"), (self, [key]))
    keys = tuple(key) if is_tuple_like(key) else (key,)
    result, indices = apply(self, keys)
    if not indices:
        return aten.alias(result) if result is self else result
    return dispatch(index_op("index"), (result, indices))


# ---- assignment ----


def as_value(self: Tensor, value: Any) -> Tensor:
    """What is assigned, as a tensor: numbers take self's dtype."""
    if isinstance(value, Tensor):
        return value
    plain = value
    if not isinstance(value, (bool, int, float, complex)):
        item = getattr(value, "item", None)
        if item is None or bool(getattr(value, "ndim", True)):
            if hasattr(value, "__sym_int__") or hasattr(value, "__sym_float__"):
                return aten.scalar_tensor(value, dtype=self.dtype, device=self.device)
            raise TypeError(
                f"can't assign a {type(value).__name__} to a {dt.type_name(self.dtype)}"
            )
        plain = item()
    narrow = self.dtype in (dt.float16, dt.bfloat16)  # by way of double: too much becomes infinite
    check_number(plain, dt.float64 if narrow else self.dtype)
    made = _native.empty((), self.dtype, _native.cpu)
    slot("fill_with")(made, plain)
    return fresh_data(made)


def without_leading_ones(shape: Sequence[int]) -> tuple[int, ...]:
    """shape from its first extent other than one on."""
    for i, s in enumerate(shape):
        if not symbolic.same(s, 1):
            return tuple(shape[i:])
    return ()


def copy_to(target: Tensor, value: Tensor) -> None:
    """target[...] = value, broadcast after leading ones are dropped."""
    if symbolic.all_same(target.shape, value.shape):
        aten.copy_(target, value)
        return
    if not value.dim() and value.device.type == "cpu":
        dispatch(index_op("fill", "Tensor").inplace_op, (target, value))
        return
    value = aten.view(value, without_leading_ones(value.shape))
    if not symbolic.all_same(value.shape, target.shape):
        value = aten.expand(value, target.shape)
    aten.copy_(target, value)


def setitem(self: Tensor, key: Any, value: Any) -> None:
    """self[key] = value."""
    if _native.call_bits((self, key, value), {}, 0) & _PUBLIC:
        slot("function_layer")(Tensor.__setitem__, (self, key, value), {})
        return
    source = as_value(self, value)
    if key is False:
        return
    if key is Ellipsis:
        copy_to(self, source)
    elif key is None or key is True:
        copy_to(aten.unsqueeze(self, 0), source)
    elif type(key) is int:
        copy_to(select_at(self, 0, key, 0), source)
    elif isinstance(key, slice):
        if not self.dim():
            raise IndexError("slice() cannot be applied to a 0-dim tensor.")
        copy_to(slice_at(self, 0, key, always=False), source)
    else:
        if type(key) is Tensor and key.dim() and self.dim():
            part, indices = self, [key]
        else:
            part, indices = apply(self, tuple(key) if is_tuple_like(key) else (key,))
        if not indices:
            copy_to(part, source)
            return
        short = without_leading_ones(source.shape)
        if len(source.shape) != len(short):
            source = aten.view(source, short)
        dispatch(index_op("index_put").inplace_op, (part, indices, source, False))


def _make_getitem() -> Any:
    """The method behind `x[...]`: C takes basic indices, recording them as select and slice."""
    fast = _native.Fast("getitem", 1)
    fresh = True

    def slow(self: Tensor, key: Any) -> Tensor:
        # C learns its parts on first use: importing reads no schema.
        nonlocal fresh
        if fresh:
            fresh = False
            select = packet("select").ops[0].fast
            select.set_parts(packet("unsqueeze").ops[0].fast)
            slices, rows = packet("slice").ops[0].fast, _native.Fast("slice", 1)
            rows.set_node(index_op("index"), index_op("index").node_type)
            slices.set_parts(rows)
            fast.set_parts(select, slices)
            method._set_fast(fast)
        return getitem(self, key)

    method = _native.Method("__getitem__", slow)
    return method


OPERATORS: dict[str, Any] = {
    "__getitem__": _make_getitem(),
    "__setitem__": _native.Method("__setitem__", setitem),
}
