"""NumPy's functions and arrays as programs of tensors.

`REPLACEMENTS` says for a function (or class) of NumPy's which of ours the capture of bytecode
interprets in its place; NumPy's semantics hold: promotion, scalars, views. What is not in it has
no program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from flambeau._numpy import elementwise, facts, products, reductions, shaping
from flambeau._numpy.array import generic, ndarray, tensor_of, wrapped

__all__ = ["CREATORS", "NAMES", "REPLACEMENTS", "generic", "leave", "ndarray", "scalar"]

#: Functions of `numpy` by name.
NAMES: dict[str, Callable[..., Any]] = {
    **elementwise.FUNCTIONS,
    **reductions.FUNCTIONS,
    **shaping.FUNCTIONS,
    **products.FUNCTIONS,
}


def scalar(cls: Any) -> Callable[..., Any]:
    """A class of NumPy's scalars as a function of arrays."""

    def convert(value: Any = 0) -> Any:
        return wrapped(tensor_of(value, facts.torch_dtype(cls)))

    return convert


_SCALARS = "float64 float32 float16 complex64 complex128 int64 int32 int16 int8 uint8 bool_".split()

REPLACEMENTS: dict[Any, Callable[..., Any]] = {
    **{getattr(np, name): fn for name, fn in NAMES.items() if hasattr(np, name)},
    **{getattr(np.linalg, name): fn for name, fn in products.LINEAR.items()},
    **{getattr(np, name): scalar(getattr(np, name)) for name in _SCALARS},
}
#: Functions that make arrays of numbers, lists and shapes.
CREATORS = frozenset(getattr(np, name) for name in shaping.CREATORS)


ARRAY = np.array
#: Functions of constants, answered by NumPy itself.
PLAIN = frozenset(
    (np.dtype, np.promote_types, np.result_type, np.can_cast, np.issubdtype, np.isscalar)
    + (np.finfo, np.iinfo, np.broadcast_shapes, np.ndindex)
)


def class_of(value: Any) -> type:
    """NumPy's class of an array or a scalar."""
    if type(value) is ndarray:
        return np.ndarray
    found: type = facts.scalar_class(value.tensor.dtype)
    return found


def leave(tensor: Any, is_scalar: bool) -> Any:
    """What a program outside gets of an array that the graph made."""
    made = tensor.numpy()
    return made[()] if is_scalar else made
