"""Tensors from data, shapes and numbers."""

from __future__ import annotations

from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import state
from flambeau._src.core.interchange import share_array
from flambeau._src.core.slots import fill
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.promote import number_type


def _shape_of(data: Any) -> tuple[int, ...]:
    shape = []
    while isinstance(data, (list, tuple)):
        shape.append(len(data))
        if not data:
            break
        data = data[0]
    return tuple(shape)


def _leaf_types(data: Any, found: set[Any]) -> None:
    if isinstance(data, (list, tuple)):
        for x in data:
            _leaf_types(x, found)
    elif isinstance(data, Tensor):
        found.add(data.dtype)
    else:
        found.add(number_type(data) if isinstance(data, (bool, int, float, complex)) else type(data))


def tensor(
    data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False
) -> Tensor:
    """A new leaf tensor with a copy of data (numbers, nested lists, arrays, tensors)."""
    if isinstance(data, Tensor):
        t = data.detach().clone() if dtype is None else data.detach().to(dtype).clone()
    elif hasattr(data, "__array_interface__") or hasattr(data, "__array__"):
        import numpy as np  # lazy: NumPy is heavy

        t = share_array(np.array(data))
        t = t.clone() if dtype is None else t.to(dtype)
    else:
        shape = _shape_of(data)
        if dtype is None:
            types: set[Any] = set()
            _leaf_types(data, types)
            dtype = state.process.default_dtype
            if types:
                chosen = None
                for d in types:
                    chosen = d if chosen is None else dt.promote_types(chosen, d)
                dtype = chosen
        t = _native.empty(shape, dtype, _native.cpu)
        if not _native.fill_nested(t, data):
            raise TypeError("tensor(): the data does not fit the dtype")
    if requires_grad:
        t.requires_grad_()
    return t


METHODS: dict[str, Any] = {}
FUNCTIONS: dict[str, Any] = {"tensor": tensor}
