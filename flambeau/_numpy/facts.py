"""What NumPy knows of dtypes: answered by NumPy itself, about dtypes and constants alone.

The capture of bytecode calls these functions as they are; all other code of the folder it
interprets. A *sort* is what an operand counts as where kinds are promoted: a torch dtype, or the
type of a Python number (`bool`, `int`, `float`, `complex`), which gives way to dtypes.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import flambeau as torch

__all__ = [
    "check_into", "constant", "default_ints", "is_constant", "listed", "loop",
    "numpy_dtype", "promoted",
    "refuse", "scalar_class", "sum_dtype", "torch_dtype", "unknown",
]  # fmt: skip

_TORCH: dict[Any, Any] = {
    np.dtype(name): getattr(torch, name)
    for name in (
        "float64 float32 float16 complex64 complex128 int64 int32 int16 int8 uint64 uint32 uint16 "
        "uint8 bool"
    ).split()
}
_NUMPY = {d: n for n, d in _TORCH.items()}


def refuse(reason: str) -> Any:
    """There is no program of tensors for this."""
    raise NotImplementedError(reason)


def unknown(name: str) -> Any:
    """An attribute of arrays that there is no program for, or none at all."""
    if hasattr(np.ndarray, name):
        refuse(f"numpy.ndarray.{name} has no program of tensors.")
    raise AttributeError(f"'numpy.ndarray' object has no attribute '{name}'")


def numpy_dtype(dtype: Any) -> Any:
    """NumPy's name for a torch dtype."""
    return _NUMPY[dtype]


@functools.cache
def torch_dtype(dtype: Any) -> Any:
    """The torch dtype for what NumPy takes as one; None stays None."""
    if dtype is None or dtype in _NUMPY:
        return dtype
    found = np.dtype(dtype)
    if found not in _TORCH:
        refuse(f"Arrays of dtype {found} have no tensors.")
    return _TORCH[found]


def scalar_class(dtype: Any) -> Any:
    """The class of NumPy's scalars of a torch dtype."""
    return _NUMPY[dtype].type


def _sort(sort: Any) -> Any:
    return _NUMPY.get(sort, sort)


@functools.cache
def loop(name: str, *sorts: Any) -> tuple[Any, ...]:
    """The dtypes in which a ufunc computes: of its operands, then of its results.

    Raises TypeError where the ufunc is not defined for them.
    """
    ufunc = getattr(np, name)
    given = tuple(np.dtype(bool) if s is bool else _sort(s) for s in sorts)
    if all(s in (int, float, complex) for s in given):
        given = tuple(np.dtype(s) for s in given)
    found = ufunc.resolve_dtypes((*given, *(None,) * ufunc.nout))
    return tuple(torch_dtype(d) for d in found)


@functools.cache
def promoted(*sorts: Any) -> Any:
    """The dtype of several operands together."""
    plain: dict[Any, Any] = {bool: np.dtype(bool), int: 0, float: 0.0, complex: 0j}
    return _TORCH[np.result_type(*(plain.get(s, _NUMPY.get(s)) for s in sorts))]


@functools.cache
def sum_dtype(dtype: Any) -> Any:
    """In which a sum or product of integers is taken."""
    return _TORCH[np.add.reduce(np.empty(0, _NUMPY[dtype])).dtype]


@functools.cache
def check_into(target: Any, made: Any) -> None:
    """Raise NumPy's error where a result of one dtype is not written into an array of another."""
    if not np.can_cast(_NUMPY[made], _NUMPY[target], "same_kind"):
        np.add(
            np.empty(0, _NUMPY[made]), np.empty(0, _NUMPY[made]), out=np.empty(0, _NUMPY[target])
        )


def default_ints() -> Any:
    """The dtype of indices and of arrays of Python ints."""
    return _TORCH[np.dtype(int)]


def is_constant(value: Any) -> bool:
    """Whether it is a scalar of NumPy's."""
    return isinstance(value, np.generic)


def constant(value: Any) -> tuple[Any, Any]:
    """(number, torch dtype) of a scalar of NumPy's."""
    return value.item(), _TORCH[value.dtype]


def listed(value: Any) -> tuple[Any, Any]:
    """(nested lists, torch dtype) of an array or of what becomes one."""
    found = np.asarray(value)
    if found.dtype not in _TORCH:
        refuse(f"Arrays of dtype {found.dtype} have no tensors.")
    if found.size > 4096:
        refuse("A large constant array is made in the function.")
    return found.tolist(), _TORCH[found.dtype]
